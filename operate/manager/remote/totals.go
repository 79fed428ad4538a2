package remote

import (
	"softib/proto/ib"
	"softib/proto/mad"
	"softib/subnet/survey"
)

// total is what a port has counted, whatever its own counters did meanwhile. It never goes back.
type total struct {
	sum, last ib.Counters
	width     [ib.NumCounter]width
}

// width is how a counter is read.
type width uint8

const (
	unread width = iota
	narrow       // in fields that stop at the most that they hold
	wide         // in 64 bits
)

// add takes a reading. Reset says that counters had less than before: somebody has reset them, or the node has
// restarted.
func (t *total) add(r *survey.Reading) (reset bool) {
	for c := range ib.NumCounter {
		read, isWide := r.Has(c)
		if !read {
			continue
		}
		w, now := narrow, r.Counters[c]
		if isWide {
			w = wide
		}
		switch {
		case w < t.width[c]:
			continue // the wide ones were not answered this time; they will be
		case w > t.width[c]:
			t.sum[c] = max(t.sum[c], now)
		case now >= t.last[c]:
			t.sum[c] += now - t.last[c]
		default:
			t.sum[c] += now
			reset = true
		}
		t.last[c], t.width[c] = now, w
	}
	return reset
}

// narrowMost is the most that a counter's field in PortCounters holds; 0 for one that is not there.
var narrowMost = func() (most ib.Counters) {
	for _, row := range mad.CounterAttrByID(mad.AttrPortCounters).Rows {
		if row.Source == mad.FromCounter {
			most[row.Counter] = 1<<row.Field.Bits - 1
		}
	}
	return most
}()

// full lists the counters that are about to stop, as a mask for PortCounters: those beyond three quarters of what they
// hold.
func (t *total) full() (mask uint64) {
	for _, row := range mad.CounterAttrByID(mad.AttrPortCounters).Rows {
		if row.Source != mad.FromCounter {
			continue
		}
		c := row.Counter
		if t.width[c] == narrow && t.last[c] > narrowMost[c]/4*3 {
			mask |= 1 << row.Select
		}
	}
	return mask
}

// cleared notes that counters of a mask begin anew.
func (t *total) cleared(mask uint64) {
	for _, row := range mad.CounterAttrByID(mad.AttrPortCounters).Rows {
		if row.Source == mad.FromCounter && mask&(1<<row.Select) != 0 {
			t.last[row.Counter] = 0
		}
	}
}
