package live

import (
	"runtime"
	"sync"
	"sync/atomic"
	"unsafe"

	"softib/internal/cacheline"
	"softib/node/hca"
	"softib/node/link"
	"softib/proto/ib"
	"softib/proto/topo"
	"softib/proto/wire"
	"softib/verbs"
)

// byRefMin is the payload size from which an RC packet refers to the sender's
// memory: whatever does not fit into a cell's first line. The bytes cross once
// then; a copy in the ring would be one more place to fetch them from.
const byRefMin = tailBytes + 1

// shortBytes is what a packet of a stream of short ones has at most, on average.
const shortBytes = 512

// drainMax bounds how many packets one turn takes from a ring.
const drainMax = 64

// Host is one adapter of the fabric, driven by whoever uses it.
type Host struct {
	_     [64]byte
	f     *Fabric
	node  *topo.Node
	index int
	ports []*portState // 0 is nil
	links []link.Port

	// mu guards the engine and everything below that is not atomic.
	mu       cacheline.SpinLock
	eng      *hca.HCA
	routes   map[routeKey]*route
	outgoing map[ringKey]*ring
	outRings []*ring
	waiting  int         // rings with parked queue pairs
	scratch  wire.Packet // being sent
	rx       wire.Packet // being received
	buf      []byte      // for a payload; made when the host first sends
	polls    uint32      // calls of Poll, for the attendant
	idle     int         // empty polls in a row
	turns    int         // in a row that found packets
	streams  bool        // the last of them was part of a stream: its ACKs can wait for a few more
	hot      int         // the incoming ring that delivered last
	turn     int
	events   []hca.Event
	owed     bool // packets wait to be sent: Poll hurried back
	owes     bool // something was sent since it was last settled
	// clock is the time as last read. Reading it costs as much as building a
	// packet; while the host is attended it is read every few calls, and in
	// between soon stands in for it: a little ahead, so that a timer started
	// then may run late but never early.
	clock, soon ib.Time
	calls       uint32
	// helped: before the deadline that has come, others were helped; helps:
	// that is to be done.
	helped, helps bool

	incoming atomic.Pointer[[]*ring]
	inMu     sync.Mutex

	// attended is true while somebody looks at the rings: a poller that comes
	// back all the time, or the attendant, awake.
	_        [64]byte
	attended atomic.Bool
	wakeAt   atomic.Int64
	_        [48]byte

	employed atomic.Bool   // there is an attendant
	bell     chan struct{} // wakes the attendant
	eventful chan struct{} // closed and replaced when an event comes

	mgmt *hca.Node // the engine as management sees it

	// Programs in processes of their own, under the fabric's lock.
	procs     []*Process
	lastBlock uint16
	totals    hostTotals
}

var _ verbs.Device = (*Host)(nil)

func newHost(f *Fabric, n *topo.Node, index int) *Host {
	h := &Host{
		f: f, node: n, index: index, links: link.NewPorts(n.NumPorts()+1, portConfig()),
		routes: map[routeKey]*route{}, outgoing: map[ringKey]*ring{},
		bell: make(chan struct{}, 1), eventful: make(chan struct{}),
	}
	guids := make([]ib.GUID, n.NumPorts())
	h.ports = newPorts(n.NumPorts()+1, portState{host: h})
	h.ports[0] = nil
	for p := 1; p <= n.NumPorts(); p++ {
		h.ports[p].link = &h.links[p]
		guids[p-1] = n.PortGUID(ib.PortNum(p))
	}
	h.eng = hca.New(hca.Config{
		NodeGUID: n.GUID, Ports: n.NumPorts(), PortGUID: guids, Limits: f.cfg.Limits, ByRefMin: byRefMin,
		FirstQPN: 0x40, KeySeed: uint8(index),
	})
	h.incoming.Store(&[]*ring{})
	h.wakeAt.Store(int64(ib.Never))
	return h
}

// Name is the host's name, such as h1.
func (h *Host) Name() string { return h.node.Name }

// Fabric is what the host is part of.
func (h *Host) Fabric() *Fabric { return h.f }

