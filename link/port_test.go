package link

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"softib/ib"
	"softib/wire"
)

var rate = ib.LinkRate{Width: ib.Width4x, Speed: ib.NDR}

// up makes a port that is Active and has told and been told its first credits.
func up(t testing.TB, cfg Config) *Port {
	t.Helper()
	if cfg.Rate == (ib.LinkRate{}) {
		cfg.Rate = rate
	}
	p := NewPort(cfg)
	if !p.Train() {
		t.Fatal("does not train")
	}
	p.LinkUp(0)
	for _, s := range []ib.PortState{ib.PortArmed, ib.PortActive} {
		if err := p.Command(0, s); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

// joined is two active ports that know each other's first limits.
func joined(t testing.TB, cfg Config) (a, b *Port) {
	t.Helper()
	a, b = up(t, cfg), up(t, cfg)
	exchange(0, a, b)
	exchange(0, b, a)
	return a, b
}

// exchange carries from's flow-control packets to to. It reports how many.
func exchange(now ib.Time, from, to *Port) (n int) {
	for {
		fc, _, ok := from.PollFC(now)
		if !ok {
			return n
		}
		to.HandleFC(now, fc)
		n++
	}
}

var pool = Pool{BufSize: 4096}

// packet is a frame with a UD packet of so many payload bytes.
func packet(size int) *Frame {
	f := pool.Get()
	*f.Packet = wire.Packet{
		LRH:     wire.LRH{LNH: wire.LNHLocal, DLID: 5, SLID: 6},
		BTH:     wire.BTH{Opcode: wire.MakeOpcode(wire.UD, wire.OpSendOnly), PKey: ib.PKeyDefault, DestQP: 9},
		Payload: f.Buf()[:size],
	}
	f.Packet.Seal()
	f.Measure()
	return f
}

// smp is a frame with a subnet management packet.
func smp() *Frame {
	f := packet(256)
	f.Packet.BTH.DestQP = 0
	f.LRH.VL = ib.VLMgmt
	return f
}

func wantReason(t *testing.T, what string, got, want Reason) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

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
					t.Fatalf("seed %d: sent %d granted %d packet %d: sent is %v, oracle says %v", seed, sent, granted, f.Blocks, g != nil, may)
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
		{"VCRC", func(*Port) *Frame { f := packet(64); f.Flags |= BadVCRC; return f }, Physical, ib.PortRcvErrors, ib.PortLocalPhysicalErrors},
		{"LVer", func(*Port) *Frame { f := packet(64); f.LRH.LVer = 1; return f }, Malformed, ib.PortRcvErrors, ib.PortMalformedPacketErrors},
		{"length of other bytes", func(*Port) *Frame { f := packet(64); f.LRH.Length++; return f }, Malformed, ib.PortRcvErrors, ib.PortMalformedPacketErrors},
		{"longer than MTU", func(*Port) *Frame { return packet(2304) }, Malformed, ib.PortRcvErrors, ib.PortMalformedPacketErrors},
		{"no length", func(*Port) *Frame { f := packet(0); f.LRH.Length, f.Bytes = 4, 18; return f }, Malformed, ib.PortRcvErrors, ib.PortMalformedPacketErrors},
		{"VL not in use", func(*Port) *Frame { f := packet(64); f.LRH.VL = 4; return f }, Malformed, ib.PortRcvErrors, ib.PortMalformedPacketErrors},
		{"VL not a VL", func(*Port) *Frame { f := packet(64); f.LRH.VL = 16; return f }, Malformed, ib.PortRcvErrors, ib.PortMalformedPacketErrors},
		{"VL15 with GRH", func(*Port) *Frame { f := smp(); f.LRH.LNH = wire.LNHGlobal; return f }, Malformed, ib.PortRcvErrors, ib.PortMalformedPacketErrors},
		{"VL15 to another QP", func(*Port) *Frame { f := packet(64); f.LRH.VL = 15; return f }, Malformed, ib.PortRcvErrors, ib.PortMalformedPacketErrors},
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
	for range overrunThreshold {
		wantReason(t, "next", p.Receive(0, packet(4096)), Overrun)
	}
	if n := p.Counters()[ib.ExcessiveBufferOverrunErrors]; n != 1 {
		t.Errorf("ExcessiveBufferOverrunErrors %d after %d in a row, want 1", n, overrunThreshold)
	}
}

// TestStates: who may send and receive what, in which state.
func TestStates(t *testing.T) {
	p := NewPort(Config{Rate: rate})
	try := func(data, mgmt, in Reason) {
		t.Helper()
		f, g := packet(0), smp()
		wantReason(t, "data out in "+p.State().String(), p.Enqueue(0, f, 0), data)
		wantReason(t, "VL15 out in "+p.State().String(), p.Enqueue(0, g, ib.VLMgmt), mgmt)
		wantReason(t, "data in in "+p.State().String(), p.Receive(0, packet(0)), in)
	}
	try(Inactive, Inactive, NotReady)
	for _, s := range []ib.PortState{ib.PortArmed, ib.PortActive, ib.PortInit, 7} {
		if err := p.Command(0, s); !errors.Is(err, ErrState) {
			t.Errorf("Down to %v: %v, want ErrState", s, err)
		}
	}
	p.Train()
	if p.Train() {
		t.Error("trains twice")
	}
	p.LinkUp(0)
	try(Inactive, OK, NotReady)
	if err := p.Command(0, ib.PortActive); !errors.Is(err, ErrState) {
		t.Errorf("Init to Active: %v, want ErrState", err)
	}
	if err := p.Command(0, ib.PortArmed); err != nil {
		t.Fatal(err)
	}
	wantReason(t, "data out when armed", p.Enqueue(0, packet(0), 0), Inactive)
	// Data from an active neighbour activates.
	wantReason(t, "data in when armed", p.Receive(0, packet(0)), OK)
	if p.State() != ib.PortActive {
		t.Fatalf("%v after data, want Active", p.State())
	}
	wantReason(t, "data out", p.Enqueue(0, packet(0), 0), OK)

	// Going down flushes what is queued.
	p.Down(5)
	n := 0
	for d, ok := p.PollDropped(); ok; d, ok = p.PollDropped() {
		wantReason(t, "flushed", d.Reason, LinkDown)
		n++
	}
	if n != 2 {
		t.Errorf("%d packets flushed, want the data and the SMP", n)
	}
	if c := p.Counters(); c[ib.LinkDownedCounter] != 1 || p.Pending() {
		t.Errorf("LinkDowned %d, pending %v: want 1 and false", c[ib.LinkDownedCounter], p.Pending())
	}
	if p.Down(6); p.Counters()[ib.LinkDownedCounter] != 1 {
		t.Error("a link that is down went down again")
	}
	for _, s := range []ib.PhysState{ib.PhysDisabled, ib.PhysPolling, ib.PhysSleep, ib.PhysPolling} {
		if err := p.CommandPhys(7, s); err != nil || p.Phys() != s {
			t.Errorf("phys %v: %v, is %v", s, err, p.Phys())
		}
	}
	if err := p.CommandPhys(8, ib.PhysLinkUp); !errors.Is(err, ErrState) {
		t.Errorf("phys LinkUp by command: %v, want ErrState", err)
	}
}

func TestIllegalTransitionPanics(t *testing.T) {
	for _, c := range []struct {
		phys  ib.PhysState
		state ib.PortState
	}{{ib.PhysLinkUp, ib.PortDown}, {ib.PhysPolling, ib.PortInit}, {ib.PhysTraining, ib.PortArmed}, {ib.PhysTraining, ib.PortInit}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("Polling/Down to %v/%v did not panic", c.phys, c.state)
				}
			}()
			NewPort(Config{Rate: rate}).transition(c.phys, c.state)
		}()
	}
}

