package webui

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"softib/operate/manager"
	"softib/operate/manager/health"
	"softib/proto/ib"
	"softib/proto/topo"
)

// status is the fabric in some numbers: the head of every page.
type status struct {
	Name     string    `json:"name"`
	At       time.Time `json:"at"`
	Interval float64   `json:"interval_ms"`
	Started  time.Time `json:"started"`
	Hosts    int       `json:"hosts"`
	// Channel adapters that are part of switches.
	ServiceNodes int `json:"service_nodes"`
	Switches     int `json:"switches"`
	Cables       int `json:"cables"`
	Active       int `json:"active"`
	Down         int `json:"down"`
	// Bytes a second that hosts send and receive, all together.
	Sent     float64 `json:"sent_Bps"`
	Received float64 `json:"received_Bps"`
	// Cables that have an alarm which is not muted.
	Alarmed int `json:"alarmed"`
	// Faults that are set for a rehearsal.
	Faults    []string `json:"faults"`
	Manager   string   `json:"manager"`
	LastEvent uint64   `json:"last_event"`
	Alarms    int      `json:"alarms"`
	// Tenants counts them; their revision moves on with every change.
	Tenants         int    `json:"tenants"`
	TenantsRevision uint64 `json:"tenants_revision"`
	Programs        int    `json:"programs"`
}

func readStatus(m *manager.Manager) status {
	s, g := m.Sample(), m.Graph()
	hosts, service := g.HostsApart()
	st := status{
		Name: m.Name(), At: s.At, Interval: millis(s.Interval), Started: m.Started(), Hosts: len(hosts),
		ServiceNodes: len(service), Switches: len(g.Switches()),
		Cables: len(m.Cables()), Active: s.Active, Down: s.Down, Sent: s.XmitBytes, Received: s.RcvBytes,
		LastEvent: m.Journal().Last(), Faults: []string{},
	}
	for _, f := range m.Faults() {
		st.Faults = append(st.Faults, f.Link+": "+f.String())
	}
	open := m.OpenAlarms()
	st.Alarms, st.Alarmed, st.Programs = len(open), alarmed(open), len(m.Fabric().Programs())
	if b := m.Tenants(); b != nil {
		st.Tenants, st.TenantsRevision = len(b.List()), b.Revision()
	}
	st.Manager = "not ours"
	if sub := m.Subnet(); sub.Managed {
		st.Manager = sub.State
		if sub.Sweeping {
			st.Manager = "sweeping"
		}
	}
	return st
}

// found is something that a search fits.
type found struct {
	Kind string `json:"kind"`
	Name string `json:"name"`
	// Why it fits: its GUID or LID, where not its name.
	Why string `json:"why,omitempty"`
}

const foundMax = 20

// search finds nodes by their names, by GUIDs and by LIDs: exact ones first, then those that begin so, then those that
// have it in them.
func (s *Server) search(r *http.Request) (any, error) {
	q := strings.ToLower(strings.TrimSpace(r.URL.Query().Get("q")))
	if q == "" || len(q) > 100 {
		return nil, badField("q", "type a host, a switch, a GUID or a LID", "q has %d characters: want 1 to 100",
			len(q))
	}
	var ranked [3][]found
	add := func(rank int, n *topo.Node, why string) {
		ranked[rank] = append(ranked[rank], found{Kind: kindOf(n), Name: n.Name, Why: why})
	}
	if p, err := s.m.Port(q); err == nil && strings.ContainsAny(q, "[/") {
		if i, ok := s.m.CableOf(p); ok {
			ranked[0] = append(ranked[0], found{Kind: "link", Name: s.m.Graph().PortName(p), Why: s.m.LinkName(i)})
		}
	}
	lid, lidErr := strconv.ParseUint(strings.TrimPrefix(q, "lid"), 0, 16)
	hex := strings.TrimPrefix(q, "0x")
	// A LID is read from the nodes themselves: 13,000 of them take some milliseconds.
	for _, n := range s.m.Graph().Nodes {
		name := strings.ToLower(n.Name)
		switch {
		case name == q:
			add(0, n, "")
		case strings.HasPrefix(name, q):
			add(1, n, "")
		case strings.Contains(name, q):
			add(2, n, "")
		case len(hex) >= 4 && strings.Contains(guidText(n.GUID), hex):
			add(guidRank(guidText(n.GUID), hex), n, "GUID 0x"+guidText(n.GUID))
		case len(hex) >= 4:
			for p := 1; p < len(n.Ports) && !n.IsSwitch(); p++ {
				if g := guidText(n.PortGUID(ib.PortNum(p))); strings.Contains(g, hex) {
					add(guidRank(g, hex), n, "port "+strconv.Itoa(p)+", GUID 0x"+g)
					break
				}
			}
		}
	}
	if lidErr == nil && lid > 0 {
		if n, p, ok := s.byLID(ib.LID(lid)); ok {
			ranked[0] = append(ranked[0], found{Kind: kindOf(n), Name: n.Name, Why: "LID " +
				strconv.FormatUint(lid, 10) + p})
		}
	}
	list := []found{}
	for _, part := range ranked {
		for _, f := range part {
			if len(list) < foundMax {
				list = append(list, f)
			}
		}
	}
	return list, nil
}

