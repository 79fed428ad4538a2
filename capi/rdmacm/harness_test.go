package rdmacm

import (
	"context"
	"encoding/binary"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"softib/driver/live"
	"softib/driver/smrun"
	"softib/proto/ib"
	"softib/proto/topo"
	"softib/subnet/sm"
)

// testPatience is how long a test waits for anything.
const testPatience = 60 * time.Second

// resolveMillis is how long looking for an address or a way may take: the manager may have to wait for its turn.
const resolveMillis = 30_000

// world is a fabric with its manager and a server.
type world struct {
	*live.Fabric
	sm     *smrun.Runner
	s      *Server
	socket string
	end    func() // of the server
}

// quick makes peers that say nothing be given up after one try.
var quick = config{responseTimeout: 11, retries: 0}

func up(t testing.TB, spec string, cfg config, tune ...func(*sm.Config)) *world {
	t.Helper()
	g, err := topo.ParseSpec(spec)
	if err != nil {
		t.Fatal(err)
	}
	return upGraph(t, g, cfg, tune...)
}

// manage brings all subnets up, by a manager at the first host of each, and has them know the ways between each other.
func (w *world) manage(t testing.TB, tune ...func(*sm.Config)) {
	t.Helper()
	g := w.Graph()
	subnets := g.Subnets()
	var runs []*smrun.Runner
	for _, h := range g.Hosts() {
		ref := topo.PortRef{Node: h.Index, Port: 1}
		if subnets.Of(ref) != len(runs) {
			continue
		}
		session, err := w.OpenMgmt(ref)
		if err != nil {
			t.Fatal(err)
		}
		c := sm.Config{Window: 1024, Groups: w.Groups(), Prefix: g.Prefix(len(runs))}
		for _, f := range tune {
			f(&c)
		}
		run, err := smrun.New(c, session, smrun.Options{})
		if err != nil {
			t.Fatal(err)
		}
		runs = append(runs, run)
		ctx, cancel := context.WithCancel(context.Background())
		go func() { _ = run.Run(ctx) }()
		t.Cleanup(func() {
			cancel()
			<-run.Done()
		})
	}
	w.sm = runs[0]
	for _, run := range runs {
		select {
		case <-run.Up():
		case <-time.After(testPatience):
			t.Fatal("the subnet does not come up")
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), testPatience)
	defer cancel()
	for _, run := range runs {
		if err := run.Await(ctx, func(m *sm.Manager) bool {
			for _, r := range m.Subnet().Routers {
				if len(r.Hops) < len(runs)-1 {
					return false
				}
			}
			return true
		}); err != nil {
			t.Fatalf("routers do not know all subnets: %v", err)
		}
	}
}

func upGraph(t testing.TB, g *topo.Graph, cfg config, tune ...func(*sm.Config)) *world {
	t.Helper()
	f, err := live.New(g, live.Config{})
	if err != nil {
		t.Fatal(err)
	}
	w := &world{Fabric: f}
	t.Cleanup(func() { f.Close() })
	w.manage(t, tune...)
	dir, err := os.MkdirTemp("", "softib-") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	w.socket = filepath.Join(dir, "rdmacm")
	l, err := Listen(w.socket)
	if err != nil {
		t.Fatal(err)
	}
	w.s = newServer(OnFabric(f), cfg)
	serverCtx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.s.Serve(serverCtx, l) }()
	ended := false
	w.end = func() {
		stop()
		if ended {
			return
		}
		ended = true
		if err := <-done; err != nil {
			t.Errorf("serve: %v", err)
		}
	}
	t.Cleanup(func() {
		w.end()
		os.RemoveAll(dir)
	})
	return w
}

func (w *world) dial(t testing.TB) *net.UnixConn {
	t.Helper()
	c, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: w.socket, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(testPatience)); err != nil {
		t.Fatal(err)
	}
	return c
}

// client is an event channel of a program.
type client struct {
	t        testing.TB
	w        *world
	cmd, evt *net.UnixConn
	number   uint64
}

// hello says a hello and returns the answer's errno and channel.
func greet(t testing.TB, c *net.UnixConn, h hello, withFD bool) (syscall.Errno, uint64) {
	t.Helper()
	var oob []byte
	if withFD {
		raw, err := c.SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		if err := raw.Control(func(fd uintptr) { oob = syscall.UnixRights(int(fd)) }); err != nil {
			t.Fatal(err)
		}
	}
	// Not while Control lasts: writing may need the descriptor for itself.
	if _, _, err := c.WriteMsgUnix(appendHello(nil, &h), oob, nil); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, welcomeSize+textMax)
	n, err := c.Read(b)
	if err != nil || n < welcomeSize {
		t.Fatalf("the hello is answered with %d bytes, %v", n, err)
	}
	return syscall.Errno(-int32(native.Uint32(b))), native.Uint64(b[8:])
}

