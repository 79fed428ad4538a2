package fieldtest

import (
	"context"
	"testing"

	"softib/proto/ib"
	"softib/proto/mad"
	"softib/proto/topo"
	"softib/subnet/sm"
)

// Connections outlive a restart of the manager, a handover between two of ours, and the loss of a link that has another
// beside it.
func TestTrafficSurvives(t *testing.T) {
	t.Parallel()
	w := up(t, defaultSpec, brisk)
	lids := w.lids()
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	all := w.streams(ctx, "h1", "h32", "h5", "h9", "h14", "h23", "h27", "h4", "h30", "h31")
	w.flowing("at first", all)

	// A restart, at the same port and without any memory.
	w.sm.stop()
	w.flowing("without a manager", all)
	forgetful := func(priority uint8) sm.Config {
		return sm.Config{Window: 1024, Priority: priority, SubnetTimeout: 5, PollInterval: 600 * ib.Millisecond,
			Memory: sm.Memory{LIDs: map[ib.GUID]ib.LID{}}}
	}
	w.sm = w.manage(w.sm.at, forgetful(3))
	w.sm.wait(t, "the subnet to come up again", func(m *sm.Manager) bool { return m.Subnet() != nil })
	w.whole("a restart")
	same(t, "addresses after a restart", w.lids(), lids)
	w.knowsManager("after a restart")
	w.flowing("after a restart", all)

	// A handover to another of ours.
	old := w.sm
	w.sm = w.manage(ref(w.node("h17"), 1), forgetful(8))
	w.sm.wait(t, "the handover", func(m *sm.Manager) bool { return m.State() == mad.SMMaster && m.Subnet() != nil })
	old.wait(t, "the former master to stand by", func(m *sm.Manager) bool { return m.State() == mad.SMStandby })
	w.whole("a handover")
	same(t, "addresses after a handover", w.lids(), lids)
	w.knowsManager("after a handover")
	w.flowing("after a handover", all)

	// The link that h1's packets to h32 take, and its return.
	way, ok := w.walk(w.node("h1"), 1, w.lid(w.node("h32"), 1))
	if !ok || len(way) < 3 {
		t.Fatalf("the way from h1 to h32 has %d hops", len(way))
	}
	up := way[1]
	w.check(w.SetLink(ref(up.from, up.out), false))
	w.flowing("after the loss of a link", all)
	w.eventually("ways around the link", func() bool { return len(w.reachable()) == 0 })
	w.check(w.SetLink(ref(up.from, up.out), true))
	w.whole("the link's return")
	w.flowing("after the link's return", all)

	// The master dies; the one that stands by takes over.
	w.sm.stop()
	old.wait(t, "the other to take over", func(m *sm.Manager) bool {
		return m.State() == mad.SMMaster &&
			m.Subnet() != nil
	})
	w.sm = old
	w.whole("the master's death")
	same(t, "addresses after the master's death", w.lids(), lids)
	w.knowsManager("after the master's death")
	w.flowing("after the master's death", all)
	stop()
	for _, s := range all {
		<-s.done
		if s.err != nil {
			t.Errorf("%s: %v", s.name, s.err)
		}
	}
}

// knowsManager checks that every end port knows the address of the manager, which is where it sends its traps.
func (w *world) knowsManager(when string) {
	w.Helper()
	at := w.lid(w.g.Nodes[w.sm.at.Node], int(w.sm.at.Port))
	w.ends(func(n *topo.Node, p int) {
		same(w, when+": the manager that "+n.Name+" knows", w.portInfo(n, p).MasterSMLID, at)
	})
}
