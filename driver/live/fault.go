package live

import (
	"fmt"
	"slices"
	"time"

	"softib/fabric"
	"softib/node/agent"
	"softib/node/ibswitch"
	"softib/node/inspect"
	"softib/proto/ib"
	"softib/proto/mad"
	"softib/proto/topo"
)

// Fault is what a cable does beyond carrying packets, in the terms of those who rehearse it.
type Fault = inspect.Fault

// ErrFault is matched when a fault or a capture cannot be as asked.
var ErrFault = inspect.ErrFault

// checkFault says what is wrong with a fault.
func checkFault(f Fault) error {
	switch {
	case !(f.BER >= 0 && f.BER < 1):
		return fmt.Errorf("live: bit error rate %v: want at least 0 and less than 1: %w", f.BER, ErrFault)
	case !(f.Drop >= 0 && f.Drop <= 1):
		return fmt.Errorf("live: drop probability %v: want 0 to 1: %w", f.Drop, ErrFault)
	case f.Rate < 0 || f.Rate != 0 && f.Rate < minRate:
		return fmt.Errorf("live: rate of %d bits a second: want at least %d, or 0 for no limit: %w", f.Rate, minRate,
			ErrFault)
	case f.Delay < 0 || f.Delay > maxDelay:
		return fmt.Errorf("live: delay %v: want 0 to %v: %w", f.Delay, maxDelay, ErrFault)
	}
	return nil
}

const (
	minRate  = 1000
	maxDelay = time.Minute
)

// SetFault makes the cable at a port a bad one, in place of whatever it was. Ways of programs that cross it lead
// through the switches, packet by packet, from now on.
func (f *Fabric) SetFault(r topo.PortRef, fault Fault) error {
	if err := checkFault(fault); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	p, err := f.cabled(r)
	if err != nil {
		return err
	}
	if err := f.startPlane(); err != nil {
		return err
	}
	if p.fault == nil {
		s := &inspect.FaultState{}
		for _, end := range p.ends() {
			end.fault = s
		}
		f.faulty = append(f.faulty, s)
	}
	p.fault.Port, p.fault.Fault = r, fault
	f.tellRate(p)
	is := fabric.Faults{Drop: fault.Drop, BER: fault.BER, Rate: fault.Rate,
		Lag: ib.Time(fault.Delay) * ib.Nanosecond, SpareFC: true}
	f.setFaults(p, is)
	if fault.OneWay && p.peer != nil {
		f.eng.SetFaults(p.peer.place(), fabric.Faults{})
	}
	f.reroute()
	return nil
}

// tellRate tells programs at both ends of a cable how fast it is now. The fabric's lock is held.
func (f *Fabric) tellRate(p *portState) {
	for _, end := range p.ends() {
		if end.host != nil {
			end.host.tellPort(end.num)
		}
	}
}

// setFaults tells the engine what the cable at a port does.
func (f *Fabric) setFaults(p *portState, is fabric.Faults) {
	for _, end := range p.ends() {
		f.eng.SetFaults(end.place(), is)
	}
}

// Retrain lets the link at a port recover from an error: it stays up, and both ends count it.
func (f *Fabric) Retrain(r topo.PortRef) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	p, err := f.cabled(r)
	if err != nil {
		return err
	}
	if p.link.Phys() != ib.PhysLinkUp {
		return fmt.Errorf("live: the link at %s is down: only one that is up can recover: %w", f.graph.PortName(r),
			ErrFault)
	}
	for _, end := range p.ends() {
		end.link.Recover()
	}
	return nil
}