func (w *world) program(t testing.TB, host string) *client {
	t.Helper()
	c := &client{t: t, w: w, cmd: w.dial(t), evt: w.dial(t)}
	errno, n := greet(t, c.cmd, hello{role: roleCommands, host: host}, false)
	if errno != 0 {
		t.Fatalf("a channel on %s: %v", host, errno)
	}
	c.number = n
	if errno, _ := greet(t, c.evt, hello{role: roleEvents, channel: n, host: host}, true); errno != 0 {
		t.Fatalf("events on %s: %v", host, errno)
	}
	return c
}

// die ends the program.
func (c *client) die() {
	c.cmd.Close()
	c.evt.Close()
}

// try sends a command and returns its response.
func (c *client) try(cmd command, body []byte) ([]byte, syscall.Errno) {
	c.t.Helper()
	b := native.AppendUint32(nil, uint32(cmd))
	b = native.AppendUint16(b, uint16(len(body)))
	b = native.AppendUint16(b, 512)
	if _, err := c.cmd.Write(append(b, body...)); err != nil {
		c.t.Fatalf("%v: %v", cmd, err)
	}
	out := make([]byte, recordMax)
	n, err := c.cmd.Read(out)
	if err != nil || n < answerHeadSize {
		c.t.Fatalf("%v: %d bytes, %v", cmd, n, err)
	}
	return out[answerHeadSize:n], syscall.Errno(-int32(native.Uint32(out)))
}

// do is try for what has to succeed.
func (c *client) do(cmd command, body []byte) []byte {
	c.t.Helper()
	out, errno := c.try(cmd, body)
	if errno != 0 {
		c.t.Fatalf("%v: %v", cmd, errno)
	}
	return out
}

// fails is try for what has to fail.
func (c *client) fails(want syscall.Errno, cmd command, body []byte) {
	c.t.Helper()
	if _, errno := c.try(cmd, body); errno != want {
		c.t.Errorf("%v: %v, want %v", cmd, errno, want)
	}
}

// Commands' structs.

func u32s(v ...uint32) (b []byte) {
	for _, x := range v {
		b = native.AppendUint32(b, x)
	}
	return b
}

func addr(text string) sockaddr {
	ap := netip.MustParseAddrPort(text)
	a := sockaddr{family: afInet, ip: ap.Addr(), port: ap.Port()}
	if ap.Addr().Is6() {
		a.family = afInet6
	}
	return a
}

func bindBody(id uint32, a sockaddr) []byte {
	b := make([]byte, 136)
	native.PutUint32(b, id)
	native.PutUint16(b[4:], uint16(a.put(b[8:])))
	return b
}

func resolveBody(id uint32, src, dst sockaddr) []byte {
	b := make([]byte, 272)
	native.PutUint32(b, id)
	native.PutUint32(b[4:], resolveMillis)
	native.PutUint16(b[8:], uint16(src.put(b[16:])))
	native.PutUint16(b[10:], uint16(dst.put(b[144:])))
	return b
}

func connBody(p connParam) []byte {
	b := make([]byte, connParamSize)
	p.put(b)
	return b
}

func connectBody(id uint32, p connParam) []byte {
	p.valid = 1
	return append(connBody(p), u32s(id, 0, 0, 0)...)
}

func acceptBody(id uint32, uid uint64, p *connParam) []byte {
	b := native.AppendUint64(nil, uid)
	if p != nil {
		p.valid = 1
		b = append(b, connBody(*p)...)
	} else {
		b = append(b, make([]byte, connParamSize)...)
	}
	return append(b, u32s(id, 0, 0, 0)...)
}

func rejectBody(id uint32, private string) []byte {
	b := make([]byte, 264)
	native.PutUint32(b, id)
	b[4] = byte(copy(b[8:], private))
	return b
}

func queryBody(id, option uint32) []byte { return append(make([]byte, 8), u32s(id, option)...) }

func destroyBody(id uint32) []byte { return append(make([]byte, 8), u32s(id, 0)...) }

func joinBody(id uint32, uid uint64, a sockaddr, flags uint16) []byte {
	b := make([]byte, 152)
	native.PutUint64(b[8:], uid)
	native.PutUint32(b[16:], id)
	native.PutUint16(b[20:], uint16(a.put(b[24:])))
	native.PutUint16(b[22:], flags)
	return b
}

