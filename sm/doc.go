// Package sm programs a fabric by management datagrams: today the bring-up
// that a fabric of a known shape needs, and the place where the subnet manager
// grows (discovery along directed routes, partitions, QoS, SA, handover).
//
// BringUp runs in phases, each over all nodes: read NodeInfo, PortInfo and
// SwitchInfo; give every end port a LID; compute routes; write forwarding
// tables, lanes, arbitration, partitions; make every link Armed, then
// Active. Everything that it learns and changes goes through 256-byte
// MADs, which a node's agent answers, so that what works here is what a
// manager on real hardware could do. Only the shape of the fabric is taken from the
// graph that it was built from.
//
// The package knows no link, switch or adapter, no packet and no clock. A driver
// implements Fabric, which takes a datagram to the agent of a node and
// brings the answer back:
//
//	report, err := sm.BringUp(graph, fabric)
//	err = sm.ProgramMulticast(graph, fabric, 0xC001, members)
//
// Both may be called again after links went up or down: they read the
// present states and write what follows from those.
//
// Routes are computed in route.go, which knows wires and numbers only: up/down
// routing (up*, then down*, never up again) with the flows spread over equally
// short ways. No cycle of links that wait for each other can form, on any
// topology; on a fat tree the ways are the shortest.
package sm
