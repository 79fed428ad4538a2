package machine

import (
	"os"

	"softib/driver/endpoint"
	"softib/node/hca"
)

// readyList is where C code would find a queue's completions.
type readyList struct {
	cq   *hca.CQ
	list []hca.WC
}

// listRoom is how many completions fit there.
const listRoom = 8

func (t *readyList) move() {
	var wcs [listRoom]hca.WC
	n := t.cq.Poll(wcs[:listRoom-len(t.list)])
	t.list = append(t.list, wcs[:n]...)
}

func (t *readyList) outside() int { return len(t.list) }

// Poll moves completions of a queue of a host's program to out, as the program does it.
func (m *Machine) Poll(host int, cq *hca.CQ, out []hca.WC) int {
	p := m.procs[host]
	if p.dead {
		return 0
	}
	n := 0
	p.step(func() {
		if p.habit == Fetches {
			n = p.reap(cq, out)
		} else {
			n = p.ep.Poll(cq, out)
		}
	})
	if n > 0 {
		p.found = true
	}
	for i := range out[:n] {
		m.mix(uint64(m.Now()) ^ out[i].WRID<<8 ^ uint64(out[i].Status)<<4 ^ uint64(host))
	}
	return n
}

// reap is Poll for a queue with a ready list: what is there, else what a call brings.
func (p *process) reap(cq *hca.CQ, out []hca.WC) int {
	t := p.lists[cq]
	if t == nil {
		t = &readyList{cq: cq}
		p.lists[cq] = t
		p.ep.UseReadyList(cq, t.move, t.outside)
	}
	if len(t.list) == 0 || len(p.staged) > 0 {
		p.ep.Advance(cq, min(p.empties, endpoint.Spun))
	}
	n := copy(out, t.list)
	t.list = t.list[:copy(t.list, t.list[n:])]
	return n
}

// Arm asks for an event of a queue where the program is about to sleep.
func (m *Machine) Arm(host int, cq *hca.CQ) {
	p := m.procs[host]
	if p.dead || !p.sleepy() {
		return
	}
	p.ep.NotifyCQ(cq, func() {
		p.armed, p.event = false, true
		if !p.inLibrary() {
			p.lookLater(m.around(wakeTime))
		}
		p.ep.Told()
	})
	p.armed = true
	p.ep.Arm(cq, false)
	if p.inLibrary() {
		p.dozed = false
		p.awaitLater(turnTime)
	}
}

// PollEvent is the oldest asynchronous event of a host's program.
func (m *Machine) PollEvent(host int) (hca.Event, bool) {
	p := m.procs[host]
	if len(p.events) == 0 {
		return hca.Event{}, false
	}
	e := p.events[0]
	p.events = p.events[1:]
	return e, true
}

// self is this process, as rings know it: everything here is in one. outsider is none.
var self = os.Getpid()

const outsider = 0

func takeRing() []byte { return *ringPool.Get().(*[]byte) }

// giveRing clears what a ring's ends believe; payloads they have written themselves.
func giveRing(mem []byte) {
	clear(mem[:endpoint.RingHeadBytes])
	ringPool.Put(&mem)
}

func takeSlots() []byte { return *slotsPool.Get().(*[]byte) }
