// Package model is a store as etcd promises to be, in virtual time: operations happen one after the other, each at a
// revision of its own if it changes something, leases end by the model's clock, watches tell every revision in order
// unless it was compacted away.
//
//	s := model.New()
//	s.Advance(now)                       // leases that are over by then end
//	answer := s.Do(now, request)         // all but OpWatch
//	batches, ok := s.Since(prefix, rev)  // what a watch tells; not ok if that was compacted
//
// What networks and processes do to requests, answers and watches is left to whoever drives it. Figures are those of
// etcd 3.4: leases are looked at every half second, a new leader gives every lease its whole time again.
package model
