package route

import "softib/proto/ib"

// NoPort in a forwarding table drops the packet: it is no port.
const NoPort ib.PortNum = 0xFF

// NoSwitch is the To of a port that leads to no switch.
const NoSwitch int32 = -1

// Hop is one end of a cable, seen from the switch that it is plugged into.
type Hop struct {
	// To is the switch at the far end; NoSwitch for a port that is down, free, or leads to an end port.
	To int32
	// Port is the port at the far end.
	Port ib.PortNum
}

// Switch is a switch of the network.
type Switch struct {
	GUID ib.GUID
	// Ports is indexed by port number; entry 0 is the switch itself and leads nowhere.
	Ports []Hop
	// Ends counts the end ports (of channel adapters and routers) that hang on the switch.
	Ends int
}

// Dest is a LID that tables have to lead to. Those of one end port are
// neighbours in Network.Dests, in ascending order of LID.
type Dest struct {
	LID ib.LID
	// Switch is where it hangs, and Port by which port; port 0 is the switch itself.
	Switch int32
	Port   ib.PortNum
	// PathBits is the LID's offset to the port's base LID, 0 unless LMC is set.
	PathBits uint8
	// IO marks end ports that carry storage or service traffic rather than compute; ways to them are spread apart from
	// the others.
	IO bool
}

// IsEnd reports whether the destination is an end port rather than a switch.
func (d Dest) IsEnd() bool { return d.Port != 0 }

// Network is a fabric as routing sees it: only what is up.
type Network struct {
	Switches []Switch
	// Dests has the end ports of one switch next to each other.
	Dests []Dest
	// Top is the highest unicast LID in use.
	Top ib.LID
}

// Lanes of the links: how many data VLs routing may use (1 to 15).
type Lanes int

// Tables are what an engine computes: forwarding entries and how service levels keep the ways apart.
type Tables struct {
	// Engine is the name of the engine that made them.
	Engine string
	// LFT is the port for each LID, by switch; NoPort where there is no way. All rows have Top+1 entries.
	LFT [][]ib.PortNum
	// VLs is how many lanes the ways need in order to be free of deadlock, at least 1.
	VLs int
	// SL is the service level to be used from a switch's end ports to a destination, by [source switch][index into
	// Network.Dests]. Nil if all ways use level 0 and one lane is enough; a nil row means 0 too.
	SL [][]ib.SL
	// SLtoVL is the lane for packets of a level that enter a switch by one port and leave by another; nil if lane =
	// level.
	SLtoVL LaneMap
	// ByLane: SLtoVL goes by the lane that a packet came on instead of its level. Adapters send on lane 0 then.
	ByLane bool
	// Rank, where it is not nil, is a height of every switch, no two alike, in which all ways between end ports go up
	// and then down. It proves that they cannot wait for each other in a circle, and that the ways of two table sets
	// with the same ranks cannot.
	Rank []int32

	// made is the network that the tables were computed for, index the number that says each destination's way in a
	// tree, nil for other tables, and own the one that it would have if no cable were missing: Repair goes on from
	// there. Whole is the network whose shape they are numbers of.
	made, whole *Network
	index, own  []uint64
	dragon      *dragon
}

// MayChoose reports whether there are groups of ports that go with the tables (see Adaptive).
func (t *Tables) MayChoose() bool { return t.Rank != nil || t.dragon != nil }

// MayMend reports whether Repair can do with less than computing all anew.
func (t *Tables) MayMend() bool { return t.index != nil && t.Rank != nil }

// LaneMap says which lane a switch gives to a service level.
type LaneMap interface {
	// VL is the lane. In is 0 for packets of the switch itself; at an end port's own adapter, Lane of the first hop, sw
	// is NoSwitch and in and out are 0.
	VL(sw int32, in, out ib.PortNum, sl ib.SL) ib.VL
}

// Level is the service level for a way.
func (t *Tables) Level(src int32, dest int) ib.SL {
	if t.SL == nil || src < 0 || int(src) >= len(t.SL) || t.SL[src] == nil {
		return 0
	}
	return t.SL[src][dest]
}

// Lane is the lane that a packet takes on leaving a switch; sl is the lane that it came on for tables that are ByLane.
func (t *Tables) Lane(sw int32, in, out ib.PortNum, sl ib.SL) ib.VL {
	if t.SLtoVL != nil {
		return t.SLtoVL.VL(sw, in, out, sl)
	}
	if t.SL == nil {
		return 0
	}
	return ib.VL(sl)
}
