package ipoib

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"

	"softib/proto/ib"
)

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestGroupOf(t *testing.T) {
	for _, c := range []struct {
		ip   string
		want string
	}{
		{"255.255.255.255", "ff12:401b:ffff:0000:0000:0000:ffff:ffff"},
		{"224.0.0.1", "ff12:401b:ffff:0000:0000:0000:0000:0001"},
		{"239.255.1.2", "ff12:401b:ffff:0000:0000:0000:0fff:0102"},
		{"ff02::1:ff12:3456", "ff12:601b:ffff:0000:0000:0001:ff12:3456"},
	} {
		if g := GroupOf(netip.MustParseAddr(c.ip), 0x7FFF, 2); g.String() != c.want || !IsGroup(g) {
			t.Errorf("the group of %s is %v, want %s", c.ip, g, c.want)
		}
	}
	if IsGroup(ib.GID{0xFF, 0x12, 0x40, 0x01}) {
		t.Error("a group of rdma_cm's UDP port space is taken for one of IPoIB")
	}
}

// An ARP request as Linux's ib_ipoib sends it, by the layout of RFC 4391 section 9.2.
func TestARP(t *testing.T) {
	want := unhex(t, "0020 0800 14 04 0001"+
		"80000404 fe80000000000000 0002c90300001234 c6120001"+
		"00000000 0000000000000000 0000000000000000 c6120002")
	p, err := parseARP(want)
	if err != nil {
		t.Fatal(err)
	}
	if p.sender.Flags != TakesRC || p.sender.QPN != 0x404 || p.sender.GID.GUID() != 0x0002c90300001234 ||
		p.senderIP.String() != "198.18.0.1" || p.targetIP.String() != "198.18.0.2" {
		t.Errorf("read as %+v", p)
	}
	if got := p.append(nil); !bytes.Equal(got, want) {
		t.Errorf("written as\n%x, want\n%x", got, want)
	}
	for i := range want {
		if _, err := parseARP(want[:i]); !errors.Is(err, ErrFormat) {
			t.Errorf("%d bytes: %v", i, err)
		}
	}
}

func TestND(t *testing.T) {
	m := ndMessage{typ: ndAdvertisement, solicited: true, override: true, src: netip.MustParseAddr("fe80::1"),
		dst: netip.MustParseAddr("fe80::2"), target: netip.MustParseAddr("fe80::1"),
		link: LinkAddr{QPN: 0x48, GID: ib.MakeGID(ib.DefaultGIDPrefix, 7)}, hasLink: true}
	b := m.append(nil)
	// The option begins behind the 24 bytes of the message: type, three units of 8 bytes, padding, address.
	if want := unhex(t, "02 03 0000 00000048 fe80000000000000 0000000000000007"); !bytes.Equal(b[64:], want) {
		t.Errorf("the option is %x, want %x", b[64:], want)
	}
	got, err := parseND(b)
	if err != nil || got != m {
		t.Errorf("read as %+v, %v; want %+v", got, err, m)
	}
	for i := range b {
		if _, err := parseND(append(bytes.Clone(b[:i]), make([]byte, max(ipv6Size+1-i, 0))...)); err == nil {
			t.Errorf("%d bytes are taken", i)
		}
	}
	for _, at := range []int{7, 42, 65} { // hop limit, checksum, length of the option
		x := bytes.Clone(b)
		x[at] ^= 0xFF
		if _, err := parseND(x); !errors.Is(err, ErrFormat) {
			t.Errorf("with byte %d changed: %v", at, err)
		}
	}
}

// The private data of Linux's struct ipoib_cm_data, and its service.
func TestGreeting(t *testing.T) {
	want := unhex(t, "00000404 0000fff4")
	g, err := ParseGreeting(append(want, 1, 2, 3))
	if err != nil || g != (Greeting{QPN: 0x404, MTU: 65524}) || !bytes.Equal(g.Append(nil), want) {
		t.Errorf("%+v, %v", g, err)
	}
	for i := range want {
		if _, err := ParseGreeting(want[:i]); !errors.Is(err, ErrFormat) {
			t.Errorf("%d bytes: %v", i, err)
		}
	}
	if s := ServiceID(0x404); s != 0x1000000000000404 {
		t.Errorf("service 0x%x", s)
	}
}

func FuzzGreeting(f *testing.F) {
	f.Add(Greeting{QPN: 5, MTU: 65524}.Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		if g, err := ParseGreeting(b); err == nil && !bytes.Equal(g.Append(nil)[1:], b[1:greetingSize]) {
			t.Errorf("%x becomes %+v", b, g)
		}
	})
}

// slowSum is RFC 1071 word by word.
func slowSum(b []byte) uint16 {
	var s uint32
	for i := 0; i < len(b); i += 2 {
		w := uint32(b[i]) << 8
		if i+1 < len(b) {
			w |= uint32(b[i+1])
		}
		s += w
		s = s>>16 + s&0xFFFF
	}
	return uint16(s)
}

