// Package route computes forwarding tables: pure functions from a network to
// tables and a plan of lanes, and a judge that says of any tables, ours or
// another's, what they are worth.
//
// It knows switches by number, cables, and destinations; nothing of datagrams, of
// discovery or of time. A manager makes a Network of what it has found, calls
// Compute with the engines that an operator named, and programs the Tables:
//
//	res, err := route.Compute(net, "ftree,updn", route.Options{})
//	report := route.Judge(net, res.Tables, route.JudgeOptions{})
//	plan := route.Transition(net, old, res.Tables)
//
// When a cable, a switch or a host comes or goes, Repair changes as little as it can of the tables that are in force:
//
//	rep, err := route.Repair(changed, tables, route.Options{})
//	plan := route.Transition(changed, tables, rep.Tables)
//
// Tables of other managers come from ParseLFTDump, and are judged like ours.
//
// Every engine is deterministic: the same network gives the same tables.
package route
