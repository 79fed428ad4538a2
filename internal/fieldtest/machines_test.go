package fieldtest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"softib/internal/built"
	"softib/internal/netpair"
	"softib/operate/cluster"
	mgmt "softib/operate/manager"
	"softib/operate/status"
	"softib/proto/mad"
)

// machines are three, a, b and c, in network namespaces of their own at a bridge, with etcd on a fourth.
type machines struct {
	*netpair.Machines
	t           *testing.T // the test as a whole
	dir, softib string
	up          [3]*daemon
	etcd        *exec.Cmd
}

// daemon is a softib up on a machine, and what it has written.
type daemon struct {
	cmd  *exec.Cmd
	out  bytes.Buffer
	done chan struct{}
}

const (
	machineNames = "abc"
	etcdMachine  = len(machineNames)
	spanned      = "fat-tree:radix=8,levels=2" // 32 hosts
	spannedHosts = 32
)

// patience is how long things may take that always come.
const machinePatience = 3 * time.Minute

func newMachines(t *testing.T) *machines {
	t.Helper()
	if _, err := exec.LookPath("etcd"); err != nil {
		t.Fatalf("%v; next: make setup-test installs it", err)
	}
	m := &machines{t: t, dir: t.TempDir()}
	m.softib = filepath.Join(m.dir, "softib")
	if err := built.Libraries(filepath.Join(m.dir, "lib")); err != nil {
		t.Fatal(err)
	}
	if err := built.Command(m.softib); err != nil {
		t.Fatal(err)
	}
	var err error
	if m.Machines, err = netpair.NewLAN(etcdMachine + 1); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	certs := filepath.Join(m.dir, "certs")
	m.must(t, exec.Command(m.softib, "ca", "init", certs))
	for i, name := range machineNames {
		m.must(t, exec.Command(m.softib, "ca", "issue", certs, string(name)))
		if err := os.Mkdir(m.run(i), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	m.startEtcd(t)
	return m
}

func (m *machines) must(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	late := time.AfterFunc(machinePatience, func() { _ = cmd.Process.Signal(syscall.SIGQUIT) }) // says where it is
	defer late.Stop()
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%q: %v\n%s", cmd.Args, err, out)
	}
	return string(out)
}

func (m *machines) run(machine int) string {
	return filepath.Join(m.dir, "run"+machineNames[machine:][:1])
}

func (m *machines) startEtcd(t *testing.T) {
	at := "http://" + netpair.Address(etcdMachine)
	m.etcd = m.Command(context.Background(), etcdMachine, "etcd", "--data-dir", filepath.Join(m.dir, "etcd"),
		"--listen-client-urls", at+":2379", "--advertise-client-urls", at+":2379", "--listen-peer-urls", at+":2380",
		"--initial-advertise-peer-urls", at+":2380", "--initial-cluster", "default="+at+":2380")
	if err := m.etcd.Start(); err != nil {
		t.Fatal(err)
	}
	m.t.Cleanup(func() { _ = m.etcd.Process.Kill(); _ = m.etcd.Wait() })
	deadline := time.Now().Add(machinePatience)
	for ; !m.Listens(etcdMachine, 2379); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("etcd does not listen")
		}
	}
}

// on is a command of softib on a machine.
func (m *machines) on(ctx context.Context, machine int, args ...string) *exec.Cmd {
	cmd := m.Command(ctx, machine, append([]string{m.softib}, args...)...)
	cmd.Env = append(os.Environ(), "XDG_RUNTIME_DIR="+m.run(machine))
	return cmd
}

// join is the command by which a machine takes part.
func (m *machines) join(machine int) []string {
	return []string{"up", "--join", "etcd://" + netpair.Address(etcdMachine) + ":2379/test", "--machine",
		machineNames[machine:][:1], "--certs", filepath.Join(m.dir, "certs"), "--state", "none", "--http", "off"}
}

// start runs a machine's part.
func (m *machines) start(t *testing.T, machine int) {
	t.Helper()
	d := &daemon{done: make(chan struct{})}
	d.cmd = m.on(context.Background(), machine, append(m.join(machine), spanned, "--machines", "a,b,c")...)
	d.cmd.Stdout, d.cmd.Stderr = &d.out, &d.out
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { _ = d.cmd.Wait(); close(d.done) }()
	m.up[machine] = d
	m.t.Cleanup(func() { // not when the part of the test ends that has started it
		m.end(d, syscall.SIGTERM)
		if m.t.Failed() {
			m.t.Logf("machine %c:\n%s", machineNames[machine], &d.out)
		}
	})
}