func guidText(g ib.GUID) string {
	t := strconv.FormatUint(uint64(g), 16)
	return strings.Repeat("0", 16-len(t)) + t
}

func guidRank(guid, q string) int {
	if guid == q {
		return 0
	}
	return 2
}

// byLID finds who has an address.
func (s *Server) byLID(lid ib.LID) (*topo.Node, string, bool) {
	for _, n := range s.m.Graph().Nodes {
		last := n.NumPorts()
		if n.IsSwitch() {
			last = 0
		}
		for p := min(1, last); p <= last; p++ {
			pi, ok := s.m.Fabric().PortInfo(topo.PortRef{Node: n.Index, Port: ib.PortNum(p)})
			if ok && pi.LID != 0 && lid >= pi.LID && lid < pi.LID+1<<pi.LMC {
				if p > 1 {
					return n, ", port " + strconv.Itoa(p), true
				}
				return n, "", true
			}
		}
	}
	return nil, "", false
}

func kindOf(n *topo.Node) string {
	switch n.Type {
	case ib.NodeSwitch:
		return "switch"
	case ib.NodeRouter:
		return "router"
	}
	return "host"
}

// nodeShown is a host or a switch.
type nodeShown struct {
	Name    string      `json:"name"`
	Kind    string      `json:"kind"`
	GUID    string      `json:"guid"`
	Desc    string      `json:"description,omitempty"`
	System  string      `json:"system_guid,omitempty"`
	LID     uint16      `json:"lid"`
	Cables  int         `json:"cables"`
	Ports   []portShown `json:"ports"`
	Tenants []string    `json:"tenants,omitempty"`
}

// portShown is one end of a cable, as it is now.
type portShown struct {
	Port     int      `json:"port"`
	Name     string   `json:"name"`
	Peer     string   `json:"peer,omitempty"`
	PeerKind string   `json:"peer_kind,omitempty"`
	PeerPort int      `json:"peer_port,omitempty"`
	State    string   `json:"state"`
	GUID     string   `json:"guid,omitempty"`
	LID      uint16   `json:"lid,omitempty"`
	MTU      string   `json:"mtu,omitempty"`
	Rate     string   `json:"rate,omitempty"`
	Mbps     int64    `json:"mbps,omitempty"`
	Slow     string   `json:"could_be,omitempty"` // the rate that both ends could
	Sent     float64  `json:"sent_Bps"`
	Received float64  `json:"received_Bps"`
	SentPkts float64  `json:"sent_pps"`
	RcvPkts  float64  `json:"received_pps"`
	Wait     float64  `json:"wait"`
	ErrorsPS float64  `json:"errors_ps"`
	Errors   uint64   `json:"errors"`
	Discards uint64   `json:"discards"`
	Health   string   `json:"health"`
	Why      []string `json:"why,omitempty"`
	Fault    string   `json:"fault,omitempty"`
	PKeys    []string `json:"pkeys,omitempty"`

	Counters []counterShown `json:"counters,omitempty"`
}

// counterShown is a counter with its total.
type counterShown struct {
	Name  string `json:"name"`
	Value uint64 `json:"value"`
	// Means says what a fault counter counts; empty for traffic.
	Means string `json:"means,omitempty"`
}

