package endpoint

import (
	"encoding/binary"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"softib/node/hca"
	"softib/proto/ib"
)

// TestStatsAreWords: a ledger keeps hca.Stats as words, which works as long as it is nothing else.
func TestStatsAreWords(t *testing.T) {
	var check func(typ reflect.Type, name string)
	check = func(typ reflect.Type, name string) {
		switch typ.Kind() {
		case reflect.Struct:
			for i := range typ.NumField() {
				check(typ.Field(i).Type, name+"."+typ.Field(i).Name)
			}
		case reflect.Array:
			check(typ.Elem(), name)
		case reflect.Uint64:
		default:
			t.Errorf("%s is a %v: want a uint64", name, typ)
		}
	}
	check(reflect.TypeFor[hca.Stats](), "Stats")
}

// TestHistogram: every time is in the bucket that says so, and quantiles are as near as promised.
func TestHistogram(t *testing.T) {
	for i := range NumBuckets {
		if got := bucketOf(BucketStart(i)); got != i {
			t.Fatalf("%v, where bucket %d begins, counts in bucket %d", BucketStart(i), i, got)
		}
		if got := bucketOf(BucketStart(i+1) - 1); got != i {
			t.Fatalf("%v, the end of bucket %d, counts in bucket %d", BucketStart(i+1)-1, i, got)
		}
	}
	for _, d := range []time.Duration{-1, 0, time.Hour, 1<<63 - 1} {
		if b := bucketOf(d); b < 0 || b >= NumBuckets {
			t.Errorf("%v counts in bucket %d", d, b)
		}
	}
	var h Histogram
	if h.Quantile(0.5) != 0 || h.Sum() != 0 {
		t.Error("nothing has a quantile, or a sum")
	}
	r := rand.New(rand.NewPCG(1, 2))
	all := make([]time.Duration, 50_000)
	sum := time.Duration(0)
	for i := range all {
		all[i] = time.Duration(500 * (1 + r.ExpFloat64()*r.ExpFloat64()*20))
		h.Add(all[i])
		sum += all[i]
	}
	slices.Sort(all)
	for _, q := range []float64{0, 0.01, 0.5, 0.9, 0.99, 0.999, 1} {
		want := all[min(int(q*float64(len(all))), len(all)-1)]
		if got := h.Quantile(q); float64(got) < 0.93*float64(want) || float64(got) > 1.07*float64(want) {
			t.Errorf("quantile %v is %v: want %v, within 7%%", q, got, want)
		}
	}
	for d := time.Nanosecond; d < time.Second; d *= 2 {
		want, _ := slices.BinarySearch(all, d)
		if got := h.Below(d); got != uint64(want) {
			t.Errorf("%d are shorter than %v: want %d", got, d, want)
		}
	}
	if h.Count() != uint64(len(all)) {
		t.Errorf("%d times: want %d", h.Count(), len(all))
	}
	if got := h.Sum(); float64(got) < 0.97*float64(sum) || float64(got) > 1.03*float64(sum) {
		t.Errorf("they add up to %v: want %v, within 3%%", got, sum)
	}
}

// TestLedger: what was written is read, once.
func TestLedger(t *testing.T) {
	l := newLedger()
	r := rand.New(rand.NewPCG(3, 4))
	eng := hca.New(hca.Config{Ports: 2})
	engine := &eng.Stats
	pd, err := eng.AllocPD()
	if err != nil {
		t.Fatal(err)
	}
	cq, err := eng.CreateCQ(1)
	if err != nil {
		t.Fatal(err)
	}
	var read, sum hca.Stats
	var seen Seen
	var told, heard hca.Told
	for range 100 {
		for i := range words(engine) {
			words(engine)[i] += r.Uint64N(1000)
		}
		if _, err := eng.CreateQP(hca.QPInit{Type: hca.UD, PD: pd, SendCQ: cq, RecvCQ: cq}); err != nil {
			t.Fatal(err)
		}
		more := hca.Told{}
		more.FECN[r.IntN(16)], more.BECN[r.IntN(16)] = r.Uint64N(3), r.Uint64N(3)
		eng.AddTold(2, &more)
		addTold(&told, &more)
		l.put(eng)
		before := read
		l.Counted(&read)
		AddStats(&sum, &read, &before)
		l.Told(&seen, func(port ib.PortNum, t *hca.Told) {
			if port == 2 {
				addTold(&heard, t)
			}
		})
		if got := l.QPs(); got != eng.QPCounts() {
			t.Fatalf("queue pairs are %v: want %v", got, eng.QPCounts())
		}
	}
	if read != *engine || sum != *engine || heard != told {
		t.Errorf("read %+v\nsum  %+v\nwant %+v\nheard %v, want %v", read, sum, *engine, heard, told)
	}
	// A process that takes back what it has counted, or counts what nobody can, is not believed.
	less := hca.New(hca.Config{Ports: 2})
	less.Stats.TxPackets, less.Stats.RxPackets = 1, 1<<63
	less.AddTold(1, &hca.Told{FECN: [ib.NumSL]uint64{1 << 63}})
	l.put(less)
	before := read
	l.Counted(&read)
	l.Told(&seen, func(port ib.PortNum, told *hca.Told) { t.Errorf("it was believed: port %d %v", port, told) })
	if read != before {
		t.Errorf("it was believed: %+v", read)
	}
}

