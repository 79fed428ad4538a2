package tunnel

import (
	"encoding/binary"

	"softib/proto/ib"
)

// receiver is the stream that comes in: read up to read, whole up to whole.
type receiver struct {
	ring        ring
	read, whole uint64
	some        spans // beyond whole that have come
	told        uint64
	edge        [MessageMax]byte // where a message is put together that lies over the ring's edge; one does at a time

	have   spans  // numbers of datagrams that have come
	floor  uint64 // numbers below are not taken any more
	newest ib.Time

	unacked int     // datagrams that have come and are not acknowledged
	ackNow  bool    // one is due
	ackAt   ib.Time // will be due

	key, next, old *key // of the epoch, of the one after, and of the one before while dropOld has not come
	epoch          uint32
	dropOld        ib.Time
	nonce          [12]byte
	ack            ack
}

// Bounds of what is kept of a peer's datagrams. One that would need more is refused, as if it had been lost.
const (
	haveMax = 256  // spans of numbers
	someMax = 4096 // spans of the stream
)

// An acknowledgement is sent for so many datagrams, or after so long, or at once if one of them wants that or a number
// is missing.
const (
	ackEvery = 16
	ackDelay = 2 * ib.Millisecond
)

// any reports whether anything has come yet.
func (in *receiver) any() bool { return len(in.have) > 0 }

// fresh reports whether a number has not come yet.
func (in *receiver) fresh(number uint64) bool {
	return number >= in.floor && !in.have.has(number) || plantReplay
}

// HandleDatagram takes a datagram that has come, and overwrites it. An error says why it was refused; nothing but the
// counters has changed then, except after ErrMalformed.
func (s *Session) HandleDatagram(now ib.Time, data []byte) error {
	in := &s.in
	index, ok := Index(data)
	switch {
	case s.dead:
		return ErrDead
	case !ok:
		s.stats.Truncated++
		return ErrTruncated
	case index != s.cfg.RecvIndex:
		s.stats.Index++
		return ErrIndex
	}
	epoch := binary.BigEndian.Uint32(data[offEpoch:])
	number := binary.BigEndian.Uint64(data[offNumber:])
	k := in.key
	switch {
	case epoch == in.epoch:
	case epoch == in.epoch+1:
		k = in.next
	case epoch > in.epoch:
		s.stats.Epoch++
		return ErrEpoch
	case epoch+1 == in.epoch && in.old != nil && now < in.dropOld:
		k = in.old
	default:
		s.stats.OldKey++
		return ErrOldKey
	}
	if !in.fresh(number) {
		s.stats.Replayed++
		return ErrReplayed
	}
	k.nonce(&in.nonce, number)
	plain, err := k.aead.Open(data[headerBytes:headerBytes], in.nonce[:], data[headerBytes:], data[:headerBytes])
	if err != nil && !plantForged {
		s.stats.Forged++
		return ErrForged
	} else if plantForged {
		plain = data[headerBytes : len(data)-sealBytes]
	}
	size := uint64(len(data))
	if epoch == in.epoch+1 {
		in.old, in.key, in.next = in.key, in.next, in.next.next()
		in.epoch = epoch
		in.dropOld = now + 3*s.rec.timeout()
	}
	return s.take(now, number, plain, size)
}

// take takes what was in a datagram whose seal holds.
func (s *Session) take(now ib.Time, number uint64, plain []byte, size uint64) error {
	in := &s.in
	flags := plain[0]
	low := uint64(binary.BigEndian.Uint32(plain[1:]))
	b := plain[fixedBytes:]
	ok := flags&^flagsAll == 0 && low <= number
	if ok && flags&flagAck != 0 {
		if b, ok = in.ack.parse(b); ok {
			ok = in.ack.spans[0].to <= s.out.number
		}
	}
	var at uint64
	if ok && flags&flagData != 0 {
		if ok = len(b) > offsetBytes && flags&(flagElicit|flagPad) == flagElicit; ok {
			at = binary.BigEndian.Uint64(b)
			b = b[offsetBytes:]
			end := at + uint64(len(b))
			ok = end >= at && end <= in.told
		}
	} else if ok {
		ok = len(b) == 0 || flags&flagPad != 0
	}
	if !ok {
		s.breaks()
		return ErrMalformed
	}
	if flags&flagData != 0 && !in.store(at, b) {
		s.stats.NoRoom++
		return nil // it is not acknowledged, and comes again
	}
	s.stats.Received++
	s.stats.ReceivedBytes += size
	in.note(now, number, low, flags)
	news := flags&flagAck != 0 && s.acknowledged(now)
	if s.waiting = ib.Never; s.rec.underWay > 0 {
		s.waiting = now // for the rest
	}
	if s.out.acked == s.out.sent {
		s.stuck = ib.Never
	} else if news {
		s.stuck = now
	}
	return nil
}

// note remembers a datagram's number, and when it has to be acknowledged.
func (in *receiver) note(now ib.Time, number, low uint64, flags byte) {
	inOrder := true
	if n := len(in.have); n > 0 {
		inOrder = number == in.have[n-1].to
	}
	if n := len(in.have); n == 0 || number >= in.have[n-1].to {
		in.newest = now
	}
	if n := len(in.have); plantGap && n > 0 && number == in.have[n-1].to+1 {
		in.have.add(span{number - 1, number})
	}
	in.have.add(span{number, number + 1})
	in.floor = max(in.floor, number-low)
	if len(in.have) > haveMax {
		in.floor = max(in.floor, in.have[1].from)
	}
	in.have.dropBelow(in.floor)
	if flags&flagElicit == 0 {
		return
	}
	if in.unacked++; in.unacked >= ackEvery || !inOrder || flags&flagAtOnce != 0 {
		in.ackNow = true
	}
	in.ackAt = ib.Earlier(in.ackAt, now+ackDelay)
}

// store puts a piece of the stream where it belongs. It is false if there are too many holes to remember.
func (in *receiver) store(at uint64, b []byte) bool {
	a := span{at, at + uint64(len(b))}
	if a.from < in.whole {
		b = b[min(uint64(len(b)), in.whole-a.from):]
		a.from = in.whole
	}
	if a.from >= a.to {
		return true
	}
	if a.from > in.whole && len(in.some) >= someMax && !in.some.holds(a) {
		return false
	}
	used := in.whole
	if n := len(in.some); n > 0 {
		used = in.some[n-1].to
	}
	in.ring.fit(in.read, used, a.to)
	in.ring.put(a.from, b)
	if plantHole || a.from == in.whole {
		in.whole = a.to
	} else {
		in.some.add(a)
	}
	for len(in.some) > 0 && in.some[0].from <= in.whole {
		in.whole = max(in.whole, in.some[0].to)
		in.some.dropBelow(in.whole)
	}
	return true
}