// end ends a machine's part, with a signal to it; nsenter has become it.
func (m *machines) end(d *daemon, s syscall.Signal) {
	select {
	case <-d.done:
		return
	default:
	}
	_ = d.cmd.Process.Signal(s)
	select {
	case <-d.done:
	case <-time.After(machinePatience):
		_ = d.cmd.Process.Kill()
		<-d.done
	}
}

// status is the fabric as a machine sees it.
func (m *machines) status(machine int) (s status.Status, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), machinePatience)
	defer cancel()
	out, err := m.on(ctx, machine, "status", "--json").Output()
	if err == nil {
		err = json.Unmarshal(out, &s)
	}
	return s, err
}

// await waits until all machines that run see so many hosts ACTIVE and one master.
func (m *machines) await(t *testing.T, hosts int, machines ...int) {
	t.Helper()
	deadline := time.Now().Add(machinePatience)
	for _, i := range machines {
		for {
			s, err := m.status(i)
			if err == nil && s.HostsActive == hosts && len(s.Managers) == 1 && s.Managers[0].State == "Master" {
				break
			}
			select {
			case <-m.up[i].done:
				t.Fatalf("machine %c has ended", machineNames[i])
			default:
			}
			if time.Now().After(deadline) {
				t.Fatalf("machine %c: %v: %d of %d hosts, managers %+v", machineNames[i], err, s.HostsActive, hosts,
					s.Managers)
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
}

// pair runs a server on a host of one machine and its client on one of another, and returns what the client wrote.
func (m *machines) pair(t *testing.T, port int, from int, client string, to int, server string, argv ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), machinePatience)
	defer cancel()
	argv = append(argv, "-p", fmt.Sprint(port))
	s := m.on(ctx, to, append([]string{"exec", server, "--"}, argv...)...)
	var said bytes.Buffer
	s.Stdout, s.Stderr = &said, &said
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- s.Wait() }()
	for !m.Listens(to, port) {
		select {
		case err := <-done:
			t.Fatalf("%q ended: %v\n%s", argv, err, &said)
		case <-time.After(5 * time.Millisecond):
		}
	}
	out := m.must(t, m.on(ctx, from, append(append([]string{"exec", client, "--"}, argv...), netpair.Address(to))...))
	if err := <-done; err != nil {
		t.Fatalf("%q: %v\n%s", argv, err, &said)
	}
	return out
}

