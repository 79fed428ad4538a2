package hca

import (
	"fmt"

	"softib/proto/ib"
)

// EventType is an asynchronous event, or a completion event: ibv_event_type.
type EventType uint8

// Events.
const (
	EventCQErr EventType = iota
	EventQPFatal
	EventQPReqErr
	EventQPAccessErr
	EventCommEst
	EventSQDrained
	EventPathMig
	EventPathMigErr
	EventDeviceFatal
	EventPortActive
	EventPortErr
	EventLIDChange
	EventPKeyChange
	EventSMChange
	EventSRQErr
	EventSRQLimitReached
	EventQPLastWQEReached
	EventClientReregister
	EventGIDChange
	EventWQFatal
	// EventCompletion is not asynchronous in libibverbs' sense: it belongs to a
	// completion channel. It travels the same queue here.
	EventCompletion
	NumEventType
)

var eventNames = [NumEventType]string{
	"CQ_ERR", "QP_FATAL", "QP_REQ_ERR", "QP_ACCESS_ERR", "COMM_EST", "SQ_DRAINED", "PATH_MIG",
	"PATH_MIG_ERR", "DEVICE_FATAL", "PORT_ACTIVE", "PORT_ERR", "LID_CHANGE", "PKEY_CHANGE",
	"SM_CHANGE", "SRQ_ERR", "SRQ_LIMIT_REACHED", "QP_LAST_WQE_REACHED", "CLIENT_REREGISTER",
	"GID_CHANGE", "WQ_FATAL", "COMPLETION",
}

func (t EventType) String() string {
	if t < NumEventType {
		return eventNames[t]
	}
	return fmt.Sprintf("EventType(%d)", uint8(t))
}

// Event is something that happened to one of the adapter's objects.
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
		return fmt.Sprintf("%v on QP %v", e.Type, e.QP.num)
	case e.SRQ != nil:
		return fmt.Sprintf("%v on SRQ %d", e.Type, e.SRQ.num)
	case e.CQ != nil:
		return fmt.Sprintf("%v on CQ %d", e.Type, e.CQ.num)
	case e.Port != 0:
		return fmt.Sprintf("%v on port %d", e.Type, e.Port)
	}
	return e.Type.String()
}

// eventQueue is a FIFO that reuses its memory.
type eventQueue struct {
	buf  []Event
	head int
}

func (q *eventQueue) push(e Event) { q.buf = append(q.buf, e) }

func (q *eventQueue) pop() (Event, bool) {
	if q.head == len(q.buf) {
		return Event{}, false
	}
	e := q.buf[q.head]
	q.buf[q.head] = Event{}
	q.head++
	if q.head == len(q.buf) {
		q.buf, q.head = q.buf[:0], 0
	}
	return e, true
}

// PollEvent is the next event, oldest first.
func (h *HCA) PollEvent() (Event, bool) { return h.events.pop() }

// HasEvent reports whether PollEvent would return one.
func (h *HCA) HasEvent() bool { return h.events.head != len(h.events.buf) }
