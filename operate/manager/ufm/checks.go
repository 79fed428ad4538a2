package ufm

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"softib/operate/doctor"
	"softib/operate/manager/tenant"
	"softib/operate/wiring"
	"softib/proto/ib"
	"softib/proto/topo"
	"softib/subnet/survey"
)

// check is a test that can be run. Those of UFM's that a fabric in software has nothing to show for (temperatures,
// SHARP, sockets) are not among them.
type check struct {
	name, about string
	// looks are the sections of the doctor's report that it is about, and kinds the findings in them; nil is all.
	looks []doctor.Check
	kinds []string
	// counters says that counters are all it needs.
	counters bool
	// also is what the doctor does not know.
	also func(s *Server) []finding
}

// checks are all tests, under UFM's names. Most of them ask the whole fabric by datagrams, as softib doctor does.
var checks = []check{
	{name: "CheckLids", about: "Every port has an address, and no two have the same",
		looks: []doctor.Check{doctor.LIDs}},
	{name: "CheckLinks", about: "Every cable has a link, it is active, and both ends agree on it",
		looks: []doctor.Check{doctor.Answers, doctor.Links},
		kinds: []string{"link-down", "not-active", "asymmetric-link", "link-lost", "silent-node", "no-answer", "down"}},
	{name: "CheckSubnetManager", about: "There is one master, and all ports know it",
		looks: []doctor.Check{doctor.Managers}},
	{name: "CheckPortCounters", about: "No counter is above its limit", looks: []doctor.Check{doctor.Errors},
		counters: true},
	{name: "CheckDuplicateNodes", about: "No two systems have the same name", also: (*Server).sameNames},
	{name: "CheckDuplicateGuids", about: "No two nodes and no two ports have the same GUID",
		looks: []doctor.Check{doctor.GUIDs}},
	{name: "CheckRouting", about: "There is a way from every host to every other, and no loop",
		looks: []doctor.Check{doctor.Routing, doctor.Lanes}},
	{name: "CheckLinkSpeed", about: "Every link is as fast as both its ends can be",
		also: slower(func(is, can ib.LinkRate) bool { return is.Speed < can.Speed })},
	{name: "CheckLinkWidth", about: "Every link is as wide as both its ends can be",
		also: slower(func(is, can ib.LinkRate) bool { return is.Width.Lanes() < can.Width.Lanes() })},
	{name: "CheckPartitionKey", about: "Every port has the keys of its partitions, and switches enforce them",
		looks: []doctor.Check{doctor.Partitions}, also: (*Server).wrongKeys},
	{name: "CheckCables", about: "No cable damages signals or loses them", looks: []doctor.Check{doctor.Cables},
		counters: true},
	{name: "CheckEffectiveBER", about: "No cable has a bit error rate above 1e-12", also: (*Server).errorRates},
	{name: "CheckSymbolBER", about: "No cable has a bit error rate above 1e-12", also: (*Server).errorRates},
	{name: "TreeTopologyValidation", about: "The cables make the fat tree that they should",
		also: (*Server).wrongWiring},
	{name: "ValidateNodesFirmwareVersion", about: "Nodes and programs are of one version",
		looks: []doctor.Check{doctor.Versions}},
}

// surveyWindow is how many questions the fabric's own nodes are asked at once.
const surveyWindow = 256

// run runs a test.
func (k *check) run(ctx context.Context, s *Server, progress func(percent int)) (found []finding, err error) {
	if k.also != nil {
		found = k.also(s)
	}
	if k.looks == nil {
		return found, ctx.Err()
	}
	from, keys, err := s.cfg.Manager.AskFrom()
	if err != nil {
		return found, err
	}
	session, err := s.cfg.Manager.OpenMgmt(from)
	if err != nil {
		return found, err
	}
	defer session.Close()
	o := doctor.RunOptions{CountersOnly: k.counters, Window: surveyWindow, Keys: keys,
		Progress: func(p survey.Progress) { progress(percent(p)) }}
	seen, err := doctor.Run(ctx, session, o)
	if err != nil {
		return found, err
	}
	report := doctor.Judge(seen.Before, seen.After,
		doctor.Options{Plan: s.cfg.Manager.Graph(), CountersOnly: k.counters, Version: s.cfg.Manager.Version(),
			Tenants: s.cfg.Manager.Acknowledged(), Routes: seen.Routes})
	for _, c := range k.looks {
		section := report.Section(c)
		if section == nil {
			continue
		}
		for _, f := range section.Findings {
			if f.Severity < doctor.Warn || k.kinds != nil && !slices.Contains(k.kinds, f.Kind) {
				continue
			}
			text := f.Measured
			if f.Next != "" {
				text += "; " + f.Next
			}
			found = append(found, finding{severe: f.Severity >= doctor.Fail, text: text,
				object: strings.Join(f.Objects, " ")})
		}
	}
	return found, nil
}

