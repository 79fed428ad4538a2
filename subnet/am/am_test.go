package am

import (
	"errors"
	"strings"
	"testing"

	"softib/node/aggregate"
	"softib/proto/ib"
	"softib/proto/topo"
	"softib/subnet/route"
)

var places = aggregate.Limits{Trees: 4, Streams: 1, OSTs: 64, Buffer: 1 << 20}

// network is a graph with its tables.
func network(t *testing.T, spec string) (*route.Network, *Fabric) {
	t.Helper()
	g, err := topo.ParseSpec(spec)
	if err != nil {
		t.Fatal(err)
	}
	n := route.FromGraph(g)
	res, err := route.Compute(n, "ftree,updn,minhop", route.Options{})
	if err != nil {
		t.Fatal(err)
	}
	lid := make([]ib.LID, len(n.Switches))
	for _, d := range n.Dests {
		if !d.IsEnd() {
			lid[d.Switch] = d.LID
		}
	}
	return n, NewFabric(n, func(from, to int32) ib.PortNum { return res.Tables.LFT[from][lid[to]] })
}

// ends are the switches of all end ports.
func ends(n *route.Network) (list []int32) {
	for _, d := range n.Dests {
		if d.IsEnd() {
			list = append(list, d.Switch)
		}
	}
	return list
}

// TestTrees: trees are trees, join all hosts, and are as low as they can be.
func TestTrees(t *testing.T) {
	for _, c := range []struct {
		spec  string
		depth int
	}{{"star:5", 1}, {"fat-tree:radix=8,levels=2", 2}, {"fat-tree:radix=8,levels=3", 3}, {"line:5,hosts=2", 3},
		{"torus:4x4,hosts=1", 5}, {"ring:6,hosts=1", 4}} {
		n, f := network(t, c.spec)
		members := ends(n)
		j, err := New(f, places).Create(Request{Members: members, OSTs: 4, Payload: 256})
		if err != nil {
			t.Errorf("%s: %v", c.spec, err)
			continue
		}
		tr := j.Tree
		if tr.Depth() != c.depth {
			t.Errorf("%s: depth %d, want %d", c.spec, tr.Depth(), c.depth)
		}
		seen := map[int32]bool{}
		for i, node := range tr.Nodes {
			if seen[node.Switch] || (node.Parent < 0) != (i == 0) || node.Parent >= int32(i) {
				t.Errorf("%s: node %d is %+v", c.spec, i, node)
			}
			seen[node.Switch] = true
			if i > 0 {
				up := tr.Nodes[node.Parent]
				if n.Switches[node.Switch].Ports[node.Port].To != up.Switch ||
					n.Switches[up.Switch].Ports[node.Far].To != node.Switch ||
					up.Children[node.Slot].Node != int32(i) {
					t.Errorf("%s: node %d does not hang on its parent: %+v", c.spec, i, node)
				}
			}
		}
		all := 0
		for _, k := range tr.Nodes[0].Children {
			all += len(k.Members)
		}
		if all != len(members) {
			t.Errorf("%s: %d members below the root, want %d", c.spec, all, len(members))
		}
		for m, leaf := range tr.Leaf {
			if tr.Nodes[leaf].Switch != members[m] || tr.Nodes[leaf].Children[tr.Slot[m]].Member != int32(m) {
				t.Errorf("%s: member %d hangs on node %d", c.spec, m, leaf)
			}
		}
	}
}

// TestSpread: four jobs on all hosts have four spines as roots.
func TestSpread(t *testing.T) {
	n, f := network(t, "fat-tree:radix=8,levels=2")
	m := New(f, places)
	roots := map[int32]bool{}
	for range 4 {
		j, err := m.Create(Request{Members: ends(n), OSTs: 4, Payload: 256})
		if err != nil {
			t.Fatal(err)
		}
		roots[j.Tree.Nodes[0].Switch] = true
	}
	if len(roots) != 4 {
		t.Errorf("four jobs have %d roots", len(roots))
	}
}

