package topo

import (
	"fmt"

	"softib/proto/ib"
)

var fatTreeGenerator = Generator{
	Name: "fat-tree", Aliases: []string{"fattree", "clos"}, Example: DefaultSpec,
	Help: "k-ary fat tree of radix-k switches, 1 to 4 levels",
	Options: []Option{
		{"radix", "ports of every switch, even (8)"},
		{"levels", "levels of switches, 1 to 4 (2)"},
		{"pods", "build only the first pods of the tree (all)"},
		{"hosts", "stop after this many hosts, leaving out the pods that stay empty (all)"},
		{"oversub", "hosts per uplink of a leaf, 3 or 3:1 (1)"},
		{"taper", "the same, and leaf ports that do not divide stay free"},
		{"gpus", "so many hosts, one after the other, are adapters of one server with a GPU each (1)"},
	},
	build: buildFatTree,
}

// levelNames are the switches' names, from the hosts upwards.
var levelNames = [...]string{"leaf", "spine", "core", "super"}

// fatTree is the arithmetic of a k-ary tree with n levels (a k-ary n-tree whose
// roots use all their ports downwards).
//
// Below the roots the tree is cut into pods, one for each port of a root. A
// switch of a pod at level l (1 is a leaf) is named by levels-2 digits. The
// digits from l upwards say in which subtree it stands; those below l say which
// of the parallel switches of that subtree it is. Two switches of neighbouring
// levels l and l+1 share a cable when their digits agree everywhere but at
// place l: there the lower one's digit is the down port of the upper one, and
// the upper one's is the up port of the lower. A root has one more digit, and its
// down port is the pod.
type fatTree struct {
	radix, levels, pods int
	// leafDown hosts and leafUp uplinks of a leaf; half ports each way above.
	leafDown, leafUp, half int
}

func pow(base, n int) int {
	v := 1
	for range n {
		v *= base
	}
	return v
}

// perPod counts the switches of a level in one pod, for a level below the roots.
func (t fatTree) perPod(level int) int {
	if level == 1 || t.levels == 2 {
		return pow(t.half, t.levels-2)
	}
	// The digit at place 1 counts the uplinks of a leaf.
	return t.leafUp * pow(t.half, t.levels-3)
}

// roots counts the switches of the top level.
func (t fatTree) roots() int {
	switch t.levels {
	case 1:
		return 1
	case 2:
		return t.leafUp
	}
	return t.leafUp * pow(t.half, t.levels-2)
}

// hostsPerPod counts the host ports of a pod.
func (t fatTree) hostsPerPod() int {
	if t.levels == 1 {
		return t.radix
	}
	return t.leafDown * t.perPod(1)
}

func (t fatTree) switches() int {
	n := t.roots()
	for l := 1; l < t.levels; l++ {
		n += t.pods * t.perPod(l)
	}
	return n
}

func buildFatTree(a *args) *Graph {
	t, hosts := readFatTree(a)
	if a.err != nil {
		return nil
	}
	gpus := a.int("gpus", 1, 1, MaxPorts)
	b := newBuilder(a, "fat tree", hosts, t.switches())
	if b == nil {
		return nil
	}
	for i := range hosts - hosts%gpus {
		if gpus > 1 {
			b.g.hosts[i].SystemGUID = ib.GUID(guidServer | (i/gpus+1)<<4)
		}
	}
	// level[l] holds the switches of level l+1, pod by pod.
	level := make([][]*Node, t.levels)
	for l := range level {
		count := t.roots()
		if l+1 < t.levels {
			count = t.pods * t.perPod(l+1)
		}
		for i := range count {
			level[l] = append(level[l], b.sw(levelNames[l], i+1, t.radix))
		}
	}
	perLeaf := t.leafDown
	if t.levels == 1 {
		perLeaf = t.radix
	}
	for h := range hosts {
		b.attach(h, level[0][h/perLeaf], h%perLeaf+1)
	}
	for l := 1; l < t.levels; l++ {
		t.cableLevel(b, l, level[l-1], level[l])
	}
	return b.g
}

