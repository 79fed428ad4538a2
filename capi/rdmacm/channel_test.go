package rdmacm

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"softib/proto/ib"
	"softib/proto/mad"
)

func migrateBody(from *client, id uint32) []byte {
	return append(native.AppendUint64(nil, from.number), u32s(id, 0)...)
}

// Events that were not read go with their ID, those that were are counted.
func TestMigrate(t *testing.T) {
	w := up(t, "star:2", defaults)
	a, b := w.program(t, "h1"), w.program(t, "h1")
	id, other := a.id(psTCP, 0), a.id(psTCP, 0)
	for _, x := range []uint32{other, id} {
		a.do(cmdResolveAddr, resolveBody(x, sockaddr{}, addr("198.18.0.2:1")))
	}
	a.fails(syscall.ENOENT, cmdMigrateID, migrateBody(b, id)) // it is not b's
	if n := native.Uint32(b.do(cmdMigrateID, migrateBody(a, id))); n != 0 {
		t.Errorf("%d events were read, want none", n)
	}
	if e := b.expect(evtAddrResolved); e.id != id {
		t.Errorf("the event that moved: %+v", e)
	}
	if e := a.expect(evtAddrResolved); e.id != other {
		t.Errorf("the event that stayed: %+v", e)
	}
	a.quiet()
	a.fails(syscall.ENOENT, cmdResolveRoute, u32s(id, 2000))
	b.do(cmdResolveRoute, u32s(id, 2000))
	b.expect(evtRouteResolved)
	if n := native.Uint32(a.do(cmdMigrateID, migrateBody(b, id))); n != 2 {
		t.Errorf("%d events were read, want 2", n)
	}
	if n := native.Uint32(a.do(cmdMigrateID, migrateBody(a, id))); n != 2 {
		t.Errorf("%d events were read, want 2 as before", n)
	}

	// A listener takes its requests along, and the new IDs with them.
	l := a.listen(psTCP, 7471, 0)
	c := w.program(t, "h2")
	active := c.route(psTCP, "198.18.0.1:7471", 0)
	c.do(cmdConnect, connectBody(active, connParam{qpn: 9}))
	eventually(t, "the request", func() (is bool) {
		w.look("h1", func(h *host) { is = len(h.ports[0].conns) > 0 })
		return is
	})
	b.do(cmdMigrateID, migrateBody(a, l))
	e := b.expect(evtConnectRequest)
	a.quiet()
	b.do(cmdReject, rejectBody(e.id, ""))
	c.expect(evtRejected)

	far := w.program(t, "h2")
	far.fails(syscall.EINVAL, cmdMigrateID, migrateBody(a, id)) // another host's
	a.fails(syscall.ENOENT, cmdMigrateID, append(native.AppendUint64(nil, 12345), u32s(id, 0)...))
}

// More events than a socket holds wait here, come in order, and can be taken back.
func TestManyEvents(t *testing.T) {
	w := up(t, "star:2", defaults)
	c := w.program(t, "h1")
	const n = 1500
	ids := make([]uint32, n)
	for i := range ids {
		ids[i] = c.id(psTCP, 0)
		c.do(cmdResolveAddr, resolveBody(ids[i], sockaddr{}, addr("198.18.0.2:1")))
	}
	for _, id := range ids[:3] {
		if e := c.expect(evtAddrResolved); e.id != id {
			t.Fatalf("event of ID %d, want %d", e.id, id)
		}
	}
	// One that was read, one that is in the socket, one that is far behind.
	for i, want := range map[int]uint32{1: 1, 4: 0, n - 10: 0} {
		if got := native.Uint32(c.do(cmdDestroyID, destroyBody(ids[i]))); got != want {
			t.Errorf("ID %d: %d events were read, want %d", ids[i], got, want)
		}
	}
	for i := 3; i < n; i++ {
		if i == 4 || i == n-10 {
			continue
		}
		if e := c.expect(evtAddrResolved); e.id != ids[i] {
			t.Fatalf("event of ID %d, want %d", e.id, ids[i])
		}
	}
	c.quiet()
}

