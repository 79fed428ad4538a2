package live

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"softib/driver/endpoint"
	"softib/node/ibswitch"
	"softib/node/link"
	"softib/proto/ib"
	"softib/proto/topo"
	"softib/proto/wire"
)

// Whoever walks the tables and whoever carries a datagram of management must come to the same ports, on the same lanes,
// and have the same port count a drop, as a packet that goes through the switches one by one. Here switches have
// random tables, states, partitions and lanes, and all three are asked about random packets.
func TestOneDecision(t *testing.T) {
	seeds := uint64(400)
	if testing.Short() {
		seeds = 100
	}
	reasons := map[link.Reason]int{}
	arrived := 0
	for seed := range seeds {
		rng := rand.New(rand.NewPCG(seed, 1))
		spec := []string{"star:3", "fat-tree:radix=4,levels=2", "torus:2x2", "fat-tree:radix=4,levels=3"}[seed%4]
		g, err := topo.ParseSpec(spec)
		if err != nil {
			t.Fatal(err)
		}
		f, err := New(g, Config{})
		if err != nil {
			t.Fatal(err)
		}
		d := decisions{t, f, rng, map[hop]int{}}
		d.scramble()
		for range 60 {
			if !d.compare(seed, reasons, &arrived) {
				break
			}
		}
		f.Close()
	}
	t.Logf("%d packets arrived, drops: %v", arrived, reasons)
	for _, r := range []link.Reason{link.NotReady, link.Malformed, link.PKeyIn, link.PKeyOut, link.UnknownDLID,
		link.Looping,
		link.NoMember, link.BadVLMap, link.Inactive} {
		if reasons[r] == 0 {
			t.Errorf("no packet was dropped for %v", r)
		}
	}
	if arrived == 0 {
		t.Error("no packet arrived")
	}
}

type decisions struct {
	t    *testing.T
	f    *Fabric
	rng  *rand.Rand
	went map[hop]int // ports that the packet passed
}

const topLID, groups = 12, 4

// scramble gives every port and switch a random configuration, and every lane its credits.
func (d *decisions) scramble() {
	rng := d.rng
	one := func(n int) bool { return rng.IntN(n) == 0 }
	keys := []ib.PKey{0xFFFF, 0x8001, 0x0001, 0x7FFF}
	lanes := func() (m [ib.NumSL]ib.VL) {
		for sl := range m {
			m[sl] = ib.VL(rng.IntN(4))
			if one(12) {
				m[sl] = ib.VL(rng.IntN(16))
			}
		}
		return m
	}
	d.ports(func(p *portState) {
		l := p.link
		if p.peer == nil {
			return
		}
		vls := []uint8{1, 2, 4, 4, 8, 8}
		l.SetOperVLs(0, vls[rng.IntN(len(vls))])
		for _, to := range []ib.PortState{ib.PortArmed, ib.PortActive} {
			if !one(25) {
				l.Command(0, to)
			}
		}
		if one(40) {
			l.Down(0)
		}
		if one(5) {
			l.SetPKeys(keys[:rng.IntN(len(keys)+1)])
			l.SetEnforcement(link.Enforce(rng.IntN(16)))
		}
		if p.host != nil && one(4) {
			l.SetSL2VL(lanes())
		}
	})
	for _, s := range d.f.switches {
		e, n := s.sw, s.topo.NumPorts()
		for lid := ib.LID(1); lid <= topLID; lid++ {
			e.SetRoute(lid, ib.PortNum(1+rng.IntN(n)))
			if one(15) {
				e.SetRoute(lid, []ib.PortNum{0, ibswitch.DropPort, ib.PortNum(n + 1)}[rng.IntN(3)])
			}
		}
		if one(4) {
			e.SetLinearFDBTop(ib.LID(rng.IntN(topLID)))
		}
		for g := range groups {
			if one(2) {
				continue
			}
			var m ib.PortMask
			for range 1 + rng.IntN(2) {
				m.Set(ib.PortNum(rng.IntN(n + 2)))
			}
			e.SetMulticastPorts(ib.LIDMulticastMin+ib.LID(g), m)
		}
		if one(2) {
			e.SetDefaultMcast(ib.PortNum(rng.IntN(n+2)), ib.PortNum(rng.IntN(n+2)))
		}
		if one(3) {
			e.SetSL2VLAll(lanes())
		}
		for range rng.IntN(3) {
			e.SetSL2VL(ib.PortNum(rng.IntN(n+1)), ib.PortNum(1+rng.IntN(n)), lanes())
		}
	}
}

