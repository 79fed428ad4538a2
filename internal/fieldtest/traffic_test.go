package fieldtest

import (
	"bytes"
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"softib/proto/ib"
	"softib/proto/topo"
	"softib/verbs"
)

const (
	grhBytes  = 40 // a datagram's buffer begins with room for a GRH (IBA 11.4.1.2)
	dgramSize = 256
	// dgramWords is such a datagram in the units of the data counters: LRH, BTH, DETH, payload and ICRC.
	dgramWords = (8 + 12 + 8 + dgramSize + 4) / 4
	dgramQKey  = ib.QKey(0x11111111)
)

// talker is a host with a datagram queue pair.
type talker struct {
	w    *world
	pd   *verbs.PD
	cq   *verbs.CQ
	qp   *verbs.QP
	mr   *verbs.MR
	node *topo.Node
}

func (w *world) check(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func (w *world) talker(name string) *talker {
	w.Helper()
	h, err := w.Host(name)
	w.check(err)
	t := &talker{w: w, node: w.node(name)}
	ctx := verbs.Open(h.Device())
	t.pd, err = ctx.AllocPD()
	w.check(err)
	t.cq, err = ctx.CreateCQ(512)
	w.check(err)
	t.mr, err = t.pd.RegMR(make([]byte, grhBytes+dgramSize), verbs.AccessLocalWrite)
	w.check(err)
	t.qp, err = t.pd.CreateQP(verbs.QPInit{Type: verbs.UD, SendCQ: t.cq, RecvCQ: t.cq,
		Caps: verbs.Caps{MaxSendWR: 128, MaxRecvWR: 128, MaxSendSGE: 1, MaxRecvSGE: 1}})
	w.check(err)
	w.check(t.qp.Ready(1, 0, dgramQKey))
	return t
}

// send sends datagrams to an address and waits until they have left.
func (t *talker) send(count int, to ib.LID, qpn ib.QPN, sl ib.SL) {
	t.w.Helper()
	a := verbs.AHAttr{DLID: to, SL: sl, Port: 1}
	if to.IsMulticast() {
		a.IsGlobal, a.DGID, qpn = true, ib.GID{0xFF, 0x12, 0x40, 0x1B, 0xFF, 0xFF, 12: 0xFF, 13: 0xFF, 14: 0xFF,
			15: 0xFF}, ib.QPNMulticast
	}
	ah, err := t.pd.CreateAH(a)
	t.w.check(err)
	ctx, cancel := patient()
	defer cancel()
	for range count {
		t.w.check(t.qp.PostSend(&verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendSignaled,
			SGList: t.mr.SGEs(0, dgramSize), AH: ah, RemoteQPN: qpn, RemoteQKey: dgramQKey}))
		var wc [1]verbs.WC
		if _, err := t.cq.Wait(ctx, wc[:]); err != nil || wc[0].Status != verbs.WCSuccess {
			t.w.Fatalf("%s sends a datagram: %v, %v", t.node.Name, err, wc[0].Status)
		}
	}
}

// stream is RC traffic between two hosts that goes on until it is told to stop.
type stream struct {
	name string
	sent atomic.Int64
	err  error
	done chan struct{}
}

// streams starts traffic between hosts: h1 to h2, h3 to h4 and so on, by the names that are given.
func (w *world) streams(ctx context.Context, names ...string) []*stream {
	w.Helper()
	o := verbs.DefaultConnect
	o.Timeout = 17 // half a second, eight times: a manager that mends a way may have to wait for its turn
	var all []*stream
	for i := 0; i+1 < len(names); i += 2 {
		a, b := w.rcEnd(names[i]), w.rcEnd(names[i+1])
		w.check(a.qp.Connect(a.info, b.info, o))
		w.check(b.qp.Connect(b.info, a.info, o))
		s := &stream{name: names[i] + " to " + names[i+1], done: make(chan struct{})}
		go s.run(ctx, a, b)
		all = append(all, s)
	}
	return all
}

// rcEnd is one side of a connection.
type rcEnd struct {
	cq   *verbs.CQ
	qp   *verbs.QP
	mr   *verbs.MR
	info verbs.Info
}

func (w *world) rcEnd(name string) *rcEnd {
	w.Helper()
	h, err := w.Host(name)
	w.check(err)
	e := &rcEnd{}
	ctx := verbs.Open(h.Device())
	pd, err := ctx.AllocPD()
	w.check(err)
	e.mr, err = pd.RegMR(make([]byte, 1<<16), verbs.AccessLocalWrite|verbs.AccessRemoteWrite)
	w.check(err)
	e.cq, err = ctx.CreateCQ(64)
	w.check(err)
	e.qp, err = pd.CreateQP(verbs.QPInit{Type: verbs.RC, SendCQ: e.cq, RecvCQ: e.cq, Caps: verbs.DefaultCaps})
	w.check(err)
	e.info, err = e.qp.Info(1, 7)
	w.check(err)
	return e
}

// run writes to the far end's memory, one message after the other, and looks whether each arrived whole.
func (s *stream) run(ctx context.Context, a, b *rcEnd) {
	defer close(s.done)
	pace := time.NewTicker(500 * time.Microsecond) // other tests want to run too
	defer pace.Stop()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-pace.C:
		}
		size := 1 + n*977%20000
		for i := range a.mr.Bytes()[:size] {
			a.mr.Bytes()[i] = byte(n + i)
		}
		s.err = a.qp.PostSend(&verbs.SendWR{Opcode: verbs.WRRDMAWrite, Flags: verbs.SendSignaled,
			SGList: a.mr.SGEs(0, size), RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey()})
		if s.err != nil {
			return
		}
		var wc [1]verbs.WC
		wait, cancel := patient()
		_, err := a.cq.Wait(wait, wc[:])
		cancel()
		switch {
		case err != nil:
			s.err = fmt.Errorf("message %d: %w", n, err)
		case wc[0].Status != verbs.WCSuccess:
			s.err = fmt.Errorf("message %d completes with %v", n, wc[0].Status)
		case !bytes.Equal(a.mr.Bytes()[:size], b.mr.Bytes()[:size]):
			s.err = fmt.Errorf("message %d of %d bytes arrived changed", n, size)
		}
		if s.err != nil {
			return
		}
		s.sent.Add(1)
	}
}

// flowing waits until every stream has carried some more messages.
func (w *world) flowing(when string, all []*stream) {
	w.Helper()
	var from []int64
	for _, s := range all {
		from = append(from, s.sent.Load())
	}
	w.eventually("traffic "+when, func() bool {
		for i, s := range all {
			select {
			case <-s.done:
				w.Fatalf("%s: %s: %v; the manager said:\n%s", when, s.name, s.err, w.sm.said())
			default:
			}
			if s.sent.Load() < from[i]+10 {
				return false
			}
		}
		return true
	})
}
