package fabric

import (
	"errors"

	"softib/node/link"
	"softib/proto/ib"
)

// parts is what an engine keeps that is one of several parts of a fabric.
type parts struct {
	of     []uint8   // by node: its part; nil if there is one part
	others []*Engine // the other parts, at the first
	away   [][]Away  // by part: what is for its nodes
	soon   ib.Time   // when the first of them comes
}

// Away is an event for a node of another part.
type Away struct {
	t ib.Time
	d uint64
	f *link.Frame // of the sender's pool, where it is a packet's arrival; nil if it is not
}

// Split divides an engine in which no packet is under way, and no event of the driver's own is to come: of says for
// each node which part it is of, and there is a pool for each part, that of the engine first. The engine itself becomes
// the first part, and counts for all: its Hops, Drops and TraceHash are the sums. Each part lets happen what happens to
// its nodes; what goes from one to another comes out by TakeAway and in by HandleAway. Nothing that a part does at t
// concerns another before t and the returned time. Links and faults must stay as they are from now on. Where it is
// refused nothing has changed.
//
// The parts share the nodes, so that they may work at the same time, each with its own.
func (e *Engine) Split(of []uint8, pools []*link.Pool) ([]*Engine, ib.Time, error) {
	switch {
	case !e.cfg.ByPlace:
		return nil, 0, errors.New("fabric: Split needs ByPlace")
	case e.FramesInUse() > 0 || e.notes.Len() > 0:
		return nil, 0, errors.New("fabric: Split while something is under way")
	case len(e.cables) > 0 || e.sink != nil || e.parts.of != nil:
		return nil, 0, errors.New("fabric: Split with faults, with a capture or a second time")
	}
	driver := false
	e.q.each(func(ev *event) {
		k, _, _ := split(ev.d)
		driver = driver || k < evNone || k >= Own && k < fromFar
	})
	if driver {
		return nil, 0, errors.New("fabric: Split while the driver has something to come")
	}
	between := func(p *link.Port) bool {
		return p.Site.Peer != NoEnd && of[p.Site.Node] != of[e.ports[p.Site.Peer].Site.Node]
	}
	ahead := ib.Never
	for _, p := range e.ports {
		if between(p) {
			ahead = min(ahead, p.Site.Delay)
		}
	}
	if ahead <= 0 {
		return nil, 0, errors.New("fabric: Split at a cable that takes no time")
	}
	due := e.q.cancel(func(uint64) bool { return true })
	e.q = newQueue(&e.cfg)
	all := make([]*Engine, len(pools))
	for i := range all {
		p := e
		if i > 0 {
			cfg := e.cfg
			cfg.Pool = pools[i]
			p = New(cfg, 0)
			p.now, p.ports, p.switches, p.first = e.now, e.ports, e.switches, e.first
			p.hosts, p.lengths, p.routers = e.hosts, e.lengths, e.routers
			p.outside.gates = e.outside.gates
		}
		p.parts = parts{of: of, away: make([][]Away, len(pools)), soon: ib.Never}
		all[i] = p
	}
	e.parts.others = all[1:]
	for _, p := range e.ports {
		setFlag(&p.Site.Flags, endAway, between(p))
	}
	for node, sw := range e.switches {
		if sw != nil {
			sw.SetPool(pools[of[node]])
		}
		if r := e.Router(node); r != nil {
			r.SetPool(pools[of[node]])
		}
	}
	for _, ev := range due {
		if k, place, _ := split(ev.d); k != evNone {
			all[of[e.ports[place].Site.Node]].q.push(ev.t, ev.d)
		}
	}
	return all, ahead, nil
}

// pushFar has an event come at the other end of a port's cable.
func (e *Engine) pushFar(p *link.Port, t ib.Time, d uint64) {
	if p.Site.Flags&endAway != 0 {
		e.sendAway(p, Away{t: t, d: d})
		return
	}
	e.q.push(t, d)
}

//go:noinline
func (e *Engine) sendAway(p *link.Port, a Away) {
	to := e.parts.of[e.ports[p.Site.Peer].Site.Node]
	e.parts.away[to] = append(e.parts.away[to], a)
	e.parts.soon = min(e.parts.soon, a.t)
}

// NextAway is when the first event comes that TakeAway has; Never if there is none.
func (e *Engine) NextAway() ib.Time { return e.parts.soon }

// TakeAway exchanges the list of what is for another part for an empty one. NextAway forgets what there was: take all
// lists.
func (e *Engine) TakeAway(part int, empty []Away) []Away {
	list := e.parts.away[part]
	e.parts.away[part], e.parts.soon = empty[:0], ib.Never
	return list
}

// HandleAway takes in what another part has for this one. Frames are copied: they stay the sender's, who gets them back
// by FreeAway.
func (e *Engine) HandleAway(list []Away) {
	for i := range list {
		a := &list[i]
		d := a.d
		if a.f != nil {
			f := e.pool.Get()
			f.MoveFrom(a.f)
			d |= uint64(f.Index())
		}
		e.q.push(max(a.t, e.now), d)
	}
}

// FreeAway gives back the frames of a list that TakeAway returned, once its receiver has done with it.
func (e *Engine) FreeAway(list []Away) {
	for i := range list {
		if f := list[i].f; f != nil {
			e.pool.Put(f)
		}
	}
}