func addTold(sum, more *hca.Told) {
	for i, v := range toldIn(more) {
		toldIn(sum)[i] += v
	}
}

// TestLedgerPaths: times of many destinations, of which some are given up, are read once each, and those in use are all
// there.
func TestLedgerPaths(t *testing.T) {
	l := newLedger()
	var reader PathReader
	r := rand.New(rand.NewPCG(5, 6))
	put, got := map[ib.LID]uint64{}, map[ib.LID]uint64{}
	samples := uint64(0)
	for range 400 {
		for range 20 { // fewer than a set has places for one of
			dlid := ib.LID(1 + r.UintN(1000))
			samples++
			put[dlid]++
			l.putTime(samples, dlid, time.Duration(r.UintN(1e6)))
		}
		l.Times(&reader, func(dlid ib.LID, h *Histogram) { got[dlid] += h.Count() })
	}
	sum, lost := uint64(0), uint64(0)
	for dlid, n := range put {
		if got[dlid] > n {
			t.Errorf("LID %d: %d times, of %d that were taken", dlid, got[dlid], n)
		}
		sum += n
		lost += n - got[dlid]
	}
	if lost*100 > sum {
		t.Errorf("%d of %d times were lost, though they were read all the time", lost, sum)
	}
	l.Times(&reader, func(dlid ib.LID, h *Histogram) { t.Errorf("LID %d: %d times are read twice", dlid, h.Count()) })
}

// TestLedgerBursts: bursts are read once each, in order; who reads too late is told how many are gone.
func TestLedgerBursts(t *testing.T) {
	l := newLedger()
	var list []Burst
	var next, missed uint64
	for i := range int64(10) {
		l.PutBurst(Burst{100 + i, int(i), 7})
	}
	l.PutBurst(Burst{1, 1, 7})          // too old
	l.PutBurst(Burst{104, 1 << 30, 7})  // no such slot
	l.PutBurst(Burst{-1 << 63, 1, 7})   // no time at all
	l.PutBurst(Burst{1000000, 1, 7000}) // in the future
	list, next, missed = l.Bursts(list, 0, 100, 200)
	if len(list) != 10 || next != 14 || missed != 0 {
		t.Fatalf("%d bursts, next %d, %d missed: want 10, 14, 0", len(list), next, missed)
	}
	for i, b := range list {
		if b != (Burst{100 + int64(i), i, 7}) {
			t.Errorf("burst %d is %+v", i, b)
		}
	}
	if list, next, missed = l.Bursts(list[:0], next, 100, 200); len(list) != 0 || next != 14 || missed != 0 {
		t.Errorf("%d bursts are read twice, next %d, %d missed", len(list), next, missed)
	}
	for range 3 * ledgerBursts {
		l.PutBurst(Burst{100, 1, 7})
	}
	if list, _, missed = l.Bursts(list[:0], next, 100, 200); len(list) != ledgerBursts || missed != 2*ledgerBursts {
		t.Errorf("%d bursts, %d missed: want %d, %d", len(list), missed, ledgerBursts, 2*ledgerBursts)
	}
}

// FuzzLedger reads ledgers into which a process has written anything: whatever it says, sums do not shrink, and nothing
// is out of bounds.
func FuzzLedger(f *testing.F) {
	f.Add(uint64(1), []byte{1, 2, 3})
	f.Add(uint64(2), []byte{0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF})
	f.Fuzz(func(t *testing.T, seed uint64, junk []byte) {
		r := rand.New(rand.NewPCG(seed, 7))
		mem := aligned(LedgerBytes)
		l, err := NewLedger(mem)
		if err != nil {
			t.Fatal(err)
		}
		var read, sum hca.Stats
		var reader PathReader
		from := uint64(0)
		for range 4 {
			for len(junk) > 0 {
				at := r.IntN(len(mem))
				if r.IntN(2) == 0 { // where it hurts
					burst := reflect.ValueOf(l.m).Elem().FieldByName("burst").UnsafeAddr()
					at = []int{r.IntN(statsWords) * 8, int(burst - reflect.ValueOf(l.m).Pointer())}[r.IntN(2)]
				}
				n := copy(mem[at:], junk[:min(len(junk), 1+r.IntN(16))])
				if r.IntN(4) == 0 {
					binary.LittleEndian.PutUint64(mem[r.IntN(len(mem)/8)*8:], r.Uint64())
				}
				if junk = junk[max(n, 1):]; r.IntN(8) == 0 {
					break
				}
			}
			before, was := read, sum
			l.Counted(&read)
			AddStats(&sum, &read, &before)
			for i, v := range words(&sum) {
				if v < words(&was)[i] {
					t.Fatalf("word %d went from %d to %d", i, words(&was)[i], v)
				}
			}
			if q := l.QPs(); q.Total() > 1<<BlockBits+2 {
				t.Fatalf("%d queue pairs", q.Total())
			}
			l.Times(&reader, func(lid ib.LID, h *Histogram) {
				if lid == 0 || h.Count() == 0 || h.Quantile(0.99) < 0 || h.Sum() < 0 {
					t.Fatalf("LID %d: %d times, p99 %v, sum %v", lid, h.Count(), h.Quantile(0.99), h.Sum())
				}
			})
			var list []Burst
			list, from, _ = l.Bursts(nil, from, 10, 20)
			if len(list) > ledgerBursts {
				t.Fatalf("%d bursts", len(list))
			}
			for _, b := range list {
				if b.Window < 10 || b.Window > 20 || b.Slot < 0 || b.Slot >= NumSlots {
					t.Fatalf("burst %+v", b)
				}
			}
		}
	})
}

