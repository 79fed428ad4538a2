package live

import (
	"softib/node/ibswitch"
	"softib/node/link"
	"softib/proto/ib"
	"softib/proto/trace"
	"softib/proto/wire"
)

const (
	traceIn  = trace.In
	traceOut = trace.Out
)

// eventKind sorts the plane's events.
type eventKind uint8

const (
	evArrive  eventKind = iota // a packet is at a port
	evFC                       // a flow-control packet is there
	evWake                     // the transmitter of a port is free
	evExpiry                   // a life time has expired at a port
	evRefresh                  // a port's credits are to be told anew
	evRelease                  // a receive buffer of a switch is free
)

// event is something that happens at a port at a time.
type event struct {
	at    ib.Time
	seq   uint64
	p     *portState
	f     *link.Frame
	fc    wire.LinkPacket
	claim ibswitch.Claim
	kind  eventKind
}

func (e *event) before(o *event) bool { return e.at < o.at || e.at == o.at && e.seq < o.seq }

// eventHeap has the earliest event first, and those of one time in the order in which they came.
type eventHeap struct {
	list []event
	seq  uint64
}

func (h *eventHeap) push(e event) {
	h.seq++
	e.seq = h.seq
	h.list = append(h.list, e)
	i := len(h.list) - 1
	for i > 0 {
		up := (i - 1) / 2
		if !e.before(&h.list[up]) {
			break
		}
		h.list[i] = h.list[up]
		i = up
	}
	h.list[i] = e
}

func (h *eventHeap) pop() event {
	first := h.list[0]
	n := len(h.list) - 1
	last := h.list[n]
	h.list[n] = event{}
	h.list = h.list[:n]
	if n == 0 {
		return first
	}
	i := 0
	for {
		down := 2*i + 1
		if down >= n {
			break
		}
		if down+1 < n && h.list[down+1].before(&h.list[down]) {
			down++
		}
		if !h.list[down].before(&last) {
			break
		}
		h.list[i] = h.list[down]
		i = down
	}
	h.list[i] = last
	return first
}
