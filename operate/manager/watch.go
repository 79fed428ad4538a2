package manager

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"softib/node/inspect"
	"softib/operate/manager/health"
	"softib/proto/ib"
	"softib/proto/mad"
	"softib/proto/topo"
	"softib/subnet"
	"softib/subnet/route"
	"softib/subnet/sm"
)

// What may take a while is looked at beside the samples: a subnet manager that computes does not answer until it has
// done, others may not answer at all, and to judge the tables of a large fabric takes seconds.

// managersEvery is how often other managers are asked who is master, where the fabric's own is not.
const managersEvery = 10 * time.Second

// tablesRest is how many times longer than the last judgement of tables took there is none: where tables change all
// the time, a tenth of a core goes into it.
const tablesRest = 9

// watcher is what a look after a sample knows of those before.
type watcher struct {
	m *Manager

	managers, tables []health.Verdict

	asked  time.Time // when managers were, by samples
	epoch  uint64    // of the last sample
	judged uint64    // the epoch of the tables that were judged
	rest   time.Time // until when none are
}

// tabled is a fabric whose forwarding tables can be read.
type tabled interface {
	Tables(node int) (inspect.SwitchTables, bool)
}

// watch looks after each sample, until ctx ends.
func (m *Manager) watch(ctx context.Context) {
	w := &watcher{m: m}
	samples := m.Samples(ctx)
	for {
		select {
		case <-ctx.Done():
			return
		case <-samples:
		}
		s := m.Sample()
		own := m.ownView()
		w.lookAtManagers(ctx, own, s.At)
		w.lookAtTables(ctx, own, s)
		list := slices.Concat(w.managers, m.twins(own), w.tables)
		m.watched.Store(&list)
	}
}

// ownView is what the fabric's own subnet manager knows; sub is nil where it does not manage.
type ownView struct {
	at     topo.PortRef
	has    bool // it runs, and at is where
	master bool
	sub    *subnet.Subnet
}

func (m *Manager) ownView() (v ownView) {
	var guid ib.GUID
	ok := m.withManager(func(x *sm.Manager) {
		guid, v.sub, v.master = x.GUID(), x.Subnet(), x.State() == mad.SMMaster
	})
	if ok && guid != 0 {
		m.static.own.Store(uint64(guid))
		v.at, v.has = m.g.ByPortGUID(guid)
	}
	return v
}

// lookAtManagers finds out whether one manager is master. The fabric's own knows the others if it is; else those are
// asked that say that they run.
func (w *watcher) lookAtManagers(ctx context.Context, own ownView, now time.Time) {
	m := w.m
	at := own.at
	if !own.has {
		at = m.g.EndPorts()[0]
	}
	var masters []topo.PortRef
	if own.master && own.has && own.sub != nil {
		w.asked = time.Time{} // others are asked as soon as it is not
		masters = append(masters, own.at)
		for _, o := range own.sub.Managers[1:] {
			if r, ok := m.g.ByPortGUID(o.Port); ok && o.Info.SMState == mad.SMMaster {
				masters = append(masters, r)
			}
		}
	} else {
		if d := now.Sub(w.asked); d >= 0 && d < managersEvery {
			return
		}
		w.asked = now
		masters = m.askMasters(ctx, at)
	}
	if w.managers = nil; ctx.Err() != nil {
		return
	}
	switch len(masters) {
	case 0:
		w.managers = append(w.managers, about(health.NoMaster, health.Bad, at, at,
			"no subnet manager is master: what comes up gets no address, and nobody leads around what goes down",
			"start one: softib sm --on fabric:HOST, or opensm; softib log says how the last one ended"))
	case 1:
	default:
		var names []string
		for _, r := range masters {
			names = append(names, m.g.Nodes[r.Node].Name)
		}
		w.managers = append(w.managers, about(health.TwoMasters, health.Bad, masters[0], masters[0],
			fmt.Sprintf("%d managers are master: %s", len(masters), words(names)), "stop all but one; softib doctor "+
				"shows their priorities, and whether they have the same SM_Key their logs"))
	}
}

