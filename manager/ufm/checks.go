package ufm

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"softib/ib"
	"softib/link"
	"softib/manager"
	"softib/manager/health"
	"softib/manager/tenant"
	"softib/topo"
)

// check is a test that can be run. Those of UFM's that a fabric in software has nothing to show for (temperatures, SHARP, sockets) are not among them.
type check struct {
	name, about string
	run         func(ctx context.Context, s *Server, progress func(percent int)) ([]finding, error)
}

// checks are all tests, under UFM's names.
var checks = []check{
	{"CheckLids", "Every port has an address, and no two have the same", checkLIDs},
	{"CheckLinks", "Every cable has a link, and it is active", byVerdict(health.LinkDown, health.NotActive)},
	{"CheckSubnetManager", "There is one master, and all ports know it", checkManager},
	{"CheckPortCounters", "No counter is above its limit", checkCounters},
	{"CheckDuplicateNodes", "No two nodes have the same name", checkNames},
	{"CheckDuplicateGuids", "No two nodes and no two ports have the same GUID", checkGUIDs},
	{"CheckRouting", "Packets reach every host from every other", checkRouting},
	{"CheckLinkSpeed", "Every link is as fast as both its ends can be", checkRates(func(p *manager.PortSample) bool { return p.Rate.Speed < p.Capable.Speed })},
	{"CheckLinkWidth", "Every link is as wide as both its ends can be", checkRates(func(p *manager.PortSample) bool { return p.Rate.Width.Lanes() < p.Capable.Width.Lanes() })},
	{"CheckPartitionKey", "Every port has the keys of its partitions", checkKeys},
	{"CheckCables", "No cable damages signals or loses them", byVerdict(health.Damaging, health.Flapping)},
	{"CheckEffectiveBER", "No cable has a bit error rate above 1e-12", checkBER},
	{"CheckSymbolBER", "No cable has a bit error rate above 1e-12", checkBER},
}

func checkLIDs(ctx context.Context, s *Server, _ func(int)) (found []finding, err error) {
	m, v := s.cfg.Manager, s.look()
	g := m.Graph()
	at := map[ib.LID]string{}
	for i, r := range m.Ports() {
		n, p := g.Nodes[r.Node], &v.ports[i]
		name := g.PortName(r)
		if n.IsSwitch() {
			if r.Port != 1 {
				continue
			}
			name = n.Name
		} else if p.info.PortState <= ib.PortDown {
			continue
		}
		if p.lid == 0 {
			found = append(found, finding{severe: true, text: name + " has no LID", object: name})
			continue
		}
		for i := range ib.LID(1) << p.info.LMC {
			if was, twice := at[p.lid+i]; twice {
				found = append(found, finding{severe: true, text: fmt.Sprintf("LID %d is that of %s and of %s", p.lid+i, was, name), object: name})
			}
			at[p.lid+i] = name
		}
	}
	return found, ctx.Err()
}

// byVerdict is a test of cables for some of what may be wrong with them.
func byVerdict(kinds ...health.Kind) func(context.Context, *Server, func(int)) ([]finding, error) {
	return func(_ context.Context, s *Server, _ func(int)) (found []finding, err error) {
		g := s.cfg.Manager.Graph()
		for _, v := range s.cfg.Manager.Worst() {
			for i := range v.Reasons {
				if r := &v.Reasons[i]; slices.Contains(kinds, r.Kind) {
					found = append(found, finding{severe: r.Severity >= health.Bad, text: v.Name(g) + ": " + r.Text(g) + "; " + v.Advice(g), object: v.Name(g)})
					break
				}
			}
		}
		return found, nil
	}
}