// node answers with a host or a switch.
func (s *Server) node(r *http.Request) (any, error) {
	n, err := s.m.Node(r.URL.Query().Get("name"))
	if err != nil {
		return nil, unknown("name", err)
	}
	show := nodeShown{Name: n.Name, Kind: kindOf(n), GUID: "0x" + guidText(n.GUID), Desc: n.Desc, Ports: []portShown{}}
	if n.SystemGUID != n.GUID {
		show.System = "0x" + guidText(n.SystemGUID)
	}
	sample, verdicts, faults := s.m.Sample(), s.verdicts(), s.faultTexts()
	for p := 1; p <= n.NumPorts(); p++ {
		ref := topo.PortRef{Node: n.Index, Port: ib.PortNum(p)}
		if n.Ports[p].Connected() {
			show.Cables++
		}
		show.Ports = append(show.Ports, s.port(ref, sample, verdicts, faults, !n.IsSwitch()))
	}
	if b := s.m.Tenants(); b != nil {
		for _, t := range b.List() {
			for p := 1; p <= n.NumPorts(); p++ {
				if _, ok := t.Member(n.PortGUID(ib.PortNum(p))); ok {
					show.Tenants = append(show.Tenants, t.Name)
					break
				}
			}
		}
	}
	if n.NumPorts() > 0 {
		show.LID = uint16(s.m.LID(topo.PortRef{Node: n.Index, Port: 1}))
	}
	return show, nil
}

// verdicts are what is wrong with cables, by cable.
func (s *Server) verdicts() map[int]*health.Verdict {
	list := s.m.Worst()
	by := make(map[int]*health.Verdict, len(list))
	for i := range list {
		by[list[i].Cable] = &list[i]
	}
	return by
}

// faultTexts are the faults that are set, by cable.
func (s *Server) faultTexts() map[int]string {
	by := map[int]string{}
	for _, f := range s.m.Faults() {
		if i, ok := s.m.CableOf(f.Port); ok {
			by[i] = f.String()
		}
	}
	return by
}

// port is one port with what is at its other end.
func (s *Server) port(ref topo.PortRef, sample *manager.Sample, verdicts map[int]*health.Verdict, faults map[int]string,
	whole bool) portShown {
	g := s.m.Graph()
	show := portShown{Port: int(ref.Port), Name: g.PortName(ref), State: "no cable", Health: health.OK.String()}
	pi, _ := s.m.Fabric().PortInfo(ref)
	if n := g.Nodes[ref.Node]; !n.IsSwitch() {
		show.GUID, show.LID = "0x"+guidText(n.PortGUID(ref.Port)), uint16(pi.LID)
	}
	p := g.Port(ref)
	if !p.Connected() {
		return show
	}
	far := g.Nodes[p.Peer]
	show.Peer, show.PeerKind, show.PeerPort = far.Name, kindOf(far), int(p.PeerPort)
	if i, ok := s.m.PortIndex(ref); ok {
		q := &sample.Ports[i]
		show.State = q.State.String()
		if q.State > ib.PortDown {
			show.Rate, show.Mbps = q.Rate.String(), q.Rate.Mbps()
			show.MTU = pi.NeighborMTU.String()
			if q.Capable.Mbps() > q.Rate.Mbps() {
				show.Slow = q.Capable.String()
			}
		}
		show.Sent, show.Received = float64(q.XmitBytes), float64(q.RcvBytes)
		show.SentPkts, show.RcvPkts = float64(q.XmitPkts), float64(q.RcvPkts)
		show.Wait, show.ErrorsPS, show.Errors = float64(q.Wait), float64(q.Errors), manager.ErrorTotal(&q.Counters)
		show.Discards = q.Counters.Discards()
		if whole {
			show.Counters = counters(&q.Counters)
			for _, k := range s.m.Fabric().PKeys(ref) {
				if k.IsValid() {
					show.PKeys = append(show.PKeys, k.String())
				}
			}
		}
	}
	if i, ok := s.m.CableOf(ref); ok {
		if v := verdicts[i]; v != nil {
			show.Health = v.Severity.String()
			for k := range v.Reasons {
				show.Why = append(show.Why, v.Reasons[k].Text(g))
			}
		}
		show.Fault = faults[i]
	}
	return show
}

// linkShown is a cable with both ends.
type linkShown struct {
	Name   string       `json:"name"`
	Index  int          `json:"index"`
	Length int32        `json:"length_mm"`
	Health string       `json:"health"`
	Why    []string     `json:"why"`
	Fault  *faultShown  `json:"fault,omitempty"`
	Ends   [2]portShown `json:"ends"`
	Nodes  [2]string    `json:"nodes"`
}

