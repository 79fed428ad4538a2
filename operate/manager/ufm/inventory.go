package ufm

import (
	"fmt"
	"iter"
	"net/http"
	"slices"
	"strings"
	"sync"

	"softib/operate/manager"
	"softib/operate/manager/health"
	"softib/operate/manager/tenant"
	"softib/proto/ib"
	"softib/proto/mad"
	"softib/proto/topo"
)

// view is what ports say of themselves beyond a sample: it changes only with the fabric's epoch, so that a thousand
// callers cost one look.
type view struct {
	epoch uint64
	rev   uint64
	ports []portView // in the order of Manager.Ports
	// others are partitions that no tenant is: those of the operator's partitions.conf, or of somebody else's subnet
	// manager.
	others map[ib.PKey]*other
	// defaultFull says that hosts without a tenant are full members of the default partition.
	defaultFull bool
}

type portView struct {
	info mad.PortInfo
	lid  ib.LID
}

type other struct {
	name    string
	ipoib   bool
	sl      ib.SL
	members []tenant.Member
}

// cache has the last view.
type cache struct {
	mu   sync.Mutex
	last *view
}

// look is the fabric as it is now.
func (s *Server) look() *view {
	m := s.cfg.Manager
	s.cache.mu.Lock()
	defer s.cache.mu.Unlock()
	epoch := m.Fabric().Epoch()
	rev := s.revision()
	if v := s.cache.last; v != nil && v.epoch == epoch && v.rev == rev {
		return v
	}
	v := &view{epoch: epoch, rev: rev, ports: make([]portView, len(m.Ports())), others: map[ib.PKey]*other{}}
	g := m.Graph()
	lids := make([]ib.LID, len(g.Nodes))
	for i, r := range m.Ports() {
		p := &v.ports[i]
		p.info, _ = m.Fabric().PortInfo(r)
		p.lid = p.info.LID
		if g.Nodes[r.Node].IsSwitch() {
			if lids[r.Node] == 0 {
				lids[r.Node] = m.LID(r)
			}
			p.lid = lids[r.Node]
		}
	}
	s.lookAtKeys(v)
	s.cache.last = v
	return v
}

// lookAtKeys finds the partitions that ports are in and no tenant is.
func (s *Server) lookAtKeys(v *view) {
	m := s.cfg.Manager
	g := m.Graph()
	tenants, inTenant := map[ib.PKey]bool{}, map[ib.GUID]bool{}
	if s.cfg.Tenants != nil {
		for _, t := range s.cfg.Tenants.List() {
			tenants[t.Key] = true
			for _, x := range t.Members {
				inTenant[x.GUID] = true
			}
		}
	}
	sub := m.Subnet()
	isSM := map[string]bool{}
	for _, x := range sub.Managers {
		isSM[x.GUID] = true
	}
	for _, h := range g.Hosts() {
		for p := 1; p <= h.NumPorts(); p++ {
			guid := h.PortGUID(ib.PortNum(p))
			for i, k := range m.Fabric().PKeys(topo.PortRef{Node: h.Index, Port: ib.PortNum(p)}) {
				base := k.Base()
				switch {
				case base == 0 || tenants[base]:
				case base == ib.PKeyBase:
					if k.IsFull() && !inTenant[guid] && !isSM[guid.String()] {
						v.defaultFull = true
					}
				default:
					o := v.others[base]
					if o == nil {
						o = &other{name: fmt.Sprintf("pkey_%s", keyText(base))}
						v.others[base] = o
					}
					o.members = append(o.members, tenant.Member{GUID: guid, Full: k.IsFull(), Index0: i == 0})
				}
			}
		}
	}
	for _, x := range sub.Partition {
		k, err := parseKey("key", x.Key)
		if err != nil || k == ib.PKeyBase || tenants[k] {
			continue
		}
		o := v.others[k]
		if o == nil {
			o = &other{}
			v.others[k] = o
		}
		o.name, o.ipoib, o.sl = x.Name, x.IPoIB, ib.SL(x.SL)
		if x.Name == tenant.RestName {
			delete(v.others, k) // nobody has made it, and nobody can change it
		}
	}
}

