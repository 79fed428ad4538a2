package topo

import (
	"strconv"
	"strings"

	"softib/proto/ib"
)

// Names of nodes that come from a file, in the order of the file:
//
//  1. A description that a managed switch makes of its host name,
//     "MF0;leaf07:MQM8700/U1", gives that host name: leaf07. A part of a larger box
//     says which one it is, and so does its name: "MF0;dir1:CS8500/L03/U1" is
//     dir1-L03, and a second chip there dir1-L03-U2.
//  2. A description that only names the chip ("… Mellanox Technologies") or is
//     empty names nothing: the node becomes h1, sw1 or rt1, numbered by its place
//     among the nodes of its type.
//  3. Otherwise the first word of the description is the name when it would do as
//     a host name: "node01 HCA-1" gives node01. When not, as in 2.
//  4. A name that an earlier node has already gets -2, -3 and so on: the second
//     adapter of node01 is node01-2.
type namer struct {
	taken map[string]bool
	// next is the suffix to try first, so that a thousand equal names are not quadratic.
	next  map[string]int
	count [ib.NodeRouter + 1]int
}

func newNamer() *namer { return &namer{taken: map[string]bool{}, next: map[string]int{}} }

var plainNames = [ib.NodeRouter + 1]string{ib.NodeCA: "h", ib.NodeSwitch: "sw", ib.NodeRouter: "rt"}

// derive is the name that the rules give to the next node. It takes nothing yet.
func (n *namer) derive(t ib.NodeType, desc string) string {
	base := nameFromDesc(desc)
	if base == "" {
		base = plainNames[t] + strconv.Itoa(n.count[t]+1)
	}
	if !n.taken[base] {
		return base
	}
	for i := max(n.next[base], 2); ; i++ {
		if name := base + "-" + strconv.Itoa(i); !n.taken[name] {
			n.next[base] = i
			return name
		}
	}
}

// take gives a name to the next node of type t.
func (n *namer) take(t ib.NodeType, name string) {
	n.taken[name] = true
	n.count[t]++
}

// nameFromDesc applies rules 1 to 3; empty when the description names nothing.
func nameFromDesc(desc string) string {
	if strings.Contains(desc, "Mellanox Technologies") {
		return ""
	}
	if strings.HasPrefix(desc, "MF") {
		if _, rest, ok := strings.Cut(desc, ";"); ok {
			if name, model, ok := strings.Cut(rest, ":"); ok && isHostName(name) {
				if part := name + partOf(model); isHostName(part) {
					return part
				}
				return name
			}
		}
	}
	first, _, _ := strings.Cut(strings.TrimSpace(desc), " ")
	if isHostName(first) {
		return first
	}
	return ""
}

// NamesNode reports whether a description says which node it is, and not only what kind of chip.
func NamesNode(desc string) bool { return nameFromDesc(desc) != "" }

// partOf is what tells a part of a box from the others, from "MODEL/L03/U1"; the first or only chip goes without
// saying.
func partOf(model string) (part string) {
	_, path, _ := strings.Cut(model, "/")
	for step := range strings.SplitSeq(path, "/") {
		if step != "" && step != "U1" {
			part += "-" + step
		}
	}
	return part
}

// isHostName accepts letters, digits, dots, underscores and hyphens, at most 63,
// with a letter or a digit in front: what can be typed unquoted anywhere.
func isHostName(s string) bool {
	if s == "" || len(s) > 63 || s[0] == '-' || s[0] == '.' || s[0] == '_' {
		return false
	}
	for _, c := range []byte(s) {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '-', c == '.', c == '_':
		default:
			return false
		}
	}
	return true
}

// cleanDesc makes a description fit for one line: what is not printable ASCII
// becomes a space, as the tools that print descriptions do.
func cleanDesc(s string) string {
	for i := 0; i < len(s); i++ {
		if s[i] < ' ' || s[i] > '~' {
			b := []byte(s)
			for j, c := range b {
				if c < ' ' || c > '~' {
					b[j] = ' '
				}
			}
			return string(b)
		}
	}
	return s
}

// Namer gives names to nodes one after another by the rules above, for those who find nodes otherwise than in a file.
type Namer struct{ n *namer }

// NewNamer has given no name yet.
func NewNamer() *Namer { return &Namer{newNamer()} }

// Name is the name of the next node.
func (n *Namer) Name(t ib.NodeType, desc string) string {
	name := n.n.derive(t, desc)
	n.n.take(t, name)
	return name
}