// link answers with a cable.
func (s *Server) link(r *http.Request) (any, error) {
	ref, err := s.linkNamed("port", r.URL.Query().Get("port"))
	if err != nil {
		return nil, err
	}
	i, _ := s.m.CableOf(ref)
	c := s.m.Cables()[i]
	g := s.m.Graph()
	sample, verdicts, faults := s.m.Sample(), s.verdicts(), s.faultTexts()
	show := linkShown{Name: s.m.LinkName(i), Index: i, Length: c.LengthMM,
		Nodes: [2]string{g.Nodes[c.A.Node].Name, g.Nodes[c.B.Node].Name}}
	for k, e := range [2]topo.PortRef{c.A, c.B} {
		show.Ends[k] = s.port(e, sample, verdicts, faults, true)
	}
	show.Health, show.Why = show.Ends[0].Health, show.Ends[0].Why
	for _, f := range s.shownFaults() {
		if f.Link == show.Name {
			show.Fault = &f
		}
	}
	return show, nil
}

// linkNamed finds a cable by one port or by two.
func (s *Server) linkNamed(field, name string) (topo.PortRef, error) {
	words := strings.Fields(name)
	if len(words) == 0 || len(words) > 2 {
		return topo.PortRef{}, badField(field, "name a port, such as leaf1[5], or both ends",
			"%s is %q: want a link by one or both of its ports", field, name)
	}
	ref, err := s.m.LinkOf(words...)
	if err != nil {
		return ref, unknown(field, err)
	}
	return ref, nil
}

// routeShown is a way in one direction.
type routeShown struct {
	From    string     `json:"from"`
	To      string     `json:"to"`
	SL      uint8      `json:"sl"`
	PKey    string     `json:"pkey"`
	Hops    []hopShown `json:"hops"`
	Arrives bool       `json:"arrives"`
	Why     string     `json:"why,omitempty"`
	Lost    string     `json:"lost,omitempty"`
}

type hopShown struct {
	Cable int     `json:"cable"`
	Out   string  `json:"out"`
	In    string  `json:"in"`
	VL    uint8   `json:"vl"`
	Rate  string  `json:"rate"`
	Sent  float64 `json:"sent_Bps"`
	Mbps  int64   `json:"mbps"`
	Wait  float64 `json:"wait"`
}

// route answers with the way between two hosts, there and back.
func (s *Server) route(r *http.Request) (any, error) {
	from, err := s.endPort("from", r.URL.Query().Get("from"))
	if err != nil {
		return nil, err
	}
	to, err := s.endPort("to", r.URL.Query().Get("to"))
	if err != nil {
		return nil, err
	}
	if from == to {
		return nil, badField("to", "name another host", "%s is both ends", s.m.Graph().PortName(to))
	}
	var both [2]routeShown
	for i, pair := range [2][2]topo.PortRef{{from, to}, {to, from}} {
		w, err := s.m.Route(r.Context(), pair[0], pair[1])
		if err != nil {
			return nil, unknown([]string{"from", "to"}[i], err)
		}
		both[i] = s.showRoute(&w)
	}
	return map[string]routeShown{"there": both[0], "back": both[1]}, nil
}

func (s *Server) showRoute(w *manager.Route) routeShown {
	g, sample := s.m.Graph(), s.m.Sample()
	show := routeShown{From: g.PortName(w.From), To: g.PortName(w.To.Port), SL: uint8(w.SL), PKey: w.PKey.String(),
		Arrives: w.Arrives, Why: w.Why, Hops: []hopShown{}}
	if !w.Arrives {
		show.Lost = g.PortName(w.Lost)
	}
	for _, h := range w.Hops {
		hop := hopShown{Cable: -1, Out: g.PortName(h.Out), In: g.PortName(h.In), VL: uint8(h.VL)}
		if i, ok := s.m.CableOf(h.Out); ok {
			hop.Cable = i
		}
		if i, ok := s.m.PortIndex(h.Out); ok {
			p := &sample.Ports[i]
			hop.Rate, hop.Mbps, hop.Sent, hop.Wait = p.Rate.String(), p.Rate.Mbps(), float64(p.XmitBytes),
				float64(p.Wait)
		}
		show.Hops = append(show.Hops, hop)
	}
	return show
}