func TestManagementWrites(t *testing.T) {
	p := up(t, Config{MTUCap: ib.MTU2048, VLCap: 4})
	for _, m := range []ib.MTU{0, ib.MTU4096, 9} {
		if err := p.SetNeighborMTU(m); !errors.Is(err, ErrState) {
			t.Errorf("NeighborMTU %v: %v, want ErrState", m, err)
		}
	}
	if err := p.SetNeighborMTU(ib.MTU256); err != nil {
		t.Fatal(err)
	}
	wantReason(t, "257 bytes towards an MTU of 256", p.Enqueue(0, packet(400), 0), NeighborMTU)
	wantReason(t, "256 bytes towards an MTU of 256", p.Enqueue(0, packet(256), 0), OK)
	if c := p.Counters(); c[ib.PortXmitDiscards] != 1 || c[ib.PortNeighborMTUDiscards] != 1 {
		t.Errorf("discards %d, MTU discards %d: want 1 and 1", c[ib.PortXmitDiscards], c[ib.PortNeighborMTUDiscards])
	}
	for _, n := range []uint8{0, 5, 16} {
		if err := p.SetOperVLs(0, n); !errors.Is(err, ErrState) {
			t.Errorf("OperVLs %d: %v, want ErrState", n, err)
		}
	}
	wantReason(t, "VL3", p.Enqueue(0, packet(10), 3), OK)
	if err := p.SetOperVLs(0, 2); err != nil {
		t.Fatal(err)
	}
	if d, ok := p.PollDropped(); !ok || d.Reason != Inactive {
		t.Errorf("packet of a lane that went out of use: %v %v", d.Reason, ok)
	}
	wantReason(t, "VL3 out of use", p.Enqueue(0, packet(10), 3), Inactive)
}