// ResetSwitch makes a switch whose links are down forget everything that managers wrote, keys too, as when its power
// goes and comes.
func (f *Fabric) ResetSwitch(node int) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := f.node(node)
	if f.closed.Load() || n == nil || n.sw == nil {
		return fmt.Errorf("live: node %d is no switch that runs here: %w", node, ErrFault)
	}
	for _, p := range n.ports[1:] {
		if p.link.Phys() == ib.PhysLinkUp {
			return fmt.Errorf("live: %s has links that are up: %w", n.topo.Name, ErrFault)
		}
	}
	n.sw.Reset()
	cfg := ibswitch.NodeConfig{PortGUID: n.topo.PortGUID(0)}
	cfg.Identity, cfg.Supported = identity(f.graph, n.topo)
	n.mgmt = ibswitch.NewNode(n.sw, cfg)
	n.agent = agent.New(n.mgmt)
	n.agent.SetTerms(f.terms)
	if i := f.falseGUID(node); i >= 0 {
		n.agent.SetNodeGUID(f.falseGUIDs[i].GUID)
	}
	for num, p := range n.ports {
		n.agent.SetCapability(ib.PortNum(num), mad.CapIsSM, p.managers > 0) // whose programs go on
	}
	f.reroute()
	return nil
}

// SetNodeGUID has a node answer with another node GUID than its own; 0, or its own, ends that. Its ports keep theirs.
func (f *Fabric) SetNodeGUID(node int, guid ib.GUID) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := f.node(node)
	if f.closed.Load() || n == nil {
		return fmt.Errorf("live: node %d does not run here: %w", node, ErrFault)
	}
	if i := f.falseGUID(node); i >= 0 {
		f.falseGUIDs = slices.Delete(f.falseGUIDs, i, i+1)
	}
	if guid == n.topo.GUID {
		guid = 0
	}
	if guid != 0 {
		f.falseGUIDs = append(f.falseGUIDs, inspect.FalseGUID{Node: node, GUID: guid, Since: time.Now()})
	}
	n.agent.SetNodeGUID(guid)
	return nil
}

// falseGUID is a node's place among those that answer with another's GUID; -1 if it has none. The fabric's lock is
// held.
func (f *Fabric) falseGUID(node int) int {
	return slices.IndexFunc(f.falseGUIDs, func(x inspect.FalseGUID) bool { return x.Node == node })
}

// FalseGUIDs are the nodes that answer with another GUID than their own.
func (f *Fabric) FalseGUIDs() []inspect.FalseGUID {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.falseGUIDs)
}

// ClearFault makes the cable at a port a good one again.
func (f *Fabric) ClearFault(r topo.PortRef) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	p, err := f.cabled(r)
	if err != nil {
		return err
	}
	if p.fault == nil {
		return fmt.Errorf("live: the cable at %s has no fault: %w", f.graph.PortName(r), ErrFault)
	}
	f.faulty = without(f.faulty, p.fault)
	for _, end := range p.ends() {
		end.fault = nil
	}
	f.tellRate(p)
	f.setFaults(p, fabric.Faults{})
	f.changed()
	return nil
}

// Faults are those that are set, in the order in which they were.
func (f *Fabric) Faults() (all []inspect.FaultState) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range f.faulty {
		s.Dropped, s.Corrupted = 0, 0
		for _, end := range f.port(s.Port).ends() {
			harm := f.eng.HarmAt(end.place())
			s.Dropped, s.Corrupted = s.Dropped+harm.Dropped, s.Corrupted+harm.Corrupted
		}
		all = append(all, *s)
	}
	return all
}

// cabled is a port with a cable.
func (f *Fabric) cabled(r topo.PortRef) (*portState, error) {
	if f.closed.Load() {
		return nil, ErrClosed
	}
	if p := f.port(r); p != nil && p.isCabled() {
		return p, nil
	}
	return nil, fmt.Errorf("live: no cable at %s: see the topology for the ports in use: %w", f.graph.PortName(r),
		ErrFault)
}

// reroute makes every way be walked anew, and does so at once: whoever sets a fault, begins a capture or pulls a cable
// wants it to hold for all that is sent from now on.
func (f *Fabric) reroute() {
	f.changed()
	f.walkAll()
}

// isSwitched reports whether packets that pass the port have to pass one by one.
func (p *portState) isSwitched() bool { return p.fault != nil || len(p.taps) > 0 || p.outside != nil }

// passesSwitched reports whether the route leads through the switches packet by packet.
func (rt *route) passesSwitched() bool {
	return rt.routed || slices.ContainsFunc(rt.hops, func(h hop) bool {
		return h.p.isSwitched() || h.p.peer != nil && h.p.peer.isSwitched()
	})
}
