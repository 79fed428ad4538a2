package policy

import (
	"slices"
	"strings"

	"softib/proto/ib"
)

// ParseQoSPolicy reads a qos-policy.conf: port groups, QoS setup, levels, match rules and the simplified
// policy. Every name that it refers to has to be there, and so has a default level, as in OpenSM; a file with
// problems is not to be used. Unlike OpenSM it keeps the blanks within names, compares names
// without them, and applies nothing of qos-setup itself: that is for the manager.
func ParseQoSPolicy(file string, data []byte) (QoSPolicy, Problems, error) {
	p := qosParser{r: reporter{file: file}}
	all := lines(data)
	for _, line := range all {
		p.line(line.uncomment(true).trim())
	}
	last := word{line: 1, col: 1}
	if len(all) > 0 {
		last = all[len(all)-1].end()
	}
	for len(p.stack) > 0 {
		p.r.fail(last, ErrMissing, "expected end-%s for line %d", p.top().section, p.top().at.line)
		p.pop()
	}
	p.check(last)
	return p.p, p.r.warnings, p.r.errs.err()
}

// sections has, for each section, the sections within it. Others have lines of keys and values.
var sections = map[string][]string{
	"":                {"qos-ulps", "port-groups", "qos-setup", "qos-levels", "qos-match-rules"},
	"port-groups":     {"port-group"},
	"qos-setup":       {"vlarb-tables", "sl2vl-tables"},
	"vlarb-tables":    {"vlarb-scope"},
	"sl2vl-tables":    {"sl2vl-scope"},
	"qos-levels":      {"qos-level"},
	"qos-match-rules": {"qos-match-rule"},
}

// entry is a key of a section.
type entry struct {
	key string
	// once says that a second line with the key is a mistake.
	once bool
	read func(p *qosParser, val word)
}

// entries has the keys of the innermost sections. It is filled below, because its functions use it.
var entries map[string][]entry

