package ipoib

import (
	"net/netip"
	"testing"

	"softib/proto/ib"
	"softib/proto/mad"
)

// Two hosts find each other by either family, and packets that waited arrive.
func TestNeighbours(t *testing.T) {
	w := newTestWorld(t, 1, 3)
	w.run(ib.Second)
	a, b, c := w.hosts[0], w.hosts[1], w.hosts[2]
	for i, to := range []netip.Addr{b.ip(), b.ip6()} {
		text := a.send(to, i)
		w.run(100 * ib.Millisecond)
		if b.count(text) != 1 || len(c.got) != 0 {
			t.Errorf("a packet to %v: h2 got %q, h3 %q", to, b.got, c.got)
		}
		back := b.send([]netip.Addr{a.ip(), a.ip6()}[i], 10+i)
		w.run(10 * ib.Millisecond)
		if a.count(back) != 1 {
			t.Errorf("the answer by %v: h1 got %q", to, a.got)
		}
	}
}

// Programs can begin when the host has its addresses and is in the groups by which others find it, or is refused there;
// to have joined the broadcast group is not enough.
func TestReady(t *testing.T) {
	addrs := []netip.Prefix{netip.MustParsePrefix("198.18.0.1/15"), netip.MustParsePrefix("fd53::1/64")}
	for _, refused := range []int{-1, 0, 1} { // which of the groups, if any
		i := New(0, Config{PKey: testKey(), Self: LinkAddr{QPN: 1}})
		joins := func() (all []ib.GID) {
			for a, ok := i.Poll(); ok; a, ok = i.Poll() {
				if a.Kind == Join {
					all = append(all, a.GID)
				}
			}
			return all
		}
		answer := func(g ib.GID, yes bool) {
			i.HandleJoined(0, g, mad.MCMemberRecord{MGID: g, MLID: 0xC000, MTU: ib.MTU2048, QKey: ib.QKeyIPoIB}, yes)
		}
		want := func(is bool, when string) {
			t.Helper()
			if i.IsReady(addrs) != is {
				t.Errorf("%s: ready is %v", when, !is)
			}
		}
		answer(joins()[0], true)
		want(false, "the broadcast group without an address")
		i.SetAddrs(0, addrs[:1])
		answer(joins()[0], true)
		want(false, "one address and its group, without the other")
		i.SetAddrs(0, addrs)
		all := joins()
		if len(all) != 2 { // all nodes, and those with the address's last bytes
			t.Fatalf("joins %v", all)
		}
		for n, g := range all {
			want(false, "a group that the administrator has said nothing of")
			answer(g, n != refused)
		}
		want(true, "all groups answered")
		if i.Waiting() != 0 {
			t.Errorf("group %d refused: %d bytes wait for it", refused, i.Waiting())
		}
	}
}

// Who sends to an address that nobody has is told so, by three questions and three seconds later.
func TestUnreachable(t *testing.T) {
	w := newTestWorld(t, 1, 2)
	w.run(ib.Second)
	a := w.hosts[0]
	a.send(netip.MustParseAddr("198.18.0.77"), 1)
	a.send(netip.MustParseAddr("fd53::77"), 2)
	w.run(AskTries*AskInterval - 10*ib.Millisecond)
	if len(a.got) != 0 {
		t.Errorf("told too early: %q", a.got)
	}
	w.run(100 * ib.Millisecond)
	if a.count("icmp 3/1") != 1 || a.count("icmp v6 1/3") != 1 || a.Stats.Unreachable != 2 {
		t.Errorf("h1 got %q, and counts %+v", a.got, a.Stats)
	}
	w.run(300 * ib.Second)
	if len(a.neighbours) != 0 || len(a.order) != 0 || len(a.paths) != 0 || a.waiting != 0 {
		t.Errorf("left over: %d neighbours, %d paths, %d bytes", len(a.neighbours), len(a.paths), a.waiting)
	}
	// On a busy machine it takes longer, and never less than that.
	for _, x := range []struct {
		set  int
		want ib.Time
	}{{10, 10}, {1, AskTries}} {
		a.SetTries(x.set)
		before := a.Stats.Unreachable
		a.send(netip.MustParseAddr("198.18.0.78"), 3)
		w.run(x.want*AskInterval - 10*ib.Millisecond)
		if a.Stats.Unreachable != before {
			t.Errorf("with %d tries: told too early", x.set)
		}
		w.run(300 * ib.Second)
		if a.Stats.Unreachable != before+1 {
			t.Errorf("with %d tries: not told", x.set)
		}
	}
}

