package live

import (
	"softib/node/agent"
	"softib/proto/ib"
	"softib/proto/mad"
)

// train brings up the link at p where both ends poll and a cable joins them, at the best rate that both are allowed. The
// fabric's lock is held.
func (f *Fabric) train(p *portState) {
	far := p.peer
	if far == nil || p.unplugged || p.link.Phys() != ib.PhysPolling || far.link.Phys() != ib.PhysPolling {
		return
	}
	rate, other := p.mgmt.TrainRate(p.num), far.mgmt.TrainRate(far.num)
	if other.Width.Lanes() < rate.Width.Lanes() {
		rate.Width = other.Width
	}
	rate.Speed = min(rate.Speed, other.Speed)
	p.link.Train()
	far.link.Train()
	f.eng.Advance(f.Now())
	f.eng.LinkUp(p.place(), rate)
}

// SMP hands a management datagram to the agent of a node, as if it had come in by inPort (0: from the node itself).
// False means that there is no answer. Performance management goes the same way.
func (f *Fabric) SMP(node int, inPort ib.PortNum, req, resp *[mad.Size]byte) (ok bool) {
	n := f.node(node)
	if n == nil || f.closed.Load() {
		return false
	}
	var p packet
	p.direct(req[:])
	at := place{n, inPort, inPort == 0}
	f.lock(f.Now())
	if mad.View(req[:]).Class().IsSubnet() {
		ok = f.deliver(at, &p).Do != agent.Discard && mad.View(p.data[:]).Method().IsResponse()
	} else {
		ok = f.handle(at, &p)
	}
	f.unlock()
	*resp = p.data
	return ok
}
