package main

import (
	"bufio"
	"context"
	endian "encoding/binary"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"softib/proto/ib"
	"softib/proto/topo"
	"softib/verbs"
	"softib/verbs/attach"
)

// crashSpec has few hosts, so that all pairs of them can be tried after each crash.
const crashSpec = "fat-tree:radix=4,levels=2"

// crashCalls is how many calls the test makes; SOFTIB_TENANT_CALLS asks for another number, SOFTIB_TENANT_SEED for
// another history.
const (
	crashCalls      = 1000
	crashCallsShort = 150
	// Of a hundred calls or batches of them so many are cut off by the end of the fabric, or followed by it.
	crashPercent = 10
)

func fromEnv(t *testing.T, name string, otherwise uint64) uint64 {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(text, 0, 64)
	if err != nil {
		t.Fatalf("%s=%s: want a number", name, text)
	}
	return n
}

// crash is a fabric that is killed and started again while clients change its tenants.
type crash struct {
	t     *testing.T
	rng   *rand.Rand
	dir   string // the runtime folder
	state string
	bin   string
	place place
	proc  *exec.Cmd
	hosts []string
	// known is what was acknowledged.
	known map[string]model
	// pending are calls without an answer: the next start shows what came of them.
	pending []*call
	usual   time.Duration // that calls take
	kills   int
	cutOff  int // calls that never had an answer
	done    int // of those, that were made all the same
	refused int // as they should be
	sent    int
	arrived int
}

// model is a tenant as the test knows it: hosts, and whether they are full members.
type model struct {
	key     string
	members map[string]bool
}

func (m model) clone() model { return model{m.key, maps.Clone(m.members)} }

// same reports whether two are alike; a key that is not known is any.
func (m model) same(o model) bool {
	return (m.key == o.key || m.key == "" || o.key == "") && maps.Equal(m.members, o.members)
}

// TestTenantsSurvive: random changes of tenants, the fabric killed with SIGKILL again and again, also while calls are
// under way. Whatever was acknowledged holds after each start and in the end, what was not is there whole or not at
// all, and programs on the hosts find with packets who reaches whom.
func TestTenantsSurvive(t *testing.T) {
	t.Parallel()
	calls := crashCalls
	if testing.Short() {
		calls = crashCallsShort
	}
	calls = int(fromEnv(t, "SOFTIB_TENANT_CALLS", uint64(calls)))
	seed := fromEnv(t, "SOFTIB_TENANT_SEED", 1)
	t.Logf("SOFTIB_TENANT_SEED=%d SOFTIB_TENANT_CALLS=%d", seed, calls)
	s := newShellBeside(t)
	c := &crash{t: t, rng: rand.New(rand.NewPCG(seed, 5)), dir: s.dir, bin: s.bin, state: t.TempDir(),
		known: map[string]model{}, usual: time.Millisecond}
	c.place = place{dir: filepath.Join(s.dir, "softib"), name: defaultName}
	g, err := topo.ParseSpec(crashSpec)
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range g.Hosts() {
		c.hosts = append(c.hosts, h.Name)
	}
	c.start()
	t.Cleanup(func() { c.kill() })
	for made := 0; made < calls && !t.Failed(); {
		// Mostly one at a time, else a few that come at once.
		n := 1
		if c.rng.IntN(4) == 0 {
			n = 1 + c.rng.IntN(3)
		}
		n = min(n, calls-made)
		made += n
		switch p := c.rng.IntN(100); {
		case p < crashPercent/2: // cut off
			c.batch(n, time.Duration(c.rng.Int64N(int64(2*c.usual))))
			c.restart()
		case p < crashPercent: // or after they were answered
			c.batch(n, -1)
			c.restart()
		default:
			c.batch(n, -1)
			if c.rng.IntN(40) == 0 {
				c.check()
			}
		}
	}
	c.check()
	t.Logf("%d calls, %d refused as they should be; %d kills, %d calls cut off, %d of them made all the same; "+
		"%d datagrams sent, %d arrived",
		calls, c.refused, c.kills, c.cutOff, c.done, c.sent, c.arrived)
	if calls >= crashCalls && (c.kills < 30 || c.cutOff < 5) {
		t.Errorf("the test did not try enough: %d kills, %d calls cut off", c.kills, c.cutOff)
	}
}

