package endpoint

import (
	"fmt"
	"runtime"
	"slices"
	"sync/atomic"
	"time"
	"unsafe"

	"softib/internal/cacheline"
	"softib/node/hca"
	"softib/proto/ib"
	"softib/proto/wire"
	"softib/verbs"
)

// shortBytes is what a packet of a stream of short ones has at most, on average.
const shortBytes = 512

// drainMax bounds how many packets one turn takes from a ring.
const drainMax = 64

// bundleMax is how many packets one cell stands for at most.
const bundleMax = 64

// ErrClosed is returned by calls that outlive their endpoint.
var ErrClosed = fmt.Errorf("endpoint: %w", verbs.ErrClosed)

// Config is what an endpoint is made of.
type Config struct {
	Name   string
	Engine hca.Config // the endpoint decides about references and bundles
	Block  uint16     // its queue pair numbers
	Page   *Page
	Router Router
	Ledger *Ledger // nil: nobody wants to know
	// Machine is nil for the one that we run on.
	Machine Machine
	// Wire is the network that all packets go to and come from, in place of rings; nil if there is none.
	Wire Wire
}

// Wire is a network that this process speaks to itself. The endpoint's lock is held in all calls, and none waits for
// longer than it takes to send.
type Wire interface {
	// Space is room for the payload of the next packet.
	Space() []byte
	// Put takes a packet, whose payload may be in Space. It may be sent at once, or with others by Flush.
	Put(*wire.Packet)
	// Flush sends what was put.
	Flush()
	// Next is the next packet that has come; it is good until the next call.
	Next(*wire.Packet) bool
}

// Endpoint is one adapter, or one process's part of it, driven by whoever uses it.
type Endpoint struct {
	_       [64]byte
	name    string
	block   uint16
	page    *Page
	router  Router
	start   time.Time
	machine Machine
	wire    Wire
	net     Lines // to other machines; nil if there are none
	lines   []*Out
	watcher *Watcher

	// mu guards the engine and everything below that is not atomic.
	mu         cacheline.SpinLock
	eng        *hca.HCA
	routes     map[Key]*Route
	out        []*Out
	in         []*In
	waiting    int         // rings with parked queue pairs
	scratch    wire.Packet // being sent
	rx         wire.Packet // being received
	buf        []byte      // for a payload that goes nowhere, or everywhere
	polls      uint32      // calls of Poll, for the attendant
	aheadAt    uint32      // how often the program had looked for completions when a payload was last written ahead
	duty       duty        // who does all this
	bell       uint32      // as the attendant's last turn left it
	told       uint32      // events that threads may wait for in C, ever
	slept      bool        // one has done so since the program last armed a queue
	tired      bool        // a poller should see whether others want its core
	turns      int         // in a row that found packets
	streams    bool        // the last of them was part of a stream: its ACKs can wait for a few more
	hot        int         // the incoming ring that delivered last
	turn       int
	far        bool // what came last came from another machine
	events     []hca.Event
	owed       bool // packets wait to be sent: Poll hurried back
	failed     bool
	closed     bool
	hint       *hint
	postStaged func(*hca.HCA, *uint64)
	postSends  func(*hca.HCA, *uint64)
	// clock is the time as last read. Reading it costs as much as building a packet; while the endpoint is attended it
	// is read every few calls, and in between soon stands in for it: a little ahead, so that a timer started then may
	// run late but never early.
	clock, soon ib.Time
	calls       uint32
	stale       bool // a timer may have been started since by soon
	meter
	// late is since when a deadline is put off because peers have not looked, putOff how long deadlines were before.
	late, putOff ib.Time

	sleeps   atomic.Bool  // a goroutine sleeps at the bell
	waiters  atomic.Int32 // goroutines that sleep elsewhere
	crowded  atomic.Bool  // the last time that a poller yielded, others ran for a while
	wakeAt   atomic.Int64
	employed atomic.Bool   // there is an attendant
	gone     chan struct{} // closed when the attendant has ended
	eventful chan struct{} // closed and replaced when an event comes
	onEvent  func(hca.Event)
	closing  chan struct{}
	_        [64]byte
}

var _ verbs.Device = (*Endpoint)(nil)

