package policy

import (
	"fmt"
	"slices"
	"strings"

	"softib/proto/ib"
)

// Range is the numbers from Lo to Hi, both included.
type Range struct{ Lo, Hi uint64 }

// Ranges is a set of numbers: sorted, without overlaps or neighbours.
type Ranges []Range

// Contains reports whether v is in the set.
func (rs Ranges) Contains(v uint64) bool {
	i, found := slices.BinarySearchFunc(rs, v, func(r Range, v uint64) int {
		switch {
		case r.Hi < v:
			return -1
		case r.Lo > v:
			return 1
		}
		return 0
	})
	return found && i < len(rs)
}

// add is the union with more.
func (rs Ranges) add(more ...Range) Ranges {
	all := append(slices.Clone(rs), more...)
	slices.SortFunc(all, func(a, b Range) int {
		switch {
		case a.Lo < b.Lo:
			return -1
		case a.Lo > b.Lo:
			return 1
		}
		return 0
	})
	out := all[:0]
	for _, r := range all {
		if n := len(out); n > 0 && (r.Lo <= out[n-1].Hi || r.Lo-1 == out[n-1].Hi) {
			out[n-1].Hi = max(out[n-1].Hi, r.Hi)
		} else {
			out = append(out, r)
		}
	}
	return out
}

func (rs Ranges) append(dst []byte) []byte {
	for i, r := range rs {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = fmt.Appendf(dst, "0x%x", r.Lo)
		if r.Hi != r.Lo {
			dst = fmt.Appendf(dst, "-0x%x", r.Hi)
		}
	}
	return dst
}

// NodeTypes is a set of node types, bit by ib.NodeType.
type NodeTypes uint8

// Has reports whether t is in the set.
func (s NodeTypes) Has(t ib.NodeType) bool { return t < 8 && s&(1<<t) != 0 }

// allNodeTypes is the word ALL.
const allNodeTypes = NodeTypes(1<<ib.NodeCA | 1<<ib.NodeSwitch | 1<<ib.NodeRouter)

// PortName names a port by its node's description and its number.
type PortName struct {
	Node string
	Port ib.PortNum
}

// PortGroup is a set of ports with a name: those that any of its entries is about.
type PortGroup struct {
	Name, Use  string
	GUIDs      Ranges
	PortNames  []PortName
	PKeys      Ranges // without the membership bit
	Partitions []string
	Types      NodeTypes
	Self       bool // the manager's own port
}

// VLArbScope says how groups of ports arbitrate between lanes.
type VLArbScope struct {
	// Groups are ports; Across are the ports on the other side of their links.
	Groups, Across []string
	High, Low      []VLWeight
	HighLimit      uint8
	HasHighLimit   bool
}

// SL2VLScope says how groups of ports map service levels to lanes.
type SL2VLScope struct {
	Groups, AcrossFrom, AcrossTo []string
	// From and To are numbers of a switch's ports that packets enter and leave by.
	From, To Ranges
	Table    [ib.NumSL]ib.VL
}

// QoSLevel is what paths with this level get.
type QoSLevel struct {
	Name, Use string
	SL        ib.SL
	// MTULimit and RateLimit are upper limits as IBA encodes them; 0 is none.
	MTULimit  ib.MTU
	RateLimit uint8
	// PacketLife is as IBA encodes it.
	PacketLife    uint8
	HasPacketLife bool
	// PathBits are the lower bits of LIDs that paths may use; none means all.
	PathBits Ranges
	// PKeys are the partitions that paths may use, without the membership bit; none means all.
	PKeys Ranges
}

// QoSRule gives queries that match all of its criteria a level.
type QoSRule struct {
	Use   string
	Level string
	// Sources and Destinations are names of groups. With both, as in OpenSM, one of the two has to match.
	Sources, Destinations []string
	ServiceIDs            Ranges
	QoSClasses            Ranges
	PKeys                 Ranges
}

// ULP is a protocol of the simplified policy.
type ULP uint8

