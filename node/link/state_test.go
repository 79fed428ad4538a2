package link

import (
	"errors"
	"testing"

	"softib/proto/ib"
)

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
	}{{ib.PhysLinkUp, ib.PortDown}, {ib.PhysPolling, ib.PortInit}, {ib.PhysTraining, ib.PortArmed},
		{ib.PhysTraining, ib.PortInit}} {
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