// New makes an endpoint. Its ports are down until SetPort says otherwise.
func New(cfg Config) (*Endpoint, error) {
	cfg.Engine.ByRefMin = byRefMin
	cfg.Engine.MaxBundle = bundleMax
	cfg.Engine.CatchUp = catchUp
	h, err := newHint(cfg.Machine == nil && !cfg.Page.isLocal()) // C code may look, for as long as it likes
	if err != nil {
		return nil, err
	}
	search := searchTurns
	if cfg.Page.isLocal() {
		search = localTurns
	}
	e := &Endpoint{
		name: cfg.Name, block: cfg.Block, page: cfg.Page, router: cfg.Router, start: time.Now(),
		eng: hca.New(cfg.Engine), routes: map[Key]*Route{}, hint: h, machine: cfg.Machine, wire: cfg.Wire,
		duty: newDuty(search), eventful: make(chan struct{}), closing: make(chan struct{}), gone: make(chan struct{}),
	}
	e.hint.polls, e.hint.bell = inC, unsafe.Pointer(&cfg.Page.h.bell)
	e.meter.init(cfg.Ledger)
	e.wakeAt.Store(int64(ib.Never))
	e.page.Rest()
	e.page.sign()
	return e, nil
}

// Name is the device's name.
func (e *Endpoint) Name() string { return e.name }

// Address registers memory under its own address.
func (e *Endpoint) Address(mem []byte) uint64 {
	return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(mem))))
}

// SetPort tells the engine what management wrote on a port. It holds for what comes from now on: packets that are in
// the rings are judged by the port as it was when they came.
func (e *Endpoint) SetPort(n ib.PortNum, p hca.Port) {
	e.mu.Lock()
	e.takeAll()
	if old := e.eng.Port(n); old != nil {
		p.PKeyViolations, p.QKeyViolations = old.PKeyViolations, old.QKeyViolations
		e.eng.SetPort(n, p)
	}
	for _, r := range e.out {
		r.narrow(e.slows())
	}
	e.Leave()
}

// slows reports whether a port has congestion control, of which datagrams' senders hear too: an engine that has them
// told by the way, as some simulations do, leaves rings as they were before.
func (e *Endpoint) slows() bool {
	for i := 1; e.eng.Config().CNP && i <= e.eng.NumPorts(); i++ {
		if c := e.eng.Port(ib.PortNum(i)).Congestion; c != nil && c.Levels != 0 {
			return true
		}
	}
	return false
}

// Reregister tells programs that the manager wants them to join their groups again.
func (e *Endpoint) Reregister(n ib.PortNum) {
	e.mu.Lock()
	e.eng.Reregister(n)
	e.Leave()
}

// Fail ends the device: every queue pair goes to the error state, and programs get a fatal event.
func (e *Endpoint) Fail() {
	e.mu.Lock()
	e.fail()
	e.finish()
	e.stir()
	e.mu.Unlock()
}

func (e *Endpoint) fail() {
	if !e.failed {
		e.failed = true
		atomic.StoreUint32(&e.hint.dead, 1)
		e.eng.Fail()
	}
}

// Failed reports whether the device is no more.
func (e *Endpoint) Failed() bool { return atomic.LoadUint32(&e.hint.dead) != 0 }

// refresh reads the clock.
func (e *Endpoint) refresh() ib.Time {
	e.clock = e.Now()
	if e.stale && e.clock > e.soon && !plantClock {
		e.eng.Resume(e.soon, e.clock) // this thread stood still meanwhile
	}
	e.stale = false
	e.soon = e.clock + ib.Time(slack)*ib.Nanosecond
	if e.clock >= e.tickAt {
		e.tick()
	}
	return e.clock
}

// about is the time, near enough to start a timer by.
func (e *Endpoint) about() ib.Time {
	e.calls++
	if e.calls&15 == 0 || !e.page.Attended() {
		return e.refresh()
	}
	e.stale = true
	return e.soon
}

// settleSends takes what was staged where nothing else happens that finish would follow.
func (e *Endpoint) settleSends() {
	if e.takeSends() {
		e.finish()
	}
}

