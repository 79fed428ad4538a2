package check

import (
	"fmt"
	"math/rand/v2"
	"strings"

	"softib/node/aggregate"
	"softib/proto/ib"
	"softib/proto/topo"
)

// Reductions is a history in which switches add: jobs whose hosts do operations together, and faults meanwhile.
type Reductions struct {
	Seed         uint64
	Topo         string
	MTU          ib.MTU
	StoreForward bool
	// Streams is how many trees may stream at a switch: a job beyond it waits for its turn.
	Streams int
	// Latency, PerMessage and PerByte are the nodes'.
	Latency, PerMessage, PerByte ib.Time
	// Multicast: results come by multicast, too.
	Multicast bool
	// Timeout and Retry are the queue pairs', Patience the members', and Mend is the manager's pace.
	Timeout, Retry uint8
	Patience, Mend ib.Time
	Jobs           []RedJob
	Faults         []RedFault
}

// RedJob is a job: its hosts, and the operations that they do one after the other, Ahead of them at a time.
type RedJob struct {
	Hosts         []int
	OSTs, Payload int
	Stream        bool
	Ahead         int
	Ops           []aggregate.Operation
}

// RedFault is a fault of a history of data, or a switch that starts anew.
type RedFault struct {
	Fault
	// Reboot is 1 + which switch starts anew; 0 for none.
	Reboot int
}

func (f RedFault) String() string {
	if f.Reboot > 0 {
		return fmt.Sprintf("at %v switch %d starts anew, and has its tables back after %v", f.At, f.Reboot, f.For)
	}
	return f.Fault.String()
}

// drawsReductions reports whether the history of a seed has one of reductions beside it, by randomness of its own, so
// that seeds from before there were any are what they were.
func drawsReductions(seed uint64) bool {
	return rand.New(rand.NewPCG(seed, 0x5A49)).IntN(4) == 0
}

// DrawReductions makes the history of a seed. hosts is as Draw has it.
func DrawReductions(seed uint64, hosts int) Reductions {
	rng := rand.New(rand.NewPCG(seed, 0x5A4A))
	one := func(n int) bool { return rng.IntN(n) == 0 }
	sc := Reductions{Seed: seed, MTU: ib.MTU1024 + ib.MTU(rng.IntN(3)), StoreForward: one(8), Streams: 1 + rng.IntN(2),
		Latency: ib.Time(rng.IntN(700)) * ib.Nanosecond, Timeout: uint8(2 + rng.IntN(4)), Retry: uint8(1 + rng.IntN(7)),
		Mend: ib.Time(2+rng.IntN(60)) * ib.Microsecond}
	sc.Patience = ib.Time(300+rng.IntN(3000)) * ib.Microsecond
	if hosts == 0 {
		hosts = 2 + rng.IntN(15)
	}
	var shape Scenario
	for shape.Topo == "" || strings.HasPrefix(shape.Topo, "pair") { // which has no switch
		shape.drawTopo(rng, hosts)
	}
	sc.Topo = shape.Topo
	g := sc.graph()
	n := len(g.Hosts())
	for range 1 + rng.IntN(3) {
		j := RedJob{OSTs: 1 + rng.IntN(8), Payload: 8 * (1 + rng.IntN(32)), Ahead: 1 + rng.IntN(4)}
		if j.Stream = one(3); j.Stream {
			j.OSTs, j.Payload = 8+rng.IntN(40), sc.MTU.Bytes()-aggregate.HeaderLen
		}
		j.Hosts = rng.Perm(n)[:min(n, 2+rng.IntN(n))]
		for id := range uint64(5 + rng.IntN(25)) {
			j.Ops = append(j.Ops, drawOp(rng, id, &j))
		}
		sc.Jobs = append(sc.Jobs, j)
	}
	if !one(5) {
		sc.drawFaults(rng, g)
	}
	// Nodes that take messages in one after the other have randomness of their own, as they came later.
	if own := rand.New(rand.NewPCG(seed, 0x5A4B)); own.IntN(3) == 0 {
		sc.PerMessage, sc.PerByte = ib.Time(own.IntN(100))*ib.Nanosecond, ib.Time(1+own.IntN(200))
	}
	sc.Multicast = rand.New(rand.NewPCG(seed, 0x5A4C)).IntN(3) == 0
	return sc
}

