package perf

import (
	"errors"
	"fmt"

	"softib/proto/ib"
	"softib/verbs"
)

// errStopped ends the side of a test whose other side has failed or whose
// caller has lost interest.
var errStopped = errors.New("perf: stopped")

// StatusError is a request that ended with an error.
type StatusError struct {
	Device string
	Opcode verbs.WCOpcode
	Status verbs.WCStatus
}

func (e *StatusError) Error() string {
	return fmt.Sprintf("perf: %s: %v ended with %v: want SUCCESS", e.Device, e.Opcode, e.Status)
}

// DataError is a buffer that does not hold what was sent.
type DataError struct {
	Device string
	Offset int
	Got    byte
	Want   byte
}

func (e *DataError) Error() string {
	return fmt.Sprintf("perf: %s: byte %d is %#02x: want %#02x, as the other side has it", e.Device, e.Offset, e.Got,
		e.Want)
}

// end is one side of a test with what it owns.
type end struct {
	*talk
	dev            verbs.Device
	pd             *verbs.PD
	sendCQ, recvCQ *verbs.CQ
	tx, rx         *verbs.MR // one slot of maxSize for each queue pair
	qps            []*verbs.QP
	infos          []verbs.Info
	slot           int
	wc             []verbs.WC

	closers []func() error
}

// firstPSN is where both directions start; any value will do.
const firstPSN ib.PSN = 0x51b000

// create makes the objects of one side.
func (e *end) create(c Config) (err error) {
	e.slot = c.maxSize()
	keep := func(f func() error) { e.closers = append(e.closers, f) }
	ctx := verbs.Open(e.dev)
	if e.pd, err = ctx.AllocPD(); err != nil {
		return err
	}
	keep(e.pd.Close)
	const access = verbs.AccessLocalWrite | verbs.AccessRemoteWrite | verbs.AccessRemoteRead | verbs.AccessRemoteAtomic
	for _, mr := range []**verbs.MR{&e.tx, &e.rx} {
		if *mr, err = e.pd.RegMR(make([]byte, c.maxSize()*c.QPs), access); err != nil {
			return err
		}
		keep((*mr).Close)
	}
	if e.sendCQ, err = ctx.CreateCQ(c.QPs * (c.TxDepth + 1)); err != nil {
		return err
	}
	keep(e.sendCQ.Close)
	if e.recvCQ, err = ctx.CreateCQ(c.QPs * (recvDepth + 1)); err != nil {
		return err
	}
	keep(e.recvCQ.Close)
	caps := verbs.Caps{MaxSendWR: c.TxDepth, MaxRecvWR: recvDepth, MaxSendSGE: 1, MaxRecvSGE: 1, MaxInline: inlineMax}
	for range c.QPs {
		q, err := e.pd.CreateQP(verbs.QPInit{Type: verbs.RC, SendCQ: e.sendCQ, RecvCQ: e.recvCQ, Caps: caps})
		if err != nil {
			return err
		}
		keep(q.Close)
		info, err := q.Info(1, firstPSN)
		if err != nil {
			return err
		}
		e.qps, e.infos = append(e.qps, q), append(e.infos, info)
	}
	return nil
}

// ackTimeout is 4.096 us * 2^16, a quarter of a second, where perftest has a quarter of
// that: a machine with too few cores keeps a side waiting for longer than any
// fabric would, and no figure depends on it.
const ackTimeout = 16

// connect joins the queue pairs to the peer's, one to one.
func (e *end) connect(peer []verbs.Info, cfg *Config) error {
	o := verbs.DefaultConnect
	o.MTU = cfg.MTU
	o.Timeout = ackTimeout
	for i, qp := range e.qps {
		if own := e.infos[i].GID.Prefix(); own != peer[i].GID.Prefix() {
			o.Router = cfg.Routers[own]
		}
		if err := qp.Connect(e.infos[i], peer[i], o); err != nil {
			return err
		}
	}
	return nil
}

// close frees everything, youngest first.
func (e *end) close() error {
	var errs []error
	for i := len(e.closers) - 1; i >= 0; i-- {
		errs = append(errs, e.closers[i]())
	}
	e.closers = nil
	return errors.Join(errs...)
}

// spin polls until something completes well.
func (e *end) spin(cq *verbs.CQ) (int, error) {
	for !e.stop.Load() {
		if n := cq.Poll(e.wc); n > 0 {
			return n, e.check(n)
		}
	}
	return 0, errStopped
}

// check looks at the first n completions.
func (e *end) check(n int) error {
	for i := range e.wc[:n] {
		if e.wc[i].Status != verbs.WCSuccess {
			return &StatusError{e.dev.Name(), e.wc[i].Opcode, e.wc[i].Status}
		}
	}
	return nil
}

// receive takes a message of any size into the slot of a queue pair.
func (e *end) receive(qp int) verbs.RecvWR {
	return verbs.RecvWR{WRID: uint64(qp), SGList: e.rx.SGEs(qp*e.slot, e.slot)}
}

// postRecvs gives every queue pair its receives, with room for one more.
func (e *end) postRecvs() error {
	for i, qp := range e.qps {
		wr := e.receive(i)
		for range recvDepth - 1 {
			if err := qp.PostRecv(&wr); err != nil {
				return err
			}
		}
	}
	return nil
}

// request is the operation of a test as a work request of one queue pair.
func (s *side) request(qp, size int) verbs.SendWR {
	t := s.cfg.Test
	off := qp * s.slot
	wr := verbs.SendWR{Opcode: tests[t].op, WRID: uint64(qp), SGList: s.tx.SGEs(off, size)}
	if t != SendLat && t != SendBW {
		wr.RemoteAddr, wr.RKey = s.peer.Addr+uint64(off), s.peer.RKey
	}
	inline := wr.Opcode == verbs.WRSend || wr.Opcode == verbs.WRRDMAWrite
	if inline && size <= inlineMax {
		wr.SGList, wr.InlineData, wr.Flags = nil, s.tx.Bytes()[off:off+size], verbs.SendInline
	}
	if wr.Opcode == verbs.WRAtomicFetchAdd {
		wr.CompareAdd = 1
	}
	return wr
}

// serve polls until the active side has finished: that is what answers its
// requests.
func (e *end) serve() error {
	for !e.done.Load() {
		if n := e.sendCQ.Poll(e.wc); n > 0 {
			if err := e.check(n); err != nil {
				return err
			}
		}
		if e.stop.Load() {
			return errStopped
		}
	}
	e.sendCQ.Poll(e.wc) // to see what came before the news of the end
	return nil
}