// finish does what has to follow any work on the engine.
func (e *Endpoint) finish() {
	if !plantSends {
		e.takeSends()
	}
	if gone := e.eng.TakeAborted(); gone != nil {
		for _, r := range e.out {
			r.revoke(gone)
		}
	}
	if e.eng.TakeWithdrawn() && !plantGrant {
		for _, r := range e.in {
			r.withdraw()
		}
		e.publish() // states of queue pairs may be others now
	}
	e.hand()
	if e.eng.HasViolation() {
		e.tellViolations()
	}
	if e.eng.HasEvent() {
		e.deliverEvents()
	}
	if d := int64(e.deadline()); d < e.wakeAt.Load() {
		e.wakeAt.Store(d)
		e.call()
	}
}

func (e *Endpoint) tellViolations() {
	for v, ok := e.eng.PollViolation(); ok; v, ok = e.eng.PollViolation() {
		e.router.Violated(v)
	}
}

// Poll takes in what arrived and moves completions of cq to out. Packets that this calls for (acknowledgements, mostly)
// wait for the next call, because whoever waits for what has come is in more of a hurry.
func (e *Endpoint) Poll(cq *hca.CQ, out []hca.WC) int {
	e.mu.Lock()
	e.before()
	n := cq.Poll(out)
	if n > 0 {
		e.besides()
	} else {
		e.take(cq, 1)
		n = cq.Poll(out)
	}
	e.after(n > 0)
	return n
}

// Advance is Poll for a queue with a ready list. Empty is for how long, about, the caller has looked itself and found
// nothing: 0 is no time worth speaking of, Spun is long. It reports whether peers have changed the program's memory,
// for a program that looks there.
func (e *Endpoint) Advance(cq *hca.CQ, empty int) bool {
	e.mu.Lock()
	written := e.eng.Stats.WritesRcvd + e.eng.Stats.AtomicsRcvd
	e.before()
	if empty > 0 {
		e.turns = 0
	}
	some := cq.Len() > 0 // there was no room for these
	if some {
		waiterOf(cq).move()
		e.besides()
	} else {
		e.take(cq, max(empty, 1))
	}
	changed := e.eng.Stats.WritesRcvd+e.eng.Stats.AtomicsRcvd != written
	e.after(some || cq.Len() > 0)
	return changed
}

// before begins a poll.
func (e *Endpoint) before() {
	e.polls++
	if e.owed && !(e.streams && e.turns&3 != 0) {
		e.owed = false
		e.send()
	}
	e.settleSends()
	e.streams, e.tired = false, false
}

// besides is for a program that found a completion: nobody waits for what is taken in here, but one
// that always finds some would never take it in.
func (e *Endpoint) besides() {
	if e.wire != nil && e.drainWire() > 0 || e.net != nil && e.drainLines() > 0 {
		e.owed = true
	}
	if e.hot < len(e.in) && e.drainRing(e.in[e.hot], nil) > 0 {
		e.owed = true
	}
}

// take takes in what arrived. Nothing counts for so many empty polls.
func (e *Endpoint) take(cq *hca.CQ, turns int) {
	bytes := e.eng.Stats.RxBytes
	if got := e.drain(cq); got > 0 {
		e.duty.busy()
		e.owed = true
		if cq.Len() == 0 {
			e.finish()
			e.streams = e.isStream(got, e.eng.Stats.RxBytes-bytes)
		}
		return
	}
	if e.takeStaged() {
		e.finish() // to a queue pair that has failed they complete at once, and others may wait for that
	}
	c := e.duty.empty(turns)
	e.tired = c.yields
	e.turns = 0
	if e.owed || e.waiting > 0 {
		e.owed = false
		e.unpark()
		e.send()
		e.finish()
	}
	if c.keeps {
		e.refresh()
		e.knock()
		e.timers()
		e.send()
		e.finish()
	}
	if c.claims && !e.page.Attended() {
		// Peers need not wake the attendant. It looks in now and then, and takes over when the polling ends.
		e.page.Attend()
		e.call()
	}
}

// after ends a poll.
func (e *Endpoint) after(some bool) {
	if some {
		if e.duty.rests && e.owed {
			e.owed = false
			e.send() // there may be no next call
		}
		e.finish() // before the program has its memory back
	}
	e.settleSends()
	idle, streams, tired := e.duty.idle, e.streams, e.tired
	e.mu.Unlock()
	if streams {
		cacheline.Pause()
	}
	if tired {
		e.patience(idle)
	}
}

