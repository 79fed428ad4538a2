package link

import (
	"encoding/binary"
	"testing"

	"softib/proto/ib"
	"softib/proto/wire"
)

// FuzzPort feeds a port arbitrary headers, sizes, flow control, commands and times:
// it never panics, never holds more than its buffers, and what it accepted
// can be released to the last block.
func FuzzPort(f *testing.F) {
	f.Add([]byte{0, 0, 0, 0, 0, 0, 0, 0, 0, 0})
	f.Add([]byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 0, 0, 0, 0, 0, 0x10, 0, 0, 0, 0})
	f.Add([]byte{2, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 5, 1, 1, 1, 1, 1, 1, 1, 1, 1})
	f.Fuzz(func(t *testing.T, in []byte) {
		p := up(t, Config{VLCap: 4, BufferBlocks: 100, VL15Packets: 2})
		p.SetHOQLife(0)
		var pool Pool
		var held []*Frame
		now := ib.Time(0)
		for ; len(in) >= 10; in = in[10:] {
			now += ib.Time(in[9]) * ib.Nanosecond
			f := pool.Get()
			*f.Packet = wire.Packet{}
			f.LRH = wire.LRH{
				VL: ib.VL(in[1]), LVer: in[2] >> 4, SL: ib.SL(in[2] & 15), LNH: wire.LNH(in[3] & 3),
				DLID: ib.LID(binary.BigEndian.Uint16(in[4:])), Length: binary.BigEndian.Uint16(in[6:]),
			}
			f.Bytes = f.LRH.Length*4 + 2 + uint16(in[8]&1)
			f.Blocks = uint8(min((int(f.Bytes)+63)/64, 255))
			f.Flags = FrameFlags(in[8] >> 6)
			switch in[0] % 8 {
			case 0, 1:
				if p.Receive(now, f) == OK {
					held = append(held, f)
				}
			case 2:
				p.HandleFC(now, wire.LinkPacket{Op: wire.LinkOp(in[1] & 15), VL: ib.VL(in[2] & 15),
					FCTBS: binary.BigEndian.Uint16(in[4:]) & fcMask, FCCL: binary.BigEndian.Uint16(in[6:]) & fcMask})
			case 3:
				p.Enqueue(now, f, ib.VL(in[1]&15))
			case 4:
				p.PollFC(now)
				p.PollTx(now)
			case 5:
				p.HandleTimeout(now)
				for _, ok := p.PollDropped(); ok; _, ok = p.PollDropped() {
				}
			case 6:
				if len(held) > 0 {
					p.Release(held[0].InVL, held[0].Blocks)
					held = held[1:]
				}
			case 7:
				_ = p.Command(now, ib.PortState(in[1]))
				_ = p.CommandPhys(now, ib.PhysState(in[2]))
				_ = p.SetOperVLs(now, in[3])
				if in[4]&1 != 0 && p.Train() {
					p.LinkUp(now)
				}
			}
			for vl := range ib.VL(ib.NumVL) {
				if c := p.Credit(vl); p.IsOperVL(vl) && c.Occupied > c.Size {
					t.Fatalf("VL%d holds %d of %d", vl, c.Occupied, c.Size)
				}
			}
			p.NextDeadline()
			p.Counters()
		}
		for _, f := range held {
			p.Release(f.InVL, f.Blocks)
		}
		for vl := range ib.VL(ib.NumVL) {
			if c := p.Credit(vl); c.Occupied != 0 {
				t.Fatalf("VL%d still holds %d", vl, c.Occupied)
			}
		}
	})
}
