package remote_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"softib/driver/live"
	"softib/node/madrpc"
	"softib/operate/doctor"
	"softib/operate/manager/remote"
	"softib/proto/ib"
	"softib/proto/mad"
	"softib/proto/topo"
	"softib/subnet/sm"
)

var errBroken = errors.New("somebody pulled the adapter out")

// failing is a transport that fails when it is told to.
type failing struct {
	*live.Session
	broken chan struct{}
}

func (s *failing) Err() error {
	select {
	case <-s.broken:
		return errBroken
	default:
		return nil
	}
}

func (s *failing) Poll(take func(madrpc.Delivery)) bool {
	return s.Err() == nil && s.Session.Poll(take)
}

// deaf is a transport whose every request times out at once.
type deaf struct {
	*live.Session
	waiting []uint64
	closed  bool
}

func (s *deaf) Queue(_ ib.Time, _ madrpc.AgentID, m madrpc.Message) error {
	s.waiting = append(s.waiting, m.Cookie)
	return nil
}

func (s *deaf) Poll(take func(madrpc.Delivery)) bool {
	list := s.waiting
	s.waiting = nil
	for _, c := range list {
		take(madrpc.Delivery{Kind: madrpc.TimedOut, Cookie: c})
	}
	return len(list) > 0
}

func (s *deaf) Close() error {
	s.closed = true
	return s.Session.Close()
}

// counting counts the requests that are on their way. Transactions must differ.
type counting struct {
	*live.Session
	t         testing.TB
	now, most int
	under     map[uint64]bool
	total     atomic.Int64
}

func (s *counting) Queue(now ib.Time, id madrpc.AgentID, m madrpc.Message) error {
	s.now++
	s.most = max(s.most, s.now)
	s.total.Add(1)
	tid := mad.View(m.Data).TID()
	if s.under[tid] {
		s.t.Errorf("transaction %d is under way twice", tid)
	}
	s.under[tid] = true
	return s.Session.Queue(now, id, m)
}

func (s *counting) Poll(take func(madrpc.Delivery)) bool {
	return s.Session.Poll(func(d madrpc.Delivery) {
		s.now--
		delete(s.under, mad.View(d.Data).TID()&0xFFFFFFFF)
		take(d)
	})
}

