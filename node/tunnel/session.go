package tunnel

import (
	"encoding/binary"
	"errors"
	"fmt"

	"softib/proto/ib"
)

// MessageMax is the longest message in bytes.
const MessageMax = 8 << 10

// Bounds and defaults of a Config.
const (
	MTUMin = 256
	MTUMax = 65507 // what IPv4 and UDP leave of 64 KiB

	windowFirst    = 64 << 10 // what may be sent before the peer has said its window
	windowDefault  = 1 << 20
	queueDefault   = 1 << 20
	rekeyBytes     = 1 << 32
	rekeyDatagrams = 1 << 24
	keepAlive      = 500 * ib.Millisecond
	deadAfter      = 2 * ib.Second
)

// What can be wrong with a Config or a message.
var (
	ErrConfig = errors.New("tunnel: setting refused")
	ErrFull   = errors.New("tunnel: as much is queued as may be")
	ErrLong   = fmt.Errorf("tunnel: a message is longer than %d bytes", MessageMax)
	ErrDead   = errors.New("tunnel: the session is dead")
)

// Why a datagram was refused.
var (
	ErrTruncated = errors.New("tunnel: datagram refused: too short")
	ErrIndex     = errors.New("tunnel: datagram refused: index of another session")
	ErrOldKey    = errors.New("tunnel: datagram refused: of a key that is out of use")
	ErrEpoch     = errors.New("tunnel: datagram refused: of a key that is not yet in use")
	ErrReplayed  = errors.New("tunnel: datagram refused: its number has come before, or is too old to tell")
	ErrForged    = errors.New("tunnel: datagram refused: the seal does not hold")
	// ErrMalformed is a datagram with the right seal and the wrong content, so of a peer that is not as it should be.
	// The session is dead then.
	ErrMalformed = errors.New("tunnel: datagram refused: the peer broke the protocol")
)

// Config is what a session is made with. Zero stands for a default where one is named.
type Config struct {
	// SendSecret and RecvSecret are the peer's RecvSecret and SendSecret.
	SendSecret, RecvSecret [SecretBytes]byte
	// SendIndex and RecvIndex stand in front of datagrams to the peer and from it.
	SendIndex, RecvIndex uint32
	MTU                  int // the longest datagram, from MTUMin to MTUMax
	// Window is how many bytes of messages that nobody has polled yet are kept, and Queue how many that the peer has
	// not acknowledged: 1 MiB each, which is 10 GB/s at a round trip of 100 us and
	// fits a processor's cache.
	Window, Queue int
	// KeepAlive is after how long a silent session says something, 500 ms; Never if it does not. DeadAfter is how long
	// a peer may leave that, or anything else, unanswered, 2 s; it may get nothing of the stream for twice as long.
	KeepAlive, DeadAfter ib.Time
	// RekeyBytes and RekeyDatagrams are what one key seals, 2^32 and 2^24.
	RekeyBytes, RekeyDatagrams uint64
}

// Stats is what a session has counted.
type Stats struct {
	Messages, MessageBytes                    uint64 // that were sent
	Delivered, DeliveredBytes                 uint64 // that were polled
	Datagrams, DatagramBytes                  uint64 // that were sent
	Received, ReceivedBytes                   uint64 // datagrams that were taken
	Lost, Probes, Rekeys                      uint64 // of datagrams that were sent
	Truncated, Index, OldKey, Epoch, Replayed uint64 // datagrams that were refused
	Forged, Malformed, NoRoom                 uint64
	RTT                                       ib.Time // smoothed; 0 before the first measurement
	Congestion, UnderWay                      int     // bytes that may be, and that are under way
}

// Session is one end of a tunnel.
type Session struct {
	cfg   Config
	stats Stats
	out   sender
	in    receiver
	rec   recovery
	dead  bool // for good
	// waiting is since when the peer owes a sign of life; Never if it does not.
	waiting ib.Time
	// stuck is since when something of the stream is under way and no more of it has arrived; Never if all has. One
	// that is heard and does not get what it is sent, since only short datagrams pass, has twice the time.
	stuck ib.Time
}

// New makes a session at a time.
func New(now ib.Time, c Config) (*Session, error) {
	def := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	def(&c.Window, windowDefault)
	def(&c.Queue, queueDefault)
	if c.KeepAlive == 0 {
		c.KeepAlive = keepAlive
	}
	if c.DeadAfter == 0 {
		c.DeadAfter = deadAfter
	}
	if c.RekeyBytes == 0 {
		c.RekeyBytes = rekeyBytes
	}
	if c.RekeyDatagrams == 0 {
		c.RekeyDatagrams = rekeyDatagrams
	}
	switch {
	case c.MTU < MTUMin || c.MTU > MTUMax:
		return nil, fmt.Errorf("%w: MTU is %d, and not %d to %d", ErrConfig, c.MTU, MTUMin, MTUMax)
	case c.Window < windowFirst:
		return nil, fmt.Errorf("%w: Window is %d, and not %d or more", ErrConfig, c.Window, windowFirst)
	case c.Queue < messageBytes+MessageMax:
		return nil, fmt.Errorf("%w: Queue is %d, and not %d or more", ErrConfig, c.Queue, messageBytes+MessageMax)
	case c.KeepAlive < 0 || c.DeadAfter < 0:
		return nil, fmt.Errorf("%w: KeepAlive is %v and DeadAfter %v", ErrConfig, c.KeepAlive, c.DeadAfter)
	case c.SendSecret == c.RecvSecret:
		// Numbers begin anew in each direction: one key for both would seal two datagrams with one nonce.
		return nil, fmt.Errorf("%w: one secret for both directions", ErrConfig)
	}
	s := &Session{cfg: c, waiting: ib.Never, stuck: ib.Never}
	s.out.key = newKey(c.SendSecret)
	s.out.limit = windowFirst
	s.out.spoke, s.out.ping = now, true // the first datagram asks whether the peer is there
	s.in.key = newKey(c.RecvSecret)
	s.in.next = s.in.key.next()
	s.in.told = windowFirst
	s.in.dropOld, s.in.ackAt = ib.Never, ib.Never
	s.rec.init(c.MTU)
	s.cfg.SendSecret, s.cfg.RecvSecret = [SecretBytes]byte{}, [SecretBytes]byte{}
	return s, nil
}

