package topo

var starGenerator = Generator{
	Name: "star", Example: "star:4", Value: "the number of hosts",
	Help:  "hosts around one switch",
	build: buildStar,
}

func buildStar(a *args) *Graph {
	hosts := a.bareInt("hosts", 1, MaxPorts)
	b := newBuilder(a, "star", hosts, 1)
	if b == nil {
		return nil
	}
	sw := b.sw("sw", 1, hosts)
	for i := range hosts {
		b.attach(i, sw, i+1)
	}
	return b.g
}

var pairGenerator = Generator{
	Name: "pair", Aliases: []string{"back-to-back"}, Example: "pair",
	Help:  "two hosts and one cable, no switch",
	build: buildPair,
}

func buildPair(a *args) *Graph {
	b := newBuilder(a, "back-to-back pair", 2, 0)
	if b == nil {
		return nil
	}
	b.attach(0, b.g.hosts[1], 1)
	return b.g
}
