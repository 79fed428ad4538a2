package manager

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"softib/proto/ib"
	"softib/proto/mad"
	"softib/subnet"

	"softib/operate/manager/tenant"
)

// What ports have to hold is what the subnet manager noted of them when it told them: its subnet has the only copy of
// that.

// laneRead is one question for a part of a port's tables of lanes.
type laneRead struct {
	ref  subnet.Ref
	attr mad.AttrID
	in   ib.PortNum // the port of entry that a mapping is of
	high int        // which of the two arbitration tables, and from which entry on
	from int
}

// lanesReadMax is up to how many questions all tables are read whole. A switch has a mapping for each pair of its
// ports, which in a large fabric are millions; beyond this many, adapters are read whole and a switch's ports take
// turns: each is asked for one part of its tables, a mapping or a block of arbitration, and for its mapping by one port
// of entry. So nothing is missed that a node does not do at all; what a switch does at most of its ports and not at one
// may be.
const lanesReadMax = 1 << 15

// lanesReadBatch is how many questions are made at a time.
const lanesReadBatch = 4096

// lanesBack asks ports for their mappings and arbitration, and says which do not have what they were told. They are
// those whose tables the change has touched, or all.
func (e *Enforcer) lanesBack(ctx context.Context, sc scene, all bool) (out []tenant.Refusal, err error) {
	reads := laneReads(sc, all)
	if len(reads) == 0 {
		return nil, nil
	}
	a, id, err := e.reader(sc.self)
	if err != nil {
		return nil, err
	}
	defer a.Close()
	list := make([]Question, 0, min(len(reads), lanesReadBatch))
	tenant.ProgressOf(ctx).At("asking ports for their lanes", 0, len(reads))
	wrong := subnet.Ref{Node: subnet.None} // a port is named once
	for batch := range slices.Chunk(reads, lanesReadBatch) {
		list = list[:0]
		for i := range batch {
			q, err := batch[i].question(sc)
			if err != nil {
				return nil, err
			}
			list = append(list, q)
		}
		answers, err := a.ask(ctx, id, list)
		if err != nil {
			return nil, fmt.Errorf("manager: %w", err)
		}
		for i := range batch {
			r := &batch[i]
			if r.ref == wrong {
				continue
			}
			if why := r.judge(sc.sub, answers[i]); why != "" {
				wrong = r.ref
				out = append(out, tenant.Refusal{Node: e.nameOf(sc.sub.Nodes[r.ref.Node].Info.NodeGUID, r.ref.Port),
					Why: why})
			}
		}
	}
	return out, nil
}

// laneReads lists what to ask for.
func laneReads(sc scene, all bool) (list []laneRead) {
	ports := lanePorts(sc, all)
	for _, ref := range ports {
		if list = appendLanes(list, sc.sub, ref); len(list) > lanesReadMax {
			break
		}
	}
	if len(list) <= lanesReadMax {
		return list
	}
	list = list[:0]
	var parts []laneRead
	for _, ref := range ports {
		n := sc.sub.Nodes[ref.Node]
		if !n.IsSwitch() {
			list = appendLanes(list, sc.sub, ref)
			continue
		}
		parts = parts[:0]
		t := n.Ports[ref.Port].Tables
		if len(t.SLtoVL) > 0 {
			parts = append(parts, laneRead{ref: ref, attr: mad.AttrSLtoVL, in: entryFor(n, ref.Port)})
		}
		if parts = appendArbitration(parts, t, ref); len(parts) > 0 {
			list = append(list, parts[(int(ref.Node)+int(ref.Port))%len(parts)])
		}
	}
	return list
}

// lanePorts are the ports whose tables a change has touched, or all that have tables of lanes and are in use.
func lanePorts(sc scene, all bool) (ports []subnet.Ref) {
	for i, n := range sc.sub.Nodes {
		if !all && i < len(sc.before.Nodes) && sc.before.Nodes[i] == n {
			continue // nothing about it is different
		}
		first := 1
		if n.IsSwitch() && n.Switch.EnhancedPortZero {
			first = 0
		}
		for p := first; p < len(n.Ports); p++ {
			x := &n.Ports[p]
			if p > 0 && !x.Up() || x.Tables == nil || !all &&
				sameLanes(tablesBefore(sc.before, n, ib.PortNum(p)), x.Tables) {
				continue
			}
			ports = append(ports, subnet.Ref{Node: int32(i), Port: ib.PortNum(p)})
		}
	}
	return ports
}

// appendLanes lists all parts of a port's tables.
func appendLanes(list []laneRead, sub *subnet.Subnet, ref subnet.Ref) []laneRead {
	n := sub.Nodes[ref.Node]
	t := n.Ports[ref.Port].Tables
	for in := range t.SLtoVL {
		if in == 0 || n.Ports[in].Up() { // nothing comes in by the others, and nobody told them anything
			list = append(list, laneRead{ref: ref, attr: mad.AttrSLtoVL, in: ib.PortNum(in)})
		}
	}
	return appendArbitration(list, t, ref)
}

