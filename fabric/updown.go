package fabric

import (
	"softib/node/link"
	"softib/proto/ib"
	"softib/proto/trace"
)

// ends are the ends of the cable at a port that are within the engine.
func (e *Engine) ends(at uint32) []uint32 {
	if peer := e.ports[at].Site.Peer; peer != NoEnd {
		return []uint32{at, peer}
	}
	return []uint32{at}
}

// cabled reports whether a port has a cable.
func cabled(p *link.Port) bool { return p.Site.Peer != NoEnd || p.Site.Flags&endOutside != 0 }

// IsUp reports whether a link is physically up or about to be.
func IsUp(p *link.Port) bool {
	return p.Phys() == ib.PhysLinkUp || p.Phys() == ib.PhysErrorRecovery || p.Phys() == ib.PhysTraining
}

// Pull takes the cable at a port, if there is one, out, or plugs it in again, to be trained.
func (e *Engine) Pull(at uint32, out bool) {
	if !cabled(e.ports[at]) {
		return
	}
	for _, i := range e.ends(at) {
		e.pulled[i] = out
	}
	if out {
		e.LogFault(FaultLinkDown, at, nil)
		e.LinkDown(at)
	} else {
		e.LogFault(FaultLinkUp, at, nil)
		e.StartTraining(at)
	}
}

// LinkDown takes both ends of a cable down; what flies on it is lost.
func (e *Engine) LinkDown(at uint32) {
	for _, i := range e.ends(at) {
		p := e.ports[i]
		if IsUp(p) {
			p.Down(e.now)
		}
		e.flush(i, p)
		e.note(Changed, i, 0)
	}
	e.loseInFlight(at, e.ports[at].Site.Peer)
}

// loseInFlight takes what flies towards either end of a cable out of the queue.
func (e *Engine) loseInFlight(a, b uint32) {
	flying := e.q.cancel(func(d uint64) bool {
		k, place, _ := split(d)
		return (place == a || place == b) && (k == evArrive || k == evFC || k == evPause || k == evNotice)
	})
	for _, ev := range flying {
		k, place, frame := split(ev.d)
		if k != evArrive {
			continue
		}
		from := e.ports[place].Site.Peer
		if from == NoEnd {
			from = a // it came from outside
		}
		e.lose(FaultLostInFlight, from, e.pool.At(frame), trace.LinkDown)
	}
}

// StartTraining has both ends of a cable train if both can.
func (e *Engine) StartTraining(at uint32) {
	ends := e.ends(at)
	for _, i := range ends {
		p := e.ports[i]
		if p.Site.Flags&endStopped != 0 || e.pulled[i] || p.Phys() != ib.PhysPolling {
			return
		}
	}
	for _, i := range ends {
		e.ports[i].Train()
	}
	e.q.push(e.now+e.cfg.TrainTime, code(evTrain, at, 0))
}

// trained tells that training is over, unless a port went down meanwhile.
func (e *Engine) trained(at uint32) {
	for _, i := range e.ends(at) {
		if e.ports[i].Phys() != ib.PhysTraining {
			return
		}
	}
	e.note(Trained, at, 0)
}

// LinkUp ends the training of a cable, at the rate that its ends have settled on. Both are in Initialize then, and tell
// their credits.
func (e *Engine) LinkUp(at uint32, rate ib.LinkRate) {
	ends := e.ends(at)
	if rate != e.ports[at].Rate() {
		for _, i := range ends {
			e.ports[i].SetRate(rate)
			e.Retime(int(e.ports[i].Site.Node))
		}
	}
	for _, i := range ends {
		e.ports[i].LinkUp(e.now)
	}
	for _, i := range ends {
		if p := e.ports[i]; p.Site.Flags&endFresh == 0 {
			p.SetRefresh(e.now, e.cfg.AlwaysRefresh)
			e.armRefresh(i)
			e.kick(i)
		}
	}
}

// Settle lets a link follow what management has written at its port: one that was taken down loses its far end and
// trains again, if both ends may.
func (e *Engine) Settle(at uint32) {
	p := e.ports[at]
	e.flush(at, p)
	if p.Site.Peer == NoEnd {
		return
	}
	if IsUp(p) != IsUp(e.ports[p.Site.Peer]) {
		e.LinkDown(at)
	}
	if p.Phys() == ib.PhysPolling {
		e.StartTraining(at)
	}
	e.kick(at)
	e.armPort(at, p)
}

// Stop ends a node: nothing goes in or out any more.
func (e *Engine) Stop(node int) {
	for num, p := range e.portsOf(node) {
		if p.Site.Peer != NoEnd && IsUp(p) {
			e.LinkDown(e.first[node] + uint32(num))
		}
		p.Site.Flags |= endStopped
	}
}

// IsStopped reports whether a node was stopped.
func (e *Engine) IsStopped(node int) bool { return e.ports[e.first[node]].Site.Flags&endStopped != 0 }

// Reset makes a switch start anew: its links go down and train again, and it has forgotten all that managers wrote.
func (e *Engine) Reset(node int) {
	first, sw := e.first[node], e.switches[node]
	ports := e.portsOf(node)
	for num, p := range ports {
		if p.Site.Peer != NoEnd && IsUp(p) {
			e.LinkDown(first + uint32(num))
		}
	}
	for f := sw.PollMgmt(); f != nil; f = sw.PollMgmt() {
		sw.Left(f)
		e.Drop(first, f, link.NotReady)
	}
	sw.Reset()
	for num, p := range ports {
		if p.Site.Peer != NoEnd {
			e.StartTraining(first + uint32(num))
		}
	}
}

// Restate looks at all cables in use after states or tables have changed by other hands than the engine's: ports may
// have given up packets, and links may have come up with no credit.
func (e *Engine) Restate() {
	for _, at := range e.used {
		p := e.ports[at]
		e.flush(at, p)
		if p.State() >= ib.PortInit && p.Site.Peer != NoEnd && !agree(p, e.ports[p.Site.Peer]) {
			e.lossy(at)
		}
		e.kick(at)
	}
}

// freshen begins flow control on a cable that had none so far, though its ports were up all the time.
func (e *Engine) freshen(at uint32) {
	ends := e.ends(at)
	for _, i := range ends {
		e.ports[i].Site.Flags &^= endFresh
		e.used = append(e.used, i)
	}
	for _, i := range ends {
		e.kickFC(i)
	}
	e.lossy(at)
}
