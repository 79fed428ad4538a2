package link

import (
	"math/rand/v2"
	"testing"

	"softib/proto/ib"
)

// TestLevels holds the counters by level and lane against a count of every packet, with levels that share
// lanes and lanes that share levels, across folds, whether they go through the queues or not.
func TestLevels(t *testing.T) {
	a, b := joined(t, Config{VLCap: 4})
	r := rand.New(rand.NewPCG(3, 4))
	var sentSL, gotSL, gotData, gotPkts [16]uint64
	now := ib.Time(0)
	for i := range 500 {
		now += ib.Microsecond
		f := packet(256 * (1 + r.IntN(4)))
		vl := ib.VL(r.IntN(4))
		f.LRH.SL = ib.SL(0)
		if i > 100 { // the first packets are all of level 0
			f.LRH.SL = ib.SL(int(vl) + 4*r.IntN(4))
		}
		words := uint64(f.LRH.Length)
		sentSL[f.LRH.SL] += words
		if i%5 == 0 { // by a driver that knows the way
			a.AddTraffic(true, vl, f.LRH.SL, false, 1, words)
			b.AddTraffic(false, vl, f.LRH.SL, false, 1, words)
			gotSL[f.LRH.SL] += words
			gotData[vl] += words
			gotPkts[vl]++
			pool.Put(f)
			continue
		}
		wantReason(t, "enqueue", a.Enqueue(now, f, vl), OK)
		g, _, _ := a.PollTx(now)
		if g != f {
			t.Fatal("not sent")
		}
		wantReason(t, "receive", b.Receive(now, f), OK)
		gotSL[f.LRH.SL] += words
		gotData[vl] += words
		gotPkts[vl]++
		b.Release(vl, f.Blocks)
		exchange(now, b, a)
		if i%150 == 149 {
			for vl := range ib.NumVL {
				a.fold(vl)
				b.fold(vl)
			}
		}
		pool.Put(f)
	}
	for i := range 16 {
		for _, c := range []struct {
			name      string
			got, want uint64
		}{
			{"sent at level", a.LaneCounter(ib.SLXmitData, i), sentSL[i]},
			{"received at level", b.LaneCounter(ib.SLRcvData, i), gotSL[i]},
			{"words of lane", b.LaneCounter(ib.VLRcvData, i), gotData[i]},
			{"packets of lane", b.LaneCounter(ib.VLRcvPkts, i), gotPkts[i]},
			{"received at level by the sender", a.LaneCounter(ib.SLRcvData, i), 0},
		} {
			if c.got != c.want {
				t.Errorf("%s %d: %d, want %d", c.name, i, c.got, c.want)
			}
		}
	}
	all := b.Counters()
	for c := range ib.NumCounter {
		if b.Counter(c) != all[c] {
			t.Errorf("%v alone is %d, among all %d", c, b.Counter(c), all[c])
		}
	}
	if n := a.Counter(ib.PortRcvFlowPkts); n == 0 || n != b.Counter(ib.PortXmitFlowPkts) || n != b.FCPackets() {
		t.Errorf("%d flow-control packets received, %d sent", n, b.Counter(ib.PortXmitFlowPkts))
	}
	a.SetCounter(ib.PortRcvFlowPkts, 0)
	if n := a.Counter(ib.PortRcvFlowPkts); n != 0 {
		t.Errorf("%d flow-control packets after a reset", n)
	}
}

func TestOneLevelTakesNoMemory(t *testing.T) {
	a, b := joined(t, Config{VLCap: 2})
	f := packet(100)
	a.Enqueue(0, f, 1)
	a.PollTx(0)
	b.Receive(0, f)
	words := uint64(f.LRH.Length)
	if a.cold.levels != nil || a.LaneCounter(ib.SLXmitData, 0) != words || b.LaneCounter(ib.SLRcvData, 0) != words ||
		a.LaneCounter(ib.SLXmitData, 1) != 0 {
		t.Errorf("level 0 has %d sent and %d received, want %d", a.LaneCounter(ib.SLXmitData, 0),
			b.LaneCounter(ib.SLRcvData, 0), words)
	}
}

// TestUnwrittenMapFollowsLanes: every level has a lane however many are in use, until somebody writes the map.
func TestUnwrittenMapFollowsLanes(t *testing.T) {
	p := up(t, Config{VLCap: 8})
	for _, n := range []uint8{8, 4, 1, 2} {
		if err := p.SetOperVLs(0, n); err != nil {
			t.Fatal(err)
		}
		for sl := range ib.SL(16) {
			if vl := p.SL2VL(sl); vl != ib.VL(uint8(sl)%n) || !p.IsOperVL(vl) {
				t.Errorf("%d lanes: SL %d goes to VL %d", n, sl, vl)
			}
		}
	}
	m := [ib.NumSL]ib.VL{1, 0}
	p.SetSL2VL(m)
	if err := p.SetOperVLs(0, 4); err != nil {
		t.Fatal(err)
	}
	if p.SL2VLMap() != m {
		t.Errorf("a written map became %v", p.SL2VLMap())
	}
}

func TestAlarms(t *testing.T) {
	p := up(t, Config{})
	p.SetErrorThresholds(3, 2)
	if phy, overrun := p.ErrorThresholds(); phy != 3 || overrun != 2 {
		t.Fatalf("thresholds %d and %d", phy, overrun)
	}
	bad := func() {
		f := packet(64)
		f.Flags |= BadVCRC
		wantReason(t, "receive", p.Receive(0, f), Physical)
	}
	good := func() {
		f := packet(64)
		wantReason(t, "receive", p.Receive(0, f), OK)
		p.Release(0, f.Blocks)
	}
	for range 20 { // as many good ones as bad ones: no alarm
		bad()
		good()
	}
	if p.HasAlarm() || p.Counter(ib.LocalLinkIntegrityErrors) != 0 {
		t.Errorf("alarm after errors that good packets made up for")
	}
	for range 4 {
		bad()
	}
	if !p.HasAlarm() || p.TakeAlarms() != AlarmIntegrity || p.Counter(ib.LocalLinkIntegrityErrors) != 1 ||
		p.HasAlarm() {
		t.Errorf("%d local link integrity errors after 4 errors in a row, want 1",
			p.Counter(ib.LocalLinkIntegrityErrors))
	}
	for p.Receive(0, packet(4096)) == OK {
	}
	wantReason(t, "receive", p.Receive(0, packet(4096)), Overrun)
	if a := p.TakeAlarms(); a != AlarmOverrun {
		t.Errorf("alarms %v after two overruns, want overrun", a)
	}
}