// endPort finds a port that packets can start at: one that is named, or the first of a host that has a cable.
func (s *Server) endPort(field, name string) (topo.PortRef, error) {
	if n, err := s.m.Node(name); err == nil {
		if n.IsSwitch() {
			return topo.PortRef{}, badField(field, "name a host", "%s is a switch", n.Name)
		}
		for p := 1; p <= n.NumPorts(); p++ {
			if n.Ports[p].Connected() {
				return topo.PortRef{Node: n.Index, Port: ib.PortNum(p)}, nil
			}
		}
		return topo.PortRef{}, badField(field, "name another host", "%s has no cable", n.Name)
	}
	ref, err := s.m.Port(name)
	if err != nil {
		return ref, unknown(field, err)
	}
	if s.m.Graph().Nodes[ref.Node].IsSwitch() {
		return ref, badField(field, "name a host", "%s is a switch's", s.m.Graph().PortName(ref))
	}
	return ref, nil
}

// counters lists those that are not 0, and all of traffic.
func counters(c *ib.Counters) []counterShown {
	var list []counterShown
	for k := range ib.NumCounter {
		means := counterMeanings[k]
		if c[k] != 0 || trafficCounters[k] {
			list = append(list, counterShown{Name: k.String(), Value: c[k], Means: means})
		}
	}
	return list
}

// trafficCounters are shown even if they are 0.
var trafficCounters = map[ib.Counter]bool{
	ib.PortXmitData: true, ib.PortRcvData: true, ib.PortXmitPkts: true, ib.PortRcvPkts: true, ib.PortXmitWait: true,
	ib.SymbolErrorCounter: true, ib.LinkDownedCounter: true, ib.PortRcvErrors: true, ib.PortXmitDiscards: true,
}

// counterMeanings say what a counter that moves means to whoever has to mend it.
var counterMeanings = map[ib.Counter]string{
	ib.SymbolErrorCounter:             "damaged symbols on the lanes: cable, connector or transceiver",
	ib.LinkErrorRecoveryCounter:       "the link retrained and recovered: cable or transceiver",
	ib.LinkDownedCounter:              "the link went down: pulled, switched off, or too bad to train",
	ib.PortRcvErrors:                  "packets arrived damaged: the cable, or the sender's port",
	ib.PortRcvRemotePhysicalErrors:    "packets were already marked bad by a switch before: look upstream",
	ib.PortRcvSwitchRelayErrors:       "packets that the switch could not forward: no table entry, or a loop",
	ib.PortXmitDiscards:               "packets given up before sending: the port was down or congested for too long",
	ib.PortXmitConstraintErrors:       "packets held back by partition or raw filters on sending",
	ib.PortRcvConstraintErrors:        "packets refused by partition or raw filters on receipt",
	ib.LocalLinkIntegrityErrors:       "too many local errors in a row: cable or receiver",
	ib.ExcessiveBufferOverrunErrors:   "the neighbour sent without credit for long: flow control is broken",
	ib.VL15Dropped:                    "management packets dropped for want of room",
	ib.PortXmitWait:                   "ticks with packets to send and no credit: congestion ahead",
	ib.PortXmitData:                   "4-byte words sent",
	ib.PortRcvData:                    "4-byte words received",
	ib.PortXmitPkts:                   "packets sent",
	ib.PortRcvPkts:                    "packets received",
	ib.QP1Dropped:                     "management packets to QP1 dropped",
	ib.PortLocalPhysicalErrors:        "of the receive errors: bad CRC or symbol",
	ib.PortMalformedPacketErrors:      "of the receive errors: malformed",
	ib.PortBufferOverrunErrors:        "of the receive errors: no buffer",
	ib.PortDLIDMappingErrors:          "of the relay errors: no way to that LID",
	ib.PortVLMappingErrors:            "of the relay errors: no lane for that level",
	ib.PortLoopingErrors:              "of the relay errors: out where it came in",
	ib.PortInactiveDiscards:           "of the discards: the port was not active",
	ib.PortNeighborMTUDiscards:        "of the discards: larger than the neighbour takes",
	ib.PortSwLifetimeLimitDiscards:    "of the discards: too long in the switch",
	ib.PortSwHOQLifetimeLimitDiscards: "of the discards: too long at the head of the queue",
	ib.PortUnicastXmitPkts:            "unicast packets sent",
	ib.PortUnicastRcvPkts:             "unicast packets received",
	ib.PortMulticastXmitPkts:          "multicast packets sent",
	ib.PortMulticastRcvPkts:           "multicast packets received",
	ib.PortXmitFlowPkts:               "flow control packets sent",
	ib.PortRcvFlowPkts:                "flow control packets received",
}
