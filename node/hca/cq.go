package hca

import "softib/proto/ib"

// WC is a work completion: ibv_wc.
type WC struct {
	WRID      uint64
	Status    WCStatus
	Opcode    WCOpcode
	Flags     WCFlags
	SL        ib.SL
	PathBits  uint8
	Port      ib.PortNum
	VendorErr uint32
	ByteLen   uint32
	ImmData   uint32 // immediate, or the invalidated R_Key
	QPN       ib.QPN
	SrcQP     ib.QPN
	PKeyIndex uint16
	SLID      ib.LID
	// At is when the completion was made, by the driver's clock.
	At ib.Time
}

// CQ is a completion queue.
type CQ struct {
	_     cacheLine // queues of two adapters must not share a line
	h     *HCA
	num   uint32
	ring  []WC // power of two long
	cap   int  // as asked for: ring may be longer
	head  uint32
	tail  uint32
	users int
	err   bool
	dead  bool
	wraps bool // see IgnoreOverrun

	armed     bool
	armedSoli bool
	told      uint32 // tail at the last event: what came after, no event has told of
	soli      uint32 // tail after the last solicited or failed completion

	// Moderation: an armed queue raises its event after modCount
	// completions or modPeriod, whichever comes first.
	modCount  int
	modPeriod ib.Time
	modSeen   int
	modAt     ib.Time

	// Owner is the driver's: who waits on the queue. The engine ignores it.
	Owner any

	// outside is how many completions the driver has taken out and the program has not; nil for a queue that programs
	// poll themselves.
	outside func() int
	news    bool // it is in HCA.news

	_ cacheLine
}

// cacheLine keeps what two cores write apart.
type cacheLine [64]byte

// CreateCQ makes a completion queue for at least entries completions.
func (h *HCA) CreateCQ(entries int) (*CQ, error) {
	const verb = "create_cq"
	if entries < 1 || entries > h.cfg.Limits.MaxCQE {
		return nil, badAttr(verb, "cqe", entries, "1 to max_cqe")
	}
	if h.ncq >= h.cfg.Limits.MaxCQ {
		return nil, attrErr(ErrNoMemory, verb, "cq", h.ncq, "fewer completion queues")
	}
	h.ncq++
	h.cqSeq++
	return &CQ{h: h, num: h.cqSeq, ring: make([]WC, pow2(entries)), cap: entries, modAt: ib.Never}, nil
}

func pow2(n int) int {
	p := 1
	for p < n {
		p <<= 1
	}
	return p
}

// Num is the queue's handle.
func (c *CQ) Num() uint32 { return c.num }

// Cap is how many completions the queue holds.
func (c *CQ) Cap() int { return c.cap }

// Len is how many wait to be polled.
func (c *CQ) Len() int { return int(c.tail - c.head) }

// Watch is for a driver that moves completions to where the program finds them, with Poll, as they come: NextNews tells
// it of the queue from now on. Outside counts those that the program has not taken there: they still are the queue's.
func (c *CQ) Watch(outside func() int) { c.outside = outside } // tidy: calls out, it reads a number

// unread is how many completions the program has not taken.
func (c *CQ) unread() int {
	n := int(c.tail - c.head)
	if c.outside != nil {
		n += c.outside()
	}
	return n
}

// changed keeps a watched queue for NextNews.
func (c *CQ) changed() {
	if c.outside != nil && !c.news {
		c.news = true
		c.h.news = append(c.h.news, c)
	}
}

// NextNews is a watched queue that has got completions, or lost some with their queue pair; nil if there is none. It is
// called until then.
func (h *HCA) NextNews() *CQ {
	n := len(h.news)
	if n == 0 {
		return nil
	}
	c := h.news[n-1]
	h.news = h.news[:n-1]
	c.news = false
	return c
}

// IgnoreOverrun makes a queue that never breaks: IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN. A completion too many takes the
// place of the oldest. It is not for queues that are watched, whose oldest ones are out of reach.
func (c *CQ) IgnoreOverrun() { c.wraps = true }

// Failed reports whether the queue has overflowed.
func (c *CQ) Failed() bool { return c.err }

// ResizeCQ changes how many completions the queue holds.
func (h *HCA) ResizeCQ(c *CQ, entries int) error {
	const verb = "resize_cq"
	if c == nil || c.dead {
		return attrErr(ErrDestroyed, verb, "cq", c, "a live queue")
	}
	if entries < 1 || entries > h.cfg.Limits.MaxCQE {
		return badAttr(verb, "cqe", entries, "1 to max_cqe")
	}
	if entries < c.unread() {
		return badAttr(verb, "cqe", entries, "no fewer than the completions that wait")
	}
	ring := make([]WC, pow2(entries))
	n := uint32(0)
	for i := c.head; i != c.tail; i++ {
		ring[n] = c.ring[i&uint32(len(c.ring)-1)]
		n++
	}
	c.told, c.soli = c.told-c.head, c.soli-c.head
	c.ring, c.head, c.tail, c.cap = ring, 0, n, entries
	return nil
}

// DestroyCQ frees a queue that no queue pair uses any more.
func (h *HCA) DestroyCQ(c *CQ) error {
	if c == nil || c.dead {
		return attrErr(ErrDestroyed, "destroy_cq", "cq", c, "a live queue")
	}
	if c.users > 0 {
		return attrErr(ErrBusy, "destroy_cq", "cq", c.users, "no queue pair left on it")
	}
	c.dead = true
	h.ncq--
	return nil
}