// One fabric of three machines: unmodified programs on different ones talk, every machine sees all of it, a machine
// that is killed is hosts that go down and come back, and another is the master then.
func TestMachines(t *testing.T) {
	t.Parallel()
	m := newMachines(t)
	all := []int{0, 1, 2}
	for _, i := range all {
		m.start(t, i)
	}
	m.await(t, spannedHosts, all...)
	// leaf with its hosts: a has h1 to h12, b h13 to h24, c h25 to h32.
	hosts := [3]string{"h1", "h13", "h32"}
	t.Run("programs", func(t *testing.T) {
		m.pair(t, 18700, 0, hosts[0], 2, hosts[2], "ibv_rc_pingpong", "-c", "-n", "500")
		m.pair(t, 18701, 1, hosts[1], 0, hosts[0], "ibv_ud_pingpong", "-n", "500")
		m.pair(t, 18702, 2, hosts[2], 1, hosts[1], "ib_write_bw", "-F", "-s", "65536", "-n", "500")
		m.pair(t, 18703, 0, hosts[0], 1, hosts[1], "ib_read_lat", "-F", "-n", "500")
		m.pair(t, 18704, 1, hosts[1], 2, hosts[2], "ib_atomic_bw", "-F", "-n", "500")
		s, err := m.status(0)
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range s.Machines {
			if !x.Here && x.LinesLaid == 0 {
				t.Errorf("no program's way has led directly to machine %s", x.Name)
			}
		}
	})
	t.Run("rdmacm", func(t *testing.T) { m.rping(t, hosts) })
	t.Run("mpi", func(t *testing.T) { m.mpi(t, hosts) })
	t.Run("tools", func(t *testing.T) {
		for i, h := range hosts {
			out := m.must(t, m.on(t.Context(), i, "exec", h, "--", "ibhosts"))
			if n := strings.Count(out, "\n"); n != spannedHosts {
				t.Errorf("ibhosts on machine %c: %d lines\n%s", machineNames[i], n, out)
			}
		}
		if out := m.must(t, m.on(t.Context(), 1, "topo", "check", "live")); strings.Contains(out, "unreached") {
			t.Error(out)
		}
	})
	t.Run("elsewhere", func(t *testing.T) {
		out, err := m.on(t.Context(), 0, "exec", "h32", "--", "true").CombinedOutput()
		if err == nil || !strings.Contains(string(out), "h32 is on machine c") ||
			!strings.Contains(string(out), "next: ") {
			t.Errorf("%v\n%s", err, out)
		}
		// Captures are made where a port is; a cable between machines has one on both. Machine a has two of the four
		// spines, b and c one each.
		for i, want := range []int{4, 1, 1} {
			seen := 0
			for spine := 1; spine <= 4; spine++ {
				cmd := m.on(t.Context(), i, "capture", "leaf1", fmt.Sprint("spine", spine), "--for", "1ms", "-w", "-")
				out, err := cmd.CombinedOutput()
				if err == nil {
					seen++
				} else if !strings.Contains(string(out), "is on machine ") {
					t.Errorf("%v\n%s", err, out)
				}
			}
			if seen != want {
				t.Errorf("machine %c captures %d of the cables of leaf1, want %d", machineNames[i], seen, want)
			}
		}
		out, err = m.on(t.Context(), 0, "capture", "h32", "--count", "1", "-w", "-").CombinedOutput()
		if err == nil || !strings.Contains(string(out), "h32 is on machine c\nnext: ") {
			t.Errorf("%v\n%s", err, out)
		}
	})
	t.Run("terms", func(t *testing.T) { m.terms(t) })
	// From here on there are tenants, whichever machine rules: one has all hosts that are tried, others come and go.
	book := tenants{"red": "h1,h13,h32"}
	t.Run("tenants", func(t *testing.T) {
		m.must(t, m.on(t.Context(), 0, "tenant", "create", "red", "--hosts", book["red"]))
		for i, name := range []string{"blue", "green"} { // asked for where the master is not
			book[name] = fmt.Sprintf("h%d,h%d", i+2, i+14)
			m.must(t, m.on(t.Context(), i+1, "tenant", "create", name, "--hosts", book[name]))
		}
		m.agree(t, book, all...)
		m.pair(t, 18706, 0, hosts[0], 2, hosts[2], "ibv_rc_pingpong", "-c", "-n", "500")
		m.apart(t, 18707, 0, hosts[0], 1, "h14")
	})
	t.Run("one is killed", func(t *testing.T) {
		m.end(m.up[2], syscall.SIGKILL)
		m.await(t, 24, 0, 1)
		m.pair(t, 18710, 0, hosts[0], 1, hosts[1], "ibv_rc_pingpong", "-c", "-n", "500")
		// In the background, and without the topology: it is the fabric's.
		m.must(t, m.on(t.Context(), 2, append(m.join(2), "-d")...))
		m.must(t, m.on(t.Context(), 2, "down"))
		m.start(t, 2)
		m.await(t, spannedHosts, all...)
		m.pair(t, 18711, 0, hosts[0], 2, hosts[2], "ibv_rc_pingpong", "-c", "-n", "500")
	})
	t.Run("the master is killed", func(t *testing.T) {
		s, err := m.status(1)
		if err != nil || len(s.Managers) != 1 {
			t.Fatalf("%v: %+v", err, s.Managers)
		}
		master := 1
		if name := s.Managers[0].Machine; name != "" {
			master = strings.Index(machineNames, name)
		}
		others := []int{(master + 1) % 3, (master + 2) % 3}
		flow := m.flow(t, 18719, master, others)
		m.end(m.up[master], syscall.SIGKILL)
		// The next master knows all that was acknowledged, and goes on with it.
		book["blue"] = "h2,h14,h20"
		m.must(t, m.on(t.Context(), others[0], "tenant", "add", "blue", "h20"))
		m.agree(t, book, others...)
		m.await(t, spannedHosts-[3]int{12, 12, 8}[master], others...)
		m.pair(t, 18720, others[0], hosts[others[0]], others[1], hosts[others[1]], "ibv_rc_pingpong", "-c", "-n", "500")
		flow.goesOn(t)
		m.start(t, master)
		m.await(t, spannedHosts, all...)
	})
	t.Run("a cable is cut", func(t *testing.T) {
		if err := m.Cut(1, true); err != nil {
			t.Fatal(err)
		}
		m.await(t, 20, 0, 2)
		if err := m.Cut(1, false); err != nil {
			t.Fatal(err)
		}
		m.await(t, spannedHosts, all...)
		m.pair(t, 18730, 1, hosts[1], 2, hosts[2], "ibv_rc_pingpong", "-c", "-n", "500")
	})
	t.Run("etcd is away", func(t *testing.T) {
		_ = m.etcd.Process.Kill()
		_ = m.etcd.Wait()
		m.pair(t, 18740, 0, hosts[0], 1, hosts[1], "ibv_rc_pingpong", "-c", "-n", "500")
		m.startEtcd(t)
		m.await(t, spannedHosts, all...)
	})
	t.Run("at random", func(t *testing.T) { m.atRandom(t, hosts, book) })
}