func TestSum(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for n := range 400 {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(rng.Uint32()) | byte(rng.IntN(2)*0xFF)
		}
		got, want := fold(sum(0, b)), slowSum(b)
		if got != want && !(got == 0xFFFF && want == 0 || got == 0 && want == 0xFFFF) {
			t.Fatalf("%d bytes: 0x%04x, want 0x%04x", n, got, want)
		}
	}
}

// tcpPacket is a packet as the host hands it over, with n bytes of payload.
func tcpPacket(v6 bool, seq uint32, flags byte, options int, payload []byte) []byte {
	tcp := make([]byte, tcpSize+options)
	binary.BigEndian.PutUint16(tcp, 4711)
	binary.BigEndian.PutUint16(tcp[2:], 5201)
	binary.BigEndian.PutUint32(tcp[4:], seq)
	tcp[12], tcp[13], tcp[15] = byte(len(tcp)/4)<<4, flags, 77
	var b []byte
	if v6 {
		b = appendIPv6(nil, len(tcp)+len(payload), protoTCP, 64, netip.MustParseAddr("fd53::1"),
			netip.MustParseAddr("fd53::2"))
	} else {
		n := ipv4Size + len(tcp) + len(payload)
		b = []byte{0x45, 0, byte(n >> 8), byte(n), 0x12, 0x34, 0x40, 0, 64, protoTCP, 0, 0, 198, 18, 0, 1, 198, 18, 0,
			2}
		setIPv4Checksum(b)
	}
	return append(append(b, tcp...), payload...)
}

// checkTCP says what is wrong with a packet that goes onto the wire.
func checkTCP(b []byte) string {
	ip, all, kind, ok := tcpHeaders(b)
	switch {
	case !ok:
		return "headers"
	case kind == TCPv4 && (fold(sum(0, b[:ipv4Size])) != 0xFFFF || int(binary.BigEndian.Uint16(b[2:])) != len(b)):
		return "header of IPv4"
	case kind == TCPv6 && int(binary.BigEndian.Uint16(b[4:])) != len(b)-ipv6Size:
		return "header of IPv6"
	case fold(sum(pseudo(b, protoTCP, len(b)-ip), b[ip:])) != 0xFFFF:
		return "checksum of TCP"
	case all > len(b):
		return "length"
	}
	return ""
}

// cut is what a packet becomes on the wire.
func cut(t testing.TB, b []byte, o *Offload) (all [][]byte) {
	var s Splitter
	if err := s.Reset(b, o); err != nil {
		t.Fatal(err)
	}
	for {
		head := make([]byte, headerMax)
		n, payload, ok := s.Next(head)
		if !ok {
			return all
		}
		all = append(all, append(head[:n], payload...))
	}
}

// join is a frame as the host sees it, with its checksum completed.
func (f *Frame) join() []byte {
	b := bytes.Clone(f.Head)
	for _, p := range f.Pieces {
		b = append(b, p...)
	}
	return b
}

// What is cut is right on the wire, and put together is what it was.
func TestSplitAndCoalesce(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		for _, size := range []int{1, 536, 1992, 1400} {
			payload := make([]byte, 60000/(1+2000/size/20))
			for i := range payload {
				payload[i] = byte(i * 7)
			}
			kind := TCPv4
			if v6 {
				kind = TCPv6
			}
			b := tcpPacket(v6, 1000, tcpACK|tcpPSH, 12, payload)
			segments := cut(t, b, &Offload{Kind: kind, Size: uint16(size)})
			if want := (len(payload) + size - 1) / size; len(segments) != want {
				t.Fatalf("%d segments, want %d", len(segments), want)
			}
			var c Coalescer
			for i, s := range segments {
				if why := checkTCP(s); why != "" {
					t.Fatalf("segment %d: wrong %s", i, why)
				}
				c.Add(s)
			}
			c.Flush()
			f, ok := c.Poll()
			if !ok {
				t.Fatal("no frame")
			}
			if len(segments) == 1 {
				continue
			}
			got := f.join()
			o := f.Offload
			if o.Kind != kind || int(o.Size) != size || !o.NeedsChecksum {
				t.Errorf("%+v", o)
			}
			o.Kind = Whole
			if err := Complete(got, &o); err != nil {
				t.Fatal(err)
			}
			if why := checkTCP(got); why != "" {
				t.Errorf("put together: wrong %s", why)
			}
			n := len(b) - len(payload)
			if !bytes.Equal(got[n:], payload) || !bytes.Equal(got[n-28:n-16], b[n-28:n-16]) {
				t.Error("put together it is another packet")
			}
			if _, ok := c.Poll(); ok {
				t.Error("there is another frame")
			}
		}
	}
}

