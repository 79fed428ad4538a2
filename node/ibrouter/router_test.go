package ibrouter

import (
	"bytes"
	"encoding/hex"
	"errors"
	"slices"
	"testing"

	"softib/node/agent"
	"softib/node/link"
	"softib/proto/ib"
	"softib/proto/mad"
	"softib/proto/wire"
)

const (
	prefixA = ib.SiteLocalPrefix | 1
	prefixB = ib.SiteLocalPrefix | 2
	prefixC = ib.SiteLocalPrefix | 3
)

// ends is as much of an adapter's ports as the tests need.
type ends struct {
	agent.Node
	links []*link.Port
}

func (e *ends) TrainRate(ib.PortNum) ib.LinkRate { return ib.LinkRate{} }
func (e *ends) NodeInfo(ib.PortNum) mad.NodeInfo {
	return mad.NodeInfo{NodeType: ib.NodeRouter, NumPorts: uint8(len(e.links) - 1)}
}
func (e *ends) PollNotice() (agent.Notice, bool)                           { return agent.Notice{}, false }
func (e *ends) PortInfo(ib.PortNum) mad.PortInfo                           { return mad.PortInfo{} }
func (e *ends) SetPortInfo(_ ib.Time, p ib.PortNum, pi mad.PortInfo) error { return errIf(p == 99) }

func errIf(bad bool) error {
	if bad {
		return errors.New("refused")
	}
	return nil
}

// newRouter makes a router with a port in each of some subnets, LIDs 11, 12 and so on.
func newRouter(t testing.TB, prefixes ...uint64) (*Router, *Node) {
	t.Helper()
	links := make([]*link.Port, len(prefixes)+1)
	ports := link.NewPorts(len(links), link.Config{MTUCap: ib.MTU4096, VLCap: 4})
	var guids []ib.GUID
	for i := 1; i < len(links); i++ {
		links[i] = &ports[i]
		links[i].SetRate(ib.LinkRate{Width: ib.Width4x, Speed: ib.NDR})
		links[i].Train()
		links[i].LinkUp(0)
		for _, to := range []ib.PortState{ib.PortArmed, ib.PortActive} {
			if err := links[i].Command(0, to); err != nil {
				t.Fatal(err)
			}
		}
		guids = append(guids, ib.GUID(0x700+i))
	}
	r := New(links, guids, &link.Pool{BufSize: 4096})
	n := NewNode(&ends{links: links}, r)
	for i, prefix := range prefixes {
		if err := n.SetPortInfo(0, ib.PortNum(i+1), mad.PortInfo{LID: ib.LID(11 + i), GidPrefix: prefix}); err != nil {
			t.Fatal(err)
		}
	}
	return r, n
}

// packet is an RC SEND from a port of subnet A.
func packet(dgid ib.GID, hops uint8) *wire.Packet {
	p := &wire.Packet{
		LRH: wire.LRH{SL: 0, LNH: wire.LNHGlobal, DLID: 11, SLID: 5},
		GRH: wire.GRH{IPVer: wire.GRHVersion, TClass: 0x12, Flow: 0x34567, NxtHdr: wire.GRHNextIBA, HopLimit: hops,
			SGID: ib.MakeGID(prefixA, 0xA5), DGID: dgid},
		Payload: []byte("across"),
	}
	p.BTH = wire.BTH{Opcode: wire.MakeOpcode(wire.RC, wire.OpSendOnly), PKey: ib.PKeyDefault, DestQP: 0x77, PSN: 3}
	p.Seal()
	return p
}

func frameOf(pool *link.Pool, p *wire.Packet) *link.Frame {
	f := pool.Get()
	*f.Packet = *p
	f.Own(p.Payload)
	f.Measure()
	return f
}

// TestForward holds what leaves against what came, byte by byte: new LIDs, a hop less, and all that the ICRC covers as
// it was, the ICRC itself included.
func TestForward(t *testing.T) {
	r, n := newRouter(t, prefixA, prefixB)
	if err := n.SetRouterGUIDs(0, 2, 4, mad.RouterGUIDs{1: 0xB1}); err != nil { // LID 33
		t.Fatal(err)
	}
	var pool link.Pool
	f := frameOf(&pool, packet(ib.MakeGID(prefixB, 0xB1), 7))
	came := f.Sync().Append(nil)
	want2 := Result{}
	want2.Outs.Set(2)
	if got := r.Handle(0, 1, f); got != want2 {
		t.Fatalf("Handle: %+v", got)
	}
	left := f.Sync().Append(nil)
	const golden = "000300210012000c" + // LRH: global, to 33, 18 words, from 12
		"6123456700181b06" + // GRH: traffic class, flow, 24 bytes; 0x1b follows, 6 hops left
		"fec000000000000100000000000000a5" + "fec000000000000200000000000000b1" +
		"0420ffff00000077000000036163726f73730000" // BTH, payload and its padding
	want, err := hex.DecodeString(golden)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.HasPrefix(left, want) {
		t.Errorf("left as\n%x, want\n%x and the CRCs", left, want)
	}
	if len(came) != len(left) {
		t.Fatalf("%d bytes came and %d left", len(came), len(left))
	}
	for i := range came[:len(came)-wire.VCRCSize] {
		mayDiffer := i >= 2 && i < 4 || i >= 6 && i < 8 || i == 8+7
		if came[i] != left[i] && !mayDiffer {
			t.Errorf("byte %d was %#x and is %#x", i, came[i], left[i])
		}
	}
	var again wire.Packet
	if err := again.Parse(left); err != nil {
		t.Errorf("what left: %v", err)
	}
}

