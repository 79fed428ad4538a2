// Package metrics is /metrics: what a running fabric counts, in the text format that Prometheus scrapes.
//
// There are four parts, and ?collect[]=NAME takes some of them, as with node_exporter:
//
//	switch  ports of switches, in the names of treydock's infiniband_exporter
//	hca     ports of hosts, in the same
//	ufm     all ports, in the names of UFM Telemetry
//	softib  our own: the subnet manager, links, faults, tenants, programs; and the process itself
//
// Dashboards and alert rules that people have for real fabrics work on this one; contrib/prometheus and contrib/grafana
// have ours.
//
// A fabric of 11,664 hosts has 70,000 ports and 4.5 million samples, 430 MB of text, so what would be a client
// library's work is done here: label sets are text that was made once (index.go), each family is a loop that appends
// (families.go), several blocks are made at once and written in their order (stream.go). The fabric is held for as long
// as its counters are copied, and never while text is made or written. Who accepts gzip gets it, a block at a time as
// members of one file, on all cores: that takes longer than everything else, and is a thirtieth of the bytes.
//
// Measured on two cores that the reading client shares: 0.37 s for all and 0.16 s for the ports of switches on a nearly
// idle machine with counters that were mostly 0; 0.49 s for all with counters of weeks of traffic (BenchmarkScrape,
// TestLarge) on a busy one. Prometheus takes longer to file it away: 5.5 s for the 1.8 million samples of switches, 35
// s the first time, on a busy machine (BenchmarkPrometheus).
//
// The package knows no fabric: it asks a *manager.Manager.
//
//	http.Handle("/metrics", metrics.New(m))
package metrics
