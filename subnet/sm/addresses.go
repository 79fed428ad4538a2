package sm

import (
	"fmt"
	"maps"
	"slices"

	"softib/proto/ib"
	"softib/proto/mad"
	"softib/subnet"
)

// lidBook knows which addresses belong to whom. An address that was given once stays with its port, also while
// the port is away, so that nothing that knew it goes astray.
type lidBook struct {
	of    map[ib.GUID]ib.LID
	taken []ib.GUID // by LID
	next  ib.LID
	full  [8]bool // by LMC: nothing was left when somebody last asked
	dirty bool
}

// newLIDBook makes a book of what is remembered. What cannot be, or belongs to another already, comes back.
func newLIDBook(memory map[ib.GUID]ib.LID) (b *lidBook, refused []ib.GUID) {
	b = &lidBook{of: make(map[ib.GUID]ib.LID, len(memory)), next: 1}
	guids := make([]ib.GUID, 0, len(memory))
	for g := range memory { // tidy: order-free
		guids = append(guids, g)
	}
	slices.Sort(guids)
	for _, g := range guids {
		if !b.claim(g, memory[g], 0) {
			refused = append(refused, g)
		}
	}
	return b, refused
}

// owner is who has an address, 0 if nobody.
func (b *lidBook) owner(l ib.LID) ib.GUID {
	if int(l) >= len(b.taken) {
		return 0
	}
	return b.taken[l]
}

// fits reports whether a range of addresses is legal, aligned, and free or the port's own.
func (b *lidBook) fits(g ib.GUID, l ib.LID, lmc uint8) bool {
	n := ib.LID(1) << lmc
	if !l.IsUnicast() || l&(n-1) != 0 || l+n-1 > ib.LIDUnicastMax || l+n-1 < l {
		return false
	}
	for k := range n {
		if o := b.owner(l + k); o != 0 && o != g {
			return false
		}
	}
	return true
}

// claim gives a port its addresses, if they fit.
func (b *lidBook) claim(g ib.GUID, l ib.LID, lmc uint8) bool {
	if !b.fits(g, l, lmc) {
		return false
	}
	n := ib.LID(1) << lmc
	for int(l+n) > len(b.taken) {
		b.taken = append(b.taken, make([]ib.GUID, max(1024, len(b.taken)))...)
	}
	for k := range n {
		b.taken[l+k] = g
	}
	if b.of[g] != l {
		b.of[g], b.dirty = l, true
	}
	return true
}

// release frees what a port has.
func (b *lidBook) release(g ib.GUID) {
	l, ok := b.of[g]
	if !ok {
		return
	}
	for ; int(l) < len(b.taken) && b.taken[l] == g; l++ {
		b.taken[l] = 0
	}
	delete(b.of, g)
	b.dirty = true
	b.full = [8]bool{}
}

// give finds new addresses.
func (b *lidBook) give(g ib.GUID, lmc uint8) (ib.LID, bool) {
	n := ib.LID(1) << lmc
	if b.full[lmc] {
		return 0, false
	}
	for l := (b.next + n - 1) &^ (n - 1); l <= ib.LIDUnicastMax-n+1 && l != 0; l += n {
		if b.claim(g, l, lmc) {
			b.next = l + n
			return l, true
		}
	}
	for l := n; l <= ib.LIDUnicastMax-n+1; l += n { // gaps that were left
		if b.claim(g, l, lmc) {
			return l, true
		}
	}
	b.full[lmc] = true
	return 0, false
}

// TakeMemory is what should be found again after a restart, if it has changed since the last call.
func (m *Manager) TakeMemory() (Memory, bool) {
	if !m.lids.dirty && !m.registered && !m.keys.dirty {
		return Memory{}, false
	}
	m.lids.dirty, m.registered, m.keys.dirty = false, false, false
	return m.memory(), true
}

// memory is what the manager knows that should outlive it.
func (m *Manager) memory() Memory {
	lids := make(map[ib.GUID]ib.LID, len(m.lids.of))
	for g, l := range m.lids.of { // tidy: order-free
		lids[g] = l
	}
	return Memory{LIDs: lids, MKeys: m.keys.memory(), Neighbors: maps.Clone(m.keys.neighbors),
		Admin: m.admin.Export(m.now)}
}

// lmcOf is the LMC of an end port: a switch's own port has one only if it is an enhanced one.
func (s *sweep) lmcOf(r subnet.Ref) uint8 {
	n := s.nodes[r.Node]
	if n.IsSwitch() && !n.Switch.EnhancedPortZero {
		return 0
	}
	if lmc, ok := s.m.cfg.LMCs[n.Ports[r.Port].GUID]; ok {
		return lmc
	}
	return s.m.cfg.LMC
}

