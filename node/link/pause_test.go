package link

import (
	"testing"

	"softib/proto/ib"
)

// ethernetPort is a port of Ethernet at 100 Gbit/s whose buffer holds 64 KiB with a headroom of 16.
func ethernetPort(t *testing.T, flow Flow, e Ethernet) *Port {
	p := up(t, Config{Rate: ib.LinkRate{Width: ib.Width4x, Speed: ib.EDR}, MTUCap: ib.MTU1024, VLCap: 4, Flow: flow,
		Ethernet: e, BufferBlocks: 1024})
	p.SetHeadroom(16 << 10)
	return p
}

// TestPauseFrames: a buffer that passes its threshold stops the peer, which is told again while it is full, and to go
// on when two packets have left; nobody has to take more than the headroom meanwhile.
func TestPauseFrames(t *testing.T) {
	p := ethernetPort(t, Pause, Ethernet{Quanta: 1000})
	size, xoff, xon := p.Thresholds()
	mtu := mtuBlocks(ib.MTU1024)
	if want := (16<<10+16<<10/13)/BlockSize + 1 + mtu; size-xoff != want || xoff-xon != 2*mtu {
		t.Fatalf("size %d, xoff %d, xon %d: want a headroom of %d and %d between the two", size, xoff, xon, want, 2*mtu)
	}
	var held []*Frame
	for blocks := 0; blocks <= xoff; {
		if p.WantsFC() {
			t.Fatalf("a pause at %d blocks, want none up to %d", blocks, xoff)
		}
		f := packet(1024)
		wantReason(t, "a packet", p.Receive(0, f), OK)
		held = append(held, f)
		blocks += int(f.Blocks)
	}
	f, at, ok := p.PollPause(0)
	if !ok || f != (PauseFrame{0, 1000}) || at != p.Rate().ByteTime(84) {
		t.Fatalf("%+v at %v, %v: want a pause of 1000 quanta after 84 bytes", f, at, ok)
	}
	// A quantum is 512 bits: 5.12 ns. It is told again when half of them are over.
	again := at + 1000*5120*ib.Picosecond/2
	if got, ok := p.ArmPause(); !ok || got != again {
		t.Fatalf("told again at %v, want %v", got, again)
	}
	if !p.HandlePauseTimer(again) || !p.WantsFC() {
		t.Error("it is not told again")
	}
	if f, _, _ := p.PollPause(again); f.Quanta != 1000 {
		t.Errorf("%+v", f)
	}
	for i := range held {
		occupied := int(p.Credit(0).Occupied)
		if p.Release(0, held[i].Blocks); p.WantsFC() {
			if left := int(p.Credit(0).Occupied); left > xon || occupied <= xon {
				t.Errorf("the peer goes on at %d blocks, want %d at most", left, xon)
			}
			break
		}
	}
	if f, _, ok := p.PollPause(ib.Millisecond); !ok || f.Quanta != 0 {
		t.Errorf("%+v: want the end of the pause", f)
	}
	if p.NextPause() != ib.Never || p.PauseCounters().Sent != 3 {
		t.Errorf("next at %v, %+v", p.NextPause(), p.PauseCounters())
	}
}

// TestPaused: a port that is paused sends nothing until it is told to, or the pause is over.
func TestPaused(t *testing.T) {
	p := ethernetPort(t, Pause, Ethernet{})
	p.HandlePause(0, PauseFrame{1, 1000})
	p.HandlePause(0, PauseFrame{0, 1000})
	wantReason(t, "a packet", p.Enqueue(0, packet(1024), 0), OK)
	if f, _, _ := p.PollTx(0); f != nil || !p.Blocked() {
		t.Fatal("a paused port sends")
	}
	wantReason(t, "a packet of another priority", p.Enqueue(0, packet(1024), 2), OK)
	if f, _, dur := p.PollTx(0); f == nil || dur != p.Rate().ByteTime(int(f.Bytes)+EthernetExtra) {
		t.Fatalf("a priority that is not paused: %v, %v", f, dur)
	}
	over := 1000 * 5120 * ib.Picosecond
	if p.HandlePauseTimer(over - 1); p.PausedLanes() != 3 {
		t.Error("the pause is over too soon")
	}
	if at, ok := p.ArmPause(); !ok || at != over || !p.HandlePauseTimer(over) {
		t.Errorf("the pause ends at %v, want %v", at, over)
	}
	if f, _, _ := p.PollTx(over); f == nil {
		t.Error("a port sends nothing though its pause is over")
	}
	if c := p.PauseCounters(); c.Paused != 2*over || c.Rcvd != 2 {
		t.Errorf("%+v", c)
	}
	lossy := ethernetPort(t, Lossy, Ethernet{})
	if lossy.HandlePause(0, PauseFrame{0, 1000}); lossy.PausedLanes() != 0 {
		t.Error("a port without flow control lets itself be paused")
	}
}

