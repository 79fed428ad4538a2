package topo

import (
	"fmt"
	"slices"
	"strings"

	"softib/proto/ib"
)

// The format, as ibnetdiscover prints it and ibsim reads it:
//
//	vendid=0x2c9                    what follows describes the next node
//	devid=0xcb20
//	sysimgguid=0x…
//	switchguid=0x…(port 0's GUID)   or caguid=0x…, rtguid=0x…
//	Switch	36 "S-…"		# "description" base port 0 lid 1 lmc 0
//	[1]	"H-…"[1](port GUID) 		# "its description" lid 4 4xEDR
//
//	Ca	2 "H-…"			# "description"
//	[1](port GUID) 	"S-…"[1]		# lid 4 lmc 0 "its description" lid 1 4xEDR
//
// A router is "Rt … "R-…"". With grouping, ports carry "[ext 12]" and there are
// lines for chassis. A cable stands in the file twice, once at each end.
//
// Hand-written ibsim files are shorter: Hca for Ca, any string as an id, no GUIDs
// (they then run on from 0x100000 for hosts and 0x200000 for switches, as in
// ibsim, or from the last caguid= or switchguid=), [1] left out of the far
// end, options w= and s= behind it, width= and speed= for what follows, and
// module="x", which puts ids and @aliases into a name space. The statements include
// and do are refused: this package opens no file and has no console.
//
// softib adds four things in places that other readers skip: the line
// "# softib kind: fat tree", "len 3m" at the end of a port's comment where a
// cable is not 2 m long, "could 4xEDR" there where somebody knows what the port
// can do, and "name h1" at the end of a node's comment where the rules above
// namer would give another.

// kindComment introduces Graph.Kind.
const kindComment = "# softib kind: "

// fileNode is a node as the file has it.
type fileNode struct {
	Node
	id        string
	line, col int
	numPorts  int
	lid       ib.LID
	lmc       uint8
	portGUID  ib.GUID
	// ports is indexed by port number; nil where the file has no line.
	ports []*filePort
}

// filePort is a port's line.
type filePort struct {
	line     int
	guid     ib.GUID
	link     LinkSpec
	could    ib.LinkRate
	lid      ib.LID
	lmc      uint8
	isAlias  bool
	peerID   string
	peerCol  int
	peerPort int
	peerGUID ib.GUID
}

// reader holds what one line of the file leaves for the next.
type reader struct {
	file  string
	kind  string
	nodes []*fileNode
	byID  map[string]int
	// alias maps prefix@name to a port.
	alias  map[string]aliasPort
	names  *namer
	cur    *fileNode
	prefix string
	// width and speed are ibsim's defaults for the ports that follow.
	link   LinkSpec
	vendor uint32
	device uint16
	system ib.GUID
	guids  [ib.NodeRouter + 1]guidRun
	odd    []Remark
}

type aliasPort struct{ node, port int }

// guidRun hands out GUIDs of one node type.
type guidRun struct {
	base, next ib.GUID
	// stated is set by a line for the very next node, which may name port 0 too.
	stated   bool
	portGUID ib.GUID
}

// parseDiscovered reads a fabric in ibnetdiscover's format from its first line on; odd is what stands before that.
func parseDiscovered(file string, lines []numberedLine, first int, odd []Remark) (*Graph, []Remark, error) {
	r := &reader{file: file, byID: map[string]int{}, alias: map[string]aliasPort{}, names: newNamer(), odd: odd}
	for t := ib.NodeCA; t <= ib.NodeRouter; t++ {
		base := ib.GUID(t) * 0x100000
		r.guids[t] = guidRun{base: base, next: base}
	}
	for i, line := range lines {
		if i < first && !strings.HasPrefix(line.text, "#") {
			continue
		}
		c := &cursor{file: file, line: line.num, text: line.text}
		r.readLine(c)
		if c.err != nil {
			if len(r.nodes) == 0 && len(odd) > 0 {
				// What was passed over may have been the node.
				c.err.Detail += fmt.Sprintf("; %v", odd[len(odd)-1])
			}
			return nil, nil, c.err
		}
		r.odd = append(r.odd, c.odd...)
	}
	g, err := r.build()
	return g, r.odd, err
}

