// Package load makes schedules of the patterns by which networks are judged: permutations, shifts, uniform traffic,
// incast and outcast, all-to-all, neighbours in grids, bursts, and messages whose sizes follow published distributions.
//
// A pattern is one word with options, as people type it, such as "shift:by=3,size=64K" (Parse). The same text and seed
// give the same schedule.
package load
