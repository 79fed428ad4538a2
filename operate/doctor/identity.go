package doctor

import (
	"fmt"
	"slices"
	"strings"

	"softib/proto/ib"
	"softib/proto/mad"
	"softib/proto/topo"
	"softib/subnet/survey"
)

// answers reports nodes and parts of nodes that say nothing, or nonsense.
func (j *judgement) answers(s *Section) {
	s.Looked = fmt.Sprintf("%s, %s", count(len(j.s.Nodes), "node", "nodes"),
		count(j.report.Fabric.Questions, "question", "questions"))
	for i, n := range j.s.Nodes {
		for p := range n.Ports {
			if n.Ports[p].Silent {
				at := j.s.PortName(topo.PortRef{Node: i, Port: ib.PortNum(p)})
				f := Finding{
					Severity: Fail, Kind: "silent-node", Objects: []string{at}, Measured: at +
						" has a link, but what is behind it does not answer",
					Threshold: "an answer to NodeInfo", Next: "see whether the device behind " + at +
						" hangs: restart it, or pull its cable; a port that an M_Key guards is silent too",
				}
				if far := j.planned(topo.PortRef{Node: i, Port: ib.PortNum(p)}); far != "" {
					f.Objects = append(f.Objects, far)
					f.Measured = fmt.Sprintf("%s has a link, but %s behind it does not answer", at, far)
				}
				s.add(f)
			}
		}
	}
	// What the gaps say, by node and attribute: one finding for each.
	type key struct {
		node  int
		class mad.Class
		attr  mad.AttrID
	}
	byKey := map[key][]survey.Gap{}
	var order []key
	for _, g := range j.s.Gaps {
		if g.At.Node < 0 || g.Class == mad.ClassSMDirect && g.Attr == mad.AttrNodeInfo && j.s.Port(g.At).Silent {
			continue
		}
		k := key{g.At.Node, g.Class, g.Attr}
		if byKey[k] == nil {
			order = append(order, k)
		}
		byKey[k] = append(byKey[k], g)
	}
	for _, k := range order {
		list := byKey[k]
		name := j.s.Nodes[k.node].Name
		f := Finding{
			Severity: Warn, Kind: "no-answer", Objects: []string{name}, Threshold: "an answer",
			Measured: fmt.Sprintf("%s does not answer %s, %s", name, mad.AttrName(k.class, k.attr),
				count(len(list), "time", "times")),
			Next: "what depends on it was not checked; see whether the node is overloaded or hangs, and run this again",
		}
		switch {
		case list[0].Nonsense != "":
			f.Kind, f.Measured = "nonsense", fmt.Sprintf("%s: %s behind port %d makes no sense: %s", name,
				mad.AttrName(k.class, k.attr), list[0].At.Port, list[0].Nonsense)
		case list[0].Status != mad.StatusOK:
			f.Severity, f.Kind = Note, "refused"
			f.Measured = fmt.Sprintf("%s refuses %s, %s: %v", name, mad.AttrName(k.class, k.attr),
				count(len(list), "time", "times"), list[0].Status)
		case k.class == mad.ClassPerf && j.answeredLater(list):
			f.Severity, f.Kind = Note, "late-answer"
			f.Measured = fmt.Sprintf("%s did not answer %s at the first look, and did at the second: what it "+
				"counted in between is not known", name, mad.AttrName(k.class, k.attr))
			f.Next = "if no link was lost just now, run this again and see that it stays away"
			if why := j.lostAnswers(k.node); why != "" {
				f.Measured += "; at the first look " + why
				f.Next = "run this again: after a link is lost a subnet manager gives switches without hosts " +
					"their last entries when packets on old ways are gone, which takes a second or two"
			}
		case k.class == mad.ClassPerf:
			f.Next = "its counters were not read: see that its LID is reached (routing) and that its port is active"
			if why := j.lostAnswers(k.node); why != "" {
				f.Measured += ": " + why
				f.Next = "its counters were not read: let the subnet manager write its tables anew (a full sweep)"
			}
		}
		s.add(f)
	}
}

