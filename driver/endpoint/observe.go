package endpoint

import "sync/atomic"

// Observer looks at a ring from outside, and changes nothing.
type Observer struct {
	ring  memory
	next  uint32
	wants bool
}

// Observed is what has gone into a ring: packets, or bundles of them. Referred are those whose payload lies in the
// sender's memory, Ahead those whose payload was in the receiver's already. Full says that the sender has begun to wait
// for room.
type Observed struct {
	Packets, Referred, Ahead uint64
	Full                     bool
}

// Observe begins to look at the new ring in mem.
func Observe(mem []byte) (*Observer, error) {
	m, err := mapRing(mem)
	return &Observer{ring: m}, err
}

// Look is what has happened since it was called before. What the ring has gone round over it does not see.
func (o *Observer) Look() (n Observed) {
	for {
		c := o.ring.cell(o.next)
		seq := atomic.LoadUint32(&c.seq)
		if int32(seq-o.next) <= 0 {
			break
		}
		o.next = seq
		n.Packets++
		if c.kind&cellByRef != 0 {
			n.Referred++
		}
		if c.kind&cellDelivered != 0 {
			n.Ahead++
		}
	}
	wants := atomic.LoadUint32(&o.ring.head.wants) != 0
	n.Full, o.wants = wants && !o.wants, wants
	return n
}
