package topo

// This file is not called gen_dragonfly.go: go build would take the suffix for the
// operating system of that name and leave the file out.

var dragonflyGenerator = Generator{
	Name: "dragonfly", Example: "dragonfly:a=4,h=2,p=2,g=9",
	Help: "groups of fully meshed switches, every group cabled to every other",
	Options: []Option{
		{"a", "switches in a group (2h)"},
		{"h", "global links of a switch (2)"},
		{"p", "hosts on a switch (h)"},
		{"g", "groups, at most a*h+1 (a*h+1)"},
	},
	build: buildDragonfly,
}

// buildDragonfly makes the topology of Kim, Dally, Scott and Abts (ISCA 2008).
// The defaults are their balanced one: a = 2p = 2h.
//
// Ports of a switch: its hosts, then the other switches of its group in order,
// then its global links. The a*h global links of a group are numbered through;
// each pair of groups shares the same number of them, and link o*per+t of a
// group leads o+1 groups ahead, around the circle.
func buildDragonfly(a *args) *Graph {
	h := a.int("h", 2, 1, MaxPorts)
	perGroup := a.int("a", 2*h, 1, MaxPorts)
	p := a.int("p", h, 0, MaxPorts)
	if a.err == nil && p+perGroup-1+h > MaxPorts {
		a.fail("", "a switch would have p + a-1 + h = %d ports: want at most %d", p+perGroup-1+h, MaxPorts)
	}
	most := perGroup*h + 1
	groups := most
	if a.has("g") {
		groups = a.int("g", most, 1, most)
	}
	if a.err != nil {
		return nil
	}
	b := newBuilder(a, "dragonfly", groups*perGroup*p, groups*perGroup)
	if b == nil {
		return nil
	}
	for i := range groups * perGroup {
		sw := b.sw("sw", i+1, p+perGroup-1+h)
		for j := range p {
			b.attach(i*p+j, sw, j+1)
		}
	}
	for grp := range groups {
		cableGroup(b, b.g.switches[grp*perGroup:(grp+1)*perGroup], p)
	}
	if groups < 2 {
		return b.g
	}
	global := func(group, link int) (*Node, int) {
		return b.g.switches[group*perGroup+link/h], p + perGroup + link%h
	}
	per := perGroup * h / (groups - 1)
	for grp := range groups {
		for peer := grp + 1; peer < groups; peer++ {
			ahead := peer - grp
			for t := range per {
				x, px := global(grp, (ahead-1)*per+t)
				y, py := global(peer, (groups-ahead-1)*per+t)
				b.cable(x, px, y, py)
			}
		}
	}
	return b.g
}

// cableGroup meshes one group: switch i reaches switch j at port p+j, counted
// from 1 without itself.
func cableGroup(b *builder, sw []*Node, p int) {
	for i := range sw {
		for j := i + 1; j < len(sw); j++ {
			b.cable(sw[i], p+j, sw[j], p+i+1)
		}
	}
}
