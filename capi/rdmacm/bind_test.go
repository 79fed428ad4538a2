package rdmacm

import (
	"fmt"
	"syscall"
	"testing"

	"softib/proto/ib"
	"softib/proto/mad"
	"softib/proto/topo"
	"softib/subnet/policy"
	"softib/subnet/sm"
)

func optionBody(id, level, name uint32, value ...byte) []byte {
	return append(append(make([]byte, 8), u32s(id, level, name, uint32(len(value)))...), value...)
}

func intOption(id, name uint32, v uint32) []byte { return optionBody(id, levelID, name, u32s(v)...) }

func TestBind(t *testing.T) {
	w := up(t, "star:2", defaults)
	c := w.program(t, "h1")
	bind := func(space portSpace, text string) (uint32, syscall.Errno) {
		id := c.id(space, qptRC)
		_, errno := c.try(cmdBind, bindBody(id, addr(text)))
		return id, errno
	}
	for _, x := range []struct {
		space portSpace
		addr  string
		want  syscall.Errno
	}{
		{psTCP, "198.18.0.1:5000", 0},
		{psTCP, "198.18.0.1:5000", syscall.EADDRINUSE},
		{psTCP, "0.0.0.0:5000", syscall.EADDRNOTAVAIL},
		{psUDP, "198.18.0.1:5000", 0}, // another space
		{psIB, "198.18.0.1:5000", 0},
		{psTCP, "[fd53:6f66:7469:6200::1]:5000", 0}, // another address
		{psTCP, "0.0.0.0:5001", 0},
		{psTCP, "198.18.0.1:5001", syscall.EADDRNOTAVAIL},
		{psTCP, "[::]:5001", syscall.EADDRNOTAVAIL}, // it would take both families
		{psTCP, "198.18.0.2:5002", syscall.EADDRNOTAVAIL},
		{psTCP, "192.0.2.1:5002", syscall.EADDRNOTAVAIL},
		{psTCP, "127.0.0.1:5003", 0},
		{psTCP, "[fe80::1]:5004", syscall.EINVAL}, // of no interface
	} {
		if _, errno := bind(x.space, x.addr); errno != x.want {
			t.Errorf("%s in 0x%x: %v, want %v", x.addr, uint16(x.space), errno, x.want)
		}
	}
	// Twice, families that are none, sizes that are wrong.
	id, _ := bind(psTCP, "0.0.0.0:0")
	c.fails(syscall.EINVAL, cmdBind, bindBody(id, addr("0.0.0.0:0")))
	fresh := c.id(psTCP, 0)
	b := bindBody(fresh, addr("0.0.0.0:1"))
	native.PutUint16(b[4:], 28)
	c.fails(syscall.EINVAL, cmdBind, b)
	none := make([]byte, 40)
	native.PutUint32(none[36:], fresh)
	c.fails(syscall.EAFNOSUPPORT, cmdBindIP, none)
	c.fails(syscall.EPROTONOSUPPORT, cmdBind, bindBody(fresh, sockaddr{family: afIB, sid: 77, mask: ^uint64(0)}))
	c.fails(syscall.EADDRNOTAVAIL, cmdBind, bindBody(fresh,
		sockaddr{family: afIB, gid: ib.GID{1}, sid: uint64(psTCP) << 16, mask: ^uint64(0)}))

	// Ephemeral ports differ, and the ID tells which it got.
	seen := map[uint16]bool{}
	for range 50 {
		id, _ := bind(psTCP, "0.0.0.0:0")
		a := parseSockaddr(c.do(cmdQuery, queryBody(id, queryAddr))[16:])
		if a.port < ephemeralFirst || a.port > ephemeralLast || seen[a.port] {
			t.Errorf("port %d", a.port)
		}
		seen[a.port] = true
	}
	// IPv4 and IPv6 apart, if they are said to be.
	four := c.id(psTCP, 0)
	c.do(cmdBind, bindBody(four, addr("0.0.0.0:6000")))
	six := c.id(psTCP, 0)
	c.do(cmdSetOption, intOption(six, optAFOnly, 1))
	c.do(cmdBind, bindBody(six, addr("[::]:6000")))
	c.do(cmdListen, u32s(four, 0))
	c.do(cmdListen, u32s(six, 0))
}

