package hca

import (
	"softib/proto/ib"
	"softib/proto/wire"
)

// How messages are cut into packets and bundles. Where a bundle ends follows from
// its place in the message and not from where it begins, so that one that is
// sent again from somewhere in the middle ends where its predecessor did:
// what the peer has of a message then ends where a bundle begins. If it does not,
// because a driver's buffers vary, the peer says so and loses nothing but time.

// cut is how many bytes of w's data, of which left have not gone yet, the next
// packet takes, given a buffer of room bytes, and whether it refers to them
// where they lie. A piece of an RC request that lies in one element may be
// referred to unless noRef says otherwise; everything else is copied. A bundle
// that would run into the next kind of piece ends there.
func (q *QP) cut(w *sendWQE, left, room int, noRef bool) (n int, ref bool) {
	cfg, most := &q.h.cfg, q.maxBundle()
	if left <= q.mtu || most <= 1 {
		n = min(left, q.mtu)
		if cfg.ByRefMin == 0 || n < cfg.ByRefMin || noRef || !q.refers(w) {
			return n, false
		}
		_, _, here := q.position(w)
		return n, here >= n
	}
	most -= int(q.sqPkt) % most
	n = min(left, most<<q.mtuShift)
	if cfg.ByRefMin > 0 && !noRef && q.refers(w) {
		seg, off, here := q.position(w)
		if r := q.run(here, n); r >= cfg.ByRefMin {
			return r, true
		}
		n = q.spanning(w, seg, off, n)
	}
	if n > room {
		most = max(1, room>>q.mtuShift)
		n = min(n, (most-int(q.sqPkt)%most)<<q.mtuShift)
	}
	return n, false
}

// refers reports whether a request's packets may refer to its memory.
func (q *QP) refers(w *sendWQE) bool { return q.isRC() && len(w.inline) == 0 }

// position is where the next packet's data begin, and how many bytes of that
// element are left. The request may not have been started yet.
func (q *QP) position(w *sendWQE) (seg, off, here int) {
	if q.sqPkt > 0 {
		seg, off = q.seg, int(q.segOff)
	}
	for ; seg < len(w.segs); seg, off = seg+1, 0 {
		if here = int(w.segs[seg].sge.Length) - off; here > 0 {
			break
		}
	}
	return seg, off, here
}

// run is how many of n bytes lie in an element that has so many left, in whole
// packets.
func (q *QP) run(here, n int) int {
	if here >= n {
		return n
	}
	return here &^ (q.mtu - 1)
}

// spanning is how many of the n bytes from there on belong to packets that have
// to be copied, up to the first that need not.
func (q *QP) spanning(w *sendWQE, seg, off, n int) int {
	for done := q.mtu; done < n; done += q.mtu {
		off += q.mtu
		for off >= int(w.segs[seg].sge.Length) {
			off -= int(w.segs[seg].sge.Length)
			seg++
		}
		if q.run(int(w.segs[seg].sge.Length)-off, n-done) >= q.h.cfg.ByRefMin {
			return done
		}
	}
	return n
}

// cutRead is how many bytes the next packet of a READ response takes. Bundles
// are counted from the response's end, which a READ that is asked for again
// from the middle has in common with the first.
func (q *QP) cutRead(it *respItem, room int) int {
	left := int(it.left)
	most := q.maxBundle()
	if left <= q.mtu || most <= 1 {
		return min(left, q.mtu)
	}
	if min(left, most<<q.mtuShift) > room {
		most = max(1, room>>q.mtuShift)
	}
	pkts := (left + q.mtu - 1) >> q.mtuShift
	return min(left, ((pkts-1)%most+1)<<q.mtuShift)
}

// goodBundle reports whether the packets that p stands for are as many as its
// payload makes, and all as long as the path MTU but for the message's last.
func (q *QP) goodBundle(p *wire.Packet, info *wire.OpcodeInfo) bool {
	n := p.PayloadLen()
	if !info.Is(wire.FlagEnd) && n&(q.mtu-1) != 0 {
		return false
	}
	return (n+q.mtu-1)>>q.mtuShift == p.Packets()
}

// lastPSN is the PSN of the last packet that p stands for.
func lastPSN(p *wire.Packet) ib.PSN { return p.BTH.PSN.Add(p.Packets() - 1) }

// pastPSN is the PSN that follows those of p.
func pastPSN(p *wire.Packet) ib.PSN { return p.BTH.PSN.Add(p.Packets()) }