func init() {
	entries = map[string][]entry{
		"port-group": {
			{"name", true, func(p *qosParser, v word) { p.group().Name = p.name(v) }},
			{"use", true, func(p *qosParser, v word) { p.group().Use = v.text }},
			{"port-guid", false, func(p *qosParser, v word) {
				p.ranges(v, &p.group().GUIDs, "a port GUID",
					^uint64(0))
			}},
			{"port-name", false, (*qosParser).portNames},
			{"pkey", false, func(p *qosParser, v word) { p.pkeys(v, &p.group().PKeys) }},
			{"partition", false, func(p *qosParser, v word) { p.names(v, &p.group().Partitions, nil) }},
			{"node-type", false, (*qosParser).nodeTypes},
		},
		"vlarb-scope": {
			{"group", false, func(p *qosParser, v word) { p.names(v, &p.vlarb().Groups, &p.groupRefs) }},
			{"across", false, func(p *qosParser, v word) { p.names(v, &p.vlarb().Across, &p.groupRefs) }},
			{"vlarb-high", true, func(p *qosParser, v word) { p.vlarb().High, _ = p.r.vlArb(v) }},
			{"vlarb-low", true, func(p *qosParser, v word) { p.vlarb().Low, _ = p.r.vlArb(v) }},
			{"vl-high-limit", true, func(p *qosParser, v word) {
				n, ok := p.r.number(v, "a limit", 0, 255)
				p.vlarb().HighLimit, p.vlarb().HasHighLimit = uint8(n), ok
			}},
		},
		"sl2vl-scope": {
			{"group", false, func(p *qosParser, v word) { p.names(v, &p.sl2vl().Groups, &p.groupRefs) }},
			{"across", false, func(p *qosParser, v word) {
				p.names(v, &p.sl2vl().AcrossFrom, &p.groupRefs)
				p.names(v, &p.sl2vl().AcrossTo, nil)
			}},
			{"across-from", false, func(p *qosParser, v word) { p.names(v, &p.sl2vl().AcrossFrom, &p.groupRefs) }},
			{"across-to", false, func(p *qosParser, v word) { p.names(v, &p.sl2vl().AcrossTo, &p.groupRefs) }},
			{"from", false, func(p *qosParser, v word) { p.portRanges(v, &p.sl2vl().From) }},
			{"to", false, func(p *qosParser, v word) { p.portRanges(v, &p.sl2vl().To) }},
			{"sl2vl-table", true, func(p *qosParser, v word) {
				if t, ok := p.r.sl2vl(v); ok && len(t) != ib.NumSL {
					p.r.fail(v, ErrValue, "expected 16 lanes, one for each service level")
				} else if ok {
					copy(p.sl2vl().Table[:], t)
				}
			}},
		},
		"qos-level": {
			{"name", true, func(p *qosParser, v word) { p.level().Name = p.name(v) }},
			{"use", true, func(p *qosParser, v word) { p.level().Use = v.text }},
			{"sl", true, func(p *qosParser, v word) { p.level().SL = p.serviceLevel(v) }},
			{"mtu-limit", true, func(p *qosParser, v word) {
				n, _ := p.r.number(v, "an MTU as IBA encodes it (4 is 2048)", uint64(ib.MTU256), uint64(ib.MTU4096))
				p.level().MTULimit = ib.MTU(n)
			}},
			{"rate-limit", true, func(p *qosParser, v word) {
				n, _ := p.r.number(v, "a rate as IBA encodes it (3 is 10 Gb/s)", rateMin, rateMax)
				p.level().RateLimit = uint8(n)
			}},
			{"packet-life", true, func(p *qosParser, v word) {
				n, ok := p.r.number(v, "a time code", 0, 63)
				p.level().PacketLife, p.level().HasPacketLife = uint8(n), ok
			}},
			{"path-bits", false, func(p *qosParser, v word) { p.ranges(v, &p.level().PathBits, "path bits", 127) }},
			{"pkey", false, func(p *qosParser, v word) { p.pkeys(v, &p.level().PKeys) }},
		},
		"qos-match-rule": {
			{"use", true, func(p *qosParser, v word) { p.rule().Use = v.text }},
			{"qos-class", false, func(p *qosParser, v word) {
				p.ranges(v, &p.rule().QoSClasses, "a QoS class",
					0xFFF)
			}},
			{"qos-level-name", true, func(p *qosParser, v word) {
				p.rule().Level = p.name(v)
				p.levelRefs = append(p.levelRefs, v)
			}},
			{"source", false, func(p *qosParser, v word) { p.names(v, &p.rule().Sources, &p.groupRefs) }},
			{"destination", false, func(p *qosParser, v word) { p.names(v, &p.rule().Destinations, &p.groupRefs) }},
			{"service-id", false, func(p *qosParser, v word) {
				p.ranges(v, &p.rule().ServiceIDs, "a service ID",
					^uint64(0))
			}},
			{"pkey", false, func(p *qosParser, v word) { p.pkeys(v, &p.rule().PKeys) }},
		},
	}
}

// needs has the keys without which a section is incomplete; one of each list is enough.
var needs = map[string][][]string{
	"port-group":     {{"name"}},
	"vlarb-scope":    {{"group", "across"}},
	"sl2vl-scope":    {{"sl2vl-table"}, {"group", "across", "across-from", "across-to"}},
	"qos-level":      {{"name"}, {"sl"}},
	"qos-match-rule": {{"qos-level-name"}},
}

// frame is a section that is open.
type frame struct {
	section string
	at      word
	seen    []string // keys
}

type qosParser struct {
	r     reporter
	p     QoSPolicy
	stack []frame
	// groupRefs and levelRefs are names that are used; groupDefs and levelDefs are where the named things begin.
	groupRefs, levelRefs []word
	groupDefs, levelDefs []word
}

func (p *qosParser) group() *PortGroup  { return &p.p.Groups[len(p.p.Groups)-1] }
func (p *qosParser) vlarb() *VLArbScope { return &p.p.VLArb[len(p.p.VLArb)-1] }
func (p *qosParser) sl2vl() *SL2VLScope { return &p.p.SL2VL[len(p.p.SL2VL)-1] }
func (p *qosParser) level() *QoSLevel   { return &p.p.Levels[len(p.p.Levels)-1] }
func (p *qosParser) rule() *QoSRule     { return &p.p.Rules[len(p.p.Rules)-1] }