// The protocols; AnyULP is any of them.
const (
	AnyULP ULP = iota
	SDP
	SRP
	RDS
	ISER
	IPoIB
	NumULP
)

var ulpWords = [NumULP]string{"any", "sdp", "srp", "rds", "iser", "ipoib"}

func (u ULP) String() string {
	if u < NumULP {
		return ulpWords[u]
	}
	return fmt.Sprintf("ULP(%d)", uint8(u))
}

// ULPBy is what a rule of the simplified policy goes by.
type ULPBy uint8

// The criteria; ByULP is the protocol alone.
const (
	ByULP ULPBy = iota
	ByPortNum
	ByServiceID
	ByPKey
	ByTarget
	BySource
	BySourceOrTarget
	NumULPBy
)

var ulpByWords = [NumULPBy]string{"", "port-num", "service-id", "pkey", "target-port-guid", "source-port-guid",
	"source-target-port-guid"}

func (b ULPBy) String() string {
	if b < NumULPBy {
		return ulpByWords[b]
	}
	return fmt.Sprintf("ULPBy(%d)", uint8(b))
}

// ulpAllows has the criteria that go with each protocol.
var ulpAllows = [NumULP][]ULPBy{
	AnyULP: {ByServiceID, ByPKey, ByTarget, BySource, BySourceOrTarget},
	SDP:    {ByULP, ByPortNum},
	SRP:    {ByTarget},
	RDS:    {ByULP, ByPortNum},
	ISER:   {ByULP, ByPortNum},
	IPoIB:  {ByULP, ByPKey},
}

// ULPRule is a line of the simplified policy.
type ULPRule struct {
	ULP    ULP
	By     ULPBy
	Values Ranges // of the criterion
	SL     ib.SL
}

// QoSPolicy is a qos-policy.conf.
type QoSPolicy struct {
	Groups []PortGroup
	VLArb  []VLArbScope
	SL2VL  []SL2VLScope
	Levels []QoSLevel
	Rules  []QoSRule
	// ULPs are the simplified policy, which comes after Rules.
	ULPs []ULPRule
	// DefaultSL is the simplified policy's default, where HasDefaultSL.
	DefaultSL    ib.SL
	HasDefaultSL bool
}

// String is the file's text.
func (p *QoSPolicy) String() string { return string(p.Append(nil)) }

// Append writes the file. What it writes parses to p.
func (p *QoSPolicy) Append(dst []byte) []byte {
	w := qosWriter{dst: dst}
	if len(p.ULPs) > 0 || p.HasDefaultSL {
		w.open("qos-ulps")
		if p.HasDefaultSL {
			w.line("default", fmt.Append(nil, p.DefaultSL))
		}
		for _, u := range p.ULPs {
			key := u.ULP.String()
			if u.By != ByULP {
				key += ", " + u.By.String() + " " + string(u.Values.append(nil))
			}
			w.line(key, fmt.Append(nil, u.SL))
		}
		w.close()
	}
	if len(p.Groups) > 0 {
		w.open("port-groups")
		for i := range p.Groups {
			w.group(&p.Groups[i])
		}
		w.close()
	}
	if len(p.VLArb)+len(p.SL2VL) > 0 {
		w.setup(p)
	}
	if len(p.Levels) > 0 {
		w.open("qos-levels")
		for i := range p.Levels {
			w.level(&p.Levels[i])
		}
		w.close()
	}
	if len(p.Rules) > 0 {
		w.open("qos-match-rules")
		for i := range p.Rules {
			w.rule(&p.Rules[i])
		}
		w.close()
	}
	return w.dst
}

// qosWriter writes sections and lines with indentation.
type qosWriter struct {
	dst   []byte
	stack []string
}

func (w *qosWriter) text(s string) {
	for range w.stack {
		w.dst = append(w.dst, '\t')
	}
	w.dst = append(w.dst, s...)
	w.dst = append(w.dst, '\n')
}

func (w *qosWriter) open(section string) {
	w.text(section)
	w.stack = append(w.stack, section)
}