// A packet that is too long is refused with what would fit.
func TestTooBig(t *testing.T) {
	w := newTestWorld(t, 1, 2)
	w.run(ib.Second)
	a, b := w.hosts[0], w.hosts[1]
	a.send(b.ip(), 1)
	w.run(ib.Second)
	big := make([]byte, 3000)
	copy(big, []byte{0x45, 0, 3000 >> 8, 3000 & 0xFF, 0, 0, 0x40, 0, 64, protoUDP, 0, 0})
	copy(big[12:], a.ip().AsSlice())
	copy(big[16:], b.ip().AsSlice())
	if a.HandlePacket(w.now, big, Offload{}) != nil {
		t.Error("a packet of 3000 bytes has a way")
	}
	if act, ok := a.Poll(); !ok || act.Kind != Deliver || icmpName(act.Packet) != "3/4" ||
		int(act.Packet[26])<<8|int(act.Packet[27]) != 2044 {
		t.Errorf("what it is told: %+v", act)
	}
}

// Groups reach who listens and nobody else; who begins to listen is reached a little later.
func TestGroups(t *testing.T) {
	w := newTestWorld(t, 1, 4)
	w.run(ib.Second)
	a, b, c := w.hosts[0], w.hosts[1], w.hosts[2]
	for i, g := range []netip.Addr{netip.MustParseAddr("239.1.2.3"), netip.MustParseAddr("ff15::1234")} {
		lost := a.send(g, 100+i)
		w.run(2 * joinAgain)
		b.SetGroups(w.now, []netip.Addr{g})
		b.turn()
		w.run(100 * ib.Millisecond)
		text := a.send(g, 200+i)
		w.run(100 * ib.Millisecond)
		if b.count(text) != 1 || c.count(text) != 0 || b.count(lost) != 0 {
			t.Errorf("%v: h2 got %q, h3 %q", g, b.got, c.got)
		}
		b.SetGroups(w.now, nil)
		b.turn()
		text = a.send(g, 300+i)
		w.run(100 * ib.Millisecond)
		if b.count(text) != 0 {
			t.Errorf("%v: h2 hears after it has left", g)
		}
	}
	all := a.send(netip.MustParseAddr("198.19.255.255"), 400)
	w.run(100 * ib.Millisecond)
	for _, h := range w.hosts[1:] {
		if h.count(all) != 1 {
			t.Errorf("a broadcast: %s got %q", h.name, h.got)
		}
	}
	w.run(2 * sendOnlyAfter)
	for g, m := range w.members {
		if full, in := m[a]; in && !full {
			t.Errorf("h1 still sends to %v", g)
		}
	}
}

// A neighbour that comes back with another queue pair is found again: at once if its announcement arrives, and else
// when it does not answer any more.
func TestNeighbourRestarts(t *testing.T) {
	for _, deaf := range []bool{false, true} {
		w := newTestWorld(t, 7, 2)
		w.run(ib.Second)
		a, b := w.hosts[0], w.hosts[1]
		a.send(b.ip(), 1)
		w.run(ib.Second)
		a.down = deaf // hears nothing of the announcement
		b.start(0x999)
		w.run(ib.Second)
		a.down = false
		if deaf {
			a.send(b.ip(), 2)
			w.run(reachable)
			a.send(b.ip(), 3) // the first use of one that is not sure any more
			w.run((AskTries + 1) * AskInterval)
		}
		text := a.send(b.ip(), 4)
		w.run(2 * ib.Second)
		if b.count(text) != 1 {
			t.Errorf("deaf %v: h2 got %q", deaf, b.got)
		}
	}
}

