package check

import (
	"math/rand/v2"
	"slices"

	"softib/driver/sim"
	"softib/proto/ib"
	"softib/proto/mad"
)

// Managers that rule in turn, as those of a fabric that spans machines do: by an agreement that is none of theirs
// (package cluster, which has its own histories), so that one begins when the one before has not been heard for a
// while. That one may only have stood still. It wakes, and what it had decided goes on its way, until it hears that it
// rules no longer. Nothing of it may be carried out where its successor has been.

// turnSecret is what the keys of all terms are made of.
const turnSecret = 0x7E2A5

// drawTurns makes managers rule in turn, in one history of four.
func (sc *Management) drawTurns(rng *rand.Rand, hosts int) {
	if rng.IntN(4) > 0 || hosts < 2 {
		return
	}
	sc.Turns, sc.Tenants, sc.Attacks, sc.MKey, sc.MKeyProtect = true, 0, nil, 0, 0
	if rng.IntN(2) == 0 {
		// At the second level nobody could look without a key, and to show one is to say whose turn it is.
		sc.MKey, sc.MKeyProtect = 1+rng.Uint64()>>1, uint8(rng.IntN(2))
	}
	sc.Window = max(sc.Window, 1<<rng.IntN(7))
	// None dies: that is a turn of which nobody wakes.
	sc.Faults = slices.DeleteFunc(sc.Faults, func(f MgmtFault) bool { return f.Kind == KillManager })
	sc.Whole = rng.IntN(2) == 0
	at := rng.Perm(hosts)
	sc.Managers = sc.Managers[:0]
	now := ib.Time(0)
	for k := range min(2+rng.IntN(3), hosts) {
		r := Ruler{Host: at[k], Priority: uint8(rng.IntN(3))}
		if k > 0 {
			// Who stands still in the middle of mending something leaves most behind.
			now += ib.Time(1+rng.IntN(40)) * ib.Millisecond
			if len(sc.Faults) > 0 && rng.IntN(4) > 0 {
				f := &sc.Faults[rng.IntN(len(sc.Faults))]
				now = max(now, f.At+ib.Time(rng.IntN(2))*f.For+span(rng))
			}
			r.Still, r.Wakes, r.Hears, r.Writes = span(rng), span(rng), span(rng), rng.IntN(8)
			now += r.Still
			r.At = now
		}
		sc.Managers = append(sc.Managers, r)
	}
}

// turn is what a manager has to know that rules in turn.
func (sc *Management) turn(k int, c *sim.ManagerConfig) {
	if !sc.Turns {
		return
	}
	c.Terms, c.Term = turnSecret, uint32(k+1)
	g := sc.graph()
	if c.MKey != 0 {
		c.MKeyPerPort, c.Self, c.Plan = true, g.Hosts()[sc.Managers[k].Host].PortGUID(1), g
	}
	if sc.Whole {
		// They know beforehand what the subnet is.
		c.Plan, c.Whole, c.Memory.LIDs = g, true, map[ib.GUID]ib.LID{}
		for i, r := range g.EndPorts() {
			c.Memory.LIDs[g.Nodes[r.Node].PortGUID(r.Port)] = ib.LID(i+1) << sc.LMC
		}
	}
}

// planTurns sets the times at which the managers before others stand still, wake and hear.
func (r *reign) planTurns() {
	for k := range r.sc.Managers {
		if m := &r.sc.Managers[k]; r.sc.Turns && k > 0 {
			at := r.began + m.At
			r.sim.At(at-m.Still, timerStill|uint64(k-1))
			r.sim.At(at+m.Wakes, timerWake|uint64(k-1))
			r.sim.At(at+m.Wakes+m.Hears, timerHear|uint64(k-1))
			// Nobody ends what it was in the middle of before the next has looked at everything.
			r.gaps = append(r.gaps, gap{at - m.Still, at + r.sc.longSweep()})
		}
	}
}

// gap is a time in which nobody may rule.
type gap struct{ from, until ib.Time }

// atTurn lets a manager that is to be followed, or was, stand still, wake, or hear of that.
func (r *reign) atTurn(kind uint64, k int) {
	host := r.sc.Managers[k].Host
	switch kind {
	case timerStill:
		if r.writes = r.sc.Managers[k+1].Writes; r.writes == 0 {
			r.stand(k)
			break
		}
		r.stands = k + 1
	case timerWake:
		r.note("manager %d wakes", k)
		r.sim.PauseManager(host, false)
	case timerHear:
		r.note("manager %d hears that it rules no longer", k)
		r.gone[k] = true
		r.sim.StopManager(host)
	}
}

// stand lets a manager stand still.
func (r *reign) stand(k int) {
	r.note("manager %d stands still", k)
	r.stands = 0
	r.sim.PauseManager(r.sc.Managers[k].Host, true)
}

// wrote counts tables until the manager stands still that writes them.
func (r *reign) wrote() {
	if r.stands > 0 {
		if r.writes--; r.writes <= 0 {
			r.stand(r.stands - 1)
		}
	}
}

// checkTurn wants that nothing is carried out at a node in a turn that is over there: what one manager reads and plans
// from, none before it changes any more. A switch that has started anew knows of no turns.
func (r *reign) checkTurn(node int, q *sim.Request) {
	if !r.sc.Turns {
		return
	}
	term, ok := mad.TermOf(turnSecret, 0, q.MKey)
	n := r.sim.Graph().Nodes[node]
	for p := 0; p < len(n.Ports) && !ok; p++ {
		term, ok = mad.TermOf(turnSecret, n.PortGUID(ib.PortNum(p)), q.MKey)
	}
	report := func(format string, args ...any) {
		r.report(turnName, nil, "Set(%s) %#x at %s "+format, append([]any{mad.AttrName(mad.ClassSMLID, q.Attr), q.Mod,
			n.Name}, args...)...)
	}
	switch was := r.terms[node]; {
	case !ok && q.Set:
		report("has the key %#x, which says nobody's turn", q.MKey)
	case mad.TermAfter(was, term) && q.Set:
		report("is of turn %d, and turn %d has been there", term, was)
	case ok && mad.TermAfter(term, was):
		r.terms[node] = term
	}
}

// turnName is the name of that checker.
const turnName = "turns"

// inGap reports whether a message that was sent at a time, or its repetitions, may have met a time without a manager.
func (r *reign) inGap(sent ib.Time) bool {
	return slices.ContainsFunc(r.gaps, func(g gap) bool { return g.from <= r.sim.Now() && sent <= g.until })
}
