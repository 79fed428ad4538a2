package agent

import (
	"fmt"

	"softib/proto/ib"
	"softib/proto/mad"
)

// Action is what becomes of a subnet management packet at a node.
type Action uint8

// Actions.
const (
	// Discard drops the packet without a word.
	Discard Action = iota
	// Local hands it to the agent or, on the way back, to the manager of
	// this node.
	Local
	// SendPort sends it out of a port by directed route: on VL15, both LIDs
	// permissive.
	SendPort
	// SendLID ends (or ends the return of) the directed part: the packet
	// goes on to a LID through the forwarding table, with this node's own LID
	// as its source.
	SendLID
	// AsAddressed sends it by LID as its sender has addressed it: a request to
	// the LID that the manager chose, a response to the requester's.
	AsAddressed
	// ToManager hands it to the subnet manager of this node.
	ToManager
	NumAction
)

var actionNames = [NumAction]string{"Discard", "Local", "SendPort", "SendLID", "AsAddressed", "ToManager"}

func (a Action) String() string {
	if a < NumAction {
		return actionNames[a]
	}
	return fmt.Sprintf("Action(%d)", uint8(a))
}

// Hop is a directed-route SMP's place on its route, as one node sees it.
type Hop struct {
	NodeType ib.NodeType
	// FromHere says that the node's own manager or agent sends it, rather
	// than a link.
	FromHere   bool
	Returning  bool // the D bit
	HopPointer uint8
	HopCount   uint8
	DrSLID     ib.LID
	DrDLID     ib.LID
}

// Decision is what the hop rules say about a Hop.
type Decision struct {
	// Do is Discard, Local, SendPort, SendLID or AsAddressed. SendPort
	// means the port in InitialPath (ReturnPath when returning) at the new
	// hop pointer.
	Do Action
	// HopPointer is the new hop pointer.
	HopPointer uint8
	// Record says that the port it came in by belongs in ReturnPath at the old hop
	// pointer.
	Record bool
	// DLID is where SendLID goes.
	DLID ib.LID
}

// Decide applies the hop rules of IBA 14.2.2.
func Decide(h Hop) Decision {
	// InitialPath and ReturnPath have entries 0 to 63.
	if h.HopCount > mad.MaxHops {
		return Decision{HopPointer: h.HopPointer}
	}
	if h.Returning {
		return decideReturning(h)
	}
	return decideOutgoing(h)
}

// decideOutgoing is IBA 14.2.2.2 (C14-9): requests, and traps on a directed route.
func decideOutgoing(h Hop) Decision {
	p, count := h.HopPointer, h.HopCount
	stay := Decision{HopPointer: p}
	isSwitch := h.NodeType == ib.NodeSwitch

	switch {
	case p == 0 && count != 0:
		// The directed part starts: at its sender, or at the switch
		// that a LID-routed first part led to.
		if h.FromHere && h.DrSLID != ib.LIDPermissive {
			return Decision{Do: AsAddressed, HopPointer: p}
		}
		if h.FromHere || isSwitch && h.DrSLID != ib.LIDPermissive {
			return Decision{Do: SendPort, HopPointer: 1}
		}
		return stay

	case p == count:
		// The directed part ends. A sender's own packet can only be here if
		// there are no hops at all.
		if h.FromHere && count != 0 {
			return stay
		}
		d := Decision{HopPointer: p + 1, Record: count != 0}
		switch {
		case h.DrDLID == ib.LIDPermissive:
			d.Do = Local
		case isSwitch || h.FromHere:
			d.Do, d.DLID = SendLID, h.DrDLID
		default:
			return stay
		}
		return d

	case h.FromHere:
		return stay

	case p < count:
		if !isSwitch {
			return stay
		}
		return Decision{Do: SendPort, HopPointer: p + 1, Record: true}

	case p == count+1:
		// A LID-routed last part ends here.
		return Decision{Do: Local, HopPointer: p}
	}
	return stay
}

