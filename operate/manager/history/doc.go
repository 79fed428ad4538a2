// Package history keeps the past of a fabric on one machine: per port a few rates over hours, days and months, and
// named numbers that belong to no port.
//
//	h, err := history.Open("/var/lib/softib/history.db", history.Options{}) // "" keeps it in memory
//	ids, err := h.PortIDs(keys)                                             // once per topology; numbers are for ever
//	err = h.Append(now, ids, totals)                                        // every sample, all ports; rates are worked out here
//	err = h.AppendScalar("sweep_seconds", now, 0.8)
//	series, err := h.Query(ids[7], history.XmitBytes, from, to, 600)        // averages and peaks, gaps are gaps
//	worst, err := h.Top(history.Errors, from, to, 20)
//
// # Why a store of our own over bbolt
//
// The data is special: all ports are sampled at the same instants, there are eight metrics, and most ports are idle
// most of the time. So times are kept once for all ports, an idle port costs nothing, and a count is 16 bits that pack
// into fewer (code.go). A general database of time series keeps times, labels and an index for each of 560,000 series:
// Prometheus' own takes some 2 KB of memory for each before the first sample, and links the clients of two clouds.
// bbolt gives what is hard, a file that is whole after a crash at any moment, and tenants are kept in one too.
//
// # How it is kept
//
// Samples gather in a head in memory. After five minutes, or sooner if there is much, the head is written in one
// transaction as a chunk of the raw tier and one of the tier of minutes; when an hour is over its minutes make a chunk
// of tens of minutes. A chunk has a record for each 64 ports of which any did something. Coarser tiers keep the sum and
// the highest rate between two samples, so bursts stay visible for months. What is too old goes, and the oldest of what
// is too much.
//
// A crash loses the head and nothing else. A question is answered from the coarsest tier that is fine enough, with what
// is not yet in it from finer ones and what is no longer in it from coarser ones.
//
// Measured with 70,000 ports on two cores (bench_test.go): a sample takes 0.6 ms if all are idle and 3 ms if all are
// busy, and 55 MiB of memory; on disk 34 bytes in all if they are idle, and 7 for each busy port, all tiers together. A
// day of a port is read in half a millisecond, and all are ranked over an hour in 20. If every port were busy all the
// time, 4 GiB would hold about 6 hours of samples, 13 of minutes and a week of tens; a fabric of 1,000 ports needs
// about 0.5 GiB for all that Options keeps, by the same figures.
//
// # What happens when things are not as they should be
//
//   - A counter that goes back was reset, in part maybe: the port has no counts for that interval, and counts on.
//   - A clock that goes back, or samples further apart than MaxGap, make a gap of one sample. Times that come twice are
//     averaged.
//   - A disk that is full: samples stay in memory within limits, Append says so, and they are written once there is
//     room.
//   - A damaged file: Open returns ErrCorrupt and leaves the file alone; its owner moves it away and begins a new one.
//     What bbolt would believe is looked at before it does (internal/boltfile). Damage that is found later is an error
//     of that question, never a crash.
//
// The package knows ports by number and GUID only: no fabric, no topology, no datagram.
package history
