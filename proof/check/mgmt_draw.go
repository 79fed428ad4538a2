package check

import (
	"fmt"
	"math/rand/v2"

	"softib/fabric"
	"softib/proto/ib"
	"softib/proto/topo"
	"softib/subnet/route"
)

// DrawManagement makes the management scenario of a seed. hosts is how many to have, about; 0 lets the seed choose.
func DrawManagement(seed uint64, hosts int) Management {
	rng := rand.New(rand.NewPCG(seed, 0x5BE7))
	one := func(n int) bool { return rng.IntN(n) == 0 }
	sc := Management{
		Seed: seed, VLs: 8, Window: 1 << rng.IntN(7), Timeout: ib.Time(1+rng.IntN(3)) * ib.Millisecond, Retries: 2 +
			rng.IntN(2),
		SweepInterval: ib.Time(5+rng.IntN(15)) * ib.Millisecond, PollInterval: ib.Time(2+rng.IntN(8)) * ib.Millisecond,
		PollRetries: 2 + rng.IntN(3),
	}
	if !one(4) {
		sc.AgentTime = ib.Time(1+rng.IntN(200)) * 100 * ib.Nanosecond
	}
	if one(2) {
		sc.JobTime = ib.Time(1+rng.IntN(2000)) * ib.Microsecond
	}
	if one(6) {
		sc.LMC = uint8(1 + rng.IntN(2))
	}
	if one(4) {
		sc.MKey, sc.MKeyProtect = 1+rng.Uint64()>>1, uint8(rng.IntN(3))
	}
	if hosts == 0 {
		hosts = 3 + rng.IntN(14)
	}
	sc.drawTopo(rng, hosts)
	g := sc.graph()
	n := len(g.Hosts())
	// Managers: one, two or three, at different hosts, often of one priority.
	for k := range 1 + rng.IntN(min(3, n)) {
		r := Ruler{Host: rng.IntN(n), Priority: uint8(rng.IntN(3))}
		for i := 0; i < k; i++ {
			if sc.Managers[i].Host == r.Host {
				r.Host = (r.Host + 1) % n
				i = -1
			}
		}
		if k > 0 && one(2) {
			r.At = moment(rng)
		}
		sc.Managers = append(sc.Managers, r)
	}
	sc.drawFaults(rng, g)
	if n > 1 && !one(4) {
		for range 1 + rng.IntN(6) {
			c := MgmtConn{From: rng.IntN(n), Size: 1 + rng.IntN(6000),
				Every: ib.Time(50+rng.IntN(1500)) * ib.Microsecond, Patient: one(2)}
			c.To = (c.From + 1 + rng.IntN(n-1)) % n
			sc.Conns = append(sc.Conns, c)
		}
	}
	if one(3) {
		sc.drawTenants(rng, n)
	}
	sc.drawTurns(rand.New(rand.NewPCG(seed, 0x7E2)), n)
	// By randomness of its own, as Scenario.drawAdaptive.
	if own := rand.New(rand.NewPCG(seed, 0xADA7)); own.IntN(3) == 0 {
		sc.Adaptive = route.ByPacket + route.Choice(own.IntN(3))
	}
	return sc
}

// faultTime is how long things go wrong.
const faultTime = 120 * ib.Millisecond

func moment(rng *rand.Rand) ib.Time { return ib.Time(1 + rng.Int64N(int64(faultTime))) }