// isDiscovered accepts a line that only this format has: a port, an alias, or a word of its own that no colon follows,
// as it does in what ibswitches and iblinkinfo print.
func isDiscovered(line string) bool {
	if line[0] == '@' {
		line = line[1:]
		if !strings.HasPrefix(line, "[") {
			return false
		}
	}
	if rest, ok := strings.CutPrefix(line, "["); ok {
		return rest != "" && isDigit(rest[0]) // and not a shell's [root@node01 ~]#
	}
	end := 0
	for end < len(line) && (isLetter(line[end]) || line[end] == '-') {
		end++
	}
	word, rest := line[:end], line[end:]
	if word == "" || strings.HasPrefix(rest, ":") || strings.HasPrefix(strings.TrimLeft(rest, " \t"), ":") {
		return false
	}
	return nodeWords[word] != 0 || guidWords[word] != 0 || slices.Contains(otherWords[:], word)
}

// otherWords are the rest of the words that begin a line.
var otherWords = [...]string{"Chassis", "Non-Chassis", "include", "do", "vendid", "devid", "sysimgguid", "width",
	"speed", "module", "pdebug"}

// wantStatement says what a line may begin with.
const wantStatement = `"Switch", "Ca", "Hca" or "Rt", a port such as [1], or one of vendid=, devid=, sysimgguid=, ` +
	`switchguid=, caguid=, rtguid=`

func (r *reader) readLine(c *cursor) {
	c.space()
	if c.pos == len(c.text) {
		return
	}
	if isNoise(c.text) {
		c.warn("%s is what a tool wrote on the side, and was passed over", quoteShort(c.text))
		return
	}
	switch c.text[c.pos] {
	case '#':
		if kind, ok := strings.CutPrefix(c.text, kindComment); ok {
			r.kind = strings.TrimSpace(cleanDesc(kind))
		}
	case '[':
		r.readPort(c)
	case '@':
		r.readAlias(c)
	default:
		r.readStatement(c)
	}
}

// nodeWords start a node; guidWords give it its GUID.
var (
	nodeWords = map[string]ib.NodeType{"Switch": ib.NodeSwitch, "Ca": ib.NodeCA, "Hca": ib.NodeCA, "Rt": ib.NodeRouter}
	guidWords = map[string]ib.NodeType{
		"switchguid": ib.NodeSwitch, "switchguids": ib.NodeSwitch,
		"caguid": ib.NodeCA, "caguids": ib.NodeCA, "hcaguid": ib.NodeCA, "hcaguids": ib.NodeCA,
		"rtguid": ib.NodeRouter, "rtguids": ib.NodeRouter,
	}
)

func (r *reader) readStatement(c *cursor) {
	start := c.pos
	word := c.run(func(b byte) bool { return isLetter(b) || b == '-' })
	if t, ok := nodeWords[word]; ok {
		r.readNode(c, t, start)
		return
	}
	switch word {
	case "Chassis", "Non-Chassis", "Hostname":
		// Headings of a grouped dump.
		return
	case "include", "do":
		c.failAt(start, word, ErrUnsupported,
			"%q is for ibsim alone: put the included file in its place, or remove the line", word)
		return
	}
	// Whatever is left assigns something, and ends the node before it.
	r.cur = nil
	if t, ok := guidWords[word]; ok {
		r.readGUID(c, t)
		return
	}
	assign := func() {
		c.space()
		c.expect('=', `"="`)
		c.space()
	}
	switch word {
	case "vendid":
		assign()
		r.vendor = uint32(c.uint("a vendor id such as 0x2c9", 32))
	case "devid":
		assign()
		r.device = uint16(c.uint("a device id such as 0xcb20", 16))
	case "sysimgguid":
		assign()
		r.system = ib.GUID(c.hex("a GUID such as 0x2c90300a1b2c3", 64))
	case "width":
		assign()
		r.link.Width = c.widthMask()
	case "speed":
		assign()
		r.link.Speed = c.speedMask()
	case "module":
		assign()
		r.prefix = c.quoted(`a name in quotes, such as module="rack1"`)
		r.checkID(c, start, r.prefix)
	case "pdebug":
		assign()
		c.number("a number")
	default:
		c.pos = start
		c.want(wantStatement)
	}
	if !c.done() {
		c.want("the end of the line")
	}
}