// patience is what a poller does that has found nothing for a while: it lets another thread have this core, in case
// that is the peer's. Where others wait for cores it sleeps instead for a moment: many who only yield pass the cores
// among themselves, and kernels have been seen to leave everybody else waiting for seconds.
func (e *Endpoint) patience(idle int) {
	if e.machine != nil || e.page.isLocal() && idle%localSpun >= Spun {
		return
	}
	if e.crowded.Load() {
		time.Sleep(time.Microsecond) // some 50 by the kernel's measure
		e.crowded.Store(false)
		return
	}
	began := time.Now()
	cacheline.YieldCore()
	if time.Since(began) > crowdedAfter {
		e.crowded.Store(true)
	}
	if idle%1024 < Spun {
		runtime.Gosched()
	}
}

// isStream reports whether n packets that came at once, with so many bytes of payload, are part of a stream of short
// ones that nobody waits for one by one. To look at each as it is written would take its cache line away from the
// sender in the middle of writing; a batch costs both less, so it is worth a pause.
func (e *Endpoint) isStream(n int, bytes uint64) bool {
	e.turns++
	return (n >= stream || e.turns >= stream) && bytes <= uint64(n)*shortBytes
}

// drain takes in packets until cq has something, and returns how many.
func (e *Endpoint) drain(cq *hca.CQ) int {
	if e.wire != nil {
		return e.drainWire()
	}
	if e.net != nil && (e.far || e.polls&7 == 0) { // to look there takes a system call
		n := e.drainLines()
		if e.far = n > 0 || e.far && e.polls&7 != 0; n > 0 {
			return n
		}
	}
	if len(e.in) == 0 {
		return 0
	}
	if e.hot < len(e.in) {
		// Whoever polls waits for something: look a few times before the way back to the caller and here again.
		for i := 0; i < 4; i++ {
			if n := e.drainRing(e.in[e.hot], cq); n > 0 {
				return n
			}
		}
		if len(e.in) == 1 {
			return 0
		}
	}
	// The others in turn: most are empty, and to look at them all would keep the one that matters waiting.
	for i := 0; i < len(e.in) && i < 16; i++ {
		e.turn++
		if e.turn >= len(e.in) {
			e.turn = 0
		}
		if n := e.drainRing(e.in[e.turn], cq); n > 0 {
			e.hot = e.turn
			return n
		}
	}
	return 0
}

// drainAll looks at every ring once.
func (e *Endpoint) drainAll() int {
	if e.wire != nil {
		return e.drainWire()
	}
	n := 0
	for _, r := range e.in {
		n += e.drainRing(r, nil)
	}
	if e.net != nil {
		n += e.drainLines()
	}
	return n
}

// drainWire takes in packets that have come by a network.
func (e *Endpoint) drainWire() int {
	if !e.wire.Next(&e.rx) {
		return 0
	}
	e.takeStaged()
	now := e.about()
	n := 1
	for e.eng.HandlePacket(now, wirePort, &e.rx); n < drainMax && e.wire.Next(&e.rx); n++ {
		e.eng.HandlePacket(now, wirePort, &e.rx)
	}
	e.eng.TakeGrant() // which nobody could use
	if e.awaited.qp != nil {
		e.hear()
	}
	return n
}

// wirePort is the one port of an adapter that has a Wire.
const wirePort = 1

// drainRing takes in packets of one ring. It stops once cq, if there is one, has a completion, unless there is a
// backlog: what follows it is most often an acknowledgement that can wait.
func (e *Endpoint) drainRing(r *In, cq *hca.CQ) int {
	c := r.ready()
	if c == nil {
		return 0
	}
	e.takeStaged()
	now := e.about()
	n := 0
	for c != nil && n < drainMax {
		if r.get(c, &e.rx) {
			e.eng.HandlePacket(now, r.port, &e.rx)
			// Memory of Go's may be somebody else's by the time that a peer writes ahead.
			if g, ok := e.eng.TakeGrant(); ok && !e.page.isLocal() {
				r.give(g)
			}
			if c.kind&cellDelivered != 0 {
				e.countAck()
			}
		}
		r.Done()
		n++
		if cq != nil && cq.Len() > 0 && !r.backlog() {
			break
		}
		c = r.ready()
	}
	if c == nil || r.ready() == nil {
		r.tell() // also where it stopped at the last packet: its sender must not think that it lies there unseen
	}
	e.hintRing(r)
	if e.awaited.qp != nil {
		e.hear()
	}
	return n
}

