package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"softib/proto/ib"
)

// parseRoCE reads a datagram that has no room in front.
func parseRoCE(p *Packet, b []byte, s RoCESource) error {
	return p.ParseRoCE(append(make([]byte, RoCEBefore), b...), RoCEBefore, &s)
}

// Packets of others: a CNP that a ConnectX-4 Lx sent, and a UC SEND whose ICRC scapy has worked out (scapy's
// test/contrib/roce.uts has both). From IPv4's header on.
var theirs = map[string]string{
	"CNP of a ConnectX-4 Lx": "45c2003c718c40004011" + "9161" + "0a0011010a001201" + "000012b700280000" +
		"8100ffff400001180000000000000000000000000000000000000000" + "82fd002a",
	"UC SEND of scapy": "4501004004784000" + "4011" + "b4d5" + "c0a80007c0a80007" + "c00012b7002caca2" +
		"2460ffff000000d300cf1710" + "4630818be28935d90e9a95505401be885e500000" + "78f353f3",
}

// roceSource is what IPv4's and UDP's headers say of a datagram.
func roceSource(t testing.TB, b []byte) (s RoCESource, id uint16, datagram []byte) {
	t.Helper()
	if b[0] != 0x45 || b[9] != ipUDP || binary.BigEndian.Uint16(b[22:]) != RoCEPort {
		t.Fatalf("%x is no RoCEv2 over IPv4", b)
	}
	s = RoCESource{From: mapped(b[12:16]), To: mapped(b[16:20]), Port: binary.BigEndian.Uint16(b[20:]), TClass: b[1],
		HopLimit: b[8]}
	return s, binary.BigEndian.Uint16(b[4:]), b[ipv4Size+udpSize:]
}

func mapped(addr []byte) (g ib.GID) {
	copy(g[:], ipv4Prefix[:])
	copy(g[12:], addr)
	return g
}

