package check

import (
	"math/rand/v2"

	"softib/driver/sim"
	"softib/node/hca"
	"softib/node/link"
	"softib/proto/ib"
	"softib/proto/topo"
	"softib/subnet/route"
)

// Ethernet makes a scenario one of RoCEv2.
type Ethernet struct {
	Flow link.Flow
	Port link.Ethernet
	RoCE hca.RoCE
	// Hash: switches that choose do it by hash.
	Hash bool
}

// drawEthernet draws whether a scenario is one of RoCEv2, by randomness of its own, as drawAdaptive.
func (sc *Scenario) drawEthernet() {
	rng := rand.New(rand.NewPCG(sc.Seed, 0x40CE))
	if sc.Machine.Direct > 0 || rng.IntN(2) > 0 || sc.Engines != "" {
		return // direct ways go past the cables, and a hash takes no detours
	}
	e := &Ethernet{Flow: link.Pause, Hash: rng.IntN(4) > 0, RoCE: hca.RoCE{On: true}}
	e.Port.Quanta = [...]uint16{0, 10, 1000}[rng.IntN(3)]
	lossy := len(sc.Faults) > 0 || sc.HOQ > 0 || sc.Life > 0 || sc.Machine.Stalls > 0 || sc.Machine.Renews > 0
	if lossy && rng.IntN(3) > 0 {
		e.Flow = link.Lossy
	}
	if lossy && rng.IntN(2) == 0 {
		// Timers are longer than a queue in a small fabric holds a packet.
		e.RoCE.Selective = hca.Selective{On: true, Window: [...]int{4, 32, 128}[rng.IntN(3)], Few: 1 + rng.IntN(3),
			RTOLow: 2 * ib.Millisecond, RTOHigh: 4 * ib.Millisecond}
		e.Hash = true // what others overtake would count as lost
	}
	if !sc.Calm && rng.IntN(3) > 0 {
		us := func(n int) ib.Time { return ib.Time(1+rng.IntN(n)) * ib.Microsecond }
		e.RoCE.DCQCN = hca.DCQCN{On: true, CNPInterval: us(50), AlphaTimer: us(50), RateTimer: us(20),
			Rounds: 1 + rng.IntN(5), ByteCounter: int64(1+rng.IntN(64)) << 10, MinMbps: 2000, AdditiveMbps: 400,
			GShift: uint8(1 + rng.IntN(8))}
		e.Port.RED = link.RED{Kmin: rng.IntN(20_000), Kmax: 20_000 + rng.IntN(100_000),
			Pmax: uint32(rng.IntN(1_000_000))}
	}
	sc.Ethernet, sc.Marking, sc.Slowing = e, link.Marking{}, nil
	sc.Machine.RoCE = e.RoCE
}

// setEthernet makes a simulation one of Ethernet.
func (sc *Scenario) setEthernet(cfg *sim.Config) {
	if e := sc.Ethernet; e != nil {
		cfg.Port.Flow, cfg.Port.Ethernet, cfg.RoCE = e.Flow, e.Port, e.RoCE
	}
}

// setChoosing lets switches that choose do it by hash, or tell each other where there is no way, or take detours where
// nobody would.
func (sc *Scenario) setChoosing(s *sim.Sim, g *topo.Graph) {
	hash := sc.Ethernet != nil && sc.Ethernet.Hash
	if sc.Adaptive == route.NoChoice || !hash && !sc.Notify && sc.Engines == "" {
		return
	}
	for _, n := range g.Switches() {
		a := s.Switch(n.Index).Adaptive()
		if sc.Engines != "" {
			a.Bias = sc.Bias
		}
		if a.Notify = sc.Notify; hash {
			a.Hash, a.Salt = true, sc.Seed+uint64(n.Index)
		}
		s.Switch(n.Index).SetAdaptive(a)
	}
}

// loses reports whether buffers may be found full: where nothing keeps senders from sending, and where pauses come late
// or are forgotten with their link.
func (sc *Scenario) loses(late bool) bool {
	return sc.Ethernet != nil && (sc.Ethernet.Flow == link.Lossy || late)
}
