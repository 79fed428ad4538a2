package main

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"time"

	"softib/driver/smrun"
	"softib/operate/manager"
	"softib/proto/ib"
	"softib/proto/mad"
	"softib/proto/topo"
	"softib/subnet/sm"
)

// status is what softib status shows.
type status struct {
	Name        string         `json:"name"`
	PID         int            `json:"pid"`
	Version     string         `json:"version"`
	Started     time.Time      `json:"started"`
	UptimeSec   float64        `json:"uptime_sec"`
	Topology    string         `json:"topology"`
	Description string         `json:"description"`
	Page        string         `json:"page,omitempty"` // where its page is
	Hosts       int            `json:"hosts"`
	HostsActive int            `json:"hosts_active"`
	Switches    int            `json:"switches"`
	Links       int            `json:"links"`
	LinkStates  map[string]int `json:"link_states"`
	// LinkKinds counts the links by state and rate.
	LinkKinds     []linkKind   `json:"link_kinds"`
	LinksDown     []linkStatus `json:"links_down"`
	LinksDegraded []linkStatus `json:"links_degraded"`

	Subnet   subnetStatus    `json:"subnet"`
	Managers []managerStatus `json:"managers"`
	// Of softib's manager; absent where there is none, the first two also where it is not the master.
	Routing *routingStatus `json:"routing,omitempty"`
	Sweep   *sweepStatus   `json:"last_sweep,omitempty"`
	Manager *managerCounts `json:"manager,omitempty"`

	// Programs are those that are attached to hosts.
	Programs []programStatus `json:"programs"`

	// What the hosts have sent into the fabric, headers included.
	Packets uint64 `json:"packets"`
	Bytes   uint64 `json:"bytes"`
}

// linkKind is how many links are in a state at a rate.
type linkKind struct {
	State string  `json:"state"`
	Rate  string  `json:"rate,omitempty"`
	Gbps  float64 `json:"gbps,omitempty"`
	Count int     `json:"count"`
}

// linkStatus is a link that an operator should look at.
type linkStatus struct {
	A    string `json:"a"`
	B    string `json:"b"`
	Rate string `json:"rate,omitempty"`
	// Best is what both ends support, and Why what keeps the link from it, where that is known.
	Best string `json:"best,omitempty"`
	Why  string `json:"why,omitempty"`
}

type subnetStatus struct {
	Prefix string `json:"prefix,omitempty"`
	LIDs   int    `json:"lids"` // in use, all that LMC gives included
	LIDMin ib.LID `json:"lid_min"`
	LIDMax ib.LID `json:"lid_max"`
	LMCMin uint8  `json:"lmc_min"`
	LMCMax uint8  `json:"lmc_max"`
	// Partitions are those that the hosts' ports have keys of.
	Partitions []partitionStatus `json:"partitions"`
	// MasterLIDs is whom the end ports take for their master.
	MasterLIDs []masterLID `json:"master_lids"`
}

type partitionStatus struct {
	Key     string `json:"key"`
	Name    string `json:"name,omitempty"`
	Full    int    `json:"full"`
	Limited int    `json:"limited"`
}

type masterLID struct {
	LID   ib.LID `json:"lid"`
	Ports int    `json:"ports"`
	// Known says that a manager is there and says that it is the master.
	Known bool `json:"known"`
}

// managerStatus is a subnet manager of any make.
type managerStatus struct {
	Port string `json:"port"`
	LID  ib.LID `json:"lid"`
	GUID string `json:"guid"`
	// State is empty if the manager does not answer.
	State    string `json:"state"`
	Priority uint8  `json:"priority"`
	SMKeySet bool   `json:"sm_key_set"`
	ActCount uint32 `json:"act_count"`
	// Own says that it is softib's, in the fabric's own process.
	Own bool `json:"own"`
}

type routingStatus struct {
	Engine  string   `json:"engine"`
	Chain   string   `json:"chain"`
	VLs     int      `json:"vls"`
	Refused []string `json:"refused,omitempty"`
}

type sweepStatus struct {
	Why       string        `json:"why"`
	Full      bool          `json:"full"`
	Began     time.Time     `json:"began"`
	AgoSec    float64       `json:"ago_sec"`
	TookSec   float64       `json:"took_sec"` // until the subnet was up
	Datagrams int           `json:"datagrams"`
	Blocks    int           `json:"table_blocks"`
	Problems  int           `json:"problems"`
	Phases    []phaseStatus `json:"phases"`
}

