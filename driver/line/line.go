package line

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"softib/internal/mmsg"
	"softib/node/tunnel"
	"softib/proto/ib"
	"softib/proto/wire"
)

// Config is what a line is made of.
type Config struct {
	// ID is its number, for who is told of it.
	ID uint32
	// Peer is where its datagrams go, and MTU how long they are at most.
	Peer netip.AddrPort
	MTU  int
	// SendSecret and RecvSecret are the peer's RecvSecret and SendSecret; SendIndex and RecvIndex stand in front of
	// datagrams to the peer and from it.
	SendSecret, RecvSecret [tunnel.SecretBytes]byte
	SendIndex, RecvIndex   uint32
	// Port is the adapter's that packets come to by it, and Admits says which may; nil is none.
	Port   ib.PortNum
	Admits func(*wire.Packet) bool
}

// ErrConfig is matched by errors of a Config.
var ErrConfig = errors.New("line: not a line")

const (
	// bundleBytes is room for the packets of the longest bundle, 16 KiB in packets of 256 bytes, with their headers.
	bundleBytes = 64 << 10
	// provenTime is how long a line may carry nothing at first: a firewall may let nothing pass.
	provenTime = 2 * ib.Second
	// lingerTime is how long one that has ended still delivers what it has been given.
	lingerTime = ib.Second
	// patience is how long a peer may stand still, or the network.
	patience = 10 * ib.Second
)

// Line is one way.
type Line struct {
	set    *Set
	cfg    Config
	s      *tunnel.Session
	out    *mmsg.Batch
	unsent bool    // it may have datagrams to send
	ready  bool    // it may have packets
	prove  ib.Time // when it has to have carried something; Never once it has, or nothing was sent
	until  ib.Time // when it goes, Never if it has not ended
	dead   bool    // that was reported
}

// Stats is what a set has counted.
type Stats struct {
	Packets, Refused uint64 // that came: those that the lines admit, and all others
	Malformed        uint64 // what is no packet
	Strays           uint64 // datagrams of no line, or forged, or replayed
}

// Set is all lines of a process.
type Set struct {
	fd     int
	cuts   bool
	report func(id uint32)
	lines  []*Line
	by     map[uint32]*Line // by the index of what comes
	ready  []*Line          // that may have packets
	unsent []*Line          // that may have datagrams to send
	in     mmsg.Inbox
	buf    []byte
	next   ib.Time // deadline, of those whose timers are known
	stats  Stats
}

// New is the set of a socket, which it takes over. Report is told of lines that nothing passes by; it must not wait.
func New(fd int, report func(id uint32)) *Set {
	return &Set{fd: fd, cuts: mmsg.Cuts(fd), report: report, by: map[uint32]*Line{}, next: ib.Never}
}

// FD is the socket.
func (s *Set) FD() int { return s.fd }

// Close closes the socket.
func (s *Set) Close() {
	unix.Close(s.fd)
	s.fd = -1
	s.lines, s.by, s.ready, s.unsent = nil, nil, nil, nil
}

// Stats is what was counted so far.
func (s *Set) Stats() Stats { return s.stats }

// Add adds a line.
func (s *Set) Add(now ib.Time, c Config) (*Line, error) {
	if s.by[c.RecvIndex] != nil || !c.Peer.IsValid() {
		return nil, fmt.Errorf("%w: index %d from %v", ErrConfig, c.RecvIndex, c.Peer)
	}
	l := &Line{set: s, cfg: c, prove: ib.Never, until: ib.Never}
	var err error
	if l.s, err = tunnel.New(now, tunnel.Config{SendSecret: c.SendSecret, RecvSecret: c.RecvSecret,
		SendIndex: c.SendIndex, RecvIndex: c.RecvIndex, MTU: c.MTU, Queue: queueBytes,
		KeepAlive: ib.Never, DeadAfter: patience}); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	if l.out, err = mmsg.NewBatch(c.Peer, c.MTU, s.cuts); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	l.cfg.SendSecret, l.cfg.RecvSecret = [tunnel.SecretBytes]byte{}, [tunnel.SecretBytes]byte{}
	s.lines, s.by[c.RecvIndex] = append(s.lines, l), l
	return l, nil
}

// End has a line go once what it was given is delivered, or will not be.
func (s *Set) End(now ib.Time, l *Line) {
	if l.until == ib.Never {
		l.until = now + lingerTime
		s.next = ib.Earlier(s.next, l.until)
	}
}

// drop forgets a line.
func (s *Set) drop(l *Line) {
	s.lines = slices.DeleteFunc(slices.Clone(s.lines), func(x *Line) bool { return x == l })
	delete(s.by, l.cfg.RecvIndex)
}

// Room reports whether a bundle of packets can be put.
func (l *Line) Room() bool { return l.s.Queued()+bundleBytes <= queueBytes }