// askMasters asks all in the subnet of a port who say that a manager runs at theirs. Where a fabric is read from one
// port only, what they say is taken for it.
func (m *Manager) askMasters(ctx context.Context, in topo.PortRef) (masters []topo.PortRef) {
	_, fromOne := m.opts.Fabric.(Paced)
	subnet, _ := m.opts.Fabric.PortInfo(in)
	for _, r := range m.g.EndPorts() {
		pi, ok := m.opts.Fabric.PortInfo(r)
		if !ok || pi.CapabilityMask&mad.CapIsSM == 0 || pi.GidPrefix != subnet.GidPrefix {
			continue
		}
		if fromOne {
			return []topo.PortRef{r}
		}
		a, err := NewAsker(m.opts.Fabric, r)
		if err != nil {
			continue
		}
		info, err := a.ManagerHere(ctx, 0)
		a.Close()
		if err == nil && info.SMState == mad.SMMaster {
			masters = append(masters, r)
		}
	}
	return masters
}

// twins are nodes of which the own manager has left one out, because another has its GUID.
func (m *Manager) twins(own ownView) (list []health.Verdict) {
	if own.sub == nil {
		return nil
	}
	// Who is behind a port, as the fabric is cabled: GUIDs do not tell the two apart.
	behind := func(near ib.GUID, port ib.PortNum) *topo.Node {
		if n := m.g.ByGUID(near); n != nil && int(port) < len(n.Ports) && n.Ports[port].Connected() {
			return m.g.Nodes[n.Ports[port].Peer]
		}
		return nil
	}
	seen := map[*topo.Node]bool{}
	for _, t := range own.sub.Twins {
		out := behind(t.Switch, t.Port)
		if out == nil || seen[out] {
			continue
		}
		seen[out] = true
		// The other one is in the subnet, and the one that should not have the GUID is to be seen to.
		in, bad := m.kept(own, t.GUID, behind), out
		text := fmt.Sprintf("%s and another node", out.Name)
		if in != nil {
			text = fmt.Sprintf("%s and %s", out.Name, in.Name)
			if out.GUID == t.GUID || out.PortGUID(1) == t.GUID {
				bad = in
			}
		}
		at := topo.PortRef{Node: bad.Index}
		list = append(list, about(health.TwinGUID, health.Bad, at, at,
			fmt.Sprintf("%s have one GUID, %v: the manager leaves out %s", text, t.GUID, out.Name),
			"write the GUID on its label into the firmware of the one that was cloned, and restart it; softib doctor "+
				"shows where both are"))
	}
	return list
}

// kept is the node that is in the subnet with a GUID which another has, too; nil if it is not found.
func (m *Manager) kept(own ownView, guid ib.GUID, behind func(ib.GUID, ib.PortNum) *topo.Node) *topo.Node {
	i, ok := own.sub.ByGUID(guid)
	if r, isPort := own.sub.ByPortGUID(guid); !ok && isPort {
		i, ok = r.Node, true
	}
	if !ok {
		return nil
	}
	if i == own.sub.Self.Node {
		return m.g.Nodes[own.at.Node]
	}
	for p := range own.sub.Nodes[i].Ports {
		if x := &own.sub.Nodes[i].Ports[p]; x.Up() {
			if n := behind(own.sub.Nodes[x.Peer].Info.NodeGUID, x.PeerPort); n != nil {
				return n
			}
		}
	}
	return nil
}

// lookAtTables judges the tables once they have changed and stood still from one sample to the next: whether all end
// ports reach each other, and whether packets go round. Tables that hold what the own manager has computed are taken to
// be good: to compare them takes a small part of the time.
func (w *watcher) lookAtTables(ctx context.Context, own ownView, s *Sample) {
	f, ok := w.m.opts.Fabric.(tabled)
	if still := s.Epoch == w.epoch; !ok || !still || s.Epoch == w.judged || time.Now().Before(w.rest) {
		w.epoch = s.Epoch
		return
	}
	began := time.Now()
	var bad []health.Verdict
	if !w.m.hold(f, own) {
		net := ActiveNetwork(w.m.opts.Fabric)
		t := &route.Tables{}
		for _, n := range w.m.g.Switches() {
			x, _ := f.Tables(n.Index)
			t.LFT = append(t.LFT, x.LFT)
		}
		report := make(chan route.Report, 1)
		go func() { report <- route.Arrivals(net, t) }()
		select {
		case <-ctx.Done(): // it has nothing that anybody waits for
			return
		case r := <-report:
			bad = w.m.badTables(net, &r)
		}
	}
	w.rest = time.Now().Add(tablesRest * time.Since(began))
	if w.m.opts.Fabric.Epoch() == s.Epoch { // else it is of no moment at all
		w.judged, w.tables = s.Epoch, bad
	}
}