// Words of UFM.
const (
	sevInfo, sevWarning, sevCritical = "Info", "Warning", "Critical"
	notAvailable                     = "N/A"
)

var physWords = map[ib.PhysState]string{ib.PhysLinkUp: "Link Up", ib.PhysPolling: "Polling",
	ib.PhysDisabled: "Disabled", ib.PhysSleep: "Sleep", ib.PhysTraining: "Training",
	ib.PhysErrorRecovery: "Link Error Recovery", ib.PhysTest: "Phy Test"}

// systemShape is a node as UFM's systems are.
type systemShape struct {
	Name        string   `json:"name"`
	GUID        string   `json:"guid"`
	SystemGUID  string   `json:"system_guid"`
	SystemName  string   `json:"system_name"`
	NodeDesc    string   `json:"node_description"`
	Description string   `json:"description"`
	Type        string   `json:"type"`
	Role        string   `json:"role"`
	State       string   `json:"state"`
	Severity    string   `json:"severity"`
	Technology  string   `json:"technology"`
	Vendor      string   `json:"vendor"`
	Model       string   `json:"model"`
	IP          string   `json:"ip"`
	FWVersion   string   `json:"fw_version"`
	SWVersion   string   `json:"sw_version"`
	TotalAlarms int      `json:"total_alarms"`
	TotalPorts  int      `json:"total_ports"`
	Managed     bool     `json:"is_managed"`
	Ports       []string `json:"ports"`
	Modules     []string `json:"modules"`
	Caps        []string `json:"capabilities"`
}

// typeWords are UFM's names for what nodes are: of a system, and of the system of a port.
func typeWords(n *topo.Node) (system, ofPort string) {
	switch n.Type {
	case ib.NodeSwitch:
		return "switch", "Switch"
	case ib.NodeRouter:
		return "router", "Router"
	}
	return "host", "Computer"
}

// portName is UFM's name of a port: the GUID by which it is known, and its number.
func portName(n *topo.Node, p ib.PortNum) string {
	return fmt.Sprintf("%s_%d", guidText(portGUID(n, p)), p)
}

// portGUID is the port's own; those of a switch have the switch's.
func portGUID(n *topo.Node, p ib.PortNum) ib.GUID {
	if n.IsSwitch() {
		return n.GUID
	}
	return n.PortGUID(p)
}

// troubles are the worst verdict at each port, and how many there are at each node.
type troubles struct {
	byPort map[topo.PortRef]*health.Verdict
	byNode map[int]int
}

func (s *Server) troubles() troubles {
	t := troubles{byPort: map[topo.PortRef]*health.Verdict{}, byNode: map[int]int{}}
	list := s.cfg.Manager.Worst()
	for i := range list {
		v := &list[i]
		for _, r := range [2]topo.PortRef{v.A, v.B} {
			if t.byPort[r] == nil {
				t.byPort[r] = v
			}
			t.byNode[r.Node]++
		}
	}
	return t
}

// severityOf is UFM's word for how bad a cable is.
func severityOf(v *health.Verdict) string {
	switch {
	case v == nil || v.Severity == health.OK:
		return sevInfo
	case v.Severity >= health.Bad:
		return sevCritical
	}
	return sevWarning
}

// damages reports whether a cable damages signals.
func damages(v *health.Verdict) bool {
	return v != nil && slices.ContainsFunc(v.Reasons, func(r health.Reason) bool { return r.Kind == health.Damaging })
}