func (p *qosParser) top() *frame {
	if len(p.stack) == 0 {
		return &frame{}
	}
	return &p.stack[len(p.stack)-1]
}

// line reads one line. A section's word may have more behind it.
func (p *qosParser) line(line word) {
	for line.text != "" {
		top := p.top()
		key, rest, _ := line.cut(blanks + ":")
		switch {
		case slices.Contains(sections[top.section], key.text):
			p.push(key)
			line = rest
		case top.section != "" && key.text == "end-"+top.section:
			p.finish()
			p.pop()
			line = rest
		case p.isOpen(strings.TrimPrefix(key.text, "end-")) && strings.HasPrefix(key.text, "end-"):
			p.r.fail(key, ErrMissing, "expected end-%s first, for line %d", top.section, top.at.line)
			for p.top().section != key.text[len("end-"):] {
				p.pop()
			}
			p.pop()
			line = rest
		case top.section == "qos-ulps":
			p.ulp(line)
			return
		default:
			p.entry(line)
			return
		}
	}
}

func (p *qosParser) isOpen(section string) bool {
	return section != "" && slices.ContainsFunc(p.stack, func(f frame) bool { return f.section == section })
}

func (p *qosParser) push(w word) {
	p.stack = append(p.stack, frame{section: w.text, at: w})
	switch w.text {
	case "port-group":
		p.p.Groups = append(p.p.Groups, PortGroup{})
		p.groupDefs = append(p.groupDefs, w)
	case "vlarb-scope":
		p.p.VLArb = append(p.p.VLArb, VLArbScope{})
	case "sl2vl-scope":
		p.p.SL2VL = append(p.p.SL2VL, SL2VLScope{})
	case "qos-level":
		p.p.Levels = append(p.p.Levels, QoSLevel{})
		p.levelDefs = append(p.levelDefs, w)
	case "qos-match-rule":
		p.p.Rules = append(p.p.Rules, QoSRule{})
	}
}

func (p *qosParser) pop() { p.stack = p.stack[:len(p.stack)-1] }

// finish looks for what a section must have.
func (p *qosParser) finish() {
	top := p.top()
	for _, keys := range needs[top.section] {
		if !slices.ContainsFunc(keys, func(k string) bool { return slices.Contains(top.seen, k) }) {
			p.r.fail(top.at, ErrMissing, "expected %s in this section", oneOf(keys))
		}
	}
}

// entry reads a key and its value.
func (p *qosParser) entry(line word) {
	top := p.top()
	key, val, sep := line.cut(":")
	var known []string
	for i := range entries[top.section] {
		e := &entries[top.section][i]
		if e.key != key.text || sep == 0 {
			known = append(known, e.key+":")
			continue
		}
		if e.once && slices.Contains(top.seen, e.key) {
			p.r.fail(key, ErrDuplicate, "expected one %s in a %s", e.key, top.section)
			return
		}
		top.seen = append(top.seen, e.key)
		if val.text == "" {
			p.r.fail(val, ErrMissing, "expected a value after %s:", e.key)
			return
		}
		e.read(p, val)
		return
	}
	known = append(known, sections[top.section]...)
	if top.section != "" {
		known = append(known, "end-"+top.section)
	}
	first, _, _ := line.cut(blanks + ":")
	p.r.fail(first, ErrUnknown, "expected %s%s", oneOf(known), hint(first.text, known))
}

// name reads one name: text with or without quotes.
func (p *qosParser) name(w word) string {
	s := unquote(w.text)
	if strings.Count(w.text, `"`)%2 != 0 {
		p.r.fail(w, ErrSyntax, "expected a closing quote")
	} else if plain(s) == "" {
		p.r.fail(w, ErrMissing, "expected a name")
	}
	return s
}

func unquote(s string) string { return strings.ReplaceAll(s, `"`, "") }