// Who reuses an address may share it with others who do, but only one listens.
func TestReuse(t *testing.T) {
	w := up(t, "star:2", defaults)
	c := w.program(t, "h1")
	var ids []uint32
	for range 2 {
		id := c.id(psTCP, 0)
		c.do(cmdSetOption, intOption(id, optReuseAddr, 1))
		c.do(cmdBind, bindBody(id, addr("198.18.0.1:5000")))
		ids = append(ids, id)
	}
	other := c.id(psTCP, 0)
	c.fails(syscall.EADDRINUSE, cmdBind, bindBody(other, addr("198.18.0.1:5000")))
	c.fails(syscall.EADDRINUSE, cmdListen, u32s(ids[0], 0))
	c.do(cmdDestroyID, destroyBody(ids[1]))
	c.do(cmdListen, u32s(ids[0], 0))
}

// Two listeners share a port number at different addresses: each gets what is meant for it.
func TestListenersByAddress(t *testing.T) {
	w := up(t, "star:2", defaults)
	a, b := w.program(t, "h1"), w.program(t, "h2")
	four, six := b.id(psTCP, 0), b.id(psTCP, 0)
	b.do(cmdBind, bindBody(four, addr("198.18.0.2:7471")))
	b.do(cmdBind, bindBody(six, addr("[fd53:6f66:7469:6200::2]:7471")))
	b.do(cmdListen, u32s(four, 0))
	b.do(cmdListen, u32s(six, 0))
	for i, x := range []struct {
		dst  string
		want uint32
	}{{"198.18.0.2:7471", four}, {"[fd53:6f66:7469:6200::2]:7471", six}} {
		id := a.route(psTCP, x.dst, 0)
		a.do(cmdConnect, connectBody(id, connParam{qpn: ib.QPN(20 + i)}))
		if e := b.expect(evtConnectRequest); e.uid != uint64(x.want)+1000 {
			t.Errorf("%s reaches the listener %d, want %d", x.dst, e.uid, x.want+1000)
		}
	}
	// One goes; the other stays.
	b.do(cmdDestroyID, destroyBody(four))
	for i, x := range []struct {
		dst  string
		want eventKind
	}{{"198.18.0.2:7471", evtRejected}, {"[fd53:6f66:7469:6200::2]:7471", evtConnectRequest}} {
		id := a.route(psTCP, x.dst, 0)
		a.do(cmdConnect, connectBody(id, connParam{qpn: ib.QPN(30 + i)}))
		if x.want == evtRejected {
			a.expect(evtRejected)
		} else {
			b.expect(evtConnectRequest)
		}
	}
}

