package live

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"softib/driver/endpoint"
	"softib/proto/ib"
	"softib/proto/topo"
)

// Ways between processes of different machines. Where packets would pass no switch one by one on any machine, there is
// no need for daemons to carry them: the process that sends and the one that receives get a tunnel of their own, a
// line. The machines on its way agree to it, each looks after its stretch of it and lifts the line when its tables have
// changed, and each counts at its ports what the sender's machine says has gone by.

// Lines makes lines. None of the methods but Lay waits.
type Lines interface {
	// Socket makes the socket of a process, says how other machines reach it, and how long its datagrams may be.
	Socket() (fd int, at netip.AddrPort, mtu int, err error)
	// Lay has the machines on the way of a line agree to it, and says where its far end is. The fabric's lock is not
	// held; in the others it may be.
	Lay(*Line) (LineEnd, error)
	// Lift says that one end here is no more, and Sent what has gone by a line that begins here.
	Lift(*Line)
	Sent(l *Line, pkts, words uint64)
	// Changed says that tables or states have.
	Changed()
}

// LineEnd is one end of a line, as the other has to know it.
type LineEnd struct {
	Addr  netip.AddrPort
	Index uint32
	MTU   int
}

// LineKey is what a line carries: packets of a block of queue pairs of a host's port, by a way.
type LineKey struct {
	From  topo.PortRef
	Block uint16
	Way   endpoint.Key
}

// LineSecret is as long as one of a tunnel's.
type LineSecret [32]byte

// Line is one end of a line.
type Line struct {
	ID uint32
	LineKey
	Sends bool
	// Cable and VL are how one that begins here leaves.
	Cable int
	VL    ib.VL
	// Near and Far are the ends, Secret and Back what datagrams to the far one and from there are sealed by.
	Near, Far    LineEnd
	Secret, Back LineSecret
	// Of one that ends here: the port, and whose the packets are.
	Port   ib.PortNum
	Origin endpoint.OriginPort

	p    *Process
	told bool
}

// ErrNoLine is matched where there is no line to be had.
var ErrNoLine = errors.New("no line")

const (
	// lineAgain is when a line that was not to be had is asked for again, at first; lineAgainMax at last, and where
	// nothing has passed by one.
	lineAgain    = time.Second
	lineAgainMax = time.Minute
)

// lineSocket is a process's socket for lines, until it has it.
type lineSocket struct {
	fd   int // -1 once the process has it
	at   netip.AddrPort
	mtu  int
	made bool
}

// openLines makes sure of the process's socket. The fabric's lock is held.
func (p *Process) openLines() (end LineEnd, err error) {
	s := &p.socket
	if !s.made {
		if s.fd, s.at, s.mtu, err = p.f.cfg.Outside.Lines.Socket(); err != nil {
			return end, err
		}
		s.made = true
	}
	var b [4]byte
	_, _ = rand.Read(b[:]) // which never fails
	return LineEnd{s.at, binary.BigEndian.Uint32(b[:]) | 1, s.mtu}, nil
}

// TakeSocket is the process's socket for lines, for it to have; -1 if it has it. The caller closes it.
func (p *Process) TakeSocket() int {
	p.f.mu.Lock()
	defer p.f.mu.Unlock()
	fd := -1
	if p.socket.made {
		fd, p.socket.fd = p.socket.fd, -1
	}
	return fd
}

// isWatched reports whether packets that pass the port have to pass one by one for what is done to them there.
func (p *portState) isWatched() bool { return p.fault != nil || len(p.taps) > 0 }

// isPlain reports whether nothing happens to packets on a route but that they are counted.
func (rt *route) isPlain() bool {
	return !rt.routed && len(rt.losses) == 0 && !slices.ContainsFunc(rt.hops, func(h hop) bool {
		return h.p.isWatched() || h.p.peer != nil && h.p.peer.isWatched()
	})
}

// leavesBy is where a way leaves for another machine, if a line could take its place.
func (p *Process) leavesBy(rt *route) (hop, bool) {
	if p.f.cfg.Outside.Lines == nil || p.isLocal() || rt.key.DLID.IsMulticast() || len(rt.left) != 1 || !rt.isPlain() {
		return hop{}, false
	}
	return rt.left[0], true
}

// layLine asks for a line in place of a way that leaves by a port. The fabric's lock is held, but not while others are
// asked.
func (p *Process) layLine(pr *procRoute, out hop) {
	f := p.f
	if old := p.lines[pr.key]; old != nil {
		p.endLine(old)
	}
	near, err := p.openLines()
	if err == nil {
		f.channels++
		l := &Line{ID: f.channels, Sends: true, Cable: out.p.outside.cable, VL: out.vl, Near: near, p: p,
			LineKey: LineKey{topo.PortRef{Node: p.host.topo.Index, Port: pr.key.Port}, p.block, pr.key}}
		_, _ = rand.Read(l.Secret[:])
		_, _ = rand.Read(l.Back[:])
		f.mu.Unlock()
		l.Far, err = f.cfg.Outside.Lines.Lay(l)
		f.mu.Lock()
		switch {
		case err != nil:
		case p.ended || f.closed.Load():
			f.cfg.Outside.Lines.Lift(l)
			return
		default:
			p.lines[pr.key] = l
			pr.again = 0
			return
		}
	}
	pr.again = min(max(lineAgain, 2*pr.again), lineAgainMax)
	pr.askAt = time.Now().Add(pr.again)
}