// readGUID reads switchguid=0x…(0x…) and its kin, and ibsim's switchguids+8.
func (r *reader) readGUID(c *cursor, t ib.NodeType) {
	c.space()
	relative := c.next('+')
	if !c.accept('+') {
		c.expect('=', `"=" or "+"`)
	}
	c.space()
	run := &r.guids[t]
	if relative {
		run.next = run.base + ib.GUID(c.uint("how far from the last base, such as +16", 64))
	} else {
		run.next = c.guid("a GUID such as 0x2c90300a1b2c3")
		run.base = run.next
	}
	run.stated, run.portGUID = true, 0
	c.space()
	if c.accept('(') {
		run.portGUID = c.guid("the GUID of port 0")
		c.expect(')', `")"`)
	}
	if !c.done() {
		c.want("the end of the line")
	}
}

// checkID refuses the two characters that ibsim joins names with.
func (r *reader) checkID(c *cursor, pos int, id string) {
	if c.err == nil && strings.ContainsAny(id, "#@") {
		c.failAt(pos, id, ErrSyntax, "%q holds # or @, which join modules and aliases to names: want other characters",
			id)
	}
}

// readNode reads: Switch	36 "S-…"	# "description" base port 0 lid 1 lmc 0
func (r *reader) readNode(c *cursor, t ib.NodeType, start int) {
	c.space()
	at := c.pos
	ports := c.number("the number of ports")
	if c.err == nil && (ports < 1 || ports > MaxPorts) {
		c.failAt(at, c.text[at:c.pos], ErrPortCount, "found %d: want 1 to %d ports", ports, MaxPorts)
	}
	c.space()
	at = c.pos
	id := c.quoted(`the node's id in quotes, such as "S-0002c90200400000"`)
	r.checkID(c, at, id)
	written := id
	if r.prefix != "" {
		id = r.prefix + "#" + id
	}
	if c.err == nil {
		if i, dup := r.byID[id]; dup {
			c.failAt(at, written, ErrDuplicateID, "%q is also the node on line %d: want an id of its own", written,
				r.nodes[i].line)
		}
	}
	comment, commentAt := c.comment()
	n := &fileNode{id: id, line: c.line, col: at + 1, numPorts: ports}
	n.Type, n.VendorID, n.DeviceID, n.SystemGUID = t, r.vendor, r.device, r.system
	r.readNodeComment(c, n, comment, commentAt)
	if c.err != nil {
		return
	}
	r.giveGUID(n, written)
	n.ports = make([]*filePort, ports+1)
	r.system = 0
	r.byID[id] = len(r.nodes)
	r.nodes = append(r.nodes, n)
	r.cur = n
}

// giveGUID takes the GUID from the line before, or from an id made of one, or the
// next that is free, in this order.
func (r *reader) giveGUID(n *fileNode, id string) {
	run := &r.guids[n.Type]
	guid, isGUID := guidOfID(id)
	switch {
	case run.stated:
		n.GUID, n.portGUID = run.next, run.portGUID
	case isGUID:
		n.GUID = guid
		return
	default:
		n.GUID = run.next
	}
	run.stated = false
	// ibsim keeps one GUID for a switch and one for each port of the others.
	run.next++
	if !n.IsSwitch() {
		run.next += ib.GUID(n.numPorts)
	}
}

// guidOfID reads an id such as S-0002c90200400000.
func guidOfID(id string) (ib.GUID, bool) {
	if len(id) != 18 || id[1] != '-' || !strings.Contains("SHR", id[:1]) {
		return 0, false
	}
	g, err := ib.ParseGUID(id[2:])
	return g, err == nil && g != 0 && !strings.ContainsAny(id[2:], ":xX")
}