// Packets that adapters and other programs have made are read, and written again as they were.
func TestRoCETheirs(t *testing.T) {
	for name, text := range theirs {
		s, id, b := roceSource(t, unhex(t, text))
		var p Packet
		if err := parseRoCE(&p, b, s); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if p.GRH.TClass != s.TClass || p.GRH.SGID != s.From || p.GRH.DGID != s.To || p.LRH.LNH != LNHGlobal {
			t.Errorf("%s: %+v", name, p.GRH)
		}
		if got := p.AppendRoCE(nil, s.Port, id); !bytes.Equal(got, b) {
			t.Errorf("%s:\n%x, want\n%x", name, got, b)
		}
		// Every identification is possible.
		for range 100 {
			if err := parseRoCE(&p, p.AppendRoCE(nil, s.Port, uint16(rand.Uint32())), s); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

// A receiver finds IPv4's header as it was on the wire, but for the identification, which nobody knows here.
func TestRoCEArea(t *testing.T) {
	b := unhex(t, theirs["CNP of a ConnectX-4 Lx"])
	s, _, d := roceSource(t, b)
	var p Packet
	if err := parseRoCE(&p, d, s); err != nil {
		t.Fatal(err)
	}
	area := p.GRH.Area()
	want := bytes.Clone(b[:ipv4Size])
	sum := uint32(want[10])<<8 + uint32(want[11]) + 0x718c
	sum = sum>>16 + sum&0xFFFF
	want[4], want[5], want[10], want[11] = 0, 0, byte(sum>>8), byte(sum)
	if !bytes.Equal(area[20:], want) || [20]byte(area[:20]) != [20]byte{} {
		t.Errorf("%x, want zeros and %x", area, want)
	}
	p.GRH.SGID = ib.GID{0: 0xFD}
	if area = p.GRH.Area(); !bytes.Equal(area[:], p.GRH.Append(nil)) {
		t.Errorf("IPv6: %x", area)
	}
}

// roceSample is a packet with every field of its opcode set, between addresses of IPv4 or IPv6.
func roceSample(op Opcode, payload int, v4 bool) (*Packet, RoCESource) {
	p := sample(LNHGlobal, op, payload)
	p.LRH = LRH{LNH: LNHGlobal}
	s := RoCESource{From: ib.GID{0: 0xFD, 15: 1}, To: ib.GID{0: 0xFD, 15: 2}, Port: 0xC123, TClass: 0x6A, HopLimit: 63}
	if v4 {
		s.From, s.To = mapped([]byte{192, 0, 2, 1}), mapped([]byte{192, 0, 2, 2})
	}
	p.GRH = GRH{IPVer: 6, TClass: s.TClass, NxtHdr: GRHNextIBA, HopLimit: s.HopLimit, SGID: s.From, DGID: s.To}
	p.Seal()
	return p, s
}

// What is written is read as it was, for all opcodes, lengths and identifications.
func TestRoCERoundTrip(t *testing.T) {
	for o := range 256 {
		op := Opcode(o)
		if !op.Info().Valid() {
			continue
		}
		for _, n := range []int{0, 1, 16, 1021, 4096} {
			if op.Info().Is(FlagPayload) != (n != 0) && op != OpcodeCNP || op == OpcodeCNP && n != 16 {
				continue
			}
			for _, v4 := range []bool{true, false} {
				p, s := roceSample(op, n, v4)
				id := uint16(o*257 + n)
				b := p.AppendRoCE(nil, s.Port, id)
				if len(b) != p.RoCESize() {
					t.Fatalf("%v: %d bytes, and the size is %d", op, len(b), p.RoCESize())
				}
				var q Packet
				if err := parseRoCE(&q, b, s); err != nil {
					t.Fatalf("%v, %d bytes: %v", op, n, err)
				}
				if q.GRH != p.GRH || q.BTH != p.BTH || q.LRH != p.LRH || !bytes.Equal(q.Payload, p.Payload) {
					t.Fatalf("%v, %d bytes:\n%+v, want\n%+v", op, n, q, *p)
				}
				if again := q.AppendRoCE(nil, s.Port, id); !bytes.Equal(again, b) {
					t.Fatalf("%v, %d bytes: written again it is another", op, n)
				}
			}
		}
	}
}

// What is damaged is refused: all of it over IPv6, all but one in 32,768 over IPv4, whose identification is not known.
func TestRoCEDamage(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, v4 := range []bool{true, false} {
		const tries = 200_000
		passed := 0
		p, s := roceSample(MakeOpcode(RC, OpSendOnly), 64, v4)
		good := p.AppendRoCE(nil, s.Port, 0x1234)
		for range tries {
			b := bytes.Clone(good)
			for range 1 + r.IntN(8) {
				b[5+r.IntN(len(b)-5)] ^= 1 << r.IntN(8) // the byte of FECN and BECN is not covered
			}
			var q Packet
			if err := parseRoCE(&q, b, s); err == nil && !bytes.Equal(b, good) {
				passed++
			} else if err != nil && !errors.Is(err, ErrICRC) {
				t.Fatal(err)
			}
		}
		if most := tries / 32768 * 4; passed > most || !v4 && passed > 0 {
			t.Errorf("IPv4 %v: %d of %d passed, want at most %d", v4, passed, tries, most)
		}
		// Nor is anything taken that was for another address or from another port.
		for _, other := range []RoCESource{{From: s.To, To: s.From, Port: s.Port},
			{From: s.From, To: s.From, Port: s.Port}, {From: s.From, To: s.To, Port: s.Port + 1}} {
			var q Packet
			if err := parseRoCE(&q, good, other); !errors.Is(err, ErrICRC) {
				t.Errorf("%+v: %v", other, err)
			}
		}
	}
}

func FuzzRoCE(f *testing.F) {
	for _, text := range theirs {
		b := unhex(f, text)
		f.Add(b[ipv4Size+udpSize:], true, b[21])
	}
	f.Fuzz(func(t *testing.T, b []byte, v4 bool, port uint8) {
		p, s := roceSample(MakeOpcode(RC, OpAck), 0, v4)
		s.Port = uint16(port)
		if parseRoCE(p, b, s) != nil {
			// The same bytes with the ICRC that they ought to have: the checks behind it see them too.
			if len(b) < roceMinSize || len(b)%4 != 0 || len(b) > roceMaxSize {
				return
			}
			b = bytes.Clone(b)
			n := len(b) - ICRCSize
			sent := s
			sent.ID = 7
			binary.LittleEndian.PutUint32(b[n:], sent.icrc(append(make([]byte, RoCEBefore), b[:n]...), RoCEBefore))
			if parseRoCE(p, b, s) != nil {
				return
			}
		}
		if p.RoCESize() != len(b) {
			t.Errorf("%d bytes were read of %d", p.RoCESize(), len(b))
		}
	})
}

// Wireshark finds nothing wrong with our datagrams, over either IP.
func TestRoCETshark(t *testing.T) {
	if _, err := exec.LookPath("tshark"); err != nil {
		t.Fatal("no tshark on this machine; next: make test, which installs it")
	}
	var hex strings.Builder
	for _, v4 := range []bool{true, false} {
		p, s := roceSample(MakeOpcode(RC, OpWriteOnlyImm), 32, v4)
		d := p.AppendRoCE(nil, s.Port, 0)
		var frame []byte
		frame = append(frame, 2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1)
		if v4 {
			frame = append(frame, 8, 0, 0x45, s.TClass, 0, byte(28+len(d)), 0, 0, 0x40, 0, s.HopLimit, ipUDP, 0, 0)
			frame = append(append(frame, s.From[12:]...), s.To[12:]...)
		} else {
			frame = append(frame, 0x86, 0xdd, 0x66, 0xA0, 0, 0, 0, byte(8+len(d)), ipUDP, s.HopLimit)
			frame = append(append(frame, s.From[:]...), s.To[:]...)
		}
		frame = append(frame, byte(s.Port>>8), byte(s.Port&0xff), RoCEPort>>8, RoCEPort&0xff, 0, byte(8+len(d)), 0, 0)
		frame = append(frame, d...)
		for i := 0; i < len(frame); i += 16 {
			fmt.Fprintf(&hex, "%04x % x\n", i, frame[i:min(i+16, len(frame))])
		}
	}
	dir := t.TempDir()
	text, pcap := filepath.Join(dir, "frames"), filepath.Join(dir, "frames.pcap")
	if err := os.WriteFile(text, []byte(hex.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("text2pcap", text, pcap).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	out, err := exec.Command("tshark", "-r", pcap, "-T", "fields", "-e", "frame.protocols",
		"-e", "infiniband.bth.opcode", "-e", "_ws.malformed").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if n := strings.Count(string(out), ":udp:infiniband"); n != 2 || strings.Contains(string(out), "alformed") {
		t.Errorf("tshark reads:\n%s", out)
	}
}
