package ibswitch

import (
	"softib/node/link"
	"softib/proto/ib"
	"softib/proto/wire"
)

// Decision is what a switch does with a packet. All who move packets ask for it here: the switch itself, who walks the
// tables to find a way, and who carries datagrams of management from node to node.
type Decision struct {
	// Reason is link.OK if the packet goes on. If not, port At counts it.
	Reason link.Reason
	At     ib.PortNum
	// Out is the way out and VL the lane there. Port 0 is the switch itself.
	Out ib.PortNum
	VL  ib.VL
	// Chosen: it is one of a group of ports.
	Chosen bool
	// Fan: it is multicast, Fan lists its ways out, and Leave decides about each.
	Fan bool
}

func drop(r link.Reason, at ib.PortNum) Decision { return Decision{Reason: r, At: at} }

// Decide says what becomes of a packet that was received at port in, or that the switch has made itself (port 0). It
// changes nothing. Partitions and SL2VL are not for subnet management, which stays on VL15 (IBA 18.2.4.3.3); its DLID
// may be permissive.
func (s *Switch) Decide(in ib.PortNum, f *link.Frame) Decision { return s.decide(in, 0, f) }

// Leave says whether a packet from port in may leave by port out, which is not 0, and on which lane.
func (s *Switch) Leave(in, out ib.PortNum, f *link.Frame) Decision { return s.decide(in, out, f) }

// decide is both: out is 0 where the tables say which it is. It is one function because every packet passes here.
func (s *Switch) decide(in, out ib.PortNum, f *link.Frame) Decision {
	lrh := &f.LRH
	chosen := false
	if out == 0 {
		if lrh.VL != ib.VLMgmt {
			if r := s.ports[in].RefusesIn(f); r != link.OK {
				return drop(r, in)
			}
			if lrh.DLID >= ib.LIDMulticastMin && lrh.DLID != ib.LIDPermissive {
				return Decision{Fan: true}
			}
		} else if lrh.DLID == ib.LIDPermissive {
			return Decision{}
		}
		if int(lrh.DLID) >= len(s.active) {
			return drop(link.UnknownDLID, in)
		}
		out = s.active[lrh.DLID]
		if out == DropPort {
			out, chosen = s.choose(in, f), true
		}
		switch {
		case int(out) >= len(s.ports):
			return drop(link.UnknownDLID, in)
		case out == 0:
			return Decision{}
		case out == in:
			return drop(link.Looping, in) // IBA 18.2.4.3
		}
	}
	o := &s.ports[out]
	// Discards of a port that is not up count where the packet would have left (IBA 16.1.3.5).
	if lrh.VL == ib.VLMgmt {
		return Decision{Reason: o.Sends(ib.VLMgmt), At: out, Out: out, VL: ib.VLMgmt}
	}
	if o.State() != ib.PortActive {
		return drop(link.Inactive, out)
	}
	vl := s.lane(in, out, lrh)
	// VL15 in the map means discard (IBA 7.6.6), and so does a lane that is not in use; a map that nobody wrote makes
	// do with the lanes that there are.
	if vl >= ib.VLMgmt || !o.IsOperVL(vl) {
		if s.mapIsSet(in, out) {
			return drop(link.BadVLMap, in)
		}
		vl = ib.VL(uint8(lrh.SL&15) % o.OperVLs())
	}
	return Decision{Reason: o.RefusesOut(f), At: out, Out: out, VL: vl, Chosen: chosen}
}

// lane is what the maps say of a data packet.
func (s *Switch) lane(in, out ib.PortNum, lrh *wire.LRH) ib.VL {
	by := uint8(lrh.SL)
	if s.byLane {
		if by = uint8(lrh.VL); plantFlat && by > 0 && s.sl2vl[s.pair(in, out)][by&15] > 0 {
			return lrh.VL
		}
	}
	if s.sl2vl == nil {
		return s.sl2vlAll[by&15]
	}
	return s.sl2vl[s.pair(in, out)][by&15]
}

// Fan lists the ways out of a multicast packet that came in by port in: those of its group, or the default ports where
// no entry names any (IBA 18.2.4.3.3, 18.2.4.3.4), but never the way that it came by.
func (s *Switch) Fan(in ib.PortNum, mlid ib.LID) (ib.PortMask, link.Reason) {
	mask := s.MulticastPorts(mlid)
	if mask.Empty() {
		def := s.info.DefaultMcastPrimary
		if in == def {
			def = s.info.DefaultMcastNotPrimary
		}
		if int(def) >= len(s.ports) {
			return mask, link.UnknownDLID
		}
		mask.Set(def)
	}
	mask.Clear(in)
	mask.Cut(len(s.ports))
	if mask.Empty() {
		return mask, link.NoMember
	}
	return mask, link.OK
}
