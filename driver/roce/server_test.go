package roce

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"softib/internal/packetsock"
	"softib/node/madrpc"
	"softib/proto/ib"
	"softib/proto/mad"
	"softib/verbs"
)

// among are interfaces of which one is the server's.
func (s *Server) among() *Interfaces {
	x := NewInterfaces(func(list []*Server) (string, error) { return fmt.Sprint("files of ", len(list)), nil },
		func(string) {})
	x.held = []held{{s.name, s}}
	return x
}

// nobody hears warnings.
func nobody(string) {}

// serve lets programs in, and returns the socket.
func (x *Interfaces) serve(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	l, err := packetsock.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- x.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return path
}

// until waits for what happens soon.
func until(t testing.TB, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not within a minute", what)
		}
	}
}

// Programs share an address, each with queue pairs and sockets of its own, and the kernel tells them apart.
func TestShare(t *testing.T) {
	x := holdAt(t, "127.0.0.1").among()
	path := x.serve(t)
	far := open(t, "127.0.0.2")
	const programs = 5
	var near, away [programs]*side
	for i := range programs {
		d, err := Dial(path, "test", nobody)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = d.Close() })
		near[i], away[i] = newSide(t, d, verbs.RC), newSide(t, far, verbs.RC)
		connect(near[i], away[i])
		if b := blockOf(near[i].qp.Num()); b != uint16(i+1) {
			t.Errorf("program %d has block %d", i, b)
		}
	}
	if n := x.Users(); n != programs {
		t.Errorf("%d users: want %d", n, programs)
	}
	for i := range programs {
		fill(away[i].mr.Bytes(), byte(i))
		away[i].see()
		away[i].send(verbs.SendWR{Opcode: verbs.WRRDMAWrite, SGList: away[i].mr.SGEs(0, memory),
			RemoteAddr: near[i].mr.Addr(), RKey: near[i].mr.RKey()})
	}
	for i := range programs {
		away[i].next()
		near[i].see()
		if !bytes.Equal(near[i].mr.Bytes(), away[i].mr.Bytes()) {
			t.Errorf("program %d has other bytes", i)
		}
	}
	// Between two programs of one machine as well.
	a, b := newSide(t, near[0].dev, verbs.RC), newSide(t, near[1].dev, verbs.RC)
	connect(a, b)
	fill(a.mr.Bytes(), 77)
	b.see()
	a.send(verbs.SendWR{Opcode: verbs.WRRDMAWrite, SGList: a.mr.SGEs(0, memory), RemoteAddr: b.mr.Addr(),
		RKey: b.mr.RKey()})
	a.next()
	b.see()
	if !bytes.Equal(a.mr.Bytes(), b.mr.Bytes()) {
		t.Error("between two programs: other bytes")
	}
	for i := range programs {
		if n := near[i].dev.Stats().Malformed.Load(); n > 0 {
			t.Errorf("program %d: %d datagrams were malformed", i, n)
		}
		if err := near[i].dev.Close(); err != nil {
			t.Error(err)
		}
	}
	until(t, "nobody uses the server", func() bool { return x.Users() == 0 })
}

// A program whose server ends is told that its port is down.
func TestServerEnds(t *testing.T) {
	s := holdAt(t, "127.0.0.1")
	path := filepath.Join(t.TempDir(), "s")
	l, err := packetsock.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- s.among().Serve(ctx, l) }()
	d, err := Dial(path, "test", nobody)
	if err != nil {
		t.Fatal(err)
	}
	c := verbs.Open(d)
	state := func() ib.PortState {
		p, err := c.QueryPort(1)
		if err != nil {
			t.Fatal(err)
		}
		return p.State
	}
	if got := state(); got != ib.PortActive {
		t.Errorf("the port is %v", got)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	until(t, "the port is down", func() bool { return state() == ib.PortDown })
	if err := d.Close(); err != nil {
		t.Error(err)
	}
}

// A block that was given back rests, and what came for who had it is not for who has it next.
func TestLend(t *testing.T) {
	s := holdAt(t, "127.0.0.1")
	seen := map[uint16]int{}
	for range 3 * (restMax + 1) {
		var fds []int
		g, err := s.admit(nil, account{}, func(_ terms, all []int) bool { fds = all; return true })
		if err != nil {
			t.Fatal(err)
		}
		block := g.block
		seen[block]++
		if ready(fds[0], unix.POLLIN, 0) {
			t.Errorf("block %d has something already", block)
		}
		to := forBlock(block)
		c, err := net.Dial("udp", "127.0.0.1:4791")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Write(to); err != nil {
			t.Fatal(err)
		}
		c.Close()
		if !ready(fds[0], unix.POLLIN, time.Second) {
			t.Errorf("what went to block %d did not come there", block)
		}
		s.dismiss(g)
	}
	for b, n := range seen {
		if n != 3 || b > restMax+1 {
			t.Errorf("block %d was given out %d times: want each of %d three times", b, n, restMax+1)
		}
	}
}

// forBlock is a datagram whose destination is in a block.
func forBlock(block uint16) []byte {
	b := make([]byte, 16)
	q := uint32(block) << 14
	b[5], b[6], b[7] = byte(q>>16), byte(q>>8), byte(q)
	return b
}