// plain is a name as names are compared: OpenSM drops blanks and ignores case.
func plain(name string) string {
	return strings.ToLower(strings.Join(strings.FieldsFunc(unquote(name),
		func(r rune) bool { return strings.ContainsRune(blanks, r) }), ""))
}

// names reads a list of names and notes them for later checks.
func (p *qosParser) names(w word, out *[]string, refs *[]word) {
	for _, item := range w.split(',', true) {
		*out = append(*out, p.name(item))
		if refs != nil {
			*refs = append(*refs, item)
		}
	}
}

// rangeList reads numbers and ranges lo-hi; a range the wrong way round is turned, as in OpenSM.
func (p *qosParser) rangeList(w word, what string, hi uint64) (Ranges, bool) {
	var out Ranges
	for _, item := range w.split(',', false) {
		from, to, sep := item.cut("-")
		lo, ok := p.r.number(from, what, 0, hi)
		r := Range{lo, lo}
		if sep != 0 && ok {
			r.Hi, ok = p.r.number(to, what, 0, hi)
		}
		if !ok {
			return nil, false
		}
		if r.Lo > r.Hi {
			r.Lo, r.Hi = r.Hi, r.Lo
		}
		out = append(out, r)
	}
	return out, true
}

func (p *qosParser) ranges(w word, out *Ranges, what string, hi uint64) {
	if rs, ok := p.rangeList(w, what, hi); ok {
		*out = out.add(rs...)
	}
}

// pkeys reads P_Keys, whose membership does not matter here.
func (p *qosParser) pkeys(w word, out *Ranges) {
	rs, ok := p.rangeList(w, "a P_Key", 0xFFFF)
	if !ok {
		return
	}
	for i := range rs {
		lo, hi := rs[i].Lo&uint64(ib.PKeyBase), rs[i].Hi&uint64(ib.PKeyBase)
		rs[i] = Range{min(lo, hi), max(lo, hi)}
	}
	*out = out.add(rs...)
}

// portRanges reads numbers of a switch's ports; an asterisk is all of them.
func (p *qosParser) portRanges(w word, out *Ranges) {
	if w.text == "*" {
		*out = out.add(Range{0, 255})
		return
	}
	p.ranges(w, out, "a port's number, or *", 255)
}

func (p *qosParser) serviceLevel(w word) ib.SL {
	v, _ := p.r.number(w, "a service level", 0, ib.NumSL-1)
	return ib.SL(v)
}

// portNames reads names like "host HCA-1/P1".
func (p *qosParser) portNames(w word) {
	for _, item := range w.split(',', true) {
		s := unquote(item.text)
		i := strings.LastIndexByte(s, '/')
		if i <= 0 || len(s) < i+3 || s[i+1]|0x20 != 'p' || strings.Count(item.text, `"`)%2 != 0 {
			p.r.fail(item, ErrSyntax, "expected a node's description and port, such as host1 HCA-1/P1")
			continue
		}
		n, ok := number(s[i+2:])
		if !ok || n == 0 || n > 254 {
			p.r.fail(item, ErrValue, "expected a port number from 1 to 254 after /P")
			continue
		}
		p.group().PortNames = append(p.group().PortNames, PortName{s[:i], ib.PortNum(n)})
	}
}

// nodeTypeWords are the words of node-type. Case does not matter.
var nodeTypeWords = []struct {
	word  string
	types NodeTypes
	self  bool
}{
	{"CA", 1 << ib.NodeCA, false}, {"SWITCH", 1 << ib.NodeSwitch, false}, {"ROUTER", 1 << ib.NodeRouter, false},
	{"ALL", allNodeTypes, false}, {"SELF", 0, true},
}

func (p *qosParser) nodeTypes(w word) {
next:
	for _, item := range w.split(',', false) {
		var known []string
		for _, t := range nodeTypeWords {
			if strings.EqualFold(item.text, t.word) {
				p.group().Types |= t.types
				p.group().Self = p.group().Self || t.self
				continue next
			}
			known = append(known, t.word)
		}
		p.r.fail(item, ErrUnknown, "expected %s", oneOf(known))
	}
}

