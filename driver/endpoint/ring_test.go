package endpoint

import (
	"bytes"
	"math/rand/v2"
	"os"
	"reflect"
	"sync/atomic"
	"testing"
	"unsafe"

	"softib/node/hca"
	"softib/proto/ib"
	"softib/proto/wire"
)

// pair is both ends of a ring in this process.
func pair(t testing.TB) (*Out, *In, []byte) {
	t.Helper()
	mem := aligned(RingBytes)
	page, err := NewPage(aligned(PageBytes))
	if err != nil {
		t.Fatal(err)
	}
	page.sign()
	out, err := NewOut(mem, page, os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	in, err := NewIn(mem, page, os.Getpid(), 1)
	if err != nil {
		t.Fatal(err)
	}
	return out, in, mem
}

// aligned is memory that begins on a cache line.
func aligned(n int) []byte {
	b := make([]byte, n+64)
	off := -uintptr(unsafe.Pointer(unsafe.SliceData(b))) & 63
	return b[off : off+uintptr(n) : off+uintptr(n)]
}

// randomPacket is a packet that an engine might send. Its payload may be in space, or elsewhere.
func randomPacket(r *rand.Rand, space []byte) wire.Packet {
	var p wire.Packet
	for {
		p.BTH.Opcode = wire.Opcode(r.Uint32())
		if info := p.BTH.Opcode.Info(); info.Valid() && info.Ext&wire.ExtRDETH == 0 {
			break
		}
	}
	p.LRH = wire.LRH{VL: ib.VL(r.UintN(8)), SL: ib.SL(r.UintN(16)), LNH: wire.LNHLocal, DLID: ib.LID(r.Uint32()),
		SLID: ib.LID(r.Uint32()), Length: 7}
	p.BTH.AckReq, p.BTH.Solicited = r.UintN(2) == 0, r.UintN(2) == 0
	p.BTH.PKey, p.BTH.DestQP, p.BTH.PSN = ib.PKey(r.Uint32()), ib.QPN(r.Uint32N(1<<24)), ib.PSN(r.Uint32N(1<<24))
	ext := p.BTH.Opcode.Info().Ext
	if ext&wire.ExtRETH != 0 {
		p.RETH = wire.RETH{VA: r.Uint64(), RKey: r.Uint32(), DMALen: r.Uint32()}
	}
	if ext&wire.ExtAETH != 0 {
		p.AETH = wire.AETH{Syndrome: wire.Syndrome(r.Uint32()), MSN: r.Uint32N(1 << 24)}
	}
	if ext&wire.ExtAtomicETH != 0 {
		p.AtomicETH = wire.AtomicETH{VA: r.Uint64(), RKey: r.Uint32(), Swap: r.Uint64(), Compare: r.Uint64()}
	}
	if ext&wire.ExtAtomicAckETH != 0 {
		p.AtomicAck = r.Uint64()
	}
	if ext&(wire.ExtImmDt|wire.ExtIETH) != 0 {
		p.Imm = r.Uint32()
	}
	if ext&wire.ExtXRCETH != 0 {
		p.XRCSRQ = r.Uint32N(1 << 24)
	}
	if ext&wire.ExtDETH != 0 {
		p.DETH = wire.DETH{QKey: ib.QKey(r.Uint32()), SrcQP: ib.QPN(r.Uint32N(1 << 24))}
	}
	if r.UintN(4) == 0 {
		p.LRH.LNH = wire.LNHGlobal
		p.GRH = wire.GRH{IPVer: 6, Flow: 77, HopLimit: uint8(r.Uint32())}
		p.GRH.SGID[3], p.GRH.DGID[15] = 9, byte(r.Uint32())
	}
	if !p.BTH.Opcode.Info().Is(wire.FlagPayload) {
		return p
	}
	n := [...]int{0, 1, 8, 27, 28, 29, 64, 500, 4096, 16384}[r.UintN(10)]
	p.Count = uint16(n/4096 + 1)
	switch {
	case n > len(space) || n >= byRefMin && r.UintN(2) == 0:
		p.Payload = make([]byte, n)
	default:
		p.Payload = space[:n]
	}
	for i := range p.Payload {
		p.Payload[i] = byte(r.Uint32())
	}
	return p
}

// payloadOf is what a received packet carries, wherever it lies.
func payloadOf(t *testing.T, p *wire.Packet) []byte {
	t.Helper()
	if p.Far == nil {
		return p.Payload
	}
	b := make([]byte, p.FarLen)
	if !p.Far.CopyTo(b, 0) {
		t.Fatal("a payload by reference could not be read")
	}
	return b
}

// TestRingIsAQueue plays random packets through a ring and holds it against a queue.
func TestRingIsAQueue(t *testing.T) {
	seeds := uint64(40)
	if testing.Short() { // there is nothing for the race detector: one goroutine does it all
		seeds = 2
	}
	for seed := range seeds {
		r := rand.New(rand.NewPCG(seed, 1))
		out, in, _ := pair(t)
		if seed%2 == 1 { // near where the numbers go around
			start := ^uint32(0) - uint32(r.UintN(600))
			out.tail, out.limit, in.next, in.lastTold = start, start+ringCells, start, start
			atomic.StoreUint32(&out.head.taken, start)
			for i := start - ringCells; i != start; i++ {
				out.cell(i).seq = i + 1 // as after the last time around
			}
		}
		var want []wire.Packet
		var lying [][]byte
		sent, full := 0, 0
		for sent < 5000 || len(want) > 0 {
			if sent < 5000 && r.UintN(3) > 0 {
				if out.canRefer(true); !out.room(copyMax) {
					full++
				} else {
					p := randomPacket(r, out.space(copyMax))
					q := p
					q.Payload = bytes.Clone(p.Payload)
					out.publish(&p, false)
					want = append(want, q)
					lying = append(lying, p.Payload) // what is referred to must stay
					sent++
				}
			}
			if sent%1000 < 500 && sent < 5000 && r.UintN(16) > 0 && full < 50 {
				continue // let it fill up
			}
			for range r.UintN(4) {
				c := in.ready()
				if c == nil {
					if len(want) > 0 {
						t.Fatalf("seed %d: %d packets are missing", seed, len(want))
					}
					break
				}
				var got wire.Packet
				if !in.get(c, &got) {
					t.Fatalf("seed %d: a packet counts as lost", seed)
				}
				same(t, &got, &want[0])
				want = want[1:]
				in.Done()
			}
			if in.ready() == nil {
				in.tell()
			}
		}
		if full == 0 {
			t.Errorf("seed %d: the ring was never full", seed)
		}
		clear(lying)
	}
}

func same(t *testing.T, got, want *wire.Packet) {
	t.Helper()
	data := payloadOf(t, got)
	if !bytes.Equal(data, want.Payload) {
		t.Fatalf("%v: payload of %d bytes differs from the %d that were sent", want.BTH.Opcode, len(data),
			len(want.Payload))
	}
	g, w := *got, *want
	if len(want.Payload) <= tailBytes {
		w.Count = g.Count // which a short packet does not need
	}
	g.Payload, g.Far, g.FarLen, w.Payload = nil, nil, 0, nil
	if !reflect.DeepEqual(g, w) {
		t.Fatalf("got  %+v\nwant %+v", g, w)
	}
}

// TestVoid: what a queue pair of the sender's has taken back is lost, also in the middle of copying; what others have
// sent is not.
func TestVoid(t *testing.T) {
	out, in, _ := pair(t)
	p := wire.Packet{LRH: wire.LRH{LNH: wire.LNHLocal},
		BTH: wire.BTH{Opcode: wire.MakeOpcode(wire.RC, wire.OpSendOnly)}, Payload: make([]byte, byRefMin), Count: 2}
	mine, others := new(hca.QP), new(hca.QP)
	for _, q := range []*hca.QP{mine, mine, mine, others} {
		if !out.canRefer(true) || !out.room(0) {
			t.Fatal("no room")
		}
		out.from = q
		out.publish(&p, false)
	}
	var got wire.Packet
	if !in.get(in.ready(), &got) || got.FarLen != byRefMin || !got.Far.CopyTo(make([]byte, byRefMin), 0) {
		t.Fatal("the first packet cannot be read")
	}
	in.Done()
	if !in.get(in.ready(), &got) {
		t.Fatal("the second packet cannot be read")
	}
	out.revoke([]*hca.QP{mine})
	if got.Far.CopyTo(make([]byte, byRefMin), 0) {
		t.Error("a payload was read after it was taken back")
	}
	in.Done()
	if in.get(in.ready(), &got) {
		t.Error("a packet that was taken back is not lost")
	}
	in.Done()
	if !in.get(in.ready(), &got) || !got.Far.CopyTo(make([]byte, byRefMin), 0) {
		t.Error("another queue pair's packet is lost with it")
	}
	in.Done()
	if !out.canRefer(true) || !out.room(0) {
		t.Fatal("no room")
	}
	out.publish(&p, false)
	if !in.get(in.ready(), &got) || !got.Far.CopyTo(make([]byte, byRefMin), 0) {
		t.Error("what is sent afterwards cannot be read")
	}
}

// FuzzRing lets a sender write anything into a ring: the receiver stays within it.
func FuzzRing(f *testing.F) {
	f.Add(uint64(1), []byte{1, 2, 3})
	f.Add(uint64(7), bytes.Repeat([]byte{0xFF}, 300))
	f.Add(uint64(8), bytes.Repeat([]byte{0x22}, 300))
	f.Fuzz(func(t *testing.T, seed uint64, junk []byte) {
		r := rand.New(rand.NewPCG(seed, 2))
		ends := pair
		if seed%2 == 0 {
			ends = strangers
		}
		out, in, mem := ends(t)
		for range 60 {
			if out.canRefer(true); out.room(copyMax) {
				p := randomPacket(r, out.space(copyMax))
				p.Payload = p.Payload[:min(len(p.Payload), 600)]
				out.publish(&p, false)
			}
			for i, b := range junk {
				switch r.UintN(3) {
				case 0:
					mem[headBytes+(i*7+int(seed%977))%(len(mem)-headBytes)] ^= b
				case 1: // the cells are where it hurts
					mem[headBytes+(i*13+int(seed%1009))%(ringCells*cellBytes)] ^= b
				}
			}
			for range 3 {
				c := in.ready()
				if c == nil {
					break
				}
				var p wire.Packet
				if in.get(c, &p) && p.Far == nil && len(p.Payload) > areaBytes {
					t.Fatalf("a payload of %d bytes", len(p.Payload))
				}
				in.Done()
			}
			in.tell()
		}
	})
}

// FuzzRingReceiver lets a receiver write anything into a ring: the sender stays within it.
func FuzzRingReceiver(f *testing.F) {
	f.Add(uint64(1), []byte{1, 2, 3}, true)
	f.Add(uint64(9), bytes.Repeat([]byte{0xFF}, 300), false)
	f.Add(uint64(4), []byte{1, 2, 3}, true)
	f.Fuzz(func(t *testing.T, seed uint64, junk []byte, known bool) {
		r := rand.New(rand.NewPCG(seed, 3))
		ends := pair
		if seed%2 == 0 {
			ends = strangers
		}
		out, _, mem := ends(t)
		if !known {
			out.pid = OtherUser
		}
		for range 60 {
			s := hca.Send{Copied: r.IntN(copyMax)}
			n := s.Copied
			if out.canRefer(true) {
				n = 0
			}
			for i, b := range junk {
				mem[(i*7+int(seed%977))%headBytes] ^= b
			}
			if !out.room(n) {
				continue
			}
			p := randomPacket(r, out.space(n))
			if long := len(p.Payload) >= byRefMin; n == 0 && !long {
				p.Payload = p.Payload[:0]
			}
			ahead := out.writeAhead(&p)
			if ahead && !known {
				t.Fatal("it has written to another user's memory")
			}
			out.publish(&p, ahead)
			if !known && out.cell(out.tail-1).kind&cellByRef != 0 {
				t.Fatal("it refers another user to its memory")
			}
		}
	})
}
