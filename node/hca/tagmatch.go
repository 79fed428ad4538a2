package hca

import (
	"encoding/binary"
	"slices"

	"softib/proto/ib"
	"softib/proto/wire"
)

// Tag matching: SENDs of RC queue pairs that begin with a header are put into the memory that was posted for their tag,
// without the header; large ones are fetched by a READ once their tag is known (rendezvous). It is no part of the
// standard: the header and what becomes of it are those of rdma-core's Documentation/tag_matching.md.

// Layout of the header in front of a message, and of the one that follows it in a rendezvous.
const (
	tmhSize = 16 // operation, three bytes of nothing, the sender's word, the tag
	tmhUser = 4
	tmhTag  = 8
	rvhSize = 16 // address, R_Key, length
	rvhRKey = 8
	rvhLen  = 12

	// MaxTags is how many entries a queue may have.
	MaxTags = 1 << 12
	// RendezvousMax is how long a request of a rendezvous may be that is matched here.
	RendezvousMax = 64
)

// What a message says it is.
const (
	tmNoTag = iota
	tmRendezvous
	tmFinished
	tmEager
)

// tagEntry is memory for the next message with a tag.
type tagEntry struct {
	handle    uint32
	wrID      uint64
	tag, mask uint64
	size      uint32
	list      []SGE
}

// tagList is what a shared queue has for tags, the oldest first.
type tagList struct {
	entries []tagEntry
	most    int
	maxSGE  int
	handle  uint32 // of the newest
	// inForce is how many entries are matched. Those behind came when the program did not know yet of all messages that
	// no entry was for: such a message may be for one of them, and a later one must not be put there before it.
	inForce int
	missed  uint32 // messages with a tag that no entry was for, ever
	known   uint32 // as far as the program has said it knows of them

	// What was found for the packet that is being looked at.
	found   int  // its entry, or -1
	missing bool // it has a tag, and no entry
}

// tagged is what a queue pair knows of the message that it is in.
type tagged struct {
	op      uint8
	matched bool
	tag     uint64
	user    uint32
	remote  wire.RETH // of a rendezvous
	fits    bool      // its data, into the entry
	header  [tmhSize + rvhSize]byte
}

// TagOp changes what there is for tags, as ibv_ops_wr.
type TagOp struct {
	WRID     uint64
	Kind     WCOpcode // WCTagAdd, WCTagDel or WCTagSync
	Signaled bool
	Sync     bool   // Missed counts
	Missed   uint32 // how many messages that were for no tag the program has dealt with
	Handle   uint32 // of the entry: set by an ADD, needed by a DEL

	RecvWRID  uint64
	SGList    []SGE
	Tag, Mask uint64
}

// PostSRQOp changes what a shared queue has for tags.
func (h *HCA) PostSRQOp(s *SRQ, op *TagOp) error {
	const verb = "post_srq_ops"
	if s == nil || s.dead {
		return attrErr(ErrDestroyed, verb, "srq", s, "a live queue")
	}
	t := s.tags
	if t == nil {
		return badAttr(verb, "srq", s.num, "a queue with tag matching")
	}
	status := WCSuccess
	switch op.Kind {
	case WCTagAdd:
		var size uint64
		for i := range op.SGList {
			size += uint64(op.SGList[i].Length)
		}
		switch {
		case len(t.entries) >= t.most:
			return attrErr(ErrFull, verb, "tags", len(t.entries), "room: at most max_num_tags")
		case len(op.SGList) > t.maxSGE:
			return badAttr(verb, "num_sge", len(op.SGList), "at most max_sge")
		case size > 1<<31:
			return badAttr(verb, "sg_list", size, "at most 2^31 bytes in all")
		}
		t.handle++
		op.Handle = t.handle
		t.entries = append(t.entries, tagEntry{handle: t.handle, wrID: op.RecvWRID, tag: op.Tag, mask: op.Mask,
			size: uint32(size), list: slices.Clone(op.SGList)})
	case WCTagDel:
		i := slices.IndexFunc(t.entries, func(e tagEntry) bool { return e.handle == op.Handle })
		if i < 0 {
			status = WCTagErr // a message has it
		} else {
			t.remove(i)
		}
	case WCTagSync:
	default:
		return badAttr(verb, "opcode", op.Kind, "ADD, DEL or SYNC")
	}
	if op.Sync {
		t.known = op.Missed
	}
	if t.known == t.missed {
		t.inForce = len(t.entries)
	}
	if !op.Signaled && status == WCSuccess {
		return nil
	}
	c := s.cq.slot()
	if c == nil {
		return attrErr(ErrFull, verb, "cq", s.cq.num, "room: poll it first")
	}
	c.WRID, c.Status, c.Opcode = op.WRID, status, op.Kind
	if t.known != t.missed {
		c.Flags = WCTagSyncReq
	}
	s.cq.commit(h.now, status != WCSuccess)
	return nil
}

