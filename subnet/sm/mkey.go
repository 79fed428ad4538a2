package sm

import (
	"crypto/sha256"
	"encoding/binary"
	"slices"

	"softib/proto/ib"
	"softib/proto/mad"
	"softib/subnet"
	"softib/subnet/policy"
)

// keyring knows the M_Keys of ports (IBA 14.2.4). A port whose key is another than the configured one, because the key
// was changed, or because another manager gave it, is spoken to with its own until it has the new one.
type keyring struct {
	of    map[ib.GUID]uint64 // by port GUID, a switch's by its port 0
	dirty bool
	// wanted is what an operator has changed the guard to, from the next sweep on.
	wanted *MKeyPolicy
	ticket uint64 // of that change
	// made are the ports' own keys, of those that were asked for, made from the key from.
	made map[ib.GUID]uint64
	from uint64
	// neighbors is who is where, and who was.
	neighbors policy.Neighbors
	renewal   renewal
}

// MKeyPolicy is how nodes are kept from other managers: what Config has as MKey, MKeyPerPort, MKeyProtect and
// MKeyLease.
type MKeyPolicy struct {
	Key     uint64
	PerPort bool
	Protect uint8
	Lease   uint16
}

// KeyOf is the key that a port is to have.
func (c *Config) KeyOf(g ib.GUID) uint64 {
	switch {
	case !c.MKeyPerPort || c.MKey == 0:
		return c.MKey
	case c.Terms != 0:
		return mad.TermKey(c.Terms, g, c.Term)
	}
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], c.MKey)
	binary.BigEndian.PutUint64(b[8:], uint64(g))
	sum := sha256.Sum256(b[:])
	return max(binary.BigEndian.Uint64(sum[:]), 1) // 0 would be none
}

// keyOf is the same, worked out once for each port: every sweep asks for all of them.
func (m *Manager) keyOf(g ib.GUID) uint64 {
	if !m.cfg.MKeyPerPort {
		return m.cfg.MKey
	}
	k := &m.keys
	if k.made == nil || k.from != m.cfg.MKey {
		k.made, k.from = map[ib.GUID]uint64{}, m.cfg.MKey
	}
	key, ok := k.made[g]
	if !ok {
		key = m.cfg.KeyOf(g)
		k.made[g] = key
	}
	return key
}

// commonKey is the key to speak with to a port of which nothing is known; 0 where there is none for all.
func (c *Config) commonKey() uint64 {
	switch {
	case c.MKeyPerPort:
		return 0
	case c.MKey == 0:
		return c.termKey
	}
	return c.MKey
}

// keysTried bounds how many keys are tried at a port that does not answer.
const keysTried = 8

// newKeyring begins with what the manager before has found out, but for keys of its term: ports take this one's.
func newKeyring(c *Config) keyring {
	memory := c.Memory.MKeys
	k := keyring{of: make(map[ib.GUID]uint64, len(memory)), renewal: renewal{next: ib.Never}}
	for g, key := range memory { // tidy: order-free
		if _, old := mad.TermOf(c.Terms, g, key); key != 0 && (c.Terms == 0 || !old) {
			k.of[g] = key
		}
	}
	return k
}

// set notes the key that a port has; 0 if it has none.
func (k *keyring) set(g ib.GUID, key uint64) {
	switch old, had := k.of[g]; {
	case g == 0 || had && old == key || !had && key == 0:
	case key == 0:
		delete(k.of, g)
		k.dirty = true
	default:
		k.of[g], k.dirty = key, true
	}
}

// memory is a copy of what is known.
func (k *keyring) memory() map[ib.GUID]uint64 {
	out := make(map[ib.GUID]uint64, len(k.of))
	for g, key := range k.of { // tidy: order-free
		out[g] = key
	}
	return out
}

// mkey is the key to speak to a port with: its own, or where it has none the one that says our term.
func (m *Manager) mkey(g ib.GUID) uint64 {
	if k := m.MKey(g); k != 0 {
		return k
	}
	return m.cfg.termKey
}