// start starts the fabric and waits until it serves programs.
func (c *crash) start() {
	c.t.Helper()
	c.proc = exec.Command(c.bin, "up", crashSpec, "--state", c.state, "--sweep", "0")
	c.proc.Env = append(os.Environ(), "XDG_RUNTIME_DIR="+c.dir)
	out, err := c.proc.StdoutPipe()
	if err != nil {
		c.t.Fatal(err)
	}
	var errs strings.Builder
	c.proc.Stderr = &errs
	if err := c.proc.Start(); err != nil {
		c.t.Fatal(err)
	}
	up := make(chan bool, 1)
	go func() {
		said := false
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if strings.HasPrefix(lines.Text(), "up") && !said {
				said = true
				up <- true
			}
		}
		if !said {
			up <- false
		}
	}()
	select {
	case ok := <-up:
		if !ok {
			_ = c.proc.Wait()
			c.t.Fatalf("the fabric does not start:\n%s", errs.String())
		}
	case <-time.After(60 * time.Second):
		c.t.Fatal("the fabric is not up after 60 s")
	}
}

func (c *crash) kill() {
	if c.proc == nil {
		return
	}
	_ = c.proc.Process.Kill()
	_ = c.proc.Wait()
	c.proc = nil
}

// call is one change that a client asks for.
type call struct {
	r       tenantRequest
	before  *model
	after   *model // nil as it is, or where there is none
	refused bool   // it must be
	err     error
	shown   []tenantShown
}

// some picks hosts.
func (c *crash) some(from []string, most int) []string {
	list := slices.Clone(from)
	c.rng.Shuffle(len(list), func(i, k int) { list[i], list[k] = list[k], list[i] })
	return list[:min(1+c.rng.IntN(most), len(list))]
}

// invent makes up a call about a tenant.
func (c *crash) invent(name string) *call {
	was, there := c.known[name]
	x := &call{r: tenantRequest{Name: name}}
	if there {
		x.before = &was
	}
	p := c.rng.IntN(100)
	switch {
	case !there && p < 85 || p < 4: // a tenth of them for one that is there
		x.r.Do, x.r.Hosts, x.r.Limited = tenantCreate, c.some(c.hosts, 4), c.rng.IntN(4) == 0
		x.refused = there
		m := model{members: map[string]bool{}}
		for _, h := range x.r.Hosts {
			m.members[h] = !x.r.Limited
		}
		x.after = &m
	case p < 50:
		x.r.Do, x.r.Hosts, x.r.Limited = tenantAdd, c.some(c.hosts, 3), c.rng.IntN(3) == 0
		x.refused = !there
		m := was.clone()
		for _, h := range x.r.Hosts {
			if there {
				m.members[h] = !x.r.Limited
			}
		}
		x.after = &m
	case p < 82:
		x.r.Do, x.r.Hosts = tenantRemove, c.some(c.hosts, 2)
		if there && len(was.members) > 0 && c.rng.IntN(8) > 0 {
			x.r.Hosts = c.some(slices.Sorted(maps.Keys(was.members)), 2)
		}
		m := was.clone()
		for _, h := range x.r.Hosts {
			_, in := was.members[h]
			x.refused = x.refused || !in
			delete(m.members, h)
		}
		x.after = &m
	default:
		x.r.Do, x.refused = tenantDelete, !there
	}
	return x
}

// batch makes calls about different tenants at once. With a time the fabric is killed so long after they have begun.
func (c *crash) batch(n int, killAfter time.Duration) {
	c.t.Helper()
	names := []string{"red", "green", "blue", "black", "white"}
	c.rng.Shuffle(len(names), func(i, k int) { names[i], names[k] = names[k], names[i] })
	var calls []*call
	for i := range n {
		calls = append(calls, c.invent(names[i]))
	}
	ctx, cancel := context.WithTimeout(c.t.Context(), 60*time.Second)
	defer cancel()
	var wg sync.WaitGroup
	began := time.Now()
	for _, x := range calls {
		wg.Go(func() {
			x.err = askFabric(ctx, c.place, opTenant, x.r, func(list []tenantShown) error {
				x.shown = append(x.shown, list...)
				return nil
			})
		})
	}
	killed := killAfter >= 0
	if killed {
		// The moment is what the test is about, so it is a matter of time and of nothing else.
		time.Sleep(killAfter)
		c.kill()
	}
	wg.Wait()
	if !killed {
		c.usual = (7*c.usual + time.Since(began)) / 8
	}
	for _, x := range calls {
		c.settle(x, killed)
	}
}

