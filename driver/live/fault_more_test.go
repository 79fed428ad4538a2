package live

import (
	"errors"
	"testing"
	"time"

	"softib/node/madrpc"
	"softib/proto/ib"
	"softib/proto/topo"
)

// TestOneWay: a fault of one direction damages what its port sends, and leaves the other direction alone.
func TestOneWay(t *testing.T) {
	f := managed(t, "star:3")
	near, far := hostPort(f, 0), hostPort(f, 2)
	leaf := f.graph.Peer(far)
	s := openAt(t, f, near)
	asks := questions(t, f, s, far)
	for _, c := range []struct{ at, arrive, clean topo.PortRef }{{far, leaf, far}, {leaf, far, leaf}} {
		if err := f.SetFault(c.at, Fault{BER: 0.1, OneWay: true}); err != nil {
			t.Fatal(err)
		}
		if got := f.Faults(); len(got) != 1 || !got[0].OneWay || got[0].Port != c.at {
			t.Errorf("faults are %+v", got)
		}
		bad, good := f.Counters(c.arrive)[ib.PortRcvErrors], f.Counters(c.clean)[ib.PortRcvErrors]
		for i, ask := range asks {
			ask(30 * ib.Millisecond)
			if d := recvAt(t, s); d.Kind != madrpc.TimedOut {
				t.Errorf("question %d: %v, want a timeout", i, d.Kind)
			}
		}
		want := bad + uint64(len(asks))
		end := time.Now().Add(time.Minute)
		for f.Counters(c.arrive)[ib.PortRcvErrors] < want && time.Now().Before(end) {
			time.Sleep(time.Millisecond)
		}
		if n := f.Counters(c.arrive)[ib.PortRcvErrors]; n != want || f.Counters(c.clean)[ib.PortRcvErrors] != good {
			t.Errorf("from %v: %d errors where they should be, want %d; %d on the other side", c.at, n, want,
				f.Counters(c.clean)[ib.PortRcvErrors]-good)
		}
		if err := f.ClearFault(c.at); err != nil {
			t.Fatal(err)
		}
	}
}

// TestResetSwitch: it takes links that are down, and leaves nothing of what a manager wrote.
func TestResetSwitch(t *testing.T) {
	f := managed(t, "star:2")
	sw := f.graph.Switches()[0].Index
	for _, node := range []int{sw, hostPort(f, 0).Node} {
		if err := f.ResetSwitch(node); !errors.Is(err, ErrFault) {
			t.Errorf("%s: %v", f.graph.Nodes[node].Name, err)
		}
	}
	for k := range 2 {
		if err := f.SetLink(hostPort(f, k), false); err != nil {
			t.Fatal(err)
		}
		if err := f.Retrain(hostPort(f, k)); !errors.Is(err, ErrFault) {
			t.Errorf("a link that is down trains: %v", err)
		}
	}
	if before, _ := f.Tables(sw); before.LID == 0 {
		t.Fatal("the switch has no LID")
	}
	if err := f.ResetSwitch(sw); err != nil {
		t.Fatal(err)
	}
	if after, _ := f.Tables(sw); after.LID != 0 || after.LFT[1] != 255 {
		t.Errorf("the switch has LID %d, and port %d for LID 1", after.LID, after.LFT[1])
	}
}
