package ib

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
)

func TestLIDRanges(t *testing.T) {
	for _, c := range []struct {
		lid                LID
		unicast, multicast bool
	}{
		{LIDReserved, false, false},
		{1, true, false},
		{0xBFFF, true, false},
		{0xC000, false, true},
		{0xFFFE, false, true},
		{LIDPermissive, false, false},
	} {
		if c.lid.IsUnicast() != c.unicast || c.lid.IsMulticast() != c.multicast {
			t.Errorf("LID %#x: unicast %v, multicast %v, want %v, %v",
				uint16(c.lid), c.lid.IsUnicast(), c.lid.IsMulticast(), c.unicast, c.multicast)
		}
	}
	var unicast, multicast int
	for l := range 1 << 16 {
		if LID(l).IsUnicast() {
			unicast++
		}
		if LID(l).IsMulticast() {
			multicast++
		}
	}
	if unicast != 0xBFFF || multicast != 0x3FFF {
		t.Errorf("%d unicast and %d multicast LIDs, want 49151 and 16383", unicast, multicast)
	}
	if got := LID(0xBFFF).String(); got != "49151" {
		t.Errorf("LID 0xBFFF prints as %q: LIDs are printed in decimal", got)
	}
}

// TestPKeyMatches is the truth table of IBA 10.9.3.
func TestPKeyMatches(t *testing.T) {
	for _, c := range []struct {
		a, b PKey
		want bool
		why  string
	}{
		{0xFFFF, 0xFFFF, true, "full and full"},
		{0xFFFF, 0x7FFF, true, "full and limited"},
		{0x7FFF, 0xFFFF, true, "limited and full"},
		{0x7FFF, 0x7FFF, false, "limited and limited"},
		{0x8001, 0x8001, true, "full and full"},
		{0x8001, 0x0001, true, "full and limited"},
		{0x0001, 0x0001, false, "limited and limited"},
		{0x8001, 0x8002, false, "two partitions"},
		{0x8001, 0xFFFF, false, "two partitions"},
		{0x8000, 0x8000, false, "partition 0 is not one, even as full members"},
		{0x8000, 0x0000, false, "partition 0 is not one"},
		{0x0000, 0x0000, false, "partition 0 is not one"},
		{0x0000, 0x8001, false, "partition 0 is not one"},
	} {
		if got := c.a.Matches(c.b); got != c.want {
			t.Errorf("%v matches %v: %v, want %v (%s)", c.a, c.b, got, c.want, c.why)
		}
	}
}

func TestPKeyMatchesIsSymmetric(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for range 100_000 {
		a := PKey(r.Uint32())
		b := a ^ PKey(r.Uint32N(2))<<15 ^ PKey(r.Uint32N(2)) // close enough to match often
		oracle := a%0x8000 == b%0x8000 && a%0x8000 != 0 && (a >= 0x8000 || b >= 0x8000)
		if a.Matches(b) != oracle || b.Matches(a) != oracle {
			t.Fatalf("%v and %v: %v and %v, want %v", a, b, a.Matches(b), b.Matches(a), oracle)
		}
	}
}

func TestPKeyParts(t *testing.T) {
	for _, c := range []struct {
		k           PKey
		base        PKey
		full, valid bool
		text        string
	}{
		{PKeyDefault, 0x7FFF, true, true, "0xffff"},
		{0x7FFF, 0x7FFF, false, true, "0x7fff"},
		{0x8001, 1, true, true, "0x8001"},
		{0x8000, 0, true, false, "0x8000"},
		{0, 0, false, false, "0x0000"},
	} {
		if c.k.Base() != c.base || c.k.IsFull() != c.full || c.k.IsValid() != c.valid || c.k.String() != c.text {
			t.Errorf("%#x: base %v, full %v, valid %v, prints %s; want %v, %v, %v, %s",
				uint16(c.k), c.k.Base(), c.k.IsFull(), c.k.IsValid(), c.k, c.base, c.full, c.valid, c.text)
		}
	}
}

