package topo

import (
	"fmt"
	"strconv"
	"strings"

	"softib/proto/ib"
)

var railGenerator = Generator{
	Name: "rail", Aliases: []string{"rail-optimised", "rail-optimized"}, Example: "rail:gpus=4,servers=8,radix=16",
	Help: "servers with an adapter for each GPU on a tree of as few switches as it takes, rail-optimised",
	Options: []Option{
		{"gpus", "GPUs of a server, each with an adapter of one port (8)"},
		{"servers", "number of servers (16)"},
		{"radix", "ports of every switch (64)"},
		{"levels", "levels of switches, 2 or 3 (as few as it takes)"},
		{"group", "servers that share leafs (as many as a leaf has room for)"},
		{"taper", "adapters per uplink of a leaf, 2 or 3:2; ports that do not divide stay free (1)"},
		{"wiring", "rail: adapter i of every server to leafs of rail i; rack: all of a server to one leaf (rail)"},
	},
	build: buildRail,
}

// railTree is the arithmetic of a tree for servers with several adapters, built as NVIDIA's reference architectures
// are: every switch has all its ports in use, so that two switches share several cables where there are fewer of the
// upper ones than a lower one has uplinks.
//
// With rail wiring, group servers share one leaf for each rail, and leafs of one rail stand beside each other. In a
// tree of three levels leafs are cut into pods, of which none has leafs of two rails: traffic of a rail stays below the
// cores as long as its servers are in one pod.
type railTree struct {
	gpus, servers, radix, levels int
	group                        int // servers that share leafs
	down, up                     int // ports of a leaf
	isRack                       bool
	leafs                        int // all of them
	rows                         int // of leafs that are cut into pods by themselves: rails
	pods, perPod                 int // pods of a row, leafs of a pod
	spines, cores                int // of a pod; of each spine's place in its pod
	spineUp                      int
}

// fewest is how many switches of some ports can take up uplinks of each of n lower ones, so that each reaches all of
// them; 0 if none can.
func fewest(n, up, ports int) int {
	for s := max((n*up+ports-1)/ports, 1); s <= up; s++ {
		if n*((up+s-1)/s) <= ports {
			return s
		}
	}
	return 0
}

func buildRail(a *args) *Graph {
	t := readRail(a)
	if a.err != nil {
		return nil
	}
	pods := t.rows * t.pods
	switches := t.leafs + t.spines
	if t.levels == 3 {
		switches = t.leafs + pods*t.spines + t.spines*t.cores
	}
	kind := "rail-optimised tree"
	if t.isRack {
		kind = "tree with a leaf in every rack"
	}
	b := newEmptyBuilder(a, kind, t.gpus*t.servers, switches)
	if b == nil {
		return nil
	}
	for i := range t.gpus * t.servers {
		server := i/t.gpus + 1
		b.adapter(fmt.Sprintf("s%dg%d", server, i%t.gpus+1), ib.GUID(guidServer|server<<4))
	}
	leafs := b.row(levelNames[0], t.leafs, t.radix)
	for i := range t.gpus * t.servers {
		leaf, port := t.place(i)
		b.attach(i, leafs[leaf], port+1)
	}
	if t.levels == 2 {
		b.join(leafs, b.row(levelNames[1], t.spines, t.radix), t.down, t.up)
		return b.g
	}
	spines := b.row(levelNames[1], pods*t.spines, t.radix)
	perRow := t.leafs / t.rows
	for p := range pods {
		lo := p/t.pods*perRow + p%t.pods*t.perPod
		hi := min(lo+t.perPod, p/t.pods*perRow+perRow)
		b.join(leafs[lo:hi], spines[p*t.spines:(p+1)*t.spines], t.down, t.up)
	}
	cores := b.row(levelNames[2], t.spines*t.cores, t.radix)
	for s := range t.spines {
		var lower []*Node
		for p := range pods {
			lower = append(lower, spines[p*t.spines+s])
		}
		b.join(lower, cores[s*t.cores:(s+1)*t.cores], t.radix-t.spineUp, t.spineUp)
	}
	return b.g
}

// place is the leaf of an adapter and which of its ports, from 0.
func (t *railTree) place(adapter int) (leaf, port int) {
	if t.isRack {
		return adapter / t.down, adapter % t.down
	}
	server, rail := adapter/t.gpus, adapter%t.gpus
	return rail*(t.leafs/t.rows) + server/t.group, server % t.group
}