// TestPlaces: a job beyond what switches have is refused with the reason, or waits; and one that no tree can join is.
func TestPlaces(t *testing.T) {
	n, f := network(t, "fat-tree:radix=4,levels=2")
	m := New(f, places)
	stream := Request{Members: ends(n), OSTs: 8, Payload: 1024, Stream: true}
	first, err := m.Create(stream)
	if err != nil {
		t.Fatal(err)
	}
	if _, err = m.Create(stream); !errors.Is(err, aggregate.ErrFull) || !strings.Contains(err.Error(),
		"streaming trees: it has 1, of which 1 are taken: 1 are wanted; next: end another job") {
		t.Errorf("a second stream: %v", err)
	}
	stream.Wait = true
	second, err := m.Create(stream)
	if err != nil || second.Tree != nil {
		t.Errorf("a second stream that waits: %+v, %v", second, err)
	}
	short := Request{Members: ends(n), OSTs: 56, Payload: 8}
	third, err := m.Create(short)
	if err != nil || third.Tree == nil {
		t.Errorf("a short job beside it: %v", err)
	}
	if _, err = m.Create(short); !errors.Is(err, aggregate.ErrFull) {
		t.Errorf("more operations than there are: %v", err)
	}
	if ready, stuck := m.Release(first); stuck != nil || len(ready) != 1 || ready[0] != second || second.Tree == nil {
		t.Errorf("when the first is over: %v", ready)
	}
	// One that waits hears of it when what it waits for is over and there is no way for it.
	fourth, err := m.Create(stream)
	if err != nil || fourth.Tree != nil {
		t.Errorf("a third stream: %+v, %v", fourth, err)
	}
	links := f.links
	f.links = make([][]link, len(links))
	if ready, stuck := m.Release(second); ready != nil || len(stuck) != 1 || stuck[0] != fourth {
		t.Errorf("when the second is: %v are ready, %v stuck", ready, stuck)
	}
	if err := m.Replace(fourth); !errors.Is(err, ErrNoWay) {
		t.Errorf("the one that has waited: %v, want %v", err, ErrNoWay)
	}
	f.links = links
	if err := m.Replace(fourth); err != nil || fourth.Tree == nil {
		t.Errorf("when there are ways again: %v", err)
	}
	m.Release(fourth)
	m.Release(third)
	for s, u := range m.used {
		if u != (aggregate.Limits{}) {
			t.Errorf("switch %d has %+v left", s, u)
		}
	}
	if _, err := m.Create(Request{Members: ends(n), OSTs: 65, Payload: 8, Wait: true}); !errors.Is(err,
		aggregate.ErrFull) {
		t.Errorf("a job that no switch ever has places for waits: %v", err)
	}
	m.SetFabric(NewFabric(n, func(int32, int32) ib.PortNum { return route.NoPort }))
	if _, err := m.Create(short); !errors.Is(err, ErrNoWay) {
		t.Errorf("without links: %v", err)
	}
}

// TestReplace: a tree that takes the place of another avoids a link that is gone.
func TestReplace(t *testing.T) {
	n, f := network(t, "fat-tree:radix=8,levels=2")
	m := New(f, places)
	j, err := m.Create(Request{Members: ends(n), OSTs: 4, Payload: 256})
	if err != nil {
		t.Fatal(err)
	}
	old := j.Tree
	bad := old.Nodes[1]
	for s, links := range f.links {
		var left []link
		for _, l := range links {
			if root := old.Nodes[0].Switch; int32(s) == bad.Switch && l.to == root ||
				int32(s) == root && l.to == bad.Switch {
				continue
			}
			left = append(left, l)
		}
		f.links[s] = left
	}
	if err := m.Replace(j); err != nil {
		t.Fatal(err)
	}
	if j.Tree.ID == old.ID || j.Tree.Depth() != 2 || j.Tree.Nodes[0].Switch == old.Nodes[0].Switch {
		t.Errorf("the new tree is %+v", j.Tree.Nodes[0])
	}
}
