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
	"softib/subnet/policy"
)

// wide is a group of site-local scope.
var wide = ib.GID{0xFF, 0x15, 0x11, 0x22, 15: 9}

// spread sends a multicast from a host, with the LID that it has there, and counts how often hosts get it.
func (j *joined) spread(from int, mlid ib.LID, mgid ib.GID) map[int]int {
	got := map[int]int{}
	type copied struct {
		at  topo.PortRef // where it comes in
		pkt wire.Packet
	}
	ref := j.hostRef(from)
	p := wire.Packet{LRH: wire.LRH{LNH: wire.LNHGlobal, DLID: mlid}, GRH: wire.GRH{HopLimit: 0xFF, DGID: mgid,
		SGID: ib.MakeGID(j.g.Prefix(j.sub.Of(ref)), j.g.Nodes[ref.Node].PortGUID(ref.Port))}}
	beyond := func(node int, port ib.PortNum) topo.PortRef {
		x := j.g.Port(topo.PortRef{Node: node, Port: port})
		return topo.PortRef{Node: x.Peer, Port: x.PeerPort}
	}
	todo := []copied{{beyond(ref.Node, ref.Port), p}}
	for n := 0; n < len(todo) && n < 1000; n++ {
		c := &todo[n]
		switch node := c.at.Node; {
		case j.switches[node] != nil:
			mask := j.switches[node].MulticastPorts(c.pkt.LRH.DLID)
			for out, ok := mask.Pop(); ok; out, ok = mask.Pop() {
				if out != 0 && out != c.at.Port && j.links[node][out].State() == ib.PortActive {
					todo = append(todo, copied{beyond(node, out), c.pkt})
				}
			}
		case j.routers[node] != nil:
			outs := j.routers[node].Fan(c.at.Port, &c.pkt)
			for out, ok := outs.Pop(); ok; out, ok = outs.Pop() {
				d := j.routers[node].Leave(out, &c.pkt.LRH, &c.pkt)
				if d.Reason != link.OK {
					continue
				}
				q := c.pkt
				d.Readdress(&q.LRH, &q)
				todo = append(todo, copied{beyond(node, out), q})
			}
		default:
			k := slices.IndexFunc(j.g.Hosts(), func(h *topo.Node) bool { return h.Index == node })
			got[k]++
		}
	}
	return got
}

// TestRoutedGroups: who joins a group of wider scope hears each packet of it once, in whichever subnet both are, over
// lines and parallel routers; a link of a router that is lost and comes back, managers whose datagrams are lost; and
// when all have left nothing of it is left either.
func TestRoutedGroups(t *testing.T) {
	for _, shape := range []string{"line", "parallel"} {
		for seed := range uint64(4) {
			g := spec(t, "subnets:3,routers=2,each=star:3")
			rt1, rt2 := g.ByName("rt1"), g.ByName("rt2")
			cuts := []topo.PortRef{{Node: rt1.Index, Port: 3}, {Node: rt2.Index, Port: 1}}
			if shape == "parallel" {
				cuts = nil
			}
			for _, cut := range cuts {
				if err := g.Disconnect(cut.Node, cut.Port); err != nil {
					t.Fatal(err)
				}
			}
			j := newJoined(t, g)
			rng := rand.New(rand.NewPCG(seed, 2))
			j.lose = func(topo.PortRef, mad.View) bool { return seed > 1 && rng.IntN(30) == 0 }
			j.must(300*ib.Second, "all hosts reach all others", func() bool { return j.rest() && j.whole() })

			// The first subnet has two members, the last one; a host of the middle one only sends.
			members := map[int]*client{0: j.client(0), 1: j.client(1), 7: j.client(7)}
			mlids := map[int]ib.LID{}
			for _, k := range []int{0, 1, 7} {
				rec := members[k].join(wide, mad.JoinFull)
				if mlids[k] = rec.MLID; rec.HopLimit < 2 {
					t.Errorf("%s: the group's packets may take %d hops", shape, rec.HopLimit)
				}
			}
			heard := func(from int, mlid ib.LID) bool {
				got := j.spread(from, mlid, wide)
				for k := range members {
					if k != from && got[k] != 1 {
						return false
					}
				}
				for k := range got {
					if members[k] == nil {
						return false
					}
				}
				return true
			}
			all := func() bool { return heard(0, mlids[0]) && heard(1, mlids[1]) && heard(7, mlids[7]) }
			j.must(300*ib.Second, "members hear each other", all)

			// The middle subnet has nobody who listens: one may send there all the same, since others want it.
			sender := j.client(4)
			rec := sender.join(wide, mad.JoinSendOnlyNon)
			j.must(300*ib.Second, "members hear a sender who is none", func() bool { return heard(4, rec.MLID) })

			lost := topo.PortRef{Node: rt1.Index, Port: 1}
			j.cut(lost)
			if shape == "parallel" {
				j.must(300*ib.Second, "they do by the other router", all)
			} else {
				j.must(300*ib.Second, "those that are cut off are not heard", func() bool {
					return j.spread(7, mlids[7], wide)[0] == 0 && j.spread(0, mlids[0], wide)[1] == 1
				})
			}
			j.join(lost)
			j.must(300*ib.Second, "members hear each other again", all)

			for _, k := range []int{0, 1, 7} {
				members[k].leave(wide, mad.JoinFull)
			}
			sender.leave(wide, mad.JoinSendOnlyNon)
			j.must(600*ib.Second, "nothing is left of the group", func() bool {
				return !slices.ContainsFunc(j.managers, func(h *host) bool { return h.m.admin.HasGroup(wide) })
			})
		}
	}
}

// TestRoutedOwnGroups: a group of wider scope that the partitions' file of each subnet names is as the file says, also
// after that has changed while routers want it.
func TestRoutedOwnGroups(t *testing.T) {
	j := newJoined(t, spec(t, "subnets:2,routers=1,each=star:3"))
	names := func(qkey string) {
		p, _, err := policy.ParsePartitions("partitions.conf", []byte("Default=0x7fff, ipoib: ALL=full,\n"+
			" mgid=ff15:1122::9,Q_Key="+qkey+",scope=5;\n"))
		if err != nil {
			t.Fatal(err)
		}
		for _, h := range j.managers {
			h.m.SetPartitions(j.now, p)
		}
	}
	have := func(want ib.QKey) bool {
		count := 0
		for _, h := range j.managers {
			for _, x := range h.m.admin.Groups() {
				if x.MGID == wide && x.QKey == want {
					count++
				}
			}
		}
		return count == 2
	}
	j.must(300*ib.Second, "all hosts reach all others", func() bool { return j.rest() && j.whole() })
	names("0x1234")
	j.must(300*ib.Second, "both subnets have the group", func() bool { return have(0x1234) })
	j.client(1).join(wide, mad.JoinFull)
	j.client(4).join(wide, mad.JoinFull)
	j.must(300*ib.Second, "routers want it on both sides", func() bool {
		count := 0
		for _, h := range j.managers {
			for _, r := range h.m.routers { // tidy: order-free
				if len(r.wanted) > 0 {
					count++
					break
				}
			}
		}
		return count == 2 && j.rest()
	})
	names("0x222")
	j.must(600*ib.Second, "both have it as the file says now", func() bool { return have(0x222) })
}