// Every command in a state that does not allow it.
func TestStates(t *testing.T) {
	w := up(t, "star:2", defaults)
	c := w.program(t, "h1")
	id := c.id(psTCP, 0)
	for cmd, body := range map[command][]byte{
		cmdResolveRoute: u32s(id, 100),
		cmdConnect:      connectBody(id, connParam{}),
		cmdAccept:       acceptBody(id, 1, &connParam{}),
		cmdReject:       rejectBody(id, ""),
		cmdDisconnect:   u32s(id),
		cmdInitQPAttr:   queryBody(id, 1),
		cmdNotify:       u32s(id, 4),
	} {
		c.fails(syscall.EINVAL, cmd, body)
	}
	c.fails(syscall.ENOSYS, cmdQuery, queryBody(id, 9))
	c.fails(syscall.ENOSYS, cmdGetEvent, make([]byte, 8))
	c.fails(syscall.ENOSYS, cmdGetOption, make([]byte, 8))
	c.fails(syscall.EINVAL, numCommand, make([]byte, 8))
	c.fails(syscall.EINVAL, cmdConnect, make([]byte, 10))
	c.fails(syscall.ENOENT, cmdDisconnect, u32s(id+1000))
	c.fails(syscall.EINVAL, cmdCreateID, make([]byte, 24))

	// Nothing is known yet, but it can be asked.
	if resp := c.do(cmdQueryRoute, queryBody(id, 0)); be.Uint64(resp) != 0 || resp[196] != 0 {
		t.Errorf("route of nothing: % x", resp)
	}
	c.do(cmdQuery, queryBody(id, queryAddr))
	c.do(cmdQuery, queryBody(id, queryGID))

	// An address that nobody has.
	for _, dst := range []string{"198.18.0.77:1", "192.0.2.9:1", "[2001:db8::1]:1"} {
		x := c.id(psTCP, 0)
		c.do(cmdResolveAddr, resolveBody(x, sockaddr{}, addr(dst)))
		if e := c.expect(evtAddrError); e.id != x || e.status != -int32(syscall.EHOSTUNREACH) {
			t.Errorf("%s: %+v", dst, e)
		}
	}
	// Families that differ.
	x := c.id(psTCP, 0)
	c.fails(syscall.EINVAL, cmdResolveAddr, resolveBody(x, addr("198.18.0.1:0"), addr("[::1]:1")))
	// From an address that is another's.
	c.fails(syscall.EADDRNOTAVAIL, cmdResolveAddr,
		resolveBody(c.id(psTCP, 0), addr("198.18.0.2:0"), addr("198.18.0.2:1")))

	c.do(cmdResolveAddr, resolveBody(id, addr("198.18.0.1:0"), addr("198.18.0.2:1")))
	c.expect(evtAddrResolved)
	c.fails(syscall.EINVAL, cmdResolveAddr, resolveBody(id, sockaddr{}, addr("198.18.0.2:1")))
	c.fails(syscall.EINVAL, cmdListen, u32s(id, 0))
	c.do(cmdInitQPAttr, queryBody(id, 1))
	long := connParam{private: make([]byte, mad.CMReqPrivate-ipHeadSize+1)}
	c.do(cmdResolveRoute, u32s(id, 1000))
	c.expect(evtRouteResolved)
	c.fails(syscall.EINVAL, cmdConnect, connectBody(id, long))
	bare := connectBody(id, connParam{})
	bare[271] = 0
	c.fails(syscall.EINVAL, cmdConnect, bare)
	long.private = long.private[:mad.CMReqPrivate-ipHeadSize]
	c.do(cmdConnect, connectBody(id, long)[:280]) // as an older library does
	c.expect(evtRejected)

	// A listener may be made of nothing at all.
	c.do(cmdListen, u32s(c.id(psTCP, 0), 0))
}

func TestOptions(t *testing.T) {
	w := up(t, "star:2", defaults)
	c := w.program(t, "h1")
	id := c.id(psTCP, 0)
	c.do(cmdSetOption, optionBody(id, levelID, optTOS, 0x20))
	c.fails(syscall.EINVAL, cmdSetOption, optionBody(id, levelID, optTOS, 1, 2))
	c.fails(syscall.EINVAL, cmdSetOption, optionBody(id, levelID, optReuseAddr, 1))
	tos := c.id(psTCP, 0)
	c.do(cmdSetOption, optionBody(tos, levelID, optTOS, 0x20))
	c.do(cmdResolveAddr, resolveBody(tos, sockaddr{}, addr("198.18.0.2:7471")))
	c.expect(evtAddrResolved)
	c.do(cmdResolveRoute, u32s(tos, 1000))
	c.expect(evtRouteResolved)
	c.do(cmdSetOption, optionBody(id, levelID, optAckTimeout, 14))
	c.fails(syscall.EINVAL, cmdSetOption, optionBody(id, levelID, optAckTimeout, 32))
	c.fails(syscall.ENOSYS, cmdSetOption, optionBody(id, levelID, 9, 1))
	c.fails(syscall.ENOSYS, cmdSetOption, optionBody(id, 7, 0, 1))
	cut := optionBody(id, levelID, optReuseAddr, 1, 0, 0, 0)
	c.fails(syscall.EINVAL, cmdSetOption, cut[:len(cut)-1])

	// A path of the program's own, in the stead of the administrator's.
	c.do(cmdResolveAddr, resolveBody(id, sockaddr{}, addr("198.18.0.2:7471")))
	c.expect(evtAddrResolved)
	other := c.route(psTCP, "198.18.0.2:7471", 0)
	path := c.do(cmdQuery, queryBody(other, queryPath))[pathRespHead:]
	c.fails(syscall.EINVAL, cmdSetOption, optionBody(id, levelIB, optPath, path[:71]...))
	c.do(cmdSetOption, optionBody(id, levelIB, optPath, path...))
	if e := c.expect(evtRouteResolved); e.id != id {
		t.Errorf("%+v", e)
	}
	b := w.program(t, "h2")
	b.listen(psTCP, 7471, 0)
	c.do(cmdConnect, connectBody(id, connParam{qpn: 3}))
	e := b.expect(evtConnectRequest)
	b.do(cmdAccept, acceptBody(e.id, 1, &connParam{qpn: 4}))
	c.expect(evtConnectResponse)
	attr := c.do(cmdInitQPAttr, queryBody(id, 3))
	if attr[134] != 14 {
		t.Errorf("ACK timeout %d, want 14", attr[134])
	}
}