// drawOp draws an operation. Floating-point numbers are of kinds whose sums depend on the order.
func drawOp(rng *rand.Rand, id uint64, j *RedJob) aggregate.Operation {
	o := aggregate.Operation{ID: id, Target: aggregate.Everybody, From: aggregate.Everybody}
	for first := true; first || !aggregate.Fits(o.Op, o.Type); first = false {
		o.Op, o.Type = aggregate.Op(rng.IntN(int(aggregate.NumOp))), aggregate.Type(rng.IntN(int(aggregate.NumType)))
	}
	if rng.IntN(3) == 0 {
		o.Op, o.Type = aggregate.Sum, aggregate.Float32
	}
	size := uint64(o.Size())
	o.Bytes = size * uint64(rng.IntN(3*j.Payload/o.Size()+1))
	if j.Stream {
		o.Bytes = size * uint64(rng.IntN(60000/o.Size()))
	}
	switch rng.IntN(6) {
	case 0:
		o.Target = uint32(rng.IntN(len(j.Hosts)))
	case 1:
		o.From = uint32(rng.IntN(len(j.Hosts)))
	case 2:
		o.Bytes = 0
	}
	return o
}

func (sc *Reductions) drawFaults(rng *rand.Rand, g *topo.Graph) {
	var as Scenario
	as.drawFaults(rng, g)
	for _, f := range as.Faults {
		sc.Faults = append(sc.Faults, RedFault{Fault: f})
	}
	for range rng.IntN(3) {
		f := Fault{At: ib.Time(rng.Int64N(int64(busy / 4))), For: ib.Time(20+rng.IntN(200)) * ib.Microsecond}
		switch rng.IntN(2) {
		case 0: // in the middle of things
			f.Kind, f.Cable = Flap, rng.IntN(g.NumCables())
			sc.Faults = append(sc.Faults, RedFault{Fault: f})
		default:
			sc.Faults = append(sc.Faults, RedFault{Fault: f, Reboot: 1 + rng.IntN(len(g.Switches()))})
		}
	}
}

func (sc *Reductions) graph() *topo.Graph {
	g, err := topo.ParseSpec(sc.Topo)
	if err != nil {
		panic(err) // a spec that is drawn is never wrong
	}
	return g
}

// quiet is when the last fault is over.
func (sc *Reductions) quiet() (t ib.Time) {
	for i := range sc.Faults {
		t = max(t, sc.Faults[i].At+sc.Faults[i].For)
	}
	return t
}

// stops reports whether a host stops for good, without which its jobs cannot go on.
func (sc *Reductions) stops(host int) bool {
	for i := range sc.Faults {
		if f := &sc.Faults[i]; f.Kind == Stop && f.Host == host && f.Reboot == 0 {
			return true
		}
	}
	return false
}

// ruin plans the faults.
func (r *redRun) ruin() {
	cables := r.sc.graph().Cables()
	var as Scenario
	for i := range r.sc.Faults {
		f := &r.sc.Faults[i]
		if f.Reboot == 0 {
			as.plan(r.sim, &f.Fault, cables)
			continue
		}
		node := r.sim.Graph().Switches()[f.Reboot-1].Index
		r.sim.PlanReboot(f.At, node)
		r.sim.At(f.At+f.For, timerTables)
	}
	if r.sc.quiet() > 0 {
		// Tables that were written while a cable was out lead around it.
		r.sim.At(r.sc.quiet()+trainTime, timerTables)
	}
}

// trainTime is more than cables take to train.
const trainTime = 20 * ib.Microsecond
