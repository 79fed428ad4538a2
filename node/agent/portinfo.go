package agent

import (
	"encoding/binary"

	"softib/proto/ib"
	"softib/proto/mad"
)

// portKind sorts ports by which fields of PortInfo mean anything there.
type portKind uint8

const (
	kindCA       portKind = 1 << iota // a channel adapter's or router's port
	kindExternal                      // a switch's port with a link
	kindBase0                         // a switch's port 0 without one
	kindEnhanced0

	kindEnd  = kindCA | kindBase0 | kindEnhanced0    // has a LID of its own
	kindLink = kindCA | kindExternal | kindEnhanced0 // has lanes and a state
)

// portInfoWritable is which fields of PortInfo a manager may write, and where
// (IBA 14.2.5.6). All others keep their value, whatever the request holds.
var portInfoWritable = []struct {
	field string
	kinds portKind
}{
	{"M_Key", kindEnd},
	{"GidPrefix", kindEnd},
	{"LID", kindEnd},
	{"MasterSMLID", kindEnd},
	{"M_KeyLeasePeriod", kindEnd},
	{"M_KeyProtectBits", kindEnd},
	{"LMC", kindEnd},
	{"MasterSMSL", kindEnd},
	{"InitType", kindEnd},
	{"M_KeyViolations", kindEnd},
	{"P_KeyViolations", kindEnd | kindExternal},
	{"Q_KeyViolations", kindEnd},
	{"ClientReregister", kindEnd},
	{"MulticastPKeyTrapSuppression", kindEnd},
	{"SubnetTimeOut", kindEnd},

	{"LinkWidthEnabled", kindLink},
	{"PortState", kindLink},
	{"PortPhysicalState", kindLink},
	{"LinkDownDefaultState", kindLink},
	{"LinkSpeedEnabled", kindLink},
	{"LinkSpeedExtEnabled", kindLink},
	{"LinkSpeedExtEnabled2", kindLink},
	{"NeighborMTU", kindLink},
	{"VLHighLimit", kindLink},
	{"VLStallCount", kindLink},
	{"HOQLife", kindLink},
	{"OperationalVLs", kindLink},
	{"LocalPhyErrors", kindLink},
	{"OverrunErrors", kindLink},

	{"PartitionEnforcementInbound", kindExternal},
	{"PartitionEnforcementOutbound", kindExternal},
	{"FilterRawInbound", kindExternal},
	{"FilterRawOutbound", kindExternal},
}

// portInfoMask has the writable bits set.
type portInfoMask [mad.SMPDataLen]byte

func newPortInfoMask(k portKind) (m portInfoMask) {
	for _, w := range portInfoWritable {
		if w.kinds&k != 0 {
			f := mad.PortInfoLayout.Field(w.field)
			f.Put(m[:], 0, ^uint64(0))
		}
	}
	return m
}

var (
	maskCA        = newPortInfoMask(kindCA)
	maskExternal  = newPortInfoMask(kindExternal)
	maskBase0     = newPortInfoMask(kindBase0)
	maskEnhanced0 = newPortInfoMask(kindEnhanced0)
)

func (a *Agent) mask(port ib.PortNum) (portKind, *portInfoMask) {
	switch {
	case a.sw == nil:
		return kindCA, &maskCA
	case port != 0:
		return kindExternal, &maskExternal
	case a.enhanced0:
		return kindEnhanced0, &maskEnhanced0
	}
	return kindBase0, &maskBase0
}

// portInfo serves PortInfo. The modifier's low byte is the port; 0 is the
// one that the request came in by, or a switch's port 0. Its upper bit only says that
// the manager knows extended speeds.
func (a *Agent) portInfo(r *request) mad.Status {
	const knowsExtended = 1 << 31
	mod := r.mod &^ knowsExtended
	if mod > uint32(a.ports) {
		return mad.StatusInvalidField
	}
	port := ib.PortNum(mod)
	if port == 0 && a.sw == nil {
		port = r.inPort
	}
	key := &a.keys[port]
	key.expire(r.now)

	reregister := false
	if r.set {
		if a.sw == nil && port != r.inPort {
			// The M_Key of one port must not open another.
			return mad.StatusInvalidField
		}
		next, ok := a.mergePortInfo(port, r)
		if !ok {
			return mad.StatusInvalidField
		}
		if err := a.node.SetPortInfo(r.now, port, next); err != nil {
			return failed(err)
		}
		if kind, _ := a.mask(port); kind&kindEnd != 0 {
			if next.MKey != key.key {
				key.ours = a.isOurs(port, next.MKey)
			}
			key.set(&next)
			r.mkey = next.MKey // its setter may see it
		}
		reregister = next.ClientReregister
	}
	pi := a.node.PortInfo(port)
	pi.LocalPortNum = r.inPort
	if a.isEndPort(port) {
		pi.CapabilityMask = a.capability(port, pi.CapabilityMask)
		pi.CapabilityMask2 |= agentCaps2
	}
	// The response echoes that the request was taken; otherwise the bit reads 0.
	pi.ClientReregister = reregister
	key.show(&pi, r.mkey)
	pi.Append(r.answer())
	return mad.StatusOK
}

