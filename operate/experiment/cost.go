package experiment

import (
	"softib/driver/jobs"
	"softib/operate/wiring"
)

// Cost is what a fabric costs, as softib topo bom has it: switches, adapters and cables.
type Cost struct {
	LowUSD  float64 `json:"low_usd"`
	HighUSD float64 `json:"high_usd"`
	// Watts is what it takes when it is busy, IdleWatts without traffic.
	Watts     float64 `json:"watts"`
	IdleWatts float64 `json:"idle_watts"`
	// Note says what the figures are worth.
	Note string `json:"note"`
}

// Energy is what the fabric has used in a run.
type Energy struct {
	wiring.Energy
	// PerByte is the total by what the load has sent, in joules.
	PerByte float64 `json:"per_byte_J"`
}

// costs says what the fabric costs and what it has used. Hosts are not counted, their adapters are. An ideal network
// has none.
func (r *Report) costs(s *Spec, f *jobs.Fabric, look *sampler) error {
	if r.Level == IdealNet {
		return nil
	}
	prices := s.Prices
	if prices == nil {
		prices = wiring.DefaultPrices()
	}
	b, err := wiring.EstimateBill(s.Graph, prices)
	if err != nil {
		return err
	}
	r.Cost = &Cost{b.LowUSD, b.HighUSD, b.Watts, b.IdleWatts, b.Estimate}
	sent := make([]wiring.Sent, len(look.links))
	for i := range look.links {
		l := &look.links[i]
		sent[i] = wiring.Sent{From: f.Ways.Port(l.link), Bytes: l.carried}
	}
	r.Energy = &Energy{Energy: b.Energy(s.Graph, prices, seconds(look.last), sent)}
	if r.Load.Bytes > 0 {
		r.Energy.PerByte = r.Energy.Total / float64(r.Load.Bytes)
	}
	return nil
}