func (d *decisions) ports(do func(*portState)) {
	for _, s := range d.f.switches {
		for _, p := range s.ports[1:] {
			do(p)
		}
	}
	for _, h := range d.f.hosts {
		for _, p := range h.ports[1:] {
			do(p)
		}
	}
}

// errors are the counters of a port that reasons of drops move.
func errorsOf(p *link.Port) (c ib.Counters) {
	all := p.Counters()
	for _, i := range []ib.Counter{ib.PortRcvErrors, ib.PortLocalPhysicalErrors, ib.PortMalformedPacketErrors,
		ib.PortBufferOverrunErrors, ib.VL15Dropped, ib.PortRcvConstraintErrors, ib.PortRcvSwitchRelayErrors,
		ib.PortDLIDMappingErrors, ib.PortLoopingErrors, ib.PortVLMappingErrors, ib.PortXmitDiscards,
		ib.PortInactiveDiscards, ib.PortNeighborMTUDiscards, ib.PortXmitConstraintErrors} {
		c[i] = all[i]
	}
	return c
}

func (d *decisions) errors() map[*portState]ib.Counters {
	m := map[*portState]ib.Counters{}
	d.ports(func(p *portState) { m[p] = errorsOf(p.link) })
	return m
}

// compare sends one packet by each of the three. It reports false when states have changed and the fabric is not as it
// was.
func (d *decisions) compare(seed uint64, reasons map[link.Reason]int, arrived *int) bool {
	t, rng := d.t, d.rng
	from := d.f.hosts[rng.IntN(len(d.f.hosts))].ports[1]
	key := endpoint.Key{Port: 1, DLID: ib.LID(1 + rng.IntN(topLID+1)), SL: ib.SL(rng.IntN(16)), PKey: 0xFFFF}
	if rng.IntN(3) == 0 {
		key.DLID = ib.LIDMulticastMin + ib.LID(rng.IntN(groups+1))
	}
	if rng.IntN(4) == 0 {
		key.PKey = 0x8001
	}
	d.f.mu.Lock()
	defer d.f.mu.Unlock()
	before := d.errors()
	w := d.f.newWalker(key)
	w.dry = true
	rt := w.route
	w.depart(from)
	if !maps.Equal(before, d.errors()) {
		t.Fatalf("seed %d: looking for the way of %+v counted something", seed, key)
	}
	ends, finite, still := d.send(from, key)
	if !finite {
		if len(rt.losses) == 0 || rt.losses[len(rt.losses)-1].reason != link.Looping && !slices.ContainsFunc(rt.losses,
			func(l loss) bool { return l.reason == link.Looping }) {
			t.Fatalf("seed %d: %+v goes round for ever, and the walk says %v", seed, key, rt.lost().reason)
		}
		return false
	}
	if !still && key.DLID.IsMulticast() {
		return false // one copy has activated a port for the other
	}
	byPort := func(a, b hop) int {
		return cmp.Or(cmp.Compare(a.p.name(), b.p.name()), cmp.Compare(a.vl, b.vl))
	}
	slices.SortFunc(ends, byPort)
	slices.SortFunc(w.found, byPort)
	if !slices.Equal(ends, w.found) {
		t.Fatalf("seed %d: %+v from %s: the packet comes to %d ports, the walk to %d", seed, key, from.name(),
			len(ends),
			len(w.found))
	}
	hops := map[hop]int{}
	for _, h := range rt.hops {
		hops[h]++
	}
	if !maps.Equal(hops, d.went) {
		t.Fatalf("seed %d: %+v from %s: the packet passes %v, the walk %v", seed, key, from.name(), d.went, hops)
	}
	want := map[*portState]*link.Port{}
	for _, l := range rt.losses {
		if want[l.p] == nil {
			want[l.p] = link.NewPort(link.Config{})
		}
		want[l.p].Count(l.reason)
		reasons[l.reason]++
	}
	d.ports(func(p *portState) {
		moved := errorsOf(p.link)
		for i, n := range before[p] {
			moved[i] -= n
		}
		if want[p] == nil && moved != (ib.Counters{}) || want[p] != nil && moved != errorsOf(want[p]) {
			t.Fatalf("seed %d: %+v from %s: %s counts %v, the walk ends %+v", seed, key, from.name(), p.name(), moved,
				rt.losses)
		}
	})
	*arrived += len(ends)
	if key.DLID.IsUnicast() && still {
		d.probe(seed, key, from, w)
	}
	return still
}