// Segments stay in their connection's order, whatever else comes in between.
func TestCoalesceOrder(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	for range 300 {
		var c Coalescer
		type flow struct {
			next uint32
			sent []byte
			got  []byte
			seq  uint32
		}
		flows := make([]flow, 1+rng.IntN(12))
		take := func() {
			for f, ok := c.Poll(); ok; f, ok = c.Poll() {
				b := f.join()
				ip, all, _, ok := tcpHeaders(b)
				if !ok {
					t.Fatal("a frame without headers")
				}
				x := &flows[b[ip+1]]
				if seq := binary.BigEndian.Uint32(b[ip+4:]); seq != x.seq {
					t.Fatalf("sequence number %d, want %d", seq, x.seq)
				}
				x.got = append(x.got, b[all:]...)
				x.seq += uint32(len(b) - all)
			}
		}
		for range 200 {
			i := rng.IntN(len(flows))
			x := &flows[i]
			payload := bytes.Repeat([]byte{byte(rng.Uint32())}, []int{100, 100, 100, 50, 0, 150}[rng.IntN(6)])
			flags := []byte{tcpACK, tcpACK, tcpACK, tcpACK | tcpPSH, tcpACK | tcpFIN}[rng.IntN(5)]
			p := tcpPacket(false, x.next, flags, 0, payload)
			binary.BigEndian.PutUint16(p[ipv4Size:], uint16(i))
			x.next += uint32(len(payload))
			x.sent = append(x.sent, payload...)
			c.Add(p)
			if rng.IntN(20) == 0 {
				c.Flush()
				take()
			}
		}
		c.Flush()
		take()
		for i := range flows {
			if !bytes.Equal(flows[i].sent, flows[i].got) {
				t.Fatalf("connection %d has got something else", i)
			}
		}
	}
}

func FuzzDatagram(f *testing.F) {
	p := arpPacket{op: arpRequestOp, sender: LinkAddr{QPN: 5, GID: ib.MakeGID(1, 2)},
		senderIP: netip.MustParseAddr("198.18.0.9"), targetIP: netip.MustParseAddr("198.18.0.1")}
	f.Add(p.append(AppendHeader(nil, ARP)))
	m := ndMessage{typ: ndSolicitation, src: netip.MustParseAddr("fd53::9"), dst: netip.MustParseAddr("fd53::1"),
		target: netip.MustParseAddr("fd53::1"), link: LinkAddr{QPN: 5, GID: ib.MakeGID(1, 2)}, hasLink: true}
	f.Add(m.append(AppendHeader(nil, IPv6)))
	f.Add(append(AppendHeader(nil, IPv4), tcpPacket(false, 1, tcpACK, 12, []byte("hello"))...))
	f.Fuzz(func(t *testing.T, b []byte) {
		w := newTestWorld(t, 1, 1)
		w.run(ib.Second)
		h := w.hosts[0]
		var c Coalescer
		if p := h.HandleDatagram(w.now, &Datagram{SrcQPN: 5, Payload: b}); p != nil {
			c.Add(p)
			c.Add(p)
			c.Flush()
			for f, ok := c.Poll(); ok; f, ok = c.Poll() {
				if len(f.join()) == 0 {
					t.Error("an empty frame")
				}
			}
		}
		h.turn()
		w.run(10 * ib.Second)
		if _, data, err := ParseHeader(b); err == nil {
			if p, err := parseARP(data); err == nil && !bytes.Equal(p.append(nil)[6:], data[6:arpSize]) {
				t.Error("an ARP packet is not what it was")
			}
		}
	})
}

func FuzzPacket(f *testing.F) {
	f.Add(tcpPacket(false, 1, tcpACK, 12, make([]byte, 300)), uint16(100), uint8(TCPv4), uint16(20), uint16(16))
	f.Add(tcpPacket(true, 1, tcpACK, 0, make([]byte, 300)), uint16(99), uint8(TCPv6), uint16(40), uint16(16))
	f.Fuzz(func(t *testing.T, b []byte, size uint16, kind uint8, start, offset uint16) {
		w := newTestWorld(t, 1, 2)
		w.run(ib.Second)
		o := Offload{NeedsChecksum: true, Kind: SegmentKind(kind), Size: size, ChecksumStart: start,
			ChecksumOffset: offset}
		w.hosts[0].HandlePacket(w.now, b, o)
		var s Splitter
		if s.Reset(b, &o) == nil {
			total, head := 0, make([]byte, headerMax)
			for n, payload, ok := s.Next(head); ok; n, payload, ok = s.Next(head) {
				if n > headerMax || len(payload) == 0 || len(payload) > int(size) {
					t.Fatal("a segment that is none")
				}
				total += len(payload)
			}
			if _, all, _, _ := tcpHeaders(b); total != len(b)-all {
				t.Error("bytes are lost")
			}
		}
		_ = Complete(b, &o)
		complaint(b, 1500)
	})
}

func BenchmarkSum(b *testing.B) {
	data := make([]byte, 65536)
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		sum(0, data)
	}
}
