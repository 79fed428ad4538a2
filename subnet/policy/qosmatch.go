package policy

import (
	"fmt"
	"slices"

	"softib/proto/ib"
)

// QoSPort is what port groups need to know about an end port.
type QoSPort struct {
	GUID   ib.GUID
	Type   ib.NodeType
	IsSelf bool
	// Node is the description of the node and Port the number of the port there.
	Node string
	Port ib.PortNum
	// PKeys are the port's, and Partitions the names of the partitions that it is in.
	PKeys      []ib.PKey
	Partitions []string
}

// QoSEnd is one end of a path: a port and the groups it is in, as QoSMatcher.Groups gives them.
type QoSEnd struct {
	GUID   ib.GUID
	Groups []uint16
}

// PathRequest is a query for a path, as far as rules look at it. A field counts if its Has is set:
// a rule that asks for what the query does not say does not match.
type PathRequest struct {
	Source, Destination QoSEnd
	PKey                ib.PKey
	HasPKey             bool
	ServiceID           uint64
	HasServiceID        bool
	QoSClass            uint16
	HasQoSClass         bool
}

// QoSMatcher finds the level of a path query. It does not change once it is made.
type QoSMatcher struct {
	groups []PortGroup
	rules  []compiledRule
	def    QoSLevel
	hasDef bool
}

// compiledRule is a rule with its names looked up.
type compiledRule struct {
	level        QoSLevel
	sources      []uint16
	destinations []uint16
	// sourceGUIDs and destinationGUIDs are those of the simplified policy.
	sourceGUIDs, destinationGUIDs Ranges
	services, classes, partitions Ranges
}

// Where the service IDs of protocols begin, and the ports that stand for the protocol alone.
const (
	sdpServiceID  = 0x00010000
	rdmaServiceID = 0x01060000 // RDS and iSER, of the IP port space of IBA A11
	rdsPort       = 0x48CA
	iserPort      = 0x0CBC
)

// NewQoSMatcher looks up the names of a policy. One that ParseQoSPolicy found no problems in gives no error.
func NewQoSMatcher(p *QoSPolicy) (*QoSMatcher, error) {
	m := &QoSMatcher{groups: p.Groups}
	for i := range p.Rules {
		r := &p.Rules[i]
		c := compiledRule{services: r.ServiceIDs, classes: r.QoSClasses, partitions: r.PKeys}
		l := findLevel(p, r.Level)
		if l == nil {
			return nil, fmt.Errorf("policy: match rule %d: QoS level %q: %w; define it in qos-levels", i+1, r.Level,
				ErrUnknown)
		}
		c.level = *l
		var err error
		if c.sources, err = findGroups(p, r.Sources); err != nil {
			return nil, fmt.Errorf("policy: match rule %d: source: %w", i+1, err)
		}
		if c.destinations, err = findGroups(p, r.Destinations); err != nil {
			return nil, fmt.Errorf("policy: match rule %d: destination: %w", i+1, err)
		}
		m.rules = append(m.rules, c)
	}
	for _, u := range p.ULPs {
		m.rules = append(m.rules, compileULP(u))
	}
	if l := findLevel(p, DefaultLevelName); l != nil {
		m.def, m.hasDef = *l, true
	} else if p.HasDefaultSL {
		m.def, m.hasDef = QoSLevel{Name: "SimpleQoSLevel_DEFAULT", SL: p.DefaultSL}, true
	}
	return m, nil
}

func findLevel(p *QoSPolicy, name string) *QoSLevel {
	for i := range p.Levels {
		if plain(p.Levels[i].Name) == plain(name) {
			return &p.Levels[i]
		}
	}
	return nil
}

func findGroups(p *QoSPolicy, names []string) ([]uint16, error) {
	var out []uint16
	for _, n := range names {
		i := slices.IndexFunc(p.Groups, func(g PortGroup) bool { return plain(g.Name) == plain(n) })
		if i < 0 {
			return nil, fmt.Errorf("port group %q: %w; define it in port-groups", n, ErrUnknown)
		}
		out = append(out, uint16(i))
	}
	return out, nil
}

