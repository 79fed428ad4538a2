package server_test

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"softib/driver/live"
	"softib/internal/race"
	"softib/node/hca"
	"softib/proto/ib"
	"softib/proto/topo"
	"softib/verbs"
	"softib/verbs/attach"
	"softib/verbs/attach/proto"
)

// patient is for connections on which nothing is lost: a process that has no turn for seconds makes nobody send again
// or give up.
var patient = func() verbs.ConnectOpts {
	o := verbs.DefaultConnect
	o.Timeout = 20 // 4 s, eight times
	return o
}()

const allRights = verbs.AccessLocalWrite | verbs.AccessRemoteWrite | verbs.AccessRemoteRead | verbs.AccessRemoteAtomic

// side is a device with what a test needs of it.
type side struct {
	t   testing.TB
	dev *attach.Device
	ctx *verbs.Context
	pd  *verbs.PD
	cq  *verbs.CQ
	mr  *verbs.MR
}

func newSide(t testing.TB, socket, host string) *side {
	t.Helper()
	dev := open(t, socket, host)
	s := sideOn(t, dev)
	s.dev = dev
	return s
}

// driver is what the device keeps from programs.
func (s *side) driver() driver { return s.dev.Driver().(driver) }

type driver interface {
	Enter() *hca.HCA
	Leave()
	PortInfo(ib.PortNum) (proto.Port, bool)
	SetPort(ib.PortNum, hca.Port)
}

// sideOn is a side on any device.
func sideOn(t testing.TB, dev verbs.Device) *side {
	t.Helper()
	s := &side{t: t, ctx: verbs.Open(dev)}
	var err error
	if s.pd, err = s.ctx.AllocPD(); err != nil {
		t.Fatal(err)
	}
	if s.cq, err = s.ctx.CreateCQ(256); err != nil {
		t.Fatal(err)
	}
	if s.mr, err = s.pd.RegMR(make([]byte, 1<<20), allRights); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *side) qp(typ verbs.QPType) *verbs.QP {
	s.t.Helper()
	q, err := s.pd.CreateQP(verbs.QPInit{Type: typ, SendCQ: s.cq, RecvCQ: s.cq, Caps: verbs.DefaultCaps})
	if err != nil {
		s.t.Fatal(err)
	}
	return q
}

// wait is the next completion.
func (s *side) wait() verbs.WC {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	var wc [1]verbs.WC
	if _, err := s.cq.Wait(ctx, wc[:]); err != nil {
		s.t.Fatal(err)
	}
	return wc[0]
}

func (s *side) want(status verbs.WCStatus) verbs.WC {
	s.t.Helper()
	wc := s.wait()
	if wc.Status != status {
		s.t.Fatalf("%s: completion %+v: status %v, want %v", s.dev.Name(), wc, wc.Status, status)
	}
	return wc
}

