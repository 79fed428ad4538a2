package wiring

import (
	"softib/proto/topo"
)

// Sent is what a port has sent on its cable.
type Sent struct {
	From  topo.PortRef
	Bytes float64
}

// Energy is what a fabric has used in a time, in joules.
type Energy struct {
	// Idle is what it would have used without traffic, and Traffic what that has added.
	Idle    float64 `json:"idle_J"`
	Traffic float64 `json:"traffic_J"`
	Total   float64 `json:"total_J"`
}

// Energy is what the fabric of a bill uses in so many seconds in which its ports send what they do. Every bit is paid
// for by each switch that sends it on, and by the adapters at its two ends.
func (b *Bill) Energy(g *topo.Graph, p *Prices, seconds float64, sent []Sent) Energy {
	e := Energy{Idle: b.IdleWatts * seconds}
	for _, s := range sent {
		speed := g.LinkRate(s.From).Speed
		if !speed.IsValid() {
			speed = topo.DefaultLink.Speed
		}
		from, port := g.Nodes[s.From.Node], g.Port(s.From)
		joules := 0.0
		if from.IsSwitch() {
			joules += p.SwitchBit(speed)
		} else {
			joules += p.AdapterBit(speed)
		}
		if port.Connected() && !g.Nodes[port.Peer].IsSwitch() {
			joules += p.AdapterBit(speed)
		}
		e.Traffic += 8 * s.Bytes * joules
	}
	e.Total = e.Idle + e.Traffic
	return e
}

// EstimateBill is the bill of a fabric that nobody has laid out: by its own lengths if it has any, else in a layout
// that is made up.
func EstimateBill(g *topo.Graph, p *Prices) (*Bill, error) {
	if HasLengths(g) {
		return NewBillAt(g, nil, p)
	}
	return NewBillAt(g, DefaultLayout(g), p)
}
