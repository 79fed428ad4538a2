package roce

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"softib/proto/ib"
	"softib/proto/wire"
	"softib/verbs"
)

// side is a device with what a test needs of it.
type side struct {
	testing.TB
	dev *Device
	ctx *verbs.Context
	pd  *verbs.PD
	mr  *verbs.MR
	cq  *verbs.CQ
	qp  *verbs.QP
}

const memory = 1 << 20

// at is the configuration of an address of the loopback interface.
func at(addr string) Config {
	return Config{Name: "test", Addrs: []netip.Addr{netip.MustParseAddr(addr)}, MTU: 1500, Index: 1}
}

// holdAt takes the port of an address.
func holdAt(t testing.TB, addr string) *Server {
	t.Helper()
	s, err := Hold(at(addr))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// open opens a device of a server.
func (s *Server) open(t testing.TB) *Device {
	t.Helper()
	d, err := s.Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

// open opens a device at an address of the loopback interface.
func open(t testing.TB, addr string) *Device {
	t.Helper()
	return holdAt(t, addr).open(t)
}

// newSide makes a queue pair on a device.
func newSide(t testing.TB, d *Device, typ verbs.QPType) *side {
	t.Helper()
	s := &side{TB: t, dev: d, ctx: verbs.Open(d)}
	var err error
	s.pd, err = s.ctx.AllocPD()
	s.check(err)
	s.mr, err = s.pd.RegMR(make([]byte, memory), verbs.AccessLocalWrite|verbs.AccessRemoteWrite|verbs.AccessRemoteRead|
		verbs.AccessRemoteAtomic)
	s.check(err)
	s.cq, err = s.ctx.CreateCQ(64)
	s.check(err)
	s.qp, err = s.pd.CreateQP(verbs.QPInit{Type: typ, SendCQ: s.cq, RecvCQ: s.cq, Caps: verbs.DefaultCaps})
	s.check(err)
	return s
}

func (s *side) check(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

func (s *side) info() verbs.Info {
	s.Helper()
	i, err := s.qp.Info(1, 100)
	s.check(err)
	return i
}

// pair is two sides whose queue pairs are connected.
func pair(t testing.TB, from, to string, typ verbs.QPType) (a, b *side) {
	t.Helper()
	d := open(t, from)
	a = newSide(t, d, typ)
	if to != from {
		d = open(t, to)
	}
	b = newSide(t, d, typ)
	connect(a, b)
	return a, b
}

// connect joins two queue pairs.
func connect(a, b *side) {
	a.Helper()
	a.check(a.qp.Connect(a.info(), b.info(), verbs.DefaultConnect))
	b.check(b.qp.Connect(b.info(), a.info(), verbs.DefaultConnect))
}

// next waits for a completion.
func (s *side) next() verbs.WC {
	s.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var wc [1]verbs.WC
	if _, err := s.cq.Wait(ctx, wc[:]); err != nil {
		s.Fatal(err)
	}
	s.check(wc[0].Err())
	return wc[0]
}

// see makes what a peer has done to this side's memory, and what was written to it here, come in one order with what
// the other does: it went by a network, of which the race detector does not know, and the device's lock it does.
func (s *side) see() { _, _ = s.ctx.QueryPort(1) }

func (s *side) send(wr verbs.SendWR) {
	s.Helper()
	wr.Flags |= verbs.SendSignaled
	s.check(s.qp.PostSend(&wr))
}

// write writes n bytes to another side, and looks what has come.
func (s *side) write(to *side, n int) {
	s.Helper()
	fill(s.mr.Bytes()[:n], byte(n))
	to.see()
	s.send(verbs.SendWR{Opcode: verbs.WRRDMAWrite, SGList: s.mr.SGEs(0, n), RemoteAddr: to.mr.Addr(),
		RKey: to.mr.RKey()})
	s.next()
	to.see()
	if !bytes.Equal(s.mr.Bytes()[:n], to.mr.Bytes()[:n]) {
		s.Fatalf("WRITE of %d bytes: other bytes have come", n)
	}
}

func fill(b []byte, seed byte) {
	for i := range b {
		b[i] = byte(i*31) + byte(i>>8) + seed
	}
}

// Every operation of a reliable connection, over both IPs, from one packet to a thousand. The loopback interface has
// one address of IPv6: there the two ends are on one device, and talk over the network all the same.
func TestRC(t *testing.T) {
	for _, addrs := range [][2]string{{"127.0.0.1", "127.0.0.2"}, {"::1", "::1"}} {
		t.Run(addrs[0], func(t *testing.T) {
			a, b := pair(t, addrs[0], addrs[1], verbs.RC)
			for _, n := range []int{1, 1024, 1025, 65536, memory} {
				a.write(b, n)
				clear(a.mr.Bytes())
				b.see()
				a.send(verbs.SendWR{Opcode: verbs.WRRDMARead, SGList: a.mr.SGEs(0, n), RemoteAddr: b.mr.Addr(),
					RKey: b.mr.RKey()})
				a.next()
				if !bytes.Equal(a.mr.Bytes()[:n], b.mr.Bytes()[:n]) {
					t.Fatalf("READ of %d bytes: other bytes have come", n)
				}
				b.see()
				clear(b.mr.Bytes())
				b.check(b.qp.PostRecv(&verbs.RecvWR{WRID: 9, SGList: b.mr.SGEs(0, n)}))
				a.send(verbs.SendWR{Opcode: verbs.WRSendImm, SGList: a.mr.SGEs(0, n), Imm: 77})
				if wc := b.next(); wc.WRID != 9 || wc.ByteLen != uint32(n) || wc.ImmData != 77 {
					t.Fatalf("SEND of %d bytes: %+v", n, wc)
				}
				a.next()
				if !bytes.Equal(a.mr.Bytes()[:n], b.mr.Bytes()[:n]) {
					t.Fatalf("SEND of %d bytes: other bytes have come", n)
				}
			}
			b.see()
			binary.NativeEndian.PutUint64(b.mr.Bytes(), 41)
			b.see()
			a.send(verbs.SendWR{Opcode: verbs.WRAtomicFetchAdd, SGList: a.mr.SGEs(8, 8), RemoteAddr: b.mr.Addr(),
				RKey: b.mr.RKey(), CompareAdd: 1})
			a.next()
			b.see()
			old, now := binary.NativeEndian.Uint64(a.mr.Bytes()[8:]), binary.NativeEndian.Uint64(b.mr.Bytes())
			if old != 41 || now != 42 {
				t.Errorf("fetch and add: %d was there and is %d", old, now)
			}
			if n := a.dev.Stats().Malformed.Load() + b.dev.Stats().Malformed.Load(); n > 0 {
				t.Errorf("%d datagrams were malformed", n)
			}
			p, err := a.ctx.QueryPort(1)
			if err != nil || !p.Ethernet || p.LID != 0 || p.MTU != ib.MTU1024 {
				t.Errorf("%+v, %v", p, err)
			}
		})
	}
}

// Datagrams that follow each other to one address go as one message as long as they have one length, or the last is
// shorter, and the kernel takes it; each knows its place.
func TestCut(t *testing.T) {
	s := &sender{cuts: true, from: &address{}}
	other := ib.GID{1}
	for _, c := range []struct {
		name    string
		to      []ib.GID
		lengths []int
		want    []int // datagrams of each message
		blocks  []uint16
	}{
		{"alike", make([]ib.GID, 5), []int{100, 100, 100, 100, 100}, []int{5}, nil},
		{"a short one is the last", make([]ib.GID, 5), []int{100, 100, 40, 40, 40}, []int{3, 2}, nil},
		{"a longer one begins", make([]ib.GID, 3), []int{20, 100, 100}, []int{1, 2}, nil},
		{"two addresses", []ib.GID{{}, other, other, {}}, []int{100, 100, 100, 100}, []int{1, 2, 1}, nil},
		{"two processes", make([]ib.GID, 4), []int{100, 100, 100, 100}, []int{1, 2, 1}, []uint16{1, 65, 65, 1}},
		{"many", make([]ib.GID, sendMax), slices.Repeat([]int{100}, sendMax), []int{sendMax}, nil},
		{"long", make([]ib.GID, 20), slices.Repeat([]int{4160}, 20), []int{14, 6}, nil},
	} {
		o, place := new(outgoing), 0
		var got []int
		for i, n := range c.lengths {
			f := flow{from: s, to: c.to[i]}
			if c.blocks != nil {
				f.block = c.blocks[i]
			}
			id := o.place(f, n)
			o.add(f, o.data[o.n][:n], id > 0)
			if o.count > len(got) {
				got, place = append(got, 0), 0
			}
			if int(id) != place {
				t.Errorf("%s: datagram %d has identification %d, want %d", c.name, i, id, place)
			}
			got[len(got)-1]++
			place++
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: messages of %v datagrams, want %v", c.name, got, c.want)
		}
	}
}

// Datagrams come with the sender's IPv4 header, and with the traffic class that they were sent with.
func TestUD(t *testing.T) {
	const qkey = 0x1234
	a, b := newSide(t, open(t, "127.0.0.1"), verbs.UD), newSide(t, open(t, "127.0.0.2"), verbs.UD)
	a.check(a.qp.Ready(1, 0, qkey))
	b.check(b.qp.Ready(1, 0, qkey))
	ah, err := a.pd.CreateAH(verbs.AHAttr{IsGlobal: true, DGID: b.info().GID, HopLimit: 64, TClass: 0x68, Port: 1})
	a.check(err)
	b.check(b.qp.PostRecv(&verbs.RecvWR{SGList: b.mr.SGEs(0, 2048)}))
	fill(a.mr.Bytes()[:1000], 1)
	a.send(verbs.SendWR{Opcode: verbs.WRSend, SGList: a.mr.SGEs(0, 1000), AH: ah, RemoteQPN: b.qp.Num(),
		RemoteQKey: qkey})
	a.next()
	wc := b.next()
	got := b.mr.Bytes()
	if wc.ByteLen != 1040 || wc.SLID != 0 || wc.SL != 10 ||
		wc.SrcQP != a.qp.Num() || !bytes.Equal(got[40:1040], a.mr.Bytes()[:1000]) {
		t.Errorf("%+v", wc)
	}
	if got[20] != 0x45 || got[21] != 0x68 || !bytes.Equal(got[32:40], []byte{127, 0, 0, 1, 127, 0, 0, 2}) {
		t.Errorf("in front of it is %x", got[:40])
	}
	// A way without a GID leads nowhere on Ethernet.
	if _, err := a.pd.CreateAH(verbs.AHAttr{DLID: 1, Port: 1}); !errors.Is(err, verbs.ErrInvalid) {
		t.Errorf("an address without a GID: %v", err)
	}
}

// A network that marks what it carries makes the sender of a connection slow down, and nothing is lost by it.
func TestMarks(t *testing.T) {
	a, b := pair(t, "127.0.0.1", "127.0.0.2", verbs.RC)
	told := func() (sent, heard uint64) {
		sent = b.dev.Enter().Stats.CNPsSent
		b.dev.LeaveQuiet()
		heard = a.dev.Enter().Stats.BECNs
		a.dev.LeaveQuiet()
		return sent, heard
	}
	a.write(b, memory)
	if sent, heard := told(); sent+heard > 0 {
		t.Errorf("%d notifications of what was not marked, of which %d were heard", sent, heard)
	}
	a.dev.Enter()
	a.dev.link.marks = 3
	a.dev.LeaveQuiet()
	for range 3 {
		a.write(b, memory)
	}
	sent, heard := told()
	if sent == 0 || heard == 0 || heard > sent {
		t.Errorf("%d notifications, of which %d were heard", sent, heard)
	}
	rate := a.dev.Enter().QP(a.qp.Num()).Rate()
	a.dev.LeaveQuiet()
	if line := int64(10_000_000_000); rate <= 0 || rate >= line {
		t.Errorf("the rate is %d bits a second: want less than %d", rate, line)
	}
}

// What anybody sends to the port is counted and harms nothing.
func TestNoise(t *testing.T) {
	s := holdAt(t, "127.0.0.2")
	a, b := newSide(t, open(t, "127.0.0.1"), verbs.RC), newSide(t, s.open(t), verbs.RC)
	connect(a, b)
	c, err := net.Dial("udp", "127.0.0.2:4791")
	a.check(err)
	defer c.Close()
	for n := range 300 {
		_, err := c.Write(bytes.Repeat([]byte{byte(n)}, n*7))
		a.check(err)
	}
	// A packet that is well made, for the queue pair, by somebody who is not its peer.
	forged := wire.Packet{Payload: []byte("evil"), LRH: wire.LRH{LNH: wire.LNHGlobal}}
	forged.GRH = wire.GRH{SGID: netip.MustParseAddr("127.0.0.9").As16(), DGID: b.info().GID}
	forged.BTH = wire.BTH{Opcode: wire.MakeOpcode(wire.RC, wire.OpWriteOnly), PKey: ib.PKeyDefault, DestQP: b.qp.Num(),
		PSN: 100, AckReq: true}
	forged.RETH = wire.RETH{VA: b.mr.Addr(), RKey: b.mr.RKey(), DMALen: 4}
	forged.Seal()
	stranger, err := net.DialUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 9)},
		&net.UDPAddr{IP: net.IPv4(127, 0, 0, 2), Port: wire.RoCEPort})
	a.check(err)
	defer stranger.Close()
	port := uint16(stranger.LocalAddr().(*net.UDPAddr).Port)
	_, err = stranger.Write(forged.AppendRoCE(nil, port, 0))
	a.check(err)

	fill(a.mr.Bytes()[:4096], 5)
	a.send(verbs.SendWR{Opcode: verbs.WRRDMAWrite, SGList: a.mr.SGEs(0, 4096), RemoteAddr: b.mr.Addr() + 4096,
		RKey: b.mr.RKey()})
	a.next()
	b.see()
	if !bytes.Equal(a.mr.Bytes()[:4096], b.mr.Bytes()[4096:8192]) || !bytes.Equal(b.mr.Bytes()[:4], make([]byte, 4)) {
		t.Error("noise got in, or kept others from getting in")
	}
	// It went to the server or to the device, as its bytes had it.
	until(t, "all noise is counted", func() bool {
		b.see()
		b.cq.Poll(nil)
		return b.dev.Stats().Malformed.Load()+s.Malformed.Load()+s.Unhanded.Load() == 300
	})
}