// id makes an ID; its uid is 1000 more than its number.
func (c *client) id(space portSpace, qpType uint8) uint32 {
	c.t.Helper()
	// The number is not known before, so the uid counts from what the server will give next.
	b := native.AppendUint64(nil, uint64(c.w.s.lastID.Load()+1)+1000)
	b = append(b, make([]byte, 8)...)
	b = native.AppendUint16(b, uint16(space))
	b = append(b, qpType, 0, 0, 0, 0, 0)
	return native.Uint32(c.do(cmdCreateID, b))
}

// seen is an event as a program reads it.
type seen struct {
	uid    uint64
	id     uint32
	kind   eventKind
	status int32
	param  []byte
}

func (c *client) event() seen {
	c.t.Helper()
	b := make([]byte, eventSize+1)
	n, err := c.evt.Read(b)
	if err != nil || n != eventSize {
		c.t.Fatalf("waiting for an event: %d bytes, %v", n, err)
	}
	return seen{native.Uint64(b), native.Uint32(b[evID:]), eventKind(native.Uint32(b[evEvent:])),
		int32(native.Uint32(b[evStatus:])), b[evParam:evReserved]}
}

// expect waits for an event of a kind.
func (c *client) expect(k eventKind) seen {
	c.t.Helper()
	e := c.event()
	for e.kind == evtTimewaitExit && k != evtTimewaitExit { // of a former connection
		e = c.event()
	}
	if e.kind != k {
		c.t.Fatalf("event %d of ID %d with status %d, want event %d", e.kind, e.id, e.status, k)
	}
	return e
}

// quiet makes sure that no event waits.
func (c *client) quiet() {
	c.t.Helper()
	raw, err := c.evt.SyscallConn()
	if err != nil {
		c.t.Fatal(err)
	}
	var b [eventSize]byte
	var n int
	_ = raw.Control(func(fd uintptr) { n, _, err = syscall.Recvfrom(int(fd), b[:], syscall.MSG_DONTWAIT) })
	if err != syscall.EAGAIN {
		c.t.Errorf("an event waits that should not: kind %d, %d bytes, %v", native.Uint32(b[evEvent:]), n, err)
	}
}

func connParamOf(e seen) connParam { return parseConnParam(e.param) }

// listen makes a listener on all addresses.
func (c *client) listen(space portSpace, port uint16, qpType uint8) uint32 {
	c.t.Helper()
	id := c.id(space, qpType)
	c.do(cmdBind, bindBody(id, sockaddr{family: afInet, ip: anyIPv4, port: port}))
	c.do(cmdListen, u32s(id, 0))
	return id
}

// route makes an ID that knows its way.
func (c *client) route(space portSpace, dst string, qpType uint8) uint32 {
	c.t.Helper()
	id := c.id(space, qpType)
	c.do(cmdResolveAddr, resolveBody(id, sockaddr{}, addr(dst)))
	if e := c.expect(evtAddrResolved); e.id != id || e.uid != uint64(id)+1000 || e.status != 0 {
		c.t.Fatalf("address resolved: %+v", e)
	}
	c.do(cmdResolveRoute, u32s(id, resolveMillis))
	if e := c.expect(evtRouteResolved); e.id != id || e.status != 0 {
		c.t.Fatalf("route resolved: %+v", e)
	}
	return id
}

// connected makes a connection between two programs and returns both ends' IDs.
func connected(t testing.TB, from, to *client, dst string) (active, passive uint32) {
	t.Helper()
	active = from.route(psTCP, dst, 0)
	from.do(cmdConnect, connectBody(active, connParam{qpn: 0x123, private: []byte("hello"), responderResources: 3,
		initiatorDepth: 2, retryCount: 7, rnrRetryCount: 6}))
	passive = to.expect(evtConnectRequest).id
	to.do(cmdAccept, acceptBody(passive, uint64(passive)+1000,
		&connParam{qpn: 0x456, private: []byte("welcome"), responderResources: 2, initiatorDepth: 3}))
	from.expect(evtConnectResponse)
	from.do(cmdAccept, acceptBody(active, 0, nil))
	if e := to.expect(evtEstablished); e.id != passive || e.uid != uint64(passive)+1000 {
		t.Fatalf("established: %+v", e)
	}
	return active, passive
}

// eventually waits until something is true that nothing tells of.
func eventually(t testing.TB, what string, is func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(testPatience); !is(); <-tick.C {
		if time.Now().After(end) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

// host is what the server knows of a host, under its lock.
func (w *world) look(name string, f func(*host)) {
	w.s.mu.Lock()
	h := w.s.hosts[name]
	w.s.mu.Unlock()
	h.mu.Lock()
	defer h.mu.Unlock()
	f(h)
}

func gidOf(b []byte) ib.GID { return ib.GID(b[:16]) }

var be = binary.BigEndian
