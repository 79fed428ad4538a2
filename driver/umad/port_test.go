package umad

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"softib/internal/umadtest"
	"softib/node/madrpc"
	"softib/proto/ib"
	"softib/proto/mad"
)

var facts = umadtest.Facts{
	CA: "mlx5_0", Port: 1, GUID: 0x0002_C903_0000_1111, LID: 0x21, State: "4: ACTIVE", Phys: "5: LinkUp",
	Link: "InfiniBand",
	Desc: "node7 HCA-1", CapMask: 0x2651E848,
}

func system(t *testing.T, k *umadtest.Kernel) System {
	t.Helper()
	dir := t.TempDir()
	if err := k.WriteSysfs(dir); err != nil {
		t.Fatal(err)
	}
	return System{Root: dir, OpenDevice: func(path string) (Device, error) {
		if !strings.HasPrefix(path, filepath.Join(dir, "dev/infiniband")) {
			t.Errorf("opens %s", path)
		}
		f, err := k.Open(path)
		if err != nil {
			return nil, err
		}
		return f, nil
	}}
}

func open(t *testing.T, k *umadtest.Kernel) *Port {
	t.Helper()
	p, err := system(t, k).Open(t.Context(), "", 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p
}

func register(t *testing.T, p *Port, r madrpc.Registration) madrpc.AgentID {
	t.Helper()
	id, err := p.Register(r)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func recv(t *testing.T, p *Port) madrpc.Delivery {
	t.Helper()
	d, err := p.Recv(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func dgram(class mad.Class, version uint8, method mad.Method, tid uint64) *[mad.Size]byte {
	var b [mad.Size]byte
	h := mad.Header{BaseVersion: 1, MgmtClass: class, ClassVersion: version, Method: method, TransactionID: tid}
	h.Append(b[:0])
	return &b
}

func tidOf(b []byte) uint64 { return binary.BigEndian.Uint64(b[offTID:]) }

func TestRequestResponse(t *testing.T) {
	for _, old := range []bool{false, true} {
		k := umadtest.New(facts)
		k.Old = old
		want := sample
		if old {
			want.PKeyIndex = 0
		}
		k.Wire = func(env mad.Envelope, b *[mad.Size]byte) {
			if env != want {
				t.Errorf("on the wire: %+v", env)
			}
			b[3] = byte(mad.MethodGetResp)
			b[100] = 0xEE
			k.Inject(env, b)
		}
		p := open(t, k)
		id := register(t, p, madrpc.Registration{Class: mad.ClassPerf, ClassVersion: 1})
		for i := range uint64(3) {
			m := madrpc.Message{Env: sample, Data: dgram(mad.ClassPerf, 1, mad.MethodGet, 0xFFFF_FFFF_0000_0000|i)[:],
				Timeout: ib.Second, Cookie: 40 + i}
			if err := p.Send(id, m); err != nil {
				t.Fatal(err)
			}
			d := recv(t, p)
			env := want
			env.QKey = 0 // the kernel does not say
			if d.Kind != madrpc.Response || d.Agent != id || d.Cookie != 40+i || d.Env != env ||
				len(d.Data) != mad.Size || d.Data[100] != 0xEE {
				t.Errorf("%v, cookie %d, %d bytes, %+v", d.Kind, d.Cookie, len(d.Data), d.Env)
			}
			if tid := tidOf(d.Data); uint32(tid) != uint32(i) || tid>>32 == 0xFFFF_FFFF {
				t.Errorf("TID %#x: want the kernel's upper half", tid)
			}
		}
		if len(p.cookies) != 0 {
			t.Errorf("%d cookies left", len(p.cookies))
		}
	}
}

func TestTimeoutInMilliseconds(t *testing.T) {
	k := umadtest.New(facts)
	sent := 0
	k.Wire = func(mad.Envelope, *[mad.Size]byte) { sent++ }
	p := open(t, k)
	id := register(t, p, madrpc.Registration{})
	m := madrpc.Message{Data: dgram(mad.ClassPerf, 1, mad.MethodGet, 5)[:], Timeout: 99*ib.Millisecond + 1, Retries: 1,
		Cookie: 9}
	if err := p.Send(id, m); err != nil {
		t.Fatal(err)
	}
	if err := p.Send(id, m); !errors.Is(err, madrpc.ErrDuplicate) {
		t.Errorf("the same transaction twice: %v", err)
	}
	k.Advance(100 * ib.Millisecond)
	if sent != 2 {
		t.Errorf("sent %d times after the first timeout", sent)
	}
	k.Advance(100 * ib.Millisecond)
	d := recv(t, p)
	if d.Kind != madrpc.TimedOut || d.Cookie != 9 || len(d.Data) != mad.HeaderSize || uint32(tidOf(d.Data)) != 5 {
		t.Errorf("%v, cookie %d, %d bytes", d.Kind, d.Cookie, len(d.Data))
	}
	if err := p.Send(id, m); err != nil {
		t.Errorf("the transaction after its end: %v", err)
	}
	p.Forget(id, mad.ClassPerf, 5)
	k.Advance(ib.Second)
	k.Advance(ib.Second)
	if d := recv(t, p); d.Kind != madrpc.TimedOut || d.Cookie != 0 {
		t.Errorf("forgotten: %v, cookie %d", d.Kind, d.Cookie)
	}
}

// TestLongMessages: a message longer than the buffer is announced with ENOSPC and read again.
func TestLongMessages(t *testing.T) {
	a, b := umadtest.New(facts), umadtest.New(facts)
	// The wire carries nothing while another datagram is handled, as wires do.
	type flight struct {
		to    *umadtest.Kernel
		dgram [mad.Size]byte
	}
	var air []flight
	a.Wire = func(_ mad.Envelope, d *[mad.Size]byte) { air = append(air, flight{b, *d}) }
	b.Wire = func(_ mad.Envelope, d *[mad.Size]byte) { air = append(air, flight{a, *d}) }
	carry := func() {
		for len(air) > 0 {
			f := air[0]
			air = air[1:]
			f.to.Inject(mad.Envelope{LID: 7, QPN: 1}, &f.dgram)
		}
	}
	client, server := open(t, a), open(t, b)
	c := register(t, client, madrpc.Registration{Class: mad.ClassSA, ClassVersion: 2, RMPP: true})
	s := register(t, server, madrpc.Registration{Class: mad.ClassSA, ClassVersion: 2, RMPP: true,
		Methods: madrpc.MethodSet(mad.MethodGetTable)})
	for _, n := range []int{10, 200, 300, 100_000, 300} {
		if err := client.Send(c, madrpc.Message{Env: mad.Envelope{LID: 7, QPN: 1},
			Data: dgram(mad.ClassSA, 2, mad.MethodGetTable, uint64(n))[:], Timeout: ib.Second,
			Cookie: uint64(n)}); err != nil {
			t.Fatal(err)
		}
		carry()
		d := recv(t, server)
		if d.Kind != madrpc.Unsolicited || d.Agent != s || d.Cookie != 0 {
			t.Fatalf("%v", d.Kind)
		}
		table := make([]byte, 56+n)
		copy(table, d.Data[:24])
		table[3] = byte(mad.MethodGetTableResp)
		table[mad.RMPPOff+2] = mad.RMPPActive
		if n > 200 {
			table[mad.RMPPOff+2] = 0 // long enough to be so anyway
		}
		for i := range n {
			table[56+i] = byte(i * 7)
		}
		if err := server.Send(s, madrpc.Message{Env: d.Env.Reply(), Data: table, Timeout: ib.Second}); err != nil {
			t.Fatal(err)
		}
		carry()
		d = recv(t, client)
		if d.Kind != madrpc.Response || d.Cookie != uint64(n) || len(d.Data) != 56+n ||
			!bytes.Equal(d.Data[56:], table[56:]) {
			t.Errorf("%v of %d bytes, want %d", d.Kind, len(d.Data), 56+n)
		}
	}
}

func TestRegisterErrors(t *testing.T) {
	k := umadtest.New(facts)
	p, q := open(t, k), open(t, k)
	r := madrpc.Registration{Class: mad.ClassSMLID, ClassVersion: 1, Methods: madrpc.MethodSet(mad.MethodTrap)}
	id := register(t, p, r)
	if _, err := q.Register(r); !errors.Is(err, madrpc.ErrInUse) || !errors.Is(err, unix.EINVAL) {
		t.Errorf("taken: %v", err)
	}
	if _, err := p.Register(madrpc.Registration{Class: 0x60}); !errors.Is(err, madrpc.ErrRegistration) {
		t.Errorf("reserved class: %v", err)
	}
	if err := p.Unregister(id); err != nil {
		t.Error(err)
	}
	if err := p.Unregister(id); !errors.Is(err, unix.EINVAL) {
		t.Errorf("unregistered twice: %v", err)
	}
	if err := p.Send(id, madrpc.Message{Data: make([]byte, mad.Size)}); !errors.Is(err, madrpc.ErrAgent) {
		t.Errorf("send by one that has gone: %v", err)
	}
	id = register(t, q, r)
	if !k.Inject(mad.Envelope{LID: 3}, dgram(mad.ClassSMLID, 1, mad.MethodTrap, 1)) {
		t.Error("nobody wants a trap")
	}
	if d := recv(t, q); d.Kind != madrpc.Unsolicited || d.Agent != id || d.Env.LID != 3 {
		t.Errorf("%v", d.Kind)
	}
	for range 32 {
		register(t, p, madrpc.Registration{Class: mad.ClassPerf, ClassVersion: 1})
	}
	if _, err := p.Register(madrpc.Registration{}); !errors.Is(err, unix.ENOMEM) {
		t.Errorf("the 33rd: %v", err)
	}
	for _, n := range []int{0, 23, 257} {
		if err := q.Send(id, madrpc.Message{Data: make([]byte, n)}); !errors.Is(err, madrpc.ErrLength) {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
}

func TestRecvEnds(t *testing.T) {
	k := umadtest.New(facts)
	p := open(t, k)
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error)
	go func() { _, err := p.Recv(ctx); failed <- err }()
	cancel()
	if err := <-failed; !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: %v", err)
	}
	if _, err := p.Recv(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled before: %v", err)
	}
	// Another Recv waits as if nothing had been.
	register(t, p, madrpc.Registration{Class: mad.ClassPerf, ClassVersion: 1, Methods: madrpc.MethodSet(mad.MethodGet)})
	k.Inject(mad.Envelope{}, dgram(mad.ClassPerf, 1, mad.MethodGet, 1))
	if d := recv(t, p); d.Kind != madrpc.Unsolicited {
		t.Error(d.Kind)
	}
	go func() { _, err := p.Recv(t.Context()); failed <- err }()
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-failed; !errors.Is(err, os.ErrClosed) {
		t.Errorf("closed: %v", err)
	}
}

func TestClaimSM(t *testing.T) {
	k := umadtest.New(facts)
	p, q := open(t, k), open(t, k)
	c, err := p.ClaimSM()
	if err != nil || !k.IsSM() {
		t.Fatal(err)
	}
	if _, err := q.ClaimSM(); !errors.Is(err, unix.EAGAIN) {
		t.Errorf("claimed twice: %v", err)
	}
	if err := c.Close(); err != nil || k.IsSM() {
		t.Errorf("given up: %v", err)
	}
	c, err = q.ClaimSM()
	if err != nil {
		t.Fatal(err)
	}
	_ = c.Close()
}

func TestLocalPort(t *testing.T) {
	k := umadtest.New(facts)
	p := open(t, k)
	l, err := p.LocalPort()
	if err != nil {
		t.Fatal(err)
	}
	if l.CA != "mlx5_0" || l.Port != 1 || l.Device != "umad0" || l.NodeType != ib.NodeCA ||
		l.NodeGUID != facts.GUID-1 || l.PortGUID != facts.GUID ||
		l.SystemGUID != facts.GUID-1 || l.NodeDesc != facts.Desc || l.State != ib.PortActive ||
		l.PhysState != ib.PhysLinkUp || l.LID != 0x21 || l.LMC != 0 ||
		l.SMLID != 1 || l.SMSL != 0 || l.CapMask != facts.CapMask || l.LinkLayer != "InfiniBand" ||
		l.Rate != "100 Gb/sec (4X EDR)" ||
		len(l.GIDs) != 1 || l.GIDs[0].Prefix() != ib.DefaultGIDPrefix || len(l.PKeys) != 2 || l.PKeys[1] != 0x8001 {
		t.Errorf("%+v", l)
	}
	// It is read anew each time.
	path := filepath.Join(p.sys.Root, "sys/class/infiniband/mlx5_0/ports/1/lid")
	if err := os.WriteFile(path, []byte("0x22\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if l, err := p.LocalPort(); err != nil || l.LID != 0x22 {
		t.Errorf("LID %d, %v", l.LID, err)
	}
	for _, bad := range []string{"", "x", "0x10000"} {
		if err := os.WriteFile(path, []byte(bad), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := p.LocalPort(); err == nil || !strings.Contains(err.Error(), "lid") {
			t.Errorf("LID %q: %v", bad, err)
		}
	}
}

func TestFind(t *testing.T) {
	// Four ports: one over Ethernet, one down, one that is up, and an active one behind device 10, which sorts before 2
	// as a word.
	dir := t.TempDir()
	for dev, f := range map[string]umadtest.Facts{
		"umad0":  {CA: "mlx5_0", Port: 1, GUID: 1, State: "4: ACTIVE", Phys: "5: LinkUp", Link: "Ethernet"},
		"umad1":  {CA: "mlx5_1", Port: 1, GUID: 2, State: "1: DOWN", Phys: "3: Disabled", Link: "InfiniBand"},
		"umad2":  {CA: "mlx5_1", Port: 2, GUID: 3, State: "2: INIT", Phys: "5: LinkUp", Link: "InfiniBand"},
		"umad10": {CA: "mlx5_2", Port: 1, GUID: 4, LID: 9, State: "4: ACTIVE", Phys: "5: LinkUp", Link: "InfiniBand"},
	} { // tidy: order-free
		one := t.TempDir()
		if err := umadtest.New(f).WriteSysfs(one); err != nil {
			t.Fatal(err)
		}
		if dev != "umad0" {
			if err := os.Rename(filepath.Join(one, "sys/class/infiniband_mad/umad0"),
				filepath.Join(one, "sys/class/infiniband_mad", dev)); err != nil {
				t.Fatal(err)
			}
		}
		// Both trees of ports of one adapter belong together.
		err := filepath.WalkDir(one, func(path string, d fs.DirEntry, err error) error {
			rel, _ := filepath.Rel(one, path)
			if err != nil || d.IsDir() {
				return errors.Join(err, os.MkdirAll(filepath.Join(dir, rel), 0o755))
			}
			b, err := os.ReadFile(path)
			return errors.Join(err, os.WriteFile(filepath.Join(dir, rel), b, 0o600))
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	s := System{Root: dir}
	ports, err := s.Ports()
	if err != nil || len(ports) != 4 || ports[3].Device != "umad10" {
		t.Fatalf("%d ports, %v", len(ports), err)
	}
	for _, c := range []struct {
		ca   string
		port int
		want string
	}{
		{"", 0, "umad10"}, {"", 2, "umad2"}, {"mlx5_1", 0, "umad2"}, {"mlx5_1", 1, "umad1"}, {"mlx5_2", 1, "umad10"},
		{"mlx5_0", 0, ""}, {"mlx5_2", 2, ""}, {"mlx4_0", 1, ""},
	} {
		l, err := s.Find(c.ca, c.port)
		if l.Device != c.want || (err == nil) != (c.want != "") || err != nil &&
			(!errors.Is(err, ErrNoPort) || !strings.Contains(err.Error(), "mlx5_1/2")) {
			t.Errorf("%s port %d: %q, want %q (%v)", c.ca, c.port, l.Device, c.want, err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "sys/class/infiniband_mad/abi_version"), []byte("6\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Find("", 0); err == nil || !strings.Contains(err.Error(), "version is 6") {
		t.Errorf("another ABI: %v", err)
	}
	if _, err := (System{Root: t.TempDir()}).Open(t.Context(), "", 0); !errors.Is(err, ErrNoPort) {
		t.Errorf("no devices at all: %v", err)
	}
}

// TestRealFiles opens what is there with the machine's own system calls: no device, and one that is none.
func TestRealFiles(t *testing.T) {
	s := system(t, umadtest.New(facts))
	s.OpenDevice = nil
	if _, err := s.Open(t.Context(), "", 0); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no device: %v", err)
	}
	path := filepath.Join(s.Root, "dev/infiniband/umad0")
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Skipf("no fifo: %v", err)
	}
	p, err := s.Open(t.Context(), "", 0) // a fifo knows no such command: as a very old kernel
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = p.Close() }()
	if p.hdr != hdrSizeOld {
		t.Errorf("header of %d bytes", p.hdr)
	}
	if _, err := p.Register(madrpc.Registration{}); !errors.Is(err, unix.ENOTTY) {
		t.Errorf("registered with a fifo: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error)
	go func() { _, err := p.Recv(ctx); failed <- err }()
	cancel()
	if err := <-failed; !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: %v", err)
	}
	// What is written can be read: a fifo, opened both ways, gives our own bytes back.
	p.agents[3] = madrpc.Registration{}
	if err := p.Send(3, madrpc.Message{Env: mad.Envelope{LID: 5},
		Data: dgram(mad.ClassPerf, 1, mad.MethodGet, 1)[:]}); err != nil {
		t.Fatal(err)
	}
	if d := recv(t, p); d.Agent != 3 || d.Env.LID != 5 || d.Kind != madrpc.Unsolicited || len(d.Data) != mad.Size {
		t.Errorf("%v to %d, %d bytes", d.Kind, d.Agent, len(d.Data))
	}
}
