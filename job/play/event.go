package play

import "softib/proto/ib"

// event is something that happens to a rank; ts is its turn among others of the same time.
type event struct {
	at   ib.Time
	ts   uint64
	rank uint32
	what uint32 // an operation of the rank, or a message
	kind uint8
}

// Before orders a queue of them.
func (e *event) Before(f *event) bool { return e.at < f.at || e.at == f.at && e.ts < f.ts }
