package ufm

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"softib/operate/manager"
	"softib/proto/ib"
	"softib/proto/topo"
)

// reading is what a port, or all ports of a system together, show in a sample.
type reading struct {
	counters ib.Counters
	// Bytes and packets a second.
	xmit, rcv, xmitPkts, rcvPkts float64
	// full is what the links carry, held what they would have sent had there been credits, both in bytes a second.
	full, held float64
}

func (x *reading) add(p *manager.PortSample) {
	for k, n := range p.Counters {
		x.counters[k] += n
	}
	x.xmit += float64(p.XmitBytes)
	x.rcv += float64(p.RcvBytes)
	x.xmitPkts += float64(p.XmitPkts)
	x.rcvPkts += float64(p.RcvPkts)
	full := float64(p.Rate.Mbps()) * 1e6 / 8
	x.full += full
	x.held += full * float64(p.Wait)
}

// percent is a part of what the links carry.
func (x *reading) percent(bytes float64) float64 {
	if x.full == 0 {
		return 0
	}
	return min(100*bytes/x.full, 100)
}

const megabyte = 1e6

// attribute is something that can be monitored, by UFM's name.
type attribute struct {
	name string
	of   func(*reading) float64
}

func counted(k ib.Counter) func(*reading) float64 {
	return func(x *reading) float64 { return float64(x.counters[k]) }
}

// attributes is all there are. UFM's guide has MBOut and MBIn in words of four bytes; those who plot their rates (LiCO)
// read them as megabytes a second.
var attributes = [...]attribute{
	{"Infiniband_MBOut", counted(ib.PortXmitData)},
	{"Infiniband_MBOutRate", func(x *reading) float64 { return x.xmit / megabyte }},
	{"Infiniband_MBIn", counted(ib.PortRcvData)},
	{"Infiniband_MBInRate", func(x *reading) float64 { return x.rcv / megabyte }},
	{"Infiniband_PckOut", counted(ib.PortXmitPkts)},
	{"Infiniband_PckOutRate", func(x *reading) float64 { return x.xmitPkts }},
	{"Infiniband_PckIn", counted(ib.PortRcvPkts)},
	{"Infiniband_PckInRate", func(x *reading) float64 { return x.rcvPkts }},
	{"Infiniband_RcvErrors", counted(ib.PortRcvErrors)},
	{"Infiniband_XmtDiscards", counted(ib.PortXmitDiscards)},
	{"Infiniband_SymbolErrors", counted(ib.SymbolErrorCounter)},
	{"Infiniband_LinkRecovers", counted(ib.LinkErrorRecoveryCounter)},
	{"Infiniband_LinkDowned", counted(ib.LinkDownedCounter)},
	{"Infiniband_LinkIntegrityErrors", counted(ib.LocalLinkIntegrityErrors)},
	{"Infiniband_RcvRemotePhysErrors", counted(ib.PortRcvRemotePhysicalErrors)},
	{"Infiniband_XmtConstraintErrors", counted(ib.PortXmitConstraintErrors)},
	{"Infiniband_RcvConstraintErrors", counted(ib.PortRcvConstraintErrors)},
	{"Infiniband_ExcBufOverrunErrors", counted(ib.ExcessiveBufferOverrunErrors)},
	{"Infiniband_RcvSwRelayErrors", counted(ib.PortRcvSwitchRelayErrors)},
	{"Infiniband_VL15Dropped", counted(ib.VL15Dropped)},
	{"Infiniband_XmitWait", counted(ib.PortXmitWait)},
	{"Infiniband_CumulativeErrors", func(x *reading) float64 { return float64(manager.ErrorTotal(&x.counters)) }},
	{"Infiniband_CBW", func(x *reading) float64 { return x.held / megabyte }},
	{"Infiniband_Normalized_MBOut", func(x *reading) float64 { return x.percent(x.xmit) }},
	{"Infiniband_Normalized_CBW", func(x *reading) float64 { return x.percent(x.held) }},
	{"Infiniband_NormalizedXW", func(x *reading) float64 { return x.percent(x.held) }},
}

// Words of UFM's for what is monitored, and how.
const (
	classDevice, classPort = "Device", "Port"
	functionRaw            = "RAW"
	everything             = "Grid.default"
)

// attributesShape is what can be asked for.
type attributesShape struct {
	Classes    []string `json:"classes"`
	Attributes []string `json:"attributes"`
	Functions  []string `json:"functions"`
}

func (s *Server) monitorable(c *call) error {
	names := make([]string, len(attributes))
	for i := range attributes {
		names[i] = attributes[i].name
	}
	c.json(attributesShape{[]string{classDevice, classPort}, names, []string{functionRaw}})
	return nil
}

