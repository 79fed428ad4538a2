package trace

import (
	"bytes"
	"encoding/hex"
	"errors"
	"reflect"
	"strings"
	"testing"

	"softib/proto/ib"
	"softib/proto/wire"
)

// ack is a small packet for tests that look at what is around it.
func ack() *wire.Packet {
	p := &wire.Packet{
		LRH:  wire.LRH{LNH: wire.LNHLocal, DLID: 2, SLID: 1},
		BTH:  wire.BTH{Opcode: wire.MakeOpcode(wire.RC, wire.OpAck), PKey: ib.PKeyDefault, DestQP: 0x12, PSN: 0x34},
		AETH: wire.AETH{Syndrome: wire.SynAckNoCred, MSN: 1},
	}
	p.Seal()
	return p
}

// goldenEvents are the events of TestPcapngGolden.
func goldenEvents() []Event {
	p := ack()
	return []Event{
		{Time: 1_500_000_000_123_456, Node: 1, Port: 1, Dir: Out, Packet: p},
		{Time: 1_500_000_000_200_000, Node: 2, Port: 3, Dir: In, Kind: Link},
		{Time: 1_500_000_000_300_000, Node: 2, Port: 3, Kind: State, What: "port", From: "Active", To: "Down"},
		{Time: 1_500_000_000_400_000, Node: 2, Port: 3, Dir: In, Kind: Drop, Reason: LinkDown, Packet: p},
	}
}

// The file of goldenEvents, block by block. Numbers are little-endian; the
// packets are p's bytes, and one case covers all fields that are not text.
var (
	goldenSection = "0a0d0d0a" + "2c000000" + "4d3c2b1a" + "01000000" + "ffffffffffffffff" +
		"04000600" + "736f667469620000" + "00000000" + "2c000000"
	goldenPort1 = "01000000" + "34000000" + "c5000000" + "00000000" +
		"02000400" + "68312f31" + "08000800" + "00e8764817000000" + "09000100" + "09000000" + "00000000" + "34000000"
	goldenPort2 = "01000000" + "2c000000" + "c5000000" + "00000000" +
		"02000700" + "6c656166312f3300" + "09000100" + "09000000" + "00000000" + "2c000000"
)