func (t *tagList) remove(i int) {
	t.entries = slices.Delete(t.entries, i, i+1)
	if i < t.inForce {
		t.inForce--
	}
}

// take is for a message that is sure to be executed. It reports whether it was one with an entry.
func (t *tagList) take() bool {
	if t.found >= 0 {
		t.remove(t.found)
		t.found = -1
		return true
	}
	if t.missing {
		t.missed++
		t.missing = false
	}
	return false
}

// SetTag keeps a message's tag and its sender's word in fields that a receive of RC has no use for.
func (c *WC) SetTag(tag uint64, user uint32) {
	c.SrcQP, c.VendorErr = ib.QPN(uint32(tag)), uint32(tag>>32)
	c.PKeyIndex, c.SLID = uint16(user>>16), ib.LID(uint16(user))
}

// takeTagged is takeRecv for a queue with tags: the first packet of a message says which memory it is for.
func (q *QP) takeTagged(p *wire.Packet, info *wire.OpcodeInfo) bool {
	t, m := q.srq.tags, q.tagged
	*m = tagged{}
	t.found, t.missing = -1, false
	n := min(p.PayloadLen(), len(m.header))
	if far := farOf(p); far == nil {
		copy(m.header[:], p.Payload)
	} else if !far.CopyTo(m.header[:n], 0) {
		return q.takeRecv(q.srq) // nothing will come of it
	}
	whole := n >= tmhSize
	if m.op = m.header[0]; m.op == tmRendezvous {
		// One that cannot be fetched from here is the program's to fetch.
		whole = n == len(m.header) && info.Is(wire.FlagEnd) && p.PayloadLen() <= RendezvousMax && q.state == StateRTS
	}
	if !whole || m.op != tmEager && m.op != tmRendezvous {
		t.missing = m.op == tmEager || m.op == tmRendezvous
		return q.takeRecv(q.srq)
	}
	m.tag, m.user = binary.BigEndian.Uint64(m.header[tmhTag:]), binary.BigEndian.Uint32(m.header[tmhUser:])
	i := slices.IndexFunc(t.entries[:t.inForce], func(e tagEntry) bool { return m.tag&e.mask == e.tag })
	if i < 0 {
		t.missing = true
		return q.takeRecv(q.srq)
	}
	if m.op == tmRendezvous && int(q.sqNext-q.sqOldest)+2 > q.caps.MaxSendWR {
		return false // as if nothing were posted: the peer tries again
	}
	e := &t.entries[i]
	t.found, m.matched = i, true
	q.heldSGE = append(q.heldSGE[:0], e.list...)
	q.held = recvWQE{wrID: e.wrID, size: e.size + tmhSize, nsge: uint32(len(e.list))}
	q.cur, q.curCQ, q.fresh, q.curDone = &q.held, q.srq.cq, q.srq, 0
	if m.op == tmRendezvous {
		r := m.header[tmhSize:]
		m.remote = wire.RETH{VA: binary.BigEndian.Uint64(r), RKey: binary.BigEndian.Uint32(r[rvhRKey:]),
			DMALen: binary.BigEndian.Uint32(r[rvhLen:])}
		m.fits = m.remote.DMALen <= e.size
		q.held.size = RendezvousMax // its data do not come with it
	}
	return true
}

// behind is a payload without what is in front of it.
type behind struct {
	wire.Source
	skip int
}

func (b behind) CopyTo(dst []byte, off int) bool { return b.Source.CopyTo(dst, off+b.skip) }