// Keep keeps the server without taking anything of it, and says who it is; what is no program is turned away.
func TestKeep(t *testing.T) {
	s := holdAt(t, "127.0.0.1")
	x := s.among()
	path := x.serve(t)
	f, v, err := Keep(path, "test")
	if err != nil || len(v.GUIDs) != 1 || v.GUIDs[0] != s.GUID() || v.GUIDs[0]>>57&1 != 1 || v.Files != "files of 1" {
		t.Fatalf("%+v, %v: want GUID %v", v, err, s.GUID())
	}
	until(t, "it is counted", func() bool { return x.Users() == 1 })
	f.Close()
	until(t, "it is not", func() bool { return x.Users() == 0 })
	if _, _, _, err := ask(filepath.Join(t.TempDir(), "none"), hello{}); err == nil {
		t.Error("a server that is not there answered")
	}
	for _, say := range []string{`{"softib_roce":99}`, `{`, ``, strings.Repeat("x", 1000)} {
		c, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: path, Net: "unixpacket"})
		if err != nil {
			t.Fatal(err)
		}
		_, _ = c.Write([]byte(say))
		_ = c.CloseWrite()
		b := make([]byte, termsMax)
		n, _ := c.Read(b)
		if got := string(b[:n]); strings.Contains(say, "99") != strings.Contains(got, "version") {
			t.Errorf("%q was answered with %q", say, got)
		}
		c.Close()
	}
	if x.Users() != 0 {
		t.Errorf("%d users", x.Users())
	}
	if pid, err := Holder(path); pid != os.Getpid() || err != nil {
		t.Errorf("process %d, %v: want %d", pid, err, os.Getpid())
	}
	wide := Config{Hardware: net.HardwareAddr{2, 0, 0, 0, 0, 1}}
	if g := wide.guid(); g != 0x00_00_00_ff_fe_00_00_01 {
		t.Errorf("the GUID of a hardware address is %v", g)
	}
}

// What is sent to a group comes to its members once, in this process and in others, and to nobody when they have left.
func TestGroup(t *testing.T) {
	const qkey = 0x1234
	group := ib.GID(netip.MustParseAddr("239.255.77.1").As16())
	s := holdAt(t, "127.0.0.1")
	var all []*side // of three processes: a sender that is a member too, one with two members, and a stranger
	devices := []*Device{s.open(t), s.open(t), s.open(t)}
	for _, d := range []int{0, 1, 1, 2} {
		x := newSide(t, devices[d], verbs.UD)
		x.check(x.qp.Ready(1, 0, qkey))
		if d < 2 {
			x.check(x.qp.AttachMcast(group, 0))
		}
		for i := range 4 {
			x.check(x.qp.PostRecv(&verbs.RecvWR{WRID: uint64(i), SGList: x.mr.SGEs(4096*i, 2048)}))
		}
		all = append(all, x)
	}
	from := all[0]
	ah, err := from.pd.CreateAH(verbs.AHAttr{IsGlobal: true, DGID: group, HopLimit: 64, Port: 1})
	from.check(err)
	for i := range 3 {
		from.send(verbs.SendWR{Opcode: verbs.WRSendImm, SGList: from.mr.SGEs(memory-100, 100), AH: ah, Imm: uint32(i),
			RemoteQPN: ib.QPNMulticast, RemoteQKey: qkey})
	}
	for i, x := range all[:3] {
		sent, got := 0, []uint32{}
		for len(got) < 3 || i == 0 && sent < 3 {
			if wc := x.next(); wc.Opcode == verbs.WCRecv {
				got = append(got, wc.ImmData)
			} else {
				sent++
			}
		}
		if len(got) != 3 || got[0] != 0 || got[1] != 1 || got[2] != 2 {
			t.Errorf("member %d got %v", i, got)
		}
	}
	for i, x := range all {
		var wc [8]verbs.WC
		if n := x.cq.Poll(wc[:]); n != 0 {
			t.Errorf("member %d has %d more", i, n)
		}
	}
	for _, x := range all[1:3] {
		x.check(x.qp.DetachMcast(group, 0))
	}
	devices[1].Enter()
	n := len(devices[1].link.socks)
	devices[1].Leave()
	if n != 1 {
		t.Errorf("%d sockets after all have left: want 1", n)
	}
	if err := errors.Join(s.Join(group), s.Join(group)); err != nil {
		t.Fatal(err)
	}
	s.Leave(group)
	s.Leave(group)
	if len(s.session.groups) != 0 {
		t.Error("the server is a member yet")
	}
	if err := s.Join(ib.GID{0xFF, 0x02, 15: 9}); !errors.Is(err, ErrSocket) {
		t.Errorf("a group of IPv6, without an address of it: %v", err)
	}
}