// MKey is the key that a port has, by the GUID of the end port; 0 if it has none.
func (m *Manager) MKey(g ib.GUID) uint64 {
	if len(m.keys.of) > 0 {
		if k, ok := m.keys.of[g]; ok {
			return k
		}
	}
	return m.keyOf(g)
}

// mkeyAt is the key to speak to the port of an address with.
func (m *Manager) mkeyAt(l ib.LID) uint64 {
	if m.sub != nil {
		if r, ok := m.sub.ByLID(l); ok {
			return m.mkey(m.sub.Port(r).GUID)
		}
	}
	return m.cfg.commonKey()
}

// Keys are the keys of all ports, for those who read the nodes beside this manager; nil while there are none.
func (m *Manager) Keys() *subnet.Keys {
	if m.sub == nil || m.cfg.MKey == 0 && len(m.keys.of) == 0 {
		return nil
	}
	k := &subnet.Keys{ByGUID: map[ib.GUID]uint64{}, Subnet: m.sub}
	m.sub.EachEnd(func(_ subnet.Ref, p *subnet.Port) { k.ByGUID[p.GUID] = m.MKey(p.GUID) })
	return k
}

// SetMKeys replaces what keeps other managers from the nodes. Nodes get their keys one by one with the sweep that it
// asks for, each by a request with the key that it has. Force tells when ticket has taken force.
func (m *Manager) SetMKeys(now ib.Time, p MKeyPolicy) (ticket uint64) {
	m.now = max(m.now, now)
	m.keys.wanted, m.keys.ticket = &p, m.ticket()
	m.event(EventPolicy, "the M_Keys of all ports are to change; protection level %d, lease %d s", p.Protect, p.Lease)
	if m.regroup("M_Keys changed"); m.sub == nil {
		m.want(m.now, "M_Keys changed")
	}
	return m.keys.ticket
}

// SetTrusted replaces the ports at which other managers may run; nil is all.
func (m *Manager) SetTrusted(ports []ib.GUID) { m.cfg.Trusted = ports }

// SetSMKey replaces the key by which managers and trusted clients know each other.
func (m *Manager) SetSMKey(key uint64) {
	m.cfg.SMKey = key
	m.admin.SetSMKey(key)
}

// MKeyPolicy is what is wanted to keep other managers from the nodes.
func (m *Manager) MKeyPolicy() MKeyPolicy {
	if w := m.keys.wanted; w != nil {
		return *w
	}
	c := &m.cfg
	return MKeyPolicy{c.MKey, c.MKeyPerPort, c.MKeyProtect, c.MKeyLease}
}

// takeMKey makes a changed key the one to write. A sweep writes one key from its beginning to its end.
func (m *Manager) takeMKey() {
	w := m.keys.wanted
	if w == nil {
		return
	}
	m.keys.wanted = nil
	for _, n := range m.keyedNodes() {
		for p := range n.Ports {
			if x := &n.Ports[p]; n.EndPort(ib.PortNum(p)) == ib.PortNum(p) && x.GUID != 0 {
				if _, known := m.keys.of[x.GUID]; !known {
					m.keys.set(x.GUID, m.keyOf(x.GUID)) // what it holds until it is told otherwise
				}
			}
		}
	}
	c := &m.cfg
	c.MKey, c.MKeyPerPort, c.MKeyProtect, c.MKeyLease = w.Key, w.PerPort, w.Protect, w.Lease
	m.cfg.guardless()
	m.keys.renewal = renewal{next: ib.Never}
}

func (m *Manager) keyedNodes() []*subnet.Node {
	if m.sub == nil {
		return nil
	}
	return m.sub.Nodes
}

// guardless makes a configuration without a key one without protection: a level alone guards nothing.
func (c *Config) guardless() {
	if c.MKey == 0 {
		c.MKeyProtect, c.MKeyLease = 0, 0
	}
}

// guidOf is the GUID that a node's key is known by.
func (s *sweep) guidOf(node int32, port ib.PortNum) ib.GUID {
	n := s.nodes[node]
	return n.Ports[n.EndPort(port)].GUID
}