// compileULP says a line of the simplified policy as a rule (QoS management in OpenSM, 6).
func compileULP(u ULPRule) compiledRule {
	c := compiledRule{level: QoSLevel{Name: fmt.Sprintf("SimpleQoSLevel_SL%d", u.SL), SL: u.SL}}
	base := uint64(rdmaServiceID)
	if u.ULP == SDP {
		base = sdpServiceID
	}
	switch u.By {
	case ByULP:
		switch u.ULP {
		case SDP:
			c.services = Ranges{{base, base + 0xFFFF}}
		case RDS:
			c.services = Ranges{{base + rdsPort, base + rdsPort}}
		case ISER:
			c.services = Ranges{{base + iserPort, base + iserPort}}
		case IPoIB:
			c.partitions = Ranges{{uint64(ib.PKeyBase), uint64(ib.PKeyBase)}}
		}
	case ByPortNum:
		for _, r := range u.Values {
			c.services = append(c.services, Range{base + r.Lo, base + r.Hi})
		}
	case ByServiceID:
		c.services = u.Values
	case ByPKey:
		c.partitions = u.Values
	case ByTarget:
		c.destinationGUIDs = u.Values
	case BySource:
		c.sourceGUIDs = u.Values
	case BySourceOrTarget:
		c.sourceGUIDs, c.destinationGUIDs = u.Values, u.Values
	}
	return c
}

// Groups are the groups that a port is in, by number. They are kept for PathRequest: looking them
// up is for once a sweep, not for once a query.
func (m *QoSMatcher) Groups(port *QoSPort) []uint16 {
	var out []uint16
	for i := range m.groups {
		if m.groups[i].includes(port) {
			out = append(out, uint16(i))
		}
	}
	return out
}

func (g *PortGroup) includes(p *QoSPort) bool {
	if g.Types.Has(p.Type) || (g.Self && p.IsSelf) || g.GUIDs.Contains(uint64(p.GUID)) {
		return true
	}
	for _, k := range p.PKeys {
		if k.IsValid() && g.PKeys.Contains(uint64(k.Base())) {
			return true
		}
	}
	for _, n := range g.PortNames {
		if n.Port == p.Port && n.Node == p.Node {
			return true
		}
	}
	for _, n := range g.Partitions {
		if slices.Contains(p.Partitions, n) {
			return true
		}
	}
	return false
}

// Match is the level of the first rule that matches, or the default; false where there is neither.
func (m *QoSMatcher) Match(req *PathRequest) (*QoSLevel, bool) {
	for i := range m.rules {
		if m.rules[i].matches(req) {
			return &m.rules[i].level, true
		}
	}
	if !m.hasDef {
		return nil, false
	}
	return &m.def, true
}

func (c *compiledRule) matches(req *PathRequest) bool {
	hasSource := len(c.sources) > 0 || len(c.sourceGUIDs) > 0
	hasDestination := len(c.destinations) > 0 || len(c.destinationGUIDs) > 0
	if hasSource || hasDestination {
		// With both, one of them is enough: OpenSM matches so since it has source-target-port-guid,
		// whatever its description says about "all criteria".
		ok := hasSource && req.Source.in(c.sources, c.sourceGUIDs) ||
			hasDestination && req.Destination.in(c.destinations, c.destinationGUIDs)
		if !ok {
			return false
		}
	}
	if len(c.classes) > 0 && !(req.HasQoSClass && c.classes.Contains(uint64(req.QoSClass))) {
		return false
	}
	if len(c.services) > 0 && !(req.HasServiceID && c.services.Contains(req.ServiceID)) {
		return false
	}
	return len(c.partitions) == 0 || req.HasPKey && c.partitions.Contains(uint64(req.PKey.Base()))
}

func (e *QoSEnd) in(groups []uint16, guids Ranges) bool {
	if guids.Contains(uint64(e.GUID)) {
		return true
	}
	for _, g := range groups {
		if slices.Contains(e.Groups, g) {
			return true
		}
	}
	return false
}
