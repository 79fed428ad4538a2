package webui

import (
	"encoding/json"
	"strconv"

	"softib/operate/manager"
	"softib/proto/ib"
	"softib/proto/topo"
)

// shape is a fabric to be drawn.
type shape struct {
	name, version, topology string
	graph                   *topo.Graph
	cables                  []topo.Cable
}

func shapeOf(m *manager.Manager) shape {
	return shape{m.Name(), m.Version(), m.Topology(), m.Graph(), m.Cables()}
}

// appendTopology writes what the page needs to draw the map, column by column: 11,664 hosts are some hundred kilobytes,
// compressed, and the page reads them into typed arrays. GUIDs and LIDs, which nothing is drawn from, are found by
// /api/v1/search.
func appendTopology(dst []byte, s shape) []byte {
	g, cables := s.graph, s.cables
	l := arrange(g)
	text := func(s string) {
		b, _ := json.Marshal(s) // a string always marshals
		dst = append(dst, b...)
	}
	dst = append(dst, `{"name":`...)
	text(s.name)
	hosts, _ := g.HostsApart()
	dst = append(dst, `,"kind":`...)
	text(topo.Describe(g))
	dst = append(dst, `,"version":`...)
	text(s.version)
	dst = append(dst, `,"topology":`...)
	text(s.topology)
	dst = append(dst, `,"tree":`...)
	dst = strconv.AppendBool(dst, l.Tree)
	for _, v := range []struct {
		key string
		n   int
	}{
		{"levels", l.Levels}, {"width", int(l.Width)}, {"height", int(l.Height)},
		{"hosts", len(hosts)}, {"switches", len(g.Switches())}, {"cellX", cellX},
	} {
		dst = append(dst, `,"`+v.key+`":`...)
		dst = strconv.AppendInt(dst, int64(v.n), 10)
	}
	dst = append(dst, `,"nodes":{"name":[`...)
	for i, n := range g.Nodes {
		if i > 0 {
			dst = append(dst, ',')
		}
		text(n.Name)
	}
	dst = append(dst, ']')
	node := func(key string, value func(i int, n *topo.Node) int) {
		dst = column(dst, key, len(g.Nodes), func(i int) int { return value(i, g.Nodes[i]) })
	}
	node("type", func(_ int, n *topo.Node) int { return int(n.Type) })
	node("ports", func(_ int, n *topo.Node) int { return n.NumPorts() })
	node("level", func(i int, _ *topo.Node) int { return int(l.Level[i]) })
	node("group", func(i int, _ *topo.Node) int { return int(l.Group[i]) })
	node("x", func(i int, _ *topo.Node) int { return int(l.X[i]) })
	node("y", func(i int, _ *topo.Node) int { return int(l.Y[i]) })
	node("w", func(i int, _ *topo.Node) int { return int(l.W[i]) })
	node("h", func(i int, _ *topo.Node) int { return int(l.H[i]) })

	rates, rateOf := cableRates(g, cables)
	dst = append(dst, `},"cables":{"count":`...)
	dst = strconv.AppendInt(dst, int64(len(cables)), 10)
	cable := func(key string, value func(c topo.Cable) int) {
		dst = column(dst, key, len(cables), func(i int) int { return value(cables[i]) })
	}
	cable("a", func(c topo.Cable) int { return c.A.Node })
	cable("ap", func(c topo.Cable) int { return int(c.A.Port) })
	cable("b", func(c topo.Cable) int { return c.B.Node })
	cable("bp", func(c topo.Cable) int { return int(c.B.Port) })
	dst = column(dst, "rate", len(cables), func(i int) int { return rateOf[i] })
	dst = append(dst, `},"rates":[`...)
	for i, r := range rates {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, `{"text":`...)
		text(r.String())
		dst = append(dst, `,"mbps":`...)
		dst = strconv.AppendInt(dst, r.Mbps(), 10)
		dst = append(dst, '}')
	}
	dst = append(dst, `],"groups":[`...)
	for i, gr := range l.Groups {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, `{"name":`...)
		text(gr.Name)
		dst = append(dst, `,"top":`...)
		dst = strconv.AppendBool(dst, gr.Top)
		for _, v := range []struct {
			key string
			n   int
		}{{"x", int(gr.X)}, {"y", int(gr.Y)}, {"w", int(gr.W)}, {"h", int(gr.H)}, {"hosts", gr.Hosts},
			{"switches", gr.Switches}} {
			dst = append(dst, `,"`+v.key+`":`...)
			dst = strconv.AppendInt(dst, int64(v.n), 10)
		}
		dst = append(dst, '}')
	}
	return append(dst, "]}"...)
}

// column writes one value for each of n things.
func column(dst []byte, key string, n int, value func(i int) int) []byte {
	dst = append(dst, `,"`+key+`":[`...)
	for i := range n {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = strconv.AppendInt(dst, int64(value(i)), 10)
	}
	return append(dst, ']')
}

// cableRates are the rates that cables run at, and which of them each does.
func cableRates(g *topo.Graph, cables []topo.Cable) (rates []ib.LinkRate, of []int) {
	index := map[ib.LinkRate]int{}
	of = make([]int, len(cables))
	for i, c := range cables {
		r := g.LinkRate(c.A)
		at, ok := index[r]
		if !ok {
			at = len(rates)
			index[r] = at
			rates = append(rates, r)
		}
		of[i] = at
	}
	return rates, of
}
