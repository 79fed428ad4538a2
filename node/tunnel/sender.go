package tunnel

import (
	"encoding/binary"
	"math"

	"softib/proto/ib"
)

// sender is the stream that goes out: acknowledged up to acked, sent up to sent, written up to end.
type sender struct {
	ring             ring
	acked, sent, end uint64
	some             spans  // beyond acked that are acknowledged, too
	lost             spans  // that have to be sent again; acknowledged ones may be among them
	limit            uint64 // up to which the peer takes it

	number  uint64 // of the next datagram
	key     *key
	epoch   uint32
	keyFrom uint64 // the first number that the key sealed
	keyUsed uint64 // bytes that it sealed
	proven  bool   // the peer has acknowledged one of them

	ping  bool    // a datagram has to go whatever is in it, and be acknowledged
	spoke ib.Time // when the last one went that has to be
	nonce [12]byte
}

// pick takes the next piece of the stream to send, of some bytes at most: what was lost first. It may be empty.
func (o *sender) pick(most int) (a span) {
	for len(o.lost) > 0 {
		l := o.lost[0]
		a = o.some.gap(span{max(l.from, o.acked), max(l.to, o.acked)})
		a.to = min(a.to, a.from+uint64(most))
		if a.from < a.to {
			o.lost.dropBelow(a.to)
			return a
		}
		o.lost.dropBelow(l.to)
	}
	a = span{o.sent, min(o.end, o.limit, o.sent+uint64(most))}
	if a.from >= a.to {
		return span{}
	}
	o.sent = a.to
	return a
}

// hasData reports whether there is something of the stream to send.
func (o *sender) hasData() bool { return len(o.lost) > 0 || o.sent < min(o.end, o.limit) }

// acknowledge takes note that the peer has a piece, and reports whether that was not known.
func (o *sender) acknowledge(a span) bool {
	if a.to <= o.acked || o.some.holds(a) {
		return false
	}
	o.some.add(a)
	if o.some[0].from <= o.acked {
		o.acked = o.some[0].to
		o.some.dropBelow(o.acked)
		o.lost.dropBelow(o.acked)
	}
	return true
}

// PollDatagram writes the next datagram to send to a buffer, which has room for MTU bytes, and returns its length.
func (s *Session) PollDatagram(now ib.Time, buf []byte) (n int, ok bool) {
	o, in, r := &s.out, &s.in, &s.rec
	if s.dead {
		return 0, false
	}
	buf = buf[:s.cfg.MTU]
	mayData := o.hasData() && (r.underWay < r.window || r.probes > 0)
	if !mayData && o.hasData() {
		r.held = true
	}
	elicit := mayData || r.probes > 0 || o.ping
	if !elicit && !in.ackNow && !s.wantsWindow() {
		return 0, false
	}
	s.rekey()

	b := buf[:headerBytes+fixedBytes]
	flags := byte(0)
	most := len(buf) - sealBytes
	// What a probe carries may be all that the peer hears for a while.
	if in.any() && (in.unacked > 0 || in.ackNow || r.probes > 0 || o.ping || s.wantsWindow()) {
		flags |= flagAck
		elicit = elicit || s.wantsWindow()
		in.told = in.read + uint64(s.cfg.Window)
		delay := min((now-in.newest)/ib.Microsecond, math.MaxUint32)
		b = appendAck(b, in.have, uint32(delay), in.told, most-len(b)-offsetBytes)
		in.unacked, in.ackNow, in.ackAt = 0, false, ib.Never
	}
	var piece span
	if room := most - len(b) - offsetBytes; mayData && room > 0 {
		if piece = o.pick(room); piece.from < piece.to {
			flags |= flagData
			b = binary.BigEndian.AppendUint64(b, piece.from)
			at := len(b)
			b = b[:at+int(piece.to-piece.from)]
			o.ring.get(b[at:], piece.from)
			s.stuck = ib.Earlier(s.stuck, now)
		}
	}
	if elicit && flags&flagData == 0 && !s.Answered() {
		// A way that lets only short datagrams pass is none.
		flags |= flagPad
		at := len(b)
		b = b[:most]
		clear(b[at:])
	}
	size := len(b) + sealBytes
	if elicit {
		flags |= flagElicit
		// A sender that has to stop for an acknowledgement does not wait for a late one.
		if r.probes > 0 || o.hasData() && r.underWay+size >= r.window {
			flags |= flagAtOnce
		}
		r.probes = max(0, r.probes-1)
		o.ping = false
		o.spoke = now
		if s.waiting == ib.Never {
			s.waiting = now
		}
	}
	low := min(o.number-r.sent.oldest(o.number), math.MaxUint32)
	b[headerBytes] = flags
	binary.BigEndian.PutUint32(b[headerBytes+1:], uint32(low))
	r.send(record{at: now, piece: piece, size: int32(size), open: elicit})

	binary.BigEndian.PutUint32(b[offIndex:], s.cfg.SendIndex)
	binary.BigEndian.PutUint32(b[offEpoch:], o.epoch)
	binary.BigEndian.PutUint64(b[offNumber:], o.number)
	o.key.nonce(&o.nonce, o.number)
	b = o.key.aead.Seal(b[:headerBytes], o.nonce[:], b[headerBytes:], b[:headerBytes])
	o.number++
	o.keyUsed += uint64(len(b))
	s.stats.Datagrams++
	s.stats.DatagramBytes += uint64(len(b))
	return len(b), true
}

// wantsWindow reports whether the peer should hear that there is more room than it knows of.
func (s *Session) wantsWindow() bool {
	return s.in.any() && s.in.read+uint64(s.cfg.Window)-s.in.told >= uint64(s.cfg.Window/2)
}

// rekey goes on to the next key if this one has sealed enough. It has to be known that the peer has come along with
// this one, since it keeps no more than the next.
func (s *Session) rekey() {
	o := &s.out
	if o.proven && (o.keyUsed >= s.cfg.RekeyBytes || o.number-o.keyFrom >= s.cfg.RekeyDatagrams) {
		o.key = o.key.next()
		o.epoch++
		o.keyFrom, o.keyUsed, o.proven = o.number, 0, false
		s.stats.Rekeys++
	}
}
