package sm

import (
	"math/rand/v2"
	"slices"
	"testing"

	"softib/node/link"
	"softib/proto/ib"
	"softib/proto/mad"
	"softib/proto/topo"
	"softib/proto/wire"
)

// joined is subnets with a manager at the first host of each.
type joined struct {
	*network
	sub      *topo.Subnets
	managers []*host
}

func newJoined(t *testing.T, g *topo.Graph) *joined {
	j := &joined{network: networkOf(t, g), sub: g.Subnets()}
	for k, h := range g.Hosts() {
		if i := j.sub.Of(topo.PortRef{Node: h.Index, Port: 1}); i == len(j.managers) {
			j.managers = append(j.managers, j.manage(k, Config{Prefix: g.Prefix(i)}))
		}
	}
	return j
}

// path follows a packet with so many hops from host a to host b: to the router that the administrator names, and on
// from there as the routers decide. It returns the routers on the way, nil if the packet does not arrive.
func (j *joined) path(a, b int, hops uint8) (way []string) {
	from, to := j.hostRef(a), j.hostRef(b)
	here, dest := j.sub.Of(from), j.sub.Of(to)
	dgid := ib.MakeGID(j.g.Prefix(dest), j.g.Nodes[to.Node].PortGUID(to.Port))
	sgid := ib.MakeGID(j.g.Prefix(here), j.g.Nodes[from.Node].PortGUID(from.Port))
	if j.managers[here].m.sub == nil {
		return nil
	}
	best := mad.NextHop{}
	p := wire.Packet{LRH: wire.LRH{LNH: wire.LNHGlobal}, GRH: wire.GRH{SGID: sgid, DGID: dgid, HopLimit: hops}}
	for _, r := range j.managers[here].m.sub.Routers {
		for _, h := range r.Hops {
			if h.Prefix == dgid.Prefix() && (best.Weight == 0 || h.Weight < best.Weight) {
				best = h
				p.LRH.DLID = j.managers[here].m.sub.Port(r.Port).Info.LID
			}
		}
	}
	ref := from
	for range 9 {
		_, at, ok := j.walk(ref, p.LRH.DLID)
		switch {
		case !ok:
			return nil
		case at == to:
			return way
		case j.routers[at.Node] == nil:
			j.t.Fatalf("a packet to %s ends at %s", j.g.PortName(to), j.g.PortName(at))
		}
		way = append(way, j.g.Nodes[at.Node].Name)
		d := j.routers[at.Node].Decide(at.Port, &p.LRH, &p)
		if d.Here || d.Reason != link.OK {
			return nil
		}
		d.Readdress(&p.LRH, &p)
		ref = topo.PortRef{Node: at.Node, Port: d.Out}
	}
	return nil
}

// whole reports whether all hosts reach those of other subnets.
func (j *joined) whole() bool {
	for a := range j.g.Hosts() {
		for b := range j.g.Hosts() {
			if j.sub.Of(j.hostRef(a)) != j.sub.Of(j.hostRef(b)) && j.path(a, b, 64) == nil {
				return false
			}
		}
	}
	return true
}

func (j *joined) rest() bool {
	return !slices.ContainsFunc(j.managers, func(h *host) bool { return !h.rests() })
}

// TestRouters: the managers of three subnets fill the tables of two routers that join all of them.
func TestRouters(t *testing.T) {
	j := newJoined(t, spec(t, "subnets:3,routers=2,each=star:2"))
	j.must(60*ib.Second, "all hosts reach all others", func() bool { return j.rest() && j.whole() })
	for _, h := range j.managers {
		if n := len(h.m.sub.Routers); n != 2 {
			t.Errorf("%d routers in a subnet", n)
		}
		for _, r := range h.m.sub.Routers {
			if len(r.Hops) != 2 || r.Hops[0].Weight != 1 || r.Hops[1].Weight != 1 {
				t.Errorf("a router reaches %+v", r.Hops)
			}
		}
	}
	if way := j.path(0, 5, 2); len(way) != 1 {
		t.Errorf("from h1 to h6 by %v", way)
	}
	if way := j.path(0, 5, 1); way != nil {
		t.Errorf("without hops from h1 to h6 by %v", way)
	}
	// A second look writes nothing.
	j.resetCounts()
	for _, h := range j.managers {
		h.m.Sweep(j.now, "test")
	}
	j.must(60*ib.Second, "the subnets are up", j.rest)
	if n := j.sets[mad.AttrRouterGUIDs] + j.sets[mad.AttrRouterPeers]; n > 0 {
		t.Errorf("%d blocks were written again", n)
	}
}

