package verbs

import (
	"context"
	"fmt"

	"softib/node/hca"
	"softib/proto/ib"
)

// EventType is what an asynchronous event is about: ibv_event_type.
type EventType uint8

// Asynchronous events, in libibverbs' order.
const (
	EventCQErr            EventType = iota // the queue has overflowed
	EventQPFatal                           // an error that no completion could tell
	EventQPReqErr                          // the peer's request was invalid
	EventQPAccessErr                       // the peer's request was for memory that is not open
	EventCommEst                           // the first packet has come while in StateRTR
	EventSQDrained                         // nothing is under way: StateSQD is reached
	EventPathMig                           // the alternate path is in use
	EventPathMigErr                        // it could not be
	EventDeviceFatal                       // the device is gone: close everything
	EventPortActive                        // the port's link is up
	EventPortErr                           // the port's link is down
	EventLIDChange                         // the port has another LID
	EventPKeyChange                        // the port's table of partitions has changed
	EventSMChange                          // there is another subnet manager
	EventSRQErr                            // the shared queue is unusable
	EventSRQLimitReached                   // fewer receives are left than its limit
	EventQPLastWQEReached                  // a queue pair in StateErr takes no more from its shared queue
	EventClientReregister                  // join multicast groups again
	EventGIDChange                         // the port's table of GIDs has changed
	EventWQFatal                           // not used
)

func (t EventType) String() string { return hca.EventType(t).String() }

// Event is an asynchronous event: what happened, and to whom. Of QP, CQ, SRQ and Port at most one is set.
type Event struct {
	Type EventType
	QP   *QP
	CQ   *CQ
	SRQ  *SRQ
	Port ib.PortNum
}

func (e Event) String() string {
	switch {
	case e.QP != nil:
		return fmt.Sprintf("%v on QP %v", e.Type, e.QP.Num())
	case e.SRQ != nil:
		return fmt.Sprintf("%v on SRQ %d", e.Type, e.SRQ.Num())
	case e.CQ != nil:
		return fmt.Sprintf("%v on a CQ", e.Type)
	case e.Port != 0:
		return fmt.Sprintf("%v on port %d", e.Type, e.Port)
	}
	return e.Type.String()
}

// WaitEvent sleeps until the next asynchronous event of the device, or until ctx ends. An event of an object that this
// Context has not made, or that is closed by now, comes without the object.
func (c *Context) WaitEvent(ctx context.Context) (Event, error) {
	e, err := c.dev.WaitEvent(ctx)
	if err != nil {
		return Event{}, err
	}
	out := Event{Type: EventType(e.Type), Port: e.Port}
	c.dev.Enter()
	defer c.dev.LeaveQuiet()
	switch {
	case e.QP != nil:
		out.QP, _ = c.open[e.QP].object.(*QP)
	case e.SRQ != nil:
		out.SRQ, _ = c.open[e.SRQ].object.(*SRQ)
	case e.CQ != nil:
		out.CQ, _ = c.open[e.CQ].object.(*CQ)
	}
	return out, nil
}