// answeredLater reports whether the second look got what the first did not.
func (j *judgement) answeredLater(gaps []survey.Gap) bool {
	if j.s == j.before {
		return false
	}
	for _, g := range gaps {
		read := j.s.Reading(g.At).Valid
		if g.Attr == mad.AttrClassPortInfo { // the node's, not a port's
			for p := range j.s.Nodes[g.At.Node].Ports {
				read = read || j.s.Reading(topo.PortRef{Node: g.At.Node, Port: ib.PortNum(p)}).Valid
			}
		}
		if !read {
			return false
		}
	}
	return true
}

// planned is what the plan says is at the other end of a port's cable; empty if there is no plan, or nothing in it.
func (j *judgement) planned(r topo.PortRef) string {
	g := j.o.Plan
	if g == nil || j.duplicateGUID[j.s.Nodes[r.Node].Info.NodeGUID] {
		return ""
	}
	n := g.ByGUID(j.s.Nodes[r.Node].Info.NodeGUID)
	if n == nil || int(r.Port) >= len(n.Ports) || !n.Ports[r.Port].Connected() {
		return ""
	}
	return g.PortName(topo.PortRef{Node: n.Ports[r.Port].Peer, Port: n.Ports[r.Port].PeerPort})
}

// guids reports GUIDs that two have.
func (j *judgement) guids(s *Section) {
	byNode := map[ib.GUID][]int{}
	var order []ib.GUID
	for i, n := range j.s.Nodes {
		if byNode[n.Info.NodeGUID] == nil {
			order = append(order, n.Info.NodeGUID)
		}
		byNode[n.Info.NodeGUID] = append(byNode[n.Info.NodeGUID], i)
	}
	ports := 0
	type holder struct {
		ref  topo.PortRef
		node ib.GUID
	}
	byPort := map[ib.GUID][]holder{}
	var portOrder []ib.GUID
	j.s.EndPorts(func(r topo.PortRef, p *survey.Port) {
		ports++
		if p.GUID == 0 {
			return
		}
		if byPort[p.GUID] == nil {
			portOrder = append(portOrder, p.GUID)
		}
		byPort[p.GUID] = append(byPort[p.GUID], holder{r, j.s.Nodes[r.Node].Info.NodeGUID})
	})
	s.Looked = fmt.Sprintf("%s, %s", count(len(j.s.Nodes), "node", "nodes"), count(ports, "port", "ports"))
	for _, g := range order {
		list := byNode[g]
		if len(list) < 2 {
			continue
		}
		f := Finding{Severity: Fail, Kind: "duplicate-node-guid", Threshold: "one node for each GUID"}
		var words []string
		for _, i := range list {
			f.Objects = append(f.Objects, j.s.Nodes[i].Name)
			words = append(words, fmt.Sprintf("%s (%v with %s, %q)", j.whereNode(i), j.s.Nodes[i].Info.NodeType,
				count(int(j.s.Nodes[i].Info.NumPorts), "port", "ports"), j.s.Nodes[i].Desc))
		}
		f.Measured = fmt.Sprintf("%d nodes have the node GUID %v: %s", len(list), g, strings.Join(words, "; "))
		f.Next = "give one of them a GUID of its own (its firmware was copied from the other's), or take it " +
			"out: managers mistake them for one"
		s.add(f)
	}
	for _, g := range portOrder {
		list := byPort[g]
		same := true
		for _, h := range list {
			same = same && h.node == list[0].node
		}
		if len(list) < 2 || same && j.duplicateGUID[list[0].node] {
			continue // the node's own duplicate, said above
		}
		f := Finding{Severity: Fail, Kind: "duplicate-port-guid", Threshold: "one port for each GUID"}
		var words []string
		for _, h := range list {
			f.Objects = append(f.Objects, j.s.PortName(h.ref))
			words = append(words, j.where(h.ref))
		}
		f.Measured = fmt.Sprintf("%d ports have the port GUID %v: %s", len(list), g, strings.Join(words, "; "))
		f.Next = "give one of them a GUID of its own, or take it out: addresses, partitions and GIDs go by port GUID"
		s.add(f)
	}
	j.names(s)
}

