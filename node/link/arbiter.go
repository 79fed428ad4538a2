package link

import (
	"math/bits"

	"softib/proto/ib"
)

// ArbEntry is one slot of an arbitration table: how many 64-byte units the lane
// may send in its turn. A weight of 0 skips the slot.
type ArbEntry struct {
	VL     ib.VL
	Weight uint8
}

// ArbTableLen is the longest arbitration table (IBA 7.6.9).
const ArbTableLen = 64

// NoHighLimit lets the high-priority table starve the low one.
const NoHighLimit = 255

// arbTable is one table and where its round stands.
type arbTable struct {
	entries *[ArbTableLen]ArbEntry // never written: most ports have one of a few tables
	lanes   uint16                 // lanes that occur with some weight
	n       uint8                  // slots up to the last with some weight
	at      uint8
	left    int16 // units left to the slot at
}

// arbiter is the VL arbitration of IBA 7.6.9: VL15 before all, then the high
// table until its limit is used up, then a chance for the low one.
type arbiter struct {
	high, low arbTable
	highLimit uint8
	highLeft  int32 // bytes before the low table must have its chance
}

func (a *arbiter) setDefault(vls uint8) {
	a.highLimit = 0
	a.highLeft = a.fullLimit()
	a.high.entries, a.low.entries = &evenTables[0], &evenTables[vls]
	a.high.reset()
	a.low.reset()
}

// evenTables give so many lanes the same weight.
var evenTables = func() (all [ib.NumVL][ArbTableLen]ArbEntry) {
	for vls := range all {
		for i := range vls {
			all[vls][i] = ArbEntry{ib.VL(i), 64}
		}
	}
	return all
}()

// write changes slots from at on.
func (t *arbTable) write(at int, e []ArbEntry) {
	next := *t.entries
	if copy(next[min(at, ArbTableLen):], e); next != *t.entries {
		t.entries = &next
	}
	t.reset()
}

func (t *arbTable) reset() {
	t.lanes, t.n = 0, 0
	for i, e := range t.entries {
		if e.Weight > 0 && e.VL < ib.VLMgmt {
			t.lanes |= 1 << e.VL
			t.n = uint8(i + 1)
		}
	}
	t.at = 0
	t.left = int16(t.entries[0].Weight)
}

// pick finds the lane whose turn it is among those that can send. The slot keeps
// its turn until its weight is used up; a slot that cannot send loses it.
func (t *arbTable) pick(can uint16) (ib.VL, bool) {
	if t.lanes&can == 0 {
		return 0, false
	}
	for range int(t.n) + 1 {
		e := t.entries[t.at]
		if t.left > 0 && e.VL < ib.VLMgmt && can>>e.VL&1 != 0 {
			return e.VL, true
		}
		if t.at++; t.at >= t.n {
			t.at = 0
		}
		t.left = int16(t.entries[t.at].Weight)
	}
	return 0, false
}

// fullLimit is LimitOfHighPriority in bytes; 0 stands for one packet, however short.
func (a *arbiter) fullLimit() int32 { return max(1, int32(a.highLimit)*4096) }

// pick chooses among the data lanes of can, which is not empty, and charges
// the size of the lane's head packet.
func (a *arbiter) pick(can uint16, p *Port) ib.VL {
	if a.highLeft <= 0 && a.low.lanes&can == 0 {
		a.highLeft = a.fullLimit() // the low table's chance came and went unused
	}
	if a.highLeft > 0 {
		if vl, ok := a.high.pick(can); ok {
			f := p.tx(int(vl)).q.head
			a.high.left -= int16(f.Blocks)
			if a.highLimit != NoHighLimit {
				a.highLeft -= int32(f.Bytes)
			}
			return vl
		}
	}
	a.highLeft = a.fullLimit()
	if vl, ok := a.low.pick(can); ok {
		a.low.left -= int16(p.tx(int(vl)).q.head.Blocks)
		return vl
	}
	// A lane that stands in no table is served when no other can be, so that
	// a table that forgets a lane does not block it for ever.
	return ib.VL(bits.TrailingZeros16(can))
}

// ArbTables reads the arbitration tables and the limit of high priority.
func (p *Port) ArbTables() (high, low [ArbTableLen]ArbEntry, limit uint8) {
	return *p.cold.arb.high.entries, *p.cold.arb.low.entries, p.cold.arb.highLimit
}

// SetArbHigh writes the high-priority table from slot at on.
func (p *Port) SetArbHigh(at int, e []ArbEntry) {
	p.cold.arb.high.write(at, e)
}

// SetArbLow writes the low-priority table from slot at on.
func (p *Port) SetArbLow(at int, e []ArbEntry) {
	p.cold.arb.low.write(at, e)
}

// SetHighLimit sets LimitOfHighPriority: how many 4 KiB of high-priority
// traffic go before the low table has a chance; 0 is one packet, 255 no limit.
func (p *Port) SetHighLimit(n uint8) {
	p.cold.arb.highLimit = n
	p.cold.arb.highLeft = p.cold.arb.fullLimit()
}
