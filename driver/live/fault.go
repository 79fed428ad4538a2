package live

import (
	"fmt"
	"time"

	"softib/fabric"
	"softib/node/inspect"
	"softib/proto/ib"
	"softib/proto/topo"
)

// What a cable does beyond carrying packets, in the terms of those who rehearse it.
type (
	Fault      = inspect.Fault
	FaultState = inspect.FaultState
)

// ErrFault is matched when a fault or a capture cannot be as asked.
var ErrFault = inspect.ErrFault

// cable is a cable that has, or had, a fault. Both of its ends have it.
type cable struct {
	port  *portState // where it was set
	fault Fault
	on    bool
}

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
	c := p.cable
	if c == nil {
		c = &cable{}
		p.cable, p.peer.cable = c, c
	}
	if !c.on {
		c.on = true
		f.faulty = append(f.faulty, c)
	}
	c.port, c.fault = p, fault
	f.setFaults(p, fabric.Faults{Drop: fault.Drop, BER: fault.BER, Rate: fault.Rate,
		Lag: ib.Time(fault.Delay) * ib.Nanosecond, SpareFC: true})
	f.reroute()
	return nil
}

// setFaults tells the engine what the cable at a port does.
func (f *Fabric) setFaults(p *portState, is fabric.Faults) {
	f.eng.SetFaults(p.place(), is)
	f.eng.SetFaults(p.peer.place(), is)
}

// ClearFault makes the cable at a port a good one again.
func (f *Fabric) ClearFault(r topo.PortRef) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	p, err := f.cabled(r)
	if err != nil {
		return err
	}
	c := p.cable
	if c == nil || !c.on {
		return fmt.Errorf("live: the cable at %s has no fault: %w", f.graph.PortName(r), ErrFault)
	}
	c.on = false
	f.setFaults(p, fabric.Faults{})
	for i, o := range f.faulty {
		if o == c {
			f.faulty = append(f.faulty[:i:i], f.faulty[i+1:]...)
			break
		}
	}
	f.changed()
	return nil
}

// Faults are those that are set, in the order in which they were.
func (f *Fabric) Faults() []FaultState {
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []FaultState
	for _, c := range f.faulty {
		out, in := f.eng.HarmAt(c.port.place()), f.eng.HarmAt(c.port.peer.place())
		all = append(all, FaultState{Port: c.port.ref(), Fault: c.fault, Dropped: out.Dropped + in.Dropped,
			Corrupted: out.Corrupted + in.Corrupted})
	}
	return all
}

// cabled is a port with a cable.
func (f *Fabric) cabled(r topo.PortRef) (*portState, error) {
	if f.closed.Load() {
		return nil, ErrClosed
	}
	if r.Node >= 0 && r.Node < len(f.nodes) {
		if p := f.port(r); p != nil && p.peer != nil {
			return p, nil
		}
	}
	return nil, fmt.Errorf("live: no cable at %s: see the topology for the ports in use: %w", f.graph.PortName(r),
		ErrFault)
}

// reroute makes every way be walked anew, and does so at once: whoever sets a fault or begins a capture wants it to
// hold for all that is sent from now on.
func (f *Fabric) reroute() {
	f.changed()
	for _, p := range f.procs {
		p.walkAgain()
	}
}

// isSwitched reports whether packets that pass the port have to pass one by one.
func (p *portState) isSwitched() bool { return p.cable != nil && p.cable.on || len(p.taps) > 0 }

// passesSwitched reports whether the route leads through the switches packet by packet.
func (rt *route) passesSwitched() bool {
	for _, h := range rt.hops {
		if h.p.isSwitched() || h.p.peer != nil && h.p.peer.isSwitched() {
			return true
		}
	}
	return false
}
