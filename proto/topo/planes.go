package topo

import (
	"fmt"

	"softib/proto/ib"
)

// planesMax is how many planes a fabric may have: a host's ports have as many GUIDs.
const planesMax = 8

// inPlanes makes a fabric of several planes: each is the whole of g with switches and cables of its own, and every host
// has its ports once for each, so that port 1 of a host with one port is on the first plane, port 2 on the second. No
// cable joins two planes: each is a subnet.
func inPlanes(a *args, g *Graph, planes int) *Graph {
	b := newEmptyBuilder(a, fmt.Sprintf("%s in %d planes", g.Kind, planes), len(g.hosts)*planes, len(g.switches)*planes)
	if b == nil {
		return nil
	}
	at := make([]int, len(g.Nodes)) // of hosts, and of the first plane's switches
	for _, n := range g.hosts {
		c := b.add(Node{Name: n.Name, Type: n.Type, GUID: n.GUID, SystemGUID: n.SystemGUID, VendorID: n.VendorID,
			DeviceID: n.DeviceID, Desc: n.Desc}, n.NumPorts()*planes)
		at[n.Index] = c.Index
		for p := 1; p <= c.NumPorts(); p++ {
			if err := b.g.SetPortGUID(c.Index, ib.PortNum(p), n.GUID+ib.GUID(p)); err != nil {
				panic(err)
			}
		}
	}
	first := len(b.g.Nodes)
	for k := range planes {
		for i, n := range g.switches {
			b.named(fmt.Sprintf("p%d-%s", k+1, n.Name), n.NumPorts())
			at[n.Index] = first + i
		}
	}
	for _, c := range g.Cables() {
		for k := range planes {
			end := func(r PortRef) (*Node, int) {
				n := g.Nodes[r.Node]
				if n.IsSwitch() {
					return b.g.Nodes[at[r.Node]+k*len(g.switches)], int(r.Port)
				}
				return b.g.Nodes[at[r.Node]], k*n.NumPorts() + int(r.Port)
			}
			x, px := end(c.A)
			y, py := end(c.B)
			b.cable(x, px, y, py)
		}
	}
	b.g.Planes = planes
	return b.g
}