// fillTagged is fillRecv for the first packet of a message to a queue with tags.
func (q *QP) fillTagged(p *wire.Packet, info *wire.OpcodeInfo) filling {
	n, m := p.PayloadLen(), q.tagged
	far := farOf(p)
	switch {
	case !m.matched:
		return q.fillRecv(n, p.Payload, far)
	case m.op == tmRendezvous && m.fits:
		return filled
	case m.op == tmRendezvous: // the program gets what it needs to fetch it
		list := uint32(0)
		for i := range q.heldSGE {
			list += q.heldSGE[i].Length
		}
		return q.fillRecv(int(min(list, tmhSize+rvhSize)), m.header[:], nil)
	}
	q.held.size -= tmhSize
	to := filled
	if far != nil {
		to = q.fillRecv(n-tmhSize, nil, behind{far, tmhSize})
	} else {
		to = q.fillRecv(n-tmhSize, p.Payload[tmhSize:], nil)
	}
	if to == filled && !info.Is(wire.FlagEnd) {
		q.completeTagged(p, WCTagMatch, WCSuccess) // which messages are for whom is known before all of it is there
		m.tag, m.user = 0, 0
	}
	return to
}

// completeTagged reports what became of a message's tag.
func (q *QP) completeTagged(p *wire.Packet, flags WCFlags, status WCStatus) bool {
	c := q.srq.cq.slot()
	if c == nil {
		q.cqBroken()
		q.flushSend()
		return false
	}
	m := q.tagged
	c.WRID, c.QPN, c.Status, c.Opcode, c.Flags, c.ByteLen = q.held.wrID, q.num, status, WCTagRecv, flags, q.curDone
	c.SetTag(m.tag, m.user)
	q.srq.cq.commit(q.h.now, p.BTH.Solicited)
	return true
}

// finishTagged is finishRecv for a SEND to a queue with tags.
func (q *QP) finishTagged(p *wire.Packet, info *wire.OpcodeInfo) bool {
	m := q.tagged
	q.cur = nil
	switch {
	case !m.matched:
		c := q.srq.cq.slot()
		if c == nil {
			q.cqBroken()
			q.flushSend()
			return false
		}
		c.WRID, c.QPN, c.ByteLen = q.held.wrID, q.num, q.curDone
		switch m.op {
		case tmEager, tmRendezvous:
			c.Opcode = WCTagRecv // and no flag says that there was an entry
		case tmNoTag:
			c.Opcode = WCTagNone
		default:
			c.Opcode = WCRecv
		}
		if info.Has(wire.ExtImmDt) {
			c.Flags, c.ImmData = WCWithImm, p.Imm
		}
		q.srq.cq.commit(q.h.now, p.BTH.Solicited)
		return true
	case m.op == tmEager && info.Is(wire.FlagStart):
		return q.completeTagged(p, WCTagMatch|WCTagDataValid, WCSuccess)
	case m.op == tmEager:
		return q.completeTagged(p, WCTagDataValid, WCSuccess)
	case !m.fits:
		return q.completeTagged(p, WCTagMatch, WCTagIncomplete)
	}
	if !q.completeTagged(p, WCTagMatch, WCSuccess) {
		return false
	}
	q.fetchTagged()
	return true
}

// fetchTagged reads the data of a rendezvous, and tells the sender when they are there. That there is room for both
// requests was seen to.
func (q *QP) fetchTagged() {
	m, list := q.tagged, q.heldSGE
	left := m.remote.DMALen
	for i := range list { // as much of it as there are data
		list[i].Length = min(list[i].Length, left)
		left -= list[i].Length
	}
	m.header[0] = tmFinished
	q.services = onTag
	for _, wr := range []SendWR{
		{WRID: q.held.wrID, Opcode: wrTagRead, Flags: SendSignaled, SGList: list, RemoteAddr: m.remote.VA,
			RKey: m.remote.RKey},
		{Opcode: wrTagFinish, Flags: SendFence | SendInline, InlineData: m.header[:]},
	} {
		if err := q.h.PostSend(q, &wr); err != nil {
			panic("hca: a rendezvous that was possible is not: " + err.Error())
		}
	}
	q.services = 0
}
