package wire

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
)

func TestSprint(t *testing.T) {
	write := sample(LNHLocal, MakeOpcode(RC, OpWriteOnly), 20).Append(nil)
	edit := func(b []byte, at int, v uint8) []byte {
		b = append([]byte(nil), b...)
		b[at] = v
		return b
	}
	const line = "17185 > 4660 VL3 SL5 RC RDMA WRITE Only QP 0x112233 PSN 16702650 PKey 0x8abc SE,M,FECN,AckReq " +
		"VA 0x102030405060708 RKey 0x11223344 DMALen 20 payload 20"
	cases := []struct {
		name string
		b    []byte
		want string
	}{
		{"whole", write, line},
		{"nothing", nil, "[LRH.bytes: truncated: got 0, want 8]"},
		{"no LRH", write[:5], "bytes 5 [LRH.bytes: truncated: got 5, want 8]"},
		{"no BTH", write[:15],
			"17185 > 4660 VL3 SL5 bytes 7 [LRH.PktLen: 62 bytes announced, 15 present] [BTH.bytes: " +
				"truncated: got 7, want 12]"},
		{"no payload", write[:36], strings.TrimSuffix(line, " payload 20") +
			" [LRH.PktLen: 62 bytes announced, 36 present]"},
		{"too long", append(write[:len(write):len(write)], 1, 2), line +
			" [LRH.PktLen: 62 bytes announced, 64 present]"},
		{"bad payload", edit(write, 40, 0), fmt.Sprintf("%s [transport.ICRC: ICRC mismatch: got 0xc05e5356, "+
			"want %#x] [link.VCRC: VCRC mismatch: got 0x56f5, want %#x]",
			line, slowICRC(edit(write, 40, 0)), slowCRC(16, 0x100B, edit(write, 40, 0)[:60]))},
		{"bad flow control", []byte{0x20, 1, 2, 3, 4, 5},
			fmt.Sprintf("flow control reserved VL0 FCTBS 1 FCCL 515 [link packet.LPCRC: LPCRC mismatch: got "+
				"0x405, want %#x]",
				slowCRC(16, 0x100B, []byte{0x20, 1, 2, 3}))},
	}
	for _, c := range cases {
		if got := Sprint(c.b); got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.name, got, c.want)
		}
	}
	if got := Sprint(edit(write, 8, 0xe3)); !strings.Contains(got, "[BTH.OpCode: unknown opcode 0xe3]") {
		t.Errorf("unknown opcode: %s", got)
	}
}

func TestFprint(t *testing.T) {
	var out bytes.Buffer
	p := sample(LNHGlobal, MakeOpcode(UD, OpSendOnlyImm), 18)
	p.AETH.Syndrome = NAKSeq // not part of this packet: must not show
	if err := Fprint(&out, p.Append(nil)); err != nil {
		t.Fatal(err)
	}
	const want = `98 bytes: 17185 > 4660 VL3 SL5 fe80:0000:0000:0000:0002:c903:0000:0001 > fe80:0000:0000:0000:0002:c903:0000:0002 UD SEND Only with Immediate QP 0x112233 PSN 16702650 PKey 0x8abc SE,M,FECN,AckReq from QP 0x445566 QKey 0x80010000 Imm 0xcafef00d payload 18
LRH
  VL         3
  LVer       0
  SL         5
  LNH        3 (global)
  DLID       4660 (0x1234)
  PktLen     24 words
  SLID       17185 (0x4321)
GRH
  IPVer      6
  TClass     0x5a
  FlowLabel  0xabcde
  PayLen     48
  NxtHdr     0x1b
  HopLmt     63
  SGID       fe80:0000:0000:0000:0002:c903:0000:0001
  DGID       fe80:0000:0000:0000:0002:c903:0000:0002
BTH
  OpCode     0x65 (UD SEND Only with Immediate)
  Flags      SE M FECN AckReq
  PadCnt     2
  TVer       0
  P_Key      0x8abc
  DestQP     0x112233
  PSN        16702650 (0xfedcba)
DETH
  Q_Key      0x80010000
  SrcQP      0x445566
ImmDt
  ImmDt      0xcafef00d
Payload, 18 bytes
  00000000  03 0a 11 18 1f 26 2d 34  3b 42 49 50 57 5e 65 6c  |.....&-4;BIPW^el|
  00000010  73 7a                                             |sz|
CRC
`
	got := out.String()
	at := strings.Index(got, "CRC\n  ICRC")
	if at < 0 || got[:at]+"CRC\n" != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

func TestSyndromeString(t *testing.T) {
	for s, want := range map[Syndrome]string{
		SynAckNoCred: "ACK", 0x05: "ACK, credit code 5", SynRNR | 14: "RNR NAK, wait 1280.000us",
		NAKAccess: "NAK, remote access error", 0x40: "reserved syndrome 0x40", 0x7F: "reserved syndrome 0x7f",
	} {
		if got := s.String(); got != want {
			t.Errorf("%#x: got %q, want %q", uint8(s), got, want)
		}
	}
}

// FuzzPrint: any bytes print, on one line and on many, and a packet that
// parses prints without a complaint.
func FuzzPrint(f *testing.F) {
	_, packets := corpus()
	for _, b := range packets {
		f.Add(b)
		f.Add(b[:len(b)/2])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		line := Sprint(b)
		if line == "" || strings.Contains(line, "\n") {
			t.Fatalf("%x prints %q", b, line)
		}
		var out bytes.Buffer
		if err := Fprint(&out, b); err != nil {
			t.Fatal(err)
		}
		var p Packet
		if len(b) != LinkPacketSize && p.Parse(b) == nil && strings.Contains(line, "[") {
			t.Fatalf("%x parses but prints %q", b, line)
		}
	})
}
