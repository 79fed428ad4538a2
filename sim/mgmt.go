package sim

import (
	"softib/ibswitch"
	"softib/link"
)

// switchMgmt hands packets that came for a switch itself to its agent.
func (s *Sim) switchMgmt(at uint32, p *link.Port, sw *ibswitch.Switch) {
	for f := sw.PollMgmt(); f != nil; f = sw.PollMgmt() {
		if in := sw.Left(f); in != 0 {
			s.kickFC(p.Site.First + uint32(in))
		}
		s.pool.Put(f)
	}
}
