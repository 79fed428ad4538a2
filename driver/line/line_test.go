package line

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"softib/internal/mmsg"
	"softib/node/tunnel"
	"softib/proto/ib"
	"softib/proto/wire"
)

// side is one end of lines in a test, with the time that it believes in.
type side struct {
	*Set
	at   netip.AddrPort
	dead []uint32
}

func newSide(t *testing.T) *side {
	t.Helper()
	fd, err := mmsg.Open(false)
	if err != nil {
		t.Fatal(err)
	}
	ip := netip.MustParseAddr("127.0.0.1")
	if err := unix.Bind(fd, &unix.SockaddrInet6{Addr: ip.As16()}); err != nil {
		t.Fatal(err)
	}
	self, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	s := &side{at: netip.AddrPortFrom(ip, uint16(self.(*unix.SockaddrInet6).Port))}
	s.Set = New(fd, func(id uint32) { s.dead = append(s.dead, id) })
	t.Cleanup(s.Close)
	return s
}

var began = time.Now()

func now() ib.Time { return ib.Time(time.Since(began)) * ib.Nanosecond }

// pair joins two sides by a line with a number, on which the second admits what admit says.
func pair(t *testing.T, a, b *side, id uint32, admit func(*wire.Packet) bool) (*Line, *Line) {
	t.Helper()
	c := Config{ID: id, Peer: b.at, MTU: 1452, SendIndex: 2 * id, RecvIndex: 2*id + 1,
		SendSecret: [tunnel.SecretBytes]byte{1, byte(id)}, RecvSecret: [tunnel.SecretBytes]byte{2, byte(id)}}
	x, err := a.Add(now(), c)
	if err != nil {
		t.Fatal(err)
	}
	c.Peer, c.Port, c.Admits = a.at, 1, admit
	c.SendIndex, c.RecvIndex = c.RecvIndex, c.SendIndex
	c.SendSecret, c.RecvSecret = c.RecvSecret, c.SendSecret
	y, err := b.Add(now(), c)
	if err != nil {
		t.Fatal(err)
	}
	return x, y
}

// turn does what an endpoint does again and again.
func (s *side) turn() {
	s.Receive(now())
	if now() >= s.NextDeadline() {
		s.HandleTimer(now())
	}
	s.Flush(now())
}

func packet(n int, slid ib.LID, size int) *wire.Packet {
	p := &wire.Packet{LRH: wire.LRH{LNH: wire.LNHLocal, SLID: slid, DLID: 7}, Payload: make([]byte, size)}
	p.BTH.Opcode, p.BTH.PSN = wire.MakeOpcode(wire.RC, wire.OpSendOnly), ib.PSN(n)
	for i := range p.Payload {
		p.Payload[i] = byte(n + i)
	}
	p.Seal()
	return p
}

// TestLines: packets of two lines come whole, in order, each once, while every tenth datagram is lost, and more of them
// than either side keeps; what a line does not admit does not come.
func TestLines(t *testing.T) {
	a, b := newSide(t), newSide(t)
	mine := func(p *wire.Packet) bool { return p.LRH.SLID == 3 }
	var out [2]*Line
	out[0], _ = pair(t, a, b, 1, mine)
	out[1], _ = pair(t, a, b, 2, mine)
	const each = 3000
	var sent, got [2]int
	var rx wire.Packet
	waits := 0
	for end := time.Now().Add(time.Minute); got[0]+got[1] < 2*each; {
		if time.Now().After(end) {
			t.Fatalf("%v of %v have come", got, sent)
		}
		for i, l := range out {
			for ; sent[i] < each && l.Room(); sent[i]++ {
				if sent[i]%100 == 0 {
					l.Put(now(), packet(sent[i], 4, 8)) // of somebody else
				}
				p := packet(sent[i], 3, sent[i]%4096)
				p.BTH.DestQP = ib.QPN(i)
				l.Put(now(), p)
			}
			if sent[i] < each {
				waits++
			}
		}
		a.turn()
		lose(b)
		b.turn()
		for port, ok := b.Next(&rx); ok; port, ok = b.Next(&rx) {
			i := rx.BTH.DestQP
			want := packet(got[i], 3, got[i]%4096)
			if port != 1 || rx.BTH.PSN != want.BTH.PSN || !bytes.Equal(rx.Payload, want.Payload) {
				t.Fatalf("line %d: packet %d of %d bytes has come to port %d, want %d", i, rx.BTH.PSN, len(rx.Payload),
					port, got[i])
			}
			got[i]++
		}
		b.turn()
	}
	if st := b.Stats(); st.Refused != 2*each/100 || st.Packets != 2*each || waits == 0 {
		t.Errorf("%+v, and %d waits for room", st, waits)
	}
}