// readPort reads: [1](guid)	"S-…"[1](guid)	w=2	# …
func (r *reader) readPort(c *cursor) {
	p, num := r.readPortHead(c)
	if c.err != nil {
		return
	}
	c.space()
	c.label(r.cur.IsSwitch())
	if c.accept('(') {
		p.guid = c.guid("the port's GUID")
		c.expect(')', `")"`)
		c.space()
	}
	p.peerCol = c.pos + 1
	p.peerID = c.quoted(`the far node's id in quotes, such as "S-0002c90200400000"`)
	p.peerID = r.expand(p.peerID)
	p.peerPort = 1
	c.space()
	if c.accept('[') {
		at := c.pos
		p.peerPort = c.number("the far port's number")
		if c.err == nil && p.peerPort == 0 {
			c.failAt(at, "0", ErrUnknownPort, "port 0 takes no cable: want a port from 1")
		}
		c.expect(']', `"]"`)
		c.extPort()
	}
	c.space()
	if c.accept('(') {
		p.peerGUID = c.guid("the far port's GUID")
		c.expect(')', `")"`)
	}
	for !c.done() {
		c.portOption(&p.link)
	}
	comment, commentAt := c.comment()
	r.readPortComment(c, p, comment, commentAt)
	if c.err == nil {
		r.cur.ports[num] = p
	}
}

// readAlias reads ibsim's: @[1]	"name", a port that another module's file names.
func (r *reader) readAlias(c *cursor) {
	c.pos++
	p, num := r.readPortHead(c)
	c.space()
	at := c.pos
	name := c.quoted("the alias in quotes")
	r.checkID(c, at, name)
	for !c.done() {
		c.portOption(&p.link)
	}
	if c.err != nil {
		return
	}
	full := r.prefix + "@" + name
	if a, dup := r.alias[full]; dup {
		c.failAt(at, name, ErrDuplicateID, "alias %q is also a port on line %d: want a name of its own", full,
			r.nodes[a.node].ports[a.port].line)
		return
	}
	r.alias[full] = aliasPort{len(r.nodes) - 1, num}
	p.isAlias = true
	r.cur.ports[num] = p
}

// readPortHead reads [1] and [1][ext 12], and checks that the node has the port.
func (r *reader) readPortHead(c *cursor) (*filePort, int) {
	p := &filePort{line: c.line, link: LinkSpec{Width: r.link.Width, Speed: r.link.Speed}}
	start := c.pos
	c.expect('[', `a port such as "[1]"`)
	at := c.pos
	num := c.number("a port number")
	c.expect(']', `"]"`)
	c.extPort()
	if c.err != nil {
		return p, 0
	}
	if r.cur == nil {
		c.failAt(start, c.text[start:c.pos], ErrUnknownNode,
			"a port before any node: want a line such as Switch 36 \"S-1\" first")
		return p, 0
	}
	if num < 1 || num > r.cur.numPorts {
		c.failAt(at, c.text[at:c.pos-1], ErrUnknownPort, "found port %d: %q on line %d has ports 1 to %d", num,
			r.cur.id, r.cur.line, r.cur.numPorts)
		return p, 0
	}
	if old := r.cur.ports[num]; old != nil {
		c.failAt(at, c.text[at:c.pos-1], ErrPortInUse,
			"port %d of %q has a cable on line %d already: want one line for each port", num, r.cur.id, old.line)
	}
	return p, num
}

// extPort skips "[ext 12]", the number on a chassis' front panel.
func (c *cursor) extPort() {
	if c.err == nil && strings.HasPrefix(c.text[c.pos:], "[ext ") {
		c.pos += len("[ext ")
		c.number("the number of an external port")
		c.expect(']', `"]"`)
	}
}

// label skips the label of a port, which ibdiagnet writes in front of a host's GUID, and where a switch has none:
// [1](1/12/2) is the chip, the cage and its port.
func (c *cursor) label(isSwitch bool) {
	rest := c.text[c.pos:]
	end := strings.IndexByte(rest, ')')
	if c.next('(') && end >= 0 && (isSwitch || strings.HasPrefix(rest[end:], ")(")) {
		c.pos += end + 1
		c.space()
	}
}

// expand puts a name into the current module, unless it says its own.
func (r *reader) expand(id string) string {
	switch {
	case strings.HasPrefix(id, "@"):
		return r.prefix + id
	case r.prefix == "" || strings.ContainsAny(id, "#@"):
		return id
	}
	return r.prefix + "#" + id
}
