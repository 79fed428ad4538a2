package manager

import (
	"fmt"
	"slices"

	"softib/node/inspect"
	"softib/node/link"
	"softib/proto/ib"
	"softib/proto/topo"
	"softib/subnet"

	"softib/operate/manager/tenant"
)

// ProbeResult is what became of a packet that was sent to see.
type ProbeResult struct {
	inspect.Probed
	// Key is the key that it had: the sender's own, or a forged one where the sender has none of that partition.
	Key    ib.PKey
	Forged bool
}

// probeTries is how often a probe is repeated that got lost for other reasons than partitions: cables may be bad.
const probeTries = 4

// Probe sends a packet in a partition from one host's port to another's and says whether it arrives, and if not, where
// it vanishes and why. Where the sending adapter is no member, which it would refuse to send by itself, the packet has
// a forged key, so that what the switches do about it is seen.
func Probe(f Probes, from, to topo.PortRef, key ib.PKey) (ProbeResult, error) {
	return probe(f, from, to, key, isRemote(f, from, to))
}

// Beyond is a fabric that says what becomes of a packet which goes by way of a router; *live.Fabric is one.
type Beyond interface {
	ProbeBeyond(from topo.PortRef, router ib.LID, sgid, dgid ib.GID, key ib.PKey) (inspect.Probed, error)
}

// beyond sends a packet to another subnet, by the first router that has a way.
func beyond(f Probes, from, to topo.PortRef, key ib.PKey) (out inspect.Probed, err error) {
	x, ok := f.(Beyond)
	if !ok {
		return out, fmt.Errorf("manager: %s is in another subnet", f.Graph().PortName(to))
	}
	s := f.Graph().Subnets()
	out.At, out.Reason = from, link.NoRoute
	for _, n := range f.Graph().Routers() {
		for p := 1; p < len(n.Ports); p++ {
			r := topo.PortRef{Node: n.Index, Port: ib.PortNum(p)}
			if pi, _ := f.PortInfo(r); s.Of(r) == s.Of(from) && pi.LID != 0 {
				out, err = x.ProbeBeyond(from, pi.LID, gidOf(f, from), gidOf(f, to), key)
				if err != nil || out.Arrived || out.Reason != link.NoRoute {
					return out, err
				}
			}
		}
	}
	return out, nil
}

func probe(f Probes, from, to topo.PortRef, key ib.PKey, remote bool) (ProbeResult, error) {
	r := ProbeResult{Key: key | ib.PKeyFull, Forged: true}
	for _, k := range f.PKeys(from) {
		if k.IsValid() && k.Base() == key.Base() {
			r.Key, r.Forged = k, false
			break
		}
	}
	pi, _ := f.PortInfo(to)
	if pi.LID == 0 {
		return r, fmt.Errorf("manager: %s has no address yet", f.Graph().PortName(to))
	}
	for range probeTries {
		var err error
		if remote {
			r.Probed, err = beyond(f, from, to, r.Key)
		} else {
			r.Probed, err = f.Probe(from, pi.LID, 0, r.Key)
		}
		if err != nil {
			return r, err
		}
		if r.Arrived || r.IsKey() {
			break
		}
	}
	return r, nil
}

// describe is the result in words.
func (r *ProbeResult) describe(g *topo.Graph) string {
	if r.Arrived {
		return "arrives"
	}
	if r.KeyRefused {
		return fmt.Sprintf("is refused by the adapter at %s", g.PortName(r.At))
	}
	return fmt.Sprintf("vanishes at %s: %v", g.PortName(r.At), r.Reason)
}

// outsidersProbed is how many ports that have no part in a tenant try to reach it after a change, besides those that
// have left.
const outsidersProbed = 8

// prove sends packets in a subnet for each tenant that has changed: members reach each other, and who has left or never
// came does not.
func (e *Enforcer) prove(sc scene, c concern, want *tenant.State, far *tenant.Progress) (list []tenant.Refusal) {
	about := map[ib.PKey][]ib.GUID{}
	var keys []ib.PKey
	ports := 0
	for _, g := range c.sorted() {
		ports += len(c.ports[g])
		for _, k := range c.ports[g] {
			if about[k] == nil {
				keys = append(keys, k)
			}
			about[k] = append(about[k], g)
		}
	}
	slices.Sort(keys)
	far.At("proving with packets: ports", 0, 2*ports) // with friends, and with strangers
	p := prober{e: e, in: sc.sub, self: sc.self, far: far, active: map[ib.GUID]bool{}}
	for _, key := range keys {
		t, _ := want.ByKey(key)
		p.tenant(&t, key, about[key])
		p.strangers(&t, about[key], want)
	}
	return p.refusals
}

// proveAcross sends packets from one subnet to another for each tenant that has changed: members reach each other, and
// who has left does not.
func (e *Enforcer) proveAcross(scenes []scene, c concern, want *tenant.State, far *tenant.Progress) []tenant.Refusal {
	far.At("proving with packets between subnets: ports", 0, len(c.ports))
	p := prober{e: e, far: far, active: map[ib.GUID]bool{}, remote: true}
	of := func(g ib.GUID) int {
		return slices.IndexFunc(scenes, func(sc scene) bool { _, ok := sc.sub.ByPortGUID(g); return ok })
	}
	for _, g := range c.sorted() {
		far.Step()
		if !p.ready(g) {
			continue
		}
		for _, key := range c.ports[g] {
			t, _ := want.ByKey(key)
			m, in := t.Member(g)
			for _, o := range t.Members {
				if o.GUID != g && p.ready(o.GUID) && of(o.GUID) != of(g) && (!in || m.Full || o.Full) {
					p.expect(g, o.GUID, key, in)
					p.expect(o.GUID, g, key, in)
					break
				}
			}
		}
	}
	return p.refusals
}

