package hca

// recvQueue is a ring of receive work requests, of a queue pair or shared. It grows.
type recvQueue struct {
	wqes   []recvWQE // power of two long
	sges   []SGE     // maxSGE a request
	room   uint32    // how many there may be before it has to grow
	head   uint32
	tail   uint32
	maxSGE int
	cap    int
}

type recvWQE struct {
	wrID uint64
	size uint32 // sum of the elements
	nsge uint32
}

func (q *recvQueue) len() int { return int(q.tail - q.head) }

func (q *recvQueue) post(wr *RecvWR) error {
	const verb = "post_recv"
	if q.tail-q.head >= q.room && !q.grow() {
		return errRecvFull
	}
	if len(wr.SGList) > q.maxSGE {
		return badAttr(verb, "num_sge", len(wr.SGList), "at most max_recv_sge")
	}
	var size uint64
	for i := range wr.SGList {
		size += uint64(wr.SGList[i].Length)
	}
	if size > 1<<31 {
		return badAttr(verb, "sg_list", size, "at most 2^31 bytes in all")
	}
	at := q.tail & uint32(len(q.wqes)-1)
	n := copy(q.sges[int(at)*q.maxSGE:], wr.SGList)
	q.wqes[at] = recvWQE{wrID: wr.WRID, size: uint32(size), nsge: uint32(n)}
	q.tail++
	return nil
}

// peek is the oldest request, nil if there is none.
func (q *recvQueue) peek() *recvWQE {
	if q.head == q.tail {
		return nil
	}
	return &q.wqes[q.head&uint32(len(q.wqes)-1)]
}

// list is the scatter list of w, which is the oldest request.
func (q *recvQueue) list(w *recvWQE) []SGE {
	at := int(q.head&uint32(len(q.wqes)-1)) * q.maxSGE
	return q.sges[at : at+int(w.nsge)]
}

// SRQ is a shared receive queue.
type SRQ struct {
	h     *HCA
	num   uint32
	pd    *PD
	rq    recvQueue
	limit int
	users int
	dead  bool

	// XRC shared queues complete to their own queue and belong to a domain.
	xrcd *XRCD
	cq   *CQ
	tags *tagList // of one that matches tags; it completes to its own queue too
}

// SRQInit says what a shared receive queue shall be.
type SRQInit struct {
	PD     *PD
	MaxWR  int
	MaxSGE int
	Limit  int
	XRCD   *XRCD // with CQ: an XRC shared receive queue
	CQ     *CQ
	Tags   int // with CQ: how many tags it has room for, of a queue that matches tags
}

// XRCD is an XRC domain: what ties XRC target queue pairs to shared queues.
type XRCD struct {
	h     *HCA
	users int
	dead  bool
}

// OpenXRCD makes an XRC domain.
func (h *HCA) OpenXRCD() *XRCD {
	h.xrcds++
	return &XRCD{h: h}
}

// CloseXRCD frees an XRC domain that nothing uses any more.
func (h *HCA) CloseXRCD(x *XRCD) error {
	if x == nil || x.dead {
		return attrErr(ErrDestroyed, "close_xrcd", "xrcd", x, "a live domain")
	}
	if x.users > 0 {
		return attrErr(ErrBusy, "close_xrcd", "xrcd", x.users, "no object left in it")
	}
	x.dead = true
	h.xrcds--
	return nil
}

// XRCD is the domain of an XRC target, nil for other queue pairs.
func (q *QP) XRCD() *XRCD { return q.xrcd }

// CreateSRQ makes a shared receive queue.
func (h *HCA) CreateSRQ(init SRQInit) (*SRQ, error) {
	const verb = "create_srq"
	if err := h.checkPD(verb, init.PD); err != nil {
		return nil, err
	}
	if init.MaxWR < 1 || init.MaxWR > h.cfg.Limits.MaxSRQWR {
		return nil, badAttr(verb, "max_wr", init.MaxWR, "1 to max_srq_wr")
	}
	if init.MaxSGE < 0 || init.MaxSGE > h.cfg.Limits.MaxSGE {
		return nil, badAttr(verb, "max_sge", init.MaxSGE, "0 to max_srq_sge")
	}
	if init.Limit < 0 || init.Limit > init.MaxWR {
		return nil, badAttr(verb, "srq_limit", init.Limit, "0 to max_wr")
	}
	if init.Tags < 0 || init.Tags > MaxTags || init.Tags > 0 && (init.CQ == nil || init.XRCD != nil) {
		return nil, badAttr(verb, "tm_cap", init.Tags, "as many tags as there may be, and a completion queue")
	}
	if (init.XRCD == nil) != (init.CQ == nil) && init.Tags == 0 {
		return nil, badAttr(verb, "xrcd, cq", init.XRCD, "both or neither")
	}
	if init.CQ != nil && (init.CQ.dead || init.CQ.h != h) || init.XRCD != nil && (init.XRCD.dead || init.XRCD.h != h) {
		return nil, badAttr(verb, "xrcd, cq", "destroyed or foreign", "live ones of this device")
	}
	s := &SRQ{h: h, pd: init.PD, rq: recvQueue{cap: init.MaxWR, maxSGE: init.MaxSGE}, limit: init.Limit,
		xrcd: init.XRCD, cq: init.CQ}
	if init.Tags > 0 {
		s.tags = &tagList{most: init.Tags, maxSGE: h.cfg.Limits.MaxSGE, found: -1}
	}
	for i, old := range h.srqs {
		if i > 0 && old == nil {
			s.num = uint32(i)
			h.srqs[i] = s
			break
		}
	}
	if s.num == 0 {
		if len(h.srqs) == 0 {
			h.srqs = append(h.srqs, nil) // number 0 stays unused
		}
		if len(h.srqs) > h.cfg.Limits.MaxSRQ {
			return nil, attrErr(ErrNoMemory, verb, "srq", len(h.srqs), "fewer shared queues")
		}
		s.num = uint32(len(h.srqs))
		h.srqs = append(h.srqs, s)
	}
	init.PD.users++
	if s.xrcd != nil {
		s.xrcd.users++
	}
	if s.cq != nil {
		s.cq.users++
	}
	return s, nil
}

