package machine

import (
	"fmt"

	"softib/node/hca"
	"softib/proto/ib"
)

// handful is how many requests C code would stage before it calls; a few, so that both happens.
const handful = 4

// staged is a request that C code would have left for the endpoint.
type staged struct {
	qp *hca.QP
	wr hca.SendWR
	at ib.Time
}

// PostSend posts a request of a host's program. Those that look where C code does, or rarely, post as C code does it:
// to a queue that has others under way without a call.
func (m *Machine) PostSend(host int, q *hca.QP, wr *hca.SendWR) error {
	p := m.procs[host]
	if p.habit != Fetches && p.habit != Rarely || !p.mayStage(q, wr) {
		return m.Use(host).PostSend(q, wr)
	}
	s := staged{q, *wr, m.Now()}
	s.wr.SGList = append([]hca.SGE(nil), wr.SGList...)
	p.staged = append(p.staged, s)
	m.count[Staged]++
	p.ep.Staged()
	return nil
}

// mayStage is stage.c's plain, and what it wants of the queue.
func (p *process) mayStage(q *hca.QP, wr *hca.SendWR) bool {
	switch wr.Opcode {
	case hca.WRSend, hca.WRSendImm, hca.WRSendInv, hca.WRRDMAWrite, hca.WRRDMAWriteImm, hca.WRRDMARead:
	default:
		return false
	}
	return q.Type() == hca.RC && q.Outstanding() > 0 && p.m.Outstanding(p.host, q) < q.Caps().MaxSendWR &&
		len(wr.SGList) <= 1 && wr.Flags&hca.SendInline == 0
}

// Outstanding is how many requests of a queue pair have not completed.
func (m *Machine) Outstanding(host int, q *hca.QP) int {
	n := q.Outstanding()
	for i := range m.procs[host].staged {
		if m.procs[host].staged[i].qp == q {
			n++
		}
	}
	return n
}

// Use is a host's adapter for a call of its program, which finds everything posted that was staged before.
func (m *Machine) Use(host int) *hca.HCA {
	p := m.procs[host]
	p.calls = true
	h := p.ep.Engine()
	p.postStaged(h, nil)
	return h
}

// postStaged posts what was staged.
func (p *process) postStaged(h *hca.HCA, list *uint64) {
	if list != nil {
		*list = 0
	}
	for _, s := range p.staged {
		if err := h.PostSend(s.qp, &s.wr); err != nil {
			p.m.Neglected = append(p.m.Neglected, fmt.Sprintf("h%d: a request that was staged at %v is refused: %v",
				p.host+1, s.at, err))
		}
	}
	p.staged = p.staged[:0]
}

// watchStaged finds requests that a step has left, although nothing is under way any more that would make somebody
// look.
func (p *process) watchStaged() {
	for _, s := range p.staged {
		if s.qp.Outstanding() == 0 {
			p.m.Neglected = append(p.m.Neglected, fmt.Sprintf("h%d: nobody takes a request that was staged at %v",
				p.host+1, s.at))
			p.postStaged(p.ep.Engine(), nil) // once is enough
			return
		}
	}
}

// rings reports whether the program, which has posted, calls: it does unless everything that it posted was staged
// behind something that is still under way.
func (p *process) rings() bool {
	calls := p.calls || len(p.staged) == 0 || len(p.staged) >= handful
	for _, s := range p.staged {
		calls = calls || s.qp.Outstanding() == 0
	}
	p.calls = false
	return calls
}
