package endpoint

import (
	"testing"

	"softib/node/agent"
	"softib/node/hca"
	"softib/proto/ib"
)

// twin is one of two endpoints in this process that send to each other.
type twin struct {
	*Endpoint
	slots *Slots
	out   *Out
	lid   ib.LID

	pd *hca.PD
	cq *hca.CQ
	qp *hca.QP
	mr *hca.MR
}

func (w *twin) Route(k Key) (*Route, error) {
	if k.DLID == w.lid {
		return NewRoute(k, w.slots, 0, 0, nil)
	}
	return NewRoute(k, w.slots, 1, 0, []*Out{w.out})
}

func (w *twin) Violated(agent.Notice) {}

// twins are two endpoints with a queue pair each that are connected. Nobody but the caller works for them.
func twins(t testing.TB, ledger func() *Ledger) (a, b *twin) {
	t.Helper()
	var both [2]*twin
	var pages [2]*Page
	fail := func(err error) {
		if err != nil {
			t.Helper()
			t.Fatal(err)
		}
	}
	for i := range both {
		var err error
		pages[i], err = NewPage(aligned(PageBytes))
		fail(err)
		w := &twin{lid: ib.LID(i + 1)}
		w.slots, err = NewSlots(aligned(SlotsBytes))
		fail(err)
		w.Endpoint, err = New(Config{Name: "h", Engine: hca.Config{Ports: 1, FirstQPN: ib.QPN(i+1) << BlockBits},
			Block: uint16(i + 1), Page: pages[i], Router: w, Ledger: ledger()})
		fail(err)
		w.employed.Store(true) // and has ended already
		close(w.gone)
		w.SetPort(1, hca.Port{GUID: ib.GUID(i + 1), State: ib.PortActive, LID: w.lid, MTU: ib.MTU4096,
			GIDs: []ib.GID{ib.MakeGID(ib.DefaultGIDPrefix, ib.GUID(i+1))}, PKeys: []ib.PKey{ib.PKeyDefault}})
		both[i] = w
	}
	for i, w := range both {
		o := both[1-i]
		mem := aligned(RingBytes)
		var err error
		w.out, err = NewOut(mem, pages[1-i], 0)
		fail(err)
		in, err := NewIn(mem, pages[i], 0, 1)
		fail(err)
		w.AddOut(w.out)
		o.AddIn(in)
	}
	for _, w := range both {
		h := w.Enter()
		var err error
		w.pd, err = h.AllocPD()
		fail(err)
		w.cq, err = h.CreateCQ(256)
		fail(err)
		mem := aligned(1 << 16)
		w.mr, err = h.RegMR(w.pd, mem, w.Address(mem), hca.AccessLocalWrite|hca.AccessRemoteWrite|hca.AccessRemoteRead)
		fail(err)
		w.qp, err = h.CreateQP(hca.QPInit{Type: hca.RC, PD: w.pd, SendCQ: w.cq, RecvCQ: w.cq, SigAll: true,
			Caps: hca.Caps{MaxSendWR: 64, MaxRecvWR: 64, MaxSendSGE: 1, MaxRecvSGE: 1}})
		fail(err)
		w.Leave()
	}
	for i, w := range both {
		o := both[1-i]
		h := w.Enter()
		fail(h.ModifyQP(w.qp, hca.QPAttr{State: hca.StateInit, Port: 1,
			Access: hca.AccessRemoteWrite | hca.AccessRemoteRead},
			hca.MaskState|hca.MaskPKeyIndex|hca.MaskPort|hca.MaskAccess))
		fail(h.ModifyQP(w.qp, hca.QPAttr{State: hca.StateRTR, PathMTU: ib.MTU4096, DestQPN: o.qp.Num(),
			AH: hca.AHAttr{Port: 1, DLID: o.lid}, MaxDestRD: 4, MinRNRTimer: 1},
			hca.MaskState|hca.MaskAV|hca.MaskPathMTU|hca.MaskDestQPN|hca.MaskRQPSN|hca.MaskMaxDestRD|
				hca.MaskMinRNRTimer))
		fail(h.ModifyQP(w.qp, hca.QPAttr{State: hca.StateRTS, Timeout: 20, RetryCnt: 7, RNRRetry: 7, MaxRDAtomic: 4},
			hca.MaskState|hca.MaskTimeout|hca.MaskRetryCnt|hca.MaskRNRRetry|hca.MaskSQPSN|hca.MaskMaxRDAtomic))
		w.Leave()
	}
	return both[0], both[1]
}

// send posts a message of n bytes.
func (w *twin) send(t testing.TB, n int) {
	h := w.Enter()
	if err := h.PostSend(w.qp, &hca.SendWR{Opcode: hca.WRSend,
		SGList: []hca.SGE{{Addr: w.mr.Addr(), Length: uint32(n), LKey: w.mr.LKey()}}}); err != nil {
		t.Fatal(err)
	}
	w.Leave()
}

func (w *twin) recv(t testing.TB) {
	h := w.Enter()
	if err := h.PostRecv(w.qp, &hca.RecvWR{SGList: []hca.SGE{{Addr: w.mr.Addr(), Length: uint32(w.mr.Len()),
		LKey: w.mr.LKey()}}}); err != nil {
		t.Fatal(err)
	}
	w.LeaveQuiet()
}

// BenchmarkPingPong is what a message there and one back cost both ends, all by one thread, so that neither the
// machine's caches nor its other users are in it.
func BenchmarkPingPong(b *testing.B) {
	x, y := twins(b, newLedger)
	var wc [4]hca.WC
	for b.Loop() {
		for _, w := range [][2]*twin{{x, y}, {y, x}} {
			w[1].recv(b)
			w[0].send(b, 8)
			for got := 0; got < 1; {
				got += w[1].Poll(w[1].cq, wc[:])
			}
			for got := 0; got < 1; {
				w[1].Poll(w[1].cq, wc[:]) // which acknowledges
				got += w[0].Poll(w[0].cq, wc[:])
			}
		}
	}
}

func newLedger() *Ledger {
	l, err := NewLedger(aligned(LedgerBytes))
	if err != nil {
		panic(err)
	}
	return l
}

// BenchmarkWrites is what one of a stream of short writes costs both ends, all by one thread.
func BenchmarkWrites(b *testing.B) {
	x, y := twins(b, newLedger)
	var wc [64]hca.WC
	wr := hca.SendWR{Opcode: hca.WRRDMAWrite, SGList: []hca.SGE{{Addr: x.mr.Addr(), Length: 8, LKey: x.mr.LKey()}},
		RemoteAddr: y.mr.Addr(), RKey: y.mr.RKey()}
	for out := 0; b.Loop(); {
		for out >= 64 {
			y.Poll(y.cq, wc[:])
			out -= x.Poll(x.cq, wc[:])
		}
		h := x.Enter()
		if err := h.PostSend(x.qp, &wr); err != nil {
			b.Fatal(err)
		}
		x.Leave()
		out++
	}
}
