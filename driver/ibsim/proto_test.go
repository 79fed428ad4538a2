package ibsim

import (
	"bytes"
	"encoding/hex"
	"errors"
	"strings"
	"testing"

	"softib/proto/ib"
	"softib/proto/mad"
)

// TestGoldenControl holds control datagrams against bytes as ibsim 0.10's own client sends them on a little-endian
// machine.
func TestGoldenControl(t *testing.T) {
	if native.Uint16([]byte{1, 0}) != 1 {
		t.Skip("the bytes are those of a little-endian machine")
	}
	c := ctl{client: 3, typ: ctlConnect}
	in := clientInfo{id: 0x1234, qp: 0, isSM: 1, node: "Hca1"}
	in.put(&c)
	want, err := hex.DecodeString("efbeadde" + "03000000" + "01000000" + "2c000000" +
		"34120000" + "00000000" + "01000000" + "48636131" + strings.Repeat("00", 28) + strings.Repeat("00", 20))
	if err != nil {
		t.Fatal(err)
	}
	got := c.append(nil)
	if !bytes.Equal(got, want) {
		t.Errorf("\n got %x\nwant %x", got, want)
	}
	var back ctl
	if err := back.parse(got); err != nil || back != c {
		t.Errorf("%v: %+v", err, back)
	}
	var info clientInfo
	if info.get(&back); info != in {
		t.Errorf("%+v", info)
	}
	for i := range got {
		if err := back.parse(got[:i]); !errors.Is(err, ErrProtocol) {
			t.Errorf("%d bytes: %v", i, err)
		}
	}
	if err := back.parse(append([]byte{0}, got[1:]...)); !errors.Is(err, ErrProtocol) {
		t.Errorf("another magic: %v", err)
	}
	if err := back.parse(append(got, 0)); !errors.Is(err, ErrProtocol) {
		t.Errorf("81 bytes: %v", err)
	}
	long := clientInfo{node: strings.Repeat("x", 40)}
	c = ctl{}
	long.put(&c)
	if info.get(&c); len(info.node) != nodeIDSize-1 {
		t.Errorf("a long name gives %d bytes", len(info.node))
	}
}

func TestControlNames(t *testing.T) {
	seen := map[string]bool{}
	for c := range numCtlType {
		if s := c.String(); s == "" || seen[s] {
			t.Errorf("type %d is called %q", c, s)
		} else {
			seen[s] = true
		}
	}
	if numCtlType != 11 || ctlGetPKeys != 10 || !strings.Contains(numCtlType.String(), "11") {
		t.Error("the types no longer have ibsim's numbers")
	}
}

// TestGoldenPacket holds data datagrams against the layout of ibsim's sim_request.
func TestGoldenPacket(t *testing.T) {
	var m [mad.Size]byte
	for i := range m {
		m[i] = byte(i)
	}
	for _, c := range []struct {
		name  string
		class mad.Class
		env   mad.Envelope
		head  string
	}{
		{"directed", mad.ClassSMDirect, mad.Envelope{LID: ib.LIDPermissive},
			"ffff0000" + "ffff0000" + "00000000" + "00000000" + "00000000" + "00000000" + "0000000000000100"},
		{"by LID", mad.ClassSMLID, mad.Envelope{LID: 0x0102},
			"01020000" + "00000000" + "00000000" + "00000000" + "00000000" + "00000000" + "0000000000000100"},
		{"general", mad.ClassSA, mad.Envelope{LID: 0x0102, QPN: ib.QPNGSI, QKey: ib.QKeyGSI},
			"01020000" + "00000000" + "00000001" + "00000001" + "00000000" + "00000000" + "0000000000000100"},
	} {
		m[1] = byte(c.class)
		var raw [packetSize]byte
		raw[20] = 0xEE // what was there before
		putPacket(&raw, &c.env, &m)
		if got := hex.EncodeToString(raw[:offMAD]); got != c.head || !bytes.Equal(raw[offMAD:], m[:]) {
			t.Errorf("%s:\n got %s\nwant %s", c.name, got, c.head)
		}
	}

	var raw [packetSize]byte
	head, err := hex.DecodeString("00070000" + "00090000" + "00000000" + "00000001" + "0000006e" + "00000000" +
		"0000000000000100")
	if err != nil {
		t.Fatal(err)
	}
	copy(raw[:], head)
	copy(raw[offMAD:], m[:])
	var p Packet
	if status := getPacket(&raw, &p); status != statusNoWay || p.Data != m ||
		p.Env != (mad.Envelope{LID: 9, QPN: 1, QKey: ib.QKeyGSI}) {
		t.Errorf("status %d, %+v", status, p.Env)
	}
}

// FuzzTake gives the port whatever a socket may bring.
func FuzzTake(f *testing.F) {
	f.Add(make([]byte, packetSize))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		p := &Port{client: 2}
		n := copy(p.raw[:], data)
		if len(data) > packetSize {
			n = packetSize
		}
		var out Packet
		if p.take(n, &out) != (n == packetSize && p.counters.Received == 1) {
			t.Errorf("%d bytes: %+v", n, p.counters)
		}
		if v := mad.View(out.Data[:]); n == packetSize && v.Method().IsResponse() && v.TID()>>48 == 2 &&
			p.counters.Received == 1 {
			t.Error("ibsim's number is still in the transaction ID")
		}
		var c ctl
		if err := c.parse(data); err == nil {
			var info clientInfo
			info.get(&c)
			if again := c.append(nil); len(again) != ctlSize {
				t.Errorf("%d bytes", len(again))
			}
		}
	})
}