// readRail checks the options.
func readRail(a *args) railTree {
	t := railTree{gpus: a.int("gpus", 8, 1, MaxPorts), servers: a.int("servers", 16, 1, 1<<16),
		radix: a.int("radix", 64, 4, MaxPorts), levels: a.int("levels", 0, 2, 3), rows: 1}
	switch wiring := a.values["wiring"]; wiring {
	case "", "rail":
	case "rack":
		t.isRack = true
	default:
		a.fail("wiring", "is %q: want rail or rack", wiring)
	}
	down, up := 1, 1
	if v, ok := a.values["taper"]; ok {
		down, up = readRatio(a, "taper", v)
	}
	if a.err != nil {
		return t
	}
	t.down, t.up = t.radix/(down+up)*down, t.radix/(down+up)*up
	if t.up == 0 {
		a.fail("taper", "is %d:%d: a leaf of %d ports has no uplink left: want less, or a larger radix", down, up,
			t.radix)
		return t
	}
	most := t.down
	if t.isRack {
		most = t.down / t.gpus
	}
	if most == 0 {
		a.fail("gpus", "is %d: a leaf of radix %d has %d ports for adapters: want fewer GPUs or a larger radix", t.gpus,
			t.radix, t.down)
		return t
	}
	t.group = a.int("group", min(most, t.servers), 1, most)
	// A leaf that is not full has fewer uplinks too.
	t.down = t.group
	if t.isRack {
		t.down = t.group * t.gpus
	}
	t.up = (t.down*up + down - 1) / down
	groups := (t.servers + t.group - 1) / t.group
	t.leafs = groups
	if !t.isRack {
		t.leafs, t.rows = groups*t.gpus, t.gpus
	}
	t.size(a)
	return t
}

// size finds the switches above the leafs.
func (t *railTree) size(a *args) {
	asked := t.levels
	if t.levels != 3 {
		if t.spines = fewest(t.leafs, t.up, t.radix); t.spines > 0 {
			t.levels = 2
			return
		}
	}
	if asked == 2 {
		a.fail("levels", "is 2: %d leafs with %d uplinks each are too many for spines of %d ports: want levels=3, "+
			"fewer servers or a larger radix", t.leafs, t.up, t.radix)
		return
	}
	t.levels = 3
	half, perRow := t.radix/2, t.leafs/t.rows
	for t.pods = (perRow + half - 1) / half; ; t.pods++ {
		t.perPod = (perRow + t.pods - 1) / t.pods
		if t.spines = fewest(t.perPod, t.up, half); t.spines > 0 {
			break
		}
	}
	t.pods = (perRow + t.perPod - 1) / t.perPod
	t.spineUp = (t.perPod*t.up + t.spines - 1) / t.spines
	if t.cores = fewest(t.rows*t.pods, t.spineUp, t.radix); t.cores == 0 {
		a.fail("servers", "is %d: %d pods are too many for cores of %d ports: want fewer servers or a larger radix",
			t.servers, t.rows*t.pods, t.radix)
	}
}

// readRatio reads how many of one go to how many of another: 3 or 3:2.
func readRatio(a *args, key, v string) (down, up int) {
	d, u, isRatio := strings.Cut(v, ":")
	if !isRatio {
		u = "1"
	}
	down, errDown := strconv.Atoi(d)
	up, errUp := strconv.Atoi(u)
	if errDown != nil || errUp != nil || up < 1 || down < up || down > MaxPorts {
		a.fail(key, "is %q: want hosts per uplink, such as 3 or 3:2, not below 1", v)
		return 1, 1
	}
	return down, up
}

// row adds switches of a level.
func (b *builder) row(level string, count, ports int) (list []*Node) {
	for i := range count {
		list = append(list, b.sw(level, i+1, ports))
	}
	return list
}

// join plugs the uplinks of every lower switch, which come behind its down ports, into the upper ones in turn.
func (b *builder) join(lower, upper []*Node, down, up int) {
	each := (up + len(upper) - 1) / len(upper)
	for i, sw := range lower {
		for j := range up {
			b.cable(sw, down+1+j, upper[j%len(upper)], i*each+j/len(upper)+1)
		}
	}
}
