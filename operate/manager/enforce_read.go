package manager

import (
	"context"
	"fmt"
	"slices"

	"softib/node/madrpc"
	"softib/proto/ib"
	"softib/proto/mad"
	"softib/proto/topo"
	"softib/subnet/sm"

	"softib/operate/manager/tenant"
)

// wantKeys is what a port's table has to hold, and must not, after a change.
type wantKeys struct {
	ref    topo.PortRef
	lid    ib.LID
	blocks int
	// has are keys that must be there as they are; not are partitions that must not, in either membership.
	has, not []ib.PKey
	// base means that the membership does not matter: the table is a switch's, in front of a member.
	base bool
	// in and out are what the switch has to check.
	in, out bool
	mkey    uint64
}

// tablesWanted lists the tables that a change is about: of each port, and of the switch port in front of it.
func (e *Enforcer) tablesWanted(sc scene, c concern, want *tenant.State) (list []wantKeys) {
	// Where no member of any tenant is there, there is nothing for switches to check.
	checked := sc.side != sm.EnforceOff && slices.ContainsFunc(want.Tenants, func(t tenant.Tenant) bool {
		return slices.ContainsFunc(t.Members, func(m tenant.Member) bool {
			_,
				there := sc.sub.ByPortGUID(m.GUID)
			return there
		})
	})
	for _, g := range c.sorted() {
		at, ok := sc.sub.ByPortGUID(g)
		ref, known := e.port[g]
		if !ok || !known || sc.sub.Nodes[at.Node].IsSwitch() {
			continue // it is not there: it gets its keys before its link is Active
		}
		n := sc.sub.Nodes[at.Node]
		p := &n.Ports[at.Port]
		w := wantKeys{ref: ref, lid: p.Info.LID, blocks: mad.PKeyBlocks(int(n.Info.PartitionCap)), mkey: sc.keys.Of(g)}
		w.has, w.not = keysOf(g, c.ports[g], want)
		if member := slices.ContainsFunc(want.Tenants,
			func(t tenant.Tenant) bool { _, in := t.Member(g); return in }); member && g != sc.self {
			w.has = append(w.has, ib.PKeyBase)
		}
		list = append(list, w)
		if !checked || !p.Up() || !sc.sub.Nodes[p.Peer].IsSwitch() {
			continue
		}
		sw := sc.sub.Nodes[p.Peer]
		front := w
		front.in = sw.Switch.InboundEnforcementCap && sc.side != sm.EnforceOut
		front.out = sw.Switch.OutboundEnforcementCap && sc.side != sm.EnforceIn
		if sw.Switch.PartitionEnforcementCap == 0 || !front.in && !front.out {
			continue
		}
		front.ref, front.lid, front.blocks = topo.PortRef{Node: e.port[sw.Ports[0].GUID].Node, Port: p.PeerPort},
			sw.Ports[0].Info.LID, mad.PKeyBlocks(int(sw.Switch.PartitionEnforcementCap))
		front.base, front.mkey = true, sc.keys.Of(sw.Ports[0].GUID)
		list = append(list, front)
	}
	return list
}

// keysOf splits the partitions that a change is about into those that a port is in then, with its membership, and those
// that it is not in.
func keysOf(g ib.GUID, about []ib.PKey, want *tenant.State) (has, not []ib.PKey) {
	for _, key := range about {
		if m, in := want.MemberOf(key, g); in {
			if m.Full {
				key |= ib.PKeyFull
			}
			has = append(has, key)
			continue
		}
		not = append(not, key)
	}
	return has, not
}

// reader is who asks nodes what they hold, from the manager's port.
func (e *Enforcer) reader(self ib.GUID) (*Asker, madrpc.AgentID, error) {
	s, err := e.f.MgmtSession(e.port[self])
	if err != nil {
		return nil, 0, fmt.Errorf("manager: %w", err)
	}
	id, err := s.Register(madrpc.Registration{Class: mad.ClassSMLID, ClassVersion: 1, Name: "tenants"})
	if err != nil {
		s.Close()
		return nil, 0, fmt.Errorf("manager: %w", err)
	}
	return &Asker{s: s}, id, nil
}

// readBack asks the nodes what they hold, and says what is not as it should be.
func (e *Enforcer) readBack(ctx context.Context, sc scene, c concern, want *tenant.State) ([]tenant.Refusal, error) {
	tables := e.tablesWanted(sc, c, want)
	if len(tables) == 0 {
		return nil, nil
	}
	a, id, err := e.reader(sc.self)
	if err != nil {
		return nil, err
	}
	defer a.Close()
	var list []Question
	get := func(w *wantKeys, attr mad.AttrID, mod uint32) error {
		b, err := (&mad.SMP{Method: mad.MethodGet, Attr: attr, Modifier: mod, MKey: w.mkey}).Append(nil)
		list = append(list, Question{Env: mad.Envelope{LID: w.lid, QPN: ib.QPNSMI}, Data: b})
		return err
	}
	for i := range tables {
		w := &tables[i]
		for block := range w.blocks {
			mod := uint32(block)
			if w.base {
				mod = mad.PKeyModifier(w.ref.Port, block)
			}
			if err := get(w, mad.AttrPKeyTable, mod); err != nil {
				return nil, err
			}
		}
		if w.base {
			if err := get(w, mad.AttrPortInfo, uint32(w.ref.Port)); err != nil {
				return nil, err
			}
		}
	}
	tenant.ProgressOf(ctx).At("asking ports for their partitions", 0, len(list))
	answers, err := a.ask(ctx, id, list)
	if err != nil {
		return nil, fmt.Errorf("manager: %w", err)
	}
	var out []tenant.Refusal
	for i := range tables {
		w := &tables[i]
		n := w.blocks
		if w.base {
			n++
		}
		if why := w.judge(answers[:n]); why != "" {
			out = append(out, tenant.Refusal{Node: e.g.PortName(w.ref), Why: why})
		}
		answers = answers[n:]
	}
	return out, nil
}

// judge says what is wrong with a table, given what its node has answered.
func (w *wantKeys) judge(answers [][]byte) string {
	var keys []ib.PKey
	for i, b := range answers {
		if len(b) < mad.Size {
			return "does not answer when it is asked for its partitions"
		}
		if s := mad.View(b).Status(); s != mad.StatusOK {
			return fmt.Sprintf("answers the question for its partitions with %v", s)
		}
		data := b[mad.SMPDataOff:][:mad.SMPDataLen]
		if i == w.blocks {
			var pi mad.PortInfo
			if _, err := pi.Parse(data); err != nil {
				return err.Error()
			}
			if w.in && !pi.PartitionEnforcementInbound || w.out && !pi.PartitionEnforcementOutbound {
				return "does not check partitions"
			}
			continue
		}
		var t mad.PKeyTable
		if _, err := t.Parse(data); err != nil {
			return err.Error()
		}
		keys = append(keys, t[:]...)
	}
	for _, k := range w.has {
		ok := slices.Contains(keys, k)
		if w.base {
			ok = slices.ContainsFunc(keys, func(o ib.PKey) bool { return o.Base() == k.Base() })
		} else if other := k ^ ib.PKeyFull; ok && k != ib.PKeyDefault && slices.Contains(keys, other) {
			return fmt.Sprintf("holds %v beside %v: want the latter alone", other, k)
		}
		if !ok {
			return fmt.Sprintf("does not hold %v", k)
		}
	}
	for _, k := range w.not {
		if slices.ContainsFunc(keys, func(o ib.PKey) bool { return o.Base() == k.Base() }) {
			return fmt.Sprintf("still holds %v", k.Base())
		}
	}
	return ""
}