// hold reports whether all switches hold the tables that the own manager has computed.
func (m *Manager) hold(f tabled, own ownView) bool {
	if !own.master || own.sub == nil {
		return false
	}
	for _, n := range m.g.Switches() {
		i, ok := own.sub.ByGUID(n.GUID)
		x, _ := f.Tables(n.Index)
		if !ok || !slices.Equal(x.LFT, own.sub.Nodes[i].LFT) {
			return false
		}
	}
	return true
}

// badTables says what is wrong with the tables.
func (m *Manager) badTables(net *route.Network, r *route.Report) []health.Verdict {
	name := func(sw int32) string { return m.g.Switches()[sw].Name }
	to := func(lid ib.LID) string {
		i := slices.IndexFunc(net.Dests, func(d route.Dest) bool { return d.LID == lid })
		d := &net.Dests[i]
		if n := m.g.Switches()[d.Switch]; d.IsEnd() {
			x := &n.Ports[d.Port]
			return fmt.Sprintf("%s (LID %d)", m.g.PortName(topo.PortRef{Node: x.Peer, Port: x.PeerPort}), lid)
		}
		return fmt.Sprintf("%s (LID %d)", name(d.Switch), lid)
	}
	at, text := int32(0), ""
	switch {
	case r.Loop != nil:
		var round []string
		for _, st := range r.Loop {
			round = append(round, name(st.Switch))
		}
		at, text = r.Loop[0].Switch, fmt.Sprintf("packets to %s go round for ever: %s", to(r.LoopLID), words(round))
	case r.Unreached > 0:
		miss := &r.Misses[0]
		at, text = miss.At, fmt.Sprintf("packets from hosts at %s to %s end at %s", name(miss.From), to(miss.To),
			name(miss.At))
	default:
		return nil
	}
	if r.Unreached > 0 {
		text += fmt.Sprintf("; %d of %d pairs of ports do not reach each other", r.Unreached, r.Pairs)
	}
	ref := topo.PortRef{Node: m.g.Switches()[at].Index}
	return []health.Verdict{about(health.BadTables, health.Bad, ref, ref, text, "softib route check names what is "+
		"lost; see in softib log who wrote the tables, stop all managers but one, and restart that to have it write "+
		"them anew")}
}

// words joins up to eight names.
func words(names []string) string {
	text := strings.Join(names[:min(8, len(names))], ", ")
	if more := len(names) - 8; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// ActiveNetwork is what routing sees of a fabric: the links that are Active, with the addresses that ports have.
func ActiveNetwork(f Fabric) *route.Network {
	g := f.Graph()
	state := func(a, b topo.PortRef) ib.PortState {
		x, _ := f.PortInfo(a)
		y, _ := f.PortInfo(b)
		return min(x.PortState, y.PortState)
	}
	net := route.FromGraphLIDs(g, func(r topo.PortRef) (ib.LID, uint8) {
		pi, ok := f.PortInfo(r)
		if !ok || !pi.LID.IsUnicast() {
			return 0, 0
		}
		return pi.LID, pi.LMC
	})
	number := map[int]int32{}
	for i, n := range g.Switches() {
		number[n.Index] = int32(i)
	}
	dead := map[topo.PortRef]bool{} // ports of switches that lead to end ports which nobody reaches
	for _, c := range g.Cables() {
		if state(c.A, c.B) == ib.PortActive {
			continue
		}
		x, y := g.Nodes[c.A.Node], g.Nodes[c.B.Node]
		switch {
		case x.IsSwitch() && y.IsSwitch():
			net.Cut(route.Link{Switch: number[x.Index], Port: c.A.Port})
		case x.IsSwitch():
			net.Switches[number[x.Index]].Ends--
			dead[c.A] = true
		case y.IsSwitch():
			net.Switches[number[y.Index]].Ends--
			dead[c.B] = true
		}
	}
	net.Dests = slices.DeleteFunc(net.Dests, func(d route.Dest) bool {
		return d.IsEnd() && dead[topo.PortRef{Node: g.Switches()[d.Switch].Index, Port: d.Port}]
	})
	return net
}
