// Package jobs runs a job.Schedule on a fabric in virtual time: package play says who sends what when, and a Network
// carries it. There are two:
//
//   - Packets is the engines themselves (package sim): complete adapters with a connected queue pair for each pair of
//     ranks that talk, credits, lanes, switches. Messages are RDMA WRITEs whose last one carries an immediate.
//   - Flows shares the links max-min fair (package flow), over the ways that the same tables give.
//
// GPUs of a server talk beside it, by NVLink (Fabric.Joined).
//
// Both are made from one Fabric, so that a run can be repeated on the other level; TestLevels says how far apart they
// are.
//
//	f, err := jobs.NewFabric(graph, jobs.Options{Routing: "ftree,updn"})
//	net, err := f.Flows()
//	res, err := jobs.Run(ctx, schedule, play.Model{}, net, jobs.Watch{})
package jobs
