package am

import (
	"slices"

	"softib/node/aggregate"
	"softib/proto/ib"
)

// Tree is one that was made for a job. Nodes come before their children.
type Tree struct {
	ID    uint32
	Nodes []Node
	// Leaf is, by member, the node that its host is at, and Slot which child of it the host is.
	Leaf, Slot []int32
	// OSTs, Payload, Stream and Multicast are the request's.
	OSTs, Payload     int
	Stream, Multicast bool
}

// Node is a switch in a tree.
type Node struct {
	Switch int32
	// Parent is the node above, -1 at the root, and Slot which child of it this one is.
	Parent, Slot int32
	// Port leads to the parent, and Far from the parent here.
	Port, Far ib.PortNum
	Children  []Child
}

// Child is a switch or a host below a node, whichever is not -1, and who is below.
type Child struct {
	Node, Member int32
	Members      []uint32
}

// Depth is how many switches are on the way from a host to the root, at most.
func (t *Tree) Depth() int {
	depth, most := make([]int, len(t.Nodes)), 0
	for i := range t.Nodes {
		if depth[i] = 1; t.Nodes[i].Parent >= 0 {
			depth[i] += depth[t.Nodes[i].Parent]
		}
		most = max(most, depth[i])
	}
	return most
}

// Config is what the aggregation node of a switch of the tree is told.
func (t *Tree) Config(node int) aggregate.Tree {
	n := &t.Nodes[node]
	c := aggregate.Tree{ID: t.ID, HasUp: n.Parent >= 0, OSTs: t.OSTs, Payload: t.Payload, Stream: t.Stream,
		Multicast: t.Multicast}
	for i := range n.Children {
		c.Children = append(c.Children, aggregate.Child{Members: n.Children[i].Members})
	}
	return c
}

// grow lays the tree over the switches: from the root along the ways to it that were found, those of the members alone.
func (m *Manager) grow(r *Request, root int32, up []link) *Tree {
	t := &Tree{OSTs: r.OSTs, Payload: r.Payload, Stream: r.Stream, Multicast: r.Multicast && !r.Stream}
	at := map[int32]int32{}
	var add func(sw int32) int32
	add = func(sw int32) int32 {
		if i, ok := at[sw]; ok {
			return i
		}
		n := Node{Switch: sw, Parent: -1, Slot: -1}
		if sw != root {
			n.Parent, n.Port, n.Far = add(up[sw].to), up[sw].port, up[sw].far
		}
		i := int32(len(t.Nodes))
		at[sw] = i
		t.Nodes = append(t.Nodes, n)
		return i
	}
	add(root)
	for _, sw := range r.Members {
		t.Leaf = append(t.Leaf, add(sw))
	}
	// Switches come before hosts among the children of one, each in their order.
	for i := range t.Nodes {
		if p := t.Nodes[i].Parent; p >= 0 {
			t.Nodes[i].Slot = int32(len(t.Nodes[p].Children))
			t.Nodes[p].Children = append(t.Nodes[p].Children, Child{Node: int32(i), Member: -1})
		}
	}
	for k, leaf := range t.Leaf {
		t.Slot = append(t.Slot, int32(len(t.Nodes[leaf].Children)))
		t.Nodes[leaf].Children = append(t.Nodes[leaf].Children, Child{Node: -1, Member: int32(k),
			Members: []uint32{uint32(k)}})
	}
	for i := len(t.Nodes) - 1; i > 0; i-- { // children come after their parents
		n := &t.Nodes[i]
		var all []uint32
		for k := range n.Children {
			all = append(all, n.Children[k].Members...)
		}
		slices.Sort(all)
		t.Nodes[n.Parent].Children[n.Slot].Members = all
	}
	return t
}