// TestArbitration measures shares: weights decide in each table, the high table
// goes first up to its limit, VL15 before everything.
func TestArbitration(t *testing.T) {
	for _, c := range []struct {
		name      string
		high, low []ArbEntry
		limit     uint8
		lanes     []ib.VL
		want      map[ib.VL]float64 // shares of bytes
	}{
		{"equal", nil, []ArbEntry{{0, 64}, {1, 64}}, 0, []ib.VL{0, 1}, map[ib.VL]float64{0: 0.5, 1: 0.5}},
		{"1 to 3", nil, []ArbEntry{{0, 33}, {1, 99}}, 0, []ib.VL{0, 1}, map[ib.VL]float64{0: 0.25, 1: 0.75}},
		{"listed twice", nil, []ArbEntry{{0, 33}, {1, 33}, {0, 33}, {2, 33}}, 0, []ib.VL{0, 1, 2}, map[ib.VL]float64{0: 0.5, 1: 0.25, 2: 0.25}},
		{"weight 0 is skipped", nil, []ArbEntry{{0, 0}, {1, 64}, {0, 0}}, 0, []ib.VL{0, 1}, map[ib.VL]float64{1: 1}},
		{"no limit", []ArbEntry{{1, 64}}, []ArbEntry{{0, 64}}, NoHighLimit, []ib.VL{0, 1}, map[ib.VL]float64{1: 1}},
		{"limit of one packet", []ArbEntry{{1, 255}}, []ArbEntry{{0, 64}}, 0, []ib.VL{0, 1}, map[ib.VL]float64{0: 0.5, 1: 0.5}},
		{"limit of 12 KiB", []ArbEntry{{1, 255}}, []ArbEntry{{0, 64}}, 3, []ib.VL{0, 1}, map[ib.VL]float64{0: 1. / 7, 1: 6. / 7}},
		{"only high has data", []ArbEntry{{1, 10}}, []ArbEntry{{0, 64}}, 0, []ib.VL{1}, map[ib.VL]float64{1: 1}},
		{"in no table", nil, []ArbEntry{{0, 64}}, 0, []ib.VL{3}, map[ib.VL]float64{3: 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := up(t, Config{VLCap: 4})
			p.SetArbHigh(0, c.high)
			p.SetArbLow(0, make([]ArbEntry, ArbTableLen))
			p.SetArbLow(0, c.low)
			p.SetHighLimit(c.limit)
			got := map[ib.VL]float64{}
			sum, now := 0., ib.Time(0)
			for _, vl := range c.lanes {
				for range 3 {
					p.Enqueue(now, packet(2048), vl)
				}
			}
			for range 4200 {
				now += ib.Microsecond
				for vl := range ib.VL(4) { // credit without end
					p.HandleFC(now, wire.LinkPacket{VL: vl, FCCL: (p.Credit(vl).FCTBS + 2000) & fcMask})
				}
				f, _, _ := p.PollTx(now)
				if f == nil {
					t.Fatal("nothing goes")
				}
				vl := f.LRH.VL
				got[vl] += float64(f.Bytes)
				sum += float64(f.Bytes)
				p.Enqueue(now, f, vl)
			}
			for _, vl := range c.lanes {
				if share := got[vl] / sum; share < c.want[vl]-0.01 || share > c.want[vl]+0.01 {
					t.Errorf("VL%d has %.3f of the bytes, want %.3f", vl, share, c.want[vl])
				}
			}
			p.Enqueue(now, smp(), ib.VLMgmt)
			if f, _, _ := p.PollTx(now + ib.Microsecond); f == nil || f.LRH.VL != ib.VLMgmt {
				t.Error("VL15 is not first")
			}
		})
	}
}

