package machine

import (
	"fmt"

	"softib/proto/ib"
)

// ackWatch is what the machine knows of how a queue pair waits for acknowledgements.
type ackWatch struct {
	since   ib.Time // since when packets are on their way, by the machine's clock; Never if none is
	expired uint32
}

// step has the process's endpoint do something, and sees to it that no queue pair takes a packet for lost before its
// time (IBA 9.7.6.1.3), whatever the endpoint believes about the time.
func (p *process) step(do func()) {
	p.watchTimers(p.stepped) // what has happened since the last step did so at some time after it
	do()
	p.watchStaged()
	p.observe()
	p.stepped = p.m.Now()
	p.watchTimers(p.stepped)
}

// watchTimers looks at the queue pairs: packets that were not on their way when it last looked are so since began.
func (p *process) watchTimers(began ib.Time) {
	s := &p.ep.Engine().Stats
	if s.TxPackets == p.sent && s.RxPackets == p.received && s.Timeouts == p.timeouts {
		return
	}
	p.sent, p.received, p.timeouts = s.TxPackets, s.RxPackets, s.Timeouts
	for i, q := range p.ep.Engine().QPs() {
		if i >= len(p.waits) {
			p.waits = append(p.waits, ackWatch{since: ib.Never})
		}
		w := &p.waits[i]
		if q == nil {
			*w = ackWatch{since: ib.Never}
			continue
		}
		is := q.AckWait()
		if is.Expired != w.expired {
			if waited := p.m.Now() - w.since; is.Timeout != ib.Never && waited < is.Timeout {
				p.m.Early = append(p.m.Early,
					fmt.Sprintf("h%d %v gives a packet up after %v: want %v", p.host+1, q, waited, is.Timeout))
			}
			w.since = p.m.Now()
		}
		w.expired = is.Expired
		switch {
		case !is.Waits:
			w.since = ib.Never
		case w.since == ib.Never:
			w.since = began
		}
	}
}
