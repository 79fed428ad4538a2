package wire

import (
	"encoding/binary"

	"softib/proto/ib"
)

// CompactMax is the most that PackExt fills.
const CompactMax = 28

// PackExt puts the extended headers that ext names into t, as they are needed between two drivers on one machine, and
// returns how long they are. All that one packet can have fit, but RDETH, and XRCETH beside an AtomicETH, which are
// left out.
func (p *Packet) PackExt(ext Ext, t *[CompactMax]byte) int {
	le, o := binary.LittleEndian, 0
	if ext&ExtRETH != 0 {
		le.PutUint64(t[0:], p.RETH.VA)
		le.PutUint32(t[8:], p.RETH.RKey)
		le.PutUint32(t[12:], p.RETH.DMALen)
		o = 16
	}
	if ext&ExtFETH != 0 {
		le.PutUint32(t[o:], p.Imm)
		o += 4
	}
	if ext&ExtAETH != 0 {
		le.PutUint32(t[o:], uint32(p.AETH.Syndrome)<<24|p.AETH.MSN&0xFFFFFF)
		o += 4
	}
	if ext&ExtAtomicETH != 0 {
		le.PutUint64(t[0:], p.AtomicETH.VA)
		le.PutUint32(t[8:], p.AtomicETH.RKey)
		le.PutUint64(t[12:], p.AtomicETH.Swap)
		le.PutUint64(t[20:], p.AtomicETH.Compare)
		return 28
	}
	if ext&ExtAtomicAckETH != 0 {
		le.PutUint64(t[o:], p.AtomicAck)
		o += 8
	}
	if ext&(ExtImmDt|ExtIETH) != 0 {
		le.PutUint32(t[o:], p.Imm)
		o += 4
	}
	if ext&ExtXRCETH != 0 {
		le.PutUint32(t[o:], p.XRCSRQ)
		o += 4
	}
	if ext&ExtDETH != 0 {
		le.PutUint32(t[o:], uint32(p.DETH.QKey))
		le.PutUint32(t[o+4:], uint32(p.DETH.SrcQP))
		o += 8
	}
	return o
}

// UnpackExt takes what PackExt has put.
func (p *Packet) UnpackExt(ext Ext, t *[CompactMax]byte) int {
	le, o := binary.LittleEndian, 0
	if ext&ExtRETH != 0 {
		p.RETH = RETH{VA: le.Uint64(t[0:]), RKey: le.Uint32(t[8:]), DMALen: le.Uint32(t[12:])}
		o = 16
	}
	if ext&ExtFETH != 0 {
		p.Imm = le.Uint32(t[o:])
		o += 4
	}
	if ext&ExtAETH != 0 {
		v := le.Uint32(t[o:])
		p.AETH = AETH{Syndrome: Syndrome(v >> 24), MSN: v & 0xFFFFFF}
		o += 4
	}
	if ext&ExtAtomicETH != 0 {
		p.AtomicETH = AtomicETH{VA: le.Uint64(t[0:]), RKey: le.Uint32(t[8:]), Swap: le.Uint64(t[12:]),
			Compare: le.Uint64(t[20:])}
		return 28
	}
	if ext&ExtAtomicAckETH != 0 {
		p.AtomicAck = le.Uint64(t[o:])
		o += 8
	}
	if ext&(ExtImmDt|ExtIETH) != 0 {
		p.Imm = le.Uint32(t[o:])
		o += 4
	}
	if ext&ExtXRCETH != 0 {
		p.XRCSRQ = le.Uint32(t[o:])
		o += 4
	}
	if ext&ExtDETH != 0 {
		p.DETH.QKey = ib.QKey(le.Uint32(t[o:]))
		p.DETH.SrcQP = ib.QPN(le.Uint32(t[o+4:]))
		o += 8
	}
	return o
}
