package health

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	"softib/proto/ib"
	"softib/proto/topo"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// story feeds samples of one cable to Alarms and writes down what changes.
type story struct {
	alarms *Alarms
	cables []Cable
	at     time.Time
	said   []string
}

func newStory(t *testing.T) *story {
	_, cables := fabric(t)
	return &story{alarms: NewAlarms(DefaultPatience()), cables: cables, at: start}
}

// sample is 10 s later; spoil does to the cables what is wrong with them in that sample.
func (s *story) sample(spoil func(c []Cable)) {
	s.at = s.at.Add(10 * time.Second)
	s.sampleNow(spoil)
}

func (s *story) sampleNow(spoil func(c []Cable)) {
	cables := append([]Cable(nil), s.cables...)
	if spoil != nil {
		spoil(cables)
	}
	for _, c := range s.alarms.Update(s.at, Judge(cables, 10*time.Second, Default())) {
		s.said = append(s.said, fmt.Sprintf("%v %v %v #%d", s.at.Sub(start), c.Transition, c.Alarm.Kind, c.Alarm.ID))
	}
}

func (s *story) want(t *testing.T, want ...string) {
	t.Helper()
	if !reflect.DeepEqual(s.said, want) {
		t.Errorf("\n got %q\nwant %q", s.said, want)
	}
}

func TestAlarmRaisedAndClearedOnce(t *testing.T) {
	s := newStory(t)
	errors := func(n uint64) func(c []Cable) {
		return func(c []Cable) { c[4].A.Delta[ib.SymbolErrorCounter] = n }
	}
	s.sample(nil)
	s.sample(errors(1)) // watch
	s.sample(nil)
	s.sample(errors(50)) // bad
	s.sample(errors(60))
	s.sample(errors(1)) // not better again
	if all := s.alarms.Standing(); len(all) != 1 || all[0].Severity != Bad || all[0].Reason.Excess.Count != 60 ||
		all[0].Count != 4 {
		t.Fatalf("standing: %+v", all)
	}
	for range 40 {
		s.sample(nil)
	}
	s.want(t, "20s raised signal errors #1", "40s worse signal errors #1", "6m0s cleared signal errors #1")
	if all := s.alarms.Standing(); len(all) != 0 {
		t.Errorf("standing: %+v", all)
	}
}

func TestAlarmOfState(t *testing.T) {
	s := newStory(t)
	state := func(st ib.PortState) func(c []Cable) {
		return func(c []Cable) { c[4].A.State, c[4].B.State = st, st }
	}
	s.sample(state(ib.PortDown))
	s.sample(state(ib.PortInit)) // coming up: no alarm yet
	s.sample(state(ib.PortArmed))
	s.sample(nil)
	s.want(t, "10s raised link down #1", "20s cleared link down #1")
	s.said = nil
	for range 5 {
		s.sample(state(ib.PortInit))
	}
	s.sample(nil)
	s.want(t, "1m20s raised not active #2", "1m40s cleared not active #2")
}

func TestAlarmsAndClockThatGoesBack(t *testing.T) {
	s := newStory(t)
	s.sample(func(c []Cable) { c[4].A.Delta[ib.SymbolErrorCounter] = 50 })
	s.at = start.Add(-time.Hour)
	s.sampleNow(nil)
	s.want(t, "10s raised signal errors #1")
	for range 30 {
		s.sample(nil)
	}
	s.want(t, "10s raised signal errors #1", "-55m0s cleared signal errors #1")
}

func TestClearAndForget(t *testing.T) {
	s := newStory(t)
	down := func(c []Cable) { c[4].A.State = ib.PortDown; c[5].A.State = ib.PortDown }
	s.sample(down)
	if a, ok := s.alarms.Clear(1); !ok || a.ID != 1 {
		t.Fatalf("cleared %+v, %v", a, ok)
	}
	if _, ok := s.alarms.Clear(1); ok {
		t.Fatal("cleared twice")
	}
	s.sample(down)
	s.want(t, "10s raised link down #1", "10s raised link down #2", "20s raised link down #3")
	s.alarms.Forget(func(a, b topo.PortRef) bool { return a == s.cables[4].A.Ref && b == s.cables[4].B.Ref })
	if all := s.alarms.Standing(); len(all) != 1 || all[0].ID != 2 {
		t.Errorf("standing: %+v", all)
	}
}
