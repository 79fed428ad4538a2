package doctor

import (
	"fmt"
	"slices"
	"strings"

	"softib/proto/ib"
	"softib/proto/topo"
	"softib/subnet/route"
	"softib/subnet/survey"
)

// judgeTables is route's judgement without the parts that only say how good tables are.
func judgeTables(r *survey.Routing) *route.Report {
	rep := route.Judge(r.Net, r.Tables, route.JudgeOptions{Faults: true})
	return &rep
}

// routing reports pairs that do not reach each other, and packets that could wait for each other in a circle.
func (j *judgement) routing(s *Section) {
	if j.s.Parts&survey.Tables == 0 {
		s.skip("no forwarding table was read")
		return
	}
	r, rep := j.s.Routing(false), j.o.Routes
	if rep == nil {
		rep = judgeTables(r)
	}
	if rep.EndPorts == 0 {
		s.skip("no end port is active: see links")
		return
	}
	s.Looked = fmt.Sprintf("%s of %s", count(int(rep.Pairs), "pair", "pairs"),
		count(rep.EndPorts, "end port", "end ports"))
	for _, k := range r.Unread {
		name := j.s.Nodes[r.Nodes[k]].Name
		s.add(Finding{
			Severity: Warn, Kind: "table-unread", Objects: []string{name}, Measured: "the forwarding table of " + name +
				" could not be read, so ways through it count as lost",
			Threshold: "a table", Next: "see answers, above, and run this again",
		})
	}
	if rep.Apart > 0 {
		s.add(Finding{
			Severity: Fail, Kind: "parts", Measured: fmt.Sprintf(
				"%d pairs have no active cables between them: the fabric is in parts", rep.Apart), Threshold: "0",
			Next: "see links: a link that is down or not active cuts them off",
		})
	}
	j.unreached(s, r, rep)
	if rep.Loop != nil {
		var steps []string
		for _, st := range rep.Loop {
			steps = append(steps, j.step(r, st.Switch, st.Port))
		}
		s.add(Finding{
			Severity: Fail, Kind: "forwarding-loop", Objects: j.switchNames(r, rep.Loop), Threshold: "no loop",
			Measured: fmt.Sprintf("packets to %s go round for ever: %s", j.dest(r, rep.LoopLID),
				strings.Join(steps, ", ")),
			Next: "let the subnet manager compute and write its tables anew (a full sweep); softib route check " +
				"says whether its engine's tables are good",
		})
	}
	j.creditLoop(s, r, rep)
}

// unreached reports the pairs whose packets do not arrive.
func (j *judgement) unreached(s *Section, r *survey.Routing, rep *route.Report) {
	if rep.Unreached == 0 {
		return
	}
	shown := 0
	for _, m := range rep.Misses {
		from := j.sender(r, m.From, m.To)
		to := j.dest(r, m.To)
		at := j.s.Nodes[r.Nodes[m.At]].Name
		f := Finding{Severity: Fail, Kind: "unreachable", Objects: []string{from, j.destName(r, m.To), at},
			Threshold: "a way for every pair"}
		switch m.Why {
		case "loop":
			f.Measured = fmt.Sprintf("packets from %s to %s go round in a loop at %s", from, to, at)
		default:
			f.Measured = fmt.Sprintf("packets from %s to %s end at %s, %s", from, to, at, j.entry(r, m.At, m.To))
		}
		f.Next = fmt.Sprintf("softib route trace %s %s follows them; let the subnet manager write its tables "+
			"anew (a full sweep)", from, j.destName(r, m.To))
		s.add(f)
		shown++
	}
	if rest := rep.Unreached - int64(shown); rest > 0 && shown > 0 {
		s.add(Finding{
			Severity: Fail, Kind: "unreachable-count", Measured: fmt.Sprintf("%d of %d pairs do not reach each "+
				"other; those named are the first", rep.Unreached, rep.Pairs), Threshold: "0",
			Next: "let the subnet manager write its tables anew (a full sweep)",
		})
	}
}