// settle takes in what an answer says.
func (c *crash) settle(x *call, killed bool) {
	c.t.Helper()
	switch {
	case x.err == nil && x.refused:
		c.t.Errorf("%+v was made, and must not be: %s is %+v", x.r, x.r.Name, x.before)
	case x.err == nil:
		if x.r.Do == tenantDelete {
			delete(c.known, x.r.Name)
			return
		}
		if len(x.shown) != 1 {
			c.t.Errorf("%+v is answered with %d tenants", x.r, len(x.shown))
			return
		}
		got := modelOf(&x.shown[0])
		if !got.same(*x.after) {
			c.t.Errorf("%+v is answered with %+v: want %+v", x.r, got, x.after)
		}
		c.known[x.r.Name] = got
	case x.refused && nextOf(x.err) != "" && !killed:
		c.refused++
	case !killed:
		c.t.Errorf("%+v: %v; %s is %+v", x.r, x.err, x.r.Name, x.before)
	case !x.refused:
		c.cutOff++
		c.pending = append(c.pending, x)
	}
}

// restart starts the fabric again, after killing it if it still runs, and holds what it has against what was
// acknowledged.
func (c *crash) restart() {
	c.t.Helper()
	c.kill()
	c.kills++
	c.start()
	c.check()
}

func modelOf(s *tenantShown) model {
	m := model{s.PKey, map[string]bool{}}
	for _, x := range s.Members {
		m.members[x.Host] = x.Membership == "full"
	}
	return m
}

// check compares the list and then sends packets.
func (c *crash) check() {
	c.t.Helper()
	list := map[string]model{}
	ctx, cancel := context.WithTimeout(c.t.Context(), 60*time.Second)
	defer cancel()
	err := askFabric(ctx, c.place, opTenant, tenantRequest{Do: tenantList}, func(some []tenantShown) error {
		for i := range some {
			list[some[i].Name] = modelOf(&some[i])
		}
		return nil
	})
	if err != nil {
		c.t.Fatal(err)
	}
	for _, x := range c.pending {
		is, there := list[x.r.Name]
		matches := func(m *model) bool { return m == nil && !there || m != nil && there && m.same(is) }
		switch {
		case matches(x.after):
			c.done++
		case !matches(x.before):
			c.t.Errorf("%+v was cut off: want %s to be %+v or %+v, and it is %+v", x.r, x.r.Name, x.before, x.after, is)
		}
		if there {
			c.known[x.r.Name] = is
		} else {
			delete(c.known, x.r.Name)
		}
	}
	c.pending = nil
	if !maps.EqualFunc(list, c.known, func(a, b model) bool { return a.key == b.key && a.same(b) }) {
		c.t.Errorf("tenants are %+v: want %+v, which was acknowledged", list, c.known)
	}
	c.checkPackets(ctx)
}

// stand is a queue pair of a program on a host, in one of the host's partitions.
type stand struct {
	host int
	key  ib.PKey // with its membership
	qp   *verbs.QP
}

// keysOf are the keys that a host has to have.
func (c *crash) keysOf(host int) (keys []ib.PKey) {
	in := false
	for _, m := range c.known {
		full, member := m.members[c.hosts[host]]
		if !member {
			continue
		}
		in = true
		k, err := strconv.ParseUint(m.key, 0, 16)
		if err != nil {
			c.t.Fatal(err)
		}
		if full {
			k |= uint64(ib.PKeyFull)
		}
		keys = append(keys, ib.PKey(k))
	}
	// The manager is in a switch. Hosts without a tenant are among themselves, while there are tenants.
	switch {
	case in:
		return append(keys, ib.PKeyBase)
	case len(c.known) > 0:
		return []ib.PKey{ib.PKeyDefault - 1, ib.PKeyBase}
	}
	return []ib.PKey{ib.PKeyDefault}
}

const (
	probeQKey = 0x1234
	probeSize = 16
	grhSize   = 40
	ring      = 512 // receives of a program
)

