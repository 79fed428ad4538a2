package wiring

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"softib/proto/ib"
	"softib/proto/topo"
)

// SwitchLine is switches of one kind.
type SwitchLine struct {
	Ports int      `json:"ports"`
	Speed ib.Speed `json:"-"`
	// Rate is the fastest that their cables run at.
	Rate  string `json:"speed"`
	Count int    `json:"count"`
	// Used and Free count ports.
	Used    int     `json:"ports_used"`
	Free    int     `json:"ports_free"`
	LowUSD  float64 `json:"low_usd"`
	HighUSD float64 `json:"high_usd"`
	Watts   float64 `json:"watts"`
}

// CableLine is cables that one buys as one kind.
type CableLine struct {
	Medium Medium `json:"medium"`
	Rate   string `json:"rate"`
	// LengthMM is the length that is sold.
	LengthMM int32 `json:"length_mm"`
	Count    int   `json:"count"`
	// AtHosts counts those of which one end is a host.
	AtHosts int     `json:"at_hosts"`
	LowUSD  float64 `json:"low_usd"`
	HighUSD float64 `json:"high_usd"`
	// Watts is at both ends of all.
	Watts float64 `json:"watts"`

	speed ib.Speed
	width ib.Width
}

// AdapterLine is ports of adapters of one kind.
type AdapterLine struct {
	Speed   ib.Speed `json:"-"`
	Rate    string   `json:"speed"`
	Count   int      `json:"count"`
	LowUSD  float64  `json:"low_usd"`
	HighUSD float64  `json:"high_usd"`
	Watts   float64  `json:"watts"`
}

// Bill is a bill of materials.
type Bill struct {
	Describe string `json:"describe"`
	// Lengths says where the lengths are from.
	Lengths string `json:"lengths"`
	Hosts   int    `json:"hosts"`
	// Adapters counts the ports of hosts and routers that have a cable.
	Adapters int          `json:"adapter_ports"`
	Racks    int          `json:"racks,omitempty"`
	Rows     int          `json:"rows,omitempty"`
	Switches []SwitchLine `json:"switches"`
	Cables   []CableLine  `json:"cables"`
	// AdapterLines are the adapters' ports by kind.
	AdapterLines []AdapterLine `json:"adapters"`
	// Internal counts cables within a chassis, which nobody buys.
	Internal int `json:"internal,omitempty"`
	// TooLong are cables that no medium reaches.
	TooLong []string `json:"too_long,omitempty"`
	// Totals.
	SwitchCount int     `json:"switch_count"`
	CableCount  int     `json:"cable_count"`
	PortsUsed   int     `json:"ports_used"`
	PortsFree   int     `json:"ports_free"`
	TotalMM     int64   `json:"cable_length_mm"`
	LowUSD      float64 `json:"low_usd"`
	HighUSD     float64 `json:"high_usd"`
	Watts       float64 `json:"watts"`
	// IdleWatts is what of it is there without traffic.
	IdleWatts float64 `json:"idle_watts"`
	// Estimate says what the prices are worth.
	Estimate string `json:"estimate"`
}

// HasLengths reports whether somebody measured the cables of a fabric: one at least has a length that is not assumed.
func HasLengths(g *topo.Graph) bool {
	return slices.ContainsFunc(g.Cables(), func(c topo.Cable) bool { return c.LengthMM != topo.DefaultLengthMM })
}

// NewBill is a bill at the default prices.
func NewBill(g *topo.Graph, l *Layout) (*Bill, error) { return NewBillAt(g, l, DefaultPrices()) }

// NewBillAt counts what a fabric is made of. Lengths come from the layout; without one, from the cables themselves.
func NewBillAt(g *topo.Graph, l *Layout, prices *Prices) (*Bill, error) {
	hosts, _ := g.HostsApart()
	b := &Bill{Describe: topo.Describe(g), Lengths: "the topology's own", Hosts: len(hosts),
		Switches: []SwitchLine{}, Cables: []CableLine{}, AdapterLines: []AdapterLine{}, Estimate: prices.Origin}
	if l != nil {
		if list := l.unplaced(g); len(list) > 0 {
			return nil, &LayoutError{"layout", 0, ErrNotPlaced,
				fmt.Sprintf("%s of the fabric %s no place, such as %s: want a place line for each",
					numbered(len(list), "node", "nodes"), map[bool]string{true: "has", false: "have"}[len(list) == 1],
					strings.Join(list[:min(4, len(list))], ", "))}
		}
		b.Lengths = "the layout"
		if l.Made {
			b.Lengths = "a layout that was made up"
		}
		b.Racks = len(l.Racks)
		rows := map[int]bool{}
		for _, r := range l.Racks {
			rows[r.Row] = true
		}
		b.Rows = len(rows)
	}
	b.addSwitches(g, prices)
	b.addCables(g, l, prices)
	for i := range b.Switches {
		s := &b.Switches[i]
		b.IdleWatts += s.Watts * prices.switchIdle[s.Speed] / 100
		s.LowUSD, s.HighUSD, s.Watts = tenths(s.LowUSD), tenths(s.HighUSD), tenths(s.Watts)
		b.SwitchCount += s.Count
		b.PortsUsed += s.Used
		b.PortsFree += s.Free
		b.LowUSD, b.HighUSD, b.Watts = b.LowUSD+s.LowUSD, b.HighUSD+s.HighUSD, b.Watts+s.Watts
	}
	for i := range b.AdapterLines {
		a := &b.AdapterLines[i]
		b.IdleWatts += a.Watts * prices.adapterIdle[a.Speed] / 100
		a.LowUSD, a.HighUSD, a.Watts = tenths(a.LowUSD), tenths(a.HighUSD), tenths(a.Watts)
		b.LowUSD, b.HighUSD, b.Watts = b.LowUSD+a.LowUSD, b.HighUSD+a.HighUSD, b.Watts+a.Watts
	}
	for i := range b.Cables {
		c := &b.Cables[i]
		b.IdleWatts += c.Watts
		c.LowUSD, c.HighUSD, c.Watts = tenths(c.LowUSD), tenths(c.HighUSD), tenths(c.Watts)
		b.CableCount += c.Count
		b.TotalMM += int64(c.LengthMM) * int64(c.Count)
		b.LowUSD, b.HighUSD, b.Watts = b.LowUSD+c.LowUSD, b.HighUSD+c.HighUSD, b.Watts+c.Watts
	}
	b.LowUSD, b.HighUSD, b.Watts = tenths(b.LowUSD), tenths(b.HighUSD), tenths(b.Watts)
	b.IdleWatts = tenths(b.IdleWatts)
	return b, nil
}

