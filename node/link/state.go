package link

import (
	"errors"
	"fmt"

	"softib/proto/ib"
)

// ErrState is matched by every refused state command.
var ErrState = errors.New("port state")

// StateError says which command a port refused.
type StateError struct {
	Field     string
	Got, From fmt.Stringer
}

func (e *StateError) Error() string {
	return fmt.Sprintf("link: %s: cannot go to %v from %v", e.Field, e.Got, e.From)
}

// Unwrap makes errors.Is(err, ErrState) true.
func (e *StateError) Unwrap() error { return ErrState }

// physMoves are the moves of the link training state machine (IBA volume 2,
// 5.6.4), and stateMoves those of the logical one (IBA 7.2.7), as masks of
// the states that may follow.
var (
	physMoves = [ib.NumPhysState]uint16{
		ib.PhysSleep:         1<<ib.PhysPolling | 1<<ib.PhysDisabled,
		ib.PhysPolling:       1<<ib.PhysTraining | 1<<ib.PhysSleep | 1<<ib.PhysDisabled,
		ib.PhysDisabled:      1<<ib.PhysPolling | 1<<ib.PhysSleep,
		ib.PhysTraining:      1<<ib.PhysLinkUp | 1<<ib.PhysPolling | 1<<ib.PhysSleep | 1<<ib.PhysDisabled,
		ib.PhysLinkUp:        1<<ib.PhysErrorRecovery | 1<<ib.PhysPolling | 1<<ib.PhysSleep | 1<<ib.PhysDisabled,
		ib.PhysErrorRecovery: 1<<ib.PhysLinkUp | 1<<ib.PhysPolling | 1<<ib.PhysSleep | 1<<ib.PhysDisabled,
	}
	stateMoves = [ib.NumPortState]uint16{
		ib.PortDown:   1 << ib.PortInit,
		ib.PortInit:   1<<ib.PortArmed | 1<<ib.PortDown,
		ib.PortArmed:  1<<ib.PortActive | 1<<ib.PortDown | 1<<ib.PortInit,
		ib.PortActive: 1<<ib.PortDown | 1<<ib.PortInit | 1<<ib.PortArmed,
	}
)

// transition is the one place where the states change. A move that the standard
// does not have is a bug of the caller within this package.
func (p *Port) transition(phys ib.PhysState, state ib.PortState) {
	if phys != p.cold.phys && physMoves[p.cold.phys]>>phys&1 == 0 {
		panic(fmt.Sprintf("link: physical state %v after %v", phys, p.cold.phys))
	}
	if state != p.state && stateMoves[p.state]>>state&1 == 0 {
		panic(fmt.Sprintf("link: port state %v after %v", state, p.state))
	}
	// The link is logically up only while it is physically.
	if state > ib.PortDown && phys != ib.PhysLinkUp && phys != ib.PhysErrorRecovery {
		panic(fmt.Sprintf("link: port state %v while %v", state, phys))
	}
	p.cold.phys, p.state = phys, state
}

// Train moves a polling port, whose cable has a live far end, into training. It
// reports false from any other state.
func (p *Port) Train() bool {
	if p.cold.phys != ib.PhysPolling {
		return false
	}
	p.transition(ib.PhysTraining, ib.PortDown)
	return true
}

// LinkUp ends training: the port is in Initialize, flow control starts from zero
// and a credit limit is due on each lane.
func (p *Port) LinkUp(now ib.Time) {
	if p.cold.phys != ib.PhysTraining {
		return
	}
	p.transition(ib.PhysLinkUp, ib.PortInit)
	p.resetFlow(now)
}

func (p *Port) resetFlow(now ib.Time) {
	for vl := range ib.NumVL {
		tx, rx := p.tx(vl), p.rx(vl)
		tx.fctbs, tx.fccl = 0, 0
		rx.abr, rx.adv = 0, 0
	}
	p.fcNeed = p.oper &^ (1 << ib.VLMgmt)
	if p.flow != Credits {
		p.fcNeed = p.cold.eth.restart()
	}
	p.busyUntil, p.burstAt = now, -1
	p.cold.refreshAt = now + p.RefreshInterval()
}

