package tunnel

import (
	"encoding/binary"
	"math"
)

// A datagram, all integers big-endian:
//
//	clear     index 4, epoch 4, number 8
//	sealed    flags 1, low 4, [acknowledgement], [offset 8, bytes of the stream] or [padding]
//	seal      16
//
// Low says how many numbers before this one the sender still wants to hear of. An acknowledgement:
//
//	largest 8, delay 4 (microseconds since that came), limit 8 (offset up to which may be sent),
//	more 1, first 4 (numbers right below largest that have come too), more times: missing 4, come 4
//
// The stream is messages: stream 4, length 2, bytes.
const (
	offIndex     = 0
	offEpoch     = 4
	offNumber    = 8
	headerBytes  = 16
	fixedBytes   = 5 // flags, low
	ackBytes     = 25
	rangeBytes   = 8
	offsetBytes  = 8
	messageBytes = 6
)

// Flags of a datagram.
const (
	flagAck    = 1 << iota // has an acknowledgement
	flagData               // has bytes of the stream
	flagElicit             // wants to be acknowledged
	flagAtOnce             // and without delay
	flagPad                // ends in padding
	flagsAll   = 1<<iota - 1
)

// rangesMax is how many ranges an acknowledgement has at most.
const rangesMax = 32

// Index is the receiver's index in a datagram, by which a socket that many sessions share knows whose it is; not ok if
// it is too short to be one. Nothing is proved of it before HandleDatagram has taken it.
func Index(datagram []byte) (index uint32, ok bool) {
	if len(datagram) < headerBytes+fixedBytes+sealBytes {
		return 0, false
	}
	return binary.BigEndian.Uint32(datagram[offIndex:]), true
}

// ack is an acknowledgement: spans of numbers, highest first.
type ack struct {
	delayUs uint32
	limit   uint64
	spans   [rangesMax]span
	n       int
}

// appendAck writes what has come, the highest spans first, as many as there is room for.
func appendAck(b []byte, have spans, delayUs uint32, limit uint64, room int) []byte {
	top := have[len(have)-1]
	b = binary.BigEndian.AppendUint64(b, top.to-1)
	b = binary.BigEndian.AppendUint32(b, delayUs)
	b = binary.BigEndian.AppendUint64(b, limit)
	at := len(b)
	b = append(b, 0)
	b = binary.BigEndian.AppendUint32(b, uint32(min(top.to-top.from-1, math.MaxUint32)))
	if top.to-top.from-1 > math.MaxUint32 {
		return b
	}
	more, below := 0, top.from
	for i := len(have) - 2; i >= 0 && more < rangesMax-1 && (more+1)*rangeBytes <= room-ackBytes; i-- {
		missing, come := below-have[i].to, have[i].to-have[i].from
		if missing > math.MaxUint32 || come > math.MaxUint32 {
			break
		}
		b = binary.BigEndian.AppendUint32(b, uint32(missing))
		b = binary.BigEndian.AppendUint32(b, uint32(come))
		more, below = more+1, have[i].from
	}
	b[at] = byte(more)
	return b
}

// parse reads an acknowledgement and returns what follows it.
func (a *ack) parse(b []byte) (rest []byte, ok bool) {
	if len(b) < ackBytes {
		return nil, false
	}
	largest := binary.BigEndian.Uint64(b)
	a.delayUs = binary.BigEndian.Uint32(b[8:])
	a.limit = binary.BigEndian.Uint64(b[12:])
	more, first := int(b[20]), uint64(binary.BigEndian.Uint32(b[21:]))
	b = b[ackBytes:]
	if largest == math.MaxUint64 || first > largest || more >= rangesMax || len(b) < more*rangeBytes {
		return nil, false
	}
	a.spans[0], a.n = span{largest - first, largest + 1}, 1
	for below := largest - first; a.n <= more; a.n++ {
		missing, come := uint64(binary.BigEndian.Uint32(b)), uint64(binary.BigEndian.Uint32(b[4:]))
		if missing == 0 || come == 0 || missing+come > below {
			return nil, false
		}
		a.spans[a.n] = span{below - missing - come, below - missing}
		below -= missing + come
		b = b[rangeBytes:]
	}
	return b, true
}
