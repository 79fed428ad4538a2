package flow

import (
	"math"

	"softib/proto/ib"
)

// Rates are max-min fair if, and only if, each flow has a link that holds it: one that is full, and on which no flow
// has more than it (Bertsekas and Gallager, Data Networks, 6.5.2). So each flow remembers which link that is. When
// flows come and go, those that came and those that a changed link held are computed anew while all others keep what
// they have. That may let go of others, or give less to a flow than another has on the link that holds it; these are
// computed anew too, together with the first, until everybody is held. Most changes end a few links away from where
// they began.
//
// Rates for some flows, with what the others leave, come from letting them grow together: when a link is full the flows
// on it keep what they have, and the others grow on.

// solver is what computing rates needs and nobody else.
type solver struct {
	mark   uint32
	among  []uint32 // flows whose rates are computed
	around []int32  // links that they are on, and those that changed
	full   shares
}

// near is how far apart two rates may be and still be the same, as a part of them: more than roundings, less than
// anybody could see.
const near = 1e-9

// solve computes rates anew where they may have changed.
func (n *Net) solve() {
	n.mark++
	n.among, n.around = n.among[:0], n.around[:0]
	for _, l := range n.changed {
		n.visit(l)
	}
	n.changed = n.changed[:0]
	for _, l := range n.around[:len(n.around):len(n.around)] {
		for _, r := range n.links[l].flows {
			if f := &n.flows[r.flow]; f.heap < 0 || f.held == l {
				n.join(r.flow)
			}
		}
	}
	n.stats.Solved++
	for more := len(n.among) > 0; more; {
		n.stats.Touched += uint64(len(n.among))
		n.fill()
		more = n.release()
	}
	n.apply()
}

// visit puts a link among those to look at, once.
func (n *Net) visit(l int32) {
	ln := &n.links[l]
	if ln.mark != n.mark {
		ln.mark = n.mark
		n.around = append(n.around, l)
	}
	ln.stale = true
}

// join puts a flow among those to compute anew, once.
func (n *Net) join(x uint32) {
	f := &n.flows[x]
	if f.mark == n.mark {
		return
	}
	f.mark = n.mark
	n.among = append(n.among, x)
	for _, h := range f.path {
		n.visit(h.link)
	}
}

// survey finds out what a link has for the flows that are computed anew, and how many they are.
func (n *Net) survey(ln *link) {
	ln.stale, ln.free, ln.anew, ln.parts, ln.all = false, ln.cap, 0, 0, 0
	for _, r := range ln.flows {
		ln.all += r.part
		if f := &n.flows[r.flow]; f.mark == n.mark {
			ln.anew++
			ln.parts += r.part
		} else {
			ln.free -= f.rate * r.part
		}
	}
}

// fill lets the rates grow: the link that is full first gives its flows their share, and so on.
func (n *Net) fill() {
	n.full = n.full[:0]
	for _, x := range n.among {
		n.flows[x].next = -1
	}
	for _, l := range n.around {
		ln := &n.links[l]
		if ln.stale {
			n.survey(ln)
		}
		ln.room, ln.open, ln.grow, ln.gave, ln.most = ln.free, ln.anew, ln.parts, -1, 0
		if ln.open > 0 {
			n.full = append(n.full, share{ln.room / ln.grow, l})
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
		if now := ln.room / ln.grow; now > least.rate {
			// Others have stopped before it was full: its share has grown, and another link may come first.
			n.full[0].rate = now
			n.full.down(0)
			continue
		}
		n.full.pop()
		rate := max(least.rate, 0)
		ln.gave = rate
		for _, r := range ln.flows {
			f := &n.flows[r.flow]
			if f.mark != n.mark || f.next >= 0 {
				continue
			}
			f.next, f.held = rate, least.link
			for _, h := range f.path {
				o := &n.links[h.link]
				o.room -= rate * h.part
				o.grow -= h.part
				o.open--
				o.most = rate
			}
		}
	}
}

// release joins the flows that no link holds any more with those that are computed anew, and reports whether there are
// any.
func (n *Net) release() bool {
	before := len(n.among)
	for _, l := range n.around[:len(n.around):len(n.around)] {
		ln := &n.links[l]
		if int(ln.anew) == len(ln.flows) {
			continue
		}
		full := ln.room <= ln.cap*near
		limit := math.Inf(1)
		if ln.gave >= 0 {
			// Where it gave less than an even share others have more than one, and these have to give first.
			limit = max(ln.gave*(1+near), ln.cap/ln.all)
		}
		for _, r := range ln.flows {
			g := &n.flows[r.flow]
			if g.mark != n.mark && (g.rate > limit || g.held == l && (!full || ln.most > g.rate*(1+near))) {
				n.join(r.flow)
			}
		}
	}
	return len(n.among) > before
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
			n.links[h.link].rate += (f.next - f.rate) * h.part
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