// monitorShape is what is asked for, and a session of those who ask again.
type monitorShape struct {
	ID         string   `json:"id,omitempty"`
	Scope      string   `json:"scope_object"`
	Monitor    string   `json:"monitor_object"`
	Attributes []string `json:"attributes"`
	Functions  []string `json:"functions"`
	Interval   int      `json:"interval"`
	Objects    []string `json:"objects"`
	Location   string   `json:"location,omitempty"`

	chosen []attribute
	// all, or these systems and these ports.
	all   bool
	nodes map[int]bool
	ports map[int]bool
	// user began it, and it was asked for at.
	user  string
	asked time.Time
}

// Bounds of sessions. Who asks for nothing for a while has gone.
const (
	monitorsMax    = 64
	monitorsOfUser = 16
	intervalMax    = 3600 // seconds
	monitorRest    = 10 * time.Minute
)

// ends is when nobody asks for a session any more.
func (x *monitorShape) ends() time.Time {
	return x.asked.Add(monitorRest + 2*time.Duration(x.Interval)*time.Second)
}

// monitoring reads what a body asks for.
func (s *Server) monitoring(b *body) (*monitorShape, *Error) {
	x := &monitorShape{Scope: b.text("scope_object", "Site"), Monitor: b.text("monitor_object", ""),
		Attributes: b.list("attributes"), Functions: b.list("functions"), Objects: b.list("objects"), Interval: 30,
		nodes: map[int]bool{}, ports: map[int]bool{}}
	if b.has("interval") {
		if v := b.number("interval", true); b.err == nil && (v < 1 || v > intervalMax) {
			b.fail(bad("interval", "%v: want 1 to %d seconds", v, intervalMax))
		} else {
			x.Interval = int(v)
		}
	}
	if b.err != nil {
		return nil, b.err
	}
	if !slices.Contains([]string{"Site", classDevice, classPort}, x.Scope) {
		return nil, bad("scope_object", "%q: want Site, Device or Port", clip(x.Scope))
	}
	if x.Monitor != classDevice && x.Monitor != classPort {
		return nil, bad("monitor_object", "%q: want Device or Port", clip(x.Monitor))
	}
	if x.Functions == nil {
		x.Functions = []string{functionRaw}
	}
	for _, f := range x.Functions {
		if f != functionRaw {
			return nil, bad("functions", "%q: want RAW, as GET monitoring/attributes says", clip(f))
		}
	}
	x.Functions = slices.Compact(x.Functions)
	for _, name := range x.Attributes {
		i := slices.IndexFunc(attributes[:], func(a attribute) bool { return a.name == name })
		if i < 0 {
			return nil, bad("attributes", "%q: want names that GET monitoring/attributes lists", clip(name))
		}
		if !slices.ContainsFunc(x.chosen, func(a attribute) bool { return a.name == name }) {
			x.chosen = append(x.chosen, attributes[i])
		}
	}
	if len(x.chosen) == 0 {
		return nil, bad("attributes", "none: want names that GET monitoring/attributes lists")
	}
	x.Attributes = x.Attributes[:0]
	for _, a := range x.chosen {
		x.Attributes = append(x.Attributes, a.name)
	}
	if len(x.Objects) == 0 {
		return nil, bad("objects", "none: want %q for all, or %s.GUID and %s.GUID_PORT", everything, everything,
			everything)
	}
	for _, o := range x.Objects {
		if e := s.object(x, o); e != nil {
			return nil, e
		}
	}
	return x, nil
}

// object adds what is monitored: everything, a system or a port, each by what comes last in its path.
func (s *Server) object(x *monitorShape, path string) *Error {
	rest, ok := strings.CutPrefix(path, everything)
	if ok && rest == "" {
		x.all = true
		return nil
	}
	rest, ok = strings.CutPrefix(rest, ".")
	if !ok {
		return bad("objects", "%q: want %q for all, or %s.GUID and %s.GUID_PORT", clip(path), everything, everything,
			everything)
	}
	for _, name := range []string{rest, rest[strings.LastIndexByte(rest, '.')+1:]} {
		if n, err := s.cfg.Manager.Node(name); err == nil {
			x.nodes[n.Index] = true
			return nil
		}
		if i, ok := s.portByName(name); ok {
			x.ports[i] = true
			return nil
		}
	}
	return &Error{Status: http.StatusNotFound, Field: "objects",
		Reason: fmt.Sprintf("%q: want the GUID of a system of this fabric, or GUID_PORT, after %s", clip(path),
			everything)}
}

// monitors are the sessions that are there.
type monitors struct {
	mu   sync.Mutex
	last int
	list map[int]*monitorShape
}

// expire forgets sessions that nobody asks for.
func (m *monitors) expire(now time.Time) {
	for id, x := range m.list {
		if now.After(x.ends()) {
			delete(m.list, id)
		}
	}
}

