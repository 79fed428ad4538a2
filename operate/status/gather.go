package status

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"time"

	"softib/node/inspect"
	"softib/operate/manager"
	"softib/proto/ib"
	"softib/proto/mad"
	"softib/proto/topo"
	"softib/subnet/sm"
)

// Fabric is what is looked at; *live.Fabric is one.
type Fabric interface {
	manager.Fabric
	// Now is the time of the managers that run in it.
	Now() ib.Time
	// HostTraffic is what all hosts have sent into the fabric: packets, and 4-byte words with headers.
	HostTraffic() (pkts, words uint64)
}

// Source is a fabric of this process with what it cannot know of itself.
type Source struct {
	Fabric
	// Name is the fabric's, Version softib's, Topology what the fabric was made from as its user named it, Page the
	// address of its page.
	Name, Version, Topology, Page string
	// Shared is the group of users who may run programs too, and As how they name the fabric.
	Shared, As string
	Started    time.Time
	Start      []Step
	// Managers are the subnet managers of this process.
	Managers []manager.Subnet
	// Machines are those that have a part of the fabric; nil where this one has all.
	Machines []Machine
}

// Gather looks at a fabric: the nodes' own truth first, then what managers of this process know.
func Gather(ctx context.Context, f Source) Status {
	g := f.Graph()
	hosts, service := g.HostsApart()
	s := Status{
		Name: f.Name, PID: os.Getpid(), Version: f.Version, Started: f.Started,
		UptimeSec: time.Since(f.Started).Seconds(), Start: f.Start,
		Topology: f.Topology, Description: topo.Describe(g), Page: f.Page, Shared: f.Shared, As: f.As,
		Hosts: len(hosts), ServiceNodes: len(service),
		Switches: len(g.Switches()), Links: g.NumCables(), LinkStates: map[string]int{},
		Machines:  f.Machines,
		LinksDown: []Link{}, LinksDegraded: []Link{}, Managers: []Manager{}, Programs: []Program{},
	}
	for _, h := range hosts {
		if f.isActive(h) {
			s.HostsActive++
		}
	}
	f.links(&s)
	managers := f.subnet(&s)
	f.parts(&s)
	own := map[ib.GUID]uint64{} // M_Keys of ports that have a manager of this process
	for _, r := range f.Managers {
		_ = r.Do(func(m *sm.Manager) {
			own[m.Port()] = m.MKey(m.Port())
			if s.Manager == nil || m.State() == mad.SMMaster {
				f.manager(&s, m)
			}
		})
	}
	for _, ref := range managers {
		s.Managers = append(s.Managers, f.ask(ctx, ref, own))
	}
	slices.SortStableFunc(s.Managers, func(a, b Manager) int { // the master first
		return cmp.Compare(btoi(b.State == mad.SMMaster.String()), btoi(a.State == mad.SMMaster.String()))
	})
	for i := range s.Subnet.MasterLIDs {
		for _, m := range s.Managers {
			if m.LID == s.Subnet.MasterLIDs[i].LID && m.State == mad.SMMaster.String() {
				s.Subnet.MasterLIDs[i].Known = true
			}
		}
	}
	for _, p := range f.Programs() {
		s.Programs = append(s.Programs, ProgramOf(&p))
	}
	pkts, words := f.HostTraffic()
	s.Packets, s.Bytes = pkts, 4*words
	return s
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// isActive reports whether a host has a port that it can send from.
func (f *Source) isActive(h *topo.Node) bool {
	for p := 1; p < len(h.Ports); p++ {
		if pi, ok := f.PortInfo(topo.PortRef{Node: h.Index, Port: ib.PortNum(p)}); ok &&
			pi.PortState == ib.PortActive && pi.LID != 0 {
			return true
		}
	}
	return false
}

// links looks at both ends of every cable.
func (f *Source) links(s *Status) {
	g := f.Graph()
	type kind struct {
		state ib.PortState
		rate  ib.LinkRate
	}
	count := map[kind]int{}
	var order []kind
	for _, c := range g.Cables() {
		a, _ := f.PortInfo(c.A)
		b, _ := f.PortInfo(c.B)
		state := min(a.PortState, b.PortState) // a cable is as far as the end that is behind
		s.LinkStates[inspect.StateName(state)]++
		k := kind{state: state}
		at := Link{A: g.PortName(c.A), B: g.PortName(c.B)}
		if state == ib.PortDown {
			s.LinksDown = append(s.LinksDown, at)
		} else {
			k.rate = a.Rate()
			if best, why := bestRate(&a, &b); k.rate.Mbps() < best.Mbps() {
				at.Rate, at.Best, at.Why = k.rate.String(), best.String(), why
				s.LinksDegraded = append(s.LinksDegraded, at)
			}
		}
		if count[k] == 0 {
			order = append(order, k)
		}
		count[k]++
	}
	slices.SortStableFunc(order, func(a, b kind) int {
		return cmp.Or(cmp.Compare(b.state, a.state), cmp.Compare(b.rate.Mbps(), a.rate.Mbps()))
	})
	for _, k := range order {
		l := LinkKind{State: inspect.StateName(k.state), Count: count[k]}
		if k.state != ib.PortDown {
			l.Rate, l.Gbps = k.rate.String(), float64(k.rate.Mbps())/1000
		}
		s.LinkKinds = append(s.LinkKinds, l)
	}
}

// bestRate is what both ends of a link support, and what an operator has forbidden them of it.
func bestRate(a, b *mad.PortInfo) (best ib.LinkRate, why string) {
	best = ib.LinkRate{Width: (a.LinkWidthSupported & b.LinkWidthSupported).Widest(),
		Speed: min(a.SupportedSpeed(), b.SupportedSpeed())}
	allowed := ib.LinkRate{
		Width: (a.LinkWidthSupported & a.LinkWidthEnabled & b.LinkWidthSupported & b.LinkWidthEnabled).Widest(),
		Speed: min(a.EnabledSpeed(), b.EnabledSpeed()),
	}
	if allowed.Mbps() < best.Mbps() {
		why = "as enabled"
	}
	return best, why
}

// subnet reads addresses and keys from all end ports, and returns the ports where managers run.
func (f *Source) subnet(s *Status) (managers []topo.PortRef) {
	n := &s.Subnet
	n.LIDMin, n.LMCMin = ib.LIDPermissive, 7
	masters := map[ib.LID]int{}
	keys := map[ib.PKey]*Partition{}
	for _, ref := range f.Graph().EndPorts() {
		pi, ok := f.PortInfo(ref)
		if !ok {
			continue
		}
		if pi.CapabilityMask&mad.CapIsSM != 0 {
			managers = append(managers, ref)
		}
		if !pi.LID.IsUnicast() {
			continue
		}
		if n.LIDs == 0 {
			n.Prefix = prefixText(pi.GidPrefix)
		}
		n.LIDs += 1 << pi.LMC
		n.LIDMin, n.LIDMax = min(n.LIDMin, pi.LID), max(n.LIDMax, pi.LID+1<<pi.LMC-1)
		if !f.Graph().Nodes[ref.Node].IsSwitch() { // a switch has one address where its port 0 is a basic one
			n.LMCMin, n.LMCMax = min(n.LMCMin, pi.LMC), max(n.LMCMax, pi.LMC)
		}
		if pi.MasterSMLID != 0 {
			masters[pi.MasterSMLID]++
		}
		for _, k := range f.PKeys(ref) {
			if k&^ib.PKeyFull == 0 {
				continue
			}
			p := keys[k|ib.PKeyFull]
			if p == nil {
				p = &Partition{Key: fmt.Sprintf("0x%04x", uint16(k|ib.PKeyFull))}
				keys[k|ib.PKeyFull] = p
			}
			if k&ib.PKeyFull != 0 {
				p.Full++
			} else {
				p.Limited++
			}
		}
	}
	if n.LIDs == 0 {
		n.LIDMin = 0
	}
	n.LMCMin = min(n.LMCMin, n.LMCMax)
	n.Partitions, n.MasterLIDs = []Partition{}, []MasterLID{}
	for _, p := range keys {
		n.Partitions = append(n.Partitions, *p)
	}
	slices.SortFunc(n.Partitions, func(a, b Partition) int { return cmp.Compare(b.Key, a.Key) })
	for lid, ports := range masters {
		n.MasterLIDs = append(n.MasterLIDs, MasterLID{LID: lid, Ports: ports})
	}
	slices.SortFunc(n.MasterLIDs, func(a, b MasterLID) int {
		return cmp.Or(cmp.Compare(b.Ports, a.Ports), cmp.Compare(a.LID, b.LID))
	})
	return managers
}

// parts looks at each of the subnets that routers join.
func (f *Source) parts(s *Status) {
	g := f.Graph()
	if len(g.Routers()) == 0 {
		return
	}
	subnets := g.Subnets()
	s.Subnets = make([]SubnetPart, subnets.Count)
	counted := make([]*topo.Node, subnets.Count) // the host last: once, however many ports it has there
	for _, ref := range g.EndPorts() {
		k := subnets.Of(ref)
		if k < 0 {
			continue
		}
		x := &s.Subnets[k]
		switch g.Nodes[ref.Node].Type {
		case ib.NodeCA:
			if n := g.Nodes[ref.Node]; counted[k] != n && !g.IsPart(n) {
				x.Hosts++
				counted[k] = n
			}
		case ib.NodeSwitch:
			x.Switches++
		case ib.NodeRouter:
			x.Routers++
		}
		if pi, ok := f.PortInfo(ref); ok && pi.LID.IsUnicast() {
			if x.Prefix == "" {
				x.Prefix, x.LIDMin = prefixText(pi.GidPrefix), pi.LID
			}
			x.LIDMin, x.LIDMax = min(x.LIDMin, pi.LID), max(x.LIDMax, pi.LID+1<<pi.LMC-1)
		}
	}
}

// prefixText is a subnet prefix as addresses are written.
func prefixText(prefix uint64) string {
	return netip.AddrFrom16(ib.MakeGID(prefix, 0)).String()
}

// manager takes down what a manager of this process knows.
func (f *Source) manager(s *Status, m *sm.Manager) {
	now := f.Now()
	c, a := m.Counters(), m.Admin().Counters()
	s.Manager = &ManagerCounts{
		State: m.State().String(), Sweeps: c.Sweeps, LightSweeps: c.LightSweeps, Sent: c.Sent, Traps: c.Traps,
		Problems: c.Problems,
		SA:       SACounts{a.Requests, a.Responses, a.Errors, a.Malformed, a.BadSMKey, a.Strangers, a.Reports},
	}
	sub := m.Subnet()
	if sub == nil || m.State() != mad.SMMaster {
		return // whatever it knows is another's business now
	}
	for _, p := range sub.Partitions {
		for i := range s.Subnet.Partitions {
			if s.Subnet.Partitions[i].Key == fmt.Sprintf("0x%04x", uint16(p.Key|ib.PKeyFull)) {
				s.Subnet.Partitions[i].Name = p.Name
			}
		}
	}
	keys := m.MKeyPolicy()
	s.Subnet.MKeyProtect, s.Subnet.MKeyPerPort = keys.Protect, keys.PerPort
	last := m.Last()
	s.Routing = &Routing{Engine: last.Engine, Chain: m.Config().Engines, VLs: last.VLs, Refused: last.Refused}
	ago := time.Duration((now - last.Began) / ib.Nanosecond)
	s.Sweep = &Sweep{
		Why: last.Why, Full: last.Full, Began: time.Now().Add(-ago), AgoSec: ago.Seconds(),
		TookSec:   toSeconds(last.Took),
		Datagrams: last.MADs, Blocks: last.Blocks, Problems: last.Problems,
	}
	after := false
	for _, p := range last.Phases {
		s.Sweep.Phases = append(s.Sweep.Phases, Phase{Name: p.Name, TookSec: toSeconds(p.Took), Datagrams: p.MADs,
			After: after})
		after = after || p.Name == sm.PhasePublish
	}
}

func toSeconds(t ib.Time) float64 { return float64(t) / float64(ib.Second) }

// ask asks the manager at a port who it is.
func (f *Source) ask(ctx context.Context, ref topo.PortRef, own map[ib.GUID]uint64) Manager {
	g := f.Graph()
	m := Manager{Port: g.PortName(ref), GUID: g.Nodes[ref.Node].PortGUID(ref.Port).String()}
	key, mine := own[g.Nodes[ref.Node].PortGUID(ref.Port)]
	m.Own = mine
	if x, ok := f.Fabric.(manager.Machines); ok && !x.IsHere(ref.Node) {
		m.Machine = x.Where(ref.Node)
	}
	pi, _ := f.PortInfo(ref)
	m.LID = pi.LID
	a, err := manager.NewAsker(f.Fabric, ref)
	if err != nil {
		return m
	}
	defer a.Close()
	info, err := a.ManagerHere(ctx, key)
	if err != nil {
		return m
	}
	m.State, m.Priority, m.SMKeySet, m.ActCount = info.SMState.String(), info.Priority, info.SMKey != 0, info.ActCount
	return m
}
