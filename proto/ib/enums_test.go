package ib

import (
	"fmt"
	"strings"
	"testing"
)

func TestMTU(t *testing.T) {
	for _, c := range []struct {
		mtu   MTU
		bytes int
		text  string
	}{
		{0, 0, "MTU(0)"},
		{MTU256, 256, "256"},
		{MTU512, 512, "512"},
		{MTU1024, 1024, "1024"},
		{MTU2048, 2048, "2048"},
		{MTU4096, 4096, "4096"},
		{6, 0, "MTU(6)"},
		{255, 0, "MTU(255)"},
	} {
		if c.mtu.Bytes() != c.bytes || c.mtu.String() != c.text || c.mtu.IsValid() != (c.bytes > 0) {
			t.Errorf("MTU %d: %d bytes, prints %s, valid %v; want %d, %s",
				uint8(c.mtu), c.mtu.Bytes(), c.mtu, c.mtu.IsValid(), c.bytes, c.text)
		}
	}
	valid := 0
	for n := range 10_000 {
		m, ok := MTUFromBytes(n)
		if ok {
			valid++
			if m.Bytes() != n {
				t.Errorf("MTUFromBytes(%d) = %v", n, m)
			}
		} else if m != 0 {
			t.Errorf("MTUFromBytes(%d) = %v and not ok", n, m)
		}
	}
	if valid != 5 {
		t.Errorf("%d sizes are an MTU, want 5", valid)
	}
	if _, ok := MTUFromBytes(-256); ok {
		t.Error("a negative size is an MTU")
	}
}

// TestLinkRate4x holds the rates against the figures that every data sheet
// gives for a four-lane port.
func TestLinkRate4x(t *testing.T) {
	for _, c := range []struct {
		speed Speed
		gbps  string
	}{
		{SDR, "8.00"}, {DDR, "16.00"}, {QDR, "32.00"}, {FDR10, "40.00"}, {FDR, "54.54"},
		{EDR, "100.00"}, {HDR, "200.00"}, {NDR, "400.00"}, {XDR, "800.00"},
	} {
		r := LinkRate{Width4x, c.speed}
		if got := fmt.Sprintf("%.2f", float64(r.Mbps())/1000); got != c.gbps {
			t.Errorf("%v: %s Gb/s, want %s", r, got, c.gbps)
		}
	}
}

func TestLinkRateWidths(t *testing.T) {
	for _, c := range []struct {
		width Width
		lanes int
		text  string
	}{
		{Width1x, 1, "1x"}, {Width2x, 2, "2x"}, {Width4x, 4, "4x"}, {Width8x, 8, "8x"}, {Width12x, 12, "12x"},
		{0, 0, "Width(0)"}, {3, 0, "Width(3)"}, // a mask of two widths is not a width
	} {
		if c.width.Lanes() != c.lanes || c.width.String() != c.text {
			t.Errorf("width %d: %d lanes, prints %s; want %d, %s", uint8(c.width), c.width.Lanes(), c.width, c.lanes,
				c.text)
		}
		for s := SDR; s < NumSpeed; s++ {
			one, this := LinkRate{Width1x, s}.Mbps(), LinkRate{c.width, s}.Mbps()
			if this != one*int64(c.lanes) {
				t.Errorf("%v %v: %d Mb/s, one lane has %d", c.width, s, this, one)
			}
		}
	}
	if got := (LinkRate{Width4x, EDR}).String(); got != "4x EDR" {
		t.Errorf("4x EDR prints as %q", got)
	}
}

func TestSpeedNames(t *testing.T) {
	for s := SDR; s < NumSpeed; s++ {
		if !s.IsValid() || s.String() == "" {
			t.Errorf("speed %d: valid %v, prints %q", uint8(s), s.IsValid(), s)
		}
		if back, ok := ParseSpeed(s.String()); !ok || back != s {
			t.Errorf("%v parses to %v, %v", s, back, ok)
		}
		if s > SDR && (LinkRate{Width1x, s}).Mbps() <= (LinkRate{Width1x, s - 1}).Mbps() {
			t.Errorf("%v is not faster than %v", s, s-1)
		}
	}
	for _, s := range []Speed{0, NumSpeed, 255} {
		if s.IsValid() || !strings.HasPrefix(s.String(), "Speed(") || (LinkRate{Width4x, s}).Mbps() != 0 {
			t.Errorf("speed %d: valid %v, prints %q, %d Mb/s", uint8(s), s.IsValid(), s, LinkRate{Width4x, s}.Mbps())
		}
	}
	for _, name := range []string{"", "edr", "EDR ", "Speed(0)"} {
		if s, ok := ParseSpeed(name); ok {
			t.Errorf("ParseSpeed(%q) = %v", name, s)
		}
	}
}

func TestByteTime(t *testing.T) {
	for _, c := range []struct {
		rate LinkRate
		n    int
		want Time
	}{
		{LinkRate{Width4x, EDR}, 0, 0},
		{LinkRate{Width4x, EDR}, 1, 80 * Picosecond},
		{LinkRate{Width4x, EDR}, 4096, 327_680 * Picosecond},
		{LinkRate{Width1x, SDR}, 1, 4 * Nanosecond},
		{LinkRate{Width4x, XDR}, 1, 10 * Picosecond},
		{LinkRate{Width4x, FDR}, 1, 147 * Picosecond}, // 146.67, rounded up
		{LinkRate{Width4x, HDR}, 25_000_000_000, Second},
		{LinkRate{Width4x, 0}, 1, Never},
		{LinkRate{0, EDR}, 1, Never},
	} {
		if got := c.rate.ByteTime(c.n); got != c.want {
			t.Errorf("%d bytes at %v: %d ps, want %d", c.n, c.rate, got, c.want)
		}
	}
	// Rounded up, and by less than a picosecond.
	for s := SDR; s < NumSpeed; s++ {
		for n := range 5000 {
			r := LinkRate{Width4x, s}
			bits, got := int64(n)*8_000_000, int64(r.ByteTime(n))
			if got*r.Mbps() < bits || (got-1)*r.Mbps() >= bits {
				t.Fatalf("%d bytes at %v: %d ps at %d Mb/s", n, r, got, r.Mbps())
			}
		}
	}
}

func TestStateNames(t *testing.T) {
	names := map[string]bool{}
	for s := range NumPortState {
		names["port "+s.String()] = true
	}
	for s := range NumPhysState {
		names["phys "+s.String()] = true
	}
	for n := NodeCA; n <= NodeRouter; n++ {
		names["node "+n.String()] = true
	}
	for c := range NumCounter {
		if c.String() == "" {
			t.Errorf("counter %d has no name", uint8(c))
		}
		names["counter "+c.String()] = true
	}
	if want := int(NumPortState) + int(NumPhysState) + 3 + int(NumCounter); len(names) != want {
		t.Errorf("%d different names for %d values", len(names), want)
	}
	for _, s := range []fmt.Stringer{NumPortState, NumPhysState, NodeType(0), NumCounter} {
		if !strings.Contains(s.String(), "(") {
			t.Errorf("%T out of range prints as %q, want its number", s, s)
		}
	}
	// As PortInfo and NodeInfo encode them.
	if PortActive != 4 || PhysLinkUp != 5 || PhysPolling != 2 || NodeSwitch != 2 {
		t.Error("an enumeration no longer has the values that travel")
	}
}