// TestMeter: the engine's counters, the bytes of windows and the times of acknowledgements get into the ledger by
// themselves.
func TestMeter(t *testing.T) {
	made := time.Now()
	a, b := twins(t, newLedger)
	const messages = 5000
	began := time.Now()
	for range messages {
		b.recv(t)
		a.send(t, 100)
		pollOne(b)
		for got := 0; got < 1; {
			pollAny(b)
			got = pollAny(a)
		}
	}
	took, life := time.Since(began), time.Since(made)
	a.Close()
	b.Close()
	var sent, received hca.Stats
	a.ledger.Counted(&sent)
	b.ledger.Counted(&received)
	if sent != a.eng.Stats || received != b.eng.Stats || sent.TxBytes != 100*messages ||
		received.RxBytes != 100*messages {
		t.Errorf("ledgers have %+v\nand %+v:\nwant what the engines have", sent, received)
	}
	if q := a.ledger.QPs(); q[hca.RC][hca.StateRTS] != 1 || q.Total() != 1 {
		t.Errorf("queue pairs are %v: want one RC in RTS", q)
	}
	list, _, missed := a.ledger.Bursts(nil, 0, 0, 1<<62)
	total := uint64(0)
	for i, x := range list {
		total += x.Words
		if x.Slot != 1 || i > 0 && x.Window <= list[i-1].Window {
			t.Errorf("burst %+v behind %+v", x, list[max(i, 1)-1])
		}
	}
	if _, words := a.slots.Sent(1); total != words || missed != 0 {
		t.Errorf("bursts have %d words, %d missed: want %d", total, missed, words)
	}
	if n, most := len(list), int(life/BurstWindow)+2; n < 1 || n > most {
		t.Errorf("%d bursts in %v: want 1 to %d", n, life, most)
	}
	if w := list[0].Window; w > CurrentWindow() || w < CurrentWindow()-int64(time.Since(made)/BurstWindow)-1 {
		t.Errorf("the first is of window %d: it is %d now", w, CurrentWindow())
	}
	times := 0
	a.ledger.Times(&PathReader{}, func(lid ib.LID, h *Histogram) {
		times++
		if n := h.Count(); lid != b.lid || n < messages/80 || n > messages/40 {
			t.Errorf("%d times for LID %d: want every 64th of %d for LID %d", n, lid, messages, b.lid)
		}
		if d := h.Quantile(0.5); d > took/messages*2 || d == 0 {
			t.Errorf("half of all acknowledgements took %v: a message took %v in all", d, took/messages)
		}
	})
	if times != 1 {
		t.Errorf("%d destinations: want 1", times)
	}
}

// TestSampleEnds: a sample whose queue pair fails, or begins another life, is not counted, and others are taken after
// it.
func TestSampleEnds(t *testing.T) {
	a, b := twins(t, newLedger)
	a.sampleIn = 0
	a.send(t, 8)
	if a.awaited.qp != a.qp {
		t.Fatal("the packet is no sample")
	}
	h := a.Enter()
	if err := h.ModifyQP(a.qp, hca.QPAttr{State: hca.StateErr}, hca.MaskState); err != nil {
		t.Fatal(err)
	}
	a.Leave()
	b.send(t, 8) // anything that a has to look at
	for range 3 {
		pollAny(a)
	}
	if a.awaited.qp != nil {
		t.Error("it is still waited for")
	}
	a.ledger.Times(&PathReader{}, func(ib.LID, *Histogram) { t.Error("it was counted") })
}

func pollAny(w *twin) int {
	var wc [4]hca.WC
	return w.Poll(w.cq, wc[:])
}

func pollOne(w *twin) {
	for pollAny(w) == 0 {
	}
}
