package flow

import (
	"math"

	"softib/proto/ib"
)

// Max-min fair rates are what this gives: let all flows' rates grow together; when a link is full the flows on it keep
// what they have, and the others grow on. A flow that ends with rate r was growing until then, so up to r the others
// grew as they would have without it: whoever stopped below r has the same rate after it is gone. The same holds for
// one that comes and will have rate r. So what has to be computed anew are flows with rates of at least r that share a
// link, or a link with one that shares a link and so on, with those that came or went. The r of one that comes is not
// known beforehand, but it is no less than its narrowest share: a link's rate by the number of its flows.

// solver is what computing rates needs and nobody else.
type solver struct {
	mark   uint32
	among  []uint32 // flows whose rates are computed
	around []int32  // links that they are on
	full   shares
}

// solve computes rates anew where they may have changed.
func (n *Net) solve() {
	n.mark++
	n.among, n.around, n.full = n.among[:0], n.around[:0], n.full[:0]
	// A rounding must not make a flow look as if it had less than it had.
	floor := n.floor * (1 - 1e-9)
	for _, l := range n.changed {
		n.visit(l)
	}
	n.changed, n.floor = n.changed[:0], math.Inf(1)
	for i := 0; i < len(n.around); i++ {
		ln := &n.links[n.around[i]]
		ln.room, ln.open = ln.cap, 0
		for _, r := range ln.flows {
			f := &n.flows[r.flow]
			if f.heap >= 0 && f.rate < floor {
				ln.room -= f.rate
				continue
			}
			ln.open++
			if f.mark != n.mark {
				f.mark, f.next = n.mark, -1
				n.among = append(n.among, r.flow)
				for _, h := range f.path {
					n.visit(h.link)
				}
			}
		}
	}
	n.stats.Solved++
	n.stats.Touched += uint64(len(n.among))
	n.fill()
	n.apply()
}

// visit puts a link among those to look at, once.
func (n *Net) visit(l int32) {
	if ln := &n.links[l]; ln.mark != n.mark {
		ln.mark = n.mark
		n.around = append(n.around, l)
	}
}

// fill lets the rates grow: the link that is full first gives its flows their share, and so on.
func (n *Net) fill() {
	for _, l := range n.around {
		if ln := &n.links[l]; ln.open > 0 {
			n.full = append(n.full, share{ln.room / float64(ln.open), l})
		}
	}
	n.full.init()
	for len(n.full) > 0 {
		least := n.full[0]
		ln := &n.links[least.link]
		if ln.open == 0 {
			n.full.pop()
			continue
		}
		if now := ln.room / float64(ln.open); now > least.rate {
			// Others have stopped before it was full: its share has grown, and another link may come first.
			n.full[0].rate = now
			n.full.down(0)
			continue
		}
		n.full.pop()
		rate := max(least.rate, 0)
		for _, r := range ln.flows {
			f := &n.flows[r.flow]
			if f.mark != n.mark || f.next >= 0 {
				continue
			}
			f.next = rate
			for _, h := range f.path {
				o := &n.links[h.link]
				o.room -= rate
				o.open--
			}
		}
	}
}

// apply gives flows their new rates, and the moments when they end.
func (n *Net) apply() {
	for _, x := range n.among {
		f := &n.flows[x]
		if f.next == f.rate && f.heap >= 0 {
			continue
		}
		f.left = max(f.left-f.rate*float64(n.now-f.since), 0)
		f.since = n.now
		for _, h := range f.path {
			n.account(h.link)
			n.links[h.link].rate += f.next - f.rate
		}
		f.rate = f.next
		f.end = ib.Never
		if f.rate > 0 {
			if at := math.Ceil(f.left / f.rate); at < math.MaxInt64/4 {
				f.end = n.now + ib.Time(at)
			}
		}
		n.ends.place(n.flows, x)
	}
}

// share is what a link could give to each of its flows that still grow.
type share struct {
	rate float64
	link int32
}

func (s share) before(o share) bool { return s.rate < o.rate || s.rate == o.rate && s.link < o.link }

// shares is a heap with the least share in front.
type shares []share

func (h shares) init() {
	for i := len(h)/2 - 1; i >= 0; i-- {
		h.down(i)
	}
}

func (h shares) down(i int) {
	s := h[i]
	for {
		c := 2*i + 1
		if c >= len(h) {
			break
		}
		if c+1 < len(h) && h[c+1].before(h[c]) {
			c++
		}
		if !h[c].before(s) {
			break
		}
		h[i], i = h[c], c
	}
	h[i] = s
}

func (h *shares) pop() {
	q := *h
	last := len(q) - 1
	q[0] = q[last]
	*h = q[:last]
	if last > 0 {
		(*h).down(0)
	}
}