// Room reports whether a message of any length can be sent.
func (s *Session) Room() bool {
	return int(s.out.end-s.out.acked)+messageBytes+MessageMax <= s.cfg.Queue
}

// Queued is how many bytes of messages, with their headers, the peer has not acknowledged.
func (s *Session) Queued() int { return int(s.out.end - s.out.acked) }

// Send queues a message, which is copied.
func (s *Session) Send(now ib.Time, stream uint32, message []byte) error {
	o := &s.out
	need := uint64(messageBytes + len(message))
	switch {
	case s.dead:
		return ErrDead
	case len(message) > MessageMax:
		return ErrLong
	case o.end-o.acked+need > uint64(s.cfg.Queue):
		return ErrFull
	}
	o.ring.fit(o.acked, o.end, o.end+need)
	var h [messageBytes]byte
	binary.BigEndian.PutUint32(h[:], stream)
	binary.BigEndian.PutUint16(h[4:], uint16(len(message)))
	o.ring.put(o.end, h[:])
	o.ring.put(o.end+messageBytes, message)
	o.end += need
	s.stats.Messages++
	s.stats.MessageBytes += uint64(len(message))
	return nil
}

// PollMessage is the next message that has come whole. It is the session's, and good until the next HandleDatagram.
func (s *Session) PollMessage() (stream uint32, message []byte, ok bool) {
	in := &s.in
	have := in.whole - in.read
	if have < messageBytes || s.dead {
		return 0, nil, false
	}
	var h [messageBytes]byte
	in.ring.get(h[:], in.read)
	n := uint64(binary.BigEndian.Uint16(h[4:]))
	if n > MessageMax {
		s.breaks()
		return 0, nil, false
	}
	if have < messageBytes+n {
		return 0, nil, false
	}
	at := in.read + messageBytes
	if message = in.ring.piece(span{at, at + n}); uint64(len(message)) < n {
		message = in.edge[:n]
		in.ring.get(message, at)
	}
	in.read = at + n
	s.stats.Delivered++
	s.stats.DeliveredBytes += n
	return binary.BigEndian.Uint32(h[:]), message, true
}

// breaks gives the session up, because of what the peer has sent.
func (s *Session) breaks() {
	s.dead = true
	s.stats.Malformed++
}

// Dead reports whether the peer has left something unanswered for too long, or has broken the protocol. Once
// HandleTimer has seen it, it is for good. A driver that was held up itself hands in what has come before it asks.
func (s *Session) Dead(now ib.Time) bool { return s.dead || now >= s.deadline() }

// deadline is when the session is dead if nothing is heard, or arrives.
func (s *Session) deadline() ib.Time {
	return ib.Earlier(after(s.waiting, s.cfg.DeadAfter), after(after(s.stuck, s.cfg.DeadAfter), s.cfg.DeadAfter))
}

// after is a time after another, which may be Never as both may.
func after(t, d ib.Time) ib.Time {
	if t > ib.Never-d {
		return ib.Never
	}
	return t + d
}

// Answered reports whether the peer has acknowledged anything yet, so that datagrams pass both ways.
func (s *Session) Answered() bool { return s.rec.largest > 0 }

// Stats is what has been counted so far.
func (s *Session) Stats() Stats {
	st := s.stats
	st.RTT, st.Congestion, st.UnderWay = s.rec.rtt, s.rec.window, s.rec.underWay
	return st
}

// NextDeadline is when HandleTimer wants to be called.
func (s *Session) NextDeadline() ib.Time {
	if s.dead {
		return ib.Never
	}
	t := ib.Earlier(s.rec.deadline(), s.deadline())
	t = ib.Earlier(t, ib.Earlier(s.in.ackAt, s.in.dropOld))
	if !s.out.ping {
		t = ib.Earlier(t, after(s.out.spoke, s.cfg.KeepAlive))
	}
	return t
}

// HandleTimer does what is due.
func (s *Session) HandleTimer(now ib.Time) {
	if s.dead = s.Dead(now); s.dead {
		return
	}
	if now >= s.in.ackAt {
		s.in.ackNow = true
		s.in.ackAt = ib.Never
	}
	if now >= s.in.dropOld {
		s.in.old, s.in.dropOld = nil, ib.Never
	}
	if now >= after(s.out.spoke, s.cfg.KeepAlive) {
		s.out.ping = true
	}
	s.handleRecovery(now)
}
