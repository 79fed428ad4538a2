package live

import (
	"errors"
	"testing"
	"time"

	"softib/node/madrpc"
	"softib/proto/ib"
	"softib/proto/mad"
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

// TestNodeGUID: a node answers with another's GUID until that is lifted, also after it was reset; its ports do not.
func TestNodeGUID(t *testing.T) {
	f := managed(t, "line:2")
	a, b := f.graph.Switches()[0], f.graph.Switches()[1]
	is := func(node *topo.Node, want ib.GUID) {
		t.Helper()
		var req, resp [mad.Size]byte
		if _, err := (&mad.SMP{Method: mad.MethodGet, Attr: mad.AttrNodeInfo, TID: 1}).Append(req[:0]); err != nil {
			t.Fatal(err)
		}
		var info mad.NodeInfo
		if !f.SMP(node.Index, 0, &req, &resp) {
			t.Fatalf("%s does not answer", node.Name)
		}
		if _, err := info.Parse(resp[mad.SMPDataOff:]); err != nil || info.NodeGUID != want ||
			info.PortGUID != node.PortGUID(0) || info.SystemImageGUID != node.SystemGUID {
			t.Errorf("%s says %+v, %v; want node GUID %v", node.Name, info, err, want)
		}
	}
	if err := f.SetNodeGUID(b.Index, a.GUID); err != nil {
		t.Fatal(err)
	}
	is(b, a.GUID)
	for p := range b.Ports {
		r := topo.PortRef{Node: b.Index, Port: ib.PortNum(p)}
		if !b.Ports[p].Connected() {
			continue
		}
		if err := f.SetLink(r, false); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.ResetSwitch(b.Index); err != nil {
		t.Fatal(err)
	}
	is(b, a.GUID)
	if list := f.FalseGUIDs(); len(list) != 1 || list[0].Node != b.Index || list[0].Since.IsZero() {
		t.Errorf("%+v", list)
	}
	if err := f.SetNodeGUID(b.Index, b.GUID); err != nil {
		t.Fatal(err)
	}
	is(b, b.GUID)
	if list := f.FalseGUIDs(); len(list) != 0 {
		t.Errorf("lifted, and still %+v", list)
	}
	if err := f.SetNodeGUID(-1, a.GUID); !errors.Is(err, ErrFault) {
		t.Errorf("no such node: %v", err)
	}
}
