package rdmacm

import (
	"bytes"
	"errors"
	"syscall"
	"testing"

	"softib/node/cm"
	"softib/node/hca"
	"softib/proto/ib"
	"softib/proto/mad"
	"softib/proto/topo"
)

func TestConnect(t *testing.T) {
	w := up(t, "star:2", defaults)
	a, b := w.program(t, "h1"), w.program(t, "h2")
	l := b.listen(psTCP, 7471, 0)

	id := a.route(psTCP, "198.18.0.2:7471", 0)
	resp := a.do(cmdQueryRoute, queryBody(id, 0))
	hosts := w.Hosts()
	if len(resp) != routeRespSize || be.Uint64(resp) != uint64(hosts[0].Node().GUID) ||
		native.Uint32(resp[192:]) != 1 || resp[196] != 1 {
		t.Errorf("route: %d bytes, node 0x%x, %d paths, port %d", len(resp), be.Uint64(resp), native.Uint32(resp[192:]),
			resp[196])
	}
	if src := parseSockaddr(resp[136:164]); src.ip != hosts[0].IP() || src.port < ephemeralFirst {
		t.Errorf("source %v port %d", src.ip, src.port)
	}
	if dst := parseSockaddr(resp[164:192]); dst.ip != hosts[1].IP() || dst.port != 7471 {
		t.Errorf("destination %v port %d", dst.ip, dst.port)
	}
	path := resp[8:72]
	if gidOf(path).GUID() != hosts[1].Node().PortGUID(1) || gidOf(path[16:]).GUID() != hosts[0].Node().PortGUID(1) ||
		be.Uint16(path[32:]) == 0 || path[48] != byte(ib.MTU4096) {
		t.Errorf("path % x", path)
	}

	a.do(cmdConnect, connectBody(id, connParam{qpn: 0x123, private: []byte("hello"), responderResources: 3,
		initiatorDepth: 2, retryCount: 7, rnrRetryCount: 6, srq: 1}))
	e := b.expect(evtConnectRequest)
	p := connParamOf(e)
	if e.uid != uint64(l)+1000 || e.id == l || p.qpn != 0x123 || p.responderResources != 2 || p.initiatorDepth != 3 ||
		p.retryCount != 7 || p.rnrRetryCount != 6 || p.srq != 1 {
		t.Errorf("request: %+v %+v", e, p)
	}
	if len(p.private) != mad.CMReqPrivate-ipHeadSize || !bytes.HasPrefix(p.private, []byte("hello\x00")) {
		t.Errorf("private data %q", p.private)
	}
	// The passive side knows its addresses and its path.
	resp = b.do(cmdQueryRoute, queryBody(e.id, 0))
	if src, dst := parseSockaddr(resp[136:164]), parseSockaddr(resp[164:192]); src.ip != hosts[1].IP() ||
		src.port != 7471 || dst.ip != hosts[0].IP() || dst.port < ephemeralFirst {
		t.Errorf("the passive side is at %+v and asked by %+v", src, dst)
	}
	for _, s := range []cm.QPState{cm.QPInit, cm.QPRTR, cm.QPRTS} {
		attr := b.do(cmdInitQPAttr, queryBody(e.id, uint32(s)))
		if len(attr) != qpAttrSize || native.Uint32(attr[4:]) != uint32(s) {
			t.Fatalf("attributes for %d: % x", s, attr)
		}
		if s == cm.QPRTR && (native.Uint32(attr[32:]) != 0x123 || native.Uint16(attr[40+24:]) == 0 ||
			native.Uint32(attr[12:]) != uint32(ib.MTU4096) || attr[131] != 2) {
			t.Errorf("attributes for RTR: % x", attr)
		}
	}
	b.do(cmdAccept, acceptBody(e.id, 77, &connParam{qpn: 0x456, private: []byte("welcome"), responderResources: 2,
		initiatorDepth: 3}))
	r := a.expect(evtConnectResponse)
	p = connParamOf(r)
	if r.id != id || p.qpn != 0x456 || p.responderResources != 3 || p.initiatorDepth != 2 ||
		len(p.private) != mad.CMRepPrivate || !bytes.HasPrefix(p.private, []byte("welcome\x00")) {
		t.Errorf("response: %+v %+v", r, p)
	}
	attr := a.do(cmdInitQPAttr, queryBody(id, uint32(cm.QPRTR)))
	if native.Uint32(attr[32:]) != 0x456 {
		t.Errorf("the active side's peer is QP 0x%x", native.Uint32(attr[32:]))
	}
	a.do(cmdAccept, acceptBody(id, 0, nil))
	if x := b.expect(evtEstablished); x.id != e.id || x.uid != 77 {
		t.Errorf("established: %+v", x)
	}
	b.fails(syscall.EISCONN, cmdNotify, u32s(e.id, 4))

	a.do(cmdDisconnect, u32s(id))
	if x := b.expect(evtDisconnected); x.id != e.id || x.status != 0 {
		t.Errorf("disconnected: %+v", x)
	}
	b.do(cmdDisconnect, u32s(e.id))
	if x := a.expect(evtDisconnected); x.id != id || x.status != 0 {
		t.Errorf("disconnected: %+v", x)
	}
	// Read so far: by the active side 4 events; of the passive ID 2, and of the listener 1.
	for _, x := range []struct {
		c        *client
		id, want uint32
	}{{a, id, 4}, {b, e.id, 2}, {b, l, 1}} {
		if n := native.Uint32(x.c.do(cmdDestroyID, destroyBody(x.id))); n != x.want {
			t.Errorf("ID %d: %d events were read, want %d", x.id, n, x.want)
		}
		x.c.fails(syscall.ENOENT, cmdDestroyID, destroyBody(x.id))
	}
	a.quiet()
	b.quiet()
}

