package madrpc

import (
	"softib/proto/ib"
	"softib/proto/mad"
)

// Config sets what may differ between ports. Zero values mean the defaults, which are Linux's.
type Config struct {
	// Window is how many segments a sender may have on their way to this port: 64 by default, 256 at most.
	Window int
	// AckTimeout is how long a sender of segments waits for an acknowledgement, unless its
	// message's own timeout is shorter: 2 s by default.
	AckTimeout ib.Time
	// ReassemblyTimeout is how long a message that comes in segments may make no progress: 40 s by default.
	// A response's ends with its request's timeout.
	ReassemblyTimeout ib.Time
	// TimeWait is how long a message that has come is remembered, to acknowledge segments that are
	// repeated: 10 s by default; and TimeWaitMax how many messages are: 4096 by default.
	TimeWait    ib.Time
	TimeWaitMax int
	// ReassemblyMax bounds the bytes of all messages that are coming in: 1 GiB by default. Beyond, senders are
	// told to stop.
	ReassemblyMax int
	// AgentAfter is the number before the first agent's. A port that comes back under the same LID while
	// answers to its former life may still be on their way should go on counting.
	AgentAfter AgentID
}

func (c *Config) fill() {
	orTime := func(v *ib.Time, d ib.Time) {
		if *v <= 0 {
			*v = d
		}
	}
	orInt := func(v *int, d int) {
		if *v <= 0 {
			*v = d
		}
	}
	orInt(&c.Window, 64)
	c.Window = min(c.Window, windowMax)
	orTime(&c.AckTimeout, 2*ib.Second)
	orTime(&c.ReassemblyTimeout, 40*ib.Second)
	orTime(&c.TimeWait, 10*ib.Second)
	orInt(&c.TimeWaitMax, 4096)
	orInt(&c.ReassemblyMax, 1<<30)
	c.AgentAfter %= agentMax + 1
}

// Counters count what happened to a port since it was made.
type Counters struct {
	Sent, Received uint64 // datagrams
	Retries        uint64 // requests sent again, and transfers in segments gone back
	Timeouts       uint64
	Unclaimed      uint64 // requests that no agent wanted
	BadVersion     uint64 // datagrams with another base version
	LateResponses  uint64 // responses that nobody awaits: late, twice, of another class
	Duplicates     uint64 // segments, and requests whose response is under way
	Strays         uint64 // segments and acknowledgements of no transfer
	BadRMPP        uint64 // datagrams that break RMPP's rules
	Aborts         uint64 // transfers that the other side stopped or aborted
	AbortsSent     uint64 // aborts and stops sent
	Segments       uint64 // received and used
	Acks           uint64 // sent
}

// Message is what an agent sends.
type Message struct {
	Env mad.Envelope
	// Data is a datagram, or from an agent with RMPP a long message: the class's header (HeaderLen), then all of the
	// payload. It is cut into segments if it is longer than a datagram or its RMPP header is marked active. What is
	// missing from 256 bytes is sent as zeros.
	Data []byte
	// Timeout is how long to wait for the response, each time; 0 if none is expected. A response that is sent expects
	// none whatever its Timeout, which then only bounds how long segments wait for acknowledgement.
	Timeout ib.Time
	// Retries is how often to send again after the first time.
	Retries int
	// Cookie comes back with the response.
	Cookie uint64
}

// Kind is why something is delivered.
type Kind uint8

// Kinds of delivery.
const (
	// Response answers a request of the agent.
	Response Kind = iota
	// Unsolicited is a request or a trap that the agent registered for.
	Unsolicited
	// TimedOut gives back a request that nobody answered, or a long message that was not acknowledged.
	TimedOut
	// Canceled gives back a request of an agent that was unregistered.
	Canceled
	// Aborted gives back a long message that the other side refused.
	Aborted
	numKind
)

var kindNames = [numKind]string{"Response", "Unsolicited", "TimedOut", "Canceled", "Aborted"}

func (k Kind) String() string {
	if k < numKind {
		return kindNames[k]
	}
	return "Kind(?)"
}

// Delivery is what an agent gets.
type Delivery struct {
	Agent  AgentID
	Kind   Kind
	Status mad.RMPPStatus // why, if Aborted
	Cookie uint64         // of the request; 0 if Unsolicited
	Env    mad.Envelope   // the other side
	// Data is a datagram or, put together from segments, the first one's header and then all of the payload. What was
	// sent comes back whole, its transaction ID as it was on the wire.
	Data []byte
}

// entry names an op in a queue, as long as the op lives.
type entry struct {
	r   ref
	gen uint32
}

