// Command bench measures softib against peers in one run and prints the
// ratios: TCP over loopback, UCX over shared memory, one core's memcpy.
//
//	go run ./bench -softib bin/softib        # what "make bench" does
//
// Ours is measured as a user does it, with softib perf and with the simulator's
// own benchmark. Everything is measured several times in turn, ours and peers
// alternating, and the median counts, so that a machine that is busy for a
// while troubles both. A peer that is not installed is left out and said to be.
package main