// TestConnectSelf: what goes from a port to itself is under way for no time at all, but who is to acknowledge it is a
// process like others.
func TestConnectSelf(t *testing.T) {
	w := up(t, "star:2", defaults)
	a, b := w.program(t, "h1"), w.program(t, "h1")
	b.listen(psTCP, 7471, 0)
	id := a.route(psTCP, "198.18.0.1:7471", 0)
	a.do(cmdConnect, connectBody(id, connParam{qpn: 0x123, retryCount: 7, rnrRetryCount: 7}))
	e := b.expect(evtConnectRequest)
	b.do(cmdAccept, acceptBody(e.id, 77, &connParam{qpn: 0x456}))
	a.expect(evtConnectResponse)
	for _, x := range []struct {
		c  *client
		id uint32
	}{{a, id}, {b, e.id}} {
		attr := x.c.do(cmdInitQPAttr, queryBody(x.id, uint32(cm.QPRTS)))
		if timeout := attr[134]; timeout < hca.AckDelay {
			t.Errorf("an acknowledgement is waited for 4.096 us * 2^%d, and its sender may take 2^%d", timeout,
				hca.AckDelay)
		}
	}
}

func TestReject(t *testing.T) {
	w := up(t, "star:2", defaults)
	a, b := w.program(t, "h1"), w.program(t, "h2")
	b.listen(psTCP, 7471, 0)
	id := a.route(psTCP, "198.18.0.2:7471", 0)
	a.do(cmdConnect, connectBody(id, connParam{qpn: 5}))
	e := b.expect(evtConnectRequest)
	b.do(cmdReject, rejectBody(e.id, "no"))
	r := a.expect(evtRejected)
	if p := connParamOf(r); r.id != id || r.status != int32(mad.RejConsumer) || len(p.private) != mad.CMRejPrivate ||
		!bytes.HasPrefix(p.private, []byte("no\x00")) {
		t.Errorf("rejected: %+v %+v", r, p)
	}
	b.do(cmdDestroyID, destroyBody(e.id))

	// Nobody listens on that port; nobody has ever run anything on that host.
	id = a.route(psTCP, "198.18.0.2:7472", 0)
	a.do(cmdConnect, connectBody(id, connParam{qpn: 5}))
	if r := a.expect(evtRejected); r.id != id || r.status != int32(mad.RejInvalidServiceID) {
		t.Errorf("rejected: %+v", r)
	}
	// The other port space's port is another.
	id = a.route(psIB, "198.18.0.2:7471", qptRC)
	a.do(cmdConnect, connectBody(id, connParam{qpn: 5}))
	if r := a.expect(evtRejected); r.status != int32(mad.RejInvalidServiceID) {
		t.Errorf("rejected: %+v", r)
	}
}

