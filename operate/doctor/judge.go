package doctor

import (
	"time"

	"softib/operate/manager/health"
	"softib/operate/manager/tenant"
	"softib/proto/ib"
	"softib/proto/topo"
	"softib/subnet/route"
	"softib/subnet/survey"
)

// Options are what a judgement knows besides surveys.
type Options struct {
	// Thresholds are the limits of counters; nil: health.Default.
	Thresholds *health.Thresholds
	// Plan, where there is one, is what should be there: cables of the plan that are not up are named by it.
	Plan *topo.Graph
	// Routes are what Run found the tables to be worth; nil: that is worked out.
	Routes *route.Report
	// CountersOnly leaves out what was not surveyed on purpose.
	CountersOnly bool

	// Version is that of the fabric's own software; Programs use the fabric, and Hosts are what theirs carried. What is
	// not known is left out.
	Version  string
	Programs []ProgramFacts
	Hosts    []HostTraffic
	// Manager is the port GUID of the manager that the fabric's keeper runs; 0 if there is none.
	Manager ib.GUID
	// Tenants are those that the fabric's keeper has acknowledged.
	Tenants []tenant.Tenant
}

// ProgramFacts is a program that uses the fabric.
type ProgramFacts struct {
	Host string `json:"host"`
	PID  int    `json:"pid"`
	Name string `json:"name"`
	// Version is that of the library in it.
	Version string `json:"version"`
}

// HostTraffic is what a host has sent by IP over InfiniBand, and what by queue pairs of its programs.
type HostTraffic struct {
	Host        string `json:"host"`
	IPBytes     uint64 `json:"ip_bytes"`
	NativeBytes uint64 `json:"native_bytes"`
}

// judgement is one call to Judge.
type judgement struct {
	o             Options
	t             health.Thresholds
	s             *survey.Survey // the later one
	before        *survey.Survey
	interval      time.Duration
	cables        []health.Cable
	report        *Report
	duplicateGUID map[ib.GUID]bool
	down          map[string]bool // ports that are said to be down, by name
}

// Judge says what is wrong. After may be nil: the counters of before are then judged as they stand.
func Judge(before, after *survey.Survey, o Options) *Report {
	j := &judgement{o: o, s: before, before: before, report: &Report{}, down: map[string]bool{}}
	if after != nil {
		j.s = after
		j.interval = time.Duration((counted(after) - counted(before)) / ib.Nanosecond)
		if j.interval <= 0 {
			j.interval = 0 // no counters
		}
	}
	j.t = health.Default()
	if o.Thresholds != nil {
		j.t = *o.Thresholds
	}
	j.describe()
	j.gather()
	checks := []struct {
		check    Check
		do       func(*Section)
		counters bool // made with --counters-only too
	}{
		{Answers, j.answers, true},
		{GUIDs, j.guids, false},
		{LIDs, j.lids, false},
		{Links, j.links, false},
		{Wiring, j.wiring, false},
		{Cables, j.badCables, true},
		{Errors, j.errors, true},
		{Congestion, j.congestion, true},
		{Routing, j.routing, false},
		{Lanes, j.lanes, false},
		{Partitions, j.partitions, false},
		{Managers, j.managers, false},
		{Versions, j.versions, false},
		{Traffic, j.traffic, false},
	}
	for _, c := range checks {
		if o.CountersOnly && !c.counters {
			continue
		}
		s := Section{Check: c.check, Title: c.check.Title()}
		c.do(&s)
		s.close()
		j.report.Severity = max(j.report.Severity, s.Severity)
		j.report.Sections = append(j.report.Sections, s)
	}
	return j.report
}

// describe says what was looked at.
func (j *judgement) describe() {
	f := &j.report.Fabric
	f.From = j.s.PortName(j.s.From)
	for _, n := range j.s.Nodes {
		switch n.Info.NodeType {
		case ib.NodeSwitch:
			f.Switches++
		case ib.NodeRouter:
			f.Routers++
		default:
			if j.isPart(n) {
				f.ServiceNodes++
			} else {
				f.Hosts++
			}
		}
	}
	f.Questions = j.s.Asked
	j.report.IntervalSec = j.interval.Seconds()
}

// isPart is topo.Graph.IsPart for a node that was asked.
func (j *judgement) isPart(n *survey.Node) bool {
	if n.Info.NumPorts != 1 || n.Ports[1].Peer == survey.None {
		return false
	}
	says := func(n *survey.Node) *topo.Node { return &topo.Node{SystemGUID: n.Info.SystemImageGUID, Desc: n.Desc} }
	far := j.s.Nodes[n.Ports[1].Peer]
	return far.IsSwitch() && topo.IsPart(says(n), says(far))
}

// gather makes the cables that health judges.
func (j *judgement) gather() {
	for _, c := range j.s.Cables() {
		j.cables = append(j.cables, health.Cable{A: j.end(c.A), B: j.end(c.B)})
	}
	j.report.Fabric.Cables = len(j.cables)
	j.duplicateGUID = map[ib.GUID]bool{}
	seen := map[ib.GUID]bool{}
	for _, n := range j.s.Nodes {
		if seen[n.Info.NodeGUID] {
			j.duplicateGUID[n.Info.NodeGUID] = true
		}
		seen[n.Info.NodeGUID] = true
	}
}

func (j *judgement) end(r topo.PortRef) health.End {
	p := j.s.Port(r)
	e := health.End{Ref: r}
	if p.Known {
		e.State, e.Rate = p.Info.PortState, p.Info.Rate()
		e.Capable = ib.LinkRate{Width: p.Info.LinkWidthSupported.Widest(), Speed: p.Info.SupportedSpeed()}
	}
	e.Total = j.s.Reading(r).Counters
	e.Delta = j.delta(r)
	return e
}

// delta is what a port counted between the two looks. A counter that is smaller than it was has been reset: what it
// shows is then from since.
func (j *judgement) delta(r topo.PortRef) (d ib.Counters) {
	if j.s == j.before {
		return d
	}
	a, b := j.before.Reading(r), j.s.Reading(r)
	if !a.Valid || !b.Valid {
		return d
	}
	for c := range d {
		d[c] = b.Counters[c]
		if a.Counters[c] <= b.Counters[c] {
			d[c] -= a.Counters[c]
		}
	}
	return d
}

// counts is what a port is judged by: the interval's counts, or all where there is no interval.
func (j *judgement) counts(r topo.PortRef) ib.Counters {
	if j.interval > 0 {
		return j.delta(r)
	}
	return j.s.Reading(r).Counters
}

// where names a port and, if it is known, what it is plugged into: "h5[1] behind leaf2[1]".
func (j *judgement) where(r topo.PortRef) string {
	s := j.s.PortName(r)
	if p := j.s.Port(r); r.Port != 0 && p.Cabled() {
		s += " behind " + j.s.PortName(topo.PortRef{Node: p.Peer, Port: p.PeerPort})
	}
	return s
}

// whereNode names a node and what it is plugged into: a switch, if it is plugged into one.
func (j *judgement) whereNode(i int) string {
	n := j.s.Nodes[i]
	if len(n.Route) == 0 {
		return n.Name + ", the one that asks"
	}
	at := ""
	for p := 1; p < len(n.Ports); p++ {
		if x := &n.Ports[p]; x.Cabled() && (at == "" || j.s.Nodes[x.Peer].IsSwitch()) {
			at = " behind " + j.s.PortName(topo.PortRef{Node: x.Peer, Port: x.PeerPort})
			if j.s.Nodes[x.Peer].IsSwitch() {
				break
			}
		}
	}
	return n.Name + at
}