// cableLevel plugs every uplink of level l, in the order of the lower switches
// and their ports.
func (t fatTree) cableLevel(b *builder, l int, lower, upper []*Node) {
	down, up := t.half, t.half
	if l == 1 {
		down, up = t.leafDown, t.leafUp
	}
	perPod := t.perPod(l)
	// stride is the weight of the digit at place l.
	stride := 1
	if l > 1 {
		stride = t.leafUp * pow(t.half, l-2)
	}
	for i, sw := range lower {
		pod, w := i/perPod, i%perPod
		for j := range up {
			if l == t.levels-1 {
				b.cable(sw, down+1+j, upper[w*up+j], pod+1)
				continue
			}
			below, digit, above := w%stride, w/stride%t.half, w/stride/t.half
			// The upper level counts place l in base up.
			peer := pod*t.perPod(l+1) + (above*up+j)*stride + below
			b.cable(sw, down+1+j, upper[peer], digit+1)
		}
	}
}

// readFatTree checks the options and answers the tree and its host count.
func readFatTree(a *args) (fatTree, int) {
	t := fatTree{levels: a.int("levels", 2, 1, len(levelNames)), radix: a.int("radix", 8, 2, MaxPorts)}
	if t.radix%2 != 0 && t.levels > 1 {
		a.fail("radix", "is %d: want an even number, half of the ports go down and half up", t.radix)
	}
	t.half = t.radix / 2
	t.leafDown, t.leafUp = t.half, t.half
	if v, ok := a.values["oversub"]; ok {
		t.readOversub(a, v)
	} else if v, ok := a.values["taper"]; ok {
		down, up := readRatio(a, "taper", v)
		if t.levels == 1 || t.radix < down+up {
			a.fail("taper", "is %s: leafs have no ports for uplinks: want levels=2 or more and a radix of %d", v,
				down+up)
		}
		t.leafDown, t.leafUp = t.radix/(down+up)*down, t.radix/(down+up)*up
	}
	t.pods = t.radix
	if t.levels == 1 {
		t.pods = 1
		if a.has("pods") {
			a.fail("pods", "a tree of one level has no pods: want levels=2 or more with pods=")
		}
	} else {
		t.pods = a.int("pods", t.radix, 1, t.radix)
	}
	if a.err != nil {
		return t, 0
	}
	hosts := t.pods * t.hostsPerPod()
	if a.has("hosts") {
		limit := a.int("hosts", 0, 1, 1<<30)
		if limit > hosts {
			a.failTooSmall(t, limit, hosts)
			return t, 0
		}
		hosts = limit
		t.pods = (hosts + t.hostsPerPod() - 1) / t.hostsPerPod()
	}
	return t, hosts
}

// readOversub splits a leaf's ports by a ratio such as 3 or 3:2.
func (t *fatTree) readOversub(a *args, v string) {
	down, up := readRatio(a, "oversub", v)
	switch {
	case a.err != nil:
	case t.levels == 1:
		a.fail("oversub", "a tree of one level has no uplinks: want levels=2 or more with oversub=")
	case t.radix%(down+up) != 0:
		a.fail("oversub", "is %s: %d ports don't split %d to %d: want a radix that %d divides", v, t.radix, down, up,
			down+up)
	default:
		t.leafUp = t.radix / (down + up) * up
		t.leafDown = t.radix - t.leafUp
	}
}

// failTooSmall refuses a host count that the tree can't hold, and finds the
// smallest radix that would.
func (a *args) failTooSmall(t fatTree, want, have int) {
	a.fail("hosts", "is %d: a tree of radix %d with %d levels and %d pods holds %d", want, t.radix, t.levels, t.pods,
		have)
	e, ok := a.err.(*SpecError)
	if !ok {
		return
	}
	for radix := 2; radix <= MaxPorts; radix += 2 {
		if 2*pow(radix/2, t.levels) >= want {
			e.Try = fmt.Sprintf(`"fat-tree:radix=%d,levels=%d,hosts=%d"`, radix, t.levels, want)
			return
		}
	}
}