// Nobody speaks for another's queue pair, nor with the host's own address.
func TestForged(t *testing.T) {
	w := newTestWorld(t, 1, 3)
	w.run(ib.Second)
	a, b, c := w.hosts[0], w.hosts[1], w.hosts[2]
	a.send(b.ip(), 1)
	w.run(ib.Second)
	p := arpPacket{op: arpReplyOp, sender: LinkAddr{QPN: c.qpn, GID: c.gid}, senderIP: b.ip(), target: a.Self(),
		targetIP: a.ip()}
	forged := AppendHeader(nil, ARP)
	forged = p.append(forged)
	a.HandleDatagram(w.now, &Datagram{SrcQPN: b.qpn, Payload: forged})
	a.HandleDatagram(w.now, &Datagram{SrcQPN: c.qpn, SGID: b.gid, Payload: forged})
	m := ndMessage{typ: ndAdvertisement, src: b.ip6(), dst: a.ip6(), target: b.ip6(),
		link: LinkAddr{QPN: c.qpn, GID: c.gid}, hasLink: true}
	a.HandleDatagram(w.now, &Datagram{SrcQPN: b.qpn, Payload: m.append(AppendHeader(nil, IPv6))})
	own := append(AppendHeader(nil, IPv4), 0x45, 0, 0, 20, 0, 0, 0, 0, 64, 17, 0, 0)
	own = append(append(own, a.ip().AsSlice()...), a.ip().AsSlice()...)
	if a.HandleDatagram(w.now, &Datagram{SrcQPN: c.qpn, Payload: own}) != nil {
		t.Error("a packet from the host's own address reaches it")
	}
	if a.Stats.Forged != 4 || a.neighbours[b.ip()].link.QPN != b.qpn {
		t.Errorf("%d forgeries are seen, want 4; the neighbour is at %v", a.Stats.Forged, a.neighbours[b.ip()].link)
	}
}

// A neighbour that takes connections gets one; when that is refused, datagrams for a while, and longer packets are told
// what fits.
func TestConnected(t *testing.T) {
	w := newTestWorld(t, 1, 2)
	for _, h := range w.hosts {
		h.start(h.qpn + 1)
		h.Interface.cfg.Connected, h.Interface.self.Flags = true, TakesRC
	}
	w.run(ib.Second)
	a, b := w.hosts[0], w.hosts[1]
	a.send(b.ip(), 1)
	w.run(ib.Second)
	n := a.neighbours[b.ip()]
	if n.way.Connect == nil || n.way.Connect.QPN != b.qpn || n.way.MTU != ConnectedMTU || n.way.Datagram != 2044 {
		t.Fatalf("the way is %+v", n.way)
	}
	a.HandleRefused(w.now, n.way, false)
	a.turn()
	if n.way.Connect != nil || n.way.MTU != 2044 {
		t.Errorf("after a refusal the way is %+v", n.way)
	}
	w.run(connectAgain + ib.Second)
	if n.way.Connect == nil {
		t.Error("no connection is tried again")
	}
	a.HandleRefused(w.now, n.way, true)
	if act, ok := a.Poll(); !ok || act.Kind != Send || act.Protocol != ARP || act.Way != n.way {
		t.Errorf("after the end of a connection: %+v", act)
	}
}

