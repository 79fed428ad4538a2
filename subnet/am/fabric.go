package am

import (
	"softib/proto/ib"
	"softib/subnet/route"
)

// Fabric is the switches as far as trees can be laid over them.
type Fabric struct {
	links [][]link // by switch
}

// link is a neighbour of a switch that messages go to and come from directly.
type link struct {
	to        int32
	port, far ib.PortNum // by which port they leave here, and by which they leave there
}

// NewFabric looks at a network. way is the port by which messages leave a switch towards another that is its neighbour,
// as its tables have it now; route.NoPort if there is none. Between two switches there may be several cables: messages
// take the one that the tables name, and so does the tree.
func NewFabric(n *route.Network, way func(from, to int32) ib.PortNum) *Fabric {
	f := &Fabric{links: make([][]link, len(n.Switches))}
	direct := func(from, to int32) (ib.PortNum, bool) {
		p := way(from, to)
		ports := n.Switches[from].Ports
		return p, p != 0 && int(p) < len(ports) && ports[p].To == to
	}
	seen := make([]int32, len(n.Switches)) // by switch: 1 + the last one that it was looked at from
	for s := range n.Switches {
		for _, h := range n.Switches[s].Ports {
			if h.To == route.NoSwitch || h.To == int32(s) || seen[h.To] == int32(s)+1 {
				continue
			}
			seen[h.To] = int32(s) + 1
			out, ok := direct(int32(s), h.To)
			back, also := direct(h.To, int32(s))
			if ok && also {
				f.links[s] = append(f.links[s], link{to: h.To, port: out, far: back})
			}
		}
	}
	return f
}