// prober sends the probes of one change.
type prober struct {
	e        *Enforcer
	in       *subnet.Subnet // only ports of it; nil for all
	remote   bool           // between subnets
	far      *tenant.Progress
	self     ib.GUID          // the manager's port, which all talk to
	active   map[ib.GUID]bool // by port, once it was asked
	refusals []tenant.Refusal
}

// ready reports whether packets can come from a port and go to it.
func (p *prober) ready(g ib.GUID) bool {
	if on, known := p.active[g]; known {
		return on
	}
	on := false
	if r, ok := p.e.port[g]; ok && !p.e.g.Nodes[r.Node].IsSwitch() && p.has(g) {
		pi, _ := p.e.f.PortInfo(r)
		on = pi.PortState == ib.PortActive && pi.LID != 0
	}
	p.active[g] = on
	return on
}

// has reports whether a port is one to probe.
func (p *prober) has(g ib.GUID) bool {
	if p.in == nil {
		return true
	}
	_, ok := p.in.ByPortGUID(g)
	return ok
}

// tenant proves one partition, of which some ports have changed. Without a tenant nobody is in it any more.
func (p *prober) tenant(t *tenant.Tenant, key ib.PKey, changed []ib.GUID) {
	var members []tenant.Member
	for _, m := range t.Members {
		if p.ready(m.GUID) {
			members = append(members, m)
		}
	}
	at := 0
	// peer is another member, a different one each time, as far as there are any.
	peer := func(g ib.GUID, full bool) (tenant.Member, bool) {
		for range members {
			m := members[at%len(members)]
			at++
			if m.GUID != g && (m.Full || full) {
				return m, true
			}
		}
		return tenant.Member{}, false
	}
	var left []ib.GUID
	for _, g := range changed {
		p.far.Step()
		if !p.ready(g) {
			continue
		}
		m, in := t.Member(g)
		if !in {
			left = append(left, g)
			continue
		}
		if o, ok := peer(g, m.Full); ok {
			p.expect(g, o.GUID, key, true)
			p.expect(o.GUID, g, key, true)
		}
	}
	for _, g := range append(left, p.outsiders(t)...) {
		// Somebody who is in it; if nobody is, somebody who has left with it.
		to, ok := peer(g, true)
		if !ok && len(left) > 1 {
			to.GUID, ok = left[0], true
			if to.GUID == g {
				to.GUID = left[1]
			}
		}
		if ok {
			p.expect(g, to.GUID, key, false)
			p.expect(to.GUID, g, key, false)
		}
	}
}

// strangers proves that members who have come do not reach other tenants by way of the default partition either.
func (p *prober) strangers(t *tenant.Tenant, changed []ib.GUID, want *tenant.State) {
	var others []ib.GUID
	for i := range want.Tenants {
		for _, m := range want.Tenants[i].Members {
			if want.Tenants[i].Key != t.Key && m.GUID != p.self && p.ready(m.GUID) {
				others = append(others, m.GUID)
				break
			}
		}
	}
	for i, g := range changed {
		p.far.Step()
		if _, in := t.Member(g); !in || len(others) == 0 || g == p.self || !p.ready(g) {
			continue
		}
		if o := others[i%len(others)]; o != g {
			p.expect(g, o, ib.PKeyBase, false)
			p.expect(o, g, ib.PKeyBase, false)
		}
	}
}

// outsiders are some ports that are not in a tenant, from all over the fabric.
func (p *prober) outsiders(t *tenant.Tenant) (list []ib.GUID) {
	if t.Key == 0 {
		return nil
	}
	hosts := p.e.g.Hosts()
	step := max(len(hosts)/outsidersProbed, 1)
	for i := 0; i < len(hosts) && len(list) < outsidersProbed; i += step {
		for port := 1; port < len(hosts[i].Ports); port++ {
			g := hosts[i].PortGUID(ib.PortNum(port))
			if _, in := t.Member(g); !in && p.ready(g) {
				list = append(list, g)
				break
			}
		}
	}
	return list
}

// expect sends one probe. What is lost for another reason than a partition proves nothing, either way.
func (p *prober) expect(from, to ib.GUID, key ib.PKey, arrives bool) {
	e := p.e
	a, b := e.port[from], e.port[to]
	r, err := probe(e.f, a, b, key, p.remote)
	if err != nil {
		return // its link has gone meanwhile
	}
	switch {
	case arrives && r.IsKey(), arrives && r.Forged:
		p.refuse(b, "a packet from %s in partition %v %s", e.g.PortName(a), key, r.describe(e.g))
	case !arrives && r.Arrived && (!r.Forged || e.checksIn(a)):
		p.refuse(b, "a packet from %s in partition %v arrives, and must not", e.g.PortName(a), key)
	}
}

func (p *prober) refuse(at topo.PortRef, format string, args ...any) {
	p.refusals = append(p.refusals, tenant.Refusal{Node: p.e.g.PortName(at), Why: fmt.Sprintf(format, args...)})
}

// checksIn reports whether the switch in front of a port checks what comes from it. Where none does, nothing but its
// own adapter keeps a host from forging keys.
func (e *Enforcer) checksIn(r topo.PortRef) bool {
	p := e.g.Port(r)
	if p == nil || !p.Connected() || !e.g.Nodes[p.Peer].IsSwitch() {
		return false
	}
	pi, _ := e.f.PortInfo(topo.PortRef{Node: p.Peer, Port: p.PeerPort})
	return pi.PartitionEnforcementInbound
}