// timers runs what is due. A deadline that comes while packets of ours lie in rings whose receivers have had no
// time to look is put off a little: an adapter of silicon always runs, a process on a busy machine does not.
func (e *Endpoint) timers() {
	if e.net != nil {
		e.lineTimers()
	}
	due := e.clock >= e.eng.NextDeadline()
	if due && e.unseen() {
		if e.late == 0 {
			e.late = e.clock
		}
		if e.clock-e.late < patienceMax {
			return
		}
	}
	if e.late != 0 {
		e.putOff += e.clock - e.late
		e.late = 0
	}
	if due {
		e.eng.HandleTimeout(e.clock)
		e.wakeAt.Store(int64(e.deadline()))
	}
}

// unseen knocks at peers that have not taken what they were sent, and reports whether there are any.
func (e *Endpoint) unseen() bool {
	any := e.net != nil && e.net.Unheard()
	for _, r := range e.out {
		if r.Unseen() {
			r.peer.Knock()
			any = true
		}
	}
	return any
}

// knock wakes attendants of peers that claim to look and do not.
func (e *Endpoint) knock() {
	for _, r := range e.out {
		taken := r.Taken()
		switch {
		case taken != r.seen || !r.Unseen():
			r.seen, r.since = taken, e.clock
		case e.clock-r.since > knockAfter:
			r.peer.Knock()
			r.since = e.clock + knockAgain
		}
	}
}

// AddIn gives the endpoint a ring to receive from.
func (e *Endpoint) AddIn(r *In) {
	e.mu.Lock()
	e.in = append(e.in, r)
	e.hintAll()
	e.mu.Unlock()
	e.call() // there may be packets in it
}

// Plug begins to take in what comes by the wire.
func (e *Endpoint) Plug() {
	e.mu.Lock()
	e.hintAll()
	e.mu.Unlock()
	e.call()
}

// DropIn takes a ring away whose sender is gone, once it is empty.
func (e *Endpoint) DropIn(r *In) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for e.drainRing(r, nil) > 0 {
	}
	r.drop()
	e.in = without(e.in, r)
	e.hot, e.turn = 0, 0
	e.hintAll()
	e.send()
	e.finish()
}

// DropOut forgets a ring whose receiver is gone, and every way into it.
func (e *Endpoint) DropOut(r *Out) {
	e.mu.Lock()
	defer e.mu.Unlock()
	r.to.close()
	if r.line != nil {
		e.pump() // what is left in it
	}
	r.closePipes()
	if len(r.parked) > 0 {
		e.unparkRing(r)
	}
	e.out, e.lines = without(e.out, r), without(e.lines, r)
	for k, rt := range e.routes {
		if slices.Contains(rt.rings, r) {
			delete(e.routes, k)
			rt.gen-- // no slot has it any more, whoever still holds the route
		}
	}
	e.send()
	e.finish()
}

// without is a list without one of its elements. Whoever goes through the old list still finds all of them.
func without[T comparable](list []T, x T) []T {
	return slices.DeleteFunc(slices.Clone(list), func(o T) bool { return o == x })
}

// AddOut gives the endpoint a ring to send into. It is for the Router to call, within Route.
func (e *Endpoint) AddOut(r *Out) {
	r.narrow(e.slows())
	e.out = append(e.out, r)
	if r.line != nil {
		e.lines = append(e.lines, r)
	}
}

// Close ends the endpoint: waiting calls return, and peers have no part in the program's memory any more. What its own
// memory is shared with is the caller's.
func (e *Endpoint) Close() error {
	e.mu.Lock()
	was := e.closed
	e.closed = true
	for _, r := range e.out {
		r.revoke(nil) // memory that they refer to is the program's again
	}
	e.endWindow()
	e.publish()
	for _, r := range e.in {
		r.drop()
	}
	for _, r := range e.out {
		r.to.close()
		r.closePipes()
	}
	e.mu.Unlock()
	if was {
		return nil
	}
	close(e.closing)
	if e.employed.Swap(true) && e.machine == nil {
		e.page.Knock()
		<-e.gone
	}
	return nil
}
