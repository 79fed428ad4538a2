package ibrouter

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"softib/node/link"
	"softib/proto/ib"
	"softib/proto/mad"
	"softib/proto/wire"
)

var aGroup = ib.GID{0xFF, 0x15, 0xA0, 0x1B, 15: 1}

// world is subnets that routers join, each with a manager that does what sm does for routers, by hand.
type world struct {
	routers []*Router
	nodes   []*Node
	at      [][]int // by router: the subnet of each port, from 1 on
	members []bool  // by subnet
	down    map[[2]int]bool
}

func prefixOf(subnet int) uint64 { return ib.SiteLocalPrefix | uint64(subnet+1) }
func mlidOf(subnet int) ib.LID   { return 0xC000 + ib.LID(subnet) }

// lidOf is that of a router's port.
func lidOf(router, port int) ib.LID { return ib.LID(10*router + port) }

func newWorld(t *testing.T, rng *rand.Rand) *world {
	w := &world{members: make([]bool, 2+rng.IntN(5)), down: map[[2]int]bool{}}
	for k := range 1 + rng.IntN(5) {
		subnets := rng.Perm(len(w.members))[:2+rng.IntN(min(3, len(w.members)-1))]
		if rng.IntN(4) == 0 {
			subnets = append(subnets, subnets[rng.IntN(len(subnets))]) // two ports in one subnet
		}
		prefixes := make([]uint64, len(subnets))
		for i, s := range subnets {
			prefixes[i] = prefixOf(s)
		}
		r, n := newRouter(t, prefixes...)
		w.routers, w.nodes, w.at = append(w.routers, r), append(w.nodes, n), append(w.at, append([]int{-1}, subnets...))
		for p := 1; p < len(w.at[k]); p++ {
			r.SetAddress(ib.PortNum(p), lidOf(k+1, p), prefixes[p-1])
		}
	}
	return w
}

