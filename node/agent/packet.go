package agent

import (
	"softib/proto/ib"
	"softib/proto/mad"
	"softib/proto/wire"
)

// udSend is the opcode of every packet of management (IBA 13.4.2).
var udSend = wire.MakeOpcode(wire.UD, wire.OpSendOnly)

// IsMAD reports whether a packet is one of management, with a datagram as its payload. What comes to QP0 by another
// lane than VL15 is none (IBA 13.5.1): it has evaded what guards that lane.
func IsMAD(p *wire.Packet) bool {
	return p.LRH.LNH >= wire.LNHLocal && p.BTH.Opcode == udSend && p.BTH.DestQP <= ib.QPNGSI &&
		(p.LRH.VL == ib.VLMgmt) == (p.BTH.DestQP == ib.QPNSMI) && len(p.Payload) == mad.Size
}

// NewSMP writes the headers of a packet of subnet management. Nobody looks at its P_Key (IBA 10.9.4).
func NewSMP(p *wire.Packet, slid, dlid ib.LID, sl ib.SL) {
	*p = wire.Packet{
		LRH: wire.LRH{VL: ib.VLMgmt, LNH: wire.LNHLocal, SL: sl, DLID: dlid, SLID: slid},
		BTH: wire.BTH{Opcode: udSend, PKey: ib.PKeyDefault, DestQP: ib.QPNSMI},
	}
}

// NewPacket writes the headers of the packet of a datagram that goes to where env says, from a port with this LID and
// these tables.
func NewPacket(p *wire.Packet, env *mad.Envelope, class mad.Class, lid ib.LID, keys []ib.PKey, gids []ib.GID) {
	NewSMP(p, lid|ib.LID(env.PathBits), env.LID, env.SL)
	if class.IsSubnet() {
		return
	}
	p.LRH.VL, p.BTH.DestQP = 0, env.QPN
	p.DETH = wire.DETH{QKey: env.QKey, SrcQP: ib.QPNGSI}
	if int(env.PKeyIndex) < len(keys) {
		p.BTH.PKey = keys[env.PKeyIndex]
	}
	if env.HasGRH {
		p.LRH.LNH = wire.LNHGlobal
		p.GRH = wire.GRH{IPVer: wire.GRHVersion, NxtHdr: wire.GRHNextIBA, TClass: env.TClass, Flow: env.FlowLabel,
			HopLimit: env.HopLimit, DGID: env.GID}
		if int(env.GIDIndex) < len(gids) {
			p.GRH.SGID = gids[env.GIDIndex]
		}
	}
}

// EnvelopeOf is what a program sees of a packet that has come to its port, which has this LMC and these keys.
func EnvelopeOf(p *wire.Packet, lmc uint8, keys []ib.PKey) mad.Envelope {
	env := mad.Envelope{LID: p.LRH.SLID, QPN: p.DETH.SrcQP, QKey: p.DETH.QKey, SL: p.LRH.SL,
		PathBits: uint8(p.LRH.DLID) & (1<<lmc - 1)}
	for i, k := range keys {
		if k.Matches(p.BTH.PKey) {
			env.PKeyIndex = uint16(i)
			break
		}
	}
	if g := &p.GRH; p.LRH.LNH == wire.LNHGlobal {
		env.HasGRH, env.GID, env.HopLimit, env.TClass, env.FlowLabel = true, g.SGID, g.HopLimit, g.TClass, g.Flow
	}
	return env
}

// Turn readdresses a request's packet, which has become the response, to its sender (IBA 13.5.4); own is the LID of who
// answers.
func Turn(p *wire.Packet, own ib.LID) {
	p.LRH.DLID, p.LRH.SLID = p.LRH.SLID, own
	p.GRH.SGID, p.GRH.DGID, p.GRH.HopLimit = p.GRH.DGID, p.GRH.SGID, 0xFF
	p.BTH.DestQP, p.DETH.SrcQP = p.DETH.SrcQP, p.BTH.DestQP
	if p.BTH.DestQP == ib.QPNGSI {
		p.DETH.QKey = ib.QKeyGSI
	}
}

// Readdress gives a packet of subnet management the LIDs that the verdict asks for; own is the node's, and answered
// says that the request has become a response.
func (v Verdict) Readdress(p *wire.Packet, own ib.LID, answered bool) {
	switch {
	case v.Do == SendPort:
		p.LRH.SLID, p.LRH.DLID = ib.LIDPermissive, ib.LIDPermissive
	case v.Do == SendLID:
		p.LRH.SLID, p.LRH.DLID = own, v.DLID
	case v.Do == AsAddressed && answered:
		Turn(p, own)
	}
}