// Port is the management service of one port. It is driven by one caller at a time.
type Port struct {
	cfg Config
	now ib.Time

	agents    map[AgentID]*agent
	owners    map[ownerKey]*[128]AgentID
	lastAgent AgentID

	slab   slab
	table  table
	timers timers
	outbox ib.Queue[entry]
	inbox  ib.Queue[ref]
	held   ref // delivered by the latest PollRecv

	calls    int // requests that await a response
	casts    int // messages that go out in segments and await none
	linger   ib.Queue[entry]
	lingers  int // receptions that are done and remembered
	incoming int // bytes of messages that are coming in
	spare    [][]byte

	out      [mad.Size]byte
	counters Counters
}

// New makes a port with no agents.
func New(cfg Config) *Port {
	cfg.fill()
	return &Port{
		cfg:       cfg,
		agents:    make(map[AgentID]*agent),
		owners:    make(map[ownerKey]*[128]AgentID),
		lastAgent: cfg.AgentAfter,
		held:      none,
	}
}

// Counters are the port's counts so far.
func (p *Port) Counters() Counters { return p.counters }

// Outstanding is the number of requests that await their response.
func (p *Port) Outstanding() int { return p.calls }

// NextDeadline is when HandleTimer wants to be called; ib.Never if nothing is waited for.
func (p *Port) NextDeadline() ib.Time {
	_, d := p.timers.first(&p.slab)
	return d
}

// HandleTimer repeats and gives up what is due.
func (p *Port) HandleTimer(now ib.Time) {
	p.advance(now)
	for {
		r, d := p.timers.first(&p.slab)
		if r == none || d > now {
			return
		}
		p.timers.stop(&p.slab, r)
		switch o := p.slab.at(r); o.kind {
		case opCall:
			p.expireCall(r)
		case opCast:
			p.expireCast(r)
		case opRecv:
			if o.done {
				p.forget(r)
			} else {
				p.counters.Timeouts++
				p.endRecv(r, mad.RMPPTooLong)
			}
		}
	}
}

func (p *Port) advance(now ib.Time) {
	if now > p.now {
		p.now = now
	}
}

// PollSend is the next datagram for the wire.
func (p *Port) PollSend() (mad.Envelope, *[mad.Size]byte, bool) {
	for {
		e, ok := p.outbox.Pop()
		if !ok {
			return mad.Envelope{}, nil, false
		}
		o := p.slab.at(e.r)
		if o.gen != e.gen || !o.queued {
			continue
		}
		o.queued = false
		env := o.env
		switch {
		case o.kind == opOnce:
			p.out = o.buf
			p.slab.put(e.r)
		case o.kind == opCall && o.count == 0:
			p.out = o.buf
			p.timers.start(&p.slab, e.r, p.now, o.timeout)
		case o.kind == opCall || o.kind == opCast:
			if !p.nextSegment(e.r, o) {
				continue
			}
		case o.kind == opRecv:
			p.formatAck(o)
			env = env.Reply()
		default:
			continue
		}
		p.counters.Sent++
		return env, &p.out, true
	}
}

// PollRecv is the next delivery.
func (p *Port) PollRecv() (Delivery, bool) {
	if p.held != none {
		o := p.slab.at(p.held)
		p.recycle(o.long)
		p.slab.put(p.held)
		p.held = none
	}
	r, ok := p.inbox.Pop()
	if !ok {
		return Delivery{}, false
	}
	p.held = r
	o := p.slab.at(r)
	d := Delivery{Agent: o.agent, Kind: o.result, Status: o.status, Cookie: o.cookie, Env: o.env, Data: o.long}
	if o.long == nil {
		d.Data = o.buf[:]
	}
	return d, true
}

// enqueue puts an op into the outbox, once.
func (p *Port) enqueue(r ref) {
	if o := p.slab.at(r); !o.queued {
		o.queued = true
		p.outbox.Push(entry{r, o.gen})
	}
}

// deliver hands an op that is in no table and has no timer to its agent.
func (p *Port) deliver(r ref, why Kind) {
	o := p.slab.at(r)
	o.kind, o.result, o.queued = opDelivery, why, false
	p.inbox.Push(r)
}

// spareMax is how many buffers of long messages are kept for the next ones, and spareBytes how long they may be.
const (
	spareMax   = 8
	spareBytes = 1 << 20
)

func (p *Port) recycle(b []byte) {
	if cap(b) > 0 && cap(b) <= spareBytes && len(p.spare) < spareMax {
		p.spare = append(p.spare, b[:0])
	}
}

func (p *Port) buffer() []byte {
	if n := len(p.spare); n > 0 {
		b := p.spare[n-1]
		p.spare = p.spare[:n-1]
		return b
	}
	return nil
}
