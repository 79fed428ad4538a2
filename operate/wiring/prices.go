package wiring

import (
	"fmt"
	"slices"
	"strings"

	"softib/proto/ib"
)

// adapterFact is an adapter's port of a generation.
type adapterFact struct{ lowUSD, highUSD, watts float64 }

// adapters are what a port of an adapter of each speed is like. Power and prices are assumed, as those of switches are:
// no document or price list was read for them.
var adapters = [ib.NumSpeed]adapterFact{
	ib.SDR: {50, 300, 8}, ib.DDR: {50, 400, 8}, ib.QDR: {80, 600, 9}, ib.FDR10: {100, 700, 10}, ib.FDR: {150, 900, 11},
	ib.EDR: {400, 1000, 16}, ib.HDR: {800, 1600, 20}, ib.NDR: {1300, 2600, 25}, ib.XDR: {2000, 4500, 50},
}

// How many per cent of their power switches and adapters take when they carry nothing. Assumed: that it is most of it,
// and about the same for all, is what studies of energy in networks say (Abts and others, Energy Proportional
// Datacenter Networks, ISCA 2010). Cables and transceivers take the same whatever they carry.
const (
	idleSwitch  = 85
	idleAdapter = 80
)

// Estimate is what has to be said beside every price.
const Estimate = "prices and power are rough estimates of November 2026: prices are orders of magnitude in US " +
	"dollars, taken from no price list; ask for an offer before you decide"

// Prices is what everything costs, in dollars and in watts.
type Prices struct {
	media    [ib.NumSpeed][]mediumFact
	switches [ib.NumSpeed]switchFact
	adapters [ib.NumSpeed]adapterFact
	// How many per cent of the power are there without traffic.
	switchIdle, adapterIdle [ib.NumSpeed]float64
	// Origin says what they are worth.
	Origin string
}

// DefaultPrices are those of the tables.
func DefaultPrices() *Prices {
	p := &Prices{switches: switches, adapters: adapters, Origin: Estimate}
	for s := range media {
		p.media[s] = slices.Clone(media[s])
		p.switchIdle[s], p.adapterIdle[s] = idleSwitch, idleAdapter
	}
	return p
}

// bitsPerSecond of four lanes, which is what the tables are for.
func bitsPerSecond(s ib.Speed) float64 {
	return 1e6 * float64(ib.LinkRate{Width: ib.Width4x, Speed: s}.Mbps())
}

// SwitchBit is how many joules a switch takes for a bit that it sends on: what it takes more with all its ports busy
// than without traffic, by what they send then.
func (p *Prices) SwitchBit(s ib.Speed) float64 {
	f := p.switches[s]
	return f.watts * (1 - p.switchIdle[s]/100) / (float64(f.ports) * bitsPerSecond(s))
}

// AdapterBit is how many joules an adapter takes for a bit that it sends or receives.
func (p *Prices) AdapterBit(s ib.Speed) float64 {
	return p.adapters[s].watts * (1 - p.adapterIdle[s]/100) / (2 * bitsPerSecond(s))
}

// String writes them as ParsePrices reads them.
func (p *Prices) String() string {
	var b strings.Builder
	for s := ib.SDR; s < ib.NumSpeed; s++ {
		f, a := p.switches[s], p.adapters[s]
		fmt.Fprintf(&b, "switch %v usd %v %v watts %v idle %v ports %d\n", s, f.lowUSD, f.highUSD, f.watts,
			p.switchIdle[s], f.ports)
		fmt.Fprintf(&b, "adapter %v usd %v %v watts %v idle %v\n", s, a.lowUSD, a.highUSD, a.watts, p.adapterIdle[s])
		for _, m := range p.media[s] {
			fmt.Fprintf(&b, "cable %v %s usd %v %v metre %v %v watts %v reach %v\n", s, mediumWords[m.medium], m.lowUSD,
				m.highUSD, m.lowUSDMetre, m.highUSDMetre, m.watts, float64(m.reachMM)/1000)
		}
	}
	return b.String()
}