func (w *qosWriter) close() {
	n := len(w.stack) - 1
	section := w.stack[n]
	w.stack = w.stack[:n]
	w.text("end-" + section)
}

func (w *qosWriter) line(key string, val []byte) { w.text(key + ": " + string(val)) }

// some writes a line if there is a value.
func (w *qosWriter) some(key string, val []byte) {
	if len(val) > 0 {
		w.line(key, val)
	}
}

// names writes a list of names.
func (w *qosWriter) names(key string, names []string) {
	quoted := make([]string, len(names))
	for i, n := range names {
		quoted[i] = quoteName(n)
	}
	w.some(key, []byte(strings.Join(quoted, ", ")))
}

// quoteName puts quotes around a name that would be cut without them. Names have no quotes in them.
func quoteName(s string) string {
	if s == "" || strings.ContainsAny(s, ",#") || strings.Trim(s, blanks) != s {
		return `"` + s + `"`
	}
	return s
}

func (w *qosWriter) group(g *PortGroup) {
	w.open("port-group")
	w.names("name", []string{g.Name})
	w.some("use", []byte(g.Use))
	w.some("port-guid", g.GUIDs.append(nil))
	for _, n := range g.PortNames {
		w.names("port-name", []string{fmt.Sprintf("%s/P%d", n.Node, n.Port)})
	}
	w.some("pkey", g.PKeys.append(nil))
	w.names("partition", g.Partitions)
	var types []string
	for _, t := range nodeTypeWords {
		if t.types != allNodeTypes && t.types != 0 && g.Types&t.types != 0 || t.self && g.Self {
			types = append(types, t.word)
		}
	}
	w.names("node-type", types)
	w.close()
}

func (w *qosWriter) setup(p *QoSPolicy) {
	w.open("qos-setup")
	if len(p.VLArb) > 0 {
		w.open("vlarb-tables")
		for i := range p.VLArb {
			s := &p.VLArb[i]
			w.open("vlarb-scope")
			w.names("group", s.Groups)
			w.names("across", s.Across)
			w.some("vlarb-high", appendVLArb(nil, s.High))
			w.some("vlarb-low", appendVLArb(nil, s.Low))
			if s.HasHighLimit {
				w.line("vl-high-limit", fmt.Append(nil, s.HighLimit))
			}
			w.close()
		}
		w.close()
	}
	if len(p.SL2VL) > 0 {
		w.open("sl2vl-tables")
		for i := range p.SL2VL {
			s := &p.SL2VL[i]
			w.open("sl2vl-scope")
			w.names("group", s.Groups)
			w.names("across-from", s.AcrossFrom)
			w.names("across-to", s.AcrossTo)
			w.some("from", s.From.append(nil))
			w.some("to", s.To.append(nil))
			w.line("sl2vl-table", appendSL2VL(nil, s.Table[:]))
			w.close()
		}
		w.close()
	}
	w.close()
}

func (w *qosWriter) level(l *QoSLevel) {
	w.open("qos-level")
	w.names("name", []string{l.Name})
	w.some("use", []byte(l.Use))
	w.line("sl", fmt.Append(nil, l.SL))
	if l.MTULimit != 0 {
		w.line("mtu-limit", fmt.Append(nil, uint8(l.MTULimit)))
	}
	if l.RateLimit != 0 {
		w.line("rate-limit", fmt.Append(nil, l.RateLimit))
	}
	if l.HasPacketLife {
		w.line("packet-life", fmt.Append(nil, l.PacketLife))
	}
	w.some("path-bits", l.PathBits.append(nil))
	w.some("pkey", l.PKeys.append(nil))
	w.close()
}

func (w *qosWriter) rule(r *QoSRule) {
	w.open("qos-match-rule")
	w.some("use", []byte(r.Use))
	w.some("qos-class", r.QoSClasses.append(nil))
	w.names("source", r.Sources)
	w.names("destination", r.Destinations)
	w.some("service-id", r.ServiceIDs.append(nil))
	w.some("pkey", r.PKeys.append(nil))
	w.names("qos-level-name", []string{r.Level})
	w.close()
}
