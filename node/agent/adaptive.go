package agent

import "softib/proto/mad"

// adaptive is the node as a switch that chooses; nil if it is none.
func (a *Agent) adaptive() AdaptiveSwitch {
	s, _ := a.sw.(AdaptiveSwitch)
	return s
}

// arInfo serves AdaptiveRoutingInfo.
func (a *Agent) arInfo(r *request) mad.Status {
	s := a.adaptive()
	switch {
	case s == nil:
		return mad.StatusUnsupMethodAttr
	case r.mod != 0:
		return mad.StatusInvalidField
	}
	if r.set {
		var want mad.ARInfo
		if _, err := want.Parse(r.data); err != nil {
			return failed(err)
		}
		next := s.ARInfo()
		next.Enabled, next.BySL, next.SLMask, next.AgeingTime = want.Enabled, want.BySL, want.SLMask, want.AgeingTime
		next.NoTransports, next.DetourLanes = want.NoTransports, want.DetourLanes
		if next.SubGroupsActive = want.SubGroupsActive; want.SubGroupsActive > 1 ||
			(want.SubGroupsActive == 1) != (want.DetourLanes != 0) {
			return mad.StatusInvalidField
		}
		if err := s.SetARInfo(r.now, next); err != nil {
			return failed(err)
		}
	}
	i := s.ARInfo()
	i.Append(r.answer())
	return mad.StatusOK
}

// extSwitchInfo serves ExtendedSwitchInfo.
func (a *Agent) extSwitchInfo(r *request) mad.Status {
	s := a.adaptive()
	switch {
	case s == nil:
		return mad.StatusUnsupMethodAttr
	case r.mod != 0:
		return mad.StatusInvalidField
	}
	if r.set {
		var want mad.ExtSwitchInfo
		if _, err := want.Parse(r.data); err != nil {
			return failed(err)
		}
		next := s.ExtSwitchInfo()
		next.ByLane = want.ByLane
		if err := s.SetExtSwitchInfo(r.now, next); err != nil {
			return failed(err)
		}
	}
	x := s.ExtSwitchInfo()
	x.Append(r.answer())
	return mad.StatusOK
}

// arGroups serves AdaptiveRoutingGroupTable. There is one table, with the sets of all groups.
func (a *Agent) arGroups(r *request) mad.Status {
	s := a.adaptive()
	if s == nil {
		return mad.StatusUnsupMethodAttr
	}
	block := int(r.mod)
	if r.mod > 0xFFFF || block >= blocks(int(s.ARInfo().GroupCap), mad.ARGroupsPerBlock) {
		return mad.StatusInvalidField
	}
	if r.set {
		var t mad.ARGroupTable
		if _, err := t.Parse(r.data); err != nil {
			return failed(err)
		}
		if err := s.SetARGroups(r.now, block, t); err != nil {
			return failed(err)
		}
	}
	t := s.ARGroups(block)
	t.Append(r.answer())
	return mad.StatusOK
}

// arLFT serves AdaptiveRoutingLinearForwardingTable.
func (a *Agent) arLFT(r *request) mad.Status {
	s := a.adaptive()
	if s == nil {
		return mad.StatusUnsupMethodAttr
	}
	block := int(r.mod)
	if r.mod > 0xFFFF || block >= blocks(int(a.linearCap), mad.ARLFTPerBlock) {
		return mad.StatusInvalidField
	}
	if r.set {
		var t mad.ARLFT
		if _, err := t.Parse(r.data); err != nil {
			return failed(err)
		}
		for _, e := range t {
			most := s.ARInfo().GroupCap - 1
			if e.State == mad.ARStatic {
				most = uint16(mad.LFTNone) // it is a port
			}
			if e.State > mad.ARStatic || e.Group > most || e.State != mad.ARStatic && e.Table != 0 {
				return mad.StatusInvalidField
			}
		}
		if err := s.SetARLFT(r.now, block, t); err != nil {
			return failed(err)
		}
	}
	t := s.ARLFT(block)
	t.Append(r.answer())
	return mad.StatusOK
}