// eachEnd visits the end ports: those of adapters in the order of the switch ports that they hang on, so that
// neighbours get neighbouring addresses, then the switches.
func (s *sweep) eachEnd(f func(subnet.Ref)) {
	if n := s.nodes[s.self.Node]; !n.IsSwitch() &&
		(!n.Ports[s.self.Port].Up() || !s.nodes[n.Ports[s.self.Port].Peer].IsSwitch()) {
		f(s.self)
		if x := &n.Ports[s.self.Port]; x.Up() {
			f(subnet.Ref{Node: x.Peer, Port: x.PeerPort})
		}
	}
	for _, i := range s.switches {
		n := s.nodes[i]
		for p := 1; p < len(n.Ports); p++ {
			if x := &n.Ports[p]; x.Up() && !s.nodes[x.Peer].IsSwitch() {
				f(subnet.Ref{Node: x.Peer, Port: x.PeerPort})
			}
		}
	}
	for _, i := range s.switches {
		f(subnet.Ref{Node: i, Port: 0})
	}
}

// beginAddresses starts the writing of addresses.
func (s *sweep) beginAddresses() {
	s.planAddresses()
	s.cursor = cursor{}
	s.eachEnd(func(r subnet.Ref) { s.cursor.ends = append(s.cursor.ends, r) })
}

// planAddresses decides all addresses: what memory says, else what the port has, else new ones.
func (s *sweep) planAddresses() {
	b := s.m.lids
	var homeless []subnet.Ref
	s.eachEnd(func(r subnet.Ref) {
		n := s.nodes[r.Node]
		p := &n.Ports[r.Port]
		lmc := s.lmcOf(r)
		if l, ok := b.of[p.GUID]; ok && b.claim(p.GUID, l, lmc) {
			return
		}
		homeless = append(homeless, r)
	})
	for _, r := range homeless {
		// One that has not told its address may have one, and another given to it could be that of a node that is not
		// seen just now.
		if p := &s.nodes[r.Node].Ports[r.Port]; !p.Info.MTUCap.IsValid() &&
			s.setback("a port has not told its address") {
			return
		}
	}
	var left []subnet.Ref
	for _, r := range homeless {
		n := s.nodes[r.Node]
		p := &n.Ports[r.Port]
		b.release(p.GUID)
		if !b.claim(p.GUID, p.Info.LID, s.lmcOf(r)) {
			left = append(left, r)
		}
	}
	for _, r := range left {
		n := s.nodes[r.Node]
		if _, ok := b.give(n.Ports[r.Port].GUID, s.lmcOf(r)); !ok {
			s.problem("%s port %d: no address is left: all %d unicast LIDs are taken; lower the LMC or remove "+
				"old entries from the file of addresses", nodeName(n), r.Port, int(ib.LIDUnicastMax))
		}
	}
}

// nextAddress writes the PortInfo of the next end port that is not as it should be.
func (s *sweep) nextAddress(r *request) bool {
	for s.cursor.at < len(s.cursor.ends) {
		ref := s.cursor.ends[s.cursor.at]
		s.cursor.at++
		n := s.nodes[ref.Node]
		want := s.wantedEnd(ref)
		if want.LID == 0 {
			continue
		}
		// Clients of a port that had another manager have subscribed and joined with that one.
		have := n.Ports[ref.Port].Info
		again := have.LID != 0 && want.CapabilityMask&mad.CapClientReregistration != 0 && s.m.takingOver()
		if sameConfig(&want, &have) && !again {
			continue
		}
		want.ClientReregister = again
		s.writePort(r, ref, &want)
		return true
	}
	return false
}

// wantedEnd is the PortInfo that an end port should have.
func (s *sweep) wantedEnd(ref subnet.Ref) mad.PortInfo {
	n := s.nodes[ref.Node]
	p := &n.Ports[ref.Port]
	c := &s.m.cfg
	pi := p.Info
	pi.PortState, pi.PortPhysicalState = ib.PortNoChange, ib.PhysNoChange
	pi.LID, pi.LMC = s.m.lids.of[p.GUID], s.lmcOf(ref)
	pi.MasterSMLID, pi.MasterSMSL = s.m.lids.of[s.nodes[s.self.Node].Ports[s.self.Port].GUID], 0
	pi.GidPrefix = c.Prefix
	pi.SubnetTimeOut = c.SubnetTimeout
	s.guard(ref, &pi)
	if p.Up() {
		s.wantedLink(ref, &pi)
	}
	return pi
}