// Node is the host in the fabric's graph.
func (h *Host) Node() *topo.Node { return h.node }

// Address registers memory under its own address.
func (h *Host) Address(mem []byte) uint64 {
	return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(mem))))
}

// Enter gives exclusive use of the engine until Leave.
func (h *Host) Enter() *hca.HCA {
	h.mu.Lock()
	return h.eng
}

// Leave sends what was posted and gives the engine back.
func (h *Host) Leave() {
	h.owed = false
	h.send()
	h.finish()
	h.mu.Unlock()
}

// LeaveQuiet gives the engine back; what is due waits for who comes next.
func (h *Host) LeaveQuiet() {
	if h.eng.HasEvent() {
		h.finish()
	}
	h.mu.Unlock()
}

// refresh reads the clock.
func (h *Host) refresh() ib.Time {
	h.clock = h.f.Now()
	h.soon = h.clock + ib.Time(lookIn)*ib.Nanosecond
	return h.clock
}

// about is the time, near enough to start a timer by.
func (h *Host) about() ib.Time {
	h.calls++
	if h.calls&15 == 0 || !h.attended.Load() {
		return h.refresh()
	}
	return h.soon
}

// finish does what has to follow any work on the engine.
func (h *Host) finish() {
	if h.eng.TakeAborted() != nil {
		for _, r := range h.outRings {
			r.revoke()
		}
	}
	if h.eng.HasEvent() {
		h.deliverEvents()
	}
	if d := int64(h.eng.NextDeadline()); d < h.wakeAt.Load() {
		h.wakeAt.Store(d)
		h.ring()
	}
}

// Poll takes in what arrived and moves completions of cq to out. Packets that
// this calls for (acknowledgements, mostly) wait for the next call, because
// whoever waits for what has come is in more of a hurry.
func (h *Host) Poll(cq *hca.CQ, out []hca.WC) int {
	h.mu.Lock()
	h.polls++
	if h.owed && !(h.streams && h.turns&3 != 0) {
		h.owed = false
		h.send()
	}
	h.streams = false
	n := cq.Poll(out)
	if n == 0 {
		bytes := h.eng.Stats.RxBytes
		if got := h.drain(cq); got == 0 {
			h.idle++
			h.turns = 0
			if h.owed {
				h.owed = false
				h.send()
			}
			if h.waiting > 0 {
				h.unpark()
				h.send()
			}
			if h.idle >= 16 {
				h.idled()
			}
		} else {
			h.idle = 0
			h.owed = true
			n = cq.Poll(out)
			if n == 0 {
				h.finish()
			}
			h.streams = n == 0 && h.isStream(got, h.eng.Stats.RxBytes-bytes)
		}
	}
	if n > 0 {
		h.finish() // before the program has its memory back
	}
	idle := h.idle
	helps, streams := h.helps, h.streams
	h.helps = false
	h.mu.Unlock()
	if streams {
		cacheline.Pause()
	}
	if idle&127 == 127 || helps {
		h.patience(idle)
	}
	return n
}

// patience is what a poller does that has found nothing for a while: every few
// microseconds it lets another thread have this core, in case that is the
// peer's; less often it helps, and lets other goroutines have a turn.
func (h *Host) patience(idle int) {
	if idle&511 != 511 {
		cacheline.YieldCore()
	} else {
		h.help()
	}
	if idle&1023 == 1023 {
		runtime.Gosched()
	}
}

// help does the work of hosts that have not looked at what this one sent them. An
// adapter of silicon always runs; a goroutine, on a machine with more to do than
// cores, may not for longer than an ACK timeout. So whoever has waited for a while,
// or is about to give up on an answer, first makes sure that the packets were seen.
func (h *Host) help() {
	h.mu.Lock()
	rings := h.outRings
	h.mu.Unlock()
	for _, r := range rings {
		if !r.pending() || !r.dst.mu.TryLock() {
			continue
		}
		r.dst.carry()
		r.dst.mu.Unlock()
	}
}