// A request that waits when its listener goes is rejected, and one that the program destroys too.
func TestListenerGoes(t *testing.T) {
	w := up(t, "star:2", defaults)
	a, b := w.program(t, "h1"), w.program(t, "h2")
	for _, read := range []bool{false, true} {
		l := b.listen(psTCP, 7471, 0)
		id := a.route(psTCP, "198.18.0.2:7471", 0)
		a.do(cmdConnect, connectBody(id, connParam{qpn: 5}))
		eventually(t, "the request", func() (is bool) {
			w.look("h2", func(h *host) { is = len(h.ports[0].conns) > 0 })
			return is
		})
		victim := l
		if read {
			victim = b.expect(evtConnectRequest).id
		}
		b.do(cmdDestroyID, destroyBody(victim))
		if r := a.expect(evtRejected); r.id != id {
			t.Errorf("rejected: %+v", r)
		}
		b.quiet()
		if read {
			b.do(cmdDestroyID, destroyBody(l))
		}
		a.do(cmdDestroyID, destroyBody(id))
	}
}

func TestUnreachable(t *testing.T) {
	w := up(t, "star:2", quick)
	a, b := w.program(t, "h1"), w.program(t, "h2")
	b.listen(psTCP, 7471, 0)
	b.listen(psUDP, 7471, 0)
	ids := map[uint32]bool{}
	for _, ps := range []portSpace{psTCP, psUDP} {
		ids[a.route(ps, "198.18.0.2:7471", 0)] = true
	}
	// The cable goes between resolving and connecting.
	h2 := w.Hosts()[1].Node()
	if err := w.SetLink(topo.PortRef{Node: h2.Index, Port: 1}, false); err != nil {
		t.Fatal(err)
	}
	for id := range ids {
		a.do(cmdConnect, connectBody(id, connParam{qpn: 5}))
	}
	for range 2 {
		e := a.expect(evtUnreachable)
		if !ids[e.id] || e.status != -int32(syscall.ETIMEDOUT) {
			t.Errorf("unreachable: %+v", e)
		}
		delete(ids, e.id)
	}
}

func TestDatagrams(t *testing.T) {
	w := up(t, "star:2", defaults)
	a, b := w.program(t, "h1"), w.program(t, "h2")
	b.listen(psUDP, 7174, 0)
	id := a.route(psUDP, "198.18.0.2:7174", 0)
	attr := a.do(cmdInitQPAttr, queryBody(id, uint32(cm.QPInit)))
	if mask := native.Uint32(attr); mask != uint32(cm.QPHasState|cm.QPHasPKeyIndex|cm.QPHasPort|qpHasQKey) ||
		native.Uint32(attr[20:]) != uint32(udpQKey) || attr[133] != 1 {
		t.Errorf("attributes: % x", attr)
	}
	a.do(cmdConnect, connectBody(id, connParam{qpn: 0x77, private: []byte("who?")}))
	e := b.expect(evtConnectRequest)
	if n := int(e.param[296]); n != mad.SIDRReqPrivate-ipHeadSize ||
		!bytes.HasPrefix(e.param[40:], []byte("who?\x00")) {
		t.Errorf("%d bytes of private data %q", n, e.param[40:296])
	}
	b.do(cmdAccept, acceptBody(e.id, 9, &connParam{qpn: 0x88, private: []byte("me")}))
	r := a.expect(evtEstablished)
	ah := r.param[8:40]
	if r.id != id || native.Uint32(r.param) != 0x88 || native.Uint32(r.param[4:]) != uint32(udpQKey) ||
		native.Uint16(ah[24:]) == 0 || ah[30] != 1 || !bytes.HasPrefix(r.param[40:], []byte("me\x00")) {
		t.Errorf("established: %+v", r)
	}
	b.do(cmdDestroyID, destroyBody(e.id))

	// Rejected, and unknown.
	id = a.route(psUDP, "198.18.0.2:7174", 0)
	a.do(cmdConnect, connectBody(id, connParam{qpn: 0x77}))
	b.do(cmdReject, rejectBody(b.expect(evtConnectRequest).id, "never"))
	if r := a.expect(evtUnreachable); r.status != int32(mad.SIDRReject) ||
		!bytes.HasPrefix(r.param[40:], []byte("never\x00")) {
		t.Errorf("rejected: %+v", r)
	}
	id = a.route(psUDP, "198.18.0.2:7175", 0)
	a.do(cmdConnect, connectBody(id, connParam{qpn: 0x77}))
	if r := a.expect(evtUnreachable); r.id != id || r.status != int32(mad.SIDRUnsupported) {
		t.Errorf("unknown: %+v", r)
	}
}

