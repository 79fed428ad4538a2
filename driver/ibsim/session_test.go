package ibsim

import (
	"fmt"
	"testing"
	"time"

	"softib/node/madrpc"
	"softib/proto/ib"
	"softib/proto/mad"
)

// caller drives a session until all it asked is settled.
type caller struct {
	t     testing.TB
	s     *Session
	agent madrpc.AgentID
	got   int
	kinds map[madrpc.Kind]int
}

func newCaller(t testing.TB, p *Port) *caller {
	t.Helper()
	c := &caller{t: t, s: NewSession(p), kinds: map[madrpc.Kind]int{}}
	id, err := c.s.Register(madrpc.Registration{Class: mad.ClassSMDirect, ClassVersion: 1, Name: "test"})
	if err != nil {
		t.Fatal(err)
	}
	c.agent = id
	return c
}

func (c *caller) ask(i int, path []ib.PortNum, timeout ib.Time) {
	var m [mad.Size]byte
	smp(&m, mad.AttrPortInfo, 1, uint64(i), path)
	err := c.s.Queue(c.s.Now(), c.agent, madrpc.Message{Env: direct, Data: m[:], Timeout: timeout, Retries: 1,
		Cookie: uint64(i)})
	if err != nil {
		c.t.Fatal(err)
	}
}

func (c *caller) take(d madrpc.Delivery) {
	c.got++
	c.kinds[d.Kind]++
}

// until polls until n deliveries have come.
func (c *caller) until(n int) {
	c.t.Helper()
	timeout := time.NewTimer(60 * time.Second)
	defer timeout.Stop()
	for c.got < n {
		if c.s.Poll(c.take) || c.got >= n {
			continue
		}
		select {
		case <-c.s.Bell():
		case <-timeout.C:
			c.t.Fatalf("%d of %d deliveries; %+v; %v", c.got, n, c.s.Port().Counters(), c.s.Err())
		}
	}
}

// TestSession queues far more requests than ibsim's queue holds, all at once: each is answered, none is sent twice.
func TestSession(t *testing.T) {
	g := parseSpec(t, "fat-tree:radix=8,levels=2")
	c := newCaller(t, startSim(t, g).dial(t, nodeID(g.Nodes[0])))
	paths := routes(g, 0)
	const n = 20000
	for i := range n {
		c.ask(i, paths[i%len(paths)], 10*ib.Second)
	}
	c.until(n)
	if p := c.s.Port().Counters(); c.kinds[madrpc.Response] != n || p.Sent != n || p.Received != n {
		t.Errorf("%v, %+v", c.kinds, p)
	}
	if err := c.s.Err(); err != nil {
		t.Error(err)
	}

	// A request that is lost is repeated and then given up; that takes its time and no more.
	c.got, c.kinds = 0, map[madrpc.Kind]int{}
	before := c.s.Port().Counters().Undeliverable
	start := c.s.Now()
	c.ask(n, []ib.PortNum{1, 200}, 20*ib.Millisecond)
	c.until(1)
	took := c.s.Now() - start
	// Where ibsim had no turn both come back later.
	for end := time.Now().Add(60 * time.Second); c.s.Port().Counters().Undeliverable < before+2 &&
		time.Now().Before(end); time.Sleep(time.Millisecond) {
		c.s.Poll(c.take)
	}
	if c.kinds[madrpc.TimedOut] != 1 || took < 40*ib.Millisecond || c.s.Port().Counters().Undeliverable != before+2 {
		t.Errorf("%v after %v, %+v", c.kinds, took, c.s.Port().Counters())
	}
}

// TestTwoClients has a manager at one node and a program at another: what ibsim does not answer itself reaches the
// manager, and its answer the program.
func TestTwoClients(t *testing.T) {
	g := parseSpec(t, "star:3")
	s := startSim(t, g)
	manager := NewSession(s.dial(t, nodeID(g.Nodes[0])))
	manager.SetIsSM(true)
	reg := madrpc.Registration{Class: mad.ClassSMDirect, ClassVersion: 1, Methods: madrpc.MethodSet(mad.MethodGet),
		Name: "manager"}
	id, err := manager.Register(reg)
	if err != nil {
		t.Fatal(err)
	}
	program := newCaller(t, s.dial(t, nodeID(g.Nodes[1])))
	var m [mad.Size]byte
	path := routes(g, 1)[0]
	smp(&m, mad.AttrSMInfo, 0, 0x77, path)
	if err := program.s.Queue(program.s.Now(), program.agent,
		madrpc.Message{Env: direct, Data: m[:], Timeout: 30 * ib.Second, Cookie: 5}); err != nil {
		t.Fatal(err)
	}
	program.s.Poll(program.take)

	limit := time.After(60 * time.Second)
	answered := false
	for !answered {
		manager.Poll(func(d madrpc.Delivery) {
			v := mad.View(d.Data)
			if d.Kind != madrpc.Unsolicited || v.AttrID() != mad.AttrSMInfo || v.Method() != mad.MethodGet {
				t.Errorf("%v %v", d.Kind, mad.Dump(d.Data))
				return
			}
			answered = true
			reply := append([]byte(nil), d.Data...)
			mad.View(reply).SetMethod(mad.MethodGetResp)
			mad.View(reply).SetReturning(true)
			mad.View(reply).SetHopPointer(0)
			info := mad.SMInfo{GUID: manager.Port().Facts().PortGUID, SMKey: 42}
			info.Append(reply[mad.SMPDataOff:mad.SMPDataOff])
			if err := manager.Queue(manager.Now(), id, madrpc.Message{Env: d.Env.Reply(), Data: reply}); err != nil {
				t.Error(err)
			}
		})
		if answered {
			break
		}
		select {
		case <-manager.Bell():
		case <-limit:
			t.Fatal("the manager was asked nothing")
		}
	}
	manager.Poll(func(madrpc.Delivery) {})
	var info mad.SMInfo
	take := program.take
	for program.got == 0 {
		if program.s.Poll(func(d madrpc.Delivery) {
			take(d)
			if _, err := info.Parse(d.Data[mad.SMPDataOff:]); err != nil {
				t.Error(err)
			}
		}) {
			continue
		}
		select {
		case <-program.s.Bell():
		case <-limit:
			t.Fatalf("no answer; %+v", program.s.Port().Counters())
		}
	}
	if program.kinds[madrpc.Response] != 1 || info.GUID != manager.Port().Facts().PortGUID || info.SMKey != 42 {
		t.Errorf("%v %+v", program.kinds, info)
	}
	if err := manager.Err(); err != nil {
		t.Error(err)
	}
}

// BenchmarkSession is what a manager gets: round trips through madrpc, with as many on their way as ibsim likes.
func BenchmarkSession(b *testing.B) {
	g := parseSpec(b, "fat-tree:radix=8,levels=3")
	for _, width := range []int{1, 16, InFlight} {
		b.Run(fmt.Sprintf("width=%d", width), func(b *testing.B) {
			c := newCaller(b, startSim(b, g).dial(b, nodeID(g.Nodes[0])))
			path := routes(g, 0)[100]
			next, done := 0, 0
			more := func(madrpc.Delivery) {
				done++
				if next < b.N {
					c.ask(next, path, 10*ib.Second)
					next++
				}
			}
			b.ResetTimer()
			for next < min(width, b.N) {
				c.ask(next, path, 10*ib.Second)
				next++
			}
			for done < b.N {
				if !c.s.Poll(more) && done < b.N {
					<-c.s.Bell()
				}
			}
			b.StopTimer()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "trips/s")
		})
	}
}