// round is one look of each manager at the routers of its subnet. It reports whether it told anything new.
func (w *world) round(t *testing.T) (news bool) {
	t.Helper()
	for s := range w.members {
		type place struct{ k, p int }
		var here []place
		for k := range w.routers {
			for p := 1; p < len(w.at[k]); p++ {
				if w.at[k][p] == s && !w.down[[2]int{k, p}] {
					here = append(here, place{k, p})
				}
			}
		}
		// How far each subnet is from this one: only who is nearest speaks of its members.
		near := map[uint64]uint8{}
		weight := func(x place, prefix uint64) uint8 {
			for _, h := range w.nodes[x.k].NextHops(ib.PortNum(x.p)) {
				if h.Prefix == prefix {
					return h.Weight
				}
			}
			return weightMax + 1
		}
		for o := range w.members {
			near[prefixOf(o)] = weightMax
			for _, x := range here {
				near[prefixOf(o)] = min(near[prefixOf(o)], weight(x, prefixOf(o)))
			}
		}
		for _, x := range here {
			var peers []mad.NextHop
			var groups []mad.RouterGroup
			if w.members[s] {
				groups = append(groups, mad.RouterGroup{MGID: aGroup, MLID: mlidOf(s), Origin: prefixOf(s)})
			}
			for _, y := range here {
				if y.k == x.k {
					continue
				}
				for _, h := range w.nodes[y.k].NextHops(ib.PortNum(y.p)) {
					if h.Prefix != prefixOf(s) {
						h.LID = lidOf(y.k+1, y.p)
						peers = append(peers, h)
					}
				}
				for _, g := range w.nodes[y.k].GroupsWanted(ib.PortNum(y.p)) {
					if g.MLID = mlidOf(s); g.Origin != prefixOf(s) && weight(y, g.Origin) == near[g.Origin] &&
						!slices.Contains(groups, g) {
						groups = append(groups, g)
					}
				}
			}
			port, q := ib.PortNum(x.p), &w.routers[x.k].ports[x.p]
			for b := 0; b*mad.NextHopsPerBlock < max(len(peers), len(q.peers)); b++ {
				var t4 mad.NextHopTable
				copy(t4[:], peers[min(len(peers), b*len(t4)):])
				if w.nodes[x.k].RouterPeers(port, b) != t4 {
					news = true
					if err := w.nodes[x.k].SetRouterPeers(0, port, b, t4); err != nil {
						t.Fatal(err)
					}
				}
			}
			for i := range max(len(groups), len(q.groups)) {
				var g mad.RouterGroup
				if i < len(groups) {
					g = groups[i]
				}
				if w.nodes[x.k].RouterGroup(port, i) != g {
					news = true
					if err := w.nodes[x.k].SetRouterGroup(0, port, i, g); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
	}
	return news
}

func (w *world) settle(t *testing.T) {
	t.Helper()
	for range 20 * weightMax {
		if !w.round(t) {
			return
		}
	}
	t.Fatal("managers tell routers news for ever")
}

// spread sends a packet from a subnet, and counts how often it is in each.
func (w *world) spread(t *testing.T, from int) []int {
	t.Helper()
	seen := make([]int, len(w.members))
	type copied struct {
		subnet, by int // the router that it came from
		hops       uint8
	}
	for todo := []copied{{from, -1, 16}}; len(todo) > 0; todo = todo[1:] {
		c := todo[0]
		if seen[c.subnet]++; seen[c.subnet] > 9 {
			return seen
		}
		for k, r := range w.routers {
			for p := 1; p < len(w.at[k]) && k != c.by; p++ {
				// The subnet's manager lets those have it that want it.
				wants := func(g mad.RouterGroup) bool { return g.MGID == aGroup }
				if w.at[k][p] != c.subnet || w.down[[2]int{k, p}] ||
					!slices.ContainsFunc(w.nodes[k].GroupsWanted(ib.PortNum(p)), wants) {
					continue
				}
				pkt := packet(aGroup, c.hops)
				pkt.GRH.SGID = ib.MakeGID(prefixOf(from), 0xA5)
				d := r.Decide(ib.PortNum(p), &pkt.LRH, pkt)
				if !d.Fan {
					t.Fatalf("a multicast: %+v", d)
				}
				outs := r.Fan(ib.PortNum(p), pkt)
				for out, ok := outs.Pop(); ok; out, ok = outs.Pop() {
					d := r.Leave(out, &pkt.LRH, pkt)
					to := w.at[k][out]
					if d.Reason != link.OK || d.DLID != mlidOf(to) || d.SLID != lidOf(k+1, int(out)) {
						t.Fatalf("to subnet %d: %+v", to, d)
					}
					todo = append(todo, copied{to, k, c.hops - 1})
				}
			}
		}
	}
	return seen
}

// reach are the subnets that are joined to one.
func (w *world) reach(from int) []bool {
	in := make([]bool, len(w.members))
	in[from] = true
	for range w.members {
		for k := range w.routers {
			joined := false
			for p := 1; p < len(w.at[k]); p++ {
				joined = joined || in[w.at[k][p]] && !w.down[[2]int{k, p}]
			}
			for p := 1; p < len(w.at[k]) && joined; p++ {
				in[w.at[k][p]] = in[w.at[k][p]] || !w.down[[2]int{k, p}]
			}
		}
	}
	return in
}

// TestMulticastOnce: however subnets are joined, whoever is a member gets each packet once, members come and go, links
// go down and come back; and when nobody is a member any more nobody wants anything.
func TestMulticastOnce(t *testing.T) {
	arrived, lines := 0, 0
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 1))
		w := newWorld(t, rng)
		for step := range 6 {
			for s := range w.members {
				w.members[s] = step < 5 && rng.IntN(2) == 0
			}
			if k := rng.IntN(len(w.routers)); step > 0 {
				p := 1 + rng.IntN(len(w.at[k])-1)
				l := w.routers[k].ports[p].link
				at := [2]int{k, p}
				if w.down[at] = !w.down[at]; w.down[at] {
					l.Down(0)
				} else {
					l.Train()
					l.LinkUp(0)
					for _, to := range []ib.PortState{ib.PortArmed, ib.PortActive} {
						if err := l.Command(0, to); err != nil {
							t.Fatal(err)
						}
					}
				}
				w.routers[k].Refresh()
			}
			w.settle(t)
			for from := range w.members {
				in, seen := w.reach(from), w.spread(t, from)
				for s, n := range seen {
					want := 0
					if w.members[s] && in[s] || s == from {
						want = 1
					}
					if n > 1 || n < want {
						t.Fatalf("seed %d, step %d: a packet of subnet %d is %d times in subnet %d, want %d; routers "+
							"at %v, members %v, down %v", seed, step, from, n, s, want, w.at, w.members, w.down)
					}
					if s != from {
						arrived += n
						lines += n - want // in between
					}
				}
			}
			for k := range w.routers {
				for p := 1; p < len(w.at[k]); p++ {
					if l := w.nodes[k].GroupsWanted(ib.PortNum(p)); step == 5 && len(l) > 0 {
						t.Fatalf("seed %d: nobody is a member, and router %d wants %v", seed, k, l)
					}
				}
			}
		}
	}
	if arrived < 1000 || lines < 50 {
		t.Errorf("%d packets in other subnets, %d of them on their way: not much of a test", arrived, lines)
	}
}

