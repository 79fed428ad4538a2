package server_test

import (
	"bytes"
	"encoding/binary"
	"sync"
	"testing"

	"softib/driver/live"
	"softib/internal/race"
	"softib/proto/ib"
	"softib/proto/topo"
	"softib/proto/trace"
	"softib/proto/wire"
	"softib/verbs"
)

// portOf is the first port of a host.
func portOf(f *live.Fabric, host int) topo.PortRef {
	return topo.PortRef{Node: f.Hosts()[host].Node().Index, Port: 1}
}

// list is a sink that keeps what it gets.
type list struct {
	mu     sync.Mutex
	events []trace.Event
}

func (l *list) Write(e *trace.Event) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := *e
	c.Bytes = bytes.Clone(e.Bytes)
	l.events = append(l.events, c)
	return nil
}

// data are the packets of programs among what was captured, parsed, and which way each went.
func (l *list) data(t testing.TB) (pkts []wire.Packet, dirs []trace.Dir) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	last := ib.Time(0)
	for i, e := range l.events {
		var p wire.Packet
		if err := p.Parse(e.Bytes); err != nil {
			t.Fatalf("packet %d: %v", i, err)
		}
		if e.Time < last {
			t.Errorf("packet %d was captured at %v, after one at %v", i, e.Time, last)
		}
		last = e.Time
		if p.BTH.DestQP > ib.QPNGSI {
			pkts, dirs = append(pkts, p), append(dirs, e.Dir)
		}
	}
	return pkts, dirs
}

// everything sends something by each service and operation from a to b, and looks at what arrives.
func everything(t testing.TB, a, b *side) {
	t.Helper()
	rc, rcb := a.qp(verbs.RC), b.qp(verbs.RC)
	join(t, rc, rcb, patient)
	for _, n := range []int{1, 100, 4096, 4097, 300000} {
		exchange(t, a, b, rc, n)
	}
	post := func(q *verbs.QP, wr *verbs.SendWR) {
		t.Helper()
		wr.Flags |= verbs.SendSignaled
		if err := q.PostSend(wr); err != nil {
			t.Fatal(err)
		}
		a.want(verbs.WCSuccess)
	}
	receive := func(q *verbs.QP, n int) {
		t.Helper()
		if err := q.PostRecv(&verbs.RecvWR{SGList: b.mr.SGEs(0, n)}); err != nil {
			t.Fatal(err)
		}
	}
	same := func(what string, from, n int) {
		t.Helper()
		if !race.Enabled && !bytes.Equal(b.mr.Bytes()[from:from+n], a.mr.Bytes()[:n]) {
			t.Errorf("%s: what arrived is not what was sent", what)
		}
	}
	pattern(a.mr.Bytes()[:20000], 77)
	receive(rcb, 20000)
	post(rc, &verbs.SendWR{Opcode: verbs.WRSend, SGList: a.mr.SGEs(0, 20000)})
	if wc := b.want(verbs.WCSuccess); wc.ByteLen != 20000 {
		t.Errorf("RC SEND of 20000 bytes: %d arrived", wc.ByteLen)
	}
	same("RC SEND", 0, 20000)
	if !race.Enabled {
		binary.LittleEndian.PutUint64(b.mr.Bytes(), 40)
		post(rc, &verbs.SendWR{Opcode: verbs.WRAtomicFetchAdd, SGList: a.mr.SGEs(0, 8), RemoteAddr: b.mr.Addr(),
			RKey: b.mr.RKey(), CompareAdd: 2})
		if was, is := binary.LittleEndian.Uint64(a.mr.Bytes()), binary.LittleEndian.Uint64(b.mr.Bytes()); was != 40 ||
			is != 42 {
			t.Errorf("fetch and add: found %d, made %d: want 40, 42", was, is)
		}
	}
	uc, ucb := a.qp(verbs.UC), b.qp(verbs.UC)
	join(t, uc, ucb, patient)
	receive(ucb, 20000)
	pattern(a.mr.Bytes()[:20000], 78)
	post(uc, &verbs.SendWR{Opcode: verbs.WRSend, SGList: a.mr.SGEs(0, 20000)})
	b.want(verbs.WCSuccess)
	same("UC SEND", 0, 20000)
	ud, udb := a.qp(verbs.UD), b.qp(verbs.UD)
	for _, q := range []*verbs.QP{ud, udb} {
		if err := q.Ready(1, 0, 0x1111); err != nil {
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
	receive(udb, 2000)
	post(ud, &verbs.SendWR{Opcode: verbs.WRSend, SGList: a.mr.SGEs(0, 1000), AH: ah, RemoteQPN: udb.Num(),
		RemoteQKey: 0x1111})
	b.want(verbs.WCSuccess)
	same("UD SEND", 40, 1000)
}

// TestSwitched: all services work on a switched way, every packet is captured once, as it stood on the wire, and every
// port has counted it once.
func TestSwitched(t *testing.T) {
	f, socket := fabric(t, "fat-tree:radix=4,levels=2")
	a, b := newSide(t, socket, "h1"), newSide(t, socket, "h8")
	everything(t, a, b) // by a direct way
	var all list
	before := f.Counters(portOf(f, 0))
	stop, err := f.Capture([]topo.PortRef{portOf(f, 0)}, &all)
	if err != nil {
		t.Fatal(err)
	}
	everything(t, a, b)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	after := f.Counters(portOf(f, 0))
	everything(t, a, b) // and by a direct one again
	pkts, dirs := all.data(t)
	seen := map[trace.Dir]uint64{}
	services := map[wire.Service]int{}
	for i, p := range pkts {
		seen[dirs[i]]++
		services[p.BTH.Opcode.Service()]++
	}
	out, in := after[ib.PortXmitPkts]-before[ib.PortXmitPkts], after[ib.PortRcvPkts]-before[ib.PortRcvPkts]
	if seen[trace.Out] != out || seen[trace.In] != in || out == 0 || in == 0 {
		t.Errorf("captured %d packets out and %d in: the port has counted %d and %d", seen[trace.Out], seen[trace.In],
			out, in)
	}
	// 304294 bytes written and read, SENDs of 20000 bytes, atomics, UC and UD.
	if !race.Enabled && services[wire.RC] < 2*75 || services[wire.UC] != 5 || services[wire.UD] != 1 {
		t.Errorf("captured by service: %v", services)
	}
}
