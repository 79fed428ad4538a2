// Package topo is the shape of a fabric: nodes, their ports and the cables
// between them, as one plain Graph value.
//
// A Graph comes from one of three places: a generator (ParseSpec reads
// "fat-tree:radix=8,levels=2" and its kin), a dump that one of the field's tools
// wrote (Read, which knows six formats by what is in them, and Write for the way
// back to ibnetdiscover's), or a subnet manager that adds what it discovers (Add
// and Connect). Check looks for what is odd about it, Describe says it in one
// line, and Distances measures it.
//
// ibnetdiscover's format tells of nodes and has a reader of its own. The others
// list ports or cables (format_*.go), of which lister.go makes nodes.
//
// The package knows no packet, no state machine, no forwarding table and no
// routing engine: it says what is plugged in where, how wide, how fast and how
// long. LIDs appear only as the hint that a dump of a real fabric carries.
//
// Nodes have dense indices: Graph.Nodes[i].Index == i, in the order in which
// they were added, so that everything computed per node is a slice. Nothing
// here depends on the order of a map; the same input gives the same Graph.
//
// # GUIDs of generated nodes
//
// Generated GUIDs start with 0x02, which marks an EUI-64 as locally
// administered, so they can't clash with those of bought hardware:
//
//	0x0250f11b TT NNNNN P
//	           |  |     port: 0 is the node, 1 is port 1
//	           |  ordinal from 1, as in h1 or leaf1
//	           01 a host, 02 a switch (numbered through all levels), 03 a server: the system image GUID of its adapters
//
// A router's are 0x0250f11b 04 NNNN PP.
//
// So h1 is 0x0250f11b01000010 and its port 0x0250f11b01000011.
package topo
