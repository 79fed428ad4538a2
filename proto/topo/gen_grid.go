package topo

import (
	"fmt"
	"strconv"
	"strings"
)

var gridOptions = []Option{{"hosts", "hosts on every switch (1)"}}

var torusGenerator = Generator{
	Name: "torus", Example: "torus:4x4x4", Value: "the size of each dimension, such as 4x4x4",
	Help: "switches in a grid whose rows close into rings, any number of dimensions", Options: gridOptions,
	build: func(a *args) *Graph { return buildGrid(a, "torus", true, a.dims()) },
}

var meshGenerator = Generator{
	Name: "mesh", Example: "mesh:4x4", Value: "the size of each dimension, such as 4x4",
	Help: "switches in a grid with open edges, any number of dimensions", Options: gridOptions,
	build: func(a *args) *Graph { return buildGrid(a, "mesh", false, a.dims()) },
}

var lineGenerator = Generator{
	Name: "line", Example: "line:3", Value: "the number of switches",
	Help: "switches in a row", Options: gridOptions,
	build: func(a *args) *Graph { return buildGrid(a, "line", false, []int{a.bareInt("switches", 1, maxGrid)}) },
}

var ringGenerator = Generator{
	Name: "ring", Example: "ring:5", Value: "the number of switches",
	Help: "switches in a circle", Options: gridOptions,
	build: func(a *args) *Graph { return buildGrid(a, "ring", true, []int{a.bareInt("switches", 3, maxGrid)}) },
}

// maxGrid bounds one dimension; the LID limit bounds them all.
const maxGrid = 1 << 16

// maxDims keeps two ports for each dimension within a switch.
const maxDims = 16

// dims reads "4x4x4".
func (a *args) dims() []int {
	if a.bare == "" {
		a.fail("", "the size is missing: want %s", a.gen.Value)
		return nil
	}
	words := strings.Split(a.bare, "x")
	if len(words) > maxDims {
		a.fail(a.bare, "has %d dimensions: want at most %d", len(words), maxDims)
		return nil
	}
	var dims []int
	for i, w := range words {
		dims = append(dims, a.number(fmt.Sprintf("dimension %d", i+1), w, 1, maxGrid))
	}
	return dims
}

// buildGrid makes a mesh or, with wrap, a torus. The first dimension runs
// fastest. Port 2d+1 of a switch leads to its next neighbour in dimension d,
// port 2d+2 to the one before; the hosts follow. A ring of two has one cable, not
// two: the neighbour ahead is the neighbour behind.
func buildGrid(a *args, kind string, wrap bool, dims []int) *Graph {
	perSwitch := a.int("hosts", 1, 0, MaxPorts-2*maxDims)
	if a.err != nil {
		return nil
	}
	count := 1
	for _, d := range dims {
		// Stops before the product overflows; newBuilder refuses the rest.
		if count <= maxGrid {
			count *= d
		}
	}
	b := newBuilder(a, gridKind(kind, dims), count*perSwitch, count)
	if b == nil {
		return nil
	}
	first := 2*len(dims) + 1
	for i := range count {
		sw := b.sw("sw", i+1, 2*len(dims)+perSwitch)
		for h := range perSwitch {
			b.attach(i*perSwitch+h, sw, first+h)
		}
	}
	stride := 1
	for d, size := range dims {
		for i, sw := range b.g.switches {
			at := i / stride % size
			switch {
			case at+1 < size:
				b.cable(sw, 2*d+1, b.g.switches[i+stride], 2*d+2)
			case wrap && size > 2:
				b.cable(sw, 2*d+1, b.g.switches[i-at*stride], 2*d+2)
			}
		}
		stride *= size
	}
	return b.g
}

// gridKind says the size too where there is more than one number to it.
func gridKind(kind string, dims []int) string {
	if len(dims) == 1 {
		return kind
	}
	var w []string
	for _, d := range dims {
		w = append(w, strconv.Itoa(d))
	}
	return strings.Join(w, "x") + " " + kind
}
