package rdmacm

import (
	"net/netip"
	"syscall"
	"testing"

	"softib/proto/ib"
	"softib/subnet/sm"
)

func TestGroupOf(t *testing.T) {
	for _, c := range []struct {
		space portSpace
		addr  string
		key   ib.PKey
		want  string
	}{
		{psUDP, "239.1.2.3", 0xFFFF, "ff12:4001:ffff:0000:0000:0000:0f01:0203"},
		{psIPoIB, "239.1.2.3", 0x7FFF, "ff12:401b:ffff:0000:0000:0000:0f01:0203"},
		{psIPoIB, "ff0e::1:2", 0x8001, "ff12:601b:8001:0000:0000:0000:0001:0002"},
		{psUDP, "ff05::101", 0x8001, "ff12:6001:8001:0000:0000:0000:0000:0101"},
		{psUDP, "ff15:a01b:fe80::7", 0x8001, "ff15:a01b:fe80:0000:0000:0000:0000:0007"},
		{psUDP, "0.0.0.0", 0xFFFF, "0000:0000:0000:0000:0000:0000:0000:0000"},
	} {
		ip := netip.MustParseAddr(c.addr)
		a := sockaddr{family: afInet, ip: ip}
		if ip.Is6() {
			a.family = afInet6
		}
		if g := groupOf(c.space, &a, c.key); g.String() != c.want {
			t.Errorf("%s in %v: %v, want %s", c.addr, c.key, g, c.want)
		}
	}
	if g := broadcastGroup(0x7FFF); g.String() != "ff12:401b:ffff:0000:0000:0000:ffff:ffff" {
		t.Errorf("broadcast group %v", g)
	}
}

// members are the ports in a group, as the administrator knows them.
func (w *world) members(t *testing.T, g ib.GID) (n int) {
	t.Helper()
	if err := w.sm.Do(func(m *sm.Manager) {
		for _, x := range m.Admin().Groups() {
			if x.MGID == g {
				n = len(x.Members)
			}
		}
	}); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestMulticast(t *testing.T) {
	w := up(t, "star:3", defaults)
	a, b := w.program(t, "h1"), w.program(t, "h2")
	group := addr("239.1.2.3:0")
	mgid := groupOf(psUDP, &group, ib.PKeyDefault)
	join := func(c *client, uid uint64) (id, membership uint32) {
		id = c.id(psUDP, 0)
		c.do(cmdResolveAddr, resolveBody(id, sockaddr{}, group))
		c.expect(evtAddrResolved)
		membership = native.Uint32(c.do(cmdJoinMcast, joinBody(id, uid, group, 0)))
		e := c.expect(evtMulticastJoin)
		ah := e.param[8:40]
		if e.id != membership || e.uid != uid || e.status != 0 || native.Uint32(e.param) != uint32(ib.QPNMulticast) ||
			native.Uint32(e.param[4:]) != uint32(udpQKey) {
			t.Fatalf("join: %+v", e)
		}
		if gidOf(ah) != mgid || !ib.LID(native.Uint16(ah[24:])).IsMulticast() || ah[29] != 1 || ah[30] != 1 {
			t.Fatalf("join: address % x", ah)
		}
		return id, membership
	}
	_, ma := join(a, 501)
	_, mb := join(b, 502)
	b2, _ := join(b, 503) // the same port once more
	if n := w.members(t, mgid); n != 2 {
		t.Errorf("%d members, want 2", n)
	}
	if n := native.Uint32(b.do(cmdLeaveMcast, destroyBody(mb))); n != 1 {
		t.Errorf("%d events of the membership were read, want 1", n)
	}
	b.fails(syscall.ENOENT, cmdLeaveMcast, destroyBody(mb))
	a.fails(syscall.ENOENT, cmdLeaveMcast, destroyBody(ma+1000))
	if n := w.members(t, mgid); n != 2 {
		t.Errorf("%d members, want 2: h2 has another program in the group", n)
	}
	b.do(cmdDestroyID, destroyBody(b2))
	eventually(t, "h2 to leave", func() bool { return w.members(t, mgid) == 1 })
	// In again, while the last leaving may still be under way.
	b3, m3 := join(b, 504)
	b.do(cmdLeaveMcast, destroyBody(m3))
	m3 = native.Uint32(b.do(cmdJoinMcast, joinBody(b3, 505, group, 0)))
	if e := b.expect(evtMulticastJoin); e.id != m3 {
		t.Errorf("join: %+v", e)
	}
	a.die()
	eventually(t, "h1 to leave when its program has died", func() bool { return w.members(t, mgid) == 1 })
	b.die()
	eventually(t, "the group to end", func() bool { return w.members(t, mgid) == 0 })
}

// Joining as one who only sends, a group that the administrator names, and one of the IP stack's.
func TestMulticastKinds(t *testing.T) {
	w := up(t, "star:2", defaults)
	c := w.program(t, "h1")
	id := c.id(psUDP, 0)
	c.fails(syscall.EINVAL, cmdJoinMcast, joinBody(id, 1, addr("239.1.2.3:0"), 0)) // neither bound nor resolved
	c.do(cmdBind, bindBody(id, addr("198.18.0.1:0")))
	c.fails(syscall.EINVAL, cmdJoinMcast, joinBody(id, 1, addr("239.1.2.3:0"), 2)) // no such way to join
	c.do(cmdJoinMcast, joinBody(id, 1, addr("239.1.2.3:0"), 1))
	if e := c.expect(evtMulticastJoin); e.uid != 1 {
		t.Errorf("join: %+v", e)
	}
	c.do(cmdJoinMcast, joinBody(id, 2, addr("0.0.0.0:0"), 0))
	e := c.expect(evtMulticastJoin)
	if g := gidOf(e.param[8:]); !isMadeUp(g) {
		t.Errorf("the administrator made %v", g)
	}
	tcp := c.id(psTCP, 0)
	c.do(cmdBind, bindBody(tcp, addr("198.18.0.1:0")))
	c.fails(syscall.EINVAL, cmdJoinMcast, joinBody(tcp, 1, addr("239.1.2.3:0"), 0))

	ipoib := c.id(psIPoIB, 0)
	c.do(cmdBind, bindBody(ipoib, addr("198.18.0.1:0")))
	b := make([]byte, 48)
	native.PutUint64(b[8:], 3)
	a := addr("239.1.2.4:0")
	a.put(b[16:])
	native.PutUint32(b[44:], ipoib)
	c.do(cmdJoinIPMcast, b)
	e = c.expect(evtMulticastJoin)
	if g := gidOf(e.param[8:]); be.Uint16(g[2:]) != signatureIPv4 || native.Uint32(e.param[4:]) != uint32(ipoibQKey) {
		t.Errorf("join of IPoIB: %+v", e)
	}
	// What cannot be joined is told, and can be left.
	id = c.id(psUDP, 0)
	c.do(cmdBind, bindBody(id, addr("198.18.0.1:0")))
	bad := sockaddr{family: afIB, gid: ib.GID{0xFE, 0x80, 15: 9}}
	m := native.Uint32(c.do(cmdJoinMcast, joinBody(id, 4, bad, 0)))
	if e := c.expect(evtMulticastError); e.id != m || e.status >= 0 {
		t.Errorf("error: %+v", e)
	}
	c.do(cmdLeaveMcast, destroyBody(m))
}