// terms asks switches of all machines in the name of the manager that rules, of one before it, and of nobody: what a
// manager has sent before it was deposed is not carried out.
func (m *machines) terms(t *testing.T) {
	t.Helper()
	ask := func(leaf int, key uint64, ms int) error {
		lid := strings.TrimSpace(m.must(t, m.on(t.Context(), 0, "exec", "h1", "--", "sh", "-c",
			fmt.Sprintf(`ibswitches | sed -n 's/.*"leaf%d".* lid \([0-9]*\) .*/\1/p'`, leaf))))
		out, err := m.on(t.Context(), 0, "exec", "h1", "--", "smpquery", "-t", fmt.Sprint(ms), "-y",
			fmt.Sprintf("%#x", key), "switchinfo", lid).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	}
	for _, leaf := range []int{1, 4, 8} { // of a, b and c
		if err := ask(leaf, 0, 5000); err != nil {
			t.Errorf("leaf%d does not answer nobody: %v", leaf, err)
		}
		// On a busy machine another may have come to rule while one was asked: that says nothing.
		for {
			secret, term := m.term(t)
			err := ask(leaf, mad.TermKey(secret, 0, term), 5000)
			before := ask(leaf, mad.TermKey(secret, 0, term-1), 100)
			if _, now := m.term(t); now != term {
				continue
			}
			if err != nil {
				t.Errorf("leaf%d does not answer who rules: %v", leaf, err)
			}
			if before == nil {
				t.Errorf("leaf%d answers who ruled before", leaf)
			}
			break
		}
	}
}

// term is what managers' keys are made of: the secret, and the term of the one that rules.
func (m *machines) term(t *testing.T) (secret uint64, term uint32) {
	t.Helper()
	out := m.must(t, m.Command(t.Context(), etcdMachine, "curl", "-s", "-d", `{"key":"AA==","range_end":"AA=="}`,
		"http://"+netpair.Address(etcdMachine)+":2379/v3/kv/range"))
	var all struct {
		KVs []struct {
			Key, Value []byte
			Mod        uint64 `json:"mod_revision,string"`
		}
	}
	if err := json.Unmarshal([]byte(out), &all); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var spec cluster.Spec
	for _, kv := range all.KVs {
		switch {
		case strings.HasSuffix(string(kv.Key), cluster.MasterKey):
			term = uint32(kv.Mod)
		case strings.HasSuffix(string(kv.Key), "/sections/"+cluster.SpecSection):
			if err := json.Unmarshal(kv.Value, &spec); err != nil {
				t.Fatal(err)
			}
		}
	}
	if secret = mgmt.Derive(spec.Secret, "terms"); secret == 0 {
		t.Fatalf("in etcd is secret %q:\n%s", spec.Secret, out)
	}
	return secret, term
}

// flow is a program on two machines that sends by switches of these alone.
type flow struct {
	m              *machines
	on             int
	from, to, way  string
	server, client *exec.Cmd
	said           [2]bytes.Buffer
}

