package flow

import (
	"softib/proto/ib"
)

// Step is how far a message has come.
type Step uint8

// Steps of a message.
const (
	Left    Step = iota // its last byte has left the sender
	Arrived             // and is there
	Sent                // and the sender has heard so
)

// Arrival is a message that has come a step further.
type Arrival struct {
	ID   uint32
	Step Step
}

// Net is the links and what is on its way.
type Net struct {
	// Quantum is how far apart two messages may end and still be taken to end at the same moment. It saves computing
	// rates twice where a rounding is all that lies between. 0 is DefaultQuantum.
	Quantum ib.Time

	links []link
	flows []flow
	spare []uint32                   // of flows
	paths [][][]hop                  // freed ones, by length
	ends  ends                       // flows by when they end
	later ib.Heap[arrival, *arrival] // what has left the links and is not there yet
	ready ib.Queue[Arrival]
	now   ib.Time

	changed []int32 // links whose flows came or went since rates were computed

	solver
	carried []float64 // by link: wire bytes so far, up to since
	stats   Stats
}

// DefaultQuantum is 1 ns: some bytes of the fastest link.
const DefaultQuantum = ib.Nanosecond

// Stats are for who measures.
type Stats struct {
	Started, Solved, Touched uint64 // messages, computations, and flows that these looked at
}

type link struct {
	cap   float64 // bytes in a picosecond
	flows []ref   // that use it
	// rate is the sum of its flows', and since when.
	rate  float64
	since ib.Time

	// While rates are computed:
	free  float64 // what flows that keep their rates leave of cap
	room  float64 // and what is left of it
	gave  float64 // the rate of flows that it holds; -1 if there are none
	most  float64 // the largest rate of those computed anew
	all   float64 // its flows, each counted as the part that it sends here
	parts float64 // of these, those computed anew
	grow  float64 // and those that have no rate yet
	anew  int32   // how many flows are computed anew
	open  int32   // and how many have no rate yet
	mark  uint32
	stale bool // free, all, parts and anew are to be found out
}

// ref is a flow on a link, at which hop of its path, and which part of it.
type ref struct {
	flow uint32
	hop  int32
	part float64
}

// hop is a link of a path, where in the link's list the flow is, and which part of the flow goes there.
type hop struct {
	link int32
	at   int32
	part float64
}

type flow struct {
	path    []hop
	left    float64 // bytes, at since
	rate    float64
	next    float64 // the rate to be
	since   ib.Time
	end     ib.Time
	latency ib.Time
	id      uint32
	mark    uint32
	held    int32 // the link that lets it have no more
	heap    int32 // where in ends
}

// New makes links of the given rates, in bytes a picosecond.
func New(rates []float64) *Net {
	n := &Net{links: make([]link, len(rates)), carried: make([]float64, len(rates))}
	for i, r := range rates {
		n.links[i].cap = r
	}
	return n
}

// Start puts a message on its way: so many bytes over these links, and the latency that they add up to. Parts says
// which part of the bytes goes over each link; nil is all of them.
func (n *Net) Start(now ib.Time, id uint32, path []int32, parts []float64, bytes float64, latency ib.Time) {
	n.now = max(n.now, now)
	n.stats.Started++
	if len(path) == 0 || bytes <= 0 {
		n.arrives(now, id, latency)
		return
	}
	f := n.slot()
	fl := &n.flows[f]
	*fl = flow{path: n.pathOf(len(path)), left: bytes, since: now, latency: latency, id: id, end: ib.Never, heap: -1}
	for i, l := range path {
		ln := &n.links[l]
		part := 1.0
		if parts != nil {
			part = parts[i]
		}
		fl.path[i] = hop{link: l, at: int32(len(ln.flows)), part: part}
		ln.flows = append(ln.flows, ref{f, int32(i), part})
		n.changed = append(n.changed, l)
	}
}

