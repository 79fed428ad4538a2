package check

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"softib/driver/sim"
	"softib/node/link"
	"softib/proto/ib"
	"softib/proto/mad"
	"softib/proto/topo"
	"softib/proto/wire"
	"softib/subnet/policy"
	"softib/subnet/sm"
)

// A fabric with tenants is guarded: each host is in one of them, every port has an M_Key of its own, and switches
// refuse subnet management from hosts that are no manager's. Some of those are hostile: their root sends what it likes,
// and runs managers of its own. Whatever it does, nothing crosses from one tenant to another.

const apartName = "tenants"

// Attack is one thing that root of a host does. Times count from when the first subnet is up.
type Attack struct {
	At   ib.Time
	Host int
	// Manager: it runs a subnet manager of its own for a while; otherwise it sends datagrams, drawn from Seed.
	Manager bool
	For     ib.Time
	Seed    uint64
}

func (a *Attack) String() string {
	if a.Manager {
		return fmt.Sprintf("at %v h%d runs a manager of its own for %v", a.At, a.Host+1, a.For)
	}
	return fmt.Sprintf("at %v h%d sends what it may not", a.At, a.Host+1)
}

// drawTenants makes a scenario one with tenants, if there is a host that can be hostile.
func (sc *Management) drawTenants(rng *rand.Rand, hosts int) {
	free := []int{}
	for h := range hosts {
		if !slices.ContainsFunc(sc.Managers, func(r Ruler) bool { return r.Host == h }) {
			free = append(free, h)
		}
	}
	if len(free) == 0 {
		return
	}
	sc.Tenants = 2 + rng.IntN(2)
	sc.MKey, sc.MKeyProtect = 1+rng.Uint64()>>1, 2
	sc.Conns = slices.DeleteFunc(sc.Conns, func(c MgmtConn) bool { return sc.tenant(c.From) != sc.tenant(c.To) })
	for range 1 + rng.IntN(12) {
		a := Attack{At: moment(rng), Host: free[rng.IntN(len(free))], Seed: rng.Uint64()}
		if rng.IntN(6) == 0 {
			a.Manager, a.For = true, span(rng)
		}
		sc.Attacks = append(sc.Attacks, a)
	}
}

// tenant is which one a host is in, and tenantKey its partition.
func (sc *Management) tenant(host int) int { return host % sc.Tenants }

func tenantKey(tenant int) ib.PKey { return ib.PKey(0x1001 + tenant) }

// partitions are what managers are told of tenants.
func (sc *Management) partitions() (p policy.Partitions) {
	if sc.Tenants == 0 {
		return p
	}
	p.Defs = append(p.Defs, policy.PartitionDef{Name: "Default", PKey: ib.PKeyBase, Key: ib.PKeyBase,
		Members: []policy.Member{{Who: policy.All, Membership: policy.Limited},
			{Who: policy.Self, Membership: policy.Full}}})
	for t := range sc.Tenants {
		d := policy.PartitionDef{Name: fmt.Sprintf("t%d", t), PKey: tenantKey(t), Key: tenantKey(t), Index0: true}
		for h, n := range sc.graph().Hosts() {
			if sc.tenant(h) == t {
				d.Members = append(d.Members, policy.Member{Who: policy.ByGUID, GUID: n.PortGUID(1),
					Membership: policy.Full})
			}
		}
		p.Defs = append(p.Defs, d)
	}
	return p
}

// guard has the switches refuse management from hosts that have no manager.
func (r *reign) guard() {
	if r.sc.Tenants == 0 {
		return
	}
	for h := range r.sim.NumHosts() {
		if ref, ok := r.front(h); ok && !r.rules(h) {
			r.sim.Port(ref).SetGuard(true)
		}
	}
}

// rules reports whether a host is one of a manager's.
func (r *reign) rules(host int) bool {
	return slices.ContainsFunc(r.sc.Managers, func(m Ruler) bool { return m.Host == host })
}