func TestDecide(t *testing.T) {
	r, n := newRouter(t, prefixA, prefixB, prefixC)
	if err := n.SetRouterGUIDs(0, 2, 0, mad.RouterGUIDs{3: 0xB1, 4: 0xB4, 5: 0xB4}); err != nil {
		t.Fatal(err)
	}
	peers := mad.NextHopTable{{Prefix: 0xFEC0_0000_0000_0009, Weight: 1, LID: 40}}
	if err := n.SetRouterPeers(0, 3, 0, peers); err != nil {
		t.Fatal(err)
	}
	onward := func(out ib.PortNum, dlid ib.LID) Decision {
		return Decision{Out: out, At: out, SLID: ib.LID(10 + out), DLID: dlid}
	}
	cases := []struct {
		name string
		in   ib.PortNum
		gid  ib.GID
		hops uint8
		want Decision
	}{
		{"another subnet", 1, ib.MakeGID(prefixB, 0xB1), 64, onward(2, 3)},
		{"the lowest of several LIDs", 3, ib.MakeGID(prefixB, 0xB4), 2, onward(2, 4)},
		{"behind another router", 1, ib.MakeGID(0xFEC0_0000_0000_0009, 0x1234), 64, onward(3, 40)},
		{"back to where it came from", 3, ib.MakeGID(0xFEC0_0000_0000_0009, 0x1234), 64, drop(link.NoRoute, 3)},
		{"nobody has it", 1, ib.MakeGID(prefixB, 0xB2), 64, drop(link.NoRoute, 1)},
		{"no such subnet", 1, ib.MakeGID(prefixB+9, 0xB1), 64, drop(link.NoRoute, 1)},
		{"no hops", 1, ib.MakeGID(prefixB, 0xB1), 1, drop(link.HopLimit, 1)},
		{"none at all", 1, ib.MakeGID(prefixB, 0xB1), 0, drop(link.HopLimit, 1)},
		{"link-local", 1, ib.MakeGID(ib.DefaultGIDPrefix, 0xB1), 64, drop(link.Looping, 1)},
		{"its own subnet", 2, ib.MakeGID(prefixB, 0xB1), 64, drop(link.Looping, 2)},
		{"the router", 1, ib.MakeGID(prefixA, 0x701), 1, Decision{Here: true}},
		{"the router, link-local", 1, ib.MakeGID(ib.DefaultGIDPrefix, 0x701), 1, Decision{Here: true}},
		{"another port of it", 1, ib.MakeGID(prefixB, 0x702), 1, Decision{Here: true}},
		{"another port of it, link-local", 1, ib.MakeGID(ib.DefaultGIDPrefix, 0x702), 9, drop(link.Looping, 1)},
		{"a group", 1, ib.GID{0: 0xFF, 1: 0x15}, 64, Decision{Fan: true}},
	}
	for _, c := range cases {
		p := packet(c.gid, c.hops)
		if got := r.Decide(c.in, &p.LRH, p); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
	local := packet(ib.MakeGID(prefixB, 0xB1), 64)
	local.LRH.LNH = wire.LNHLocal
	if got := r.Decide(1, &local.LRH, local); !got.Here {
		t.Errorf("a packet without GRH: %+v", got)
	}
	r.ports[2].link.Down(0)
	p := packet(ib.MakeGID(prefixB, 0xB1), 64)
	if got := r.Decide(1, &p.LRH, p); got.Reason != link.NoRoute {
		t.Errorf("a way that is down: %+v", got)
	}
}

// TestNextHops: a port's manager is told what leaves by other ports, and that it has changed.
func TestNextHops(t *testing.T) {
	r, n := newRouter(t, prefixA, prefixB)
	told := func() (ports []ib.PortNum) {
		for x, ok := n.PollNotice(); ok; x, ok = n.PollNotice() {
			if x.Trap != mad.TrapCapabilityChange {
				t.Errorf("trap %d", x.Trap)
			}
			ports = append(ports, x.Port)
		}
		return ports
	}
	if got := told(); !slices.Equal(got, []ib.PortNum{1, 2}) {
		t.Errorf("told managers of ports %v", got)
	}
	want := []mad.NextHop{{Prefix: prefixB, PKey: ib.PKeyDefault, Weight: 1}}
	if got := n.NextHops(1); !slices.Equal(got, want) {
		t.Errorf("next hops of port 1: %+v", got)
	}
	if err := n.SetRouterPeers(0, 2, 0, mad.NextHopTable{{Prefix: prefixC, Weight: 1, LID: 8},
		{Prefix: prefixA, Weight: 3, LID: 8}, {Prefix: prefixB + 7, Weight: weightMax, LID: 8}}); err != nil {
		t.Fatal(err)
	}
	want = append(want, mad.NextHop{Prefix: prefixC, PKey: ib.PKeyDefault, Weight: 2})
	if got := n.NextHops(1); !slices.Equal(got, want) {
		t.Errorf("with a peer: %+v", got)
	}
	if got := n.NextHops(2); !slices.Equal(got, []mad.NextHop{{Prefix: prefixA, PKey: ib.PKeyDefault, Weight: 1}}) {
		t.Errorf("next hops of port 2: %+v", got)
	}
	if got := told(); len(got) != 2 {
		t.Errorf("told managers of ports %v", got)
	}
	r.ports[2].link.Down(0)
	r.Refresh()
	if got := n.NextHops(1); len(got) != 0 {
		t.Errorf("with the link down: %+v", got)
	}
	if r.Refresh(); len(told()) != 2 || len(told()) != 0 {
		t.Error("a change is told once")
	}
	for _, bad := range []mad.NextHop{{Prefix: prefixC, LID: 3}, {Prefix: ib.DefaultGIDPrefix, Weight: 1, LID: 3}} {
		if n.SetRouterPeers(0, 1, 0, mad.NextHopTable{bad}) == nil {
			t.Errorf("%+v was taken", bad)
		}
	}
}

// FuzzGUIDs holds the look-up against the table after any writes.
func FuzzGUIDs(f *testing.F) {
	f.Add([]byte{0, 1, 2, 0, 9, 1, 1, 1, 0, 0, 0, 0, 0, 0, 2, 2})
	f.Fuzz(func(t *testing.T, writes []byte) {
		r, n := newRouter(t, prefixA, prefixB)
		for ; len(writes) > mad.RouterGUIDsPerBlock; writes = writes[mad.RouterGUIDsPerBlock+1:] {
			var b mad.RouterGUIDs
			for i := range b {
				b[i] = ib.GUID(writes[1+i] % 8)
			}
			if err := n.SetRouterGUIDs(0, 2, int(writes[0]%3), b); err != nil {
				t.Fatal(err)
			}
			if n.RouterGUIDs(2, int(writes[0]%3)) != b {
				t.Fatal("what was written is not read")
			}
		}
		for g := range ib.GUID(8) {
			want := ib.LID(0)
			for lid, has := range r.ports[2].guids {
				if has == g && g != 0 && lid > 0 {
					want = ib.LID(lid)
					break
				}
			}
			if got := r.ports[2].lids[g]; got != want {
				t.Fatalf("GUID %v is at LID %v, want %v, of %v", g, got, want, r.ports[2].guids)
			}
		}
	})
}

// FuzzHandle: whatever arrives, nothing panics, and what leaves has a hop less and the ICRC that it came with.
func FuzzHandle(f *testing.F) {
	f.Add(packet(ib.MakeGID(prefixB, 0xB1), 7).Append(nil), uint8(1))
	f.Add(packet(ib.MakeGID(prefixA, 0x701), 0).Append(nil), uint8(2))
	f.Fuzz(func(t *testing.T, b []byte, in uint8) {
		var p wire.Packet
		if p.Parse(b) != nil {
			return
		}
		r, n := newRouter(t, prefixA, prefixB)
		if err := n.SetRouterGUIDs(0, 2, 0, mad.RouterGUIDs{1: 0xB1}); err != nil {
			t.Fatal(err)
		}
		var pool link.Pool
		fr := frameOf(&pool, &p)
		hops := p.GRH.HopLimit
		if res := r.Handle(0, 1+ib.PortNum(in%2), fr); res.Outs.Empty() {
			return
		}
		left := fr.Sync().Append(nil)
		if fr.Packet.GRH.HopLimit != hops-1 || fr.LRH.SLID == 0 || fr.LRH.DLID == 0 {
			t.Fatalf("it left as %+v with %d hops of %d", fr.LRH, fr.Packet.GRH.HopLimit, hops)
		}
		icrc := len(left) - wire.VCRCSize - 4
		if !bytes.Equal(left[icrc:icrc+4], b[len(b)-wire.VCRCSize-4:len(b)-wire.VCRCSize]) {
			t.Fatal("the ICRC has changed")
		}
	})
}
