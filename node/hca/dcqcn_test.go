package hca

import (
	"math"
	"testing"

	"softib/proto/ib"
)

// TestLimiter holds the limiter against the formulas of the DCQCN paper, section 5, reckoned here in plain numbers.
func TestLimiter(t *testing.T) {
	var d DCQCN
	d.setDefaults()
	const line = 40_000_000_000
	var l limiter
	near := func(what string, got int64, want float64) {
		t.Helper()
		if math.Abs(float64(got)-want) > 1e-3*want+1e6 {
			t.Errorf("%s: %d, want %.0f", what, got, want)
		}
	}
	now := 7 * ib.Microsecond
	l.cut(now, &d, line)
	near("the first notification halves the rate", l.now, line/2)
	alpha := 1.0
	near("alpha stays 1", l.alpha, alphaOne)
	// Five rounds of fast recovery by the timer, less one: half the way back each.
	rate, target := line/2.0, float64(line)
	for range 4 {
		now += 55 * ib.Microsecond
		l.sent(now, &d, 1000)
		rate = (rate + target) / 2
		alpha *= 255.0 / 256
		near("fast recovery", l.now, rate)
		near("alpha decays", l.alpha, alpha*alphaOne)
	}
	l.cut(now, &d, line)
	target = rate
	rate *= 1 - alpha/2
	alpha = alpha*255/256 + 1.0/256
	near("a second notification", l.now, rate)
	near("alpha grows", l.alpha, alpha*alphaOne)
	// Beyond the rounds the mark grows, too.
	for i := range 8 {
		now += 55 * ib.Microsecond
		l.sent(now, &d, 1000)
		if i+1 >= 5 {
			target += 40e6
		}
		rate = (rate + target) / 2
		near("additive increase", l.now, rate)
	}
	// And when the byte counter has run out as often it grows faster and faster.
	for i := range 7 {
		l.sent(now, &d, 10_000_000)
		if i+1 > 5 {
			target += 400e6 * float64(i+1-5)
		} else {
			target += 40e6
		}
		target = min(target, line)
		rate = (rate + target) / 2
		near("hyper increase", l.now, rate)
	}
	// After a packet the flow waits for as long as it takes at the rate.
	if got, want := float64(l.sent(now, &d, 1110)), 1110*8*1e12/float64(l.now); math.Abs(got-want) > 0.001*want {
		t.Errorf("it waits for %v ps, want %v", got, want)
	}
	// Left alone it comes back to the line's rate, and waits no more.
	for range 20_000 {
		now += 55 * ib.Microsecond
		l.sent(now, &d, 1)
	}
	if l.now != line || l.sent(now, &d, 1000) != 0 {
		t.Errorf("%d after a second", l.now)
	}
	for range 2000 {
		l.alpha = alphaOne
		l.cut(now, &d, line)
	}
	if l.now != d.MinMbps*1_000_000 {
		t.Errorf("%d is below the least rate", l.now)
	}
}

// TestSelectiveBits holds the bitmap of what has come against a plain set, around the end of the PSNs.
func TestSelectiveBits(t *testing.T) {
	s := selective{base: 0xFFFFF0, high: 0xFFFFF0}
	set := map[ib.PSN]bool{}
	base := ib.PSN(0xFFFFF0)
	x := uint32(1)
	for range 20_000 {
		x = x*1664525 + 1013904223
		switch psn := base.Add(int(x>>8) % 300); x >> 29 {
		case 0, 1:
			next := base.Add(int(x>>8) % 40)
			for p := base; p.Before(next); p = p.Add(1) {
				delete(set, p)
			}
			base = next
			s.move(base)
		case 2:
			if s.has(psn) != set[psn] {
				t.Fatalf("%d: %v, want %v", psn, s.has(psn), set[psn])
			}
		default:
			s.note(psn)
			set[psn] = true
			if !psn.Before(s.high) {
				t.Fatalf("%d is not below %d", psn, s.high)
			}
		}
	}
	s.move(base.Add(2 * selectiveBits))
	for i := range s.came {
		if s.came[i] != 0 {
			t.Fatal("bits are left behind")
		}
	}
}