func (sc *Management) drawTopo(rng *rand.Rand, hosts int) {
	per := 1 + rng.IntN(2)
	sc.Engines = [...]string{"ftree,updn", "ftree,updn", "updn", "dfsssp", "nue", "minhop"}[rng.IntN(6)]
	if rng.IntN(2) == 0 && sc.Engines != "dfsssp" {
		sc.VLs = 1
	}
	switch rng.IntN(8) {
	case 0, 1, 2:
		radix := 4
		for radix*radix/2 < hosts {
			radix += 2
		}
		sc.Topo = fmt.Sprintf("fat-tree:radix=%d,levels=2,hosts=%d", radix, hosts)
	case 3:
		sc.Topo = fmt.Sprintf("torus:3x%d,hosts=1", max(2, hosts/3))
	case 4:
		sc.Topo = fmt.Sprintf("ring:%d,hosts=%d", max(3, hosts/per), per)
	case 5:
		sc.Topo = "dragonfly:a=2,p=1,h=1"
	default:
		switches := 3 + rng.IntN(7)
		sc.Topo = fmt.Sprintf("random:switches=%d,hosts=%d,links=%d,seed=%d", switches, hosts, switches+
			rng.IntN(switches), rng.IntN(1<<20))
	}
}

// drawFaults draws faults in bursts: what goes wrong while a manager is about to mend something else is
// what it is least prepared for.
func (sc *Management) drawFaults(rng *rand.Rand, g *topo.Graph) {
	cables, switches := g.Cables(), g.Switches()
	dead := map[int]bool{}
	for range 1 + rng.IntN(5) {
		at := moment(rng)
		for range 1 + rng.IntN(4) {
			f := MgmtFault{At: at, For: span(rng), Cable: rng.IntN(len(cables)), Node: rng.IntN(len(g.Nodes)),
				Ruler: rng.IntN(len(sc.Managers))}
			at += span(rng) / 10
			switch rng.IntN(12) {
			case 0, 1:
				f.Kind = LoseMADs
				f.Harm = fabric.Faults{MgmtOnly: true, DelayMax: ib.Time(1+rng.IntN(300)) * ib.Microsecond}
				for _, p := range []*float64{&f.Harm.Drop, &f.Harm.Drop, &f.Harm.Corrupt, &f.Harm.Duplicate,
					&f.Harm.Delay} {
					if rng.IntN(2) == 0 {
						*p = [...]float64{0.01, 0.05, 0.2, 0.5, 0.9}[rng.IntN(5)]
					}
				}
				if rng.IntN(2) == 0 {
					f.Cable = AllCables
				}
			case 2, 3, 4, 5:
				f.Kind = FlapCable
			case 6:
				if f.Kind, f.For = PullCable, 0; dead[f.Cable] || !staysJoined(g, cables, dead, f.Cable) {
					f.Kind, f.For = FlapCable, span(rng)
				} else {
					dead[f.Cable] = true
				}
			case 7, 8:
				f.Kind, f.For = RebootNode, 0
				f.Node = switches[rng.IntN(len(switches))].Index
			case 9:
				f.Kind = MuteNode
			default:
				f.Kind, f.Forgets = KillManager, rng.IntN(3) == 0
				// The last manager never dies for good.
				f.Stays = f.Ruler > 0 && rng.IntN(4) == 0
			}
			sc.Faults = append(sc.Faults, f)
		}
	}
}

// span is how long something lasts: a few microseconds as often as many milliseconds.
func span(rng *rand.Rand) ib.Time {
	return ib.Time(1+rng.IntN(9)) * [...]ib.Time{ib.Microsecond, 10 * ib.Microsecond, 100 * ib.Microsecond,
		ib.Millisecond, 5 * ib.Millisecond}[rng.IntN(5)]
}

// staysJoined reports whether all nodes are still joined without the dead cables and one more.
func staysJoined(g *topo.Graph, cables []topo.Cable, dead map[int]bool, one int) bool {
	group := make([]int, len(g.Nodes))
	for i := range group {
		group[i] = i
	}
	var find func(int) int
	find = func(i int) int {
		if group[i] != i {
			group[i] = find(group[i])
		}
		return group[i]
	}
	for i, c := range cables {
		if !dead[i] && i != one {
			group[find(c.A.Node)] = find(c.B.Node)
		}
	}
	for i := range group {
		if find(i) != find(0) {
			return false
		}
	}
	return true
}