func (s *Server) systemShape(n *topo.Node, t *troubles, sm *manager.Sample) systemShape {
	kind, _ := typeWords(n)
	o := systemShape{Name: guidText(n.GUID), GUID: guidText(n.GUID), SystemGUID: guidText(n.SystemGUID),
		SystemName: n.Name, NodeDesc: n.Desc, Description: n.Desc, Type: kind,
		Role: "endpoint", State: "disconnected", Severity: sevInfo, Technology: notAvailable,
		Vendor: fmt.Sprintf("0x%06x", n.VendorID), Model: fmt.Sprintf("0x%04x", n.DeviceID), IP: "0.0.0.0",
		FWVersion: "softib " + s.cfg.Manager.Version(), SWVersion: s.cfg.Manager.Version(),
		TotalAlarms: t.byNode[n.Index], TotalPorts: n.NumPorts(), Managed: true, Modules: []string{}, Caps: []string{}}
	if n.IsSwitch() {
		o.Role = "core"
	}
	var speed ib.Speed
	for p := 1; p <= n.NumPorts(); p++ {
		r := topo.PortRef{Node: n.Index, Port: ib.PortNum(p)}
		o.Ports = append(o.Ports, portName(n, r.Port))
		if q := &n.Ports[p]; q.Connected() {
			speed = max(speed, q.Speed)
			if n.IsSwitch() && !s.cfg.Manager.Graph().Nodes[q.Peer].IsSwitch() {
				o.Role = "tor"
			}
		}
		if i, ok := s.cfg.Manager.PortIndex(r); ok && sm.Ports[i].State > ib.PortDown {
			o.State = "active"
		}
		if w := severityOf(t.byPort[r]); w == sevCritical || w == sevWarning && o.Severity == sevInfo {
			o.Severity = w
		}
	}
	if speed.IsValid() {
		o.Technology = speed.String()
	}
	return o
}

// systems lists hosts and switches.
func (s *Server) systems(c *call) error {
	kind := c.query.oneOf("type", "host", "computer", "server", "switch", "router", "gateway")
	p := pageOf(c.query)
	if c.query.err != nil {
		return c.query.err
	}
	if kind == "computer" || kind == "server" {
		kind = "host"
	}
	t, sm := s.troubles(), s.cfg.Manager.Sample()
	writeList(c.w, p, func(yield func(systemShape) bool) {
		for _, n := range s.cfg.Manager.Graph().Nodes {
			if k, _ := typeWords(n); kind != "" && k != kind {
				continue
			}
			if !yield(s.systemShape(n, &t, sm)) {
				return
			}
		}
	})
	return nil
}

// node finds a system by GUID or name.
func (s *Server) node(field, name string) (*topo.Node, *Error) {
	n, err := s.cfg.Manager.Node(name)
	if err != nil {
		return nil, &Error{Status: http.StatusNotFound, Field: field,
			Reason: fmt.Sprintf("%q: want the GUID or the name of a system of this fabric", clip(name))}
	}
	return n, nil
}

// system shows one system, in a list as UFM does.
func (s *Server) system(c *call) error {
	n, e := s.node("system", c.arg("system"))
	if e != nil {
		return e
	}
	t := s.troubles()
	c.json([]systemShape{s.systemShape(n, &t, s.cfg.Manager.Sample())})
	return nil
}

// portShape is a port as UFM's ports are.
type portShape struct {
	GUID           string   `json:"guid"`
	Name           string   `json:"name"`
	SystemID       string   `json:"systemID"`
	SystemName     string   `json:"system_name"`
	SystemGUID     string   `json:"system_guid"`
	SystemType     string   `json:"system_type"`
	NodeDesc       string   `json:"node_description"`
	Description    string   `json:"description"`
	Path           string   `json:"path"`
	Number         int      `json:"number"`
	ExternalNumber int      `json:"external_number"`
	DName          string   `json:"dname"`
	LID            int      `json:"lid"`
	PhysicalState  string   `json:"physical_state"`
	LogicalState   string   `json:"logical_state"`
	MTU            int      `json:"mtu"`
	ActiveSpeed    *string  `json:"active_speed"`
	ActiveWidth    *string  `json:"active_width"`
	SupportedSpeed []string `json:"supported_speed"`
	EnabledSpeed   []string `json:"enabled_speed"`
	SupportedWidth []string `json:"supported_width"`
	EnabledWidth   []string `json:"enabled_width"`
	Severity       string   `json:"severity"`
	HighBER        string   `json:"high_ber_severity"`
	Peer           string   `json:"peer"`
	PeerLID        int      `json:"peer_lid"`
	PeerGUID       string   `json:"peer_guid"`
	PeerNodeName   string   `json:"peer_node_name"`
	PeerNodeGUID   string   `json:"peer_node_guid"`
	PeerPortDName  string   `json:"peer_port_dname"`
	PeerNodeDesc   string   `json:"peer_node_description"`
	Capabilities   []string `json:"capabilities"`
}

