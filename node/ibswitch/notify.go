package ibswitch

import (
	"softib/node/link"
	"softib/proto/ib"
)

// Fault routing notifications: a switch that has no port left for a packet tells the one that the packet came from, so
// that the next packet for that LID goes another way. Without them a lost link is avoided on the way up alone: above
// its destination a switch has one way down, and nobody below knows that it is gone. NVIDIA's switches heal themselves
// so; how theirs look on the wire is not public.

// Notice is what a switch has to tell the neighbour at a port: that it has no way to a LID. News that it was told
// itself is no younger when it passes it on: else a lost link would be avoided by one switch after the other, long
// after it is back.
type Notice struct {
	Port ib.PortNum
	LID  ib.LID
	Age  ib.Time
}

// NoticeLife is for how long a neighbour that has no way to a LID is left alone. Then a packet tries again: the link
// may have come back, of which nobody tells.
const NoticeLife = 10 * ib.Millisecond

// avoidance is the ports behind which there is no way to a LID, and since when that is known of the last of them.
type avoidance struct {
	ports ib.PortMask
	since ib.Time
}

// avoids is the ports that a packet's group does without.
func (a *adaptive) avoids(f *link.Frame) (m ib.PortMask) {
	if v, ok := a.avoid[f.LRH.DLID]; ok && f.Arrived-v.since <= NoticeLife {
		m = v.ports
	}
	return m
}

// notify has the neighbour told that sent a packet for which there is no way.
func (s *Switch) notify(f *link.Frame, r link.Reason) {
	if a := s.adaptive; a != nil && a.On && a.Notify && (r == link.Inactive || r == link.UnknownDLID) &&
		f.InPort != 0 && f.LRH.VL != ib.VLMgmt {
		n := Notice{Port: f.InPort, LID: f.LRH.DLID}
		if v, ok := a.avoid[n.LID]; ok && f.Arrived-v.since <= NoticeLife {
			n.Age = f.Arrived - v.since
		}
		a.notices.Push(n)
	}
}

// PollNotice is the next that a neighbour is to be told.
func (s *Switch) PollNotice() (Notice, bool) {
	if s.adaptive == nil {
		return Notice{}, false
	}
	return s.adaptive.notices.Pop()
}

// HandleNotice takes what the neighbour at a port has told.
func (s *Switch) HandleNotice(now ib.Time, n Notice) {
	a := s.adaptive
	if a == nil || !a.On || !a.Notify {
		return
	}
	v := a.avoid[n.LID]
	if now-v.since > NoticeLife {
		v = avoidance{since: now - n.Age}
	}
	v.ports.Set(n.Port)
	v.since = max(v.since, now-n.Age)
	if a.avoid == nil {
		a.avoid = map[ib.LID]avoidance{}
	}
	a.avoid[n.LID] = v
	if int(n.LID) < len(s.active) {
		s.active[n.LID] = DropPort // so that choose is asked, also where there is one port only
	}
}

// only is the way out for a packet whose LID has one port.
func (a *adaptive) only(home ib.PortNum, f *link.Frame) ib.PortNum {
	if m := a.avoids(f); m.Has(home) {
		return DropPort
	}
	return home
}
