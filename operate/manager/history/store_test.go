package history

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
	"time"

	"softib/proto/ib"
)

// start is the beginning of an hour, an hour that no clock of ours shows.
var start = time.Date(2031, 5, 5, 10, 0, 0, 0, time.UTC)

func portKeys(n int) []PortKey {
	keys := make([]PortKey, n)
	for i := range keys {
		keys[i] = PortKey{ib.GUID(0x5000 + i/4), ib.PortNum(1 + i%4)}
	}
	return keys
}

func open(t testing.TB, path string, o Options) *Store {
	t.Helper()
	s, err := Open(path, o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func openMemory(t testing.TB, o Options) *Store {
	t.Helper()
	s := open(t, "", o)
	t.Cleanup(func() {
		if err := s.Close(); err != nil && !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
	})
	return s
}

func numbers(t testing.TB, s *Store, n int) []uint32 {
	t.Helper()
	ids, err := s.PortIDs(portKeys(n))
	if err != nil {
		t.Fatal(err)
	}
	return ids
}

func appendTo(t testing.TB, s *Store, at time.Time, ids []uint32, v []Values) {
	t.Helper()
	if err := s.Append(at, ids, v); err != nil {
		t.Fatal(err)
	}
}

func query(t testing.TB, s *Store, port uint32, m Metric, from, to time.Time, n int) Series {
	t.Helper()
	x, err := s.Query(port, m, from, to, n)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// near reports whether two numbers are the same within what codes lose.
func near(a, b float64) bool { return math.Abs(a-b) <= 0.006*max(math.Abs(a), math.Abs(b))+1e-9 }

// TestAgainstOracle feeds random traffic for three hours and asks at random; a dumb list of all samples has to agree.
// It does so from memory, from disk and after opening again, so that all tiers are in it.
func TestAgainstOracle(t *testing.T) {
	const ports, step, samples = 150, 5 * time.Second, 3 * 720
	path := filepath.Join(t.TempDir(), "h.db")
	// Little raw history, so that questions reach over several tiers.
	opts := Options{Raw: 30 * time.Minute, Minute: 90 * time.Minute}
	s := open(t, path, opts)
	ids := numbers(t, s, ports)
	rng := rand.New(rand.NewPCG(7, 7))
	totals := make([]Values, ports)
	counted := make([][]Values, samples) // of each interval
	appendTo(t, s, start, ids, totals)
	for k := range samples {
		counted[k] = make([]Values, ports)
		for p := range ports {
			if p%3 == 0 || rng.IntN(4) == 0 { // a third is busy, others now and then
				for m := range NumMetric {
					d := rng.Uint64N(1 << (5 * m % 37))
					counted[k][p][m] = d
					totals[p][m] += d
				}
			}
		}
		appendTo(t, s, start.Add(time.Duration(k+1)*step), ids, totals)
		if k%400 == 399 {
			if err := s.Flush(); err != nil {
				t.Fatal(err)
			}
		}
	}
	// oracle is the average and the peak between two moments, of whole samples.
	oracle := func(p int, m Metric, from, to time.Time) (avg, high float64, ok bool) {
		n := 0
		for k := range samples {
			at := start.Add(time.Duration(k) * step)
			if at.Before(from) || at.Add(step).After(to) {
				continue
			}
			r := float64(counted[k][p][m]) / step.Seconds()
			avg, high = avg+r, max(high, r)
			n++
		}
		return avg / float64(n), high, n > 0
	}
	check := func(when string, s *Store) {
		t.Helper()
		seen := map[time.Duration]int{}
		for range 60 {
			p, m := rng.IntN(ports), Metric(rng.IntN(int(NumMetric)))
			span := []time.Duration{5 * time.Minute, 20 * time.Minute, time.Hour, 3 * time.Hour}[rng.IntN(4)]
			to := start.Add(3 * time.Hour)
			if rng.IntN(2) == 0 {
				to = to.Add(-time.Duration(rng.IntN(int((3*time.Hour-span)/step)+1)) * step)
			}
			x := query(t, s, ids[p], m, to.Add(-span), to, []int{5, 60, 1000}[rng.IntN(3)])
			seen[x.Step]++
			if len(x.Points) == 0 {
				t.Fatalf("%s: nothing from %v for %v", when, to.Add(-span), span)
			}
			for i, pt := range x.Points {
				if i > 0 && pt.At.Sub(x.Points[i-1].At) != x.Step {
					t.Fatalf("%s: a gap before %v, step %v, from %v for %v", when, pt.At, x.Step, to.Add(-span), span)
				}
				if i == 0 || i == len(x.Points)-1 || x.Step%step != 0 {
					continue // cut by the question
				}
				avg, high, ok := oracle(p, m, pt.At, pt.At.Add(x.Step))
				if !ok || !near(avg, pt.Avg) || !near(high, pt.Max) {
					t.Fatalf("%s: %v of port %d at %v for %v: %g to %g, want %g to %g", when, m, p, pt.At, x.Step,
						pt.Avg, pt.Max, avg, high)
				}
			}
		}
		if len(seen) < 4 {
			t.Errorf("%s: steps %v are few", when, seen)
		}
	}
	check("running", s)
	st := s.Stats()
	if st.Oldest[tierRaw].Before(start.Add(2*time.Hour)) || st.Oldest[tierMinute].Before(start.Add(time.Hour)) ||
		!st.Oldest[tierTen].Equal(start) {
		t.Errorf("oldest of the tiers: %v", st.Oldest)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, path, opts)
	defer s.Close()
	if again := numbers(t, s, ports); !slices.Equal(again, ids) {
		t.Error("ports have other numbers")
	}
	check("opened again", s)

	// Top agrees with adding up.
	for _, span := range []time.Duration{10 * time.Minute, time.Hour} {
		to := start.Add(3 * time.Hour)
		top, err := s.Top(Errors, to.Add(-span), to, 10)
		if err != nil || len(top) != 10 {
			t.Fatalf("top: %v, %v", top, err)
		}
		var want []Ranked
		for p := range ports {
			avg, high, _ := oracle(p, Errors, to.Add(-span), to)
			want = append(want, Ranked{ids[p], avg, high})
		}
		slices.SortFunc(want, func(a, b Ranked) int {
			if a.Avg > b.Avg {
				return -1
			}
			return 1
		})
		for i, r := range top {
			if !near(r.Avg, want[i].Avg) {
				t.Errorf("place %d in %v: %+v, want %+v", i, span, r, want[i])
			}
		}
		peak, err := s.TopPeak(Errors, to.Add(-span), to, 3)
		if err != nil || len(peak) != 3 || peak[0].Max < peak[1].Max || peak[1].Max < peak[2].Max {
			t.Errorf("peaks: %v, %v", peak, err)
		}
	}
}

// counts makes totals of XmitBytes.
func counts(v ...uint64) []Values {
	all := make([]Values, len(v))
	for i := range v {
		all[i][XmitBytes] = v[i]
	}
	return all
}

// sec is so many seconds after start.
func sec(n float64) time.Time { return start.Add(time.Duration(n * float64(time.Second))) }

// points writes a series short: seconds after start, average, peak.
func points(s Series) (all []string) {
	for _, p := range s.Points {
		all = append(all, fmt.Sprintf("%g:%.4g/%.4g", p.At.Sub(start).Seconds(), p.Avg, p.Max))
	}
	return all
}

func wantPoints(t *testing.T, s Series, want ...string) {
	t.Helper()
	if got := points(s); !reflect.DeepEqual(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestResetAndGap(t *testing.T) {
	for _, flushed := range []bool{false, true} {
		s := openMemory(t, Options{})
		ids := numbers(t, s, 1)
		for _, x := range []struct {
			at    float64
			total uint64
		}{
			{0, 1000}, {1, 1100}, {2, 1100}, {3, 50}, // reset: what it counted since is not known
			{4, 150},
			{300, 900}, // nobody looked for long
			{301, 1000},
		} {
			appendTo(t, s, sec(x.at), ids, counts(x.total))
		}
		if flushed {
			if err := s.Flush(); err != nil {
				t.Fatal(err)
			}
		}
		wantPoints(t, query(t, s, ids[0], XmitBytes, sec(0), sec(310), 310), "0:100/100", "1:0/0", "2:0/0", "3:100/100",
			"300:100/100")
	}
}

func TestClockGoesBack(t *testing.T) {
	s := openMemory(t, Options{Flush: 10 * time.Second})
	ids := numbers(t, s, 1)
	total := uint64(0)
	sample := func(at float64, d uint64) {
		total += d
		appendTo(t, s, sec(at), ids, counts(total))
	}
	for i := range 31 {
		sample(float64(i), 100)
	}
	for i := range 31 { // ten seconds back: the first sample has no rate, the others meet those that are there
		sample(float64(20+i), 300)
	}
	sample(50, 100) // stands: nothing
	if err := s.Flush(); err != nil {
		t.Fatal(err)
	}
	x := query(t, s, ids[0], XmitBytes, sec(0), sec(60), 60)
	if len(x.Points) != 50 {
		t.Fatalf("%d points: %q", len(x.Points), points(x))
	}
	for i, p := range x.Points {
		want := 100.0
		switch {
		case i >= 30:
			want = 300
		case i >= 20:
			want = 200 // both
		}
		if !near(p.Avg, want) || !p.At.Equal(sec(float64(i))) {
			t.Errorf("second %d: %v, want %g", i, p, want)
		}
	}
	// A jump of years and back costs nothing that was there.
	sample(1e8, 100)
	sample(1e8+1, 100)
	sample(51, 100)
	sample(52, 700)
	if err := s.Flush(); err != nil {
		t.Fatal(err)
	}
	if x := query(t, s, ids[0], XmitBytes, sec(0), sec(60), 60); len(x.Points) != 51 || !near(x.Points[50].Avg, 700) {
		t.Errorf("after a jump %q", points(x))
	}
}

func TestPortsComeAndGo(t *testing.T) {
	s := openMemory(t, Options{})
	ids := numbers(t, s, 200)
	a, b, c := ids[3], ids[70], ids[199]
	appendTo(t, s, sec(0), []uint32{a, b}, counts(0, 0))
	appendTo(t, s, sec(1), []uint32{a, b}, counts(10, 20))
	appendTo(t, s, sec(2), []uint32{b, a}, counts(40, 20)) // another order
	appendTo(t, s, sec(3), []uint32{c, b}, counts(1000, 60))
	appendTo(t, s, sec(4), []uint32{c, b}, counts(1030, 80))
	appendTo(t, s, sec(5), []uint32{c, b, a}, counts(1060, 100, 500))
	appendTo(t, s, sec(6), []uint32{c, b, a}, counts(1090, 120, 510))
	for _, when := range []string{"before", "after"} {
		wantPoints(t, query(t, s, a, XmitBytes, sec(0), sec(10), 10), "0:10/10", "1:10/10", "5:10/10")
		wantPoints(t, query(t, s, b, XmitBytes, sec(0), sec(10), 10), "0:20/20", "1:20/20", "2:20/20", "3:20/20",
			"4:20/20", "5:20/20")
		wantPoints(t, query(t, s, c, XmitBytes, sec(0), sec(10), 10), "3:30/30", "4:30/30", "5:30/30")
		wantPoints(t, query(t, s, ids[100], XmitBytes, sec(0), sec(10), 10))
		if err := s.Flush(); err != nil {
			t.Fatal(when, err)
		}
	}
}

func TestScalarsInStore(t *testing.T) {
	path := filepath.Join(t.TempDir(), "h.db")
	s := open(t, path, Options{})
	defer func() { s.Close() }()
	for i := range 7200 {
		for name, v := range map[string]float64{"sweep": 1.5, "wave": float64(i % 60)} {
			if err := s.AppendScalar(name, sec(float64(i)), v); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, v := range []float64{math.NaN(), math.Inf(1), math.MaxFloat64} {
		if err := s.AppendScalar("sweep", sec(7200), v); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.AppendScalar("", sec(1), 1); !errors.Is(err, ErrBadQuery) {
		t.Errorf("no name: %v", err)
	}
	for _, when := range []string{"running", "opened again"} {
		names, err := s.ScalarNames()
		if err != nil || !slices.Equal(names, []string{"sweep", "wave"}) {
			t.Fatalf("%s: names %v, %v", when, names, err)
		}
		for _, n := range []int{12, 120, 7200} {
			x, err := s.QueryScalar("wave", start, sec(7200), n)
			if err != nil || len(x.Points) != n {
				t.Fatalf("%s: %d points of %d, %v", when, len(x.Points), n, err)
			}
			for i, p := range x.Points {
				avg, high := 29.5, 59.0
				if n == 7200 {
					avg, high = float64(i%60), float64(i%60)
				}
				if math.Abs(p.Avg-avg) > 0.02 || p.Max != high || p.At.Sub(start) != time.Duration(i)*x.Step {
					t.Fatalf("%s: point %d of %d: %+v, want %g to %g", when, i, n, p, avg, high)
				}
			}
		}
		if x, err := s.QueryScalar("none", start, sec(10), 5); err != nil || len(x.Points) != 0 {
			t.Errorf("%s: a name that never was has %v, %v", when, x, err)
		}
		if when == "running" {
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			s = open(t, path, Options{})
		}
	}
}

func TestBadCalls(t *testing.T) {
	s := openMemory(t, Options{})
	ids := numbers(t, s, 2)
	for name, err := range map[string]error{
		"unknown port":  s.Append(start, []uint32{7}, counts(1)),
		"twice":         s.Append(start, []uint32{0, 0}, counts(1, 1)),
		"without value": s.Append(start, ids, counts(1)),
	} {
		if !errors.Is(err, ErrUnknownPort) {
			t.Errorf("%s: %v", name, err)
		}
	}
	bad := func(name string, err error) {
		if !errors.Is(err, ErrBadQuery) {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, err := s.Query(0, XmitBytes, sec(1), sec(1), 5)
	bad("no time", err)
	_, err = s.Query(0, XmitBytes, sec(1), sec(2), 0)
	bad("no points", err)
	_, err = s.Query(0, NumMetric, sec(1), sec(2), 5)
	bad("no metric", err)
	_, err = s.Top(XmitBytes, sec(1), sec(2), 0)
	bad("none of them", err)
	if x, err := s.Query(12345, XmitBytes, sec(0), sec(100), 1<<60); err != nil || len(x.Points) != 0 {
		t.Errorf("a port that never was has %v, %v", x.Points, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Append(start, ids, counts(1, 1)); !errors.Is(err, ErrClosed) {
		t.Errorf("closed: %v", err)
	}
	if _, err := s.Query(0, XmitBytes, sec(0), sec(1), 1); !errors.Is(err, ErrClosed) {
		t.Errorf("closed: %v", err)
	}
	if err := s.Close(); !errors.Is(err, ErrClosed) {
		t.Errorf("closed twice: %v", err)
	}
}

func TestMetricTable(t *testing.T) {
	for m := range NumMetric {
		if back, ok := ParseMetric(m.String()); !ok || back != m || m.Unit() == "" || m.What() == "" {
			t.Errorf("%v: %v, %v", m, back, ok)
		}
	}
	for k := range ib.NumCounter { // a counter moves one metric at most
		var c ib.Counters
		c[k] = 1
		var in []Metric
		for m, v := range ValuesOf(&c) {
			if v > 0 {
				in = append(in, Metric(m))
			}
		}
		if len(in) > 1 {
			t.Errorf("%v is in %v", k, in)
		}
	}
	if _, ok := ParseMetric("bytes"); ok {
		t.Error("bytes is a metric")
	}
	var c ib.Counters
	c[ib.PortXmitData], c[ib.SymbolErrorCounter], c[ib.PortRcvErrors] = 100, 3, 4
	// The damaged symbols were in the damaged packets: they are no more errors than these.
	if v := ValuesOf(&c); v[XmitBytes] != 400 || v[Errors] != 4 {
		t.Errorf("values %v", v)
	}
}

// TestRetention keeps far less than comes, and stays within its room.
func TestRetention(t *testing.T) {
	const room = 8 << 20
	path := filepath.Join(t.TempDir(), "h.db")
	s := open(t, path, Options{MaxBytes: room, Raw: 100 * time.Hour})
	defer s.Close()
	ids := numbers(t, s, 256)
	rng := rand.New(rand.NewPCG(8, 8))
	totals := make([]Values, len(ids))
	biggest := int64(0)
	at := start
	for k := range 12 * 60 { // twelve hours, a sample a minute and noise in all metrics
		for p := range totals {
			for m := range NumMetric {
				totals[p][m] += rng.Uint64N(1 << 40)
			}
		}
		appendTo(t, s, at, ids, totals)
		at = at.Add(time.Minute)
		if k%60 == 59 {
			if err := s.Flush(); err != nil {
				t.Fatal(err)
			}
			biggest = max(biggest, s.Stats().FileBytes)
		}
	}
	st := s.Stats()
	if biggest > room {
		t.Errorf("the file had %d bytes, and %d are allowed", biggest, room)
	}
	if st.LiveBytes > room || st.LiveBytes < room/4 {
		t.Errorf("%d bytes of %d are in use", st.LiveBytes, room)
	}
	if !st.Oldest[tierRaw].After(start) {
		t.Errorf("nothing was dropped: %v", st.Oldest)
	}
	if x := query(t, s, ids[0], XmitBytes, at.Add(-30*time.Minute), at, 30); len(x.Points) < 28 {
		t.Errorf("of the last half hour %d minutes are there", len(x.Points))
	}
	if x := query(t, s, ids[0], XmitBytes, start, at, 72); len(x.Points) < 60 {
		t.Errorf("of 72 tens of minutes %d are there", len(x.Points))
	}
}

// TestTogether has one that appends, some that ask and one that flushes.
func TestTogether(t *testing.T) {
	s := openMemory(t, Options{Flush: 5 * time.Second, HeadBytes: 1 << 18})
	ids := numbers(t, s, 300)
	done := make(chan error, 4)
	const samples = 300
	go func() {
		totals := make([]Values, len(ids))
		for k := range samples {
			for p := range totals {
				totals[p][XmitBytes] += uint64(p)
			}
			if err := s.Append(sec(float64(k)), ids, totals); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	for g := range 2 {
		go func() {
			for k := range 100 {
				p := (k*7 + g) % len(ids)
				x, err := s.Query(ids[p], XmitBytes, start, sec(samples), 1000)
				if err != nil {
					done <- err
					return
				}
				for _, pt := range x.Points {
					if pt.Avg != float64(p) {
						done <- fmt.Errorf("port %d at %v: %v", p, pt.At, pt.Avg)
						return
					}
				}
				if _, err := s.Top(XmitBytes, start, sec(samples), 5); err != nil {
					done <- err
					return
				}
			}
			done <- nil
		}()
	}
	go func() {
		for range 20 {
			if err := s.Flush(); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	for range 4 {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	x := query(t, s, ids[100], XmitBytes, start, sec(samples), samples)
	if len(x.Points) != samples-1 {
		t.Errorf("%d points, want %d", len(x.Points), samples-1)
	}
}

// A store that is a few minutes old answers in the steps of its samples, not in minutes, though minutes are on disk
// too.
func TestYoungStoreIsFine(t *testing.T) {
	s, err := Open("", Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ids, err := s.PortIDs([]PortKey{{Node: 1, Port: 1}})
	if err != nil {
		t.Fatal(err)
	}
	began := time.Date(2026, 11, 15, 12, 0, 13, 0, time.UTC)
	var v Values
	for i := range 400 {
		v[XmitBytes] += 1000
		if err := s.Append(began.Add(time.Duration(i)*time.Second), ids, []Values{v}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Flush(); err != nil {
		t.Fatal(err)
	}
	got, err := s.Query(ids[0], XmitBytes, began.Add(-time.Minute), began.Add(9*time.Minute), 600)
	if err != nil {
		t.Fatal(err)
	}
	if got.Step != time.Second || len(got.Points) < 390 {
		t.Errorf("%d points of %v each: want 399 of a second", len(got.Points), got.Step)
	}
}

// TestDroppedWhileRead: what a question reads stays until it is answered, though it is dropped meanwhile.
func TestDroppedWhileRead(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "h.db"), Options{})
	ids := numbers(t, s, 1)
	const step = 5 * time.Second
	for k := range 360 {
		appendTo(t, s, start.Add(time.Duration(k)*step), ids, []Values{{uint64(100 * k)}})
	}
	if err := s.Flush(); err != nil {
		t.Fatal(err)
	}
	from, to := start.Add(20*time.Minute), start.Add(25*time.Minute)
	v, tx, err := s.snapshot(from, to, 60)
	if err != nil {
		t.Fatal(err)
	}
	if len(v.disk) == 0 {
		t.Fatal("nothing of it is in the file")
	}
	var drop []*chunk
	for _, p := range v.disk {
		drop = append(drop, p.c)
	}
	if err := s.drop(drop); err != nil {
		t.Fatal(err)
	}
	b := v.bins()
	if err := v.readDisk(tx, ids[0], 0, b); err != nil {
		t.Fatal(err)
	}
	tx.Rollback()
	v.readHeads(ids[0], 0, b)
	if x := b.series(); len(x.Points) != 60 || x.Points[30].Avg != 20 {
		t.Errorf("%d points in steps of %v", len(x.Points), x.Step)
	}
	// Who asks later is not led to what is gone.
	later, err := s.Query(ids[0], 0, from, to, 60)
	if err != nil {
		t.Fatal(err)
	}
	if len(later.Points) >= 60 {
		t.Errorf("%d points of what was dropped", len(later.Points))
	}
}