// checkPackets runs a program on each host, with a queue pair in each of its partitions, and sends from each queue pair
// to each. Datagrams have to arrive where the two are in one partition, one of them at least as a full member, and
// nowhere else.
func (c *crash) checkPackets(ctx context.Context) {
	c.t.Helper()
	must := func(err error) {
		c.t.Helper()
		if err != nil {
			c.t.Fatal(err)
		}
	}
	type program struct {
		dev  *attach.Device
		ctx  *verbs.Context
		cq   *verbs.CQ
		scq  *verbs.CQ
		recv *verbs.MR
		srq  *verbs.SRQ
		lid  ib.LID
		pd   *verbs.PD
		ahs  []*verbs.AH
	}
	progs := make([]*program, len(c.hosts))
	var stands []stand
	for i, name := range c.hosts {
		dev, err := attach.Open(attach.Options{Socket: c.place.verbs(), Host: name})
		must(err)
		defer dev.Close()
		p := &program{dev: dev, ctx: verbs.Open(dev)}
		progs[i] = p
		port, err := p.ctx.QueryPort(1)
		must(err)
		p.lid = port.LID
		var have []ib.PKey
		for _, k := range port.PKeys {
			if k != 0 {
				have = append(have, k)
			}
		}
		want := c.keysOf(i)
		slices.Sort(want)
		sorted := slices.Sorted(slices.Values(have))
		if !slices.Equal(sorted, want) {
			c.t.Errorf("%s has the keys %v: want %v", name, sorted, want)
		}
		p.pd, err = p.ctx.AllocPD()
		must(err)
		p.recv, err = p.pd.RegMR(make([]byte, ring*(grhSize+probeSize)), verbs.AccessLocalWrite)
		must(err)
		p.cq, err = p.ctx.CreateCQ(ring)
		must(err)
		p.scq, err = p.ctx.CreateCQ(64)
		must(err)
		p.srq, err = p.pd.CreateSRQ(verbs.SRQInit{MaxWR: ring, MaxSGE: 1})
		must(err)
		for n := range ring {
			must(p.srq.PostRecv(&verbs.RecvWR{WRID: uint64(n),
				SGList: p.recv.SGEs(n*(grhSize+probeSize), grhSize+probeSize)}))
		}
		for at, k := range port.PKeys {
			if k == 0 {
				continue
			}
			qp, err := p.pd.CreateQP(verbs.QPInit{Type: verbs.UD, SendCQ: p.scq, RecvCQ: p.cq, SRQ: p.srq,
				Caps: verbs.Caps{MaxSendWR: 64, MaxSendSGE: 1, MaxInline: probeSize}})
			must(err)
			must(qp.Ready(1, uint16(at), probeQKey))
			stands = append(stands, stand{i, k, qp})
		}
	}
	for _, p := range progs {
		for _, to := range progs {
			ah, err := p.pd.CreateAH(verbs.AHAttr{DLID: to.lid, Port: 1})
			must(err)
			p.ahs = append(p.ahs, ah)
		}
	}
	type pass struct{ from, to, round uint32 }
	expected := map[pass]bool{}
	got := map[pass]bool{}
	var wc [64]verbs.WC
	take := func() {
		for _, p := range progs {
			for n := p.cq.Poll(wc[:]); n > 0; n = p.cq.Poll(wc[:]) {
				for _, w := range wc[:n] {
					if w.Status != verbs.WCSuccess || w.ByteLen != grhSize+probeSize {
						c.t.Fatalf("a receive ends with %v and %d bytes", w.Status, w.ByteLen)
					}
					off := int(w.WRID) * (grhSize + probeSize)
					b := p.recv.Bytes()[off+grhSize:]
					x := pass{endian.BigEndian.Uint32(b), endian.BigEndian.Uint32(b[4:]),
						endian.BigEndian.Uint32(b[8:])}
					if got[x] {
						c.t.Errorf("%v came twice", x)
					}
					got[x] = true
					must(p.srq.PostRecv(&verbs.RecvWR{WRID: w.WRID, SGList: p.recv.SGEs(off, grhSize+probeSize)}))
				}
			}
		}
	}
	// In the second round only what is allowed is sent. Rings keep order: when it is there, so is whatever slipped
	// through in the first.
	for round := range uint32(2) {
		for i, from := range stands {
			for k, to := range stands {
				allowed := from.key.Matches(to.key)
				if from.host == to.host || round == 1 && !allowed {
					continue
				}
				x := pass{uint32(i), uint32(k), round}
				if allowed {
					expected[x] = true
				}
				b := make([]byte, 0, probeSize)
				for _, v := range []uint32{x.from, x.to, x.round, 0} {
					b = endian.BigEndian.AppendUint32(b, v)
				}
				must(from.qp.PostSend(&verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendSignaled | verbs.SendInline,
					InlineData: b,
					AH:         progs[from.host].ahs[to.host], RemoteQPN: to.qp.Num(), RemoteQKey: probeQKey}))
				c.sent++
				if n, err := progs[from.host].scq.Wait(ctx, wc[:1]); err != nil || n != 1 ||
					wc[0].Status != verbs.WCSuccess {
					c.t.Fatalf("a send ends with %v, %v", wc[0].Status, err)
				}
			}
			take()
		}
		for deadline := time.Now().Add(60 * time.Second); len(got) < len(expected) && time.Now().Before(deadline); {
			take()
		}
	}
	take()
	c.arrived += len(got)
	name := func(i uint32) string { return fmt.Sprintf("%s with %v", c.hosts[stands[i].host], stands[i].key) }
	for x := range expected {
		if !got[x] {
			c.t.Errorf("%s does not reach %s", name(x.from), name(x.to))
		}
	}
	for x := range got {
		if !expected[x] {
			c.t.Errorf("%s reaches %s", name(x.from), name(x.to))
		}
	}
}