// TestRouterChain: what routers at both ends of a line of subnets reach comes to all, is taken back when a link goes,
// and comes again, whatever datagrams are lost on the way.
func TestRouterChain(t *testing.T) {
	for seed := range uint64(8) {
		g := spec(t, "subnets:3,routers=2,each=star:2")
		rt1, rt2 := g.ByName("rt1"), g.ByName("rt2")
		for _, cut := range []topo.PortRef{{Node: rt1.Index, Port: 3}, {Node: rt2.Index, Port: 1}} {
			if err := g.Disconnect(cut.Node, cut.Port); err != nil {
				t.Fatal(err)
			}
		}
		j := newJoined(t, g)
		rng := rand.New(rand.NewPCG(seed, 1))
		j.lose = func(topo.PortRef, mad.View) bool { return seed > 0 && rng.IntN(20) == 0 }
		j.must(300*ib.Second, "all hosts reach all others", j.whole)
		if way := j.path(0, 5, 64); !slices.Equal(way, []string{"rt1", "rt2"}) {
			t.Errorf("from h1 to h6 by %v", way)
		}
		if way := j.path(0, 5, 2); way != nil {
			t.Errorf("with one hop too few from h1 to h6 by %v", way)
		}
		link := topo.PortRef{Node: rt2.Index, Port: 3}
		j.cut(link)
		j.must(300*ib.Second, "nobody is told of a subnet that is out of reach", func() bool {
			for _, r := range j.managers[0].m.sub.Routers {
				if slices.ContainsFunc(r.Hops, func(h mad.NextHop) bool { return h.Prefix == g.Prefix(2) }) {
					return false
				}
			}
			return true
		})
		j.join(link)
		j.must(300*ib.Second, "all hosts reach all others again", j.whole)
	}
}

// TestRouterNewcomer: a host whose cable was out when the subnet came up is reached when it is there.
func TestRouterNewcomer(t *testing.T) {
	j := newJoined(t, spec(t, "subnets:2,routers=1,each=star:3"))
	late := j.hostRef(5)
	j.cut(late)
	j.must(60*ib.Second, "the subnets are up", func() bool { return j.rest() && j.path(0, 4, 64) != nil })
	if j.path(0, 5, 64) != nil {
		t.Fatal("a host without a cable is reached")
	}
	j.join(late)
	j.must(60*ib.Second, "the newcomer is reached", func() bool { return j.path(0, 5, 64) != nil })
}

// TestRouterTakeover: the next manager of a subnet fills the tables of a router that has started anew.
func TestRouterTakeover(t *testing.T) {
	j := newJoined(t, spec(t, "subnets:2,routers=1,each=star:3"))
	j.must(60*ib.Second, "the subnets are up", j.whole)
	next := j.manage(1, Config{Prefix: j.g.Prefix(0), Priority: 3})
	j.must(60*ib.Second, "the other rules", next.rests)
	j.managers[0].die()
	j.managers[0] = next
	j.must(60*ib.Second, "all hosts reach all others", func() bool { return j.rest() && j.whole() })
}

// TestBringUpRouters: subnets that are brought up without packets have prefixes and LIDs of their own, and routers that
// know them.
func TestBringUpRouters(t *testing.T) {
	g := spec(t, "subnets:4,routers=3,each=fat-tree:radix=4,levels=2")
	w := build(t, g)
	r := mustBringUp(t, w)
	if len(r.Down) > 0 || r.Hosts != 32 || r.Switches != 24 {
		t.Errorf("%d hosts, %d switches, down %v", r.Hosts, r.Switches, r.Down)
	}
	sub := g.Subnets()
	hosts := g.Hosts()
	for i, h := range hosts {
		ref := topo.PortRef{Node: h.Index, Port: 1}
		if want := g.Prefix(i / 8); w.hcas[h.Index].Port(1).GIDs[0].Prefix() != want {
			t.Errorf("%s has %v: want prefix %#x", h.Name, w.hcas[h.Index].Port(1).GIDs[0], want)
		}
		if r.LID(ref) == 0 || int(r.LID(ref)) > sub.Ends[0] {
			t.Errorf("%s has LID %v of %d", h.Name, r.LID(ref), sub.Ends[0])
		}
	}
	for _, rt := range g.Routers() {
		for i, h := range hosts {
			p := wire.Packet{LRH: wire.LRH{LNH: wire.LNHGlobal}, GRH: wire.GRH{HopLimit: 9,
				DGID: ib.MakeGID(g.Prefix(i/8), h.PortGUID(1))}}
			in := ib.PortNum((i/8+1)%4 + 1)
			d := w.routers[rt.Index].Decide(in, &p.LRH, &p)
			lid := r.LID(topo.PortRef{Node: h.Index, Port: 1})
			if d.Reason != link.OK || d.Out != ib.PortNum(i/8+1) || d.DLID != lid {
				t.Errorf("%s to %s: %+v", rt.Name, h.Name, d)
			}
		}
	}
}