// snapshot shows things once.
func (s *Server) snapshot(c *call) error {
	x, e := s.monitoring(c.body)
	if e != nil {
		return e
	}
	return s.writeMonitored(c, x, "")
}

// startMonitor begins a session, for a client that asks again and again.
func (s *Server) startMonitor(c *call) error {
	x, e := s.monitoring(c.body)
	if e != nil {
		return e
	}
	now := s.now()
	x.user, x.asked = c.user, now
	m := &s.monitors
	m.mu.Lock()
	m.expire(now)
	own := 0
	for _, y := range m.list {
		if y.user == x.user {
			own++
		}
	}
	if len(m.list) >= monitorsMax || own >= monitorsOfUser {
		m.mu.Unlock()
		e := refuse(http.StatusTooManyRequests, "%d sessions, %d of them yours: want at most %d and %d; DELETE those "+
			"that nobody reads, or wait until they end by themselves", len(m.list), own, monitorsMax, monitorsOfUser)
		e.after = time.Minute
		return e
	}
	if m.list == nil {
		m.list = map[int]*monitorShape{}
	}
	m.last++
	x.ID = strconv.Itoa(m.last)
	m.list[m.last] = x
	m.mu.Unlock()
	o := *x
	o.Location = c.root + "/monitoring/session/" + o.ID
	c.w.Header().Set("Location", o.Location)
	writeJSON(c.w, http.StatusAccepted, o)
	return nil
}

// monitor finds a session, which is asked for by that. Number 0 is always there, and has everything.
func (s *Server) monitor(c *call) (*monitorShape, *Error) {
	id, e := c.number("id")
	if e != nil {
		return nil, e
	}
	if id == 0 {
		names := make([]string, len(attributes))
		for i := range attributes {
			names[i] = attributes[i].name
		}
		return &monitorShape{ID: "0", Scope: "Site", Monitor: classPort, Attributes: names,
			Functions: []string{functionRaw}, Interval: 30, Objects: []string{everything}, chosen: attributes[:],
			all: true}, nil
	}
	now := s.now()
	m := &s.monitors
	m.mu.Lock()
	defer m.mu.Unlock()
	m.expire(now)
	x := m.list[int(id)]
	if x == nil {
		return nil, &Error{Status: http.StatusNotFound, Field: "id",
			Reason: fmt.Sprintf("there is no session %d: begin one with POST monitoring/start", id)}
	}
	o := *x
	x.asked = now
	return &o, nil
}

func (s *Server) showMonitor(c *call) error {
	x, e := s.monitor(c)
	if e != nil {
		return e
	}
	c.json(x)
	return nil
}

func (s *Server) monitorData(c *call) error {
	x, e := s.monitor(c)
	if e != nil {
		return e
	}
	return s.writeMonitored(c, x, c.query.text("pkey"))
}

func (s *Server) deleteMonitor(c *call) error {
	x, e := s.monitor(c)
	switch {
	case e != nil:
		return e
	case x.ID == "0":
		return &Error{Status: http.StatusConflict, Field: "id", Reason: "session 0 is always there: want one that " +
			"POST monitoring/start began"}
	}
	id, _ := strconv.Atoi(x.ID)
	s.monitors.mu.Lock()
	delete(s.monitors.list, id)
	s.monitors.mu.Unlock()
	c.json(struct{}{})
	return nil
}

// writeMonitored writes the last sample, object by object, as writeList does with lists: by its time, by class, by
// name. Pkey, if there is one, leaves what is in that partition.
func (s *Server) writeMonitored(c *call, x *monitorShape, pkey string) error {
	var members map[string]bool
	if pkey != "" {
		k, e := parseKey("pkey", pkey)
		if e != nil {
			return e
		}
		p, ok := s.one(k, true, false)
		if !ok {
			return s.absent(k)
		}
		if k != ib.PKeyBase { // everybody is in that one
			members = map[string]bool{}
			for _, r := range *p.GUIDs {
				members[r.GUID] = true
			}
		}
	}
	sm := s.cfg.Manager.Sample()
	h := c.w.Header()
	h.Set("Content-Type", "application/json")
	b := bufio.NewWriterSize(c.w, 32<<10)
	defer b.Flush()
	at := stamp(sm.At)
	fmt.Fprintf(b, `{%q:{%q:{`, at, x.Monitor)
	comma := ""
	s.readings(x, sm, members, func(name, shown string, r *reading) bool {
		dname, err := json.Marshal(shown)
		if err != nil {
			return false
		}
		fmt.Fprintf(b, `%s%q:{"dname":%s,"last_updated":%q,"statistics":{`, comma, name, dname, at)
		comma = ","
		for i, a := range x.chosen {
			if i > 0 {
				b.WriteByte(',')
			}
			b.WriteByte('"')
			b.WriteString(a.name)
			b.WriteString(`":`)
			b.Write(strconv.AppendFloat(b.AvailableBuffer(), math.Round(a.of(r)*1e6)/1e6, 'f', -1, 64))
		}
		_, err = b.WriteString("}}")
		return err == nil
	})
	b.WriteString("}}}")
	return nil
}