// mergePortInfo is the port's PortInfo with the writable fields taken from
// the request; false if one of them has a value that it must not have.
func (a *Agent) mergePortInfo(port ib.PortNum, r *request) (next mad.PortInfo, ok bool) {
	cur := a.node.PortInfo(port)
	a.keys[port].show(&cur, a.keys[port].key)
	// These are commands: they have no present value to keep.
	state := cur.PortState
	cur.PortState, cur.PortPhysicalState, cur.ClientReregister = ib.PortNoChange, ib.PhysNoChange, false

	var buf [mad.SMPDataLen]byte
	cur.Append(buf[:0])
	kind, mask := a.mask(port)
	ne := binary.NativeEndian
	for i := 0; i < len(buf); i += 8 {
		m := ne.Uint64(mask[i:])
		ne.PutUint64(buf[i:], ne.Uint64(buf[i:])&^m|ne.Uint64(r.data[i:])&m)
	}
	if _, err := next.Parse(buf[:]); err != nil {
		return next, false
	}
	if kind&kindEnd != 0 && !addressOK(&cur, &next) {
		return next, false
	}
	if kind&kindLink != 0 && !(stateOK(state, &next) && resolveLink(&cur, &next)) {
		return next, false
	}
	// Violations are only ever reset.
	if next.PKeyViolations != 0 {
		next.PKeyViolations = cur.PKeyViolations
	}
	if next.QKeyViolations != 0 {
		next.QKeyViolations = cur.QKeyViolations
	}
	return next, true
}

// addressOK checks LID, LMC and the manager's LID. A port that has no
// LID yet may be written to without being given one.
func addressOK(cur, next *mad.PortInfo) bool {
	if !next.LID.IsUnicast() && (next.LID != ib.LIDReserved || cur.LID != ib.LIDReserved) {
		return false
	}
	if !next.MasterSMLID.IsUnicast() && (next.MasterSMLID != ib.LIDReserved || cur.MasterSMLID != ib.LIDReserved) {
		return false
	}
	// 2^LMC LIDs follow the base LID and differ in its low bits alone (IBA 4.1.3).
	last := uint16(1)<<next.LMC - 1
	return uint16(next.LID)&last == 0 && next.LID <= ib.LIDUnicastMax-ib.LID(last)
}

// stateOK checks the two state commands against the present state
// (IBA 7.2.7 and 14.2.5.6).
func stateOK(state ib.PortState, next *mad.PortInfo) bool {
	switch next.PortState {
	case ib.PortNoChange, ib.PortDown:
	case ib.PortArmed:
		if state != ib.PortInit {
			return false
		}
	case ib.PortActive:
		if state != ib.PortArmed {
			return false
		}
	default:
		return false
	}
	switch next.PortPhysicalState {
	case ib.PhysNoChange:
		return true
	case ib.PhysSleep, ib.PhysPolling, ib.PhysDisabled:
		// A link that is to go down cannot come up by the same request.
		return next.PortState == ib.PortNoChange || next.PortState == ib.PortDown
	}
	return false
}

// resolveLink replaces the values that stand for "no change" and "as
// supported", and checks the rest against what the port can do.
func resolveLink(cur, next *mad.PortInfo) bool {
	switch next.LinkWidthEnabled {
	case 0:
		next.LinkWidthEnabled = cur.LinkWidthEnabled
	case mad.WidthEnableAll:
		next.LinkWidthEnabled = cur.LinkWidthSupported
	}
	switch next.LinkSpeedEnabled {
	case 0:
		next.LinkSpeedEnabled = cur.LinkSpeedEnabled
	case mad.SpeedEnableAll:
		next.LinkSpeedEnabled = cur.LinkSpeedSupported
	}
	switch next.LinkSpeedExtEnabled {
	case 0:
		next.LinkSpeedExtEnabled = cur.LinkSpeedExtEnabled
	case mad.SpeedExtDisable:
		next.LinkSpeedExtEnabled = 0
	case mad.SpeedExtEnableAll:
		next.LinkSpeedExtEnabled = cur.LinkSpeedExtSupported
	}
	switch next.LinkSpeedExtEnabled2 {
	case 0:
		next.LinkSpeedExtEnabled2 = cur.LinkSpeedExtEnabled2
	case mad.SpeedExt2EnableAll:
		next.LinkSpeedExtEnabled2 = cur.LinkSpeedExtSupported2
	}
	if next.LinkDownDefaultState == ib.PhysNoChange {
		next.LinkDownDefaultState = cur.LinkDownDefaultState
	}
	if next.OperationalVLs == 0 {
		next.OperationalVLs = cur.OperationalVLs
	}
	if next.NeighborMTU == 0 {
		next.NeighborMTU = cur.NeighborMTU
	}
	down := next.LinkDownDefaultState
	return next.LinkWidthEnabled&^cur.LinkWidthSupported == 0 &&
		next.LinkSpeedEnabled&^cur.LinkSpeedSupported == 0 &&
		next.LinkSpeedExtEnabled&^cur.LinkSpeedExtSupported == 0 &&
		next.LinkSpeedExtEnabled2&^cur.LinkSpeedExtSupported2 == 0 &&
		(down == cur.LinkDownDefaultState || down == ib.PhysSleep || down == ib.PhysPolling) &&
		(next.OperationalVLs == cur.OperationalVLs || next.OperationalVLs.IsValid() &&
			next.OperationalVLs <= cur.VLCap) &&
		(next.NeighborMTU == cur.NeighborMTU || next.NeighborMTU.IsValid() && next.NeighborMTU <= cur.MTUCap)
}