// TestMulticastCopies: what leaves has new LIDs and a hop less, holds one receive buffer until the last copy has left,
// and no packet leaves that must not.
func TestMulticastCopies(t *testing.T) {
	r, n := newRouter(t, prefixA, prefixB, prefixC)
	for port, prefix := range map[ib.PortNum]uint64{2: prefixB, 3: prefixC} {
		if err := n.SetRouterGroup(0, port, 0, mad.RouterGroup{MGID: aGroup, Origin: prefix,
			MLID: 0xC000 + ib.LID(port)}); err != nil {
			t.Fatal(err)
		}
	}
	for name, p := range map[string]*wire.Packet{
		"no hops": packet(aGroup, 1), "another group": packet(ib.GID{0xFF, 0x15, 15: 2}, 9),
		"a link-local group": packet(ib.GID{0xFF, 0x12, 15: 1}, 9),
		"a sender who is elsewhere": func() *wire.Packet {
			p := packet(aGroup, 9)
			p.GRH.SGID = ib.MakeGID(prefixB, 1)
			return p
		}(),
		"a link-local sender": func() *wire.Packet {
			p := packet(aGroup, 9)
			p.GRH.SGID = ib.MakeGID(ib.DefaultGIDPrefix, 1)
			return p
		}(),
	} {
		if got := r.Handle(0, 1, frameOf(r.pool, p)); got != (Result{Reason: link.NoMember}) {
			t.Errorf("%s: %+v", name, got)
		}
	}
	before := r.pool.InUse()
	got := r.Handle(0, 1, frameOf(r.pool, packet(aGroup, 9)))
	if got.Reason != link.OK || got.Outs.Count() != 2 || !got.Outs.Has(2) || !got.Outs.Has(3) {
		t.Fatalf("Handle: %+v", got)
	}
	if n := r.pool.InUse() - before; n != 2 {
		t.Errorf("%d frames in use, want those of the copies", n)
	}
	var queued []*link.Frame
	for i, port := range []ib.PortNum{2, 3} {
		queued = r.ports[port].link.AppendQueued(queued)
		if len(queued) != i+1 {
			t.Fatalf("%d packets wait at port %d", len(queued)-i, port)
		}
		f := queued[i]
		if f.LRH.DLID != 0xC000+ib.LID(port) || f.LRH.SLID != ib.LID(10+port) || f.Packet.GRH.HopLimit != 8 ||
			f.InPort != 1 || string(f.Packet.Payload) != "across" {
			t.Errorf("by port %d leaves %+v %+v", port, f.LRH, f.Packet.GRH)
		}
	}
	if held := r.Holders(slices.Clone(queued)); len(held) != 1 {
		t.Errorf("%d packets hold a receive buffer, want 1", len(held))
	}
	if a, b := r.Left(queued[0]), r.Left(queued[1]); a || !b {
		t.Errorf("the buffer is free after the first copy: %v, after the last: %v", a, b)
	}
	if fmt.Sprint(r.copies.Open()) != "0" {
		t.Error("a packet is still counted")
	}
}
