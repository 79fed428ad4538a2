package topo

import (
	"cmp"
	"slices"
	"strings"

	"softib/proto/ib"
)

// partDesc is in the description of nodes that are part of a switch.
const partDesc = "Aggregation Node"

// IsPart reports whether an end node belongs to the switch that it hangs on, whichever of the two is named first: the
// node for reductions within a switch (SHARP) has the switch's own system image GUID, or says what it is.
func IsPart(end, sw *Node) bool {
	return end.SystemGUID == sw.SystemGUID || strings.Contains(end.Desc, partDesc) ||
		strings.Contains(sw.Desc, partDesc)
}

// IsPart reports whether a node is part of the switch that it hangs on: it is a node of the fabric, and no host that
// anybody has.
func (g *Graph) IsPart(n *Node) bool {
	if n.Type != ib.NodeCA || n.NumPorts() != 1 || !n.Ports[1].Connected() {
		return false
	}
	far := g.Nodes[n.Ports[1].Peer]
	return far.IsSwitch() && IsPart(n, far)
}

// HostsApart are the channel adapters that somebody has, and those that are part of switches and serve the fabric.
func (g *Graph) HostsApart() (hosts, service []*Node) {
	for _, h := range g.hosts {
		if g.IsPart(h) {
			service = append(service, h)
		} else {
			hosts = append(hosts, h)
		}
	}
	return hosts, service
}

// Servers finds the servers that have several adapters, one for each GPU. It returns by node which server it is in,
// numbered in the order of the graph, or -1; and how many there are.
func (g *Graph) Servers() (of []int32, count int) {
	of = make([]int32, len(g.Nodes))
	for i := range of {
		of[i] = -1
	}
	for _, adapters := range g.machines() {
		if len(adapters) < 2 {
			continue
		}
		for _, h := range adapters {
			of[h.Index] = int32(count)
		}
		count++
	}
	return of, count
}

// machines are the channel adapters, machine by machine. Those with one system image GUID are of one machine. Most
// adapters have one each; then those are that have one host name in their descriptions and say which adapter of it they
// are, as "node01 HCA-1" and "node01 HCA-2" do. Descriptions that are the same twice are of two machines of one name.
func (g *Graph) machines() (list [][]*Node) {
	at := map[ib.GUID]int{}
	hosts, _ := g.HostsApart()
	for _, h := range hosts {
		k, ok := at[h.SystemGUID]
		if !ok {
			k = len(list)
			at[h.SystemGUID] = k
			list = append(list, nil)
		}
		list[k] = append(list[k], h)
	}
	names := make([]string, len(list))
	said := map[string]int{} // by which machine
	twice := map[string]bool{}
	for k, adapters := range list {
		for _, h := range adapters {
			name := nameFromDesc(h.Desc)
			if names[k] == "" {
				names[k] = name
			}
			if by, ok := said[h.Desc]; ok && by != k {
				twice[name] = true
			}
			said[h.Desc] = k
		}
	}
	called := map[string]int{}
	for k, name := range names {
		first, ok := called[name]
		switch {
		case name == "" || twice[name]:
		case ok:
			list[first], list[k] = append(list[first], list[k]...), nil
		default:
			called[name] = k
		}
	}
	return slices.DeleteFunc(list, func(adapters []*Node) bool { return adapters == nil })
}

// ByMachine is the fabric with one host for each machine: its adapters' ports, in the order of the adapters, with the
// GUIDs and addresses that they have. It is named after the machine, and has the GUID and the description of the first
// adapter.
func (g *Graph) ByMachine() (*Graph, error) {
	c := &Graph{Kind: g.Kind, Planes: g.Planes}
	c.grow(len(g.Nodes))
	adapters := make([][]*Node, len(g.Nodes)) // by the first of them
	joins := make([]bool, len(g.Nodes))       // one before it
	for _, m := range g.machines() {
		adapters[m[0].Index] = m
		for _, h := range m[1:] {
			joins[h.Index] = true
		}
	}
	at := make([]PortRef, len(g.Nodes)) // of a node there, and how many ports stand before its own
	for _, n := range g.Nodes {
		if joins[n.Index] {
			continue
		}
		all := adapters[n.Index]
		if all == nil {
			all = []*Node{n}
		}
		name := slices.MinFunc(all, func(a, b *Node) int { return byNumber(a.Name, b.Name) }).Name
		slices.SortStableFunc(all, func(a, b *Node) int { return byNumber(a.Desc, b.Desc) })
		ports := 0
		for _, a := range all {
			ports += a.NumPorts()
		}
		node := *all[0]
		node.Name = name
		made, err := c.Add(node, ports)
		if err != nil {
			return nil, err
		}
		ports = 0
		for _, a := range all {
			at[a.Index] = PortRef{made.Index, ib.PortNum(ports)}
			if err := c.takePorts(made, ports, a); err != nil {
				return nil, err
			}
			for p := 1; p <= a.NumPorts() && len(all) > 1; p++ { // other ports are of other chips and show nothing
				made.Ports[ports+p].Could = g.Capable(PortRef{a.Index, ib.PortNum(p)})
			}
			ports += a.NumPorts()
		}
	}
	for _, x := range g.Cables() {
		a, b := at[x.A.Node], at[x.B.Node]
		spec := func(r PortRef) LinkSpec {
			p := g.Port(r)
			return LinkSpec{Width: p.Width, Speed: p.Speed, LengthMM: p.LengthMM}
		}
		err := c.ConnectAsym(a.Node, a.Port+x.A.Port, b.Node, b.Port+x.B.Port, spec(x.A), spec(x.B))
		if err != nil {
			return nil, err
		}
	}
	return c, c.whole()
}

// takePorts gives a node the ports of another behind those that it has already.
func (g *Graph) takePorts(n *Node, behind int, from *Node) error {
	for p, x := range from.Ports {
		if p == 0 && !n.IsSwitch() {
			continue
		}
		at := &n.Ports[behind+p]
		at.LID, at.LMC, at.Could = x.LID, x.LMC, x.Could
		if x.GUID == 0 {
			continue
		}
		if err := g.setPortGUID(n, ib.PortNum(behind+p), x.GUID); err != nil {
			return err
		}
	}
	return nil
}

// byNumber orders names and descriptions of one machine's adapters as people count: mlx5_2 comes before mlx5_10.
func byNumber(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), strings.Compare(a, b)) }
