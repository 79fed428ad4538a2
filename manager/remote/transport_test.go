package remote_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"softib/doctor"
	"softib/ib"
	"softib/live"
	"softib/mad"
	"softib/madrpc"
	"softib/manager/remote"
	"softib/sm"
	"softib/topo"
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
	session, err := f.OpenMgmt(topo.PortRef{})
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	found, err := doctor.Run(ctx, session, doctor.RunOptions{Interval: 200 * time.Millisecond, Window: 256})
	if err != nil {
		t.Fatal(err)
	}
	if rep := doctor.Judge(found.Before, found.After, doctor.Options{Plan: r.g}); !rep.Healthy() {
		t.Errorf("%+v", rep)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if s.most > 7 || s.most < 5 {
		t.Errorf("%d requests were under way at once, want up to 7", s.most)
	}
	if st := f.Stats(); st.Surveys < 2 || st.Counts < 1 || st.SurveyAsked == 0 || st.CountAsked == 0 || st.SurveyUnread+st.CountUnread != 0 {
		t.Errorf("%+v", st)
	}
	if _, err := session.Register(madrpc.Registration{Class: mad.ClassSA, Methods: madrpc.MethodSet(mad.MethodGet)}); err == nil {
		t.Error("a session answers others")
	}
	if err := session.Send(1, madrpc.Message{Data: make([]byte, mad.Size), Timeout: ib.Second}); !errors.Is(err, remote.ErrClosed) {
		t.Errorf("%v", err)
	}
}

// BenchmarkRefresh says how long a look at everything takes, and how long one at the counters, of a fabric of this process.
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
