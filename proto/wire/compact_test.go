package wire

import "testing"

// TestCompact: what is packed comes out again, for every opcode, and fits.
func TestCompact(t *testing.T) {
	full := Packet{
		RETH:      RETH{VA: 0x1122334455667788, RKey: 0x99AABBCC, DMALen: 0xDDEEFF00},
		AETH:      AETH{Syndrome: 0x1F, MSN: 0x123456},
		AtomicETH: AtomicETH{VA: 1 << 40, RKey: 7, Swap: 1 << 50, Compare: 1 << 60}, AtomicAck: 1 << 63,
		Imm: 0xCAFEBABE, XRCSRQ: 0xABCDEF,
		DETH: DETH{QKey: 0x80010000, SrcQP: 0xFEDCBA},
	}
	seen := 0
	for op := range 256 {
		info := Opcode(op).Info()
		if !info.Valid() || info.Ext&ExtRDETH != 0 {
			continue
		}
		seen++
		var tail [CompactMax]byte
		var got Packet
		n := full.PackExt(info.Ext, &tail)
		if m := got.UnpackExt(info.Ext, &tail); m != n || n > CompactMax {
			t.Errorf("%v: %d bytes packed, %d unpacked", Opcode(op), n, m)
		}
		check := func(ext Ext, name string, same bool) {
			if info.Ext&ext != 0 && !same {
				t.Errorf("%v: %s differs: %+v", Opcode(op), name, got)
			}
		}
		check(ExtRETH, "RETH", got.RETH == full.RETH)
		check(ExtAETH, "AETH", got.AETH == full.AETH)
		check(ExtAtomicETH, "AtomicETH", got.AtomicETH == full.AtomicETH)
		check(ExtAtomicAckETH, "AtomicAckETH", got.AtomicAck == full.AtomicAck)
		check(ExtImmDt|ExtIETH, "immediate", got.Imm == full.Imm)
		check(ExtDETH, "DETH", got.DETH == full.DETH)
		if info.Ext&ExtAtomicETH == 0 {
			check(ExtXRCETH, "XRCETH", got.XRCSRQ == full.XRCSRQ)
		}
	}
	if seen < 40 {
		t.Errorf("%d opcodes: want all of RC, UC, UD and XRC", seen)
	}
}
