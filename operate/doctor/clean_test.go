package doctor_test

import (
	"testing"
	"time"

	"softib/operate/doctor"
	"softib/subnet/sm"
)

// TestClean: a fabric that is well has no findings, whatever its shape.
func TestClean(t *testing.T) {
	for _, spec := range []string{"star:4", "fat-tree:radix=8,levels=2", "fat-tree:radix=8,levels=3", "torus:4x4x4",
		"dragonfly:p=2,a=4,h=2"} {
		t.Run(spec, func(t *testing.T) {
			r := newRig(t, spec, sm.Config{})
			rep := r.examine(1, doctor.RunOptions{Interval: 50 * time.Millisecond, Timeout: unhurried},
				doctor.Options{Plan: r.g})
			if !rep.Healthy() {
				t.Errorf("not healthy:\n%s", all(rep))
			}
			if rep.Fabric.Hosts != len(r.g.Hosts()) || rep.Fabric.Switches != len(r.g.Switches()) ||
				rep.Fabric.Cables != r.g.NumCables() {
				t.Errorf("found %+v", rep.Fabric)
			}
			t.Log("\n" + all(rep))
		})
	}
}