func TestLoopback(t *testing.T) {
	w := up(t, "star:2", defaults)
	a, b := w.program(t, "h1"), w.program(t, "h1")
	l := b.id(psTCP, 0)
	b.do(cmdBind, bindBody(l, sockaddr{family: afInet6, ip: anyIPv6, port: 7471}))
	b.do(cmdListen, u32s(l, 5))
	for _, dst := range []string{"127.0.0.1:7471", "198.18.0.1:7471", "[::1]:7471", "[fd53:6f66:7469:6200::1]:7471"} {
		active, passive := connected(t, a, b, dst)
		resp := b.do(cmdQuery, queryBody(passive, queryAddr))
		if src := parseSockaddr(resp[16:]); src.ip != addr(dst).ip || src.port != 7471 {
			t.Errorf("%s: the passive side is at %+v", dst, src)
		}
		a.do(cmdDisconnect, u32s(active))
		b.expect(evtDisconnected)
		b.do(cmdDisconnect, u32s(passive))
		a.expect(evtDisconnected)
	}
}

func TestBacklog(t *testing.T) {
	w := up(t, "star:2", defaults)
	a, b := w.program(t, "h1"), w.program(t, "h2")
	l := b.id(psTCP, 0)
	b.do(cmdBind, bindBody(l, addr("198.18.0.2:7471")))
	b.do(cmdListen, u32s(l, 2))
	var ids []uint32
	for range 3 {
		ids = append(ids, a.route(psTCP, "198.18.0.2:7471", 0))
	}
	for i, id := range ids {
		a.do(cmdConnect, connectBody(id, connParam{qpn: ib.QPN(10 + i)}))
	}
	rejected := a.expect(evtRejected).id
	if rejected != ids[2] {
		t.Errorf("ID %d is rejected, want the last of %v", rejected, ids)
	}
	b.expect(evtConnectRequest)
	// There is room again.
	id := a.route(psTCP, "198.18.0.2:7471", 0)
	a.do(cmdConnect, connectBody(id, connParam{qpn: 6}))
	b.expect(evtConnectRequest)
	if p := connParamOf(b.expect(evtConnectRequest)); p.qpn != 6 {
		t.Errorf("the third request is of QP %v", p.qpn)
	}
}

// On hosts with several ports the address is where a port is active, and listeners are at all of them.
func TestTwoPorts(t *testing.T) {
	two := &topo.Graph{}
	sw, err := two.Add(topo.Node{Type: ib.NodeSwitch, GUID: 0x100, Name: "s1"}, 4)
	if err != nil {
		t.Fatal(err)
	}
	for i, name := range []string{"h1", "h2"} {
		n, err := two.Add(topo.Node{Type: ib.NodeCA, GUID: ib.GUID(0x200 + 16*i), Name: name}, 2)
		if err != nil {
			t.Fatal(err)
		}
		for p := 1; p <= 2; p++ {
			if err := errors.Join(
				two.SetPortGUID(n.Index, ib.PortNum(p), n.GUID+ib.GUID(p)),
				two.Connect(n.Index, ib.PortNum(p), sw.Index, ib.PortNum(2*i+p), topo.DefaultLink),
			); err != nil {
				t.Fatal(err)
			}
		}
	}
	w := upGraph(t, two, defaults)
	a, b := w.program(t, "h1"), w.program(t, "h2")
	b.listen(psTCP, 7471, 0)
	connected(t, a, b, "198.18.0.2:7471")
	if err := w.SetLink(topo.PortRef{Node: two.ByName("h2").Index, Port: 1}, false); err != nil {
		t.Fatal(err)
	}
	id := a.route(psTCP, "198.18.0.2:7471", 0)
	a.do(cmdConnect, connectBody(id, connParam{qpn: 0x999}))
	e := b.expect(evtConnectRequest)
	if resp := b.do(cmdQuery, queryBody(e.id, queryAddr)); resp[8] != 2 {
		t.Errorf("the request came by port %d, want 2", resp[8])
	}
	if attr := b.do(cmdInitQPAttr, queryBody(e.id, uint32(cm.QPInit))); attr[133] != 2 {
		t.Errorf("the queue pair belongs to port %d, want 2", attr[133])
	}
}