// flow starts one that has no need of a machine.
func (m *machines) flow(t *testing.T, port, without int, others []int) *flow {
	t.Helper()
	// Where the spines are: leaf1 is on the first machine, which has the cables to all.
	gone := map[string]bool{}
	for n := 1; n <= 4; n++ {
		spine, at := fmt.Sprint("spine", n), 0
		for _, i := range []int{1, 2} {
			_, err := m.on(t.Context(), i, "capture", "leaf1", spine, "--for", "1ms", "-w", "-").Output()
			if err == nil {
				at = i
			}
		}
		gone[spine] = at == without
	}
	own := [3][2]int{{1, 12}, {13, 24}, {25, 32}} // hosts of the machines
	for a := own[others[0]][0]; a <= own[others[0]][1]; a++ {
		for b := own[others[1]][0]; b <= own[others[1]][1]; b++ {
			f := &flow{m: m, on: others[0], from: fmt.Sprint("h", a), to: fmt.Sprint("h", b)}
			if f.way = f.trace(t); f.way == "" || slices.ContainsFunc(spineName.FindAllString(f.way, -1),
				func(s string) bool { return gone[s] }) {
				continue
			}
			argv := []string{"--", "ib_write_bw", "-F", "-D", "4", "-p", fmt.Sprint(port)}
			f.server = m.on(t.Context(), others[1], append([]string{"exec", f.to}, argv...)...)
			f.client = m.on(t.Context(), others[0], append(append([]string{"exec", f.from}, argv...),
				netpair.Address(others[1]))...)
			f.server.Stdout, f.server.Stderr, f.client.Stdout, f.client.Stderr = &f.said[0], &f.said[0], &f.said[1],
				&f.said[1]
			if err := f.server.Start(); err != nil {
				t.Fatal(err)
			}
			for !m.Listens(others[1], port) {
				time.Sleep(5 * time.Millisecond)
			}
			if err := f.client.Start(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second) // until it sends, or is about to
			return f
		}
	}
	t.Fatalf("all ways between machines %c and %c need machine %c", machineNames[others[0]], machineNames[others[1]],
		machineNames[without])
	return nil
}

var (
	spineName = regexp.MustCompile(`spine\d+`)
	hopLine   = regexp.MustCompile(`(?m)^.* -> .*$`)
)

// trace is the way there and back, hop by hop; empty where the two may not talk.
func (f *flow) trace(t *testing.T) string {
	out, err := f.m.on(t.Context(), f.on, "route", "trace", f.from, f.to, "--both").CombinedOutput()
	if err != nil {
		return ""
	}
	return strings.Join(hopLine.FindAllString(string(out), -1), "\n")
}

// goesOn wants that it has not been disturbed, and goes the way that it went.
func (f *flow) goesOn(t *testing.T) {
	t.Helper()
	if errC, errS := f.client.Wait(), f.server.Wait(); errC != nil || errS != nil {
		t.Errorf("%s to %s, which need nothing of the master's machine, while it was killed: %v, %v\n%s\n%s", f.from,
			f.to, errC, errS, &f.said[1], &f.said[0])
	}
	if way := f.trace(t); way != f.way {
		t.Errorf("%s to %s went by\n%s\nand goes by\n%s", f.from, f.to, f.way, way)
	}
}

// tenants are those that were acknowledged, with their hosts.
type tenants map[string]string

// agree waits until machines show the tenants as they were acknowledged, and all of them in force.
func (m *machines) agree(t *testing.T, want tenants, machines ...int) {
	t.Helper()
	for _, i := range machines {
		said := ""
		for end := time.Now().Add(machinePatience); ; time.Sleep(20 * time.Millisecond) {
			out, err := m.on(t.Context(), i, "tenant", "list", "--json").Output()
			var list []struct {
				Name    string
				Members []struct{ Host string }
				Astray  []string `json:"not_in_force"`
			}
			have, whole := tenants{}, err == nil && json.Unmarshal(out, &list) == nil
			for _, x := range list {
				var hosts []string
				for _, y := range x.Members {
					hosts = append(hosts, y.Host)
				}
				have[x.Name] = strings.Join(hosts, ",")
				whole = whole && len(x.Astray) == 0
			}
			if said = string(out); whole && maps.Equal(have, want) {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("machine %c has tenants %s, want %v", machineNames[i], said, want)
			}
		}
	}
}