// entry says what a switch does with packets to a LID.
func (j *judgement) entry(r *survey.Routing, sw int32, lid ib.LID) string {
	p := r.Tables.LFT[sw][lid]
	n := j.s.Nodes[r.Nodes[sw]]
	switch {
	case p == route.NoPort:
		return fmt.Sprintf("which has no entry for LID %d", lid)
	case int(p) >= len(n.Ports):
		return fmt.Sprintf("whose entry for LID %d is port %d: it has no such port", lid, p)
	case p == 0:
		return fmt.Sprintf("which takes LID %d for its own", lid)
	}
	x := &n.Ports[p]
	name := j.s.PortName(topo.PortRef{Node: r.Nodes[sw], Port: p})
	if !x.Cabled() || !x.Linked() {
		return fmt.Sprintf("whose entry for LID %d is %s, which has no link", lid, name)
	}
	far := topo.PortRef{Node: x.Peer, Port: x.PeerPort}
	if !j.s.Nodes[x.Peer].IsSwitch() {
		return fmt.Sprintf("whose entry for LID %d is %s, which leads to %s", lid, name, j.s.PortName(far))
	}
	return fmt.Sprintf("whose entry for LID %d is %s, which is not active", lid, name)
}

// lostAnswers says where the answers of a switch to the port that asks end, if its tables do not lead there. No pair of
// end ports need use such an entry, so unreached does not see it: only what the switch itself sends does.
func (j *judgement) lostAnswers(node int) string {
	lid := j.s.Port(j.s.From).Info.LID
	if j.s.Parts&survey.Tables == 0 || !j.s.Nodes[node].IsSwitch() {
		return ""
	}
	r := j.s.Routing(false)
	at := slices.Index(r.Nodes, node)
	to := slices.IndexFunc(r.Net.Dests, func(d route.Dest) bool { return d.LID == lid })
	if at < 0 || to < 0 {
		return ""
	}
	d := &r.Net.Dests[to]
	sw := int32(at)
	for range r.Nodes {
		p := r.Tables.LFT[sw][lid]
		if slices.Contains(r.Unread, sw) || sw == d.Switch && p == d.Port {
			return ""
		}
		ports := r.Net.Switches[sw].Ports
		if int(p) >= len(ports) || ports[p].To == route.NoSwitch {
			return fmt.Sprintf("packets from %s to %s end at %s, %s", j.s.Nodes[node].Name, j.dest(r, lid),
				j.s.Nodes[r.Nodes[sw]].Name, j.entry(r, sw, lid))
		}
		sw = ports[p].To
	}
	return fmt.Sprintf("packets from %s to %s go round in a loop", j.s.Nodes[node].Name, j.dest(r, lid))
}

// creditLoop reports a circle of channels, if lanes do not open it.
func (j *judgement) creditLoop(s *Section, r *survey.Routing, rep *route.Report) {
	cycle := rep.Cycle
	if cycle == nil {
		return
	}
	lanes, levels := j.s.Parts&survey.Lanes != 0, j.s.Levels != nil
	f := Finding{Severity: Fail, Kind: "credit-loop", Threshold: "no circle of channels that wait for each other"}
	if lanes {
		r = j.s.Routing(true)
		g := route.NewCDG(r.Net)
		g.Add(r.Tables, route.EndTraffic)
		if cycle = g.Cycle(); cycle == nil {
			return
		}
	}
	var steps []string
	seen := map[string]bool{}
	for _, c := range cycle {
		steps = append(steps, fmt.Sprintf("%s on VL %d", j.step(r, c.Switch, c.Port), c.VL))
		if name := j.s.Nodes[r.Nodes[c.Switch]].Name; !seen[name] {
			seen[name] = true
			f.Objects = append(f.Objects, name)
		}
	}
	f.Measured = "packets could wait for each other's buffers in a circle: " + strings.Join(steps, ", ")
	switch {
	case !lanes:
		f.Severity = Warn
		f.Measured += "; lanes could not be read, and might keep them apart"
	case !levels:
		f.Severity = Warn
		f.Measured += "; the administrator did not say which service levels packets use, and other levels than " +
			"0 might keep them apart"
	}
	f.Next = "use a routing engine that is free of deadlock here: softib route check --compare all says which " +
		"(updn always is; dfsssp and nue use lanes)"
	s.add(f)
}

