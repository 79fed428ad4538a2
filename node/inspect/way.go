package inspect

import (
	"strings"

	"softib/node/link"
	"softib/proto/ib"
	"softib/proto/topo"
)

// StateName is a port's state, or that of a link, as InfiniBand's tools shout it.
func StateName(s ib.PortState) string { return strings.ToUpper(s.String()) }

// WayHop is a cable that packets of a way cross.
type WayHop struct {
	// Out is the port that they leave by, and In where they come in.
	Out, In topo.PortRef
	// VL is the lane that they take.
	VL ib.VL
	// Rate and MTU are what the link runs at and lets through.
	Rate ib.LinkRate
	MTU  ib.MTU
}

// Way is the way that packets take, as the nodes' own tables and states have it now.
type Way struct {
	Hops []WayHop
	// Reason is link.OK if they arrive. If not, Lost is the port where they end: the one that they came in by if the
	// switch behind it drops them, the one that they would have left by if it does not let them go.
	Reason link.Reason
	Lost   topo.PortRef
	// Out is the port that the last switch has for them, where it has one; DropPort if not.
	Out ib.PortNum
	// Leaves is set where the rest is another machine's to tell: the cable by which they go there.
	Leaves *WayHop
}

// End is the port where the way ends.
func (w *Way) End() topo.PortRef {
	if w.Reason != link.OK {
		return w.Lost
	}
	return w.Hops[len(w.Hops)-1].In
}

// Probed is what became of a probe.
type Probed struct {
	// Arrived says that the adapter at its end has taken it, and At is that port. Else At is where it vanished and
	// Reason why; where an adapter refused it, KeyRefused is set.
	Arrived    bool
	At         topo.PortRef
	Reason     link.Reason
	KeyRefused bool
	// Leaves is set where the rest is another machine's to tell: the cable by which it goes there.
	Leaves *WayHop
}

// IsKey reports whether a partition is why the probe vanished.
func (p *Probed) IsKey() bool {
	return !p.Arrived && (p.KeyRefused || p.Reason == link.PKeyIn || p.Reason == link.PKeyOut)
}

// SwitchTables is what a switch holds.
type SwitchTables struct {
	LID ib.LID
	LMC uint8
	// LFT has the port for each LID up to LinearFDBTop.
	LFT []ib.PortNum
	// Groups are the multicast LIDs that have ports.
	Groups []GroupPorts
}

// GroupPorts are the ports that a switch copies packets of a multicast LID to.
type GroupPorts struct {
	MLID  ib.LID
	Ports []ib.PortNum
}