func appendArbitration(list []laneRead, t *subnet.PortTables, ref subnet.Ref) []laneRead {
	for high := range t.VLArb {
		for from := 0; from < len(t.VLArb[high]); from += mad.VLArbPerBlock {
			list = append(list, laneRead{ref: ref, attr: mad.AttrVLArb, high: high, from: from})
		}
	}
	return list
}

// tablesBefore are the tables that a node's port had in an earlier subnet; nil if it was not there.
func tablesBefore(before *subnet.Subnet, n *subnet.Node, p ib.PortNum) *subnet.PortTables {
	at, ok := before.ByPortGUID(n.Ports[n.EndPort(p)].GUID)
	if !ok {
		return nil
	}
	if n.IsSwitch() {
		at.Port = p
	}
	if was := before.Nodes[at.Node]; int(at.Port) < len(was.Ports) {
		return was.Ports[at.Port].Tables
	}
	return nil
}

// entryFor is the next port in use after one of a switch's: so each has its turn as the port that packets come in by.
func entryFor(n *subnet.Node, out ib.PortNum) ib.PortNum {
	for k := 1; k < len(n.Ports); k++ {
		if p := (int(out) + k) % len(n.Ports); p > 0 && n.Ports[p].Up() {
			return ib.PortNum(p)
		}
	}
	return 0
}

// sameLanes reports whether two ports' mappings and arbitration are alike. Most are one and the same.
func sameLanes(a, b *subnet.PortTables) bool {
	return a == b || a != nil && b != nil && sameList(a.SLtoVL, b.SLtoVL) && sameList(a.VLArb[0], b.VLArb[0]) &&
		sameList(a.VLArb[1], b.VLArb[1])
}

func sameList[T comparable](a, b []T) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0] || slices.Equal(a, b))
}

func (r *laneRead) question(sc scene) (Question, error) {
	n := sc.sub.Nodes[r.ref.Node]
	end := &n.Ports[n.EndPort(r.ref.Port)]
	names := ib.PortNum(0) // an adapter's port is the one that is asked
	if n.IsSwitch() {
		names = r.ref.Port
	}
	mod := mad.SLtoVLModifier(r.in, names)
	if r.attr == mad.AttrVLArb {
		mod = mad.VLArbModifier(names, r.block())
	}
	b, err := (&mad.SMP{Method: mad.MethodGet, Attr: r.attr, Modifier: mod, MKey: sc.keys.Of(end.GUID)}).Append(nil)
	return Question{Env: mad.Envelope{LID: end.Info.LID, QPN: ib.QPNSMI}, Data: b}, err
}

func (r *laneRead) block() mad.VLArbBlock {
	return mad.VLArbLow0 + mad.VLArbBlock(2*r.high+r.from/mad.VLArbPerBlock)
}

// judge says what is wrong with what a port has answered.
func (r *laneRead) judge(sub *subnet.Subnet, b []byte) string {
	what := mad.AttrName(mad.ClassSMLID, r.attr)
	if len(b) < mad.Size {
		return "does not answer when it is asked for its " + what
	}
	if s := mad.View(b).Status(); s != mad.StatusOK {
		return fmt.Sprintf("answers the question for its %s with %v", what, s)
	}
	n := sub.Nodes[r.ref.Node]
	t := n.Ports[r.ref.Port].Tables
	data := b[mad.SMPDataOff:][:mad.SMPDataLen]
	if r.attr == mad.AttrSLtoVL {
		var has mad.SLtoVL
		if _, err := has.Parse(data); err != nil {
			return err.Error()
		}
		if want := &t.SLtoVL[r.in]; has != *want {
			of := "its packets"
			if n.IsSwitch() {
				of = fmt.Sprintf("packets from port %d", r.in)
			}
			return fmt.Sprintf("puts %s of service levels 0 to 15 on lanes %s: want %s", of, mappingText(&has),
				mappingText(want))
		}
		return ""
	}
	var has mad.VLArb
	if _, err := has.Parse(data); err != nil {
		return err.Error()
	}
	want := t.VLArb[r.high][r.from:]
	want = want[:min(len(want), len(has))]
	if slices.EqualFunc(want, has[:len(want)], func(a, b mad.VLArbEntry) bool {
		return a == b || a.Weight == 0 &&
			b.Weight == 0
	}) {
		return ""
	}
	return fmt.Sprintf("gives lanes in its table %v the weights %s: want %s", r.block(), weightsText(has[:len(want)]),
		weightsText(want))
}

// mappingText is the lanes of all service levels, in order.
func mappingText(t *mad.SLtoVL) string {
	return strings.Trim(fmt.Sprint(t[:]), "[]")
}

// weightsText is the entries that have a weight, as opensm.conf writes them: lane:weight.
func weightsText(list []mad.VLArbEntry) string {
	var words []string
	for _, e := range list {
		if e.Weight > 0 {
			words = append(words, fmt.Sprintf("%d:%d", e.VL, e.Weight))
		}
	}
	if words == nil {
		return "none"
	}
	return strings.Join(words, ",")
}
