package mad

import (
	"fmt"

	"softib/proto/ib"
)

// Rate is a static rate as records encode it (IBA 9.11.1, table 63 and its later additions). Numbers were given out in
// the order of history, so rates compare by Less and not by number.
type Rate uint8

// rates is what each number stands for, in units of 100 Mb/s on the wire.
var rates = [...]uint16{
	2: 25, 3: 100, 4: 300, 5: 50, 6: 200, 7: 400, 8: 600, 9: 800, 10: 1200,
	11: 140, 12: 560, 13: 1120, 14: 1680, 15: 250, 16: 1000, 17: 2000, 18: 3000,
	19: 280, 20: 500, 21: 4000, 22: 6000, 23: 8000, 24: 12000,
}

// laneRates is what one lane of each generation counts for, in units of 100 Mb/s.
var laneRates = [ib.NumSpeed]uint16{
	ib.SDR: 25, ib.DDR: 50, ib.QDR: 100, ib.FDR10: 100, ib.FDR: 140, ib.EDR: 250, ib.HDR: 500, ib.NDR: 1000,
	ib.XDR: 2000,
}

// IsValid reports whether the number stands for a rate.
func (r Rate) IsValid() bool { return int(r) < len(rates) && rates[r] != 0 }

// Less compares two rates.
func (r Rate) Less(o Rate) bool { return r.hundredMbps() < o.hundredMbps() }

func (r Rate) hundredMbps() uint16 {
	if !r.IsValid() {
		return 0
	}
	return rates[r]
}

func (r Rate) String() string {
	if !r.IsValid() {
		return fmt.Sprintf("Rate(%d)", uint8(r))
	}
	return fmt.Sprintf("%g Gb/s", float64(rates[r])/10)
}

// Gbps is the rate in Gb/s on the wire; 0 if it is none.
func (r Rate) Gbps() float64 { return float64(r.hundredMbps()) / 10 }

// ByteTime is how long n bytes take at the rate, rounded up to a picosecond; ib.Never if it is none.
func (r Rate) ByteTime(n int) ib.Time {
	v := int64(r.hundredMbps())
	if v == 0 {
		return ib.Never
	}
	// 8 bits * 10^12 ps / (v * 10^8)
	return ib.Time((int64(n)*80_000 + v - 1) / v)
}

// RateFromGbps is the rate of so many Gb/s on the wire, if there is one.
func RateFromGbps(gbps float64) (Rate, bool) {
	for r := range rates {
		if rates[r] != 0 && float64(rates[r])/10 == gbps {
			return Rate(r), true
		}
	}
	return 0, false
}

// linkRates is the rate of every width and speed.
var linkRates = func() (t [ib.NumSpeed][ib.Width2x + 1]Rate) {
	for s := range t {
		for w := range t[s] {
			t[s][w] = RateBelow(laneRates[s]*uint16(ib.Width(w).Lanes()) + 1)
		}
	}
	return t
}()

// RateOf is the largest rate that a link carries; 0 for a link that is down.
func RateOf(l ib.LinkRate) Rate {
	if !l.Speed.IsValid() || l.Width > ib.Width2x {
		return 0
	}
	return linkRates[l.Speed][l.Width]
}

// Below is the next smaller rate, 0 if there is none.
func (r Rate) Below() Rate { return RateBelow(r.hundredMbps()) }

// RateBelow is the largest rate of less than so many 100 Mb/s, 0 if there is none.
func RateBelow(limit uint16) Rate {
	best := Rate(0)
	for r := range rates {
		if rates[r] != 0 && rates[r] < limit && rates[r] > best.hundredMbps() {
			best = Rate(r)
		}
	}
	return best
}