func TestErrors(t *testing.T) {
	holdAt(t, "127.0.0.1")
	if _, err := Hold(at("127.0.0.1")); !errors.Is(err, ErrSocket) {
		t.Errorf("the address twice: %v", err)
	}
	if _, err := Hold(at("192.0.2.77")); !errors.Is(err, ErrSocket) {
		t.Errorf("an address that is not ours: %v", err)
	}
	narrow := at("127.0.0.2")
	narrow.MTU = 300
	if _, err := Hold(narrow); !errors.Is(err, ErrInterface) {
		t.Errorf("a small MTU: %v", err)
	}
	if _, err := FromInterface("no-such-0"); !errors.Is(err, ErrInterface) {
		t.Errorf("no interface: %v", err)
	}
	c, err := FromInterface("lo")
	if err != nil || len(c.Addrs) == 0 || c.Addrs[0] != netip.MustParseAddr("127.0.0.1") {
		t.Errorf("%+v, %v", c, err)
	}
}

// What is said of a way that is too narrow has the largest path MTU that passes, if there is one.
func TestNarrowText(t *testing.T) {
	to := ib.GID(netip.MustParseAddr("192.0.2.9").As16())
	for mtu, want := range map[int]string{1400: "path MTU of 1024", 1000: "path MTU of 512", 348: "path MTU of 256",
		347: "next: raise the MTU"} {
		if got := narrowText(to, 1500, mtu); !strings.Contains(got, want) || !strings.Contains(got, "to 192.0.2.9: ") {
			t.Errorf("%d: %s\nwant %q", mtu, got, want)
		}
	}
	a := address{Addr: netip.MustParseAddr("127.0.0.1")}
	a.gid = a.As16()
	if n, err := a.pathMTU(netip.MustParseAddr("127.0.0.2").As16()); err != nil || n < 1500 {
		t.Errorf("%d, %v", n, err)
	}
}