// readings shows what is asked for: the ports that have a cable, or systems with the sum of those.
func (s *Server) readings(x *monitorShape, sm *manager.Sample, members map[string]bool,
	yield func(name, shown string, r *reading) bool) {
	m := s.cfg.Manager
	list := m.Ports()
	for from, to := 0, 0; from < len(list); from = to {
		n := m.Graph().Nodes[list[from].Node]
		var sum reading
		in := false
		for to = from; to < len(list) && list[to].Node == n.Index; to++ {
			r := list[to]
			wanted := x.all || x.nodes[n.Index] || x.ports[to]
			in = in || wanted && (members == nil || members[guidText(portGUID(n, r.Port))])
			if !n.Ports[r.Port].Connected() {
				continue
			}
			if x.Monitor == classDevice {
				sum.add(&sm.Ports[to])
			} else if wanted && (members == nil || members[guidText(portGUID(n, r.Port))]) {
				var one reading
				one.add(&sm.Ports[to])
				if !yield(portName(n, r.Port), fmt.Sprint(r.Port), &one) {
					return
				}
			}
		}
		if x.Monitor == classDevice && in && !yield(guidText(n.GUID), n.Name, &sum) {
			return
		}
	}
}

// topShape is one of the largest.
type topShape struct {
	Name        string  `json:"name"`
	Description string  `json:"description"`
	Value       float64 `json:"value"`
}

// topMost is how many of the largest are shown.
const topMost = 10

// topX lists the systems and ports that send, receive, wait or make others wait most, or have most alarms.
func (s *Server) topX(c *call) error {
	kind := c.query.oneOf("object", "servers", "switches")
	attr := c.query.oneOf("attr", "bw", "cong", "alarms")
	if c.query.err != nil {
		return c.query.err
	}
	switch {
	case kind == "":
		return bad("object", "missing: want servers or switches")
	case attr == "":
		return bad("attr", "missing: want bw, cong or alarms")
	}
	m := s.cfg.Manager
	g, sm := m.Graph(), m.Sample()
	tops := map[string]map[string][]topShape{"device": {}, "port": {}}
	put := func(class, mode, name, about string, v float64) {
		list := tops[class][mode]
		if list == nil {
			list = []topShape{} // an empty list is no null
		}
		if v > 0 {
			list = append(list, topShape{name, about, math.Round(v*1e6) / 1e6})
			slices.SortStableFunc(list, func(a, b topShape) int { return cmp.Compare(b.Value, a.Value) })
			list = list[:min(len(list), topMost)]
		}
		tops[class][mode] = list
	}
	alarms := s.troubles().byNode
	for _, n := range g.Nodes {
		if n.IsSwitch() != (kind == "switches") {
			continue
		}
		if attr == "alarms" {
			put("device", "Alarms", guidText(n.GUID), n.Name, float64(alarms[n.Index]))
			continue
		}
		var own, peers reading
		for p := 1; p <= n.NumPorts(); p++ {
			r := topo.PortRef{Node: n.Index, Port: ib.PortNum(p)}
			i, ok := m.PortIndex(r)
			if !ok || !n.Ports[p].Connected() {
				continue
			}
			var here, there reading
			here.add(&sm.Ports[i])
			if k, ok := m.PortIndex(topo.PortRef{Node: n.Ports[p].Peer, Port: n.Ports[p].PeerPort}); ok {
				there.add(&sm.Ports[k])
			}
			putTop(put, "port", attr, portName(n, r.Port), portDesc(n, r.Port), &here, &there)
			own.add(&sm.Ports[i])
			peers.held += there.held
		}
		putTop(put, "device", attr, guidText(n.GUID), n.Name, &own, &peers)
	}
	c.json(map[string]any{"data": tops})
	return nil
}

// putTop shows a port or a system by what it does and what is at the other end: who is waited for has a neighbour that
// waits.
func putTop(put func(class, mode, name, about string, v float64), class, attr, name, about string,
	here, there *reading) {
	if attr == "bw" {
		put(class, "TxBW", name, about, here.xmit/megabyte)
		put(class, "RxBW", name, about, here.rcv/megabyte)
		return
	}
	put(class, "TCBW", name, about, here.held/megabyte)
	put(class, "RCBW", name, about, there.held/megabyte)
}
