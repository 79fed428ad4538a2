package smrun_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"softib/driver/live"
	"softib/driver/smrun"
	"softib/proto/ib"
	"softib/proto/mad"
	"softib/proto/topo"
	"softib/subnet/sm"
	"softib/verbs"
)

// manager is a manager at a host, with what it says.
type manager struct {
	*smrun.Runner
	end    context.CancelFunc
	events chan sm.Event
}

func start(t *testing.T, f *live.Fabric, host string, cfg sm.Config) *manager {
	t.Helper()
	s, err := f.OpenMgmt(topo.PortRef{Node: f.Graph().ByName(host).Index, Port: 1})
	if err != nil {
		t.Fatal(err)
	}
	m := &manager{events: make(chan sm.Event, 4096)}
	cfg.PollInterval, cfg.PollRetries = 50*ib.Millisecond, 2
	cfg.SweepInterval = 200 * ib.Millisecond
	cfg.Timeout = 50 * ib.Millisecond
	m.Runner, err = smrun.New(cfg, s, smrun.Options{Log: func(e sm.Event) {
		select {
		case m.events <- e:
		default:
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	var ctx context.Context
	ctx, m.end = context.WithCancel(context.Background())
	go m.Run(ctx)
	t.Cleanup(m.stop)
	return m
}

func (m *manager) stop() {
	m.end()
	<-m.Done()
}

// until waits for something to be so of a manager.
func (m *manager) until(t *testing.T, what string, ok func(*sm.Manager) bool) {
	t.Helper()
	for deadline := time.Now().Add(60 * time.Second); ; {
		done := false
		if err := m.Do(func(x *sm.Manager) { done = ok(x) }); err != nil {
			t.Fatal(err)
		}
		if done {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: not so after 60 s", what)
		}
		select {
		case <-m.events: // something happened: look again
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func inState(s mad.SMState) func(*sm.Manager) bool {
	return func(m *sm.Manager) bool { return m.State() == s && (s != mad.SMMaster || m.Subnet() != nil) }
}

// traffic is a reliable connection that writes all the time.
type traffic struct {
	ctx  context.Context
	end  context.CancelFunc
	a, b *side
	done chan error
	sent chan int
}

type side struct {
	mr   *verbs.MR
	cq   *verbs.CQ
	qp   *verbs.QP
	info verbs.Info
}

func newSide(t *testing.T, f *live.Fabric, host string) *side {
	t.Helper()
	h, err := f.Host(host)
	if err != nil {
		t.Fatal(err)
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	c := verbs.Open(h.Device())
	pd, err := c.AllocPD()
	must(err)
	s := &side{}
	s.mr, err = pd.RegMR(make([]byte, 4096), verbs.AccessLocalWrite|verbs.AccessRemoteWrite)
	must(err)
	s.cq, err = c.CreateCQ(64)
	must(err)
	s.qp, err = pd.CreateQP(verbs.QPInit{Type: verbs.RC, SendCQ: s.cq, RecvCQ: s.cq, Caps: verbs.DefaultCaps})
	must(err)
	s.info, err = s.qp.Info(1, 77)
	must(err)
	return s
}

// flow starts to write from one host to another; every completion must be a success.
func flow(t *testing.T, f *live.Fabric, from, to string) *traffic {
	t.Helper()
	x := &traffic{a: newSide(t, f, from), b: newSide(t, f, to), done: make(chan error, 1), sent: make(chan int, 1)}
	o := verbs.DefaultConnect
	o.Timeout = 17 // half a second, eight times: the manager may need seconds to mend a way if it has no turn
	for _, c := range [][2]*side{{x.a, x.b}, {x.b, x.a}} {
		if err := c[0].qp.Connect(c[0].info, c[1].info, o); err != nil {
			t.Fatal(err)
		}
	}
	x.ctx, x.end = context.WithCancel(context.Background())
	go x.run()
	return x
}

func (x *traffic) run() {
	n := 0
	var wc [1]verbs.WC
	for x.ctx.Err() == nil {
		err := x.a.qp.PostSend(&verbs.SendWR{
			Opcode: verbs.WRRDMAWrite, Flags: verbs.SendSignaled, SGList: x.a.mr.SGEs(0, 1024),
			RemoteAddr: x.b.mr.Addr(), RKey: x.b.mr.RKey(),
		})
		if err == nil {
			wait, cancel := context.WithTimeout(context.Background(), 60*time.Second)
			_, err = x.a.cq.Wait(wait, wc[:])
			cancel()
		}
		if err == nil && wc[0].Status != verbs.WCSuccess {
			err = fmt.Errorf("completion: %v", wc[0].Status)
		}
		if err != nil {
			x.done <- err
			return
		}
		n++
	}
	x.sent <- n
	x.done <- nil
}

// stop ends the flow and says how much it carried.
func (x *traffic) stop(t *testing.T) int {
	t.Helper()
	x.end()
	if err := <-x.done; err != nil {
		t.Fatalf("the connection broke: %v", err)
	}
	return <-x.sent
}

// TestTrafficSurvives is a connection through everything that management does to a fabric in use: a manager that is
// restarted, a handover and back, and the loss and the return of links on its way.
func TestTrafficSurvives(t *testing.T) {
	g, err := topo.ParseSpec(topo.DefaultSpec)
	if err != nil {
		t.Fatal(err)
	}
	f, err := live.New(g, live.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	m := start(t, f, "h1", sm.Config{})
	m.until(t, "master", inState(mad.SMMaster))
	x := flow(t, f, "h2", "h31")

	// The manager ends, and another starts where it was.
	m.stop()
	m = start(t, f, "h1", sm.Config{})
	m.until(t, "master after the restart", inState(mad.SMMaster))

	// One of higher priority takes over.
	high := start(t, f, "h9", sm.Config{Priority: 9})
	high.until(t, "the higher one is master", inState(mad.SMMaster))
	m.until(t, "the lower one stands by", inState(mad.SMStandby))
	high.stop()
	m.until(t, "the lower one is master again", inState(mad.SMMaster))

	// The link that the connection takes goes, again and again, until one way is left.
	leaf := g.ByName("leaf1")
	dst, _ := f.PortInfo(topo.PortRef{Node: g.ByName("h31").Index, Port: 1})
	for range 3 {
		tables, _ := f.Tables(leaf.Index)
		up := tables.LFT[dst.LID]
		before := 0
		m.until(t, "quiet", func(m *sm.Manager) bool { before = m.Sweeps(); return !m.Sweeping() })
		if err := f.SetLink(topo.PortRef{Node: leaf.Index, Port: up}, false); err != nil {
			t.Fatal(err)
		}
		// A sweep that has begun before may end first, and knows nothing of it.
		m.until(t, fmt.Sprintf("leaf1 sends to h31 by another port than %d, which is down", up),
			func(m *sm.Manager) bool {
				tables, _ := f.Tables(leaf.Index)
				return m.Sweeps() > before && !m.Sweeping() && tables.LFT[dst.LID] != up
			})
	}
	if n := x.stop(t); n == 0 {
		t.Fatal("nothing was carried")
	} else {
		t.Logf("%d writes", n)
	}
}