// apart wants two hosts not to hear each other.
func (m *machines) apart(t *testing.T, port int, from int, client string, to int, server string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), machinePatience)
	defer cancel()
	argv := []string{"ibv_rc_pingpong", "-n", "10", "-p", fmt.Sprint(port)}
	s := m.on(ctx, to, append([]string{"exec", server, "--"}, argv...)...)
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = s.Process.Kill()
		_ = s.Wait()
	}()
	for !m.Listens(to, port) {
		time.Sleep(5 * time.Millisecond)
	}
	out, err := m.on(ctx, from, append(append([]string{"exec", client, "--"}, argv...), netpair.Address(to))...).
		CombinedOutput()
	if err == nil || ctx.Err() != nil {
		t.Errorf("%s of one tenant hears %s of another: %v\n%s", client, server, ctx.Err(), out)
	}
}

// atRandom takes something away from a fabric of three machines, which comes back, and the fabric with it.
// SOFTIB_CYCLES is how often; make machines tries for long.
func (m *machines) atRandom(t *testing.T, hosts [3]string, book tenants) {
	cycles, seed := 1, uint64(1)
	if s := os.Getenv("SOFTIB_CYCLES"); s != "" {
		if _, err := fmt.Sscan(s, &cycles); err != nil {
			t.Fatalf("SOFTIB_CYCLES=%s: %v", s, err)
		}
	}
	all := []int{0, 1, 2}
	r := rand.New(rand.NewPCG(seed, 0))
	away := func() { time.Sleep(time.Duration(r.IntN(4000)) * time.Millisecond) }
	for n := range cycles {
		x := r.IntN(3)
		what := r.IntN(4)
		t.Logf("%d: machine %c, %s", n, machineNames[x], [4]string{"killed", "stopped", "cut off", "etcd killed"}[what])
		switch what {
		case 0:
			m.end(m.up[x], syscall.SIGKILL)
			away()
			m.start(t, x)
		case 1:
			_ = m.up[x].cmd.Process.Signal(syscall.SIGSTOP)
			away()
			_ = m.up[x].cmd.Process.Signal(syscall.SIGCONT)
		case 2:
			if err := m.Cut(x, true); err != nil {
				t.Fatal(err)
			}
			away()
			if err := m.Cut(x, false); err != nil {
				t.Fatal(err)
			}
		case 3:
			_ = m.etcd.Process.Kill()
			_ = m.etcd.Wait()
			away()
			m.startEtcd(t)
		}
		m.await(t, spannedHosts, all...)
		// What was acknowledged is in force, also what is asked for now.
		switch at := r.IntN(3); {
		case book["gray"] == "":
			book["gray"] = fmt.Sprintf("h%d,h%d", 5+r.IntN(6), 25+r.IntN(6))
			m.must(t, m.on(t.Context(), at, "tenant", "create", "gray", "--hosts", book["gray"]))
		default:
			delete(book, "gray")
			m.must(t, m.on(t.Context(), at, "tenant", "delete", "gray"))
		}
		m.agree(t, book, r.IntN(3))
		from := r.IntN(3)
		to := (from + 1 + r.IntN(2)) % 3
		m.pair(t, 18800+n%100, from, hosts[from], to, hosts[to], "ibv_rc_pingpong", "-c", "-n", "200")
	}
}

// rping goes between machines by the fabric's own addresses.
func (m *machines) rping(t *testing.T, hosts [3]string) {
	ctx, cancel := context.WithTimeout(context.Background(), machinePatience)
	defer cancel()
	s := m.on(ctx, 1, "exec", hosts[1], "--", "rping", "-s", "-C", "10", "-V")
	var said bytes.Buffer
	s.Stdout, s.Stderr = &said, &said
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	// Nothing tells from outside that it listens: one who comes too early is refused, and tries again.
	for {
		c := m.on(ctx, 0, "exec", hosts[0], "--", "rping", "-c", "-a", hosts[1], "-C", "10", "-V")
		out, err := c.CombinedOutput()
		if err == nil {
			break
		}
		if ctx.Err() != nil || !strings.Contains(string(out), "REJECTED") && !strings.Contains(string(out), "connect") {
			t.Fatalf("%v\n%s\nserver:\n%s", err, out, &said)
		}
	}
	if err := s.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, &said)
	}
}
