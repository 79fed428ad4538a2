package ibswitch

import (
	"softib/node/link"
	"softib/proto/ib"
)

// byHash is the way out of a packet's flow among the ports of a group that lead on: equal-cost multipath, as Ethernet
// switches have it. A flow is what differs between packets of RoCEv2 in the headers that are hashed: source,
// destination, and the UDP source port, which stands for the queue pair (IBA A17.9.1). All packets of a flow go the
// same way, whatever waits there; a link that goes down moves flows that had nothing to do with it, too, as a hash
// modulo the number of ports does.
func (s *Switch) byHash(in, home ib.PortNum, group ib.PortMask, f *link.Frame) ib.PortNum {
	n := uint64(0)
	rest := group
	for p, ok := rest.Pop(); ok; p, ok = rest.Pop() {
		if s.leads(in, p) && !s.falls(in, p, f) {
			n++
		} else {
			group.Clear(p)
		}
	}
	if n == 0 {
		return home
	}
	i := HashFlow(f.LRH.SLID, f.LRH.DLID, f.Packet.BTH.DestQP, s.adaptive.Salt) % n
	for range i {
		group.Pop()
	}
	p, _ := group.Pop()
	return p
}

// HashFlow is the hash of a flow: modulo the number of ports, it is which of these the flow takes.
func HashFlow(source, dest ib.LID, qp ib.QPN, salt uint64) uint64 {
	h := (uint64(source)<<48 | uint64(dest)<<32 | uint64(qp)) ^ salt
	h = (h ^ h>>33) * 0xFF51AFD7ED558CCD
	h = (h ^ h>>33) * 0xC4CEB9FE1A85EC53
	return h ^ h>>33
}