// Whoever asks, no more datagrams than the window are on their way; and a doctor works on a session like on any port.
func TestWindow(t *testing.T) {
	r := newRig(t, small, sm.Config{})
	s := &counting{Session: r.session(1), t: t, under: map[uint64]bool{}}
	o := quick
	o.Window = 7
	f := watch(t, s, o)
	session, err := f.MgmtSession(topo.PortRef{})
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	found, err := doctor.Run(ctx, session, doctor.RunOptions{Interval: 200 * time.Millisecond, Window: 256,
		Timeout: 5 * ib.Second})
	if err != nil {
		t.Fatal(err)
	}
	if rep := doctor.Judge(found.Before, found.After, doctor.Options{Plan: r.g}); !rep.Healthy() {
		t.Errorf("%+v", rep)
	}
	// The doctor may have been quicker than the next look at everything is due.
	for st := f.Stats(); st.Surveys < 2 || st.Counts < 1; st = f.Stats() {
		if ctx.Err() != nil {
			t.Fatalf("not everything is looked at again: %+v", st)
		}
		awaitRead(t, f, 1)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if s.most > 7 || s.most < 5 {
		t.Errorf("%d requests were under way at once, want up to 7", s.most)
	}
	if st := f.Stats(); st.SurveyAsked == 0 || st.CountAsked == 0 || st.SurveyUnread+st.CountUnread != 0 {
		t.Errorf("%+v", st)
	}
	if _, err := session.Register(madrpc.Registration{Class: mad.ClassSA,
		Methods: madrpc.MethodSet(mad.MethodGet)}); err == nil {
		t.Error("a session answers others")
	}
	if err := session.Send(1, madrpc.Message{Data: make([]byte, mad.Size), Timeout: ib.Second}); !errors.Is(err,
		remote.ErrClosed) {
		t.Errorf("%v", err)
	}
}

// BenchmarkRefresh says how long a look at everything takes, and how long one at the counters, of a fabric of this
// process.
func BenchmarkRefresh(b *testing.B) {
	for _, c := range []struct{ name, spec string }{{"648", "fat-tree:radix=36,levels=2"}} {
		b.Run(c.name, func(b *testing.B) {
			r := newRig(b, c.spec, sm.Config{Window: 1024})
			f := r.watch(1, remote.Options{Interval: time.Millisecond, Survey: 10 * time.Millisecond, Window: 1024})
			for b.Loop() {
				awaitRead(b, f, 4)
			}
			st := f.Stats()
			b.ReportMetric(float64(st.SurveyTook.Milliseconds()), "survey-ms")
			b.ReportMetric(float64(st.SurveyAsked), "survey-MADs")
			b.ReportMetric(float64(st.CountTook.Milliseconds()), "counters-ms")
			b.ReportMetric(float64(st.CountAsked), "counters-MADs")
		})
	}
}

// old is a transport to nodes with counters of 32 bits and fewer. One port sends a gigaword between two readings, and
// its counter stops at the most that it holds.
type old struct {
	*live.Session
	lid    ib.LID
	value  uint64
	resets atomic.Int64
	sent   atomic.Uint64
}

func (s *old) Poll(take func(madrpc.Delivery)) bool {
	attr := mad.CounterAttrByID(mad.AttrPortCounters)
	return s.Session.Poll(func(d madrpc.Delivery) {
		v := mad.View(d.Data)
		if d.Kind == madrpc.Response && v.Class() == mad.ClassPerf {
			b := d.Data[mad.PMDataOff:]
			switch {
			case v.AttrID() == mad.AttrClassPortInfo:
				var c mad.ClassPortInfo
				if _, err := c.Parse(b); err == nil {
					c.CapabilityMask, c.CapabilityMask2 = 0, 0
					c.Append(b[:0])
				}
			case v.AttrID() == mad.AttrPortCounters && d.Env.LID == s.lid:
				if v.Method() != mad.MethodGetResp {
					break
				}
				s.value = min(s.value+1<<30, 1<<32-1)
				s.sent.Add(1 << 30)
				for i, row := range attr.Rows {
					if row.Counter == ib.PortXmitData {
						attr.PutCounter(b, i, s.value)
					}
				}
			}
		}
		take(d)
	})
}

func (s *old) Queue(now ib.Time, id madrpc.AgentID, m madrpc.Message) error {
	v := mad.View(m.Data)
	if v.Class() == mad.ClassPerf && v.Method() == mad.MethodSet && m.Env.LID == s.lid {
		attr := mad.CounterAttrByID(mad.AttrPortCounters)
		for _, row := range attr.Rows {
			if row.Counter == ib.PortXmitData && attr.Select(m.Data[mad.PMDataOff:])&(1<<row.Select) != 0 {
				s.value = 0
				s.resets.Add(1)
			}
		}
	}
	return s.Session.Queue(now, id, m)
}

// Counters of 32 bits stop, which is said; where they may be cleared they go on.
func TestOldCounters(t *testing.T) {
	r := newRig(t, "star:3", sm.Config{})
	pi, _ := r.PortInfo(ref(t, r.g, "h3[1]"))
	s := &old{Session: r.session(1), lid: pi.LID}
	f := watch(t, s, quick)
	awaitEvent(t, f.Journal(), "counters are about to stop", "h3[1]", "--allow-changes")
	awaitRead(t, f, 4)
	words := func() uint64 {
		return f.CountersOf([]topo.PortRef{ref(t, f.Graph(), "h3[1]")})[0][ib.PortXmitData]
	}
	if got := words(); got != 1<<32-1 || s.resets.Load() != 0 {
		t.Errorf("%d words after %d resets", got, s.resets.Load())
	}

	s = &old{Session: r.session(1), lid: pi.LID}
	o := quick
	o.AllowChanges = true
	f = watch(t, s, o)
	deadline := time.Now().Add(60 * time.Second)
	for was := uint64(0); words() < 1<<34; {
		awaitRead(t, f, 1)
		now := words()
		if now < was {
			t.Fatalf("%d words, then %d", was, now)
		}
		if was = now; time.Now().After(deadline) {
			t.Fatalf("%d words of %d after %d resets", now, s.sent.Load(), s.resets.Load())
		}
	}
	if s.resets.Load() < 3 {
		t.Errorf("%d resets", s.resets.Load())
	}
}