func TestPcapngGolden(t *testing.T) {
	w, file := newCapture(t, PcapngOptions{})
	for _, e := range goldenEvents() {
		write(t, w, e)
	}
	p := hex.EncodeToString(ack().Append(nil)) // 30 bytes
	// 1500.000000123 s: 0x15d3ef7987b ns; as 32.32: 1500 and 528 of 2^-32.
	first := "06000000" + "5c000000" + "00000000" + "5d010000" + "7b98f73e" + "2e000000" + "2e000000" +
		"10020000dc050000" + "15" + "04" + "002e" + "0000" + "001e" + p + "0000" +
		"02000400" + "02000000" + "00000000" + "5c000000"
	second := "06000000" + "9c000000" + "01000000" + "5d010000" + "9099f73e" + "2e000000" + "2e000000" +
		"b5060000dc050000" + "15" + "04" + "002e" + "0000" + "001e" + p + "0000" +
		"01002100" + hex.EncodeToString([]byte("1500.000000s: port Active to Down")) + "000000" +
		"01001200" + hex.EncodeToString([]byte("dropped: link-down")) + "0000" +
		"02000400" + "01000000" + "00000000" + "9c000000"
	want := goldenSection + goldenPort1 + goldenPort2 + first + second
	if got := hex.EncodeToString(file.Bytes()); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestPcapngRead(t *testing.T) {
	for _, lt := range []LinkType{LinkTypeERF, LinkTypeInfiniBand} {
		w, file := newCapture(t, PcapngOptions{LinkType: lt, EpochNS: 1_700_000_000_000_000_000})
		for _, e := range goldenEvents() {
			write(t, w, e)
		}
		c, err := ReadPcapng(file.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		b := ack().Append(nil)
		want := &Capture{
			Interfaces: []Interface{{"h1/1", lt, 100_000_000_000}, {"leaf1/3", lt, 0}},
			Records: []Record{
				{Interface: 0, TimeNS: 1_700_001_500_000_000_123, Dir: Out, Bytes: b, Length: 30},
				{Interface: 1, TimeNS: 1_700_001_500_000_000_400, Dir: In, Bytes: b, Length: 30,
					Comments: []string{"1500.000000s: port Active to Down", "dropped: link-down"}},
			},
		}
		if !reflect.DeepEqual(c, want) {
			t.Errorf("link type %d:\n got %+v\nwant %+v", lt, c, want)
		}
		var p wire.Packet
		if err := p.Parse(c.Records[0].Bytes); err != nil || p.BTH.PSN != 0x34 {
			t.Errorf("packet read back: %v, %v", &p, err)
		}
	}
}

func TestPcapngSnap(t *testing.T) {
	w, file := newCapture(t, PcapngOptions{Snap: 20})
	write(t, w, Event{Node: 1, Port: 1, Packet: ack()})
	c, err := ReadPcapng(file.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	r := c.Records[0]
	if !bytes.Equal(r.Bytes, ack().Append(nil)[:20]) || r.Length != 30 {
		t.Errorf("kept %x of %d bytes", r.Bytes, r.Length)
	}
}

// TestPcapngBytesWin: a corrupted packet is written as it stood on the cable.
func TestPcapngBytesWin(t *testing.T) {
	b := ack().Append(nil)
	b[9] ^= 0x10
	w, file := newCapture(t, PcapngOptions{})
	write(t, w, Event{Node: 1, Port: 1, Kind: Drop, Reason: BadVCRC, Packet: ack(), Bytes: b})
	write(t, w, Event{Node: 1, Port: 1}) // nothing to show
	c, err := ReadPcapng(file.Bytes())
	if err != nil || len(c.Records) != 1 || !bytes.Equal(c.Records[0].Bytes, b) {
		t.Errorf("got %+v, %v", c, err)
	}
}

func TestPcapngPendingIsBounded(t *testing.T) {
	w, file := newCapture(t, PcapngOptions{})
	for i := range 100 {
		write(t, w, Event{Time: ib.Time(i) * ib.Microsecond, Node: 1, Port: 1, Kind: State, What: "QP", QP: ib.QPN(i),
			From: "RTR", To: "RTS"})
	}
	write(t, w, Event{Node: 1, Port: 1, Packet: ack(), Note: strings.Repeat("é", maxText)})
	c, err := ReadPcapng(file.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	got := c.Records[0].Comments
	if len(got) != maxPending+1 || got[maxPending-1] != "99.000us: QP 0x000063 RTR to RTS" ||
		got[0] != "84.000us: QP 0x000054 RTR to RTS" {
		t.Errorf("%d comments: %q", len(got), got[:min(2, len(got))])
	}
	if note := got[maxPending]; len(note) != maxText || strings.ToValidUTF8(note, "") != note {
		t.Errorf("note of %d bytes", len(note))
	}
}

// failing accepts n writes.
type failing int

var errFull = errors.New("full")

func (f *failing) Write(b []byte) (int, error) {
	if *f--; *f < 0 {
		return 0, errFull
	}
	return len(b), nil
}

func TestWriterErrorsStay(t *testing.T) {
	room := failing(2)
	w, err := NewPcapng(&room, PcapngOptions{})
	if err != nil {
		t.Fatal(err)
	}
	e := Event{Packet: ack()}
	write(t, w, e)
	room2 := failing(1)
	j := NewJSON(&room2)
	write(t, j, e)
	for range 3 {
		if err := w.Write(&e); !errors.Is(err, errFull) {
			t.Errorf("pcapng: %v", err)
		}
		if err := j.Write(&e); !errors.Is(err, errFull) {
			t.Errorf("JSON: %v", err)
		}
	}
	if err := w.Port(5, 5, "late", ib.LinkRate{}); !errors.Is(err, errFull) {
		t.Errorf("port: %v", err)
	}
}

func TestPcapngRefusals(t *testing.T) {
	if _, err := NewPcapng(new(bytes.Buffer), PcapngOptions{LinkType: 1}); err == nil {
		t.Error("link type 1 is taken")
	}
	w, _ := newCapture(t, PcapngOptions{})
	if err := w.Port(1, 1, "again", ib.LinkRate{}); err == nil || !strings.Contains(err.Error(), "again") {
		t.Errorf("port declared twice: %v", err)
	}
}

func TestPcapngNoAllocation(t *testing.T) {
	var sink discard
	w, err := NewPcapng(sink, PcapngOptions{})
	if err != nil {
		t.Fatal(err)
	}
	e := Event{Node: 1, Port: 1, Dir: In, Packet: ack()}
	write(t, w, e)
	if n := testing.AllocsPerRun(100, func() { _ = w.Write(&e) }); n != 0 {
		t.Errorf("%v allocations, want none", n)
	}
}

type discard struct{}

func (discard) Write(b []byte) (int, error) { return len(b), nil }

// TestReadPcapngTruncations: a cut inside a block fails; one between blocks
// is a shorter capture.
func TestReadPcapngTruncations(t *testing.T) {
	w, file := newCapture(t, PcapngOptions{})
	for _, e := range goldenEvents() {
		write(t, w, e)
	}
	b := file.Bytes()
	whole := map[int]bool{}
	for at := 0; at < len(b); {
		_, _, n, err := readBlock(b[at:])
		if err != nil {
			t.Fatal(err)
		}
		at += n
		whole[at] = true
	}
	if len(whole) != 5 {
		t.Fatalf("%d blocks, want 5", len(whole))
	}
	for i := range b {
		_, err := ReadPcapng(b[:i])
		if ok := err == nil; ok != whole[i] || (!ok && !errors.Is(err, ErrPcapng)) {
			t.Errorf("first %d bytes: %v", i, err)
		}
	}
}

func TestReadPcapngRefusals(t *testing.T) {
	w, file := newCapture(t, PcapngOptions{})
	write(t, w, Event{Node: 1, Port: 1, Packet: ack()})
	good := file.Bytes()
	const section, iface1 = 0x2c, 0x34
	packet := section + iface1 + 0x2c
	for name, c := range map[string]struct {
		at  int
		v   byte
		say string
	}{
		"not a section":   {0, 1, "want a section header"},
		"byte order":      {8, 0x1a, "byte order magic"},
		"version":         {12, 2, "major version 2"},
		"time resolution": {section + 44 - 4, 6, "time resolution 6"},
		"interface":       {packet + 8, 7, "interface 7"},
		"kept":            {packet + 20, 0xff, "keeps 255 bytes"},
		"ERF type":        {packet + 28 + 8, 2, "ERF type 2"},
		"block length":    {packet + 4, 0x10, "block length"},
	} {
		b := append([]byte(nil), good...)
		b[c.at] = c.v
		_, err := ReadPcapng(b)
		if !errors.Is(err, ErrPcapng) || !strings.Contains(err.Error(), c.say) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := ReadPcapng(append(append([]byte(nil), good...), good...)); err == nil ||
		!strings.Contains(err.Error(), "second section") {
		t.Errorf("second section: %v", err)
	}
}

func FuzzReadPcapng(f *testing.F) {
	var file bytes.Buffer
	w, err := NewPcapng(&file, PcapngOptions{})
	if err != nil {
		f.Fatal(err)
	}
	for _, e := range goldenEvents() {
		if err := w.Write(&e); err != nil {
			f.Fatal(err)
		}
	}
	f.Add(file.Bytes())
	f.Add(file.Bytes()[:100])
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := ReadPcapng(b)
		if err != nil && !errors.Is(err, ErrPcapng) {
			t.Fatal(err)
		}
		for _, r := range c.Records {
			if r.Interface >= len(c.Interfaces) || r.Length < 0 {
				t.Fatalf("%+v", r)
			}
		}
	})
}

func BenchmarkPcapng(b *testing.B) {
	w, err := NewPcapng(discard{}, PcapngOptions{})
	if err != nil {
		b.Fatal(err)
	}
	p := ack()
	p.BTH.Opcode = wire.MakeOpcode(wire.RC, wire.OpSendOnly)
	p.Payload = make([]byte, 4096)
	p.Seal()
	e := Event{Packet: p}
	b.ReportAllocs()
	for b.Loop() {
		if err := w.Write(&e); err != nil {
			b.Fatal(err)
		}
	}
}