// TestXmitWait: the clock runs while packets wait for credit, in words of time.
func TestXmitWait(t *testing.T) {
	p := up(t, Config{VLCap: 2})
	p.Enqueue(1000, packet(100), 1)
	if f, _, _ := p.PollTx(1000); f != nil || !p.Blocked() {
		t.Fatal("sent without credit")
	}
	word := rate.ByteTime(4)
	later := 1000 + 500*word
	if !p.HandleFC(later, wire.LinkPacket{VL: 1, FCCL: 100}) {
		t.Error("credit for a waiting packet is no reason to poll")
	}
	if f, _, _ := p.PollTx(later); f == nil {
		t.Fatal("not sent with credit")
	}
	if got := p.Counters()[ib.PortXmitWait]; got != 500 {
		t.Errorf("PortXmitWait %d, want 500", got)
	}
	if got := p.VLCounters(1); got.XmitWait != 500 || got.XmitPkts != 1 || got.XmitData != 33 {
		t.Errorf("VL1 %+v, want 500 of waiting, 1 packet, 33 words", got)
	}
	if got := p.VLCounters(0).XmitWait; got != 0 {
		t.Errorf("VL0 waited %d, want 0", got)
	}
}

// TestHOQLife: the head of a queue that lacks credit is dropped when its time is over, the next
// one gets its own time, and too many in a row stall the lane.
func TestHOQLife(t *testing.T) {
	p := up(t, Config{})
	p.SetHOQLife(0) // 4.096 us
	p.SetVLStallCount(3)
	life := 4096 * ib.Nanosecond
	drops := func() (r []Reason) {
		for d, ok := p.PollDropped(); ok; d, ok = p.PollDropped() {
			r = append(r, d.Reason)
		}
		return r
	}
	for range 5 {
		p.Enqueue(0, packet(100), 0)
	}
	p.PollTx(0)
	if got := p.NextDeadline(); got != life {
		t.Fatalf("deadline %v, want %v", got, life)
	}
	p.HandleTimeout(life - 1)
	if got := drops(); got != nil {
		t.Fatalf("dropped %v too early", got)
	}
	p.HandleTimeout(life)
	if got := fmt.Sprint(drops()); got != fmt.Sprint([]Reason{HOQLife}) {
		t.Fatalf("dropped %v, want the head alone", got)
	}
	p.HandleTimeout(2 * life)
	drops()
	p.HandleTimeout(3 * life) // the third in a row
	if got := fmt.Sprint(drops()); got != fmt.Sprint([]Reason{HOQLife, VLStalled, VLStalled}) {
		t.Fatalf("dropped %v, want the head and what was behind it", got)
	}
	wantReason(t, "into a stalled lane", p.Enqueue(4*life, packet(100), 0), VLStalled)
	wantReason(t, "after eight life times", p.Enqueue(11*life, packet(100), 0), OK)
	c := p.Counters()
	if c[ib.PortXmitDiscards] != 6 || c[ib.PortSwHOQLifetimeLimitDiscards] != 6 {
		t.Errorf("discards %d and %d, want 6 each", c[ib.PortXmitDiscards], c[ib.PortSwHOQLifetimeLimitDiscards])
	}
	// One that is sent ends the row.
	p.HandleTimeout(12 * life)
	p.HandleFC(12*life, wire.LinkPacket{FCCL: 64})
	p.Enqueue(12*life, packet(100), 0)
	if f, _, _ := p.PollTx(12 * life); f == nil || p.cold.expired[0] != 0 {
		t.Errorf("sent %v, %d expiries in a row: want a packet and 0", f != nil, p.cold.expired[0])
	}
}

func TestSwitchLife(t *testing.T) {
	p := up(t, Config{})
	p.SetSwitchLife(ib.Microsecond)
	f := packet(100)
	f.Arrived = 0
	p.Enqueue(500*ib.Nanosecond, f, 0)
	if got := p.NextDeadline(); got != ib.Microsecond {
		t.Fatalf("deadline %v, want 1us after arrival", got)
	}
	p.HandleTimeout(ib.Microsecond)
	if d, ok := p.PollDropped(); !ok || d.Reason != SwitchLife {
		t.Errorf("got %v %v, want a drop for switch life time", d.Reason, ok)
	}
	if n := p.Counters()[ib.PortSwLifetimeLimitDiscards]; n != 1 {
		t.Errorf("PortSwLifetimeLimitDiscards %d, want 1", n)
	}
}

