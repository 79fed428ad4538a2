package cm

import (
	"slices"

	"softib/proto/ib"
	"softib/proto/mad"
)

// Counters count what happened to a port since it was made.
type Counters struct {
	Sent, Received uint64
	Retries        uint64 // messages sent again because nobody answered
	Timeouts       uint64 // messages given up
	Duplicates     uint64 // messages that had come before
	Unmatched      uint64 // messages about no connection that is known
	Malformed      uint64 // datagrams of the class that are no message of it
	Stale          uint64 // connections that the other side has forgotten
}

type outgoing struct {
	env mad.Envelope
	msg *message
}

// told is an event with its connection, which may have gone before somebody looks.
type told struct {
	c *conn
	e Event
}

// Port is the connection manager of one end port. It is driven by one caller at a time.
type Port struct {
	cfg  Config
	attr PortAttr
	now  ib.Time
	// earlies are requests that wait for a listener, oldest first; rejecting: they have waited long enough.
	earlies   []early
	rejecting bool

	listeners  listeners
	conns      map[ConnID]*conn
	peers      map[peerKey]*conn
	qpns       map[qpnKey]*conn
	sidrs      map[sidrKey]*conn
	reqGhosts  map[peerKey]*ghost
	sidrGhosts map[sidrKey]*ghost
	pendings   int

	timers   timers
	outbox   queue[outgoing]
	events   queue[told]
	out      [mad.Size]byte
	counters Counters
	modifier uint32 // of the datagram that is handled
}

// New makes a connection manager without connections.
func New(cfg Config) *Port {
	if cfg.Port == 0 {
		cfg.Port = 1
	}
	if cfg.PendingMax <= 0 {
		cfg.PendingMax = 1 << 16
	}
	if cfg.Linger <= 0 {
		cfg.Linger = 10 * ib.Second
	}
	return &Port{
		cfg: cfg, listeners: listeners{byHandle: map[ListenID]listener{}, exact: map[uint64]ListenID{}},
		conns: map[ConnID]*conn{}, peers: map[peerKey]*conn{}, qpns: map[qpnKey]*conn{}, sidrs: map[sidrKey]*conn{},
		reqGhosts: map[peerKey]*ghost{}, sidrGhosts: map[sidrKey]*ghost{},
	}
}

// SetAttr tells what the port's tables hold, at first and when they change.
func (p *Port) SetAttr(a PortAttr) {
	p.attr = PortAttr{a.LMC, slices.Clone(a.GIDs), slices.Clone(a.PKeys)}
}

// Counters are the port's counts so far.
func (p *Port) Counters() Counters { return p.counters }

// Outstanding is how many connections and look-ups exist, those that were destroyed and are not yet over included.
func (p *Port) Outstanding() int { return len(p.conns) }

// Info is what is known of a connection or a look-up.
func (p *Port) Info(id ConnID) (Info, bool) {
	c := p.conns[id]
	if c == nil || !c.owned {
		return Info{}, false
	}
	return Info{
		State: c.state, Passive: c.passive, SIDR: c.sidr, Listen: c.listen, ServiceID: c.serviceID,
		Transport: c.transport,
		Remote:    c.env, RemoteCommID: c.remoteID, RemoteCAGUID: c.remoteGUID, LocalQPN: c.localQPN,
		RemoteQPN: c.remoteQPN,
		RQPSN:     c.rqPSN, SQPSN: c.sqPSN, ResponderResources: c.responder, InitiatorDepth: c.initiator,
		RetryCount:    c.retry,
		RNRRetryCount: c.rnrRetry, SRQ: c.srq, Primary: c.primary, Alternate: c.alternate, HasAlternate: c.hasAlt,
	}, true
}

// PollSend is the next datagram for the wire. It is the caller's until the next PollSend.
func (p *Port) PollSend() (mad.Envelope, *[mad.Size]byte, bool) {
	o, ok := p.outbox.pop()
	if !ok {
		return mad.Envelope{}, nil, false
	}
	p.counters.Sent++
	p.out = *o.msg
	return o.env, &p.out, true
}

// PollEvent is the next event. Events of a connection that was destroyed do not come.
func (p *Port) PollEvent() (Event, bool) {
	for {
		t, ok := p.events.pop()
		if !ok {
			return Event{}, false
		}
		if t.c.owned {
			return t.e, true
		}
	}
}

// NextDeadline is when HandleTimer wants to be called; ib.Never if nothing is waited for.
func (p *Port) NextDeadline() ib.Time {
	next := p.firstEarly()
	if t := p.timers.first(); t != nil {
		next = ib.Earlier(next, t.at)
	}
	return next
}

