package machine

import (
	"softib/driver/endpoint"
	"softib/proto/ib"
)

// Programs that sleep do so at a descriptor, and the attendant tells them of events, or in the library, where whoever
// sends wakes their thread (endpoint.Await). Those that poll where C code looks sleep there too, where cores are short
// (endpoint.Nap).

// inLibrary reports whether this one does the latter.
func (p *process) inLibrary() bool { return p.host%2 == 0 }

// wakes is the kernel's wake-up of the program's thread or the attendant.
func (p *process) wakes(program, attendant bool) (any bool) {
	if program && p.asleep {
		if p.habit == Fetches {
			p.lookLater(p.m.around(wakeTime))
		} else {
			p.awaitLater(p.m.around(wakeTime))
		}
		p.rise()
		p.m.count[Wakes]++
		any = true
	}
	if attendant {
		p.woken()
		p.m.count[Wakes]++
		any = true
	}
	return any
}

func (p *process) awaitLater(d ib.Time) { p.later(&p.awaitAt, doAwait, d) }

// lie begins the thread's sleep, and rise ends it.
func (p *process) lie() {
	p.asleep = true
	p.m.count[Naps]++
	all, naps := p.ep.Sleepers()
	if *all = 1; p.habit == Fetches {
		*naps = 1
	}
}

func (p *process) rise() {
	p.asleep = false
	all, naps := p.ep.Sleepers()
	*all, *naps = 0, 0
}

// naps lets a program that polls in vain sleep at times, and reports whether it does.
func (p *process) naps() bool {
	if p.habit != Fetches || p.empties%napEvery != napEvery-1 || !p.m.troubled() {
		return false
	}
	bell := uint32(0)
	p.step(func() { bell = p.ep.Nap() })
	for _, t := range p.lists {
		if len(t.list) > 0 {
			return false
		}
	}
	if !endpoint.MaySleep(bell) {
		return false
	}
	p.lie()
	p.lookLater(endpoint.Doze)
	return true
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
		p.lie()
		if !p.dozed {
			p.dozed = true
			p.awaitLater(endpoint.Doze)
		}
	}
}