// percent is how far a survey is, of what it knows that there is; the last one comes with the result.
func percent(p survey.Progress) int {
	if p.Total <= 0 {
		return 0
	}
	return min(99*p.Done/p.Total, 99)
}

// sameNames finds systems that call themselves the same.
func (s *Server) sameNames() (found []finding) {
	at := map[string]*topo.Node{}
	for _, n := range s.cfg.Manager.Graph().Nodes {
		if was := at[n.Desc]; was != nil && n.Desc != "" && was.SystemGUID != n.SystemGUID {
			found = append(found, finding{text: fmt.Sprintf("%q is the description of %s and of %s", n.Desc,
				guidText(was.GUID), guidText(n.GUID)), object: n.Name})
		}
		at[n.Desc] = n
	}
	return found
}

// slower finds links that run at less than their ends can do.
func slower(less func(is, can ib.LinkRate) bool) func(*Server) []finding {
	return func(s *Server) (found []finding) {
		m := s.cfg.Manager
		sample := m.Fresh()
		for i, c := range m.Cables() {
			k, ok := m.PortIndex(c.A)
			if !ok {
				continue
			}
			if p := &sample.Ports[k]; p.State > ib.PortDown && p.Rate.Mbps() > 0 && p.Capable.Mbps() > 0 &&
				less(p.Rate, p.Capable) {
				found = append(found, finding{text: fmt.Sprintf("%s runs at %v, and both ends can do %v", m.LinkName(i),
					p.Rate, p.Capable), object: m.LinkName(i)})
			}
		}
		return found
	}
}

// berMax is what InfiniBand is specified for.
const berMax = 1e-12

// errorRates finds cables that damage too much.
func (s *Server) errorRates() (found []finding) {
	g := s.cfg.Manager.Graph()
	for _, v := range s.cfg.Manager.Worst() {
		if v.BER > berMax {
			found = append(found, finding{severe: severityOf(&v) == sevCritical,
				text:   fmt.Sprintf("%s: bit error rate about %.1g, want at most %.0g", v.Name(g), v.BER, berMax),
				object: v.Name(g)})
		}
	}
	return found
}

// wrongWiring finds cables that are not where a fat tree has them.
func (s *Server) wrongWiring() (found []finding) {
	r := wiring.Check(s.cfg.Manager.Graph(), wiring.Options{})
	if !r.IsTree {
		return []finding{{severe: true, text: "this is no fat tree: " + r.NotATree}}
	}
	for _, f := range r.Findings {
		if f.Severity < wiring.Warning {
			continue
		}
		text := f.Text
		if f.Do != "" {
			text += "; " + f.Do
		}
		found = append(found, finding{severe: f.Severity > wiring.Warning, text: text, object: f.Node})
	}
	return found
}

// wrongKeys holds the tables of ports against the tenants.
func (s *Server) wrongKeys() (found []finding) {
	if s.cfg.Tenants == nil {
		return nil
	}
	m := s.cfg.Manager
	g := m.Graph()
	tenants := s.cfg.Tenants.List()
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
			for i := range tenants {
				t := &tenants[i]
				x, in := t.Member(h.PortGUID(ib.PortNum(p)))
				k, there := has[t.Key]
				if what := mismatch(x, in, k, there); what != "" {
					found = append(found, finding{severe: true,
						text:   fmt.Sprintf("%s %s partition %s (%s)", g.PortName(r), what, t.Name, keyText(t.Key)),
						object: g.PortName(r)})
				}
			}
		}
	}
	return found
}

// mismatch says how a key in a port's table differs from what the port is a member of.
func mismatch(x tenant.Member, in bool, k ib.PKey, there bool) string {
	switch {
	case in && !there:
		return "has no key of"
	case there && !in:
		return "has a key, and is no member, of"
	case in && k.IsFull() && !x.Full:
		return "has the key of a full member, and is a limited one, of"
	case in && !k.IsFull() && x.Full:
		return "has the key of a limited member, and is a full one, of"
	}
	return ""
}