type phaseStatus struct {
	Name      string  `json:"name"`
	TookSec   float64 `json:"took_sec"`
	Datagrams int     `json:"datagrams"`
	// After says that the subnet was up already.
	After bool `json:"after,omitempty"`
}

// managerCounts is what the fabric's own manager has counted.
type managerCounts struct {
	State       string   `json:"state"`
	Sweeps      uint64   `json:"sweeps"`
	LightSweeps uint64   `json:"light_sweeps"`
	Sent        uint64   `json:"datagrams_sent"`
	Traps       uint64   `json:"traps"`
	Problems    uint64   `json:"problems"`
	SA          saCounts `json:"sa"`
}

type saCounts struct {
	Requests  uint64 `json:"requests"`
	Responses uint64 `json:"responses"`
	Errors    uint64 `json:"errors"`
	Malformed uint64 `json:"malformed"`
	BadSMKey  uint64 `json:"bad_sm_key"`
	Strangers uint64 `json:"strangers"`
	Reports   uint64 `json:"reports"`
}

// status gathers it all: the nodes' own truth first, then what managers of this process know.
func (f *fabric) status(ctx context.Context, runners []*smrun.Runner) status {
	g := f.Graph()
	s := status{
		Name: f.name, PID: os.Getpid(), Version: version, Started: f.started,
		UptimeSec: time.Since(f.started).Seconds(),
		Topology:  f.topology, Description: topo.Describe(g), Page: f.page, Hosts: len(g.Hosts()),
		Switches: len(g.Switches()),
		Links:    g.NumCables(), LinkStates: f.links(), LinksDown: []linkStatus{}, LinksDegraded: []linkStatus{},
		Managers: []managerStatus{},
	}
	for _, h := range f.Hosts() {
		if _, _, ok := portOf(h); ok {
			s.HostsActive++
		}
	}
	f.linkStatus(&s)
	managers := f.subnetStatus(&s)
	own := map[ib.GUID]bool{}
	for _, r := range runners {
		_ = r.Do(func(m *sm.Manager) {
			own[m.Port()] = true
			if s.Manager == nil || m.State() == mad.SMMaster {
				f.managerStatus(&s, m)
			}
		})
	}
	for _, ref := range managers {
		s.Managers = append(s.Managers, f.askManager(ctx, ref, own))
	}
	slices.SortStableFunc(s.Managers, func(a, b managerStatus) int { // the master first
		return cmp.Compare(btoi(b.State == mad.SMMaster.String()), btoi(a.State == mad.SMMaster.String()))
	})
	for i := range s.Subnet.MasterLIDs {
		for _, m := range s.Managers {
			if m.LID == s.Subnet.MasterLIDs[i].LID && m.State == mad.SMMaster.String() {
				s.Subnet.MasterLIDs[i].Known = true
			}
		}
	}
	s.Programs = f.programs()
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

// linkStatus looks at both ends of every cable.
func (f *fabric) linkStatus(s *status) {
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
		k := kind{state: state}
		at := linkStatus{A: g.PortName(c.A), B: g.PortName(c.B)}
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
		l := linkKind{State: stateName(k.state), Count: count[k]}
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

// subnetStatus reads addresses and keys from all end ports, and returns the ports where managers run.
func (f *fabric) subnetStatus(s *status) (managers []topo.PortRef) {
	n := &s.Subnet
	n.LIDMin, n.LMCMin = ib.LIDPermissive, 7
	masters := map[ib.LID]int{}
	keys := map[ib.PKey]*partitionStatus{}
	f.eachEnd(func(ref topo.PortRef) {
		pi, ok := f.PortInfo(ref)
		if !ok {
			return
		}
		if pi.CapabilityMask&mad.CapIsSM != 0 {
			managers = append(managers, ref)
		}
		if !pi.LID.IsUnicast() {
			return
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
				p = &partitionStatus{Key: fmt.Sprintf("0x%04x", uint16(k|ib.PKeyFull))}
				keys[k|ib.PKeyFull] = p
			}
			if k&ib.PKeyFull != 0 {
				p.Full++
			} else {
				p.Limited++
			}
		}
	})
	if n.LIDs == 0 {
		n.LIDMin = 0
	}
	n.LMCMin = min(n.LMCMin, n.LMCMax)
	n.Partitions, n.MasterLIDs = []partitionStatus{}, []masterLID{}
	for _, p := range keys {
		n.Partitions = append(n.Partitions, *p)
	}
	slices.SortFunc(n.Partitions, func(a, b partitionStatus) int { return cmp.Compare(b.Key, a.Key) })
	for lid, ports := range masters {
		n.MasterLIDs = append(n.MasterLIDs, masterLID{LID: lid, Ports: ports})
	}
	slices.SortFunc(n.MasterLIDs, func(a, b masterLID) int {
		return cmp.Or(cmp.Compare(b.Ports, a.Ports), cmp.Compare(a.LID, b.LID))
	})
	return managers
}

// eachEnd visits all end ports: those of hosts and routers that have a cable, and the switches' own.
func (f *fabric) eachEnd(visit func(topo.PortRef)) {
	for _, n := range f.Graph().Nodes {
		if n.IsSwitch() {
			visit(topo.PortRef{Node: n.Index})
			continue
		}
		for p := 1; p < len(n.Ports); p++ {
			if n.Ports[p].Connected() {
				visit(topo.PortRef{Node: n.Index, Port: ib.PortNum(p)})
			}
		}
	}
}

// prefixText is a subnet prefix as addresses are written.
func prefixText(prefix uint64) string {
	return netip.AddrFrom16(ib.MakeGID(prefix, 0)).String()
}

// runners are the managers that run in this process.
func (s *server) runners() (list []*smrun.Runner) {
	s.managers.mu.Lock()
	defer s.managers.mu.Unlock()
	for _, x := range s.managers.list {
		list = append(list, x.run)
	}
	if s.f.runner != nil && !slices.Contains(list, s.f.runner) {
		list = append(list, s.f.runner)
	}
	return list
}

// master calls do with the one of them that is the master and has the subnet up, if one has.
func (s *server) master(do func(*sm.Manager)) bool {
	found := false
	for _, r := range s.runners() {
		_ = r.Do(func(m *sm.Manager) {
			if !found && m.State() == mad.SMMaster && m.Subnet() != nil {
				found = true
				do(m)
			}
		})
	}
	return found
}

// managerStatus takes down what a manager of this process knows.
func (f *fabric) managerStatus(s *status, m *sm.Manager) {
	now := f.Now()
	c, a := m.Counters(), m.Admin().Counters()
	s.Manager = &managerCounts{
		State: m.State().String(), Sweeps: c.Sweeps, LightSweeps: c.LightSweeps, Sent: c.Sent, Traps: c.Traps,
		Problems: c.Problems,
		SA:       saCounts{a.Requests, a.Responses, a.Errors, a.Malformed, a.BadSMKey, a.Strangers, a.Reports},
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
	last := m.Last()
	s.Routing = &routingStatus{Engine: last.Engine, Chain: m.Config().Engines, VLs: last.VLs, Refused: last.Refused}
	ago := time.Duration((now - last.Began) / ib.Nanosecond)
	s.Sweep = &sweepStatus{
		Why: last.Why, Full: last.Full, Began: time.Now().Add(-ago), AgoSec: ago.Seconds(),
		TookSec:   toSeconds(last.Took),
		Datagrams: last.MADs, Blocks: last.Blocks, Problems: last.Problems,
	}
	after := false
	for _, p := range last.Phases {
		s.Sweep.Phases = append(s.Sweep.Phases, phaseStatus{Name: p.Name, TookSec: toSeconds(p.Took), Datagrams: p.MADs,
			After: after})
		after = after || p.Name == sm.PhasePublish
	}
}

func toSeconds(t ib.Time) float64 { return float64(t) / float64(ib.Second) }

// askManager asks the manager at a port who it is.
func (f *fabric) askManager(ctx context.Context, ref topo.PortRef, own map[ib.GUID]bool) managerStatus {
	g := f.Graph()
	m := managerStatus{Port: g.PortName(ref), GUID: g.Nodes[ref.Node].PortGUID(ref.Port).String()}
	m.Own = own[g.Nodes[ref.Node].PortGUID(ref.Port)]
	pi, _ := f.PortInfo(ref)
	m.LID = pi.LID
	a, err := manager.NewAsker(f.Fabric, ref)
	if err != nil {
		return m
	}
	defer a.Close()
	info, err := a.ManagerHere(ctx)
	if err != nil {
		return m
	}
	m.State, m.Priority, m.SMKeySet, m.ActCount = info.SMState.String(), info.Priority, info.SMKey != 0, info.ActCount
	return m
}