// When a program dies its peers hear of it, its ports are free, and nothing stays behind.
func TestDeath(t *testing.T) {
	w := up(t, "star:2", defaults)
	a, b := w.program(t, "h1"), w.program(t, "h2")
	b.listen(psTCP, 7471, 0)
	active, passive := connected(t, a, b, "198.18.0.2:7471")
	_, second := connected2(t, a, b, "198.18.0.2:7471")
	a.die()
	for range 2 {
		e := b.expect(evtDisconnected)
		if e.id != passive && e.id != second {
			t.Errorf("disconnected: %+v", e)
		}
		b.do(cmdDisconnect, u32s(e.id))
	}
	b.die()
	_ = active
	for _, name := range []string{"h1", "h2"} {
		eventually(t, "everything of "+name+" to go", func() (gone bool) {
			w.look(name, func(h *host) {
				gone = true
				for _, p := range h.ports {
					gone = gone && len(p.conns) == 0 && len(p.listens) == 0 && len(p.asks) == 0 && len(p.groups) == 0
				}
				for _, s := range h.spaces {
					gone = gone && len(s) == 0
				}
			})
			return gone
		})
	}
	eventually(t, "the channels to go", func() bool {
		w.s.mu.Lock()
		defer w.s.mu.Unlock()
		return len(w.s.channels) == 0
	})
	// The port can be had again.
	w.program(t, "h2").listen(psTCP, 7471, 0)
}

// connected2 is another connection, of another queue pair.
func connected2(t *testing.T, from, to *client, dst string) (active, passive uint32) {
	t.Helper()
	active = from.route(psTCP, dst, 0)
	from.do(cmdConnect, connectBody(active, connParam{qpn: 0x321}))
	passive = to.expect(evtConnectRequest).id
	to.do(cmdAccept, acceptBody(passive, 5, &connParam{qpn: 0x654}))
	from.expect(evtConnectResponse)
	from.do(cmdAccept, acceptBody(active, 0, nil))
	to.expect(evtEstablished)
	return active, passive
}

// A program that goes while it is being connected, on either side.
func TestDeathInBetween(t *testing.T) {
	w := up(t, "star:2", defaults)
	b := w.program(t, "h2")
	b.listen(psTCP, 7471, 0)
	a := w.program(t, "h1")
	id := a.route(psTCP, "198.18.0.2:7471", 0)
	a.do(cmdConnect, connectBody(id, connParam{qpn: 1}))
	e := b.expect(evtConnectRequest)
	a.die()
	// The request is void: to accept it fails at once, or is refused by the manager of the one who is gone.
	if _, errno := b.try(cmdAccept, acceptBody(e.id, 5, &connParam{qpn: 2})); errno == 0 {
		b.expect(evtRejected)
	}
	b.fails(syscall.EINVAL, cmdAccept, acceptBody(e.id, 5, &connParam{qpn: 2}))
	b.do(cmdDestroyID, destroyBody(e.id))

	a = w.program(t, "h1")
	id = a.route(psTCP, "198.18.0.2:7471", 0)
	a.do(cmdConnect, connectBody(id, connParam{qpn: 3}))
	b.expect(evtConnectRequest)
	b.die()
	if r := a.expect(evtRejected); r.id != id {
		t.Errorf("rejected: %+v", r)
	}
}

// The fabric's end is the end of every channel.
func TestServerEnds(t *testing.T) {
	w := up(t, "star:2", defaults)
	a, b := w.program(t, "h1"), w.program(t, "h2")
	b.listen(psTCP, 7471, 0)
	connected(t, a, b, "198.18.0.2:7471")
	w.end()
	for _, c := range []*client{a, b} {
		buf := make([]byte, eventSize)
		for {
			n, err := c.evt.Read(buf)
			if err != nil || n == 0 {
				break
			}
		}
		if n, err := c.cmd.Read(buf); err == nil && n > 0 {
			t.Error("commands are still answered")
		}
	}
}

