package topo

import (
	"fmt"
	"slices"
	"strings"

	"softib/proto/ib"
)

// Describe says in one line what a fabric is: "fat tree, 32 hosts, 12 switches,
// 64 cables, 4x NDR".
func Describe(g *Graph) string {
	kind := g.Kind
	if kind == "" {
		kind = "fabric"
	}
	hosts, service := g.HostsApart()
	parts := []string{kind, count(len(hosts), "host", "hosts")}
	if len(service) > 0 {
		parts = append(parts, count(len(service), "aggregation node", "aggregation nodes"))
	}
	parts = append(parts, count(len(g.switches), "switch", "switches"))
	if len(g.routers) > 0 {
		parts = append(parts, count(len(g.routers), "router", "routers"))
	}
	parts = append(parts, count(g.cables, "cable", "cables"))
	if rates := g.rates(); len(rates) > 0 {
		parts = append(parts, strings.Join(rates, " and "))
	}
	return strings.Join(parts, ", ")
}

func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// rates lists the rates in use, fastest first; past three it gives the span.
func (g *Graph) rates() []string {
	var seen []ib.LinkRate
	for _, c := range g.Cables() {
		if r := g.LinkRate(c.A); !slices.Contains(seen, r) {
			seen = append(seen, r)
		}
	}
	slices.SortFunc(seen, func(a, b ib.LinkRate) int {
		if d := b.Mbps() - a.Mbps(); d != 0 {
			return int(d)
		}
		return int(b.Width) - int(a.Width)
	})
	if len(seen) > 3 {
		return []string{fmt.Sprintf("%d rates from %v to %v", len(seen), seen[len(seen)-1], seen[0])}
	}
	var out []string
	for _, r := range seen {
		out = append(out, r.String())
	}
	return out
}