// names reports nodes of different machines that have one description: whoever goes by names gets the wrong one.
func (j *judgement) names(s *Section) {
	by := map[string][]int{}
	var order []string
	for i, n := range j.s.Nodes {
		if !topo.NamesNode(n.Desc) {
			continue // the chip's, before a driver gave it one
		}
		if by[n.Desc] == nil {
			order = append(order, n.Desc)
		}
		by[n.Desc] = append(by[n.Desc], i)
	}
	for _, desc := range order {
		list := by[desc]
		first := j.s.Nodes[list[0]].Info
		apart := false
		for _, i := range list[1:] {
			x := j.s.Nodes[i].Info
			apart = apart || x.SystemImageGUID != first.SystemImageGUID && x.NodeGUID != first.NodeGUID
		}
		if !apart {
			continue
		}
		f := Finding{Severity: Warn, Kind: "duplicate-name", Threshold: "one machine for each name"}
		var words []string
		for _, i := range list {
			f.Objects = append(f.Objects, j.s.Nodes[i].Name)
			words = append(words, fmt.Sprintf("%v at %s", j.s.Nodes[i].Info.NodeGUID, j.whereNode(i)))
		}
		f.Measured = fmt.Sprintf("%d nodes are called %q: %s", len(list), desc, few(words))
		f.Next = "set the host name of the wrong one and restart its driver (rdma-ndd, openibd), or name it by its " +
			"GUID in a node-name-map"
		s.add(f)
	}
}

// lids reports addresses that are missing, wrong, or shared.
func (j *judgement) lids(s *Section) {
	type holder struct {
		ref  topo.PortRef
		base ib.LID
		lmc  uint8
	}
	owners := map[ib.LID][]holder{}
	ports := 0
	var order []ib.LID
	lmcs := map[uint8][]topo.PortRef{}
	var none []topo.PortRef
	j.s.EndPorts(func(r topo.PortRef, p *survey.Port) {
		ports++
		if !p.Known {
			return
		}
		name := j.s.PortName(r)
		lid, lmc := p.Info.LID, p.Info.LMC
		if !lid.IsUnicast() {
			if r.Port != 0 && p.Info.PortState != ib.PortActive {
				return // no manager has been there: see links
			}
			none = append(none, r)
			return
		}
		if lid&(1<<lmc-1) != 0 || int(lid)+1<<lmc-1 > int(ib.LIDUnicastMax) {
			s.add(Finding{
				Severity: Fail, Kind: "wrong-lmc", Objects: []string{name},
				Measured:  fmt.Sprintf("%s has LID %d with LMC %d", j.where(r), lid, lmc),
				Threshold: fmt.Sprintf("a LID that is a multiple of %d", 1<<lmc),
				Next:      "let the subnet manager assign addresses anew (softib sm, or opensm -r)",
			})
		}
		if r.Port != 0 {
			lmcs[lmc] = append(lmcs[lmc], r)
		}
		for k := range 1 << lmc {
			l := lid + ib.LID(k)
			if owners[l] == nil {
				order = append(order, l)
			}
			owners[l] = append(owners[l], holder{r, lid, lmc})
		}
	})
	s.Looked = fmt.Sprintf("%s, %s", count(ports, "port", "ports"), count(len(owners), "LID", "LIDs"))
	j.noLIDs(s, none)
	slices.Sort(order)
	said := map[[2]topo.PortRef]bool{}
	for _, l := range order {
		list := owners[l]
		if len(list) < 2 || said[[2]topo.PortRef{list[0].ref, list[1].ref}] {
			continue
		}
		said[[2]topo.PortRef{list[0].ref, list[1].ref}] = true
		f := Finding{Severity: Fail, Kind: "duplicate-lid", Threshold: "one port for each LID"}
		var words []string
		for _, h := range list {
			f.Objects = append(f.Objects, j.s.PortName(h.ref))
			words = append(words, j.where(h.ref))
		}
		f.Measured = fmt.Sprintf("LID %d belongs to %d ports: %s", l, len(list), strings.Join(words, "; "))
		f.Next = "see whether two managers give addresses (managers); then let one of them sweep anew, and " +
			"it gives one port another LID"
		s.add(f)
	}
	j.mixedLMC(s, lmcs)
}

// noLIDs reports ports without an address, as one finding if there are many.
func (j *judgement) noLIDs(s *Section, refs []topo.PortRef) {
	f := Finding{Severity: Fail, Kind: "no-lid", Threshold: fmt.Sprintf("1 to %d", ib.LIDUnicastMax),
		Next: "see that a subnet manager runs, and what its log says"}
	if len(refs) > namesShown {
		f.Objects, f.Measured = j.some(refs, "have no LID")
		s.add(f)
		return
	}
	for _, r := range refs {
		g := f
		g.Objects, g.Measured = []string{j.s.PortName(r)},
			fmt.Sprintf("%s has LID %d", j.where(r), j.s.Port(r).Info.LID)
		s.add(g)
	}
}