func TestPartitions(t *testing.T) {
	p := up(t, Config{})
	f := packet(10)
	wantReason(t, "not enforced", p.FilterIn(f), OK)
	p.SetPKeys([]ib.PKey{0x8001, 0x0002})
	p.SetEnforcement(EnforcePKeyIn | EnforcePKeyOut | EnforceRawIn)
	for _, c := range []struct {
		key  ib.PKey
		want bool
	}{{0x8001, true}, {0x0001, true}, {0x8002, true}, {0x0002, false}, {0x8003, false}, {0xFFFF, false}, {0x8000, false}} {
		f.Packet.BTH.PKey = c.key
		in, out := OK, OK
		if !c.want {
			in, out = PKeyIn, PKeyOut
		}
		wantReason(t, c.key.String()+" in", p.FilterIn(f), in)
		wantReason(t, c.key.String()+" out", p.FilterOut(f), out)
	}
	f.LRH.LNH = wire.LNHRaw
	wantReason(t, "raw in", p.FilterIn(f), RawIn)
	wantReason(t, "raw out", p.FilterOut(f), OK)
	c := p.Counters()
	if c[ib.PortRcvConstraintErrors] != 5 || c[ib.PortXmitConstraintErrors] != 4 {
		t.Errorf("constraint errors in %d, out %d: want 5 and 4", c[ib.PortRcvConstraintErrors], c[ib.PortXmitConstraintErrors])
	}
}

// TestTiming: a packet takes its bytes' time, flow control goes first, and nothing
// starts before the transmitter is free.
func TestTiming(t *testing.T) {
	a, _ := joined(t, Config{})
	now := 10 * ib.Microsecond
	a.fcNeed = 1
	a.Enqueue(now, packet(4096), 0)
	a.Enqueue(now, packet(4096), 0)
	_, at, ok := a.PollFC(now)
	if fc := rate.ByteTime(FCBytes); !ok || at != now+fc {
		t.Fatalf("flow control leaves at %v, want %v", at, now+fc)
	}
	f, start, dur := a.PollTx(now)
	if f == nil || start != at || dur != rate.ByteTime(int(f.Bytes)) {
		t.Fatalf("packet %v from %v for %v, want from %v", f != nil, start, dur, at)
	}
	if a.BusyUntil() != start+dur {
		t.Errorf("busy until %v, want %v", a.BusyUntil(), start+dur)
	}
	if f, _, _ := a.PollTx(start + dur - 1); f != nil {
		t.Error("sent while busy")
	}
	if f, _, _ := a.PollTx(start + dur); f == nil {
		t.Error("not sent when free")
	}
}

func TestCountersFoldAndReset(t *testing.T) {
	p := up(t, Config{})
	tx, rx := p.tx(0), p.rx(0)
	tx.words, tx.pkts = foldAt-10, 7
	rx.words, rx.pkts = foldAt-10, 9
	wantReason(t, "receive", p.Receive(0, packet(4096)), OK)
	p.HandleFC(0, wire.LinkPacket{FCCL: 100})
	p.Enqueue(0, packet(4096), 0)
	if f, _, _ := p.PollTx(0); f == nil {
		t.Fatal("not sent")
	}
	words := uint64(packet(4096).LRH.Length)
	c := p.Counters()
	for i, want := range map[ib.Counter]uint64{
		ib.PortXmitData: foldAt - 10 + words, ib.PortRcvData: foldAt - 10 + words,
		ib.PortXmitPkts: 8, ib.PortRcvPkts: 10, ib.PortUnicastXmitPkts: 8, ib.PortMulticastRcvPkts: 0,
	} {
		if c[i] != want {
			t.Errorf("%v is %d, want %d", i, c[i], want)
		}
	}
	if tx.words >= foldAt || rx.words >= foldAt {
		t.Error("the short counters were not folded")
	}
	p.SetCounter(ib.PortXmitData, 0)
	p.SetCounter(ib.PortXmitPkts, 5)
	if c := p.Counters(); c[ib.PortXmitData] != 0 || c[ib.PortXmitPkts] != 5 {
		t.Errorf("after writing: %d and %d, want 0 and 5", c[ib.PortXmitData], c[ib.PortXmitPkts])
	}
}

func TestReasons(t *testing.T) {
	for r := range NumReason {
		if r.String() == "" {
			t.Errorf("reason %d has no words", r)
		}
	}
	if s := Reason(200).String(); s != "Reason(200)" {
		t.Errorf("unknown reason prints as %q", s)
	}
}
