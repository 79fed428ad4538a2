package live

import (
	"errors"
	"fmt"
	"math"
	"time"

	"softib/node/link"
	"softib/proto/ib"
	"softib/proto/topo"
)

// ErrFault is matched when a fault or a capture cannot be as asked.
var ErrFault = errors.New("no such fault")

// Fault is what a cable does beyond carrying packets, in both directions. Packets of programs
// have all of it; management packets, which are carried at once, are lost and corrupted but take no time.
type Fault struct {
	// BER is the probability of each bit to be flipped. A packet with a flipped bit fails its CRC and is discarded
	// where it comes in, and counts as an error there.
	BER float64
	// Drop is the probability of each packet to vanish.
	Drop float64
	// Rate is how many bits go over the cable in a second, headers and CRCs included; 0 is as many as this machine can.
	Rate int64
	// Delay is how long a packet is on its way, besides. As on any long cable, no more can be on the way than the
	// buffer at its end holds.
	Delay time.Duration
}

// FaultState is a fault that is set, and what it has done so far.
type FaultState struct {
	Port topo.PortRef // where it was set
	Fault
	Dropped, Corrupted uint64
}

// cable is a cable that has, or had, a fault. Both of its ends have it.
type cable struct {
	FaultState
	on   bool
	bits float64 // until the next bit error
}

// check says what is wrong with a fault.
func (f Fault) check() error {
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
	if err := fault.check(); err != nil {
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
	c.FaultState = FaultState{Port: r, Fault: fault, Dropped: c.Dropped, Corrupted: c.Corrupted}
	c.bits = f.plane.errorDistance(fault.BER)
	f.reroute()
	return nil
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
	*c = cable{bits: math.Inf(1)}
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
		all = append(all, c.FaultState)
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

// errorDistance draws how many bits pass before the next error.
func (s *plane) errorDistance(ber float64) float64 {
	if ber <= 0 {
		return math.Inf(1)
	}
	return s.rng.ExpFloat64() / ber
}

// loses draws whether a packet vanishes on a cable.
func (s *plane) loses(c *cable) bool {
	if c.Drop <= 0 || s.rng.Float64() >= c.Drop {
		return false
	}
	c.Dropped++
	return true
}

// flips draws whether a packet has bits flipped on a cable, which its far end sees as symbol errors.
func (s *plane) flips(c *cable, bytes int, in *portState) bool {
	if c.bits -= float64(bytes) * 8; c.bits >= 0 {
		return false
	}
	for c.bits < 0 {
		c.bits += s.errorDistance(c.BER)
		in.link.SymbolError()
	}
	c.Corrupted++
	return true
}

// rateTime is how long so many bytes take on the cable beyond no time at all.
func (c *cable) rateTime(bytes int) ib.Time {
	if c == nil || c.Rate == 0 {
		return 0
	}
	return ib.Time(float64(bytes) * 8 / float64(c.Rate) * float64(ib.Second))
}

// delay is the cable's.
func (c *cable) delay() ib.Time {
	if c == nil {
		return 0
	}
	return ib.Time(c.Delay) * ib.Nanosecond
}

// harmsMgmt does to a management packet what the cable between two ports does, and reports whether it is gone.
func (f *Fabric) harmsMgmt(out, in *portState) bool {
	c := out.cable
	if c == nil || !c.on {
		return false
	}
	if f.plane.loses(c) {
		return true
	}
	if f.plane.flips(c, mgmtWords*4+2, in) {
		in.link.Count(link.Physical)
		return true
	}
	return false
}