// portDesc is how UFM describes the node of a port: that of a switch with the port's number, which clients take apart
// at the colon.
func portDesc(n *topo.Node, p ib.PortNum) string {
	if n.IsSwitch() {
		return fmt.Sprintf("%s:%d", n.Desc, p)
	}
	return n.Desc
}

// highBER is UFM's word for a cable that damages signals.
func highBER(v *health.Verdict) string {
	switch {
	case !damages(v):
		return notAvailable
	case v.Severity >= health.Bad:
		return "error"
	}
	return "warning"
}

func (s *Server) portShape(i int, v *view, t *troubles, sm *manager.Sample) portShape {
	m := s.cfg.Manager
	g := m.Graph()
	r := m.Ports()[i]
	n, q := g.Nodes[r.Node], &v.ports[i]
	x := &sm.Ports[i]
	_, kind := typeWords(n)
	dname := fmt.Sprint(r.Port)
	o := portShape{GUID: guidText(portGUID(n, r.Port)), Name: portName(n, r.Port), SystemID: guidText(n.GUID),
		SystemName: n.Name, SystemGUID: guidText(n.SystemGUID), SystemType: kind,
		NodeDesc: portDesc(n, r.Port), Description: kind + " IB Port",
		Path: fmt.Sprintf("default / %s: %s / %s", kind, n.Name, dname), Number: int(r.Port),
		ExternalNumber: int(r.Port), DName: dname, LID: int(q.lid),
		PhysicalState: physWords[q.info.PortPhysicalState], LogicalState: q.info.PortState.String(),
		MTU: q.info.NeighborMTU.Bytes(), Severity: severityOf(t.byPort[r]), HighBER: highBER(t.byPort[r]),
		SupportedSpeed: []string{}, SupportedWidth: []string{}, EnabledSpeed: []string{}, EnabledWidth: []string{},
		Peer: notAvailable, PeerGUID: notAvailable,
		PeerNodeName: notAvailable, PeerNodeGUID: notAvailable, PeerPortDName: notAvailable, PeerNodeDesc: notAvailable,
		Capabilities: []string{}}
	if o.PhysicalState == "" {
		o.PhysicalState = q.info.PortPhysicalState.String()
	}
	if x.Rate.Speed.IsValid() && q.info.PortState > ib.PortDown {
		speed, width := x.Rate.Speed.String(), x.Rate.Width.String()
		o.ActiveSpeed, o.ActiveWidth = &speed, &width
	}
	if p := &n.Ports[r.Port]; p.Speed.IsValid() {
		o.SupportedSpeed = append(o.SupportedSpeed, p.Speed.String())
	}
	for _, g := range q.info.Enabled() {
		o.EnabledSpeed = append(o.EnabledSpeed, g.String())
	}
	for w := ib.Width(1); w != 0; w <<= 1 {
		if q.info.LinkWidthSupported&w != 0 && w.Lanes() > 0 {
			o.SupportedWidth = append(o.SupportedWidth, w.String())
		}
		if q.info.LinkWidthEnabled&w != 0 && w.Lanes() > 0 {
			o.EnabledWidth = append(o.EnabledWidth, w.String())
		}
	}
	if p := &n.Ports[r.Port]; p.Connected() && q.info.PortState > ib.PortDown {
		peer := g.Nodes[p.Peer]
		o.Peer, o.PeerGUID, o.PeerNodeName, o.PeerNodeGUID = portName(peer, p.PeerPort),
			guidText(portGUID(peer, p.PeerPort)), peer.Name, guidText(peer.GUID)
		o.PeerPortDName, o.PeerNodeDesc = fmt.Sprint(p.PeerPort), portDesc(peer, p.PeerPort)
		if k, ok := m.PortIndex(topo.PortRef{Node: p.Peer, Port: p.PeerPort}); ok {
			o.PeerLID = int(v.ports[k].lid)
		}
	}
	return o
}

