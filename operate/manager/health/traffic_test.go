package health

import (
	"strings"
	"testing"
	"time"

	"softib/proto/ib"
	"softib/proto/topo"
)

// ports names ports by their numbers.
type ports struct{}

func (ports) PortName(r topo.PortRef) string {
	return string(rune('a'+r.Node)) + string(rune('0'+r.Port))
}

// TestTraffic: what is wrong at cables that are not to blame for it.
func TestTraffic(t *testing.T) {
	rate := ib.LinkRate{Width: ib.Width4x, Speed: ib.HDR}
	end := func(node int, port ib.PortNum) End {
		return End{Ref: topo.PortRef{Node: node, Port: port}, State: ib.PortActive, Rate: rate, MTU: ib.MTU4096}
	}
	// a and b are leaves below the spine c; d is a host of b, and e one of a.
	fabric := func() []Cable {
		return []Cable{{end(4, 1), end(0, 1)}, {end(0, 2), end(2, 1)}, {end(2, 2), end(1, 2)}, {end(1, 1), end(3, 1)}}
	}
	all := uint64(float64(rate.Mbps()) * 1e6 / 32) // ticks of a second
	for _, c := range []struct {
		name string
		hurt func(c []Cable)
		kind Kind
		says string
	}{
		{"nothing", func([]Cable) {}, NumKind, ""},
		{"MTU", func(c []Cable) { c[1].B.MTU = ib.MTU2048 }, MTUs, "a2 takes packets of 4096 bytes, c1 of 2048"},
		{"not of a link that comes up", func(c []Cable) { c[1].B.MTU, c[1].A.State = ib.MTU2048, ib.PortInit }, NumKind,
			""},
		{"a slow host", func(c []Cable) {
			c[0].A.Delta[ib.PortXmitWait], c[1].A.Delta[ib.PortXmitWait] = all/2, all/2
			c[2].A.Delta[ib.PortXmitWait], c[3].A.Delta[ib.PortXmitWait] = all/2, all*9/10
		}, Congested, "b1 waited for credits 90 % of the time: it begins here, at what d1 takes; " +
			"3 more ports wait for it"},
		{"a little wait", func(c []Cable) { c[3].A.Delta[ib.PortXmitWait] = all / 10 }, NumKind, ""},
		{"refused", func(c []Cable) { c[0].B.Delta[ib.PortRcvConstraintErrors] = 1024 }, Refused,
			"1024 packets refused on the way in in 1 s at a1, for their partition: of programs behind e1"},
		{"a few refused", func(c []Cable) { c[0].B.Delta[ib.PortRcvConstraintErrors] = 9 }, NumKind, ""},
	} {
		cables := fabric()
		c.hurt(cables)
		list := Traffic(cables, time.Second, Default())
		if c.kind == NumKind {
			if len(list) != 0 {
				t.Errorf("%s: %+v", c.name, list)
			}
			continue
		}
		if len(list) != 1 || len(list[0].Reasons) != 1 || list[0].Reasons[0].Kind != c.kind {
			t.Errorf("%s: %+v", c.name, list)
			continue
		}
		r := &list[0].Reasons[0]
		if got := r.Text(ports{}); !strings.HasPrefix(got, c.says) || r.Advice(ports{}) == "" {
			t.Errorf("%s: %q, %q; want %q", c.name, got, r.Advice(ports{}), c.says)
		}
	}
	if list := Traffic(fabric(), 0, Default()); list != nil {
		t.Errorf("without an interval: %+v", list)
	}
}
