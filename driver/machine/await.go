package machine

import (
	"softib/driver/endpoint"
	"softib/proto/ib"
)

// Programs that sleep do so at a descriptor, and the attendant tells them of events, or in the library, where whoever
// sends wakes their thread (endpoint.Await).

// inLibrary reports whether this one does the latter.
func (p *process) inLibrary() bool { return p.host%2 == 0 }

// wakes is the kernel's wake-up of the program's thread or the attendant.
func (p *process) wakes(program, attendant bool) (any bool) {
	if program && p.asleep {
		p.rise()
		p.awaitLater(p.m.around(wakeTime))
		any = true
	}
	if attendant {
		p.woken()
		any = true
	}
	return any
}

func (p *process) awaitLater(d ib.Time) { p.later(&p.awaitAt, doAwait, d) }

// rise ends the thread's sleep.
func (p *process) rise() {
	p.asleep = false
	*p.ep.Sleepers() = 0
}

// await is a turn of the thread that waits in the library. With the event the program goes on.
func (p *process) await() {
	if p.m.Now() != p.awaitAt {
		return // another turn has taken this one's place
	}
	p.awaitAt = ib.Never
	if p.rests() {
		if !p.dead {
			p.awaitLater(p.still - p.m.Now())
		}
		return
	}
	p.rise()
	bell := uint32(0)
	if !p.event {
		p.step(func() { bell = p.ep.Await() })
	}
	switch {
	case p.event:
		p.lookLater(turnTime)
	case !endpoint.MaySleep(bell):
		p.awaitLater(turnTime)
	default:
		p.asleep = true
		*p.ep.Sleepers() = 1
		if !p.dozed {
			p.dozed = true
			p.awaitLater(endpoint.Doze)
		}
	}
}