// decideReturning is IBA 14.2.2 (C14-13): responses.
func decideReturning(h Hop) Decision {
	p, count := h.HopPointer, h.HopCount
	stay := Decision{HopPointer: p}
	isSwitch := h.NodeType == ib.NodeSwitch

	if h.FromHere {
		// The agent answers a request that has come to its end.
		switch {
		case p != count+1:
			return stay
		case h.DrDLID != ib.LIDPermissive:
			// The request's last part was LID-routed, so the response's
			// first is.
			return Decision{Do: AsAddressed, HopPointer: p}
		case count != 0:
			return Decision{Do: SendPort, HopPointer: p - 1}
		}
	}

	switch {
	case p == 0:
		// A LID-routed last part of the return ends here.
		return Decision{Do: Local, HopPointer: p}

	case p == 1:
		// The directed part of the return ends.
		switch {
		case h.DrSLID == ib.LIDPermissive:
			return Decision{Do: Local, HopPointer: 0}
		case isSwitch || h.FromHere:
			return Decision{Do: SendLID, HopPointer: 0, DLID: h.DrSLID}
		}
		return stay

	case p <= count:
		if !isSwitch {
			return stay
		}
		return Decision{Do: SendPort, HopPointer: p - 1}

	case p == count+1:
		// A LID-routed first part of the return has led to the switch where the directed
		// part of the request ended.
		if isSwitch && h.DrDLID != ib.LIDPermissive {
			return Decision{Do: SendPort, HopPointer: p - 1}
		}
	}
	return stay
}

// Verdict is what a driver does with the packet that it handed over, which may
// have been changed in place.
type Verdict struct {
	Do   Action
	Port ib.PortNum // for SendPort
	DLID ib.LID     // for SendLID
}

// step applies the hop rules to a directed-route SMP in place.
func step(v mad.View, t ib.NodeType, ports uint8, inPort ib.PortNum, fromHere bool) Verdict {
	d := Decide(Hop{
		NodeType: t, FromHere: fromHere, Returning: v.Returning(),
		HopPointer: v.HopPointer(), HopCount: v.HopCount(),
		DrSLID: v.DrSLID(), DrDLID: v.DrDLID(),
	})
	out := Verdict{Do: d.Do, DLID: d.DLID}
	if d.Do == SendPort {
		if v.Returning() {
			out.Port = v.ReturnPath(d.HopPointer)
		} else {
			out.Port = v.InitialPath(d.HopPointer)
		}
		if out.Port == 0 || uint8(out.Port) > ports {
			return Verdict{Do: Discard}
		}
	}
	if d.Do == Discard {
		return out
	}
	if d.Record {
		v.SetReturnPath(v.HopPointer(), inPort)
	}
	v.SetHopPointer(d.HopPointer)
	return out
}

// Pass takes a directed-route SMP that a link brought on through a switch, if it is neither at the beginning nor at the
// end of its route: what DeliverFrom would do, in less time. When a subnet comes up there are millions of such hops.
// False means that DeliverFrom has to look at it; the packet is as it was then.
func (a *Agent) Pass(inPort ib.PortNum, smp []byte) (out ib.PortNum, ok bool) {
	v := mad.View(smp)
	if a.sw == nil || len(smp) < mad.Size || v.Class() != mad.ClassSMDirect || !a.hasPort(inPort) {
		return 0, false
	}
	hop, count := v.HopPointer(), v.HopCount()
	switch {
	case count > mad.MaxHops:
		return 0, false
	case !v.Returning() && hop > 0 && hop < count:
		if out = v.InitialPath(hop + 1); out == 0 || uint8(out) > a.ports {
			return 0, false
		}
		v.SetReturnPath(hop, inPort)
		v.SetHopPointer(hop + 1)
		return out, true
	case v.Returning() && hop > 1 && hop <= count:
		if out = v.ReturnPath(hop - 1); out == 0 || uint8(out) > a.ports {
			return 0, false
		}
		v.SetHopPointer(hop - 1)
		return out, true
	}
	return 0, false
}