func join(t testing.TB, a, b *verbs.QP, o verbs.ConnectOpts) {
	t.Helper()
	ia, err := a.Info(1, 7)
	if err != nil {
		t.Fatal(err)
	}
	ib, err := b.Info(1, 0xFFFFF0)
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{a.Connect(ia, ib, o), b.Connect(ib, ia, o)} {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// readsClock has a program read its clock, which it does every few calls: a timer that starts from an old reading would
// run out early.
func (s *side) readsClock() {
	var wc [1]verbs.WC
	for range 16 {
		s.cq.Poll(wc[:])
	}
}

// pattern fills memory with what cannot be there by chance.
func pattern(b []byte, seed byte) {
	for i := range b {
		b[i] = seed + byte(i*7) + byte(i>>8)
	}
}

// exchange writes n bytes from a to b and reads them back elsewhere.
func exchange(t testing.TB, a, b *side, qa *verbs.QP, n int) {
	t.Helper()
	if race.Enabled {
		return // the detector does not see what goes through shared memory
	}
	pattern(a.mr.Bytes()[:n], byte(n))
	clear(b.mr.Bytes())
	if err := qa.PostSend(&verbs.SendWR{Opcode: verbs.WRRDMAWrite, Flags: verbs.SendSignaled, SGList: a.mr.SGEs(0, n),
		RemoteAddr: b.mr.Addr() + 5, RKey: b.mr.RKey()}); err != nil {
		t.Fatal(err)
	}
	a.want(verbs.WCSuccess)
	if !bytes.Equal(b.mr.Bytes()[5:5+n], a.mr.Bytes()[:n]) {
		t.Fatalf("%d bytes written are not what was sent", n)
	}
	half := a.mr.Len() / 2
	if err := qa.PostSend(&verbs.SendWR{Opcode: verbs.WRRDMARead, Flags: verbs.SendSignaled, SGList: a.mr.SGEs(half, n),
		RemoteAddr: b.mr.Addr() + 5, RKey: b.mr.RKey()}); err != nil {
		t.Fatal(err)
	}
	a.want(verbs.WCSuccess)
	if !bytes.Equal(a.mr.Bytes()[half:half+n], a.mr.Bytes()[:n]) {
		t.Fatalf("%d bytes read are not what was written", n)
	}
}

// traffic is what a port has sent and received, in packets.
func traffic(f *live.Fabric, r topo.PortRef) (out, in uint64) {
	c := f.Counters(r)
	return c[ib.PortXmitPkts], c[ib.PortRcvPkts]
}

// TestCounters: every port on the way has counted the packets, every other none.
func TestCounters(t *testing.T) {
	f, socket := fabric(t, "fat-tree:radix=4,levels=2")
	a, b := newSide(t, socket, "h1"), newSide(t, socket, "h8")
	qa, qb := a.qp(verbs.RC), b.qp(verbs.RC)
	join(t, qa, qb, patient)
	before := map[topo.PortRef][2]uint64{}
	each := func(do func(r topo.PortRef)) {
		for _, n := range f.Graph().Nodes {
			for p := range n.Ports {
				do(topo.PortRef{Node: n.Index, Port: ib.PortNum(p)})
			}
		}
	}
	each(func(r topo.PortRef) { o, i := traffic(f, r); before[r] = [2]uint64{o, i} })
	const messages, size = 100, 10000 // three packets each, and acknowledgements
	for range messages {
		if err := qa.PostSend(&verbs.SendWR{Opcode: verbs.WRRDMAWrite, Flags: verbs.SendSignaled,
			SGList: a.mr.SGEs(0, size), RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey()}); err != nil {
			t.Fatal(err)
		}
		a.want(verbs.WCSuccess)
	}
	pa, _ := a.ctx.QueryPort(1)
	pb, _ := b.ctx.QueryPort(1)
	way, err := f.Way(topo.PortRef{Node: f.Hosts()[0].Node().Index, Port: 1}, pb.LID, 0, ib.PKeyDefault)
	if err != nil {
		t.Fatal(err)
	}
	back, err := f.Way(topo.PortRef{Node: f.Hosts()[7].Node().Index, Port: 1}, pa.LID, 0, ib.PKeyDefault)
	if err != nil {
		t.Fatal(err)
	}
	sent, received := map[topo.PortRef]uint64{}, map[topo.PortRef]uint64{}
	for _, h := range way.Hops {
		sent[h.Out] += 3 * messages
		received[h.In] += 3 * messages
	}
	for _, h := range back.Hops {
		sent[h.Out] += messages
		received[h.In] += messages
	}
	each(func(r topo.PortRef) {
		o, i := traffic(f, r)
		o, i = o-before[r][0], i-before[r][1]
		if o != sent[r] || i != received[r] {
			t.Errorf("%s: %d packets out, %d in: want %d, %d", f.Graph().PortName(r), o, i, sent[r], received[r])
		}
	})
}

// TestSameHost: two programs of one host talk within the adapter, and no port sees it.
func TestSameHost(t *testing.T) {
	f, socket := fabric(t, "star:2")
	a, b := newSide(t, socket, "h1"), newSide(t, socket, "h1")
	qa, qb := a.qp(verbs.RC), b.qp(verbs.RC)
	if qa.Num()>>13 == qb.Num()>>13 {
		t.Fatalf("queue pairs %v and %v are in one block", qa.Num(), qb.Num())
	}
	join(t, qa, qb, patient)
	port := topo.PortRef{Node: f.Hosts()[0].Node().Index, Port: 1}
	before, _ := traffic(f, port)
	exchange(t, a, b, qa, 100000)
	if after, _ := traffic(f, port); after != before {
		t.Errorf("%d packets left the port", after-before)
	}
}

// TestPeerCloses: a peer that goes away is one that does not answer any more.
func TestPeerCloses(t *testing.T) {
	f, socket := fabric(t, "star:3")
	a, b := newSide(t, socket, "h1"), newSide(t, socket, "h2")
	qa, qb := a.qp(verbs.RC), b.qp(verbs.RC)
	join(t, qa, qb, patient)
	exchange(t, a, b, qa, 50000)
	qa, qb = a.qp(verbs.RC), b.qp(verbs.RC)
	o := verbs.DefaultConnect
	o.Timeout, o.RetryCnt = 10, 2 // 4 ms, three times
	join(t, qa, qb, o)
	b.dev.Close()
	eventually(t, "one process is attached", func() bool { return len(f.Programs()) == 1 })
	start := time.Now()
	a.readsClock()
	if err := qa.PostSend(&verbs.SendWR{Opcode: verbs.WRRDMAWrite, SGList: a.mr.SGEs(0, 100), RemoteAddr: b.mr.Addr(),
		RKey: b.mr.RKey()}); err != nil {
		t.Fatal(err)
	}
	a.want(verbs.WCRetryExcErr)
	if d := time.Since(start); d < 12*time.Millisecond {
		t.Errorf("failed after %v: the queue pair asked for three timeouts of 4 ms", d)
	}
	// The fabric is untouched: the next pair runs.
	c, d := newSide(t, socket, "h2"), newSide(t, socket, "h3")
	qc, qd := c.qp(verbs.RC), d.qp(verbs.RC)
	join(t, qc, qd, patient)
	exchange(t, c, d, qc, 50000)
}

// TestLinkDown: without a way packets vanish and the queue pair fails after its timeouts; with another way it goes on.
func TestLinkDown(t *testing.T) {
	f, socket := fabric(t, "fat-tree:radix=4,levels=2")
	a, b := newSide(t, socket, "h1"), newSide(t, socket, "h8")
	qa, qb := a.qp(verbs.RC), b.qp(verbs.RC)
	o := verbs.DefaultConnect
	o.Timeout = 18 // a second, eight times
	join(t, qa, qb, o)
	exchange(t, a, b, qa, 5000)
	pb, _ := b.ctx.QueryPort(1)
	way, err := f.Way(topo.PortRef{Node: f.Hosts()[0].Node().Index, Port: 1}, pb.LID, 0, ib.PKeyDefault)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.SetLink(way.Hops[1].Out, false); err != nil { // leaf to spine: there is another spine
		t.Fatal(err)
	}
	if _, err := f.BringUp(); err != nil {
		t.Fatal(err)
	}
	exchange(t, a, b, qa, 5000)
	if err := f.SetLink(way.Hops[len(way.Hops)-1].In, false); err != nil { // the only cable of h8
		t.Fatal(err)
	}
	qa2, qb2 := a.qp(verbs.RC), b.qp(verbs.RC)
	o.Timeout, o.RetryCnt = 12, 1
	join(t, qa2, qb2, o)
	start := time.Now()
	a.readsClock()
	if err := qa2.PostSend(&verbs.SendWR{Opcode: verbs.WRSend, SGList: a.mr.SGEs(0, 100)}); err != nil {
		t.Fatal(err)
	}
	a.want(verbs.WCRetryExcErr)
	if d := time.Since(start); d < 32*time.Millisecond {
		t.Errorf("failed after %v: the queue pair asked for two timeouts of 16 ms", d)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	for {
		e, err := b.ctx.WaitEvent(ctx)
		if err != nil {
			t.Fatal("h8's program was not told that its port is down:", err)
		}
		if e.Type == verbs.EventPortErr {
			break
		}
	}
}

// TestDaemonGone: programs get a fatal event and errors, not a hang; a fabric that starts again takes new ones.
func TestDaemonGone(t *testing.T) {
	g, err := topo.ParseSpec("star:2")
	if err != nil {
		t.Fatal(err)
	}
	socket := t.TempDir() + "/verbs"
	stop := serveOn(t, g, socket)
	a, b := newSide(t, socket, "h1"), newSide(t, socket, "h2")
	qa, qb := a.qp(verbs.RC), b.qp(verbs.RC)
	join(t, qa, qb, patient)
	exchange(t, a, b, qa, 1000)
	if err := qb.PostRecv(&verbs.RecvWR{WRID: 9, SGList: b.mr.SGEs(0, 10)}); err != nil {
		t.Fatal(err)
	}
	stop()
	if wc := b.want(verbs.WCWRFlushErr); wc.WRID != 9 {
		t.Errorf("completion of request %d: want 9", wc.WRID)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	for {
		e, err := a.ctx.WaitEvent(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if e.Type == verbs.EventDeviceFatal {
			break
		}
	}
	if _, err := attach.Open(attach.Options{Socket: socket, Host: "h1"}); !errors.Is(err, attach.ErrNoFabric) {
		t.Errorf("attached to nothing: %v", err)
	}
	stop = serveOn(t, g, socket)
	defer stop()
	c, d := newSide(t, socket, "h1"), newSide(t, socket, "h2")
	qc, qd := c.qp(verbs.RC), d.qp(verbs.RC)
	join(t, qc, qd, patient)
	exchange(t, c, d, qc, 1000)
}

func TestRefused(t *testing.T) {
	_, socket := fabric(t, "star:2")
	for _, host := range []string{"h9", "sw1", ""} {
		t.Setenv("SOFTIB_HOST", "")
		if d, err := attach.Open(attach.Options{Socket: socket, Host: host}); err == nil {
			d.Close()
			t.Errorf("attached to %q", host)
		} else if host != "" && !errors.Is(err, attach.ErrRefused) {
			t.Errorf("%q: %v", host, err)
		}
	}
}

// TestMulticast: a datagram to a group comes once to every member, on whichever host and in whichever process.
func TestMulticast(t *testing.T) {
	f, socket := fabric(t, "star:3")
	const mlid = ib.LIDMulticastMin + 5
	mgid := ib.GID{0xff, 0x12, 15: 5}
	if err := f.CreateMulticast(mlid, f.Hosts()...); err != nil {
		t.Fatal(err)
	}
	sides := []*side{newSide(t, socket, "h1"), newSide(t, socket, "h1"), newSide(t, socket, "h2"),
		newSide(t, socket, "h3"), newSide(t, socket, "h3")}
	var qps []*verbs.QP
	for i, s := range sides {
		q := s.qp(verbs.UD)
		if err := q.Ready(1, 0, 0x11111111); err != nil {
			t.Fatal(err)
		}
		if i != len(sides)-1 { // the last is no member
			if err := q.AttachMcast(mgid, mlid); err != nil {
				t.Fatal(err)
			}
		}
		for range 4 {
			if err := q.PostRecv(&verbs.RecvWR{SGList: s.mr.SGEs(0, 2000)}); err != nil {
				t.Fatal(err)
			}
		}
		qps = append(qps, q)
	}
	ah, err := sides[0].pd.CreateAH(verbs.AHAttr{DLID: mlid, Port: 1, IsGlobal: true, DGID: mgid, HopLimit: 1})
	if err != nil {
		t.Fatal(err)
	}
	pattern(sides[0].mr.Bytes()[4000:5000], 3)
	if err := qps[0].PostSend(&verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendSignaled,
		SGList: sides[0].mr.SGEs(4000, 1000), AH: ah, RemoteQPN: ib.QPNMulticast,
		RemoteQKey: 0x11111111}); err != nil {
		t.Fatal(err)
	}
	for i, s := range sides[:4] {
		if i == 0 {
			s.want(verbs.WCSuccess) // its own send
		}
		wc := s.want(verbs.WCSuccess)
		if wc.ByteLen != 1040 || !bytes.Equal(s.mr.Bytes()[40:1040], sides[0].mr.Bytes()[4000:5000]) {
			t.Errorf("member %d got %d bytes, or others than were sent", i, wc.ByteLen)
		}
	}
	var none [4]verbs.WC
	for i, s := range sides {
		if n := s.cq.Poll(none[:]); n != 0 {
			t.Errorf("program %d got %d more completions", i, n)
		}
	}
}

// TestWrongKey: a datagram with a wrong Q_Key counts at the port that it came to.
func TestWrongKey(t *testing.T) {
	f, socket := fabric(t, "star:2")
	a, b := newSide(t, socket, "h1"), newSide(t, socket, "h2")
	qa, qb := a.qp(verbs.UD), b.qp(verbs.UD)
	for _, err := range []error{qa.Ready(1, 0, 0x1111), qb.Ready(1, 0, 0x2222)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	pb, err := b.ctx.QueryPort(1)
	if err != nil {
		t.Fatal(err)
	}
	ah, err := a.pd.CreateAH(verbs.AHAttr{DLID: pb.LID, Port: 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := qa.PostSend(&verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendSignaled, SGList: a.mr.SGEs(0, 10),
		AH: ah, RemoteQPN: qb.Num(), RemoteQKey: 0x1111}); err != nil {
		t.Fatal(err)
	}
	a.want(verbs.WCSuccess)
	ref := topo.PortRef{Node: f.Hosts()[1].Node().Index, Port: 1}
	eventually(t, "PortInfo has one Q_Key violation", func() bool {
		pi, _ := f.PortInfo(ref)
		return pi.QKeyViolations == 1
	})
}
