// Package goal reads and writes schedules in GOAL, the language of LogGOPSim and ATLAHS, as text and in the binary form
// that their txt2bin makes of it.
//
//	num_ranks 2
//	rank 0 {
//	l1: calc 1500 cpu 0
//	l2: send 4096b to 1 tag 7 cpu 0 nic 0
//	l2 requires l1
//	}
//	rank 1 {
//	l1: recv 4096b from 0 tag 7
//	}
//
// A label belongs to its rank. "a requires b" lets a begin when b has ended, "a irequires b" when b has begun. A
// receive may be from -1 and have tag -1, which is any. // and /* */ are comments.
//
// What is wrong with a file is said with its line; nothing of it makes the reader panic or take memory out of
// proportion to the file (FuzzText, FuzzBinary).
package goal