// ports lists ports.
func (s *Server) ports(c *call) error {
	q := c.query
	kind := q.oneOf("sys_type", "computer", "host", "server", "switch", "router", "gateway")
	active, external, disabled := q.flag("active", false), q.flag("external", false), q.flag("show_disabled", true)
	ber, berSeverity := q.flag("high_ber_only", false), q.oneOf("high_ber_severity", "warning", "error", "all")
	p := pageOf(q)
	if q.err != nil {
		return q.err
	}
	var only *topo.Node
	if name := q.text("system"); name != "" {
		var e *Error
		if only, e = s.node("system", name); e != nil {
			return e
		}
	}
	if kind == "host" || kind == "server" {
		kind = "computer"
	}
	m := s.cfg.Manager
	v, t, sm := s.look(), s.troubles(), m.Sample()
	writeList(c.w, p, func(yield func(portShape) bool) {
		for i, r := range m.Ports() {
			n, x := m.Graph().Nodes[r.Node], &v.ports[i]
			_, word := typeWords(n)
			switch {
			case only != nil && n != only, kind != "" && !strings.EqualFold(word, kind):
				continue
			case active && x.info.PortState <= ib.PortDown, external && !n.Ports[r.Port].Connected(), !disabled &&
				x.info.PortPhysicalState == ib.PhysDisabled:
				continue
			case ber && !damages(t.byPort[r]), berSeverity != "" && berSeverity != "all" &&
				highBER(t.byPort[r]) != berSeverity:
				continue
			}
			if !yield(s.portShape(i, v, &t, sm)) {
				return
			}
		}
	})
	return nil
}

// portByName finds a port by UFM's name of it, or by ours.
func (s *Server) portByName(name string) (int, bool) {
	m := s.cfg.Manager
	r, err := m.Port(name)
	if err != nil {
		text, number, ok := strings.Cut(name, "_")
		if !ok {
			return 0, false
		}
		g, bad := parseGUID("ports", text)
		if bad != nil {
			return 0, false
		}
		if n := m.Graph().ByGUID(g); n != nil && n.IsSwitch() {
			if r, err = m.Port(n.Name + "[" + number + "]"); err != nil {
				return 0, false
			}
		} else if r, ok = m.Graph().ByPortGUID(g); !ok || fmt.Sprint(r.Port) != number {
			return 0, false
		}
	}
	return m.PortIndex(r)
}

// portsByName shows ports by name.
func (s *Server) portsByName(c *call) error {
	var list []int
	for name := range strings.SplitSeq(c.arg("ports"), ",") {
		i, ok := s.portByName(name)
		if !ok {
			return &Error{Status: http.StatusNotFound, Field: "ports",
				Reason: fmt.Sprintf("%q: want a port of this fabric as GUID_NUMBER", clip(name))}
		}
		list = append(list, i)
	}
	v, t, sm := s.look(), s.troubles(), s.cfg.Manager.Sample()
	writeList(c.w, page{}, func(yield func(portShape) bool) {
		for _, i := range list {
			if !yield(s.portShape(i, v, &t, sm)) {
				return
			}
		}
	})
	return nil
}

