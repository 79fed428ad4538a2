package live

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"softib/internal/patience"
	"softib/node/agent"
	"softib/proto/ib"
	"softib/proto/mad"
	"softib/proto/topo"
	"softib/subnet/sm"
)

// BringUp runs a subnet manager on the first host until the subnet is up, and then no more. It may be called again
// after links went down or up. A fabric that a manager stays with has no need of it.
func (f *Fabric) BringUp() (sm.Report, error) {
	if f.closed.Load() {
		return sm.Report{}, ErrClosed
	}
	f.managing.Lock()
	defer f.managing.Unlock()
	return sm.BringUpParts(f.graph, sm.Config{Groups: f.groups, Adaptive: f.cfg.Adaptive}, f.caller)
}

// caller sends requests from a port and brings back the answers of agents. What leads over a cable that takes its time
// may be lost, or wait for another machine: it is repeated as a manager repeats its requests.
func (f *Fabric) caller(from topo.PortRef) sm.Call {
	here := &MgmtPort{f: f, at: f.port(from)}
	at := place{here.at.node, from.Port, true}
	var p packet
	return func(req []byte, resp *[mad.Size]byte) (ok bool) {
		c := &call{tid: mad.View(req).TID()}
		for try := 0; ; try++ {
			p.direct(req)
			f.lock(f.Now())
			ok = f.carry(at, &p, here)
			away := p.away
			if away {
				here.at.call = c
				f.plane.await(ib.Time(patience.For(callMax))*ib.Nanosecond, func() bool { return c.answered })
				p, ok, here.at.call = c.answer, c.answered, nil
			}
			f.mu.Unlock()
			if ok || !away || try == sm.DefaultRetries {
				break
			}
		}
		if ok {
			*resp = p.data
		}
		return ok
	}
}

// call is a request whose answer somebody waits for, where the way leads over a cable that takes its time.
type call struct {
	tid      uint64
	answer   packet
	answered bool
}

// callMax is how long, on an idle machine.
const callMax = 200 * time.Millisecond

// CreateMulticast makes a multicast LID reach every cabled port of the given hosts, and no other. Queue pairs attach to
// the group by themselves.
func (f *Fabric) CreateMulticast(mlid ib.LID, hosts ...*Host) error {
	if f.closed.Load() {
		return ErrClosed
	}
	if !mlid.IsMulticast() {
		return fmt.Errorf("live: multicast LID %v: want 0x%x to 0x%x: %w", mlid, int(ib.LIDMulticastMin),
			int(ib.LIDMulticastMax), ErrGroup)
	}
	g := sm.Group{MLID: mlid}
	for _, h := range hosts {
		for _, p := range h.ports[1:] {
			if p.isCabled() {
				g.Members = append(g.Members, h.topo.PortGUID(p.num))
			}
		}
	}
	f.managing.Lock()
	f.groups = slices.DeleteFunc(f.groups, func(o sm.Group) bool { return o.MLID == mlid })
	f.groups = append(f.groups, g)
	f.managing.Unlock()
	_, err := f.BringUp()
	return err
}

// Groups are the multicast groups that need no joining.
func (f *Fabric) Groups() []sm.Group {
	f.managing.Lock()
	defer f.managing.Unlock()
	return slices.Clone(f.groups)
}

// stir notes that something happened at a node that its agent may have to tell a manager. The fabric's lock is held.
func (f *Fabric) stir(n *node) {
	if !n.stirred {
		n.stirred = true
		f.restless = append(f.restless, n)
		ring(f.trapBell)
	}
}

// sendTraps sends the agents' traps, and repeats them until a manager has answered.
func (f *Fabric) sendTraps() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		next := min(f.announce(), f.Now()+3600*ib.Second)
		timer.Reset(max(time.Duration((next-f.Now())/ib.Nanosecond), 0) + 50*time.Microsecond)
		select {
		case <-f.closing:
			return
		case <-f.trapBell:
		case <-timer.C:
		}
	}
}

// announce sends what is due and says when it wants to be called again.
func (f *Fabric) announce() ib.Time {
	next := ib.Never
	f.lock(f.Now())
	nodes := f.restless
	f.restless = nil
	for _, n := range nodes {
		n.stirred = false
	}
	f.mu.Unlock()
	slices.SortFunc(nodes, func(a, b *node) int { return cmp.Compare(a.topo.Index, b.topo.Index) })
	for _, n := range nodes {
		for ok := true; ok; {
			var due ib.Time
			f.lock(f.Now())
			if ok, due = f.trap(n); !ok && due != ib.Never && !n.stirred {
				// Not rung for: the timer will come.
				n.stirred = true
				f.restless = append(f.restless, n)
				next = ib.Earlier(next, due)
			}
			f.mu.Unlock()
		}
	}
	return next
}

// trap sends a trap of a node, if there is one that is due, and says when the next is. The fabric's lock is held.
func (f *Fabric) trap(n *node) (sent bool, due ib.Time) {
	var p packet
	n.fold()
	n.agent.HandleTimer(f.now)
	a, sent := n.agent.PollTrap(f.now, p.data[:])
	n.passOn()
	if sent {
		agent.NewSMP(&p.Packet, a.SLID, a.DLID, a.SL)
		f.carry(place{n, a.Port, true}, &p, nil)
	}
	return sent, n.agent.NextDeadline()
}

// GuardManagement has switches take no requests of subnet management from hosts, but at the ports where managers run;
// off, they take them from all.
func (f *Fabric) GuardManagement(on bool, managers []topo.PortRef) {
	f.lock(f.Now())
	defer f.mu.Unlock()
	for _, h := range f.hosts {
		for _, p := range h.ports[1:] {
			if p.peer != nil && p.peer.sw != nil {
				p.peer.link.SetGuard(on && !slices.Contains(managers, p.ref()))
			}
		}
	}
}

// SetTerms tells all nodes that run here the secret of managers that rule in turn: agent.SetTerms says what for.
func (f *Fabric) SetTerms(secret uint64) {
	f.lock(f.Now())
	defer f.mu.Unlock()
	f.terms = secret
	for _, n := range f.nodes {
		if n != nil {
			n.agent.SetTerms(secret)
		}
	}
}
