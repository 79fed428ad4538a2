package link

import (
	"fmt"
	"testing"

	"softib/proto/ib"
	"softib/proto/wire"
)

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
		{"listed twice", nil, []ArbEntry{{0, 33}, {1, 33}, {0, 33}, {2, 33}}, 0, []ib.VL{0, 1, 2},
			map[ib.VL]float64{0: 0.5, 1: 0.25, 2: 0.25}},
		{"weight 0 is skipped", nil, []ArbEntry{{0, 0}, {1, 64}, {0, 0}}, 0, []ib.VL{0, 1}, map[ib.VL]float64{1: 1}},
		{"no limit", []ArbEntry{{1, 64}}, []ArbEntry{{0, 64}}, NoHighLimit, []ib.VL{0, 1}, map[ib.VL]float64{1: 1}},
		{"limit of one packet", []ArbEntry{{1, 255}}, []ArbEntry{{0, 64}}, 0, []ib.VL{0, 1},
			map[ib.VL]float64{0: 0.5, 1: 0.5}},
		{"limit of 12 KiB", []ArbEntry{{1, 255}}, []ArbEntry{{0, 64}}, 3, []ib.VL{0, 1},
			map[ib.VL]float64{0: 1. / 7, 1: 6. / 7}},
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