// ModifyCQ sets moderation: an event after count completions or period, the
// sooner; count 0 or 1 is an event each.
func (h *HCA) ModifyCQ(c *CQ, count int, period ib.Time) error {
	if c == nil || c.dead {
		return attrErr(ErrDestroyed, "modify_cq", "cq", c, "a live queue")
	}
	if count < 0 || count > 0xFFFF {
		return badAttr("modify_cq", "cq_count", count, "0 to 65535")
	}
	if period < 0 {
		return badAttr("modify_cq", "cq_period", period, "0 or more")
	}
	c.modCount, c.modPeriod = count, period
	if c.armed && c.modSeen > 0 {
		c.fire() // what was held back goes out by the old rule
	}
	return nil
}

// ReqNotify arms the queue: the next completion (or the next solicited or
// failed one) raises EventCompletion, once. Completions that are there already
// do not count; a careful caller polls once more after arming.
func (c *CQ) ReqNotify(solicitedOnly bool) {
	// Arming for any completion is stronger and stays (IBA 11.4.2.2).
	c.armedSoli = solicitedOnly && (!c.armed || c.armedSoli)
	c.armed = true
}

// ReqNotifyMissed is ReqNotify for callers that do not poll once more: if completions wait
// that came since the last event, and so without one, it is raised at once. Adapters that
// are told at arming how far the caller has polled do that, and UCX relies on it.
func (c *CQ) ReqNotifyMissed(solicitedOnly bool) {
	c.ReqNotify(solicitedOnly)
	last := c.tail
	if c.armedSoli {
		last = c.soli
	}
	if head := c.tail - uint32(c.unread()); int32(last-head) > 0 && int32(last-c.told) > 0 {
		c.fire()
	}
}

// Poll moves completions to out, oldest first, and returns how many.
func (c *CQ) Poll(out []WC) int {
	n := 0
	mask := uint32(len(c.ring) - 1)
	for n < len(out) && c.head != c.tail {
		out[n] = c.ring[c.head&mask]
		c.head++
		n++
	}
	if plantTwice && n > 2 && n == len(out) {
		c.head--
	}
	return n
}

// slot makes room for one more completion; nil when the queue overflows,
// which breaks it for good (IBA 10.8.2.2), unless it is to go on.
func (c *CQ) slot() *WC {
	if c.err {
		return nil
	}
	if int(c.tail-c.head)+OutsideMax >= c.cap && c.unread() >= c.cap {
		if !c.wraps {
			c.err = true
			c.h.events.push(Event{Type: EventCQErr, CQ: c})
			return nil
		}
		c.head++
	}
	e := &c.ring[c.tail&uint32(len(c.ring)-1)]
	*e = WC{}
	return e
}

// OutsideMax is how many completions of a watched queue are outside at most. It saves asking how many there are.
const OutsideMax = 64

// commit publishes the completion that slot returned.
func (c *CQ) commit(now ib.Time, solicited bool) {
	c.ring[c.tail&uint32(len(c.ring)-1)].At = now
	c.tail++
	if solicited {
		c.soli = c.tail
	}
	c.h.Stats.Completions++
	c.changed()
	if !c.armed || (c.armedSoli && !solicited) {
		return
	}
	if c.modCount > 1 {
		c.modSeen++
		if c.modSeen < c.modCount {
			if c.modPeriod > 0 && c.modAt == ib.Never {
				c.modAt = now + c.modPeriod
				c.h.timers.push(c.modAt, nil, c)
			}
			return
		}
	}
	c.fire()
}

func (c *CQ) fire() {
	c.armed, c.armedSoli, c.modSeen, c.modAt, c.told = false, false, 0, ib.Never, c.tail
	c.h.events.push(Event{Type: EventCompletion, CQ: c})
}

// xrcSRQ is the number of the shared queue whose receive this is, of an XRC target; 0 for other completions. It stands
// where programs do not look unless the request has failed, and where it is told from another vendor's error then.
func (w *WC) xrcSRQ() uint32 {
	if w.Opcode == WCRecv || w.Opcode == WCRecvRDMAWithImm {
		return w.VendorErr
	}
	return 0
}

// purge removes the completions of a destroyed queue pair, so that its number can be given out again, or those of an
// XRC shared queue. Its own receives an XRC target leaves behind, as mlx4 and mlx5 do: the shared queue has lost them,
// and its owner, who need not be the target's, learns of them by their completions alone.
func (c *CQ) purge(n ib.QPN, srq uint32) {
	mask := uint32(len(c.ring) - 1)
	w := c.head
	for i := c.head; i != c.tail; i++ {
		if of := c.ring[i&mask].xrcSRQ(); of == 0 && srq == 0 && c.ring[i&mask].QPN == n || of != 0 && of == srq {
			continue
		}
		c.ring[w&mask] = c.ring[i&mask]
		w++
	}
	c.tail = w
	c.changed()
	// An event too many is no harm; numbers from the future would hide completions.
	c.told, c.soli = earlier(c.told, w), earlier(c.soli, w)
}

// earlier is the earlier of two positions.
func earlier(a, b uint32) uint32 {
	if int32(a-b) < 0 {
		return a
	}
	return b
}
