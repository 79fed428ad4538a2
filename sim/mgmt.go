package sim

// switchMgmt hands packets that came for a switch itself to its agent.
func (s *Sim) switchMgmt(at uint32, e *end) {
	for f := e.sw.PollMgmt(); f != nil; f = e.sw.PollMgmt() {
		if in := e.sw.Left(f); in != 0 {
			s.kickFC(e.first + uint32(in))
		}
		s.pool.Put(f)
	}
}
