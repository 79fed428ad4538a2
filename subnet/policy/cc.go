package policy

import (
	"encoding/hex"
	"fmt"
	"strings"

	"softib/proto/ib"
)

// CongestionOptions are the options of congestion control (IBA A10), as opensm.conf has them.
type CongestionOptions struct {
	Enabled             bool   // congestion_control
	Key                 uint64 // cc_key, to use, not to set
	MaxOutstandingMADs  uint32
	SwitchControlMap    uint32 // which of the switch's settings below apply
	VictimMask          [32]byte
	CreditMask          [32]byte
	Threshold           uint8
	PacketSize          uint8
	StarvationThreshold uint8
	StarvationDelay     CCTEntry
	MarkingRate         uint16
	CAPortControl       uint16
	CAControlMap        uint16 // which service levels' entries apply
	CA                  [ib.NumSL]CACongestionEntry
	// Table is the congestion control table.
	Table []CCTEntry
}

// CACongestionEntry is the setting of one service level.
type CACongestionEntry struct {
	Timer            uint16
	Increase         uint8
	TriggerThreshold uint8
	Min              uint8
}

// CongestionFor are settings for links of so many bits a second. They did best for the victim and the hot spot of
// jobs.TestCongestionControl, at 400 Gb/s; other loads may lose by them (docs/VALIDATION.md). A switch marks every
// fourth packet that joins a queue which fills a quarter of a receive buffer. At step n an adapter waits for a quarter
// of n packets after each; it goes a step further when it is told, and one back when it was not for as long as some
// fifty packets take.
func CongestionFor(bitRate int64) CongestionOptions {
	const tunedRate, tunedTimer, steps = 400e9, 4, 128
	o := CongestionOptions{Enabled: true, Threshold: 12, MarkingRate: 3, CAControlMap: 0xFFFF, MaxOutstandingMADs: 500,
		SwitchControlMap: 1<<2 | 1<<4} // the threshold and the rate
	timer := tunedTimer * tunedRate / float64(max(bitRate, 1))
	for i := range o.CA {
		o.CA[i] = CACongestionEntry{Timer: uint16(min(max(timer, 1), 0xFFFF)), Increase: 1}
	}
	for i := range uint16(steps) {
		o.Table = append(o.Table, CCTEntry{Shift: 2, Multiplier: i})
	}
	return o
}

// CCTEntry is an inter-packet delay: Multiplier shifted right by Shift, in units of a packet's own time.
type CCTEntry struct {
	Shift      uint8  // 2 bits
	Multiplier uint16 // 14 bits
}

func (e CCTEntry) String() string { return fmt.Sprintf("%d:%d", e.Shift, e.Multiplier) }

// cctMax is more entries than any adapter has: 64 in each of 255 blocks.
const cctMax = 64 * 255

func (r *reporter) cctEntry(w word) (CCTEntry, bool) {
	shift, mult, sep := w.cut(":")
	if sep == 0 {
		r.fail(w, ErrSyntax, "expected shift:multiplier, such as 0:12")
		return CCTEntry{}, false
	}
	s, ok1 := r.number(shift, "a shift", 0, 3)
	m, ok2 := r.number(mult, "a multiplier", 0, 1<<14-1)
	return CCTEntry{uint8(s), uint16(m)}, ok1 && ok2
}

func (r *reporter) cct(w word) ([]CCTEntry, bool) {
	var out []CCTEntry
	for _, item := range w.split(',', false) {
		if item.text == "" {
			continue
		}
		e, ok := r.cctEntry(item)
		if !ok {
			return nil, false
		}
		out = append(out, e)
	}
	if len(out) == 0 || len(out) > cctMax {
		r.fail(w, ErrValue, "expected 1 to %d entries shift:multiplier", cctMax)
		return nil, false
	}
	return out, true
}

// mask256 reads a set of ports as one hexadecimal number; bit 0, the last, is port 0.
func (r *reporter) mask256(w word) (m [32]byte, ok bool) {
	digits, found := strings.CutPrefix(strings.ToLower(w.text), "0x")
	if len(digits)%2 == 1 {
		digits = "0" + digits
	}
	b, err := hex.DecodeString(digits)
	if !found || digits == "" || err != nil || len(b) > len(m) {
		r.fail(w, ErrValue, "expected 0x and up to 64 hex digits, one bit for each port")
		return m, false
	}
	copy(m[len(m)-len(b):], b)
	return m, true
}

// perSL reads "sl value".
func (r *reporter) perSL(w word, what string, hi uint64) (sl ib.SL, v uint64, ok bool) {
	f := w.fields()
	if len(f) != 2 {
		r.fail(w, ErrSyntax, "expected a service level and then %s", what)
		return 0, 0, false
	}
	n, ok1 := r.number(f[0], "a service level", 0, ib.NumSL-1)
	v, ok2 := r.number(f[1], what, 0, hi)
	return ib.SL(n), v, ok1 && ok2
}
