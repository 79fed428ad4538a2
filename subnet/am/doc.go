// Package am is the aggregation manager, as SHARP has one beside the subnet manager: it makes the trees over switches
// in which jobs' vectors are added (package aggregate), and keeps account of what the switches' aggregation nodes have
// places for.
//
// It is pure computation. The driver says which switches are neighbours, and by which ports their tables lead from one
// to the other (NewFabric); asks for a tree for the hosts of a job (Manager.Create), of which it sets the nodes up;
// asks for another when that one has failed (Manager.Replace); and gives it back (Manager.Release). A job that finds no
// places is refused, or waits in line (Request.Wait) until another ends.
//
// Trees are as low as they can be, and jobs are spread: of the roots that give the lowest tree the one that the fewest
// trees use, and of the ways to it likewise.
package am