// Num is the SRQ number that XRC requesters send to.
func (s *SRQ) Num() uint32 { return s.num }

// Len is how many receives are posted.
func (s *SRQ) Len() int { return s.rq.len() }

// QuerySRQ returns the sizes that were granted, and the limit while its event is
// armed.
func (h *HCA) QuerySRQ(s *SRQ) (maxWR, maxSGE, limit int, err error) {
	if s == nil || s.dead {
		return 0, 0, 0, attrErr(ErrDestroyed, "query_srq", "srq", s, "a live queue")
	}
	return s.rq.cap, s.rq.maxSGE, s.limit, nil
}

// ModifySRQ arms the limit event: it fires once when fewer than limit
// receives are left.
func (h *HCA) ModifySRQ(s *SRQ, limit int) error {
	if s == nil || s.dead {
		return attrErr(ErrDestroyed, "modify_srq", "srq", s, "a live queue")
	}
	if limit < 0 || limit > s.rq.cap {
		return badAttr("modify_srq", "srq_limit", limit, "0 to max_wr")
	}
	s.limit = limit
	return nil
}

// ResizeSRQ changes how many receives a shared queue holds.
func (h *HCA) ResizeSRQ(s *SRQ, maxWR int) error {
	const verb = "modify_srq"
	if s == nil || s.dead {
		return attrErr(ErrDestroyed, verb, "srq", s, "a live queue")
	}
	if maxWR < 1 || maxWR > h.cfg.Limits.MaxSRQWR {
		return badAttr(verb, "max_wr", maxWR, "1 to max_srq_wr")
	}
	if maxWR < s.rq.len() || maxWR < s.limit {
		return badAttr(verb, "max_wr", maxWR, "no fewer than the receives that are posted, and than srq_limit")
	}
	s.rq.cap, s.rq.room = maxWR, uint32(min(len(s.rq.wqes), maxWR))
	return nil
}

// DestroySRQ frees a shared queue that no queue pair uses any more.
func (h *HCA) DestroySRQ(s *SRQ) error {
	if s == nil || s.dead {
		return attrErr(ErrDestroyed, "destroy_srq", "srq", s, "a live queue")
	}
	if s.users > 0 {
		return attrErr(ErrBusy, "destroy_srq", "srq", s.users, "no queue pair left on it")
	}
	if s.xrcd != nil {
		for _, q := range h.qps {
			if q != nil && q.heldOf == s.num && q.cur != nil {
				h.events.push(Event{Type: EventQPAccessErr, QP: q})
				q.toError() // in the middle of a message, which has no place any more
			}
		}
	}
	s.dead = true
	h.srqs[s.num] = nil
	s.pd.users--
	if s.xrcd != nil {
		s.xrcd.users--
	}
	if s.cq != nil {
		s.cq.users--
		s.cq.purge(0, s.num) // of other shared queues none can be left: their queue pairs are gone
	}
	return nil
}

// PostSRQRecv posts a receive to a shared queue.
func (h *HCA) PostSRQRecv(s *SRQ, wr *RecvWR) error {
	if s == nil || s.dead {
		return attrErr(ErrDestroyed, "post_srq_recv", "srq", s, "a live queue")
	}
	return s.rq.post(wr)
}

// take consumes the oldest receive, or the entry that a tag was found to have, and raises the limit event when due.
func (s *SRQ) take() {
	if s.tags != nil && s.tags.take() {
		return
	}
	s.rq.head++
	if s.limit > 0 && s.rq.len() < s.limit {
		s.limit = 0
		s.h.events.push(Event{Type: EventSRQLimitReached, SRQ: s})
	}
}