func checkManager(_ context.Context, s *Server, _ func(int)) (found []finding, err error) {
	m, v := s.cfg.Manager, s.look()
	sub := m.Subnet()
	masters := 0
	for _, x := range sub.Managers {
		if strings.EqualFold(x.State, "master") {
			masters++
		}
	}
	if sub.Managed && masters != 1 {
		found = append(found, finding{severe: true, text: fmt.Sprintf("%d subnet managers are master: want one", masters)})
	}
	lids := map[ib.LID]string{}
	for i, r := range m.Ports() {
		p := &v.ports[i]
		if m.Graph().Nodes[r.Node].IsSwitch() || p.info.PortState != ib.PortActive {
			continue
		}
		name := m.Graph().PortName(r)
		if p.info.MasterSMLID == 0 {
			found = append(found, finding{severe: true, text: name + " knows no subnet manager", object: name})
		} else if _, ok := lids[p.info.MasterSMLID]; !ok {
			lids[p.info.MasterSMLID] = name
		}
	}
	if len(lids) > 1 {
		for lid, name := range lids {
			found = append(found, finding{severe: true, text: fmt.Sprintf("%s takes LID %d for the master, and others take another", name, lid), object: name})
		}
		slices.SortFunc(found, func(a, b finding) int { return strings.Compare(a.text, b.text) })
	}
	return found, nil
}

func checkCounters(_ context.Context, s *Server, _ func(int)) (found []finding, err error) {
	m := s.cfg.Manager
	sample, limits := m.Fresh(), health.Default()
	for i, r := range m.Ports() {
		name := m.Graph().PortName(r)
		for _, x := range health.Exceeding(&sample.Ports[i].Counters, 0, &limits) {
			found = append(found, finding{severe: x.Severity >= health.Bad, text: name + ": " + x.Text(), object: name})
		}
	}
	return found, nil
}

func checkNames(_ context.Context, s *Server, _ func(int)) (found []finding, err error) {
	at := map[string]*topo.Node{}
	for _, n := range s.cfg.Manager.Graph().Nodes {
		if was := at[n.Desc]; was != nil && n.Desc != "" && was.SystemGUID != n.SystemGUID {
			found = append(found, finding{text: fmt.Sprintf("%q is the description of %s and of %s", n.Desc, guidText(was.GUID), guidText(n.GUID)), object: n.Name})
		}
		at[n.Desc] = n
	}
	return found, nil
}

func checkGUIDs(_ context.Context, s *Server, _ func(int)) (found []finding, err error) {
	g := s.cfg.Manager.Graph()
	nodes, ports := map[ib.GUID]string{}, map[ib.GUID]string{}
	take := func(at map[ib.GUID]string, what string, guid ib.GUID, name string) {
		if was, twice := at[guid]; twice {
			found = append(found, finding{severe: true, text: fmt.Sprintf("%s GUID %s is that of %s and of %s", what, guidText(guid), was, name), object: name})
		}
		at[guid] = name
	}
	for _, n := range g.Nodes {
		take(nodes, "node", n.GUID, n.Name)
		if n.IsSwitch() {
			continue
		}
		for p := 1; p <= n.NumPorts(); p++ {
			take(ports, "port", n.PortGUID(ib.PortNum(p)), g.PortName(topo.PortRef{Node: n.Index, Port: ib.PortNum(p)}))
		}
	}
	return found, nil
}

// routesMax is how many ways are walked: all pairs of 64 hosts. In larger fabrics each host walks to some, in steps that reach every other host from somewhere.
const routesMax = 64 * 63

func checkRouting(ctx context.Context, s *Server, progress func(int)) (found []finding, err error) {
	m, v := s.cfg.Manager, s.look()
	g := m.Graph()
	var ends []int
	for i, r := range m.Ports() {
		if !g.Nodes[r.Node].IsSwitch() && v.ports[i].info.PortState == ib.PortActive && v.ports[i].lid != 0 {
			ends = append(ends, i)
		}
	}
	if len(ends) < 2 {
		return nil, nil
	}
	each := max(min(len(ends)-1, routesMax/len(ends)), 1)
	for x, i := range ends {
		if err := ctx.Err(); err != nil {
			return found, err
		}
		progress(100 * x / len(ends))
		from := m.Ports()[i]
		key := ib.PKeyDefault
		if keys := m.Fabric().PKeys(from); len(keys) > 0 {
			key = keys[0]
		}
		for k := range each {
			j := ends[(x+1+k*(len(ends)-1)/each)%len(ends)]
			to := m.Ports()[j]
			if !shareKey(m, from, to, &key) {
				continue // partitions keep them apart, which is as it should be
			}
			way, err := m.Fabric().Way(from, v.ports[j].lid, 0, key)
			if err != nil {
				return found, err
			}
			if way.Reason != link.OK {
				found = append(found, finding{severe: true, text: fmt.Sprintf("packets from %s to %s are lost at %s: %v", g.PortName(from), g.PortName(to), g.PortName(way.Lost), way.Reason), object: g.PortName(from)})
			}
		}
	}
	return found, nil
}