// step is a cable in one direction: leaf1[5] -> spine1[1].
func (j *judgement) step(r *survey.Routing, sw int32, p ib.PortNum) string {
	at := topo.PortRef{Node: r.Nodes[sw], Port: p}
	s := j.s.PortName(at)
	if int(p) < len(j.s.Nodes[at.Node].Ports) {
		if x := j.s.Port(at); x.Cabled() {
			s += " -> " + j.s.PortName(topo.PortRef{Node: x.Peer, Port: x.PeerPort})
		}
	}
	return s
}

func (j *judgement) switchNames(r *survey.Routing, steps []route.Step) (names []string) {
	for _, st := range steps {
		names = append(names, j.s.Nodes[r.Nodes[st.Switch]].Name)
	}
	return names
}

// sender is an end port of a switch, other than the one that has a LID; the switch itself if it has none.
func (j *judgement) sender(r *survey.Routing, sw int32, not ib.LID) string {
	n := j.s.Nodes[r.Nodes[sw]]
	for p := 1; p < len(n.Ports); p++ {
		if x := &n.Ports[p]; x.Cabled() && !j.s.Nodes[x.Peer].IsSwitch() {
			if far := j.s.Port(topo.PortRef{Node: x.Peer, Port: x.PeerPort}); far.Info.LID != not &&
				far.Info.PortState == ib.PortActive {
				return j.s.Nodes[x.Peer].Name
			}
		}
	}
	return n.Name
}

// destName is the node that has a LID.
func (j *judgement) destName(r *survey.Routing, lid ib.LID) string {
	for _, d := range r.Net.Dests {
		if d.LID != lid {
			continue
		}
		n := j.s.Nodes[r.Nodes[d.Switch]]
		if d.IsEnd() {
			return j.s.Nodes[n.Ports[d.Port].Peer].Name
		}
		return n.Name
	}
	return fmt.Sprintf("LID %d", lid)
}

func (j *judgement) dest(r *survey.Routing, lid ib.LID) string {
	return fmt.Sprintf("%s (LID %d)", j.destName(r, lid), lid)
}

// lanes reports lanes that packets are put on and that never get a turn (IBA 7.6.9).
func (j *judgement) lanes(s *Section) {
	many, read := 0, 0
	for i, n := range j.s.Nodes {
		for p := 1; p < len(n.Ports); p++ {
			x := &n.Ports[p]
			if !x.Linked() || x.Info.OperationalVLs.VLs() < 2 {
				continue
			}
			many++
			if x.SLtoVL == nil || x.VLArb[0] == nil && x.VLArb[1] == nil {
				continue
			}
			read++
			j.starved(s, topo.PortRef{Node: i, Port: ib.PortNum(p)}, x)
		}
	}
	s.Looked = count(read, "port with several lanes", "ports with several lanes")
	if read < many && read == 0 {
		s.skip("there are too many: %s. Forwarding tables are good with one lane", count(many, "port", "ports"))
	}
}

func (j *judgement) starved(s *Section, r topo.PortRef, x *survey.Port) {
	var turn [ib.NumVL]bool
	for _, table := range x.VLArb {
		for _, e := range table {
			if e.Weight > 0 {
				turn[e.VL] = true
			}
		}
	}
	vls := x.Info.OperationalVLs.VLs()
	var used [ib.NumVL]uint16
	for _, m := range x.SLtoVL {
		for sl, vl := range m {
			used[vl] |= 1 << sl
		}
	}
	for vl := range vls {
		if used[vl] == 0 || turn[vl] {
			continue
		}
		name := j.s.PortName(r)
		var sls []string
		for sl := range ib.NumSL {
			if used[vl]&(1<<sl) != 0 {
				sls = append(sls, fmt.Sprint(sl))
			}
		}
		s.add(Finding{
			Severity: Fail, Kind: "starved-lane", Objects: []string{name},
			Measured: fmt.Sprintf("packets of service level %s leave %s on VL %d, which has no weight in either "+
				"arbitration table", strings.Join(sls, ","), name, vl),
			Threshold: "a weight for each lane in use", Next: "give the lane a weight in the manager's QoS " +
				"configuration (qos_vlarb_low), or map its levels to another lane",
		})
	}
}
