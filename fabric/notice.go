package fabric

import (
	"softib/node/ibswitch"
	"softib/proto/ib"
)

// sendNotices tells neighbours that a switch has no way to where their packets are to go. A notice gets lost as a
// flow-control packet does, and like one it waits for nothing; it takes no time of the cable, since there is one for a
// packet that was discarded at most. Hosts have no other way: they are told nothing.
func (e *Engine) sendNotices(first uint32, sw *ibswitch.Switch) {
	for n, ok := sw.PollNotice(); ok; n, ok = sw.PollNotice() {
		at := first + uint32(n.Port)
		p, t := e.ports[at], e.now
		if p.Site.Peer == NoEnd || e.ports[p.Site.Peer].Site.Host >= 0 ||
			p.Site.Flags&endFaulty != 0 && e.harmFC(at, p, &t) {
			continue
		}
		e.pushFar(p, t+p.Site.Delay, code(evNotice, p.Site.Peer, uint32(n.LID)|uint32(n.Age/ib.Microsecond)<<16))
	}
}

// arriveNotice handles one that has reached a port of a switch.
func (e *Engine) arriveNotice(at uint32, arg uint32) {
	p := e.ports[at]
	if p.Site.Flags&endStopped != 0 {
		return
	}
	e.Mix(at, uint64(evNotice)<<56|uint64(arg))
	e.switches[p.Site.Node].HandleNotice(e.now, ibswitch.Notice{Port: p.Site.Num, LID: ib.LID(arg),
		Age: ib.Time(arg>>16) * ib.Microsecond})
}