// front is the switch's port in front of a host.
func (r *reign) front(host int) (topo.PortRef, bool) {
	p := r.sim.HostNode(host).Ports[1]
	return topo.PortRef{Node: p.Peer, Port: p.PeerPort}, p.Connected() && r.sim.Graph().Nodes[p.Peer].IsSwitch()
}

// attack lets root of a host do something.
func (r *reign) attack(i int) {
	a := &r.sc.Attacks[i]
	r.note("attack: %v", a)
	r.tally.Attacks++
	if a.Manager {
		if r.sim.Manager(a.Host) != nil {
			return
		}
		cfg := r.sc.config(0, sm.Memory{})
		cfg.Config.MKey, cfg.Config.MKeyPerPort, cfg.Config.Priority, cfg.Config.Partitions = 0, false, 15,
			policy.Partitions{}
		cfg.Config.SMKey = sm.DefaultSMKey + 1
		if err := r.sim.StartManager(a.Host, cfg); err != nil {
			r.report("scenario", nil, "%v", err)
		}
		r.sim.At(r.sim.Now()+a.For, timerCease|uint64(i))
		return
	}
	rng := rand.New(rand.NewPCG(a.Seed, 0xA77))
	for range 1 + rng.IntN(8) {
		env, data := r.forge(rng, a.Host)
		if err := r.sim.Inject(a.Host, env, data); err != nil {
			r.report("scenario", nil, "%v", err)
		}
	}
}

// forge draws a datagram: a write of some table somewhere, a manager's command, an answer that nobody asked for, by
// LID or along a route that may lead anywhere.
func (r *reign) forge(rng *rand.Rand, host int) (mad.Envelope, []byte) {
	ends := r.t.ends()
	end := ends[rng.IntN(len(ends))]
	own := r.sim.LID(topo.PortRef{Node: r.sim.HostNode(host).Index, Port: 1})
	s := mad.SMP{Method: mad.MethodSet, MKey: [...]uint64{0, 0, 1, rng.Uint64()}[rng.IntN(4)], TID: rng.Uint64(),
		Data: make([]byte, mad.SMPDataLen)}
	if rng.IntN(8) == 0 {
		s.Method = [...]mad.Method{mad.MethodGet, mad.MethodGetResp, mad.MethodTrapRepress, mad.MethodTrap}[rng.IntN(4)]
	}
	switch rng.IntN(8) {
	case 0, 1, 2:
		var keys mad.PKeyTable
		for k := range keys {
			keys[k] = [...]ib.PKey{0, ib.PKeyDefault, tenantKey(rng.IntN(r.sc.Tenants)) | ib.PKeyFull}[rng.IntN(3)]
		}
		keys.Append(s.Data[:0])
		if s.Attr = mad.AttrPKeyTable; rng.IntN(2) == 0 {
			s.Modifier = mad.PKeyModifier(ib.PortNum(1+rng.IntN(8)), 0)
		}
	case 3:
		pi := mad.PortInfo{MKey: rng.Uint64(), LID: own, MasterSMLID: own, PortPhysicalState: ib.PhysDisabled}
		pi.Append(s.Data[:0])
		s.Attr, s.Modifier = mad.AttrPortInfo, uint32(rng.IntN(9))
	case 4:
		info := mad.SMInfo{GUID: r.sim.HostNode(host).PortGUID(1), SMKey: rng.Uint64N(3), Priority: 15,
			SMState: mad.SMMaster}
		info.Append(s.Data[:0])
		s.Attr, s.Modifier = mad.AttrSMInfo, uint32(1+rng.IntN(5))
	default:
		for k := range s.Data {
			s.Data[k] = byte(rng.Uint32())
		}
		s.Attr = [...]mad.AttrID{mad.AttrLFT, mad.AttrMFT, mad.AttrSwitchInfo, mad.AttrSLtoVL, mad.AttrGUIDInfo,
			mad.AttrVLArb, mad.AttrNotice}[rng.IntN(7)]
	}
	env := mad.Envelope{LID: end.lid, QPN: ib.QPNSMI}
	if s.Directed = rng.IntN(3) > 0; s.Directed {
		if env.LID = ib.LIDPermissive; rng.IntN(2) == 0 {
			s.Path = append(s.Path, 1)
		}
		for len(s.Path) > 0 && rng.IntN(3) > 0 {
			s.Path = append(s.Path, ib.PortNum(1+rng.IntN(8)))
		}
		if rng.IntN(4) == 0 {
			env.LID, s.DrSLID = end.lid, own
		}
	}
	b, err := s.Append(nil)
	if err != nil {
		panic(err) // no route is that long
	}
	return env, b
}

