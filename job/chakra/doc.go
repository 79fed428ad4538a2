// Package chakra reads execution traces of MLCommons Chakra (Sridharan et al. 2023), as ASTRA-sim does, and makes a
// job.Schedule of them: a file for each rank, in it nodes that compute, send, receive or take part in a collective, and
// what each waits for.
//
//	s, err := chakra.Schedule(files, chakra.Options{GPU: 400e12})
//
// A file is a stream of protobuf messages, each behind its length: GlobalMetadata, then Nodes (et_def.proto). The
// reader of that is here (proto.go), since it is a page of code.
//
// A compute node takes its duration_micros, or its num_ops by Options.GPU. Collectives are among the ranks that have
// one with the same pg_name, or among all, and are done one after the other in each group; comm_size is a rank's own
// bytes, so that an all-gather's result is that many times larger, as in ASTRA-sim.
package chakra