// Down takes the link down, for whatever reason: what is queued is flushed to
// PollDropped, what is in the buffers stays with the node until it releases it. The
// port polls again at once. LinkDowned counts only a link that was up (IBA
// 16.1.3.5).
func (p *Port) Down(now ib.Time) { p.downTo(now, ib.PhysPolling) }

func (p *Port) downTo(now ib.Time, phys ib.PhysState) {
	if p.cold.phys == ib.PhysLinkUp || p.cold.phys == ib.PhysErrorRecovery {
		p.cold.count[ib.LinkDownedCounter]++
	}
	if p.cold.phys != phys {
		p.transition(phys, ib.PortDown)
	}
	p.fcNeed = 0
	p.stopWait(now)
	for vl := range ib.NumVL {
		for f := p.popHead(now, vl); f != nil; f = p.popHead(now, vl) {
			p.drop(f, LinkDown)
		}
	}
	p.noteLacking(now, 0)
	p.cold.stalled = 0
	p.busyUntil = now
}

// Recover lets a link that is up lose its signal for a moment and train again without going down: both ends call it.
// LinkErrorRecovery counts those that succeed (IBA 16.1.3.5).
func (p *Port) Recover() {
	if p.cold.phys == ib.PhysLinkUp {
		p.cold.count[ib.LinkErrorRecoveryCounter]++
	}
}

// Command is a management write of the port's logical state, checked as
// IBA 14.2.5.6 asks: Armed only from Initialize, Active only from Armed, Down from
// anywhere.
func (p *Port) Command(now ib.Time, to ib.PortState) error {
	switch {
	case to == ib.PortNoChange:
		return nil
	case to == ib.PortDown:
		p.Down(now)
		return nil
	case to == ib.PortArmed && (p.state == ib.PortInit || p.state == ib.PortArmed),
		to == ib.PortActive && (p.state == ib.PortArmed || p.state == ib.PortActive):
		p.transition(p.cold.phys, to)
		return nil
	}
	return &StateError{"PortState", to, p.state}
}

// CommandPhys is a management write of the physical state: Sleep, Polling or
// Disabled.
func (p *Port) CommandPhys(now ib.Time, to ib.PhysState) error {
	switch to {
	case ib.PhysNoChange:
		return nil
	case ib.PhysSleep, ib.PhysPolling, ib.PhysDisabled:
		p.downTo(now, to)
		return nil
	}
	return &StateError{"PortPhysicalState", to, p.cold.phys}
}

// SetNeighborMTU is a management write of what may be sent.
func (p *Port) SetNeighborMTU(m ib.MTU) error {
	if !m.IsValid() || m > p.cold.cfg.MTUCap {
		return &StateError{"NeighborMTU", m, p.cold.cfg.MTUCap}
	}
	p.setNeighborMTU(m)
	return nil
}

// SetOperVLs is a management write of how many data lanes are in use. Lanes that
// come into use get their credits at once; packets queued on lanes that went
// out of use are flushed to PollDropped.
func (p *Port) SetOperVLs(now ib.Time, n uint8) error {
	if n == 0 || n > p.cold.cfg.VLCap || n > 15 {
		return &StateError{"OperationalVLs", vlCount(n), vlCount(p.cold.cfg.VLCap)}
	}
	was := p.oper
	p.setOperVLs(n)
	if p.state > ib.PortDown && p.flow == Credits {
		p.fcNeed |= p.oper &^ was &^ (1 << ib.VLMgmt)
		p.fcNeed &= p.oper
	}
	for vl := int(n); vl < int(ib.VLMgmt); vl++ {
		for f := p.popHead(now, vl); f != nil; f = p.popHead(now, vl) {
			p.drop(f, Inactive)
		}
	}
	return nil
}

type vlCount uint8

func (n vlCount) String() string { return fmt.Sprintf("%d VLs", uint8(n)) }