// linkShape is a link as UFM's links are.
type linkShape struct {
	Name           string            `json:"name"`
	SourceGUID     string            `json:"source_guid"`
	SourcePort     string            `json:"source_port"`
	SourceName     string            `json:"source_port_name"`
	SourceDName    string            `json:"source_port_dname"`
	SourceDesc     string            `json:"source_port_node_description"`
	DestGUID       string            `json:"destination_guid"`
	DestPort       string            `json:"destination_port"`
	DestName       string            `json:"destination_port_name"`
	DestDName      string            `json:"destination_port_dname"`
	DestDesc       string            `json:"destination_port_node_description"`
	Width          string            `json:"width"`
	Speed          string            `json:"speed"`
	Severity       string            `json:"severity"`
	Capabilities   []string          `json:"capabilities"`
	Cable          map[string]string `json:"cable_info,omitempty"`
	SourceCounters map[string]uint64 `json:"source_port_counters,omitempty"`
	DestCounters   map[string]uint64 `json:"destination_port_counters,omitempty"`
}

// links lists the links that are up.
func (s *Server) links(c *call) error {
	cable, counters := c.query.flag("cable_info", false), c.query.flag("monitoring_counters_info", false)
	p := pageOf(c.query)
	if c.query.err != nil {
		return c.query.err
	}
	only := -1
	if name := c.query.text("system"); name != "" {
		n, e := s.node("system", name)
		if e != nil {
			return e
		}
		only = n.Index
	}
	writeList(c.w, p, s.linkSeq(only, cable, counters))
	return nil
}

func (s *Server) linkSeq(only int, cable, counters bool) iter.Seq[linkShape] {
	m := s.cfg.Manager
	g := m.Graph()
	v, t, sm := s.look(), s.troubles(), m.Sample()
	return func(yield func(linkShape) bool) {
		for _, x := range m.Cables() {
			a, okA := m.PortIndex(x.A)
			b, okB := m.PortIndex(x.B)
			if !okA || !okB || only >= 0 && x.A.Node != only && x.B.Node != only ||
				min(v.ports[a].info.PortState, v.ports[b].info.PortState) <= ib.PortDown {
				continue
			}
			na, nb := g.Nodes[x.A.Node], g.Nodes[x.B.Node]
			rate := sm.Ports[a].Rate
			o := linkShape{SourceGUID: guidText(portGUID(na, x.A.Port)), SourcePort: fmt.Sprint(x.A.Port),
				SourceName: portName(na, x.A.Port), SourceDName: fmt.Sprint(x.A.Port),
				SourceDesc: fmt.Sprintf("%s:%d", na.Desc, x.A.Port),
				DestGUID:   guidText(portGUID(nb, x.B.Port)), DestPort: fmt.Sprint(x.B.Port),
				DestName: portName(nb, x.B.Port), DestDName: fmt.Sprint(x.B.Port),
				DestDesc: fmt.Sprintf("%s:%d", nb.Desc, x.B.Port),
				Width:    rate.Width.String(), Speed: rate.Speed.String(), Severity: severityOf(t.byPort[x.A]),
				Capabilities: []string{}}
			o.Name = o.SourceName + ":" + o.DestName
			if cable {
				o.Cable = map[string]string{"length": notAvailable, "part_number": notAvailable}
				if mm := na.Ports[x.A.Port].LengthMM; mm > 0 {
					o.Cable["length"] = fmt.Sprintf("%.1f m", float64(mm)/1000)
				}
			}
			if counters {
				o.SourceCounters, o.DestCounters = countersOf(&sm.Ports[a].Counters), countersOf(&sm.Ports[b].Counters)
			}
			if !yield(o) {
				return
			}
		}
	}
}

// none lists what no fabric in software has: virtual ports of functions, and modules of a chassis.
func (s *Server) none(c *call) error {
	p := pageOf(c.query)
	if c.query.err != nil {
		return c.query.err
	}
	if name := c.query.text("system"); name != "" {
		if _, e := s.node("system", name); e != nil {
			return e
		}
	}
	writeList(c.w, p, func(func(struct{}) bool) {})
	return nil
}

// countersOf are a port's counters by their names in the standard.
func countersOf(c *ib.Counters) map[string]uint64 {
	out := make(map[string]uint64, len(c))
	for k, v := range c {
		out[ib.Counter(k).String()] = v
	}
	return out
}
