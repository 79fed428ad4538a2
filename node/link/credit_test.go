package link

import (
	"math/rand/v2"
	"testing"

	"softib/proto/ib"
	"softib/proto/wire"
)

// TestMaySend holds the modulo rule against plain counting that never wraps.
func TestMaySend(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for range 200_000 {
		sent := r.Uint64N(1 << 20)        // in all
		limit := sent + r.Uint64N(2048+1) // in all; a receiver grants at most half the circle
		n := uint8(r.UintN(67))
		got := maySend(uint16(limit&fcMask), uint16(sent&fcMask), n)
		if want := sent+uint64(n) <= limit; got != want {
			t.Fatalf("sent %d, limit %d, packet of %d: %v, want %v", sent, limit, n, got, want)
		}
	}
}

// TestCreditOracle drives two ports at random, for many turns of the 12-bit
// counters, beside an oracle that counts without wrapping: the sender sends
// exactly when the oracle says that there is room known to it.
func TestCreditOracle(t *testing.T) {
	for seed := range uint64(8) {
		r := rand.New(rand.NewPCG(seed, 2))
		size := 66 + r.IntN(1982)
		a, b := joined(t, Config{BufferBlocks: size})
		type held struct{ blocks uint8 }
		var (
			buffer        []held
			occupied      int
			sent, granted = 0, size // blocks, never wrapping
			wire          []*Frame
			fcs           []wirePacket
			now           ib.Time
		)
		for range 40_000 {
			now += ib.Microsecond
			switch r.IntN(5) {
			case 0, 1: // send
				f := packet(r.IntN(4096))
				may := sent+int(f.Blocks) <= granted
				wantReason(t, "enqueue", a.Enqueue(now, f, 0), OK)
				g, _, _ := a.PollTx(now)
				if (g != nil) != may {
					t.Fatalf("seed %d: sent %d granted %d packet %d: sent is %v, oracle says %v", seed, sent, granted,
						f.Blocks, g != nil, may)
				}
				if g == nil {
					a.popHead(now, 0) // the oracle has no queue
					pool.Put(f)
					continue
				}
				sent += int(g.Blocks)
				wire = append(wire, g)
			case 2: // receive
				if len(wire) == 0 {
					continue
				}
				f := wire[0]
				wire = wire[1:]
				wantReason(t, "receive", b.Receive(now, f), OK)
				buffer = append(buffer, held{f.Blocks})
				occupied += int(f.Blocks)
				pool.Put(f)
			case 3: // the node takes a packet out of its buffer
				if len(buffer) == 0 {
					continue
				}
				i := r.IntN(len(buffer))
				n := buffer[i].blocks
				buffer = append(buffer[:i], buffer[i+1:]...)
				occupied -= int(n)
				b.Release(0, n)
			case 4: // flow control, each packet in its turn
				if fc, _, ok := b.PollFC(now); ok {
					// What it grants counts what was received, not what flies.
					flying := 0
					for _, f := range wire {
						flying += int(f.Blocks)
					}
					fcs = append(fcs, wirePacket{fc, sent - flying + size - occupied})
				}
				if len(fcs) > 0 && r.IntN(2) == 0 {
					a.HandleFC(now, fcs[0].fc)
					granted = fcs[0].limit
					fcs = fcs[1:]
				}
			}
			c := b.Credit(0)
			if int(c.Occupied) != occupied {
				t.Fatalf("occupied %d, oracle %d", c.Occupied, occupied)
			}
		}
		if sent < 10*4096 {
			t.Errorf("seed %d: %d blocks sent: the counters hardly wrapped", seed, sent)
		}
	}
}

type wirePacket struct {
	fc    wire.LinkPacket
	limit int
}

// TestOneMTUBuffer: with room for a single packet the link still moves, since all
// credit is told at once.
func TestOneMTUBuffer(t *testing.T) {
	a, b := joined(t, Config{BufferBlocks: 1})
	now := ib.Time(0)
	for i := range 1000 {
		now += ib.Microsecond
		f := packet([]int{4096, 0, 100, 4096}[i%4])
		a.Enqueue(now, f, 0)
		g, _, _ := a.PollTx(now)
		if g != f {
			t.Fatalf("packet %d does not go: %+v", i, a.Credit(0))
		}
		wantReason(t, "receive", b.Receive(now, g), OK)
		b.Release(0, g.Blocks)
		exchange(now, b, a)
		pool.Put(g)
	}
}

// TestRefresh: a lost packet takes its credit along until the sender's count
// comes by, and a lost flow-control packet until the next one does.
func TestRefresh(t *testing.T) {
	a, b := joined(t, Config{BufferBlocks: 140})
	a.Enqueue(ib.Microsecond, packet(4096), 0)
	if f, _, _ := a.PollTx(ib.Microsecond); f == nil {
		t.Fatal("the first packet does not go")
	}
	if got, want := b.Credit(0).ABR, uint16(0); got != want {
		t.Fatalf("ABR %d, want %d: nothing was received", got, want)
	}
	now := a.RefreshInterval()
	if a.SetRefresh(0, true); a.NextDeadline() != now {
		t.Fatalf("refresh at %v, want %v", a.NextDeadline(), now)
	}
	b.SetRefresh(0, true)
	a.HandleTimeout(now)
	if n := exchange(now, a, b); n != int(a.OperVLs()) {
		t.Errorf("%d flow-control packets, want one for each lane: %d", n, a.OperVLs())
	}
	b.HandleTimeout(now)
	exchange(now, b, a)
	ca, cb := a.Credit(0), b.Credit(0)
	if ca.FCTBS != cb.ABR || ca.Available() != 140 {
		t.Errorf("after a refresh: sent %d, received %d, available %d of 140", ca.FCTBS, cb.ABR, ca.Available())
	}
	// 65,536 symbols of an SDR lane are 262 us.
	sdr := NewPort(Config{Rate: ib.LinkRate{Width: ib.Width4x, Speed: ib.SDR}})
	if got := sdr.RefreshInterval(); got != 262144*ib.Nanosecond {
		t.Errorf("SDR refresh %v, want 262.144us", got)
	}
}

func TestFCBadInput(t *testing.T) {
	p := up(t, Config{VLCap: 4})
	before := p.Credit(0)
	for _, fc := range []wire.LinkPacket{{Op: 2}, {Op: 15}, {VL: 4}, {VL: 15}, {VL: 14}} {
		p.HandleFC(1, fc)
	}
	c := p.Counters()
	if c[ib.PortRcvErrors] != 5 || c[ib.PortMalformedPacketErrors] != 5 {
		t.Errorf("PortRcvErrors %d, malformed %d: want 5 and 5", c[ib.PortRcvErrors], c[ib.PortMalformedPacketErrors])
	}
	if p.Credit(0) != before {
		t.Error("a bad packet changed the credits")
	}
}