// tenths rounds away what sums of fractions leave.
func tenths(v float64) float64 { return math.Round(10*v) / 10 }

func (b *Bill) addSwitches(g *topo.Graph, prices *Prices) {
	for _, n := range g.Switches() {
		used, ports := 0, n.NumPorts()
		speed := ib.Speed(0)
		for p := 1; p < len(n.Ports); p++ {
			at := &n.Ports[p]
			switch {
			case !at.Connected():
			case !g.Nodes[at.Peer].IsSwitch() && topo.IsPart(g.Nodes[at.Peer], n):
				ports-- // it is inside the box
			default:
				used++
				speed = max(speed, at.Speed)
			}
		}
		if !speed.IsValid() {
			speed = topo.DefaultLink.Speed
		}
		i := slices.IndexFunc(b.Switches, func(s SwitchLine) bool { return s.Ports == ports && s.Speed == speed })
		if i < 0 {
			i = len(b.Switches)
			b.Switches = append(b.Switches, SwitchLine{Ports: ports, Speed: speed, Rate: speed.String()})
		}
		s := &b.Switches[i]
		f := prices.switches[speed]
		share := float64(s.Ports) / float64(f.ports)
		s.Count++
		s.Used += used
		s.Free += s.Ports - used
		s.LowUSD, s.HighUSD, s.Watts = s.LowUSD+share*f.lowUSD, s.HighUSD+share*f.highUSD, s.Watts+share*f.watts
	}
	slices.SortFunc(b.Switches, func(a, b SwitchLine) int {
		return cmp.Or(cmp.Compare(b.Speed, a.Speed), cmp.Compare(b.Ports, a.Ports))
	})
}

// addAdapter counts a port of an adapter.
func (b *Bill) addAdapter(speed ib.Speed, prices *Prices) {
	b.Adapters++
	i := slices.IndexFunc(b.AdapterLines, func(a AdapterLine) bool { return a.Speed == speed })
	if i < 0 {
		i = len(b.AdapterLines)
		b.AdapterLines = append(b.AdapterLines, AdapterLine{Speed: speed, Rate: speed.String()})
	}
	a, f := &b.AdapterLines[i], prices.adapters[speed]
	a.Count++
	a.LowUSD, a.HighUSD, a.Watts = a.LowUSD+f.lowUSD, a.HighUSD+f.highUSD, a.Watts+f.watts
}

func (b *Bill) addCables(g *topo.Graph, l *Layout, prices *Prices) {
	for _, c := range g.Cables() {
		x, y := g.Nodes[c.A.Node], g.Nodes[c.B.Node]
		// What has one system image is one box: its cables are traces.
		if x.SystemGUID == y.SystemGUID && x.GUID != y.GUID || x.IsSwitch() != y.IsSwitch() && topo.IsPart(x, y) {
			b.Internal++
			continue
		}
		rate := g.LinkRate(c.A)
		speed := rate.Speed
		if !speed.IsValid() {
			speed = topo.DefaultLink.Speed
		}
		for _, n := range [2]*topo.Node{x, y} {
			if !n.IsSwitch() {
				b.addAdapter(speed, prices)
			}
		}
		need := c.LengthMM
		if l != nil {
			p, _ := l.Of(x.Name)
			q, _ := l.Of(y.Name)
			need = l.CableMM(p, q)
		}
		f, buy, ok := choose(prices.media[speed], need)
		if !ok {
			b.TooLong = append(b.TooLong, fmt.Sprintf("%s %s: %s at %v", g.PortName(c.A), g.PortName(c.B), metres(need),
				rate))
			continue
		}
		i := slices.IndexFunc(b.Cables, func(k CableLine) bool {
			return k.Medium == f.medium && k.LengthMM == buy && k.speed == speed && k.width == rate.Width
		})
		if i < 0 {
			i = len(b.Cables)
			b.Cables = append(b.Cables, CableLine{Medium: f.medium, Rate: rate.String(), LengthMM: buy, speed: speed,
				width: rate.Width})
		}
		k := &b.Cables[i]
		k.Count++
		if !x.IsSwitch() || !y.IsSwitch() {
			k.AtHosts++
		}
		k.LowUSD += f.lowUSD + f.lowUSDMetre*float64(buy)/1000
		k.HighUSD += f.highUSD + f.highUSDMetre*float64(buy)/1000
		k.Watts += 2 * f.watts
	}
	slices.SortFunc(b.Cables, func(a, b CableLine) int {
		return cmp.Or(cmp.Compare(b.speed, a.speed), cmp.Compare(b.width, a.width), cmp.Compare(a.Medium, b.Medium),
			cmp.Compare(a.LengthMM, b.LengthMM))
	})
}

// Length is a sold length in words.
func (c CableLine) Length() string { return metres(c.LengthMM) }