// mixedLMC reports adapters whose ports have another number of addresses than most.
func (j *judgement) mixedLMC(s *Section, lmcs map[uint8][]topo.PortRef) {
	most, best := uint8(0), 0
	for l := range uint8(8) {
		if len(lmcs[l]) > best {
			most, best = l, len(lmcs[l])
		}
	}
	for l := range uint8(8) {
		if l == most || len(lmcs[l]) == 0 {
			continue
		}
		f := Finding{Severity: Warn, Kind: "wrong-lmc",
			Threshold: fmt.Sprintf("LMC %d, which %s have", most, count(best, "port", "ports"))}
		f.Objects, f.Measured = j.some(lmcs[l], "have LMC %d", l)
		f.Next = "see the manager's configuration; if the difference is meant, nothing is to be done"
		s.add(f)
	}
}

// namesShown is how many of many names a finding writes out.
const namesShown = 8

// some names a few of many ports and says what they have in common.
func (j *judgement) some(refs []topo.PortRef, format string, v ...any) (objects []string, text string) {
	for _, r := range refs {
		objects = append(objects, j.s.PortName(r))
	}
	return objects, few(objects) + " " + fmt.Sprintf(format, v...)
}

// few joins names, not too many of them.
func few(names []string) string {
	if len(names) <= namesShown {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:namesShown], ", "), len(names)-namesShown)
}

// versions reports devices of one kind whose revisions differ, and programs with another library than the fabric's.
func (j *judgement) versions(s *Section) {
	type kind struct {
		vendor uint32
		device uint16
		typ    ib.NodeType
	}
	type build struct {
		rev         uint32
		base, class uint8
	}
	byKind := map[kind]map[build][]string{}
	var kinds []kind
	for _, n := range j.s.Nodes {
		k := kind{n.Info.VendorID, n.Info.DeviceID, n.Info.NodeType}
		if byKind[k] == nil {
			byKind[k] = map[build][]string{}
			kinds = append(kinds, k)
		}
		b := build{n.Info.Revision, n.Info.BaseVersion, n.Info.ClassVersion}
		byKind[k][b] = append(byKind[k][b], n.Name)
	}
	s.Looked = count(len(kinds), "kind of device", "kinds of device")
	if j.o.Programs != nil {
		s.Looked += ", " + count(len(j.o.Programs), "program", "programs")
	}
	for _, k := range kinds {
		builds := byKind[k]
		if len(builds) < 2 {
			continue
		}
		var list []build
		for b := range builds {
			list = append(list, b)
		}
		slices.SortFunc(list, func(a, b build) int {
			if d := len(builds[b]) - len(builds[a]); d != 0 {
				return d
			}
			return strings.Compare(fmt.Sprintf("%08x", b.rev), fmt.Sprintf("%08x", a.rev))
		})
		for _, b := range list[1:] {
			s.add(Finding{
				Severity: Warn, Kind: "revision", Objects: builds[b],
				Measured: fmt.Sprintf("%v of vendor 0x%06x, device 0x%04x: %s: revision 0x%x, management version %d.%d",
					k.typ, k.vendor, k.device, few(builds[b]), b.rev, b.base, b.class),
				Threshold: fmt.Sprintf("revision 0x%x, management version %d.%d, as %s of the same device have",
					list[0].rev, list[0].base, list[0].class, count(len(builds[list[0]]), "node", "nodes")),
				Next: "bring the firmware of these nodes to the version of the others",
			})
		}
	}
	for _, p := range j.o.Programs {
		if j.o.Version == "" || p.Version == j.o.Version || p.Version == "" {
			continue
		}
		s.add(Finding{
			Severity: Warn, Kind: "library-version", Objects: []string{p.Host, fmt.Sprintf("%s[%d]", p.Name, p.PID)},
			Measured:  fmt.Sprintf("%s (pid %d) on %s has the library of softib %s", p.Name, p.PID, p.Host, p.Version),
			Threshold: "softib " + j.o.Version + ", the fabric's",
			Next:      "start the program anew with softib exec of version " + j.o.Version,
		})
	}
}