// probe compares with what a datagram of management comes to.
func (d *decisions) probe(seed uint64, key endpoint.Key, from *portState, w *walker) {
	d.f.mu.Unlock()
	got, err := d.f.Probe(from.ref(), key.DLID, key.SL, key.PKey)
	d.f.mu.Lock()
	if err != nil {
		d.t.Fatal(err)
	}
	switch {
	case w.route.lost().p != nil &&
		(got.Arrived || got.At != w.route.lost().p.ref() || got.Reason != w.route.lost().reason):
		d.t.Fatalf("seed %d: %+v from %s: the walk ends at %s for %v, the datagram %+v", seed, key, from.name(),
			w.route.lost().p.name(), w.route.lost().reason, got)
	case w.route.lost().p == nil && got.Reason != link.OK:
		d.t.Fatalf("seed %d: %+v from %s: the walk arrives, the datagram %+v", seed, key, from.name(), got)
	case len(w.found) == 1 && got.At != w.found[0].p.ref():
		d.t.Fatalf("seed %d: %+v from %s: the walk comes to %s, the datagram %+v", seed, key, from.name(),
			w.found[0].p.name(), got)
	}
}

// send lets a real packet go through the engines, in no time, and says where it comes to, whether it ends, and whether
// it has left all states as they were.
func (d *decisions) send(from *portState, key endpoint.Key) (ends []hop, finite, still bool) {
	clear(d.went)
	pool := &d.f.pool
	f := pool.Get()
	*f.Packet = wire.Packet{
		LRH: wire.LRH{LNH: wire.LNHLocal, SL: key.SL, DLID: key.DLID, SLID: 1},
		BTH: wire.BTH{Opcode: wire.MakeOpcode(wire.UC, wire.OpSendOnly), PKey: key.PKey, DestQP: 7},
	}
	f.Packet.Seal()
	f.Measure()
	f.InPort = 0
	still = true
	vl, why := from.link.Depart(key.SL)
	if why == link.OK {
		why = from.link.Enqueue(0, f, vl)
	} else {
		from.link.Count(why)
	}
	if why.IsDrop() {
		pool.Put(f)
		return nil, true, true
	}
	limit := 4*len(d.f.switches) + 4
	for moved := true; moved; {
		moved = false
		d.ports(func(p *portState) {
			for p.peer != nil && p.link.WantsFC() {
				fc, _, _ := p.link.PollFC(0)
				p.link.Occupy(0)
				if p.peer.link.IsOperVL(fc.VL) {
					p.peer.link.HandleFC(0, fc)
				}
				moved = true
			}
		})
		d.ports(func(p *portState) {
			// A lane that only one end has gets no credit, so that packets would wait there: this is not about waiting.
			for vl := ib.VL(0); vl < ib.VL(p.link.OperVLs()); vl++ {
				if p.peer != nil && (!p.peer.link.IsOperVL(vl) || p.peer.link.State() < ib.PortInit) {
					c := p.link.Credit(vl)
					p.link.HandleFC(0, wire.LinkPacket{VL: vl, FCTBS: c.ABR, FCCL: c.FCTBS + 64})
				}
			}
			f, _, _ := p.link.PollTx(0)
			if f == nil {
				return
			}
			moved = true
			p.link.Occupy(0)
			d.went[hop{p, true, f.LRH.VL}]++
			if p.sw != nil {
				p.sw.Left(f)
			}
			in := p.peer
			was := in.link.State()
			var r ibswitch.Result
			if limit--; limit < 0 {
				pool.Put(f)
				return
			}
			vl := f.LRH.VL
			if in.host != nil {
				r.Reason = in.link.Receive(0, f)
			} else {
				r = in.sw.Handle(0, in.num, f)
			}
			switch r.Reason {
			case link.NotReady, link.Malformed:
			default:
				d.went[hop{in, false, vl}]++
			}
			still = still && was == in.link.State()
			if in.host != nil && r.Reason == link.OK {
				ends = append(ends, hop{p: in, vl: vl})
				in.link.Release(f.InVL, f.Blocks)
				pool.Put(f)
			}
			if r.Reason.IsDrop() {
				pool.Put(f)
			}
			if r.Mgmt {
				for m := in.sw.PollMgmt(); m != nil; m = in.sw.PollMgmt() {
					in.sw.Left(m)
					pool.Put(m)
				}
			}
		})
	}
	return ends, limit >= 0, still
}

// lost is where packets of a route end, the first of those where there are several.
func (rt *route) lost() (l loss) {
	if len(rt.losses) > 0 {
		l = rt.losses[0]
	}
	return l
}

// name is the port in words.
func (p *portState) name() string { return fmt.Sprintf("%s/%d", p.topo.Name, p.num) }