// HandleTimer repeats, gives up and forgets what is due.
func (p *Port) HandleTimer(now ib.Time) {
	p.advance(now)
	p.giveUp()
	for t := p.timers.first(); t != nil && t.at <= now; t = p.timers.first() {
		p.timers.stop(t)
		if t.g != nil {
			p.forget(t.g)
		} else {
			p.expire(t.c)
		}
	}
}

func (p *Port) advance(now ib.Time) {
	if now > p.now {
		p.now = now
	}
}

// expire is a connection's time that has run out.
func (p *Port) expire(c *conn) {
	if c.state == Timewait {
		p.tell(c, Event{Kind: TimewaitExit})
		p.end(c)
		return
	}
	if c.left > 0 {
		c.left--
		p.counters.Retries++
		p.send(c.env, c.repeat)
		p.timers.set(&c.timer, p.now+c.timeout)
		return
	}
	p.counters.Timeouts++
	switch c.state {
	case ReqSent, MRAReqRcvd:
		p.send(c.env, p.timeoutRej(c))
		p.tell(c, Event{Kind: ReqError})
		p.end(c)
	case RepSent, MRARepRcvd:
		m := p.timeoutRej(c)
		p.send(c.env, m)
		p.remember(c, m)
		p.tell(c, Event{Kind: RepError})
		p.end(c)
	case DReqSent:
		p.tell(c, Event{Kind: DReqError})
		p.timewait(c)
	case SIDRReqSent:
		p.tell(c, Event{Kind: SIDRReqError})
		p.end(c)
	}
}

// Handle takes a datagram that came from env to QP1. It reports whether it was a message of this class.
func (p *Port) Handle(now ib.Time, env mad.Envelope, dgram []byte) bool {
	v, err := mad.AsView(dgram)
	if err != nil || v.Class() != mad.ClassCM {
		return false
	}
	p.advance(now)
	p.counters.Received++
	handler := handlers[min(int(v.AttrID()), len(handlers)-1)]
	if v.BaseVersion() != mad.BaseVersion || v.ClassVersion() != mad.CMClassVersion || v.Method() != mad.MethodSend ||
		handler == nil {
		p.counters.Malformed++
		return false
	}
	p.modifier = v.AttrMod()
	handler(p, env.Reply(), v.TID(), v.Data())
	return true
}

// handlers are what each message does, by its attribute. They are given where an answer goes, and its transaction. A
// datagram always holds a whole message, so none of their parsers fails.
var handlers = [...]func(p *Port, env mad.Envelope, tid uint64, b []byte){
	mad.AttrCMReq:     (*Port).handleReq,
	mad.AttrCMMRA:     (*Port).handleMRA,
	mad.AttrCMRej:     (*Port).handleRej,
	mad.AttrCMRep:     (*Port).handleRep,
	mad.AttrCMRTU:     (*Port).handleRTU,
	mad.AttrCMDReq:    (*Port).handleDReq,
	mad.AttrCMDRep:    (*Port).handleDRep,
	mad.AttrSIDRReq:   (*Port).handleSIDRReq,
	mad.AttrSIDRRep:   (*Port).handleSIDRRep,
	mad.AttrCMLAP:     (*Port).handleLAP,
	mad.AttrCMAPR + 1: nil, // no LAP is ever sent, so no APR is awaited; and anything beyond
}

// parse reads a message that is known to be long enough.
func parse[T any, M interface {
	*T
	Parse([]byte) (int, error)
}](b []byte) *T {
	m := new(T)
	if _, err := M(m).Parse(b); err != nil {
		panic(err)
	}
	return m
}

// queue is a first-in first-out queue that grows.
type queue[T any] struct {
	buf  []T // a power of two
	head int
	n    int
}

func (q *queue[T]) push(v T) {
	if q.n == len(q.buf) {
		b := make([]T, max(16, 2*len(q.buf)))
		for i := range q.n {
			b[i] = q.buf[(q.head+i)&(len(q.buf)-1)]
		}
		q.buf, q.head = b, 0
	}
	q.buf[(q.head+q.n)&(len(q.buf)-1)] = v
	q.n++
}

func (q *queue[T]) pop() (v T, ok bool) {
	if q.n == 0 {
		return v, false
	}
	var none T
	v, q.buf[q.head] = q.buf[q.head], none
	q.head = (q.head + 1) & (len(q.buf) - 1)
	q.n--
	return v, true
}
