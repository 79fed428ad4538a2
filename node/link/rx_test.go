package link

import (
	"testing"

	"softib/proto/ib"
	"softib/proto/wire"
)

// TestReceiveBad: each kind of malformed packet is dropped and counted where the
// standard counts it, and leaves the buffer alone.
func TestReceiveBad(t *testing.T) {
	for _, c := range []struct {
		name    string
		make    func(p *Port) *Frame
		reason  Reason
		counter ib.Counter
		detail  ib.Counter
	}{
		{"VCRC", func(*Port) *Frame { f := packet(64); f.Flags |= BadVCRC; return f }, Physical, ib.PortRcvErrors,
			ib.PortLocalPhysicalErrors},
		{"LVer", func(*Port) *Frame { f := packet(64); f.LRH.LVer = 1; return f }, Malformed, ib.PortRcvErrors,
			ib.PortMalformedPacketErrors},
		{"length of other bytes", func(*Port) *Frame { f := packet(64); f.LRH.Length++; return f }, Malformed,
			ib.PortRcvErrors, ib.PortMalformedPacketErrors},
		{"longer than MTU", func(*Port) *Frame { return packet(2304) }, Malformed, ib.PortRcvErrors,
			ib.PortMalformedPacketErrors},
		{"no length", func(*Port) *Frame { f := packet(0); f.LRH.Length, f.Bytes = 4, 18; return f }, Malformed,
			ib.PortRcvErrors, ib.PortMalformedPacketErrors},
		{"VL not in use", func(*Port) *Frame { f := packet(64); f.LRH.VL = 4; return f }, Malformed, ib.PortRcvErrors,
			ib.PortMalformedPacketErrors},
		{"VL not a VL", func(*Port) *Frame { f := packet(64); f.LRH.VL = 16; return f }, Malformed, ib.PortRcvErrors,
			ib.PortMalformedPacketErrors},
		{"VL15 with GRH", func(*Port) *Frame { f := smp(); f.LRH.LNH = wire.LNHGlobal; return f }, Malformed,
			ib.PortRcvErrors, ib.PortMalformedPacketErrors},
		{"VL15 to another QP", func(*Port) *Frame { f := packet(64); f.LRH.VL = 15; return f }, Malformed,
			ib.PortRcvErrors, ib.PortMalformedPacketErrors},
		{"no room", func(p *Port) *Frame {
			for p.Receive(0, packet(1000)) == OK {
			}
			p.SetCounter(ib.PortRcvErrors, 0)
			p.SetCounter(ib.PortBufferOverrunErrors, 0)
			return packet(2048)
		}, Overrun, ib.PortRcvErrors, ib.PortBufferOverrunErrors},
		{"VL15 full", func(p *Port) *Frame {
			for p.Receive(0, smp()) == OK {
			}
			p.SetCounter(ib.VL15Dropped, 0)
			return smp()
		}, VL15Full, ib.VL15Dropped, ib.NumCounter},
		{"down", func(p *Port) *Frame { p.Down(0); return packet(64) }, NotReady, ib.NumCounter, ib.NumCounter},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := up(t, Config{MTUCap: ib.MTU2048, VLCap: 4})
			f := c.make(p)
			before := p.Counters()
			occ := p.Credit(f.LRH.VL & 15).Occupied
			wantReason(t, "receive", p.Receive(1, f), c.reason)
			after := p.Counters()
			for i := range ib.NumCounter {
				want := before[i]
				if i == c.counter || i == c.detail {
					want++
				}
				if after[i] != want {
					t.Errorf("%v is %d, want %d", i, after[i], want)
				}
			}
			if got := p.Credit(f.LRH.VL & 15).Occupied; got != occ {
				t.Errorf("occupied %d, want %d as before", got, occ)
			}
		})
	}
}

func TestExcessiveOverrun(t *testing.T) {
	p := up(t, Config{BufferBlocks: 1})
	wantReason(t, "first", p.Receive(0, packet(4096)), OK)
	for range errorThreshold {
		wantReason(t, "next", p.Receive(0, packet(4096)), Overrun)
	}
	if n := p.Counters()[ib.ExcessiveBufferOverrunErrors]; n != 1 {
		t.Errorf("ExcessiveBufferOverrunErrors %d after %d in a row, want 1", n, errorThreshold)
	}
}

func TestPartitions(t *testing.T) {
	p := up(t, Config{})
	f := packet(10)
	wantReason(t, "not enforced", p.Count(p.RefusesIn(f)), OK)
	p.SetPKeys([]ib.PKey{0x8001, 0x0002})
	p.SetEnforcement(EnforcePKeyIn | EnforcePKeyOut | EnforceRawIn)
	for _, c := range []struct {
		key     ib.PKey
		in, out Reason
	}{
		// a limited member's own packets, and those to it from another
		{0x8001, OK, OK}, {0x0001, OK, OK}, {0x8002, OK, OK}, {0x0002, OK, PKeyOut},
		{0x8003, PKeyIn, PKeyOut}, {0xFFFF, PKeyIn, PKeyOut}, {0x8000, PKeyIn, PKeyOut},
	} {
		f.Packet.BTH.PKey = c.key
		in, out := c.in, c.out
		wantReason(t, c.key.String()+" in", p.Count(p.RefusesIn(f)), in)
		wantReason(t, c.key.String()+" out", p.Count(p.RefusesOut(f)), out)
	}
	f.LRH.LNH = wire.LNHRaw
	wantReason(t, "raw in", p.Count(p.RefusesIn(f)), RawIn)
	wantReason(t, "raw out", p.Count(p.RefusesOut(f)), OK)
	c := p.Counters()
	if c[ib.PortRcvConstraintErrors] != 4 || c[ib.PortXmitConstraintErrors] != 4 {
		t.Errorf("constraint errors in %d, out %d: want 4 and 4", c[ib.PortRcvConstraintErrors],
			c[ib.PortXmitConstraintErrors])
	}
}