// mkeyFor is the key for a request to a known port. Probes say how many keys were tried before.
func (s *sweep) mkeyFor(r *request) uint64 {
	if r.what > askPort || r.extra == 0 {
		return s.m.mkey(s.guidOf(r.node, r.port))
	}
	k, _ := s.knownKey(s.guidOf(r.node, r.port), int(r.extra))
	return k
}

// knownKey is the n-th key to try at a port that is known. Where each has a key of its own it is that, or the one that
// the port had before: those of others would only take time.
func (s *sweep) knownKey(g ib.GUID, try int) (uint64, bool) {
	first := s.m.mkey(g)
	if !s.m.cfg.MKeyPerPort {
		return s.tryKey(first, try)
	}
	if try == 0 {
		return first, true
	}
	k := s.m.keyOf(g)
	return k, try == 1 && k != first
}

// neighborKey is the key for what is behind a port, at the n-th try. What was there before may be there still.
func (s *sweep) neighborKey(node int32, port ib.PortNum, try int) uint64 {
	k, _ := s.tryKey(s.neighborsOwn(node, port), try)
	return k
}

func (s *sweep) neighborsOwn(node int32, port ib.PortNum) uint64 {
	guid := s.nodes[node].Info.NodeGUID
	if s.prev != nil && len(s.m.keys.of) > 0 {
		if g, ok := s.prev.Behind(guid, port); ok {
			return s.m.mkey(g)
		}
	}
	if !s.m.cfg.MKeyPerPort {
		return s.m.cfg.commonKey()
	}
	if s.m.cfg.Plan != nil {
		if g, ok := s.m.cfg.Plan.Behind(guid, port); ok {
			return s.m.mkey(g)
		}
	}
	if far, ok := s.m.keys.neighbors[policy.CableEnd{GUID: s.guidOf(node, port), Port: port}]; ok {
		return s.m.mkey(far.GUID)
	}
	return 0
}

// noteNeighbors remembers who is where, if a manager that starts anew has to be told. What was behind a port that has
// no link now may come back.
func (m *Manager) noteNeighbors() {
	if !m.cfg.MKeyPerPort || m.cfg.Plan != nil {
		return
	}
	k := &m.keys
	if k.neighbors == nil {
		k.neighbors = policy.Neighbors{}
	}
	for _, n := range m.sub.Nodes {
		for p := 1; p < len(n.Ports); p++ {
			x := &n.Ports[p]
			if !x.Up() {
				continue
			}
			far := m.sub.Nodes[x.Peer]
			near := policy.CableEnd{GUID: n.Ports[n.EndPort(ib.PortNum(p))].GUID, Port: ib.PortNum(p)}
			end := policy.CableEnd{GUID: far.Ports[far.EndPort(x.PeerPort)].GUID, Port: x.PeerPort}
			if k.neighbors[near] != end {
				k.neighbors[near], k.dirty = end, true
			}
		}
	}
}

// tryKey is the n-th key to try: the one that a port should have, then others that are in use, the configured one
// first. False means that there are no more. What a port should have may change while it is tried; the others do not
// within a sweep.
func (s *sweep) tryKey(first uint64, try int) (uint64, bool) {
	if try == 0 {
		return first, true
	}
	if s.keysKnown == nil {
		s.keysKnown = []uint64{}
		for g, k := range s.m.keys.of { // tidy: order-free
			if k != s.m.cfg.commonKey() && !slices.Contains(s.keysKnown, k) && s.mayBe(g) {
				s.keysKnown = append(s.keysKnown, k)
			}
		}
		slices.Sort(s.keysKnown)
		s.keysKnown = s.keysKnown[:min(len(s.keysKnown), keysTried)]
		if k := s.m.cfg.commonKey(); k != 0 {
			s.keysKnown = slices.Insert(s.keysKnown, 0, k)
		}
	}
	if try > len(s.keysKnown) || len(s.keysKnown) == 1 && s.keysKnown[0] == first {
		return 0, false
	}
	return s.keysKnown[try-1], true
}