func TestParseGUID(t *testing.T) {
	for _, c := range []struct {
		in   string
		want GUID
		ok   bool
	}{
		{"0x0002c90300000001", 0x0002c90300000001, true},
		{"0X0002C90300000001", 0x0002c90300000001, true},
		{"0002c90300000001", 0x0002c90300000001, true},
		{"0002:c903:0000:0001", 0x0002c90300000001, true},
		{"00:02:c9:03:00:00:00:01", 0x0002c90300000001, true},
		{"0xffffffffffffffff", 0xffffffffffffffff, true},
		{"1", 1, true},
		{"0", 0, true},
		{"", 0, false},
		{"0x", 0, false},
		{":", 0, false},
		{"0x10002c90300000001", 0, false},
		{"0x0002c9030000000g", 0, false},
		{"-1", 0, false},
		{"+1", 0, false},
		{" 1", 0, false},
		{"1_0", 0, false},
	} {
		got, err := ParseGUID(c.in)
		if (err == nil) != c.ok || got != c.want {
			t.Errorf("ParseGUID(%q) = %v, %v; want %v, ok %v", c.in, got, err, c.want, c.ok)
		}
		if err != nil && !strings.Contains(err.Error(), fmt.Sprintf("%q", c.in)) {
			t.Errorf("ParseGUID(%q): error %q does not say what was read", c.in, err)
		}
	}
}

func FuzzParseGUID(f *testing.F) {
	for _, s := range []string{"0x0002c90300000001", "0002:c903:0000:0001", "1", "0x", "::", "0x0X1",
		"ffffffffffffffff"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		g, err := ParseGUID(s)
		if err != nil {
			return
		}
		text := g.String()
		if len(text) != 18 {
			t.Fatalf("%q parses to %s: want 0x and 16 digits", s, text)
		}
		back, err := ParseGUID(text)
		if err != nil || back != g {
			t.Fatalf("%q parses to %s, which parses to %v, %v", s, text, back, err)
		}
	})
}

func TestGID(t *testing.T) {
	g := MakeGID(DefaultGIDPrefix, 0x0002c90300000001)
	if want := "fe80:0000:0000:0000:0002:c903:0000:0001"; g.String() != want {
		t.Errorf("GID prints as %s, want %s", g, want)
	}
	if g.Prefix() != DefaultGIDPrefix || g.GUID() != 0x0002c90300000001 {
		t.Errorf("%v: prefix %#x, GUID %v", g, g.Prefix(), g.GUID())
	}
	if g.IsMulticast() || g.IsZero() {
		t.Errorf("%v: multicast %v, zero %v, want neither", g, g.IsMulticast(), g.IsZero())
	}
	if !(GID{}).IsZero() {
		t.Error("the zero GID is not zero")
	}
	for _, c := range []struct {
		in   string
		want GID
		ok   bool
	}{
		{"fe80::2:c903:0:1", g, true},
		{"FE80::0002:C903:0000:0001", g, true},
		{"::", GID{}, true},
		{"ff12:401b:ffff::1", GID{0xFF, 0x12, 0x40, 0x1B, 0xFF, 0xFF, 15: 1}, true},
		{"::ffff:10.0.0.1", GID{10: 0xFF, 11: 0xFF, 12: 10, 15: 1}, true}, // a RoCEv2 GID over IPv4
		{"", GID{}, false},
		{"10.0.0.1", GID{}, false},
		{"fe80::1%eth0", GID{}, false},
		{"fe80::1::2", GID{}, false},
		{"0xfe80000000000000", GID{}, false},
	} {
		got, err := ParseGID(c.in)
		if (err == nil) != c.ok || got != c.want {
			t.Errorf("ParseGID(%q) = %v, %v; want %v, ok %v", c.in, got, err, c.want, c.ok)
		}
	}
	if mgid, _ := ParseGID("ff12:401b:ffff::1"); !mgid.IsMulticast() {
		t.Errorf("%v is not multicast", mgid)
	}
}

func FuzzParseGID(f *testing.F) {
	for _, s := range []string{"fe80::1", "::", "ff12:401b:ffff::1", "::ffff:10.0.0.1", "fe80::1%2", "1.2.3.4"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		g, err := ParseGID(s)
		if err != nil {
			return
		}
		back, err := ParseGID(g.String())
		if err != nil || back != g {
			t.Fatalf("%q parses to %v, which parses to %v, %v", s, g, back, err)
		}
		if again := MakeGID(g.Prefix(), g.GUID()); again != g {
			t.Fatalf("%v taken apart and joined is %v", g, again)
		}
		if a := netip.AddrFrom16(g); g.IsMulticast() != a.IsMulticast() && !a.Is4In6() {
			t.Fatalf("%v: multicast %v, netip says %v", g, g.IsMulticast(), a.IsMulticast())
		}
	})
}

func TestQPNString(t *testing.T) {
	if got := QPNMulticast.String(); got != "0xffffff" {
		t.Errorf("multicast QPN prints as %s", got)
	}
	if got := QPNGSI.String(); got != "0x000001" {
		t.Errorf("QP1 prints as %s", got)
	}
}
