package link

import (
	"math/rand/v2"
	"testing"

	"softib/proto/ib"
)

// All counters read at once are each of them read alone, whatever the port has counted.
func TestRawCounters(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 100 {
		p := NewPort(Config{Rate: ib.LinkRate{Width: ib.Width4x, Speed: ib.NDR}})
		for i := range p.cold.count {
			p.cold.count[i] = rng.Uint64N(1 << 40)
		}
		p.cold.mcastTx, p.cold.mcastRx, p.fcSent = rng.Uint64N(100), rng.Uint64N(100), rng.Uint32N(1000)
		p.cold.waited = ib.Time(rng.Int64N(1 << 40))
		for vl := range ib.NumVL {
			l, total := p.lane(vl), p.total(vl)
			l.tx.words, l.tx.pkts, l.rx.words, l.rx.pkts = rng.Uint32(), rng.Uint32(), rng.Uint32(), rng.Uint32()
			l.fcRcvd = rng.Uint32N(1000)
			total.txWords, total.txPkts, total.rxWords, total.rxPkts = rng.Uint64N(1<<40), rng.Uint64N(1<<40),
				rng.Uint64N(1<<40), rng.Uint64N(1<<40)
		}
		all := p.raw()
		for c := range ib.NumCounter {
			if one := p.rawCounter(c); all[c] != one {
				t.Fatalf("%v is %d at once and %d alone", c, all[c], one)
			}
		}
	}
}
