package topo

import (
	"fmt"
	"strconv"
	"strings"

	"softib/proto/ib"
)

var subnetsGenerator = Generator{
	Name: "subnets", Example: "subnets:2,routers=1,each=star:4",
	Help:  "several subnets, each like the topology behind each=, joined by routers",
	Value: "the number of subnets",
	Options: []Option{
		{"routers", "routers, each with a port in every subnet, at a switch far from hosts (2)"},
		{"each", "what a subnet is: any other topology; it comes last, with all of its options"},
	},
	rest: "each",
}

func init() { subnetsGenerator.build = buildSubnets } // which asks ParseSpec, and so for all generators

const (
	subnetsMax = 64
	routersMax = 64
)

// buildSubnets makes as many copies of a topology as there are to be subnets, and joins them. A router is cabled to
// switches as far from hosts as there are: in a tree to the roots, so that packets between subnets go up to a router
// and down from it, and buffers cannot wait for each other in a circle.
func buildSubnets(a *args) *Graph {
	count := a.bareInt("subnets", 2, subnetsMax)
	routers := a.int("routers", 2, 1, routersMax)
	spec, ok := a.values["each"]
	if a.err == nil && !ok {
		a.fail("each", "is missing: want a topology, with its options, at the end")
	}
	if a.has("planes") {
		a.fail("planes", "subnets have no planes: leave it out")
	}
	if a.err != nil {
		return nil
	}
	each, err := ParseSpec(spec)
	switch {
	case err != nil:
		a.failWith(err, "each", "%v", err)
	case each.Planes > 1 || len(each.routers) > 0:
		a.fail("each", "is several subnets itself: want one")
	case len(each.switches) == 0:
		a.fail("each", "has no switch that a router could be cabled to: want one")
	}
	if a.err != nil {
		return nil
	}
	top := farthest(each)
	at := func(r int) int { return top[r*max(len(top)/routers, 1)%len(top)] } // here and there
	more := make([]int, len(each.Nodes))                                      // ports for routers
	for r := range routers {
		more[at(r)]++
	}
	for _, n := range each.switches {
		if n.NumPorts()+more[n.Index] > MaxPorts {
			a.fail("routers", "%s would need %d ports: a switch has at most %d", n.Name, n.NumPorts()+more[n.Index],
				MaxPorts)
			return nil
		}
	}
	if need := len(each.hosts) + len(each.switches) + routers; need > int(ib.LIDUnicastMax) {
		a.fail("each", "%d hosts, %d switches and %d routers need %d LIDs: a subnet has %d", len(each.hosts),
			len(each.switches), routers, need, int(ib.LIDUnicastMax))
		return nil
	}
	b := &builder{g: &Graph{Kind: fmt.Sprintf("%d subnets of %s", count, each.Kind)}, link: a.link}
	b.g.grow(count*len(each.Nodes) + routers)
	nodes := make([][]int, count) // by subnet and node of each
	for k := range nodes {
		nodes[k] = make([]int, len(each.Nodes))
		for _, n := range each.hosts {
			nodes[k][n.Index] = b.copyHost(n, k, len(each.hosts)).Index
		}
	}
	for k := range nodes {
		for _, n := range each.switches {
			nodes[k][n.Index] = b.named(fmt.Sprintf("s%d-%s", k+1, n.Name), n.NumPorts()+more[n.Index]).Index
		}
	}
	for k := range nodes {
		for _, c := range each.Cables() {
			x := each.Port(c.A)
			link := LinkSpec{Width: x.Width, Speed: x.Speed, LengthMM: x.LengthMM}
			if err := b.g.Connect(nodes[k][c.A.Node], c.A.Port, nodes[k][c.B.Node], c.B.Port, link); err != nil {
				panic(err)
			}
		}
	}
	for r := range routers {
		rt := b.router(count)
		n := each.Nodes[at(r)]
		used := n.NumPorts() + more[n.Index]
		more[n.Index]--
		for k := range count {
			b.cable(rt, k+1, b.g.Nodes[nodes[k][n.Index]], used)
		}
	}
	return b.g
}

// copyHost adds a host like n, for subnet k of which each has so many. Hosts with plain names are counted on.
func (b *builder) copyHost(n *Node, k, hosts int) *Node {
	name := fmt.Sprintf("s%d-%s", k+1, n.Name)
	if i, err := strconv.Atoi(strings.TrimPrefix(n.Name, "h")); err == nil {
		name = "h" + strconv.Itoa(k*hosts+i)
	}
	c := Node{Name: name, Type: ib.NodeCA, GUID: ib.GUID(guidHost | (len(b.g.hosts)+1)<<4), VendorID: n.VendorID,
		DeviceID: n.DeviceID, Desc: name + strings.TrimPrefix(n.Desc, n.Name)}
	if n.SystemGUID != n.GUID {
		c.SystemGUID = n.SystemGUID + ib.GUID(k*hosts<<4)
	}
	h := b.add(c, n.NumPorts())
	for p := 1; p <= h.NumPorts(); p++ {
		if err := b.g.SetPortGUID(h.Index, ib.PortNum(p), h.GUID+ib.GUID(p)); err != nil {
			panic(err)
		}
	}
	return h
}

// router adds the next router, rt1 first.
func (b *builder) router(ports int) *Node {
	number := len(b.g.routers) + 1
	name := plainNames[ib.NodeRouter] + strconv.Itoa(number)
	n := b.add(Node{Name: name, Type: ib.NodeRouter, GUID: ib.GUID(guidRouter | number<<8), VendorID: VendorID,
		DeviceID: genDeviceRt, Desc: name}, ports)
	for p := 1; p <= ports; p++ {
		if err := b.g.SetPortGUID(n.Index, ib.PortNum(p), n.GUID+ib.GUID(p)); err != nil {
			panic(err)
		}
	}
	return n
}

// farthest are the switches that are as far from the next host as any.
func farthest(g *Graph) (list []int) {
	dist := make([]int, len(g.Nodes))
	var queue []int
	for _, h := range g.hosts {
		queue = append(queue, h.Index)
	}
	for at := 0; at < len(queue); at++ {
		for p := range g.Nodes[queue[at]].Ports {
			x := &g.Nodes[queue[at]].Ports[p]
			if x.Connected() && dist[x.Peer] == 0 && g.Nodes[x.Peer].IsSwitch() {
				dist[x.Peer] = dist[queue[at]] + 1
				queue = append(queue, x.Peer)
			}
		}
	}
	most := 0
	for _, n := range g.switches {
		most = max(most, dist[n.Index])
	}
	for _, n := range g.switches {
		if dist[n.Index] == most {
			list = append(list, n.Index)
		}
	}
	return list
}