// endLine is the end of a line of the process's; its own end is told. The fabric's lock is held.
func (p *Process) endLine(l *Line) {
	if l.Sends {
		if p.lines[l.Way] != l {
			return
		}
		delete(p.lines, l.Way)
		if pr := p.routes[l.Way]; pr != nil && pr.line == l {
			pr.renew()
			pr.line = nil
		}
	} else {
		if !slices.Contains(p.linesIn, l) {
			return
		}
		p.linesIn = without(p.linesIn, l)
	}
	p.f.cfg.Outside.Lines.Lift(l)
	if l.told {
		p.tell(Note{GoneLine: l})
	}
}

// endLines is for a process that ends. The fabric's lock is held.
func (p *Process) endLines() {
	for _, l := range p.lines {
		p.f.cfg.Outside.Lines.Lift(l)
	}
	for _, l := range p.linesIn {
		p.f.cfg.Outside.Lines.Lift(l)
	}
	p.lines, p.linesIn = nil, nil
	if p.socket.made && p.socket.fd >= 0 {
		unix.Close(p.socket.fd)
		p.socket.fd = -1
	}
}

// LineGone is for a line that another machine has lifted.
func (f *Fabric) LineGone(l *Line) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !l.p.ended {
		l.p.endLine(l)
	}
}

// LineDead is for what a process says of a line of its own: that nothing passes by it.
func (p *Process) LineDead(id uint32) {
	p.f.mu.Lock()
	defer p.f.mu.Unlock()
	for _, l := range p.lines {
		if l.ID == id {
			if pr := p.routes[l.Way]; pr != nil {
				pr.again = lineAgainMax
				pr.askAt = time.Now().Add(pr.again)
			}
			p.endLine(l)
			return
		}
	}
}

// Stretch is the part of a line that another machine's process has asked for which runs through this machine.
type Stretch struct {
	f   *Fabric
	in  *portState
	vl  ib.VL
	key endpoint.Key
	rt  *route
	to  *Process // that it ends at; nil if it leaves again
	at  *portState
}

// NewStretch walks on with a way that comes in by a cable on a lane. The error says why no line can take its place.
func (f *Fabric) NewStretch(in topo.PortRef, vl ib.VL, k endpoint.Key) (*Stretch, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p, err := f.fromOutside(in)
	if err != nil {
		return nil, err
	}
	s := &Stretch{f: f, in: p, vl: vl, key: k}
	return s, s.walk()
}

// walk goes the way. The fabric's lock is held.
func (s *Stretch) walk() error {
	if !s.key.DLID.IsUnicast() {
		return notUnicast(s.key.DLID)
	}
	w := s.f.newWalker(s.key)
	w.enter(s.in, s.vl)
	s.rt = w.route
	s.rt.left = w.left
	switch {
	case !s.rt.isPlain():
		return fmt.Errorf("live: packets to LID %v pass one by one: %w", s.key.DLID, ErrNoLine)
	case len(w.left) == 1 && len(w.found) == 0:
		return nil
	case len(w.found) != 1 || len(w.left) != 0:
		return fmt.Errorf("live: nobody has LID %v: %w", s.key.DLID, ErrNoLine)
	}
	s.at = w.found[0].p
	for _, to := range s.at.host.procs {
		if to.block == s.key.Block && !to.isLocal() && !to.refuses(s.at.num, s.key.PKey) &&
			slices.ContainsFunc(s.at.host.eng.Port(s.at.num).PKeys, s.key.PKey.Matches) {
			s.to = to
			return nil
		}
	}
	return fmt.Errorf("live: no program of %s takes that: %w", s.at.host.Name(), ErrNoLine)
}

// Leaves is where the line goes on at another machine; false if it ends here.
func (s *Stretch) Leaves() (in topo.PortRef, vl ib.VL, ok bool) {
	s.f.mu.Lock()
	defer s.f.mu.Unlock()
	if len(s.rt.left) == 0 {
		return in, 0, false
	}
	return s.f.graph.Peer(s.rt.left[0].p.ref()), s.rt.left[0].vl, true
}

// Holds reports whether the way is still the same.
func (s *Stretch) Holds() bool {
	s.f.mu.Lock()
	defer s.f.mu.Unlock()
	if s.rt.epoch == s.f.epoch.Load() {
		return true
	}
	now := &Stretch{f: s.f, in: s.in, vl: s.vl, key: s.key}
	if now.walk() != nil || now.to != s.to || now.at != s.at || s.to != nil && s.to.ended ||
		!slices.Equal(now.rt.left, s.rt.left) {
		return false
	}
	s.rt = now.rt
	return true
}

// Count adds what has gone by to the ports on the way.
func (s *Stretch) Count(pkts, words uint64) {
	s.f.mu.Lock()
	defer s.f.mu.Unlock()
	s.rt.count(pkts, words)
}

// Receive makes the end of a line that ends here: what comes by it is of an origin.
func (s *Stretch) Receive(l *Line) error {
	s.f.mu.Lock()
	defer s.f.mu.Unlock()
	if s.to == nil || s.to.ended {
		return fmt.Errorf("live: who was to receive has ended: %w", ErrNoLine)
	}
	near, err := s.to.openLines()
	if err != nil {
		return err
	}
	s.f.channels++
	l.ID, l.Port, l.p = s.f.channels, s.at.num, s.to
	l.Near = near
	s.to.linesIn = append(s.to.linesIn, l)
	l.told = true
	s.to.tell(Note{Line: l})
	return nil
}

// SettleLines counts what has gone by lines, and has ways asked for again that had none.
func (f *Fabric) SettleLines() {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	for _, p := range f.procs {
		for _, pr := range p.routes {
			switch {
			case pr.line != nil:
				pr.settle()
			case pr.again > 0 && now.After(pr.askAt):
				if pkts, _ := p.share.Slots.Sent(pr.slot); pkts != pr.pkts {
					pr.renew()
				}
			}
		}
	}
}