// TestWatchdog: a peer that pauses without a break is given up, and taken back when it has been silent for as long as a
// pause can last.
func TestWatchdog(t *testing.T) {
	p := ethernetPort(t, Pause, Ethernet{Watchdog: ib.Millisecond})
	at := func(now ib.Time) {
		p.ArmPause()
		p.HandlePauseTimer(now)
	}
	pause := func(now ib.Time) { p.HandlePause(now, PauseFrame{0, 0xFFFF}) }
	pause(0)
	wantReason(t, "before", p.Enqueue(0, packet(1024), 0), OK)
	for now := ib.Time(0); now < ib.Millisecond; now += 100 * ib.Microsecond {
		pause(now)
		at(now)
	}
	if c := p.PauseCounters(); c.Storms != 0 {
		t.Fatal("given up too soon")
	}
	at(ib.Millisecond)
	d, ok := p.PollDropped()
	if c := p.PauseCounters(); c.Storms != 1 || !ok || d.Reason != PauseStorm {
		t.Fatalf("%+v, %v", c, d.Reason)
	}
	wantReason(t, "while it is given up", p.Enqueue(ib.Millisecond, packet(1024), 0), PauseStorm)
	wantReason(t, "of another priority", p.Enqueue(ib.Millisecond, packet(1024), 1), OK)
	pause(1500 * ib.Microsecond)
	at(2 * ib.Millisecond) // it was heard
	if c := p.PauseCounters(); c.Restored != 0 || p.PausedLanes() != 0 {
		t.Fatalf("%+v", c)
	}
	at(3 * ib.Millisecond)
	if c := p.PauseCounters(); c.Restored != 1 {
		t.Fatalf("%+v", c)
	}
	wantReason(t, "afterwards", p.Enqueue(3*ib.Millisecond, packet(1024), 0), OK)
}

// TestRED: none are marked up to Kmin, all beyond Kmax, and between as many as the line says.
func TestRED(t *testing.T) {
	r := RED{Kmin: 5_000, Kmax: 200_000, Pmax: 10_000}
	random := uint64(1)
	for _, c := range []struct {
		queued int
		want   float64
	}{{0, 0}, {5_000, 0}, {102_500, 0.005}, {200_000, 0.01}, {200_001, 1}} {
		n := 0
		const draws = 200_000
		for range draws {
			if r.marks(c.queued, &random) {
				n++
			}
		}
		if got := float64(n) / draws; got < 0.9*c.want || got > 1.1*c.want {
			t.Errorf("a queue of %d: %.4f are marked, want %.4f", c.queued, got, c.want)
		}
	}
	if (&RED{}).marks(1<<20, &random) {
		t.Error("marked without RED")
	}
}

// TestLossyDrops: without flow control a packet that finds the buffer full is dropped and counted.
func TestLossyDrops(t *testing.T) {
	p := up(t, Config{MTUCap: ib.MTU1024, VLCap: 1, Flow: Lossy, BufferBlocks: 40})
	wantReason(t, "first", p.Receive(0, packet(1024)), OK)
	wantReason(t, "second", p.Receive(0, packet(1024)), OK)
	wantReason(t, "third", p.Receive(0, packet(1024)), BufferFull)
	if p.WantsFC() || p.Counter(ib.PortBufferOverrunErrors) != 1 || p.HasAlarm() {
		t.Error("it is told, not counted, or taken for a broken link")
	}
}