// What strangers say fills no more than its room, and those who are in use stay.
func TestFlood(t *testing.T) {
	w := newTestWorld(t, 1, 2)
	w.run(ib.Second)
	a, b := w.hosts[0], w.hosts[1]
	a.send(b.ip(), 1)
	w.run(10 * ib.Millisecond)
	for i := range 2 * neighboursMax {
		p := arpPacket{op: arpRequestOp, sender: LinkAddr{QPN: 0x200, GID: ib.MakeGID(1, ib.GUID(i+1))},
			senderIP: netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), targetIP: a.ip()}
		a.HandleDatagram(w.now, &Datagram{SrcQPN: 0x200, Payload: p.append(AppendHeader(nil, ARP))})
		for _, ok := a.Poll(); ok; _, ok = a.Poll() {
		}
	}
	if len(a.order) > neighboursMax || a.waiting > waitBytesMax {
		t.Errorf("%d neighbours, %d bytes wait", len(a.order), a.waiting)
	}
	text := a.send(b.ip(), 2)
	w.run(10 * ib.Millisecond)
	if b.count(text) != 1 {
		t.Error("the neighbour that is in use was lost")
	}
}

// Whatever is lost, late, refused or restarted: once all is well, everybody reaches everybody within seconds, nothing
// came twice, and nothing is left that nobody uses.
func TestTorture(t *testing.T) {
	seeds := uint64(60)
	if testing.Short() {
		seeds = 10
	}
	for seed := range seeds {
		w := newTestWorld(t, seed, 2+int(seed%4))
		w.lose, w.fail = 0.3*w.rng.Float64(), 0.5*w.rng.Float64()
		w.delay, w.answering = w.some(200*ib.Millisecond), w.some(3*ib.Second)
		number := 0
		for range 200 {
			w.run(w.some(2 * ib.Second))
			h := w.hosts[w.rng.IntN(len(w.hosts))]
			switch w.rng.IntN(20) {
			case 0:
				h.start(ib.QPN(0x1000 + w.rng.IntN(1<<16)))
			case 1:
				h.down = !h.down
			case 2:
				h.HandleLink(w.now, LinkAddr{QPN: h.qpn, GID: h.gid})
				h.turn()
			case 3:
				h.SetGroups(w.now, []netip.Addr{netip.AddrFrom4([4]byte{239, 0, 0, byte(w.rng.IntN(4))})})
				h.turn()
			case 4:
				h.send(netip.AddrFrom4([4]byte{239, 0, 0, byte(w.rng.IntN(4))}), number)
			default:
				to := w.hosts[w.rng.IntN(len(w.hosts))]
				if to != h {
					h.send([]netip.Addr{to.ip(), to.ip6()}[w.rng.IntN(2)], number)
				}
			}
			number++
		}
		w.lose, w.fail, w.delay, w.answering = 0, 0, ib.Millisecond, 10*ib.Millisecond
		for _, h := range w.hosts {
			h.down = false
		}
		w.run(60 * ib.Second)
		for range 2 { // the first finds out whom to ask again
			for _, a := range w.hosts {
				for _, b := range w.hosts {
					if a != b {
						a.send(b.ip(), number)
						a.send(b.ip6(), number+1)
					}
				}
			}
			w.run(10 * ib.Second)
		}
		for _, a := range w.hosts {
			for i, b := range w.hosts {
				if a == b {
					continue
				}
				for k, to := range []netip.Addr{b.ip(), b.ip6()} {
					text := a.send(to, 1000000+indexOf(w.hosts, a)*100+i*10+k)
					w.run(100 * ib.Millisecond)
					if b.count(text) != 1 {
						t.Fatalf("seed %d: %s to %v: came %d times", seed, a.name, to, b.count(text))
					}
				}
			}
			for _, text := range a.got {
				if text == "icmp wrong" {
					t.Fatalf("seed %d: a wrong packet of ICMP", seed)
				}
			}
		}
		w.run(2 * forgetAfter)
		for _, h := range w.hosts {
			if len(h.order) != 0 || len(h.paths) != 0 || h.waiting != 0 || len(h.neighbours) != 0 {
				t.Fatalf("seed %d: %s keeps %d neighbours, %d paths, %d bytes", seed, h.name, len(h.order),
					len(h.paths), h.waiting)
			}
			for way := range h.ways {
				if !way.Multicast {
					t.Fatalf("seed %d: %s keeps a way that is closed to nobody", seed, h.name)
				}
			}
		}
	}
}
