package agent

import (
	"softib/proto/ib"
	"softib/proto/mad"
)

// Agent answers management requests for one node, and has its traps sent.
type Agent struct {
	node  Node
	sw    Switch // nil if the node is none
	rt    Router // nil if the node is none
	typ   ib.NodeType
	ports uint8

	// What SwitchInfo says and never changes.
	linearCap, mcastCap, enforceCap uint16
	enhanced0                       bool

	// keys guards each port of a channel adapter; a switch has one key, that of port 0.
	keys []mkeyState
	// terms is the secret of managers that rule in turn; 0 if these do not.
	terms uint64

	req request // the one being served; here so that serving allocates nothing

	// What few nodes have: nil or empty until it is needed.
	desc    *string      // set in place of the node's own
	guid    ib.GUID      // told in place of the node's own; 0 if it is not
	caps    []capOverlay // by end port
	fec     []fecEnabled // by port
	traps   *traps
	samples samples
	lanes   []laneBases // by port
	cc      *ccState
	vendor  *vendorState
}

// New makes the agent of a node.
func New(n Node) *Agent {
	info := n.NodeInfo(1)
	a := &Agent{node: n, typ: info.NodeType, ports: info.NumPorts}
	if a.typ == ib.NodeSwitch {
		a.sw, _ = n.(Switch)
		if a.sw == nil {
			panic("agent: a node of type Switch must implement agent.Switch")
		}
		si := a.sw.SwitchInfo()
		a.linearCap, a.mcastCap, a.enforceCap = si.LinearFDBCap, si.MulticastFDBCap, si.PartitionEnforcementCap
		a.enhanced0 = si.EnhancedPortZero
	}
	if a.typ == ib.NodeRouter {
		a.rt, _ = n.(Router) // one that does not forward has no tables
	}
	a.keys = make([]mkeyState, int(a.ports)+1)
	for i := range a.keys {
		a.keys[i].leaseEnd = ib.Never
	}
	return a
}

// SetNodeGUID has the node told by another GUID than its own, as one is that was given another's firmware image; 0 is
// its own again.
func (a *Agent) SetNodeGUID(g ib.GUID) { a.guid = g }

// HandleMAD answers a request that came in by a port (0 for one that the
// switch's or the node's own manager makes). The response has Size bytes in
// resp; ok is false if there is none: the datagram is malformed, is
// itself a response, is not the agent's business, or fails the M_Key check.
// req and resp may be the same memory.
func (a *Agent) HandleMAD(now ib.Time, inPort ib.PortNum, req []byte, resp []byte) (n int, ok bool) {
	return a.HandleFrom(now, inPort, ib.LIDReserved, req, resp)
}

// HandleFrom is HandleMAD for a driver that knows the LID that the request came from: a trap about a wrong
// key names it.
func (a *Agent) HandleFrom(now ib.Time, inPort ib.PortNum, from ib.LID, req []byte, resp []byte) (n int, ok bool) {
	if len(req) < mad.Size || len(resp) < mad.Size || !a.hasPort(inPort) && inPort != 0 {
		return 0, false
	}
	class := mad.View(req).Class()
	serve := servers[class]
	if serve == nil || mad.View(req).Method().IsResponse() {
		return 0, false
	}
	if class == mad.ClassSMDirect && mad.View(req).Returning() {
		return 0, false // a request on the way back is no request
	}
	if &req[0] != &resp[0] {
		copy(resp, req[:mad.Size])
	}
	v := mad.View(resp[:mad.Size])

	status := mad.StatusBadVersion
	if v.BaseVersion() == mad.BaseVersion && v.ClassVersion() == class.Info().Version {
		if status, ok = serve(a, now, inPort, from, v); !ok {
			return 0, false
		}
	}
	v.SetMethod(mad.MethodGetResp)
	v.SetStatus(status)
	if class == mad.ClassSMDirect {
		v.SetReturning(true)
	}
	return mad.Size, true
}

// servers says who serves each class. A server works in place and reports false where there is no
// answer.
var servers = [256]func(a *Agent, now ib.Time, inPort ib.PortNum, from ib.LID, v mad.View) (mad.Status, bool){
	mad.ClassSMLID:    (*Agent).handleSMP,
	mad.ClassSMDirect: (*Agent).handleSMP,
	mad.ClassPerf:     (*Agent).handlePM,
	mad.ClassCC:       (*Agent).handleCC,
	mad.ClassMlnx:     (*Agent).handleMlnx,
	mad.ClassMlnx9:    (*Agent).handleMlnx,
	mad.ClassPing:     (*Agent).handleOpenIB,
	mad.ClassSysStat:  (*Agent).handleOpenIB,
}

// Deliver takes a subnet management packet through this node, in place: hop
// rules, then the agent if it is for the agent, then the hop rules for its
// response. inPort is the port that it came in by; fromHere says that the
// node's own manager sends it, in which case inPort is the port whose
// manager it is (0 at a switch).
//
// AsAddressed on a packet that was handed over as a request and is now a
// response means: back to where it came from.
func (a *Agent) Deliver(now ib.Time, inPort ib.PortNum, fromHere bool, smp []byte) Verdict {
	return a.DeliverFrom(now, inPort, ib.LIDReserved, fromHere, smp)
}

// DeliverFrom is Deliver for a driver that knows the LID that the packet came from.
func (a *Agent) DeliverFrom(now ib.Time, inPort ib.PortNum, from ib.LID, fromHere bool, smp []byte) Verdict {
	v, err := mad.AsView(smp)
	if err != nil || !v.Class().IsSubnet() || !a.hasPort(inPort) && inPort != 0 {
		return Verdict{Do: Discard}
	}
	directed := v.Class() == mad.ClassSMDirect
	if directed {
		out := step(v, a.typ, a.ports, inPort, fromHere)
		if out.Do != Local {
			return out
		}
		if v.Returning() != v.Method().IsResponse() {
			return Verdict{Do: Discard}
		}
	}
	if a.forManager(inPort, v) {
		return Verdict{Do: ToManager}
	}
	if _, ok := a.HandleFrom(now, inPort, from, v, v); !ok {
		return Verdict{Do: Discard}
	}
	if !directed {
		return Verdict{Do: AsAddressed}
	}
	out := step(v, a.typ, a.ports, inPort, true)
	if out.Do == Local {
		out.Do = ToManager
	}
	return out
}

// forManager tells what the manager of this node is meant to get from what is the agent's
// (IBA 14.2.3): responses and traps, and SMInfo where a manager runs.
func (a *Agent) forManager(inPort ib.PortNum, v mad.View) bool {
	if v.Method().IsResponse() || v.Method() == mad.MethodTrap {
		return true
	}
	if v.AttrID() != mad.AttrSMInfo || v.Method() != mad.MethodGet && v.Method() != mad.MethodSet {
		return false
	}
	port := a.keyPort(inPort)
	return a.capability(port, a.node.PortInfo(port).CapabilityMask)&mad.CapIsSM != 0
}

// hasPort reports whether the node has a port of this number: 0 is a switch's own.
func (a *Agent) hasPort(p ib.PortNum) bool {
	return uint8(p) <= a.ports && (p != 0 || a.sw != nil)
}

// keyPort is the port whose M_Key guards a request that came in by inPort.
func (a *Agent) keyPort(inPort ib.PortNum) ib.PortNum {
	if a.sw != nil {
		return 0
	}
	return max(inPort, 1)
}