// isStream reports whether n packets that came at once, with so many bytes of
// payload, are part of a stream of short ones that nobody waits for one by one. To
// look at each as it is written would take its cache line away from the sender
// in the middle of writing; a batch costs both less, so it is worth a pause.
func (h *Host) isStream(n int, bytes uint64) bool {
	h.turns++
	return (n >= stream || h.turns >= stream) && bytes <= uint64(n)*shortBytes
}

// idled is what a poller that finds nothing does besides, now and then.
func (h *Host) idled() {
	if h.idle&63 == 0 {
		if h.refresh() >= h.eng.NextDeadline() && !h.helped {
			h.helped, h.helps = true, true
			return
		}
		h.helped = false
		h.timers(h.clock)
		h.send()
		h.finish()
	}
	if !h.attended.Load() {
		// Polled in earnest: peers need not wake the attendant. It looks in now
		// and then, and takes over when the polling ends.
		h.attended.Store(true)
		h.ring()
	}
}

// drain takes in packets until cq has something, and returns how many.
func (h *Host) drain(cq *hca.CQ) int {
	rings := *h.incoming.Load()
	if len(rings) == 0 {
		return 0
	}
	if h.hot < len(rings) {
		// Whoever polls waits for something: look a few times before the way
		// back to the caller and here again.
		for i := 0; i < 8; i++ {
			if n := h.drainRing(rings[h.hot], cq); n > 0 {
				return n
			}
		}
		if len(rings) == 1 {
			return 0
		}
	}
	// The others in turn, two at a time: most are empty, and to look at them all
	// would keep the one that matters waiting.
	for i := 0; i < len(rings) && i < 2; i++ {
		h.turn++
		if h.turn >= len(rings) {
			h.turn = 0
		}
		if n := h.drainRing(rings[h.turn], cq); n > 0 {
			h.hot = h.turn
			return n
		}
	}
	return 0
}

// drainAll looks at every ring once.
func (h *Host) drainAll() int {
	n := 0
	for _, r := range *h.incoming.Load() {
		n += h.drainRing(r, nil)
	}
	return n
}

// drainRing takes in packets of one ring. It stops once cq, if there is one, has a
// completion, unless there is a backlog: what follows it is most often an
// acknowledgement that can wait.
func (h *Host) drainRing(r *ring, cq *hca.CQ) int {
	c := r.next()
	if c == nil {
		return 0
	}
	now := h.about()
	n := 0
	for c != nil && n < drainMax {
		if c.kind&cellLong != 0 {
			// Where long packets stream the sender is far ahead. Short ones are left
			// alone: they are still being written.
			cacheline.Fetch(unsafe.Pointer(&r.cells[(r.head+2)%ringCells]))
		}
		if r.take(c) {
			h.eng.HandlePacket(now, ib.PortNum(r.port), c.get(&h.rx))
		}
		r.release()
		n++
		if cq != nil && cq.Len() > 0 && !r.backlog() {
			break
		}
		c = r.next()
	}
	r.done()
	if c == nil {
		r.tell()
	}
	return n
}

// timers runs what is due.
func (h *Host) timers(now ib.Time) {
	if now >= h.eng.NextDeadline() {
		h.eng.HandleTimeout(now)
		h.wakeAt.Store(int64(h.eng.NextDeadline()))
	}
}

func (h *Host) addIncoming(r *ring) {
	h.inMu.Lock()
	defer h.inMu.Unlock()
	old := *h.incoming.Load()
	list := append(append(make([]*ring, 0, len(old)+1), old...), r)
	h.incoming.Store(&list)
}

// syncPorts tells the engine the state of its ports' links.
func (h *Host) syncPorts() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.f.mu.Lock()
	for n := 1; n < len(h.ports); n++ {
		p := *h.eng.Port(ib.PortNum(n))
		p.State = h.ports[n].link.State()
		p.MTU = h.ports[n].link.NeighborMTU()
		h.eng.SetPort(ib.PortNum(n), p)
	}
	h.f.mu.Unlock()
	h.finish()
}
