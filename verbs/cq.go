package verbs

import (
	"context"

	"softib/node/hca"
	"softib/proto/ib"
)

// CQ is a completion queue: ibv_cq.
type CQ struct {
	ctx *Context
	cq  *hca.CQ
}

// CreateCQ makes a completion queue for at least entries completions: ibv_create_cq. One that overflows is lost, and
// its queue pairs with it.
func (c *Context) CreateCQ(entries int) (*CQ, error) {
	h := c.dev.Enter()
	defer c.dev.Leave()
	cq, err := h.CreateCQ(entries)
	if err != nil {
		return nil, refused(err)
	}
	return add(c, cq, &CQ{c, cq}), nil
}

// Poll moves up to len(out) completions to out and returns how many: ibv_poll_cq. It does
// not block and does not allocate.
func (c *CQ) Poll(out []WC) int { return c.ctx.dev.Poll(c.cq, completions(out)) }

// Wait is Poll that sleeps until there is a completion, or until ctx ends.
func (c *CQ) Wait(ctx context.Context, out []WC) (int, error) {
	for {
		if n := c.Poll(out); n > 0 {
			return n, nil
		}
		if err := c.ReqNotify(false); err != nil {
			return 0, err
		}
		// What came before the queue was armed raises no event.
		if n := c.Poll(out); n > 0 {
			return n, nil
		}
		if err := c.WaitEvent(ctx); err != nil {
			return 0, err
		}
	}
}

// ReqNotify arms the queue: the next completion, or the next solicited or
// failed one, raises an event, once: ibv_req_notify_cq.
func (c *CQ) ReqNotify(solicitedOnly bool) error {
	c.ctx.dev.Enter()
	defer c.ctx.dev.Leave()
	if c.cq.Failed() {
		return &AttrError{Verb: "req_notify_cq", Attr: "cq", Got: c.cq.Num(), Want: "a queue that has not overflowed",
			Kind: ErrState}
	}
	c.cq.ReqNotify(solicitedOnly)
	return nil
}

// WaitEvent sleeps until the event that ReqNotify asked for, or until ctx ends. Completions that were there when
// the queue was armed raise none: poll once more in between, as Wait does.
func (c *CQ) WaitEvent(ctx context.Context) error { return c.ctx.dev.WaitCQ(ctx, c.cq) }

// Resize changes how many completions the queue holds: ibv_resize_cq.
func (c *CQ) Resize(entries int) error {
	h := c.ctx.dev.Enter()
	defer c.ctx.dev.Leave()
	return refused(h.ResizeCQ(c.cq, entries))
}

// Moderate asks for an event after count completions or period, the sooner: ibv_modify_cq.
func (c *CQ) Moderate(count int, period ib.Time) error {
	h := c.ctx.dev.Enter()
	defer c.ctx.dev.Leave()
	return refused(h.ModifyCQ(c.cq, count, period))
}

// Cap is how many completions the queue holds.
func (c *CQ) Cap() int {
	c.ctx.dev.Enter()
	defer c.ctx.dev.Leave()
	return c.cq.Cap()
}

// Close frees the queue, which no queue pair may use any more.
func (c *CQ) Close() error { return free(c.ctx, c.cq, (*hca.HCA).DestroyCQ) }

// SRQ is a shared receive queue: receives for whichever of several queue pairs needs one.
type SRQ struct {
	ctx *Context
	srq *hca.SRQ
}

// SRQInit says what a shared receive queue shall be; XRCD and CQ make it an
// XRC one.
type SRQInit struct {
	MaxWR, MaxSGE int
	Limit         int // see SetLimit
	XRCD          *XRCD
	CQ            *CQ
}

// CreateSRQ makes a shared receive queue: ibv_create_srq.
func (p *PD) CreateSRQ(init SRQInit) (*SRQ, error) {
	h := p.ctx.dev.Enter()
	defer p.ctx.dev.Leave()
	i := hca.SRQInit{PD: p.pd, MaxWR: init.MaxWR, MaxSGE: init.MaxSGE, Limit: init.Limit}
	if init.XRCD != nil {
		i.XRCD = init.XRCD.x
	}
	if init.CQ != nil {
		i.CQ = init.CQ.cq
	}
	s, err := h.CreateSRQ(i)
	if err != nil {
		return nil, refused(err)
	}
	return add(p.ctx, s, &SRQ{p.ctx, s}), nil
}

// Num is the number that XRC requesters send to.
func (s *SRQ) Num() uint32 { return s.srq.Num() }

// PostRecv posts a receive: ibv_post_srq_recv. wr and its list may be reused at once.
func (s *SRQ) PostRecv(wr *RecvWR) error {
	h := s.ctx.dev.Enter()
	err := h.PostSRQRecv(s.srq, recvRequest(wr))
	s.ctx.dev.LeaveQuiet()
	return refused(err)
}

// SetLimit asks for EventSRQLimitReached, once, when fewer than n receives are left: ibv_modify_srq.
func (s *SRQ) SetLimit(n int) error {
	h := s.ctx.dev.Enter()
	defer s.ctx.dev.Leave()
	return refused(h.ModifySRQ(s.srq, n))
}

// Query returns the sizes that were granted, and the limit while its event is still to come: ibv_query_srq.
func (s *SRQ) Query() (maxWR, maxSGE, limit int, err error) {
	h := s.ctx.dev.Enter()
	defer s.ctx.dev.Leave()
	maxWR, maxSGE, limit, err = h.QuerySRQ(s.srq)
	return maxWR, maxSGE, limit, refused(err)
}

// Close frees the queue, which no queue pair may use any more.
func (s *SRQ) Close() error { return free(s.ctx, s.srq, (*hca.HCA).DestroySRQ) }
