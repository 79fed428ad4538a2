package check

import (
	"fmt"

	"softib/proto/ib"
	"softib/proto/mad"
	"softib/proto/topo"
)

// unsettled says what is not as it should be in a fabric that is left alone; empty if all is well: one master, the
// others stand by, every link is active, every end port has an address of its own, which it had before, and knows its
// master's, and whatever is sent by the switches' own tables arrives.
func (r *reign) unsettled() string {
	master, why := r.master()
	if why != "" {
		return why
	}
	g := r.sim.Graph()
	for i, c := range r.cables {
		if r.pulled[i] {
			continue
		}
		for _, ref := range [2]topo.PortRef{c.A, c.B} {
			if st := r.sim.Port(ref).State(); st != ib.PortActive {
				return fmt.Sprintf("%s is %v", g.PortName(ref), st)
			}
		}
	}
	ends := r.t.ends()
	smLID := r.sim.LID(topo.PortRef{Node: r.sim.HostNode(master).Index, Port: 1})
	owner := map[ib.LID]topo.PortRef{}
	for _, e := range ends {
		switch was, known := r.lids[e.guid]; {
		case e.lid == 0:
			return fmt.Sprintf("%s has no address", g.PortName(e.ref))
		case e.smLID != smLID:
			return fmt.Sprintf("%s has the manager's address %v: want %v", g.PortName(e.ref), e.smLID, smLID)
		case known && was != e.lid && r.mustKeep():
			return fmt.Sprintf("%s has the address %v: it had %v", g.PortName(e.ref), e.lid, was)
		}
		for k := range ib.LID(1) << e.lmc {
			if o, taken := owner[e.lid+k]; taken {
				return fmt.Sprintf("%s and %s both have the address %v", g.PortName(o), g.PortName(e.ref), e.lid+k)
			}
			owner[e.lid+k] = e.ref
		}
	}
	for h := range r.sim.NumHosts() {
		for _, e := range ends {
			for k := range ib.LID(1) << e.lmc {
				list, at, ok := r.t.path(h, e.lid+k)
				if self := e.ref.Node == r.sim.HostNode(h).Index; !self && (!ok || at != e.ref) {
					return fmt.Sprintf("from h%d LID %v of %s is not reached: %s and ends at %s", h+1, e.lid+k,
						g.PortName(e.ref), r.t.names(list), r.t.stop(at, e.lid+k))
				}
			}
		}
	}
	return r.strayed()
}

// master is the host of the one master.
func (r *reign) master() (host int, why string) {
	host = -1
	for k := range r.sc.Managers {
		h := r.sc.Managers[k].Host
		m := r.sim.Manager(h)
		if m == nil {
			continue
		}
		switch m.State() {
		case mad.SMMaster:
			if host >= 0 {
				return h, fmt.Sprintf("the managers of h%d and h%d are both masters", host+1, h+1)
			}
			host = h
		case mad.SMStandby:
		default:
			return h, fmt.Sprintf("the manager of h%d is %v", h+1, m.State())
		}
	}
	if host < 0 {
		return host, "no manager is master"
	}
	if k := r.foremost(); r.priority(host) < r.sc.Managers[k].Priority {
		return host, fmt.Sprintf("the manager of h%d is master with priority %d, not that of h%d with %d", host+1,
			r.priority(host), r.sc.Managers[k].Host+1, r.sc.Managers[k].Priority)
	}
	return host, ""
}

// foremost is the manager with the highest priority of those that run.
func (r *reign) foremost() (best int) {
	best = -1
	for k := range r.sc.Managers {
		if r.sim.Manager(r.sc.Managers[k].Host) != nil &&
			(best < 0 || r.sc.Managers[k].Priority > r.sc.Managers[best].Priority) {
			best = k
		}
	}
	return best
}

// priority is that of the manager at a host.
func (r *reign) priority(host int) uint8 {
	for k := range r.sc.Managers {
		if r.sc.Managers[k].Host == host {
			return r.sc.Managers[k].Priority
		}
	}
	return 0
}

// mustKeep reports whether nodes have to keep their addresses: always, unless a switch has started anew, and so
// forgotten its own, and not every manager could know it. The switch may then be given one that a node has which cannot
// be seen just now.
func (r *reign) mustKeep() bool {
	reboots, forgets := false, len(r.sc.Managers) > 1
	for i := range r.sc.Faults {
		f := &r.sc.Faults[i]
		reboots = reboots || f.Kind == RebootNode
		forgets = forgets || f.Kind == KillManager && f.Forgets
	}
	return !reboots || !forgets
}
