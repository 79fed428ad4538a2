// Package policy reads the files in which operators of InfiniBand say what they
// want from a subnet manager, as OpenSM reads them: partitions.conf, opensm.conf with its
// QoS and congestion control options, qos-policy.conf, lists of GUIDs, the node name
// map and guid2lid. It writes them too, so that what was read can be kept.
//
// Every parser takes a name and bytes and touches no file:
//
//	parts, warnings, err := policy.ParsePartitions("partitions.conf", data)
//	err is nil, or Problems: one *Problem for each mistake, with file, line, column,
//	the word and what was expected there; errors.Is and errors.As see each of them.
//
// Results are plain values. Partitions.Resolve holds the partitions against the ports
// of a subnet; Config.PortQoS gives the tables of a kind of port; a QoSMatcher finds the
// level of service that a path query gets.
//
// Where OpenSM guesses (an unknown flag, a value out of range), this package
// reports a mistake instead, because the guess may open a partition to the
// wrong port; what OpenSM documents as accepted is accepted. Each such place says so.
//
// The package knows no datagram, no subnet and no order of bring-up: the subnet manager
// gives it facts about ports and turns its answers into tables.
package policy