// shareKey finds a key with which one port's packets are the other's to take.
func shareKey(m *manager.Manager, from, to topo.PortRef, key *ib.PKey) bool {
	theirs := m.Fabric().PKeys(to)
	for _, a := range m.Fabric().PKeys(from) {
		for _, b := range theirs {
			if a.IsValid() && b.IsValid() && a.Matches(b) {
				*key = a
				return true
			}
		}
	}
	return false
}

// checkRates is a test of what links run at.
func checkRates(less func(*manager.PortSample) bool) func(context.Context, *Server, func(int)) ([]finding, error) {
	return func(_ context.Context, s *Server, _ func(int)) (found []finding, err error) {
		m := s.cfg.Manager
		sample := m.Fresh()
		for i, c := range m.Cables() {
			k, ok := m.PortIndex(c.A)
			if !ok {
				continue
			}
			if p := &sample.Ports[k]; p.State > ib.PortDown && p.Rate.Mbps() > 0 && p.Capable.Mbps() > 0 && less(p) {
				found = append(found, finding{text: fmt.Sprintf("%s runs at %v, and both ends can do %v", m.LinkName(i), p.Rate, p.Capable), object: m.LinkName(i)})
			}
		}
		return found, nil
	}
}

// settleMax is how long a port may be without a key that it was just given.
const settleMax = 2 * time.Second

func checkKeys(ctx context.Context, s *Server, _ func(int)) (found []finding, err error) {
	if s.cfg.Tenants == nil {
		return nil, nil
	}
	for end := time.Now().Add(settleMax); ; {
		if found = s.missingKeys(); len(found) == 0 || time.Now().After(end) {
			return found, nil
		}
		select { // a change may be on its way
		case <-ctx.Done():
			return found, ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// missingKeys holds the tables of ports against the tenants.
func (s *Server) missingKeys() (found []finding) {
	m := s.cfg.Manager
	g := m.Graph()
	want := map[ib.GUID]map[ib.PKey]tenant.Member{}
	names := map[ib.PKey]string{}
	for _, t := range s.cfg.Tenants.List() {
		names[t.Key] = t.Name
		for _, x := range t.Members {
			if want[x.GUID] == nil {
				want[x.GUID] = map[ib.PKey]tenant.Member{}
			}
			want[x.GUID][t.Key] = x
		}
	}
	for _, h := range g.Hosts() {
		for p := 1; p <= h.NumPorts(); p++ {
			r := topo.PortRef{Node: h.Index, Port: ib.PortNum(p)}
			if pi, _ := m.Fabric().PortInfo(r); pi.PortState != ib.PortActive {
				continue
			}
			has := map[ib.PKey]ib.PKey{}
			for _, k := range m.Fabric().PKeys(r) {
				if k.IsValid() {
					has[k.Base()] = k
				}
			}
			mine := want[h.PortGUID(ib.PortNum(p))]
			for _, t := range s.cfg.Tenants.List() {
				x, in := mine[t.Key]
				k, there := has[t.Key]
				if in != there || in && k.IsFull() != x.Full {
					what := "has no key of"
					if there && in {
						what = "is another kind of member than it should be of"
					} else if there {
						what = "has a key of, and is not a member of"
					}
					found = append(found, finding{severe: true, text: fmt.Sprintf("%s %s partition %s (%s)", g.PortName(r), what, names[t.Key], keyText(t.Key)), object: g.PortName(r)})
				}
			}
		}
	}
	return found
}

// berMax is what InfiniBand is specified for.
const berMax = 1e-12

func checkBER(_ context.Context, s *Server, _ func(int)) (found []finding, err error) {
	g := s.cfg.Manager.Graph()
	for _, v := range s.cfg.Manager.Worst() {
		if v.BER > berMax {
			found = append(found, finding{severe: v.Severity >= health.Bad, text: fmt.Sprintf("%s: bit error rate about %.1g, want at most %.0g", v.Name(g), v.BER, berMax), object: v.Name(g)})
		}
	}
	return found, nil
}