// queueBytes is how much a line keeps that the peer has not acknowledged.
const queueBytes = 1 << 20

// Put takes a packet, of at most the largest MTU. It goes with the next Flush.
func (l *Line) Put(now ib.Time, p *wire.Packet) {
	set := l.set
	set.buf = p.AppendBare(set.buf[:0])
	if l.s.Send(now, 0, set.buf) != nil {
		return // dead, and reported
	}
	if set.stir(l); !l.s.Answered() && l.prove == ib.Never {
		l.prove = now + provenTime
		set.next = ib.Earlier(set.next, l.prove)
	}
}

// stir notes that a line may have something to send.
func (s *Set) stir(l *Line) {
	if !l.unsent {
		l.unsent = true
		s.unsent = append(s.unsent, l)
	}
}

// Flush sends what lines have to send.
func (s *Set) Flush(now ib.Time) {
	for _, l := range s.unsent {
		l.unsent = false
		s.send(now, l)
		s.next = ib.Earlier(s.next, l.s.NextDeadline())
	}
	clear(s.unsent)
	s.unsent = s.unsent[:0]
}

// send sends what one line has. What the socket does not take is lost, as on the way.
func (s *Set) send(now ib.Time, l *Line) {
	for l.out.Fill(func(buf []byte) (int, bool) { return l.s.PollDatagram(now, buf) }) {
		for l.out.Unsent() {
			if err := l.out.Send(s.fd); err != nil {
				l.out.Skip(err)
			}
		}
	}
}

// Receive takes in datagrams, and reports whether there were any.
func (s *Set) Receive(now ib.Time) bool {
	if s.in.Receive(s.fd) != nil {
		return false // nothing has come, or an error of something that was sent
	}
	for i := range s.in.Len() {
		data, each := s.in.At(i)
		for len(data) > 0 {
			n := min(each, len(data))
			s.handle(now, data[:n])
			data = data[n:]
		}
	}
	return true
}

func (s *Set) handle(now ib.Time, data []byte) {
	index, _ := tunnel.Index(data)
	l := s.by[index]
	if l == nil {
		s.stats.Strays++
		return
	}
	switch err := l.s.HandleDatagram(now, data); {
	case errors.Is(err, tunnel.ErrMalformed):
		s.tell(l)
		fallthrough
	case err != nil:
		s.stats.Strays++
		return
	}
	s.stir(l)
	if !l.ready {
		l.ready = true
		s.ready = append(s.ready, l)
	}
	s.next = ib.Earlier(s.next, l.s.NextDeadline())
}

// tell reports that nothing passes by a line, once.
func (s *Set) tell(l *Line) {
	if !l.dead {
		l.dead = true
		s.report(l.cfg.ID)
	}
}

// Next is the next packet that has come, and the port of the adapter that it came to. It is good until Receive.
func (s *Set) Next(p *wire.Packet) (ib.PortNum, bool) {
	for len(s.ready) > 0 {
		l := s.ready[0]
		for l.ready {
			_, message, ok := l.s.PollMessage()
			switch {
			case !ok:
				l.ready = false
				s.ready = s.ready[1:]
			case p.ParseBare(message) != nil:
				s.stats.Malformed++
			case l.cfg.Admits == nil || !l.cfg.Admits(p):
				s.stats.Refused++
			default:
				s.stats.Packets++
				return l.cfg.Port, true
			}
		}
	}
	return 0, false
}

// Ready reports whether Next may have something.
func (s *Set) Ready() bool { return len(s.ready) > 0 }

// Unheard reports whether a peer has not said yet that it got what it was sent.
func (s *Set) Unheard() bool {
	return slices.ContainsFunc(s.lines, func(l *Line) bool { return l.s.Queued() > 0 && l.until == ib.Never })
}

// NextDeadline is when HandleTimer wants to be called.
func (s *Set) NextDeadline() ib.Time { return s.next }

// HandleTimer does what is due. What it wants to send goes with the next Flush.
func (s *Set) HandleTimer(now ib.Time) {
	s.next = ib.Never
	for _, l := range s.lines {
		if l.prove != ib.Never && l.s.Answered() {
			l.prove = ib.Never
		}
		if now >= l.until || l.until != ib.Never && l.s.Queued() == 0 && l.cfg.Admits == nil {
			s.drop(l)
			continue
		}
		if now >= l.prove {
			l.prove = ib.Never
			s.tell(l)
		}
		if now >= l.s.NextDeadline() {
			l.s.HandleTimer(now)
			if s.stir(l); l.s.Dead(now) {
				s.tell(l)
			}
		}
		s.next = ib.Earlier(s.next, ib.Earlier(l.s.NextDeadline(), ib.Earlier(l.prove, l.until)))
	}
}
