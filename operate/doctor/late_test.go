package doctor_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"softib/driver/live"
	"softib/node/madrpc"
	"softib/operate/doctor"
	"softib/proto/ib"
	"softib/proto/mad"
	"softib/proto/topo"
	"softib/subnet/sm"
)

// deaf loses questions to performance management that go to a LID: those of whose number, from 1, lose says so.
type deaf struct {
	*live.Session
	lid  ib.LID
	lose func(n int) bool
	n    int
}

func (d *deaf) Queue(now ib.Time, id madrpc.AgentID, m madrpc.Message) error {
	if mad.View(m.Data).Class() == mad.ClassPerf && m.Env.LID == d.lid {
		if d.n++; d.lose(d.n) {
			return errors.New("lost")
		}
	}
	return d.Session.Queue(now, id, m)
}

// lookLosing looks twice from h1 and loses some questions to a switch.
func (r *rig) lookLosing(sw string, lose func(n int) bool) *doctor.Report {
	r.t.Helper()
	s, err := r.OpenMgmt(r.port("h1[1]"))
	if err != nil {
		r.t.Fatal(err)
	}
	defer s.Close()
	pi, _ := r.PortInfo(topo.PortRef{Node: r.g.ByName(sw).Index})
	ctx, cancel := context.WithTimeout(r.t.Context(), time.Minute)
	defer cancel()
	found, err := doctor.Run(ctx, &deaf{Session: s, lid: pi.LID, lose: lose},
		doctor.RunOptions{Interval: time.Millisecond, Timeout: 50 * ib.Millisecond})
	if err != nil {
		r.t.Fatal(err)
	}
	return doctor.Judge(found.Before, found.After, doctor.Options{Plan: r.g})
}

// TestEntryOfBareSwitch: after a link is lost, spine1 waits for its last entry, which only its own answers need. An
// answer that is lost for want of it is a note if it comes at the second look and a warning that names the entry if it
// does not; without a question that needs it there is nothing to say.
func TestEntryOfBareSwitch(t *testing.T) {
	r := newRig(t, topo.DefaultSpec, sm.Config{SweepInterval: -1})
	r.stop()
	none := func(int) bool { return false }
	spine := r.g.ByName("spine1").Index
	entry := func(lid ib.LID, port ib.PortNum) {
		r.set(spine, mad.AttrLFT, uint32(lid)/mad.LFTPerBlock,
			func(data []byte) { data[lid%mad.LFTPerBlock] = byte(port) })
	}
	// No answer at the first look, for no reason that tables show.
	rep := r.lookLosing("spine1", func(n int) bool { return n == 1 })
	f := wantFinding(t, rep, "late-answer", doctor.Note, "spine1")
	if find(rep, "no-answer") != nil || strings.Contains(f.Measured, "packets from") {
		t.Errorf("\n%s", all(rep))
	}
	// No answer at either look.
	if f = wantFinding(t, r.lookLosing("spine1", func(int) bool { return true }), "no-answer", doctor.Warn,
		"spine1"); strings.Contains(f.Measured, "packets from") {
		t.Error(f.Measured)
	}
	// spine1 leads to h2 no more. Nothing of h2's goes by spine1 then either: the other leaves take another spine.
	h2 := r.lid("h2")
	for _, n := range r.g.Switches() {
		if !strings.HasPrefix(n.Name, "leaf") || n.Name == "leaf1" {
			continue
		}
		r.set(n.Index, mad.AttrLFT, uint32(h2)/mad.LFTPerBlock, func(data []byte) {
			for p := 1; p < len(n.Ports); p++ {
				if n.Ports[p].Connected() && r.g.Nodes[n.Ports[p].Peer].Name == "spine2" {
					data[h2%mad.LFTPerBlock] = byte(p)
				}
			}
		})
	}
	entry(h2, mad.LFTNone)
	for _, s := range r.lookLosing("spine1", none).Sections {
		if (s.Check == doctor.Answers || s.Check == doctor.Routing) && len(s.Findings) > 0 {
			t.Errorf("nothing was asked that needs the entry for h2: %+v", s.Findings)
		}
	}
	// The same for h1, which asks.
	h1 := r.lid("h1")
	for _, n := range r.g.Switches() {
		if strings.HasPrefix(n.Name, "leaf") && n.Name != "leaf1" {
			r.set(n.Index, mad.AttrLFT, uint32(h1)/mad.LFTPerBlock,
				func(data []byte) { data[h1%mad.LFTPerBlock] = data[h2%mad.LFTPerBlock] })
		}
	}
	entry(h1, mad.LFTNone)
	rep = r.lookLosing("spine1", none)
	f = wantFinding(t, rep, "no-answer", doctor.Warn, "spine1")
	const want = "packets from spine1 to h1 (LID 1) end at spine1, which has no entry for LID 1"
	if !strings.Contains(f.Measured, want) {
		t.Errorf("%q: want %q", f.Measured, want)
	}
	if find(rep, "unreachable") != nil {
		t.Errorf("all pairs reach each other:\n%s", all(rep))
	}
	// And the entry comes between the looks.
	rep = r.lookLosing("spine1", func(n int) bool {
		if n == 2 {
			entry(h1, r.port("spine1[1]").Port)
		}
		return false
	})
	f = wantFinding(t, rep, "late-answer", doctor.Note, "spine1")
	if want := "at the first look packets from spine1 to h1 (LID 1) end at spine1"; !strings.Contains(f.Measured,
		want) || find(rep, "no-answer") != nil {
		t.Errorf("%q: want %q\n%s", f.Measured, want, all(rep))
	}
}
