// Package perf measures verbs between two devices, as the perftest tools do:
// send_lat, send_bw, write_lat, write_bw, read_lat, read_bw and atomic_lat,
// with their meaning, their columns and their defaults where those make sense.
//
//	err := perf.Run(ctx, h1, h2, perf.Config{Test: perf.WriteBW, Sizes: []int{65536}}, func(r perf.Row) error {
//		fmt.Println(perf.WriteBW.Columns().Line(r))
//		return nil
//	})
//
// It knows devices and nothing of what joins them. The two sides share nothing but what they say to each other over a
// connection (talk.go): Active and Passive are for processes of their own, and Run is both in one. Each side busy-polls
// on a thread. That holds for the passive side of a one-sided test too: in software a host does its work when somebody
// polls it, where an adapter made of silicon would never sleep.
//
// What a figure means:
//
//   - send_lat and write_lat: half of a round trip in which both sides answer at
//     once. write_lat watches the last byte of its buffer in memory.
//   - read_lat and atomic_lat: one whole operation.
//   - typical is the median.
//   - Bandwidth counts 2^20 bytes as a MB, as perftest does, from the first post to
//     the last completion; peak is the best stretch between any post and any later
//     completion.
//
// A short warm-up precedes each size and is not measured. At the end of each size both sides look at
// the data that came to them: a figure is never that of bytes that did not arrive.
package perf