// wantedLink sets what both ends of a link have to agree on.
func (s *sweep) wantedLink(ref subnet.Ref, pi *mad.PortInfo) {
	n := s.nodes[ref.Node]
	p := &n.Ports[ref.Port]
	far := &s.nodes[p.Peer].Ports[p.PeerPort].Info
	s.wantedLimit(ref, pi)
	if m := min(p.Info.MTUCap, far.MTUCap); m.IsValid() {
		pi.NeighborMTU = m
	}
	if v := min(p.Info.VLCap, far.VLCap); v.IsValid() {
		if limit, ok := mad.VLCountFor(s.m.cfg.MaxVLs); ok {
			v = min(v, limit)
		}
		pi.OperationalVLs = v
	}
	if n.IsSwitch() {
		pi.HOQLife = s.m.cfg.HOQLife
		if !s.nodes[p.Peer].IsSwitch() {
			pi.HOQLife = s.m.cfg.LeafHOQLife
		}
	}
}

// sameConfig reports whether writing want would change nothing. Counters, state and what nobody can write do
// not count.
func sameConfig(want, have *mad.PortInfo) bool {
	a := *have
	a.PortState, a.PortPhysicalState = want.PortState, want.PortPhysicalState
	a.MKeyViolations, a.PKeyViolations, a.QKeyViolations = want.MKeyViolations, want.PKeyViolations, want.QKeyViolations
	a.ClientReregister = want.ClientReregister
	return a == *want
}

// writePort makes a Set(PortInfo).
func (s *sweep) writePort(r *request, ref subnet.Ref, pi *mad.PortInfo) {
	*r = request{what: tell, set: true, node: ref.Node, port: ref.Port, attr: mad.AttrPortInfo, mod: uint32(ref.Port),
		extra: int32(pi.PortState)}
	s.guard(ref, pi)
	pi.Append(s.smp(r))
}

// portReply takes what a port has become.
func (s *sweep) portReply(r *request, v mad.View) {
	ref := subnet.Ref{Node: r.node, Port: r.port}
	n := s.edit(r.node)
	p := &n.Ports[r.port]
	lid := p.Info.LID // what it should be
	if n.EndPort(r.port) == r.port {
		lid = s.m.lids.of[p.GUID]
	}
	link := failingPort{n.Info.NodeGUID, r.port}
	want := ib.PortState(r.extra)
	if !s.answered(r, v) {
		s.refuse(ref, "%s", refusal(r, v))
		if lid != p.Info.LID {
			p.Info.LID = 0 // the address that it had may be another's now
		}
		if want != ib.PortNoChange {
			s.m.noteFailing(link, "a link did not become active")
		}
		return
	}
	hadLink, mlnx := p.Info.PortState.HasLink(), p.Info.Mlnx
	if _, err := p.Info.Parse(v[mad.SMPDataOff:][:mad.SMPDataLen]); err != nil {
		return
	}
	if r.port != 0 && !hadLink && p.Info.PortState.HasLink() {
		s.m.want(s.m.now+s.m.cfg.Timeout, fmt.Sprintf("port %d of %s has got a link meanwhile", r.port, s.name(r.node)))
	}
	p.Info.Mlnx, p.Info.ClientReregister = mlnx, false
	s.gaveKey(ref, &p.Info)
	s.enforces(ref)
	if n.EndPort(r.port) == r.port && (p.Info.LID != lid || p.Info.LMC != s.lmcOf(ref)) {
		s.failed[r.node]++
		s.problem("%s port %d was given LID %v with LMC %d and says that it has %v with %d", s.name(r.node), r.port,
			lid, s.lmcOf(ref), p.Info.LID, p.Info.LMC)
		p.Info.LID, p.Info.LMC = lid, s.lmcOf(ref)
	}
	switch {
	case want == ib.PortNoChange:
	case p.Info.PortState < want:
		s.failed[r.node]++
		s.problem("%s port %d was told to be %v and says that it is %v", s.name(r.node), r.port, want, p.Info.PortState)
		s.m.noteFailing(link, "a link did not become active")
	case want == ib.PortActive:
		s.m.noteWorking(link, "a link has become active at last")
	}
}

// cursor is how far a phase has got.
type cursor struct {
	ends  []subnet.Ref
	at    int
	node  int
	port  int
	block int
}
