package live

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"softib/internal/cputime"
	"softib/node/link"
	"softib/proto/ib"
	"softib/proto/topo"
	"softib/verbs"
)

func deadline(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// waitOne is the next completion of e.
func waitOne(t testing.TB, e *end) verbs.WC {
	t.Helper()
	var wc [1]verbs.WC
	if _, err := e.cq.Wait(deadline(t), wc[:]); err != nil {
		t.Fatal(err)
	}
	return wc[0]
}

// Many goroutines post to many queue pairs of shared hosts at once, and every
// byte arrives where it should.
func TestManyGoroutines(t *testing.T) {
	f := bringUp(t, "fat-tree:radix=4,levels=2")
	hosts := f.Hosts()
	const rounds = 40
	var wg sync.WaitGroup
	for i := range hosts {
		for k := 1; k <= 3; k++ {
			a, b := newEnd(t, hosts[i].Device(), 1<<16), newEnd(t, hosts[(i+k)%len(hosts)].Device(), 1<<16)
			connect(t, a, b)
			wg.Add(1)
			go func() {
				defer wg.Done()
				ctx := deadline(t)
				var wc [4]verbs.WC
				for r := 0; r < rounds; r++ {
					size := 1 + (r*977+i*131+k)%60000
					src := a.mr.Bytes()[:size]
					for j := range src {
						src[j] = byte(j + r + i*k)
					}
					wr := &verbs.SendWR{WRID: uint64(r), Opcode: verbs.WRRDMAWrite, Flags: verbs.SendSignaled,
						SGList: a.mr.SGEs(0, size), RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey()}
					if err := a.qp.PostSend(wr); err != nil {
						t.Error(err)
						return
					}
					n, err := a.cq.Wait(ctx, wc[:])
					if err != nil || n != 1 || wc[0].Status != verbs.WCSuccess || wc[0].WRID != uint64(r) {
						t.Errorf("host %d+%d round %d: %v, %d completions, %+v", i, k, r, err, n, wc[0])
						return
					}
					if r%4 != 0 { // the peer reads its own memory only now and then
						continue
					}
					// A READ brings the bytes back: what the peer has, seen by its adapter.
					wr = &verbs.SendWR{Opcode: verbs.WRRDMARead, Flags: verbs.SendSignaled, SGList: a.mr.SGEs(0, size),
						RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey()}
					want := append([]byte(nil), src...)
					clear(src)
					if err := a.qp.PostSend(wr); err != nil {
						t.Error(err)
						return
					}
					if n, err := a.cq.Wait(ctx, wc[:]); err != nil || n != 1 || wc[0].Status != verbs.WCSuccess {
						t.Errorf("read: %v %d %+v", err, n, wc[0])
						return
					}
					if string(want) != string(src) {
						t.Errorf("host %d+%d round %d: bytes differ", i, k, r)
						return
					}
				}
			}()
		}
	}
	wg.Wait()
}

// A link on the only path goes down: the request fails with RETRY_EXC after
// the tries it asked for, and the rest is flushed.
func TestLinkDown(t *testing.T) {
	f := bringUp(t, "star:2")
	a, b := newEnd(t, f.Hosts()[0].Device(), 4096), newEnd(t, f.Hosts()[1].Device(), 4096)
	o := verbs.DefaultConnect
	o.Timeout = 16 // 0.27 s, eight times: nobody gives up while the link is there
	if err := a.qp.Connect(a.info, b.info, o); err != nil {
		t.Fatal(err)
	}
	if err := b.qp.Connect(b.info, a.info, o); err != nil {
		t.Fatal(err)
	}
	wr := &verbs.SendWR{WRID: 1, Opcode: verbs.WRRDMAWrite, Flags: verbs.SendSignaled, SGList: a.mr.SGEs(0, 8),
		RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey()}
	if err := a.qp.PostSend(wr); err != nil {
		t.Fatal(err)
	}
	if wc := waitOne(t, a); wc.Status != verbs.WCSuccess {
		t.Fatalf("before: %+v", wc)
	}
	far := topo.PortRef{Node: f.Hosts()[1].Node().Index, Port: 1}
	if err := f.SetLink(far, false); err != nil {
		t.Fatal(err)
	}
	for id := uint64(2); id <= 3; id++ {
		wr.WRID = id
		if err := a.qp.PostSend(wr); err != nil {
			t.Fatal(err)
		}
	}
	if wc := waitOne(t, a); wc.Status != verbs.WCRetryExcErr || wc.WRID != 2 {
		t.Fatalf("link down: %+v, want RETRY_EXC_ERR of request 2", wc)
	}
	if wc := waitOne(t, a); wc.Status != verbs.WCWRFlushErr || wc.WRID != 3 {
		t.Fatalf("link down: %+v, want WR_FLUSH_ERR of request 3", wc)
	}
	if s := a.qp.State(); s != verbs.StateErr {
		t.Fatalf("state %v, want ERR", s)
	}
	// The port err event reaches the other program.
	for {
		e, err := b.ctx.WaitEvent(deadline(t))
		if err != nil {
			t.Fatal(err)
		}
		if e.Type == verbs.EventPortErr {
			break
		}
	}
}

// Packets of a partition that a switch port does not admit vanish there and
// are counted there, and nowhere else.
func TestPartitionEnforced(t *testing.T) {
	f := bringUp(t, "star:2")
	a, b := newEnd(t, f.Hosts()[0].Device(), 4096), newEnd(t, f.Hosts()[1].Device(), 4096)
	o := verbs.DefaultConnect
	o.Timeout, o.RetryCnt = 6, 1
	if err := a.qp.Connect(a.info, b.info, o); err != nil {
		t.Fatal(err)
	}
	if err := b.qp.Connect(b.info, a.info, o); err != nil {
		t.Fatal(err)
	}
	sw := f.switches[0]
	f.mu.Lock()
	in := f.Hosts()[0].ports[1].peer
	in.link.SetPKeys([]ib.PKey{0x8001})
	in.link.SetEnforcement(link.EnforcePKeyIn)
	f.changed()
	f.mu.Unlock()
	if err := a.qp.PostSend(&verbs.SendWR{Opcode: verbs.WRRDMAWrite, Flags: verbs.SendSignaled, SGList: a.mr.SGEs(0, 8),
		RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey()}); err != nil {
		t.Fatal(err)
	}
	if wc := waitOne(t, a); wc.Status != verbs.WCRetryExcErr {
		t.Fatalf("%+v, want RETRY_EXC_ERR", wc)
	}
	sent := f.Hosts()[0].Device().Enter().Stats.TxPackets
	f.Hosts()[0].Device().LeaveQuiet()
	for p := 1; p <= sw.topo.NumPorts(); p++ {
		want := uint64(0)
		if ib.PortNum(p) == in.num {
			want = sent // each packet once: looking for the way counts nothing
		}
		c := f.Counters(topo.PortRef{Node: sw.topo.Index, Port: ib.PortNum(p)})
		if got := c[ib.PortRcvConstraintErrors]; got != want {
			t.Errorf("switch port %d: PortRcvConstraintErrors %d, want %d", p, got, want)
		}
	}
}

// The counters of every port on the way, and of no other, show the traffic.
func TestCountersAlongThePath(t *testing.T) {
	f := bringUp(t, "fat-tree:radix=4,levels=2")
	hosts := f.Hosts()
	a, b := newEnd(t, hosts[0].Device(), 1<<16), newEnd(t, hosts[7].Device(), 1<<16)
	connect(t, a, b)
	const n, size = 10, 4096
	before := map[topo.PortRef]ib.Counters{} // the bring-up's packets
	for _, nd := range f.graph.Nodes {
		for p := 1; p <= nd.NumPorts(); p++ {
			ref := topo.PortRef{Node: nd.Index, Port: ib.PortNum(p)}
			before[ref] = f.Counters(ref)
		}
	}
	for i := 0; i < n; i++ {
		if err := a.qp.PostSend(&verbs.SendWR{Opcode: verbs.WRRDMAWrite, Flags: verbs.SendSignaled,
			SGList: a.mr.SGEs(0, size), RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey()}); err != nil {
			t.Fatal(err)
		}
		waitOne(t, a)
	}
	words := uint64(8+12+16+size+4) / 4 * n
	var xmit, rcv int
	for _, nd := range f.graph.Nodes {
		for p := 1; p <= nd.NumPorts(); p++ {
			ref := topo.PortRef{Node: nd.Index, Port: ib.PortNum(p)}
			c := f.Counters(ref)
			for i := range c {
				c[i] -= before[ref][i]
			}
			if c[ib.PortXmitData] >= words {
				if c[ib.PortXmitPkts] != n {
					t.Errorf("%s/%d sent %d packets, want %d", nd.Name, p, c[ib.PortXmitPkts], n)
				}
				xmit++
			}
			if c[ib.PortRcvData] >= words {
				rcv++
			}
		}
	}
	// host, leaf, spine, leaf: four ports send the data, four receive it.
	if xmit != 4 || rcv != 4 {
		t.Errorf("%d ports sent and %d received the data, want 4 and 4", xmit, rcv)
	}
}

// A request that is given up while its payload is only referred to: the
// program may have its memory back at once.
func TestGivenUpByReference(t *testing.T) {
	f := bringUp(t, "star:2")
	for i := 0; i < 50; i++ {
		a, b := newEnd(t, f.Hosts()[0].Device(), 1<<20), newEnd(t, f.Hosts()[1].Device(), 1<<20)
		connect(t, a, b)
		buf, dst := a.mr.Bytes(), b.mr.Bytes()
		for j := range buf {
			buf[j] = 0xAA
		}
		for k := 0; k < 8; k++ {
			if err := a.qp.PostSend(&verbs.SendWR{Opcode: verbs.WRRDMAWrite, Flags: verbs.SendSignaled,
				SGList: a.mr.SGEs(0, 1<<20), RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey()}); err != nil {
				t.Fatal(err)
			}
		}
		if err := a.qp.Modify(verbs.QPAttr{State: verbs.StateErr}, verbs.MaskState); err != nil {
			t.Fatal(err)
		}
		for j := range buf {
			buf[j] = 0x55 // ours again: nobody may see this
		}
		if err := b.qp.Modify(verbs.QPAttr{State: verbs.StateErr}, verbs.MaskState); err != nil {
			t.Fatal(err)
		}
		f.Hosts()[1].Device().Enter()
		for j, v := range dst {
			if v == 0x55 {
				f.Hosts()[1].Device().LeaveQuiet()
				t.Fatalf("round %d: byte %d was written after the request had been given up", i, j)
			}
		}
		f.Hosts()[1].Device().LeaveQuiet()
		for _, e := range []*end{a, b} {
			if err := e.qp.Close(); err != nil {
				t.Fatal(err)
			}
			if err := e.mr.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// Closing ends every wait.
func TestCloseEndsWaits(t *testing.T) {
	f := bringUp(t, "star:2")
	a := newEnd(t, f.Hosts()[0].Device(), 64)
	errs := make(chan error, 2)
	go func() {
		_, err := a.cq.Wait(context.Background(), make([]verbs.WC, 1))
		errs <- err
	}()
	go func() {
		for {
			if _, err := a.ctx.WaitEvent(context.Background()); err != nil {
				errs <- err
				return
			}
		}
	}()
	f.Close()
	for i := 0; i < 2; i++ {
		select {
		case err := <-errs:
			if !errors.Is(err, verbs.ErrClosed) {
				t.Errorf("%v, want verbs.ErrClosed", err)
			}
		case <-time.After(60 * time.Second):
			t.Fatal("a wait did not end")
		}
	}
}

// An idle fabric uses no CPU, also after it has carried traffic.
func TestIdle(t *testing.T) {
	if testing.Short() {
		t.Skip("measures CPU time")
	}
	f := bringUp(t, "fat-tree:radix=8,levels=2")
	hosts := f.Hosts()
	a, b := newEnd(t, hosts[0].Device(), 4096), newEnd(t, hosts[31].Device(), 4096)
	connect(t, a, b)
	if err := a.qp.PostSend(&verbs.SendWR{Opcode: verbs.WRRDMAWrite, Flags: verbs.SendSignaled, SGList: a.mr.SGEs(0, 8),
		RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey()}); err != nil {
		t.Fatal(err)
	}
	waitOne(t, a)
	if used := cputime.AtRest(t, time.Second); used > 50*time.Millisecond {
		t.Errorf("32 idle hosts use %v of a processor's time in a second", used)
	}
}

func TestUnknownHost(t *testing.T) {
	f := bringUp(t, "star:2")
	for _, name := range []string{"h9", "sw1", ""} {
		if _, err := f.Host(name); err == nil {
			t.Errorf("Host(%q) succeeded", name)
		}
	}
	if h, err := f.Host("h2"); err != nil || h.Name() != "h2" {
		t.Errorf("Host(h2) = %v, %v", h, err)
	}
}
