package link

import (
	"softib/proto/ib"
	"softib/proto/mad"
	"softib/proto/wire"
)

// Receive takes a data packet off the wire into the buffer of its lane. Anything but
// OK is a drop that has been counted where the standard counts it; the frame is
// the caller's again. After OK the packet occupies its buffer until Release.
//
// The checks and their order are those of the packet receiver of IBA 7.3 and 7.4.
func (p *Port) Receive(now ib.Time, f *Frame) Reason {
	lrh := &f.LRH
	if p.state < ib.PortInit {
		return NotReady // nobody listens: not an error of the link
	}
	if f.Flags&BadVCRC != 0 {
		p.physicalError()
		return p.Count(Physical)
	}
	vl := lrh.VL
	if lrh.LVer != 0 || lrh.Length > p.rxWords || uint32(f.Bytes) != uint32(lrh.Length)*4+wire.VCRCSize ||
		lrh.Length < wire.MinWordsRaw || p.oper>>(vl&15)&1 == 0 || vl > ib.VLMgmt {
		return p.Count(Malformed)
	}
	rx := p.rx(int(vl))
	if vl == ib.VLMgmt {
		// Subnet management packets have no GRH and go to QP0 (IBA 13.5.1).
		if lrh.LNH != wire.LNHLocal || f.Packet.BTH.DestQP != ib.QPNSMI {
			return p.Count(Malformed)
		}
		if r := p.RefusesSMP(f.Packet.Payload); r != OK {
			return p.Count(r)
		}
		if rx.occ >= rx.size {
			return p.Count(VL15Full)
		}
		rx.occ++
	} else {
		if p.state == ib.PortInit {
			return NotReady // only management passes before Armed (IBA 7.2.7.2)
		}
		if rx.occ+uint16(f.Blocks) > rx.size {
			if p.flow != Credits {
				return p.Count(BufferFull)
			}
			p.overrun()
			return p.Count(Overrun)
		}
		rx.occ += uint16(f.Blocks)
		rx.abr = (rx.abr + uint16(f.Blocks)) & fcMask
		if p.flow == Pause && rx.occ > p.cold.eth.xoff {
			p.stopPeer(vl)
		}
		if p.state == ib.PortArmed {
			// Traffic from an active neighbour activates (IBA 7.2.7.3).
			p.transition(p.cold.phys, ib.PortActive)
		}
	}
	if rx.sl != lrh.SL {
		p.relevel(int(vl), rx.txSL, lrh.SL)
	}
	rx.pkts++
	if rx.words += uint32(lrh.Length); rx.words >= foldAt {
		p.fold(int(vl))
	}
	if lrh.DLID >= ib.LIDMulticastMin && lrh.DLID != ib.LIDPermissive {
		p.cold.mcastRx++
	}
	f.Arrived = now
	f.InVL = vl
	return OK
}

// Admits is what Receive says of a packet on lane vl for the port's state and lanes alone. It counts nothing.
func (p *Port) Admits(vl ib.VL) Reason {
	switch {
	case p.state < ib.PortInit:
		return NotReady
	case vl > ib.VLMgmt || p.oper>>(vl&15)&1 == 0:
		return Malformed
	case p.state == ib.PortInit && vl != ib.VLMgmt:
		return NotReady
	}
	return OK
}

// Release gives back the buffer of a packet that was received. It reports
// whether the peer should be told now.
func (p *Port) Release(vl ib.VL, blocks uint8) bool {
	rx := p.rx(int(vl & 15))
	if vl == ib.VLMgmt {
		rx.occ--
		return false
	}
	if plantCredit && blocks > 16 {
		blocks--
	}
	rx.occ -= uint16(blocks)
	if p.flow != Credits {
		return p.letPeer(vl, rx)
	}
	return p.wantFC(vl, rx)
}

// wantFC marks the lane when enough credit has gathered to tell.
func (p *Port) wantFC(vl ib.VL, rx *rxVL) bool {
	if p.state < ib.PortInit || p.oper>>vl&1 == 0 || (limit(rx.abr, rx.size-rx.occ)-rx.adv)&fcMask < rx.owed {
		return false
	}
	p.fcNeed |= 1 << vl
	return true
}

// SymbolError counts an error on a lane of the cable that the driver saw.
func (p *Port) SymbolError() { p.cold.count[ib.SymbolErrorCounter]++ }

// Enforce is the set of filters that a switch port applies (IBA 18.2.4.2.1).
type Enforce uint8

// Filters.
const (
	EnforcePKeyIn Enforce = 1 << iota
	EnforcePKeyOut
	EnforceRawIn
	EnforceRawOut
)

// Enforcement is the filters in force.
func (p *Port) Enforcement() Enforce { return Enforce(p.flags & filterMask) }

// SetEnforcement sets them.
func (p *Port) SetEnforcement(e Enforce) { p.flags = p.flags&^filterMask | portFlags(e)&filterMask }

// SetGuard says whether the port takes no requests of subnet management off its cable. It is for a switch's port with
// a host behind it where no manager is trusted, is set by who owns the switch, and outlives what managers write.
func (p *Port) SetGuard(on bool) { p.cold.guarded = on }

// RefusesSMP says whether the guard lets a packet of subnet management pass that has come off the cable. A host answers
// managers and tells them of events, so responses and traps pass, to whom keys are of no use; nothing else does,
// however it is routed. It counts nothing.
func (p *Port) RefusesSMP(smp []byte) Reason {
	if !p.cold.guarded {
		return OK
	}
	if v, err := mad.AsView(smp); err == nil && v.Class().IsSubnet() &&
		(v.Method().IsResponse() || v.Method() == mad.MethodTrap) {
		return OK
	}
	return Guarded
}

// PKeys is the port's partition table. It is the port's own: read it only.
func (p *Port) PKeys() []ib.PKey { return p.cold.pkeys }

// SetPKeys writes the partition table.
func (p *Port) SetPKeys(keys []ib.PKey) { p.cold.pkeys = append(p.cold.pkeys[:0], keys...) }

// RefusesIn says whether the inbound filters let a received packet pass, and if not, why. It counts nothing.
func (p *Port) RefusesIn(f *Frame) Reason {
	if p.flags&portFlags(EnforcePKeyIn|EnforceRawIn) == 0 {
		return OK
	}
	return p.refuses(f, EnforcePKeyIn, PKeyIn, EnforceRawIn, RawIn)
}

// RefusesOut says the same of the outbound filters and a packet about to be queued.
func (p *Port) RefusesOut(f *Frame) Reason {
	if p.flags&portFlags(EnforcePKeyOut|EnforceRawOut) == 0 {
		return OK
	}
	return p.refuses(f, EnforcePKeyOut, PKeyOut, EnforceRawOut, RawOut)
}

func (p *Port) refuses(f *Frame, keyBit Enforce, key Reason, rawBit Enforce, raw Reason) Reason {
	e := p.Enforcement()
	switch {
	case f.LRH.LNH < wire.LNHLocal:
		if e&rawBit != 0 {
			return raw
		}
	case e&keyBit != 0 && !p.admits(f.Packet.BTH.PKey, keyBit == EnforcePKeyIn):
		return key
	}
	return OK
}

// admits reports whether the table has a key of the packet's partition. On the way in the table says what the sender at
// the cable's far end is a member of, limited or not, and managers write it so; on the way out it says the same of the
// receiver, and two limited members don't match (IBA 10.9.3).
func (p *Port) admits(k ib.PKey, inbound bool) bool {
	for _, have := range p.cold.pkeys {
		if have.Matches(k) || inbound && k.IsValid() && have.Base() == k.Base() {
			return true
		}
	}
	return false
}