// lose takes a datagram away now and then.
func lose(s *side) {
	if lost++; lost%10 == 0 {
		var b [1 << 16]byte
		_, _, _ = unix.Recvfrom(s.FD(), b[:], unix.MSG_DONTWAIT)
	}
}

var lost int

// TestForged: what comes from somebody who does not have the keys, or again, or cut, is no packet and does no harm.
func TestForged(t *testing.T) {
	a, b, thief := newSide(t), newSide(t), newSide(t)
	l, _ := pair(t, a, b, 1, func(*wire.Packet) bool { return true })
	fd := thief.FD()
	to := &unix.SockaddrInet6{Addr: b.at.Addr().As16(), Port: int(b.at.Port())}
	// A datagram as it goes over the network: the thief sees it.
	tap, _ := pair(t, a, thief, 9, nil)
	_ = tap
	l.Put(now(), packet(1, 3, 64))
	buf := make([]byte, 1452)
	n, ok := l.s.PollDatagram(now(), buf)
	if !ok {
		t.Fatal("nothing is sent")
	}
	whole := bytes.Clone(buf[:n])
	for i := range whole {
		flipped := bytes.Clone(whole)
		flipped[i] ^= 1
		_ = unix.Sendto(fd, flipped, 0, to)
		_ = unix.Sendto(fd, whole[:i], 0, to)
	}
	stranger := bytes.Clone(whole)
	binary.BigEndian.PutUint32(stranger, 77)
	_ = unix.Sendto(fd, stranger, 0, to)
	var rx wire.Packet
	settle := func() (n int) {
		for range 2*len(whole) + 8 {
			b.Receive(now())
			for _, ok := b.Next(&rx); ok; _, ok = b.Next(&rx) {
				n++
			}
		}
		return n
	}
	if n := settle(); n != 0 || b.Stats().Strays == 0 {
		t.Fatalf("%d forged packets were taken, %+v", n, b.Stats())
	}
	_ = unix.Sendto(fd, whole, 0, to)
	_ = unix.Sendto(fd, whole, 0, to)
	if n := settle(); n != 1 {
		t.Errorf("a packet and its copy are %d", n)
	}
	if len(b.dead) != 0 {
		t.Errorf("a line was given up because of a stranger: %v", b.dead)
	}
}

// TestNothingPasses: a line on which nothing gets through is reported, once, and one that has carried something is not.
func TestNothingPasses(t *testing.T) {
	a, b := newSide(t), newSide(t)
	good, _ := pair(t, a, b, 1, func(*wire.Packet) bool { return true })
	wall := newSide(t) // which never looks
	bad, _ := pair(t, a, wall, 2, nil)
	good.Put(now(), packet(1, 3, 8))
	bad.Put(now(), packet(1, 3, 8))
	step := func(at ib.Time) {
		if at >= a.NextDeadline() {
			a.HandleTimer(at)
		}
		a.Flush(at)
		b.Receive(at)
		if at >= b.NextDeadline() {
			b.HandleTimer(at)
		}
		b.Flush(at)
		a.Receive(at)
	}
	begin := now()
	for at := begin; at < begin+30*ib.Second; at += 5 * ib.Millisecond {
		step(at)
	}
	if len(a.dead) != 1 || a.dead[0] != 2 {
		t.Errorf("reported: %v, want line 2 once", a.dead)
	}
	a.End(begin, good)
	a.End(begin, bad)
	a.HandleTimer(begin + 30*ib.Second)
	if len(a.lines) != 0 || len(a.by) != 0 {
		t.Errorf("%d lines are left that have ended", len(a.lines))
	}
}