// ulp reads a line of the simplified policy: protocol[, criterion values] : SL.
func (p *qosParser) ulp(line word) {
	colon := strings.LastIndexByte(line.text, ':')
	if colon < 0 {
		p.r.fail(line, ErrSyntax, "expected a protocol, a colon and a service level, or end-qos-ulps")
		return
	}
	ulp, by, sep := line.sub(0, colon).cut(",")
	sl := p.serviceLevel(line.from(colon + 1).trim())
	if strings.EqualFold(ulp.text, "default") && sep == 0 {
		p.p.DefaultSL, p.p.HasDefaultSL = sl, true
		return
	}
	u := ULP(0)
	for u < NumULP && !strings.EqualFold(ulp.text, ulpWords[u]) {
		u++
	}
	if u == NumULP {
		known := append([]string{"default"}, ulpWords[:]...)
		p.r.fail(ulp, ErrUnknown, "expected %s%s", oneOf(known), hint(ulp.text, known))
		return
	}
	rule := ULPRule{ULP: u, SL: sl}
	word, vals, _ := by.cut(blanks)
	for rule.By < NumULPBy && word.text != ulpByWords[rule.By] {
		rule.By++
	}
	if !slices.Contains(ulpAllows[u], rule.By) || (rule.By == ByULP && sep != 0) {
		var known []string
		for _, b := range ulpAllows[u] {
			if b == ByULP {
				known = append(known, "nothing more")
			} else {
				known = append(known, b.String())
			}
		}
		p.r.fail(word, ErrUnknown, "expected %s after %s%s", oneOf(known), u, hint(word.text, known))
		return
	}
	switch rule.By {
	case ByULP:
	case ByPortNum:
		p.ranges(vals, &rule.Values, "a port number", 0xFFFF)
	case ByServiceID:
		p.ranges(vals, &rule.Values, "a service ID", ^uint64(0))
	case ByPKey:
		p.pkeys(vals, &rule.Values)
	default:
		p.ranges(vals, &rule.Values, "a port GUID", ^uint64(0))
	}
	p.p.ULPs = append(p.p.ULPs, rule)
}

// DefaultLevelName is the level of queries that no rule matches.
const DefaultLevelName = "DEFAULT"

// check looks at names once all sections are read.
func (p *qosParser) check(last word) {
	groups := map[string]bool{}
	for i, g := range p.p.Groups {
		if n := plain(g.Name); n != "" && groups[n] {
			p.r.fail(p.groupDefs[i], ErrDuplicate, "expected another name: there is a port group %q already", g.Name)
		}
		groups[plain(g.Name)] = true
	}
	levels := map[string]bool{}
	for i, l := range p.p.Levels {
		if n := plain(l.Name); n != "" && levels[n] {
			p.r.fail(p.levelDefs[i], ErrDuplicate, "expected another name: there is a QoS level %q already", l.Name)
		}
		levels[plain(l.Name)] = true
	}
	for _, w := range p.groupRefs {
		if n := plain(w.text); n != "" && !groups[n] {
			p.r.fail(w, ErrUnknown, "expected the name of a port group%s", hint(w.text, namesOf(p.p.Groups)))
		}
	}
	for _, w := range p.levelRefs {
		if n := plain(w.text); n != "" && !levels[n] {
			p.r.fail(w, ErrUnknown, "expected the name of a QoS level%s", hint(w.text, levelNames(p.p.Levels)))
		}
	}
	if !levels[plain(DefaultLevelName)] && !p.p.HasDefaultSL {
		p.r.fail(last, ErrMissing, "expected a qos-level named %s, or default: in qos-ulps", DefaultLevelName)
	}
}

func namesOf(groups []PortGroup) []string {
	var out []string
	for i := range groups {
		out = append(out, groups[i].Name)
	}
	return out
}

func levelNames(levels []QoSLevel) []string {
	var out []string
	for i := range levels {
		out = append(out, levels[i].Name)
	}
	return out
}