// NextDeadline is when HandleTimeout wants to be called. Rates are computed here: all that starts at one moment is
// there by then.
func (n *Net) NextDeadline() ib.Time {
	if len(n.changed) > 0 {
		n.solve()
	}
	at := ib.Never
	if len(n.ends) > 0 {
		at = n.flows[n.ends[0]].end
	}
	if len(n.later) > 0 {
		at = min(at, n.later[0].at)
	}
	if n.ready.Len() > 0 {
		at = n.now
	}
	return at
}

// HandleTimeout ends what has ended.
func (n *Net) HandleTimeout(now ib.Time) {
	if len(n.changed) > 0 {
		n.solve()
	}
	n.now = max(n.now, now)
	quantum := n.Quantum
	if quantum == 0 {
		quantum = DefaultQuantum
	}
	for len(n.ends) > 0 && n.flows[n.ends[0]].end <= now {
		// Those that follow within the quantum are a matter of rounding.
		for len(n.ends) > 0 && n.flows[n.ends[0]].end <= now+quantum {
			n.finish(n.ends.pop(n.flows))
		}
	}
	for len(n.later) > 0 && n.later[0].at <= now {
		a := n.later.Pop()
		n.ready.Push(Arrival{ID: a.id, Step: a.step})
		if a.step == Arrived {
			n.later.Push(arrival{at: a.at + a.latency, id: a.id, step: Sent})
		}
	}
}

// Poll is the next message that has come a step further.
func (n *Net) Poll() (Arrival, bool) { return n.ready.Pop() }

// Idle reports whether nothing is on its way, answers included.
func (n *Net) Idle() bool {
	return len(n.ends) == 0 && len(n.later) == 0 && len(n.changed) == 0 && n.ready.Len() == 0
}

// Carried is how many bytes a link has carried up to now.
func (n *Net) Carried(l int) float64 {
	ln := &n.links[l]
	return n.carried[l] + ln.rate*float64(n.now-ln.since)
}

// On counts the messages on a link.
func (n *Net) On(l int32) int { return len(n.links[l].flows) }

// Stats are how much work it was.
func (n *Net) Stats() Stats { return n.stats }

func (n *Net) arrives(at ib.Time, id uint32, latency ib.Time) {
	n.ready.Push(Arrival{ID: id, Step: Left})
	n.later.Push(arrival{at: at + latency, id: id, latency: latency, step: Arrived})
}

// finish takes a flow off its links.
func (n *Net) finish(f uint32) {
	fl := &n.flows[f]
	for _, h := range fl.path {
		ln := &n.links[h.link]
		n.account(h.link)
		ln.rate = max(ln.rate-fl.rate*h.part, 0)
		last := len(ln.flows) - 1
		if moved := ln.flows[last]; int(h.at) != last {
			ln.flows[h.at] = moved
			n.flows[moved.flow].path[moved.hop].at = h.at
		}
		ln.flows = ln.flows[:last]
		n.changed = append(n.changed, h.link)
	}
	n.arrives(fl.end, fl.id, fl.latency)
	n.paths[len(fl.path)] = append(n.paths[len(fl.path)], fl.path)
	fl.path = nil
	n.spare = append(n.spare, f)
}

// account brings a link's bytes up to now.
func (n *Net) account(l int32) {
	ln := &n.links[l]
	if n.now > ln.since {
		n.carried[l] += ln.rate * float64(n.now-ln.since)
		ln.since = n.now
	}
}

func (n *Net) slot() uint32 {
	if k := len(n.spare); k > 0 {
		f := n.spare[k-1]
		n.spare = n.spare[:k-1]
		return f
	}
	n.flows = append(n.flows, flow{})
	return uint32(len(n.flows) - 1)
}

func (n *Net) pathOf(length int) []hop {
	for len(n.paths) <= length {
		n.paths = append(n.paths, nil)
	}
	if k := len(n.paths[length]); k > 0 {
		p := n.paths[length][k-1]
		n.paths[length] = n.paths[length][:k-1]
		return p
	}
	return make([]hop, length)
}