// Management datagrams go from queue pair 1 to queue pair 1, and what is none of them is dropped.
func TestSession(t *testing.T) {
	from, to := holdAt(t, "127.0.0.1"), holdAt(t, "127.0.0.2")
	a, err := from.OpenMgmt()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := from.OpenMgmt(); !errors.Is(err, ErrBusy) {
		t.Errorf("a second user: %v", err)
	}
	b, err := to.OpenMgmt()
	if err != nil {
		t.Fatal(err)
	}
	register := func(x *Session) madrpc.AgentID {
		id, err := x.Register(madrpc.Registration{Class: mad.ClassCM, ClassVersion: mad.CMClassVersion,
			Methods: madrpc.MethodSet(mad.MethodSend), Name: "test"})
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	at := register(a)
	register(b)
	data := make([]byte, mad.Size)
	h := mad.Header{BaseVersion: mad.BaseVersion, MgmtClass: mad.ClassCM, ClassVersion: mad.CMClassVersion,
		Method: mad.MethodSend, AttributeID: mad.AttrCMReq, TransactionID: 5}
	copy(data, h.Append(nil))
	fill(data[mad.Size-50:], 3)
	env := mad.Envelope{QPN: ib.QPNGSI, QKey: ib.QKeyGSI, HasGRH: true, HopLimit: 64, GID: to.GIDs()[0]}
	// Noise, and a datagram with a wrong key, go before.
	noise, err := net.Dial("udp", "127.0.0.2:4791")
	if err != nil {
		t.Fatal(err)
	}
	defer noise.Close()
	for i := range 50 {
		_, _ = noise.Write(make([]byte, i))
	}
	wrong := env
	wrong.QKey = 7
	if err := errors.Join(a.Send(at, madrpc.Message{Env: wrong, Data: data}),
		a.Send(at, madrpc.Message{Env: env, Data: data})); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	d, err := b.Recv(ctx)
	if err != nil || !bytes.Equal(d.Data[mad.Size-50:], data[mad.Size-50:]) || d.Env.GID != from.GIDs()[0] ||
		!d.Env.HasGRH || d.Env.QPN != ib.QPNGSI {
		t.Errorf("%+v, %v", d, err)
	}
	until(t, "noise is counted", func() bool { return to.Malformed.Load() == 50 })
	if g, ok := from.Source(to.GIDs()[0], 0); !ok || g != from.GIDs()[0] {
		t.Errorf("packets to %v leave from %v, %v", to.GIDs()[0], g, ok)
	}
	if g, ok := from.Source(ib.GID{0x20, 1, 0xD, 0xB8, 15: 1}, 0); ok {
		t.Errorf("there is a way to nowhere, from %v", g)
	}
	to.Close()
	if _, err := b.Recv(ctx); !errors.Is(err, ErrClosed) {
		t.Errorf("after the end: %v", err)
	}
	if _, err := to.Open(); !errors.Is(err, ErrClosed) {
		t.Errorf("a device after the end: %v", err)
	}
}

// Interfaces come and go one by one: programs of one that is released are told, those of another go on, and after the
// last there is none. Their numbers stay theirs.
func TestInterfaces(t *testing.T) {
	x := NewInterfaces(func([]*Server) (string, error) { return "", nil }, func(string) {})
	one, two := holdAt(t, "127.0.0.1"), holdAt(t, "127.0.0.2")
	x.held = []held{{"one", one}, {"two", two}}
	path := x.serve(t)
	var devices []*Device
	for _, name := range []string{"one", "two"} {
		d, err := Dial(path, name, nobody)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = d.Close() })
		devices = append(devices, d)
	}
	isUp := func(d *Device) bool {
		p, _ := d.PortInfo(1)
		return p.HCA.State == ib.PortActive
	}
	if err := Stay(path, "one"); err != nil {
		t.Fatal(err)
	}
	if n := x.Users(); n != 3 {
		t.Errorf("%d users: want 3", n)
	}
	if err := Release(path, "one"); err != nil {
		t.Fatal(err)
	}
	until(t, "its program is told", func() bool { return !isUp(devices[0]) })
	if !isUp(devices[1]) {
		t.Error("another interface's program is told that it is down")
	}
	_, dialed := Dial(path, "one", nobody)
	for _, err := range []error{Release(path, "one"), dialed, Release(path, "three")} {
		if err == nil || !strings.Contains(err.Error(), ErrNotHeld.Error()) {
			t.Errorf("what is not held: %v", err)
		}
	}
	if s, number := x.Server("two"); s != two || number != 2 {
		t.Errorf("%v has number %d", s.name, number)
	}
	// The port is free again when no program has sockets of it, and the next one to want it has it.
	if err := devices[0].Close(); err != nil {
		t.Error(err)
	}
	again := holdAt(t, "127.0.0.1")
	again.Close()
	if _, _, err := Keep(path, "no such interface"); !errors.Is(err, ErrRefused) {
		t.Errorf("an interface that is not there: %v", err)
	}
	select {
	case <-x.Empty():
		t.Error("empty, with an interface")
	default:
	}
	if err := Release(path, "two"); err != nil {
		t.Fatal(err)
	}
	<-x.Empty()
	if _, _, err := Keep(path, "lo"); err == nil || !strings.Contains(err.Error(), ErrClosed.Error()) {
		t.Errorf("after the last was released: %v", err)
	}
}