func TestHellos(t *testing.T) {
	w := up(t, "star:2", defaults)
	if errno, _ := greet(t, w.dial(t), hello{role: roleCommands, host: "h9"}, false); errno != syscall.ENODEV {
		t.Errorf("h9: %v", errno)
	}
	if errno, _ := greet(t, w.dial(t), hello{role: roleCommands, host: "leaf1"}, false); errno != syscall.ENODEV {
		t.Errorf("a switch: %v", errno)
	}
	if errno, _ := greet(t, w.dial(t), hello{role: roleEvents, channel: 99, host: "h1"},
		true); errno != syscall.ENOENT {
		t.Errorf("no such channel: %v", errno)
	}
	cmd := w.dial(t)
	_, n := greet(t, cmd, hello{role: roleCommands, host: "h1"}, false)
	if errno, _ := greet(t, w.dial(t), hello{role: roleEvents, channel: n, host: "h1"},
		false); errno != syscall.EINVAL {
		t.Errorf("without a descriptor: %v", errno)
	}
	if errno, _ := greet(t, w.dial(t), hello{role: roleEvents, channel: n, host: "h1"}, true); errno != 0 {
		t.Errorf("events: %v", errno)
	}
	if errno, _ := greet(t, w.dial(t), hello{role: roleEvents, channel: n, host: "h1"}, true); errno != syscall.EBUSY {
		t.Errorf("events twice: %v", errno)
	}
	old := appendHello(nil, &hello{role: roleCommands, host: "h1"})
	native.PutUint32(old[4:], 7)
	c := w.dial(t)
	if _, err := c.Write(old); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 1024)
	if n, err := c.Read(b); err != nil || n < welcomeSize || syscall.Errno(-int32(native.Uint32(b))) != syscall.EPROTO {
		t.Errorf("version 7: %q, %v", b[:n], err)
	}
	c = w.dial(t)
	if _, err := c.Write([]byte("GET / HTTP/1.1")); err != nil {
		t.Fatal(err)
	}
	if n, err := c.Read(b); err == nil && n > 0 {
		t.Errorf("what is no hello is answered: %q", b[:n])
	}
}

// Events that come before the event connection wait for it.
func TestLateEvents(t *testing.T) {
	w := up(t, "star:2", defaults)
	c := &client{t: t, w: w, cmd: w.dial(t), evt: w.dial(t)}
	_, c.number = greet(t, c.cmd, hello{role: roleCommands, host: "h1"}, false)
	id := c.id(psTCP, 0)
	c.do(cmdResolveAddr, resolveBody(id, sockaddr{}, addr("198.18.0.2:1")))
	if errno, _ := greet(t, c.evt, hello{role: roleEvents, channel: c.number, host: "h1"}, true); errno != 0 {
		t.Fatal(errno)
	}
	if e := c.expect(evtAddrResolved); e.id != id {
		t.Errorf("%+v", e)
	}
}

// XRC: the initiator asks, the target's side is asked.
func TestXRC(t *testing.T) {
	w := up(t, "star:2", defaults)
	a, b := w.program(t, "h1"), w.program(t, "h2")
	b.listen(psIB, 7471, qptXRCRecv)
	id := a.route(psIB, "198.18.0.2:7471", qptXRCSend)
	a.do(cmdConnect, connectBody(id, connParam{qpn: 0x12, srq: 1}))
	e := b.expect(evtConnectRequest)
	if p := connParamOf(e); p.qpn != 0x12 {
		t.Errorf("request: %+v", p)
	}
	b.do(cmdAccept, acceptBody(e.id, 5, &connParam{qpn: 0x34, srq: 1}))
	if p := connParamOf(a.expect(evtConnectResponse)); p.qpn != 0x34 || p.srq != 1 {
		t.Errorf("response: %+v", p)
	}
	a.do(cmdAccept, acceptBody(id, 0, nil))
	b.expect(evtEstablished)
	// A queue pair of another kind is not what is listened for.
	rc := a.route(psIB, "198.18.0.2:7471", qptRC)
	a.do(cmdConnect, connectBody(rc, connParam{qpn: 0x13}))
	if r := a.expect(evtRejected); r.status != int32(mad.RejInvalidServiceID) {
		t.Errorf("rejected: %+v", r)
	}
}