// tryAnother asks again with another key, if there is one left.
func (s *sweep) tryAnother(r *request) bool {
	more, next := false, int(r.extra)+1
	switch r.what {
	case askSelf:
		_, more = s.knownKey(s.m.guid, next)
	case askNeighbor:
		if s.m.cfg.MKeyPerPort && s.keysKnown == nil {
			s.locked = append(s.locked, subnet.Ref{Node: r.node, Port: r.port})
			return true
		}
		_, more = s.tryKey(s.neighborsOwn(r.node, r.port), next)
	case askDesc, askSwitch, askPort:
		_, more = s.knownKey(s.guidOf(r.node, r.port), next)
	}
	if !more {
		return false
	}
	s.push(probe{r.what, r.node, r.port, r.extra + 1})
	return true
}

// withoutKey is called for a probe that was not answered. It reports whether another key is tried, in which case the
// silence does not count.
func (s *sweep) withoutKey(r *request) bool {
	if !s.tryAnother(r) {
		return false
	}
	if s.failed[r.node]--; s.failed[r.node] <= 0 {
		delete(s.failed, r.node)
	}
	return true
}

// mayBe reports whether a port whose key is known may be the one that does not answer: where each has a key of its own,
// it is one that has not been found.
func (s *sweep) mayBe(g ib.GUID) bool { return !s.m.cfg.MKeyPerPort || !s.present[g] }

// unlock comes when discovery has seen what it can: where every port has a key of its own and a neighbour did not
// answer to that of who was there before, the keys of ports are tried that are missing. Whoever moved a cable has then
// moved one of those.
func (s *sweep) unlock() bool {
	if len(s.locked) == 0 {
		return false
	}
	s.present = map[ib.GUID]bool{}
	for _, n := range s.nodes {
		for p := range n.Ports {
			if n.EndPort(ib.PortNum(p)) == ib.PortNum(p) && (p == 0 || n.Ports[p].Up()) {
				s.present[n.Ports[p].GUID] = true
			}
		}
	}
	list := s.locked
	s.locked = nil
	for _, ref := range list {
		r := request{what: askNeighbor, node: ref.Node, port: ref.Port}
		if _, more := s.tryKey(s.neighborsOwn(ref.Node, ref.Port), 1); more {
			s.push(probe{askNeighbor, ref.Node, ref.Port, 1})
			continue
		}
		s.failed[ref.Node]++
		s.unanswered(&r, nil)
	}
	return true
}

// opened notes the key that made a port answer that had not answered with others.
func (s *sweep) opened(r *request, guid ib.GUID) {
	switch {
	case r.extra == 0:
	case s.m.cfg.MKeyPerPort:
		// One that has started anew opens to any key, so the one that did says nothing: it has its own, or none.
		s.m.keys.set(guid, s.m.keyOf(guid))
	case int(r.extra) <= len(s.keysKnown):
		s.m.keys.set(guid, s.keysKnown[r.extra-1])
	}
}

// sawKey takes what an end port's PortInfo says about its key. A key that is not shown is another than the one that was
// used; sawKey then asks with the next one, and reports whether it does.
func (s *sweep) sawKey(r *request, guid ib.GUID, pi *mad.PortInfo) (again bool) {
	switch {
	case pi.MKey != 0:
		s.m.keys.set(guid, pi.MKey)
	case pi.MKeyProtectBits == 0:
		s.m.keys.set(guid, 0)
	case s.tryAnother(r):
		return true
	default:
		if s.foreign == nil {
			s.foreign = map[ib.GUID]bool{}
		}
		s.foreign[guid] = true
	}
	return false
}

// guarded says that a request was not answered because of a key, where that is so.
func (s *sweep) guarded(r *request) bool {
	if len(s.foreign) == 0 || r.node < 0 || r.to.QPN == ib.QPNGSI {
		return false
	}
	guid := s.guidOf(r.node, r.port)
	if !s.foreign[guid] {
		return false
	}
	n := s.nodes[r.node]
	pi := &n.Ports[n.EndPort(r.port)].Info
	lease := "which never ends"
	if pi.MKeyLeasePeriod > 0 {
		lease = itoa(int(pi.MKeyLeasePeriod)) + " s long"
	}
	s.problem("%s port %d is guarded by an M_Key that this manager does not know (protection level %d, its "+
		"lease %s): give its key, or end the manager that gave it", s.name(r.node), r.port, pi.MKeyProtectBits, lease)
	return true
}