// cease ends a manager of an attacker's.
func (r *reign) cease(i int) { r.sim.StopManager(r.sc.Attacks[i].Host) }

// checkApart wants that nothing that one host's adapter sends gets to a host of another tenant. Managers reach
// everybody.
func (r *reign) checkApart(when string) {
	if r.sc.Tenants == 0 || r.began == 0 || r.failed() {
		return
	}
	r.tally.ApartChecks++
	for a := range r.sim.NumHosts() {
		for b := range r.sim.NumHosts() {
			if r.sc.tenant(a) == r.sc.tenant(b) || r.rules(a) || r.rules(b) {
				continue
			}
			if key, ok := r.crosses(a, b); ok {
				r.report(apartName, nil, "after %s h%d of tenant %d can send to h%d of tenant %d with key %v", when,
					a+1, r.sc.tenant(a), b+1, r.sc.tenant(b), key)
				return
			}
		}
	}
}

// crosses finds a key with which packets get from one host to another: one that the sender's adapter has, that the
// switches in front of both let pass, and that the receiver's adapter takes.
func (r *reign) crosses(a, b int) (ib.PKey, bool) {
	for _, k := range r.keys(a) {
		if k == 0 || !slices.ContainsFunc(r.keys(b), k.Matches) {
			continue
		}
		f := link.Frame{LRH: wire.LRH{LNH: wire.LNHLocal}, Packet: &wire.Packet{BTH: wire.BTH{PKey: k}}}
		near, okA := r.front(a)
		far, okB := r.front(b)
		if okA && r.sim.Port(near).RefusesIn(&f) != link.OK || okB && r.sim.Port(far).RefusesOut(&f) != link.OK {
			continue
		}
		return k, true
	}
	return 0, false
}

// keys is the table of a host's adapter.
func (r *reign) keys(host int) []ib.PKey { return r.sim.Adapter(host).Port(1).PKeys }

// strayed says whose partitions are not what they should be in a fabric that is left alone.
func (r *reign) strayed() string {
	if r.sc.Tenants == 0 {
		return ""
	}
	for h := range r.sim.NumHosts() {
		own := tenantKey(r.sc.tenant(h)) | ib.PKeyFull
		keys := slices.DeleteFunc(slices.Clone(r.keys(h)), func(k ib.PKey) bool { return k == 0 })
		if len(keys) != 2 || keys[0] != own || keys[1].Base() != ib.PKeyBase || keys[1].IsFull() && !r.rules(h) {
			return fmt.Sprintf("h%d has the keys %v: want %v and %v", h+1, keys, own, ib.PKeyBase)
		}
		ref, ok := r.front(h)
		if !ok {
			continue
		}
		if p := r.sim.Port(ref); p.Enforcement()&link.EnforcePKeyIn == 0 || !slices.Contains(p.PKeys(), own) {
			return fmt.Sprintf("%s has the keys %v and checks %v", r.sim.Graph().PortName(ref), p.PKeys(),
				p.Enforcement())
		}
	}
	return ""
}

// guardKeys is what a manager at a host has to know in a guarded fabric.
func (sc *Management) guardKeys(host int, c *sim.ManagerConfig) {
	if sc.Tenants > 0 {
		g := sc.graph()
		c.MKeyPerPort, c.Partitions, c.SMKey = true, sc.partitions(), sc.MKey
		c.Self, c.Plan = g.Hosts()[host].PortGUID(1), g
	}
}