// Partitions decide who can be reached, and what of a table is used.
func TestPartitions(t *testing.T) {
	w := up(t, "star:4", defaults, func(c *sm.Config) {
		g, err := topo.ParseSpec("star:4")
		if err != nil {
			t.Fatal(err)
		}
		hosts := g.Hosts()
		text := fmt.Sprintf("Default=0x7fff, ipoib: ALL=limited, SELF=full;\nred=0x0001: %v=full, %v=full;\n",
			hosts[1].PortGUID(1), hosts[2].PortGUID(1))
		if c.Partitions, _, err = policy.ParsePartitions("test", []byte(text)); err != nil {
			t.Fatal(err)
		}
	})
	b := w.program(t, "h3")
	b.listen(psTCP, 7471, 0)
	b.listen(psUDP, 7471, 0)
	a := w.program(t, "h2")
	id := a.route(psTCP, "198.18.0.3:7471", 0)
	resp := a.do(cmdQueryRoute, queryBody(id, 0))
	if key := be.Uint16(resp[8+52:]); key != 0x8001 {
		t.Errorf("the path's partition is 0x%04x", key)
	}
	a.do(cmdConnect, connectBody(id, connParam{qpn: 3}))
	e := b.expect(evtConnectRequest)
	attr := b.do(cmdInitQPAttr, queryBody(e.id, 1))
	keys, _ := OnFabric(w.Fabric).Adapter("h3")
	if i := native.Uint16(attr[124:]); int(i) >= len(keys.Ports[0].PKeys) || keys.Ports[0].PKeys[i] != 0x8001 {
		t.Errorf("index %d of %v", i, keys.Ports[0].PKeys)
	}
	b.do(cmdReject, rejectBody(e.id, ""))
	a.expect(evtRejected)
	// A stranger has no way there.
	c := w.program(t, "h4")
	id = c.id(psTCP, 0)
	c.do(cmdResolveAddr, resolveBody(id, sockaddr{}, addr("198.18.0.3:7471")))
	c.expect(evtAddrResolved)
	c.do(cmdResolveRoute, u32s(id, 1000))
	if e := c.expect(evtRouteError); e.id != id || e.status != -int32(syscall.EINVAL) {
		t.Errorf("route error: %+v", e)
	}
	// To resolve again is allowed.
	c.do(cmdResolveRoute, u32s(id, 1000))
	c.expect(evtRouteError)
	// The datagram service too is in the partition.
	id = a.route(psUDP, "198.18.0.3:7471", 0)
	a.do(cmdConnect, connectBody(id, connParam{qpn: 3}))
	e = b.expect(evtConnectRequest)
	b.do(cmdAccept, acceptBody(e.id, 1, &connParam{qpn: 4}))
	a.expect(evtEstablished)
}