// Addresses of the InfiniBand family are GIDs and service IDs.
func TestIBAddresses(t *testing.T) {
	w := up(t, "star:2", defaults)
	a, b := w.program(t, "h1"), w.program(t, "h2")
	gid := func(i int) ib.GID { return ib.MakeGID(ib.DefaultGIDPrefix, w.Hosts()[i].Node().PortGUID(1)) }
	l := b.id(psIB, qptRC)
	b.do(cmdBind, bindBody(l, sockaddr{family: afIB, pkey: 0xFFFF, sid: uint64(psIB)<<16 | 99, mask: ^uint64(0)}))
	b.do(cmdListen, u32s(l, 0))
	id := a.id(psIB, qptRC)
	a.do(cmdResolveAddr, resolveBody(id, sockaddr{},
		sockaddr{family: afIB, pkey: 0xFFFF, gid: gid(1), sid: uint64(psIB)<<16 | 99, mask: ^uint64(0)}))
	a.expect(evtAddrResolved)
	a.do(cmdResolveRoute, u32s(id, 1000))
	a.expect(evtRouteResolved)
	resp := a.do(cmdQuery, queryBody(id, queryGID))
	if src, dst := parseSockaddr(resp[16:]), parseSockaddr(resp[144:]); src.gid != gid(0) || dst.gid != gid(1) ||
		src.pkey != 0xFFFF {
		t.Errorf("from %+v to %+v", src, dst)
	}
	resp = a.do(cmdQuery, queryBody(id, queryPath))
	var path mad.PathRecord
	if _, err := path.Parse(resp[16:]); err != nil || len(resp) != pathRespHead+pathDataSize ||
		native.Uint32(resp) != 1 || native.Uint32(resp[8:]) != pathFlags || path.DGID != gid(1) {
		t.Errorf("path % x, %v", resp, err)
	}
	a.do(cmdConnect, connectBody(id, connParam{qpn: 0x12, private: []byte("whole")}))
	p := connParamOf(b.expect(evtConnectRequest))
	if len(p.private) != mad.CMReqPrivate || string(p.private[:5]) != "whole" {
		t.Errorf("private data %q", p.private)
	}
}

// A program of another user is refused with words. Only root can try.
func TestOtherUser(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can be somebody else")
	}
	w := up(t, "star:2", defaults)
	// the credentials alone decide
	if err := errors.Join(os.Chmod(filepath.Dir(w.socket), 0o755), os.Chmod(w.socket, 0o666)); err != nil {
		t.Fatal(err)
	}
	answer := make(chan string, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine, and with it who it was
		const nobody = 65534
		if _, _, errno := syscall.RawSyscall(syscall.SYS_SETRESUID, nobody, nobody, nobody); errno != 0 {
			answer <- errno.Error()
			return
		}
		fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_SEQPACKET|syscall.SOCK_CLOEXEC, 0)
		if err == nil {
			defer syscall.Close(fd)
			err = syscall.Connect(fd, &syscall.SockaddrUnix{Name: w.socket})
		}
		if err == nil {
			_, err = syscall.Write(fd, appendHello(nil, &hello{role: roleCommands, host: "h1"}))
		}
		b := make([]byte, welcomeSize+textMax)
		n := 0
		if err == nil {
			n, err = syscall.Read(fd, b)
		}
		if err != nil || n < welcomeSize {
			answer <- fmt.Sprintf("%d bytes, %v", n, err)
			return
		}
		answer <- fmt.Sprintf("%v: %s", syscall.Errno(-int32(native.Uint32(b))), b[welcomeSize:n])
	}()
	select {
	case got := <-answer:
		if !strings.Contains(got, syscall.EPERM.Error()) ||
			!strings.Contains(got, "user 65534 may not use a fabric of user 0; next:") {
			t.Errorf("the answer is %q", got)
		}
	case <-time.After(testPatience):
		t.Error("no answer")
	}
}