// guard puts the configured key into what is written to an end port.
func (s *sweep) guard(ref subnet.Ref, pi *mad.PortInfo) {
	if s.nodes[ref.Node].EndPort(ref.Port) == ref.Port {
		c := &s.m.cfg
		pi.MKey = s.m.keyOf(s.nodes[ref.Node].Ports[ref.Port].GUID)
		pi.MKeyProtectBits, pi.MKeyLeasePeriod = c.MKeyProtect, c.MKeyLease
	}
}

// gaveKey notes that an end port took what was written: it has the configured key now, whether it shows it or not.
func (s *sweep) gaveKey(ref subnet.Ref, pi *mad.PortInfo) {
	n := s.nodes[ref.Node]
	if n.EndPort(ref.Port) != ref.Port {
		return
	}
	guid := n.Ports[ref.Port].GUID
	pi.MKey = s.m.keyOf(guid)
	s.m.keys.set(guid, pi.MKey)
	delete(s.foreign, guid)
}

// renewal keeps leases of keys: a port whose owner is not heard for as long as the lease gives its key up when somebody
// else tries another (IBA 14.2.4). Any request with the right key is a sign of life.
type renewal struct {
	next   ib.Time
	active bool
	at     int
	open   int
	of     *subnet.Subnet
	ends   []subnet.Ref
}

// renewPhase marks requests that keep leases.
const renewPhase = 1<<32 - 2

// restRenewal sets the time of the next round: three to a lease.
func (m *Manager) restRenewal() {
	r := &m.keys.renewal
	r.active, r.next = false, ib.Never
	if m.cfg.MKey != 0 && m.cfg.MKeyLease > 0 && m.state == mad.SMMaster {
		r.next = m.now + ib.Time(m.cfg.MKeyLease)*ib.Second/3
	}
}

// startRenewal begins a round.
func (m *Manager) startRenewal() {
	r := &m.keys.renewal
	r.next = ib.Never
	if m.state != mad.SMMaster || m.sub == nil {
		m.restRenewal()
		return
	}
	if r.of != m.sub {
		r.of, r.ends = m.sub, r.ends[:0]
		m.sub.EachEnd(func(ref subnet.Ref, _ *subnet.Port) { r.ends = append(r.ends, ref) })
	}
	r.active, r.at, r.open = true, 0, 0
}

// nextRenewal asks the next port.
func (m *Manager) nextRenewal(r *request) bool {
	x := &m.keys.renewal
	if !x.active {
		return false
	}
	if m.sub == nil || m.sub != x.of || x.at >= len(x.ends) {
		// A sweep has looked at all ports itself, or the round is done.
		if x.open == 0 || m.sub != x.of {
			m.restRenewal()
		}
		return false
	}
	ref := x.ends[x.at]
	x.at++
	x.open++
	*r = request{what: askPort, node: ref.Node, port: ref.Port, attr: mad.AttrPortInfo, mod: uint32(ref.Port)}
	s := sweep{m: m, nodes: m.sub.Nodes, self: m.sub.Self, paths: m.lightPathsNow()}
	m.directed(r, s.pathTo(ref.Node, ref.Port), m.mkey(m.sub.Port(ref).GUID))
	return true
}

// renewed takes an answer. A port with another key than it was given gets a closer look.
func (m *Manager) renewed(r *request, v mad.View) {
	x := &m.keys.renewal
	x.open--
	if v == nil || v.Status() != mad.StatusOK || m.sub == nil || m.sub != x.of || m.state != mad.SMMaster {
		return
	}
	var pi mad.PortInfo
	if _, err := pi.Parse(v[mad.SMPDataOff:][:mad.SMPDataLen]); err == nil &&
		pi.MKey != m.keyOf(m.sub.Nodes[r.node].Ports[r.port].GUID) && pi.MKeyProtectBits != 0 {
		n := m.sub.Nodes[r.node]
		m.wantLook(m.now, n.Info.NodeGUID, nodeName(n)+" has another M_Key than it was given")
	}
}
