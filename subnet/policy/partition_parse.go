package policy

import (
	"encoding/binary"
	"strings"

	"softib/proto/ib"
)

// ParsePartitions reads a partitions.conf in the grammar of OpenSM 3.3.23:
//
//	[name][=P_Key][,indx0][,ipoib][,rate=|mtu=|sl=|scope=|Q_Key=|TClass=|FlowLabel=][,defmember=full|limited|both]:
//	        port[=full|limited|both],… | mgid=GID[,rate=…]… ;
//
// Numbers and words are as OpenSM takes them, abbreviated words too. Unlike OpenSM, which skips them
// with a line in its log, it reports flags that it does not know and values out of range.
// What could be read is returned beside the problems.
func ParsePartitions(file string, data []byte) (Partitions, Problems, error) {
	p := partitionParser{r: reporter{file: file}, byKey: map[ib.PKey]keyOwner{}, byName: map[string]ib.PKey{}}
	p.own(ib.PKeyBase, keyOwner{name: DefaultPartitionName, fixed: true})
	for _, line := range lines(data) {
		p.last = line
		p.line(line.uncomment(false))
	}
	if p.open {
		p.r.fail(p.last.end(), ErrMissing, "expected ; at the end of the partition that begins in line %d",
			p.header.line)
		p.close()
	}
	return Partitions{Defs: p.defs}, p.r.warnings, p.r.errs.err()
}

// The words of a definition. OpenSM compares them in this order, as far as they are written.
const (
	flagMTU = iota
	flagRate
	flagScope
	flagQKey
	flagTClass
	flagSL
	flagFlowLabel
	numGroupFlag
	flagIPoIB = iota - 1
	flagDefMember
	flagIndex0
)

var (
	partitionFlags = []string{"mtu", "rate", "scope", "Q_Key", "TClass", "sl", "FlowLabel", "ipoib", "defmember",
		"indx0"}
	groupFlags = partitionFlags[:numGroupFlag]
)

// groupFlagRange has what each flag with a number means and its limits.
var groupFlagRange = [numGroupFlag]struct {
	what   string
	lo, hi uint64
}{
	flagMTU:       {"an MTU as IBA encodes it (4 is 2048)", uint64(ib.MTU256), uint64(ib.MTU4096)},
	flagRate:      {"a rate as IBA encodes it (3 is 10 Gb/s)", rateMin, rateMax},
	flagScope:     {"a multicast scope (2 is link-local)", 1, 15},
	flagQKey:      {"a Q_Key", 0, 0xFFFFFFFF},
	flagTClass:    {"a traffic class", 0, 0xFF},
	flagSL:        {"a service level", 0, ib.NumSL - 1},
	flagFlowLabel: {"a flow label", 0, 0xFFFFF},
}

// The rates that IBA encodes in PathRecord (15.2.5.16).
const (
	rateMin = 2
	rateMax = 24
)

// keyOwner is the partition that a number was first given to.
type keyOwner struct {
	name  string
	fixed bool // the file gave the number
	line  int
}

type partitionParser struct {
	r      reporter
	defs   []PartitionDef
	byKey  map[ib.PKey]keyOwner
	byName map[string]ib.PKey
	// counter is the last number that was given to a partition without one.
	counter ib.PKey

	open   bool // within a definition
	header word
	def    PartitionDef
	member Membership // of ports that don't say
	last   word
}

// line reads one line: the rest of an open definition, and those that begin here.
func (p *partitionParser) line(line word) {
	for {
		line = line.trim()
		if line.text == "" {
			return
		}
		part, rest, end := line, word{}, strings.IndexByte(line.text, ';')
		if end >= 0 {
			part, rest = line.sub(0, end), line.from(end+1)
		}
		if !p.open {
			part = p.begin(part.trim())
		}
		p.list(part.trim())
		if end < 0 {
			return
		}
		p.close()
		line = rest
	}
}

func (p *partitionParser) close() {
	p.defs = append(p.defs, p.def)
	p.open = false
}

