package experiment

import (
	"errors"
	"strings"
	"testing"

	"softib/driver/jobs"
	"softib/job/load"
	"softib/node/link"
	"softib/proto/topo"
)

// TestNetworks runs one load on one cluster of InfiniBand and of Ethernet: the same command gives the same hash, and
// the report says what there was of pauses, marks and losses.
func TestNetworks(t *testing.T) {
	g, err := topo.ParseSpec("fat-tree:radix=4,levels=2,speed=EDR")
	if err != nil {
		t.Fatal(err)
	}
	l, err := load.Parse("incast:size=256K")
	if err != nil {
		t.Fatal(err)
	}
	run := func(kind, level string, change func(*Spec)) (*Report, error) {
		s := Spec{Topology: "fat-tree", Load: l.String(), Graph: g, Schedule: l.Schedule, Level: level, Seed: 1,
			Options: jobs.Options{Buffer: 32 << 10, Ethernet: jobs.Ethernet{Kind: kind,
				RED: link.RED{Kmin: 1000, Kmax: 20_000}}}}
		if change != nil {
			change(&s)
		}
		return Run(t.Context(), s, nil)
	}
	for _, kind := range jobs.Kinds {
		a, err := run(kind, Auto, nil)
		if err != nil {
			t.Fatal(err)
		}
		b, err := run(kind, Auto, nil)
		if err != nil || a.Hash != b.Hash || a.Level != Packets {
			t.Errorf("%s: %s and %s by %s, %v", kind, a.Hash, b.Hash, a.Level, err)
		}
		e := a.Ethernet
		switch kind {
		case jobs.InfiniBand:
			if e != nil || strings.Contains(a.Fabric.Routing, "ib") {
				t.Errorf("%s: %+v", kind, e)
			}
			continue
		case jobs.RoCE:
			if e.PausesSent == 0 || e.Dropped != 0 || e.Notified == 0 || e.Notified > e.Marked {
				t.Errorf("%s: %+v", kind, e)
			}
		default:
			if e.PausesSent != 0 || e.Dropped == 0 || e.Resent == 0 {
				t.Errorf("%s: %+v", kind, e)
			}
		}
		for _, level := range []string{Flows, IdealNet} {
			r, err := run(kind, level, nil)
			if kind == jobs.RoCE && level == Flows {
				if err != nil || r.Ethernet != nil || !strings.Contains(r.Why, "nobody is paused") {
					t.Errorf("%s by %s: %v, %+v", kind, level, err, r)
				}
				continue
			}
			if !errors.Is(err, ErrSpec) || !strings.Contains(err.Error(), "next:") {
				t.Errorf("%s by %s: %v", kind, level, err)
			}
		}
	}
	// A storm stops the run, which says where.
	storm := func(s *Spec) { s.Options.Ethernet.Storm = 1 }
	var stuck *jobs.StuckError
	if _, err := run(jobs.RoCE, Auto, storm); !errors.As(err, &stuck) ||
		!strings.Contains(err.Error(), "pauses for ever") {
		t.Errorf("a storm: %v", err)
	}
}