// begin reads a definition up to its colon and returns what follows.
func (p *partitionParser) begin(w word) word {
	p.open, p.header = true, w
	p.def, p.member = PartitionDef{Params: defaultGroupParams()}, Limited
	colon := strings.IndexByte(w.text, ':')
	if colon < 0 {
		p.r.fail(w, ErrSyntax, "expected a partition's name and P_Key and a colon, all on one line")
		p.number(w)
		return w.end()
	}
	items := w.sub(0, colon).split(',', false)
	for _, item := range items[1:] {
		p.flag(item)
	}
	name, key, sep := items[0].cut("=")
	if sep == 0 && name.text != "" && isDigit(name.text[0]) {
		name, key, sep = items[0].sub(0, 0), name, '='
	}
	p.def.Name = name.text
	if sep != 0 {
		if v, ok := p.r.number(key, "a P_Key", 0, 0xFFFF); ok {
			p.def.PKey = ib.PKey(v).Base()
		}
	}
	p.number(items[0])

	// OpenSM's manual also shows flags between two colons: name=key : defmember=limited : ports.
	rest := w.from(colon + 1).trim()
	if i := strings.IndexByte(rest.text, ':'); i >= 0 {
		first, _, _ := rest.cut(",=: \t")
		for _, f := range partitionFlags {
			if first.text == f {
				for _, item := range rest.sub(0, i).split(',', false) {
					p.flag(item)
				}
				return rest.from(i + 1)
			}
		}
	}
	return rest
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

// number gives the definition its partition: the number of the file, else the partition of that name,
// else the next free number, counted from 1 in the order of the file as OpenSM does, so that the
// two agree about a fabric.
func (p *partitionParser) number(at word) {
	d := &p.def
	if d.PKey != 0 {
		d.Key = d.PKey
		owner, taken := p.byKey[d.Key]
		if !taken {
			p.own(d.Key, keyOwner{d.Name, true, at.line})
		} else if !owner.fixed && owner.name != d.Name {
			p.r.fail(at, ErrConflict, "P_Key %s was given to partition %q in line %d, which has none of its "+
				"own; give that one a number", d.Key, owner.name, owner.line)
		}
		return
	}
	if key, ok := p.byName[d.Name]; ok {
		d.Key = key
		return
	}
	for p.counter < ib.PKeyBase-1 {
		p.counter++
		if _, taken := p.byKey[p.counter]; !taken {
			d.Key = p.counter
			p.own(d.Key, keyOwner{d.Name, false, at.line})
			return
		}
	}
	p.r.fail(at, ErrConflict, "all P_Keys from 0x0001 to 0x7ffe are taken")
	d.Key = ib.PKeyBase
}

// own notes who has a number. A name stands for the first partition that had it.
func (p *partitionParser) own(key ib.PKey, o keyOwner) {
	p.byKey[key] = o
	if _, known := p.byName[o.name]; !known && o.name != "" {
		p.byName[o.name] = key
	}
}

// flag reads one flag of a definition.
func (p *partitionParser) flag(w word) {
	if w.text == "" {
		p.r.fail(w, ErrSyntax, "expected a flag between commas")
		return
	}
	name, val, sep := w.cut("=")
	switch f := abbreviated(name.text, partitionFlags); f {
	case -1:
		p.r.fail(name, ErrUnknown, "expected %s%s", oneOf(partitionFlags), hint(name.text, partitionFlags))
	case flagIPoIB:
		p.def.IPoIB = true
		p.bare(val, sep)
	case flagIndex0:
		p.def.Index0 = true
		p.bare(val, sep)
	case flagDefMember:
		if m := membership(val.text); m != NotMember {
			p.member = m
		} else {
			p.r.fail(val, ErrValue, "expected full, limited or both")
		}
	default:
		p.groupFlag(&p.def.Params, f, val)
	}
}

func (p *partitionParser) bare(val word, sep byte) {
	if sep != 0 {
		p.r.fail(val, ErrSyntax, "expected , or : after a flag that has no value")
	}
}

// groupFlag reads the value of one of the flags of a multicast group.
func (p *partitionParser) groupFlag(g *GroupParams, flag int, val word) {
	lim := &groupFlagRange[flag]
	v, ok := p.r.number(val, lim.what, lim.lo, lim.hi)
	if !ok {
		return
	}
	switch flag {
	case flagMTU:
		g.MTU = ib.MTU(v)
	case flagRate:
		g.Rate = uint8(v)
	case flagScope:
		g.Scopes |= 1 << v
	case flagQKey:
		g.QKey = ib.QKey(v)
	case flagTClass:
		g.TClass = uint8(v)
	case flagSL:
		g.SL = ib.SL(v)
	case flagFlowLabel:
		g.FlowLabel = uint32(v)
	}
}

func membership(s string) Membership {
	// In OpenSM's order: what abbreviates nothing is NotMember here.
	switch abbreviated(s, []string{"full", "both", "limited"}) {
	case 0:
		return Full
	case 1:
		return Both
	case 2:
		return Limited
	}
	return NotMember
}

// portWords are the words for ports in OpenSM's order, with NONE, which adds nobody.
var portWords = []string{"NONE", "ALL", "ALL_CAS", "ALL_SWITCHES", "ALL_ROUTERS", "ALL_VCAS", "SELF"}

// list reads ports and multicast groups. An mgid takes the rest of its line.
func (p *partitionParser) list(w word) {
	for _, item := range w.split(',', false) {
		name, val, sep := item.cut("=")
		if name.text == "mgid" {
			p.group(val, w.from(item.col+len(item.text)-w.col))
			return
		}
		if name.text == "" {
			if sep != 0 {
				p.r.fail(item, ErrSyntax, "expected a port before =")
			}
			continue
		}
		p.port(name, val, sep)
	}
}

func (p *partitionParser) port(name, val word, sep byte) {
	m := Member{Membership: p.member}
	if sep != 0 {
		if m.Membership = membership(val.text); m.Membership == NotMember {
			// OpenSM's manual: an unrecognized membership is limited.
			m.Membership = Limited
			p.r.warn(val, ErrUnknown, "expected full, limited or both; taken as limited")
		}
	}
	if !isDigit(name.text[0]) {
		i := abbreviated(name.text, portWords)
		switch {
		case i < 0:
			p.r.fail(name, ErrUnknown, "expected a port GUID, mgid= or one of %s%s", oneOf(portWords),
				hint(name.text, append([]string{"mgid"}, portWords...)))
		case i > 0:
			m.Who = Who(i)
			p.def.Members = append(p.def.Members, m)
		}
		return
	}
	if g, ok := p.r.guid(name, "a port GUID"); ok {
		m.GUID = g
		p.def.Members = append(p.def.Members, m)
	}
}

// Where an IP group's MGID has its signature and its P_Key (RFC 4391, 4).
const (
	mgidSignature = 2
	mgidPKey      = 4
)

func isIPGroup(g ib.GID) bool {
	sig := binary.BigEndian.Uint16(g[mgidSignature:])
	return sig == 0x401B || sig == 0x601B
}

// broadcastMGID is IPoIB's broadcast group before it has a P_Key and a scope.
var broadcastMGID = ib.GID{0: 0xFF, 1: 0x12, 2: 0x40, 3: 0x1B, 4: 0xFF, 5: 0xFF, 12: 0xFF, 13: 0xFF, 14: 0xFF, 15: 0xFF}

// group reads an mgid line: the group's GID and flags up to the end of the line.
func (p *partitionParser) group(gid, flags word) {
	g := MulticastGroup{Params: inherited(p.def.Params)}
	for _, item := range flags.split(',', false) {
		if item.text == "" {
			continue
		}
		name, val, _ := item.cut("=")
		if f := abbreviated(name.text, groupFlags); f >= 0 {
			p.groupFlag(&g.Params, f, val)
		} else {
			p.r.fail(name, ErrUnknown, "expected a flag of the multicast group, %s; ports begin on a line of "+
				"their own%s", oneOf(groupFlags), hint(name.text, groupFlags))
		}
	}
	mgid, err := ib.ParseGID(gid.text)
	if err != nil || !mgid.IsMulticast() {
		p.r.fail(gid, ErrValue, "expected a multicast GID such as ff12:401b::16")
		return
	}
	if isIPGroup(mgid) {
		key := ib.PKey(binary.BigEndian.Uint16(mgid[mgidPKey:]))
		if key != 0 && key.Base() != p.def.Key && mgid != broadcastMGID {
			p.r.fail(gid, ErrConflict, "expected P_Key 0 or that of the partition, %s, in the third group of "+
				"digits of an IP multicast GID", p.def.Key|ib.PKeyFull)
			return
		}
		if g.Params.Rate != p.def.Params.Rate || g.Params.MTU != p.def.Params.MTU {
			p.r.fail(flags, ErrConflict, "expected the rate (%d) and MTU (%d) of the partition: IP groups have "+
				"those of the broadcast group", p.def.Params.Rate, uint8(p.def.Params.MTU))
			return
		}
		binary.BigEndian.PutUint16(mgid[mgidPKey:], uint16(p.def.Key|ib.PKeyFull))
	}
	g.MGID = mgid
	p.def.Groups = append(p.def.Groups, g)
}

// oneOf lists words for a message.
func oneOf(words []string) string {
	if len(words) == 1 {
		return words[0]
	}
	return strings.Join(words[:len(words)-1], ", ") + " or " + words[len(words)-1]
}
