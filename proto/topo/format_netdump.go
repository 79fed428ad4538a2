package topo

import (
	"slices"
	"strconv"
	"strings"

	"softib/proto/ib"
)

// The format of ibdiagnet2.net_dump, a table for each switch:
//
//	"leaf01", Mellanox, 0xb0cf0e0300e5b940, LID 24
//	  #     : IB# : Sta  : PhysSta : MTU : LWA : LSA : FEC mode : Retran : Neighbor Guid      : N#  : NLID : Neighbor…
//	  1/1/1 : 1   : ACT  : LINK UP : 5   : 4x  : 100 : …        : NO-RTR : 0x5c25730300c06f60 : 1   : 156  : "node01 …"
//
// Columns go by their headings, which differ between releases. A port of a switch has a label, by which the far end's
// is named; older releases have numbers there and no column IB#. Hosts have no table.

// Headings that matter.
const (
	colLabel = "#"
	colPort  = "IB#"
	colState = "Sta"
	colWidth = "LWA"
	colSpeed = "LSA"
	colGUID  = "Neighbor Guid"
	colFar   = "N#"
	colLID   = "NLID"
	colDesc  = "Neighbor Description"
)

func isNetDump(line string) bool {
	return strings.HasPrefix(line, `"`) && strings.Contains(line, `", `) && strings.Contains(line, ", LID ")
}

func readNetDump(l *lister, lines []numberedLine) {
	var head listedEnd
	var cols []string
	for _, at := range lines {
		line := strings.TrimSpace(at.text)
		switch {
		case strings.HasPrefix(line, colLabel) && strings.Contains(line, ": "+colWidth):
			cols = columns(line, 0)
		case isNetDump(line):
			head = l.netDumpHead(at, line)
		case isBlank(line):
		case head.guid == 0 || cols == nil || !strings.Contains(line, " : "):
			l.odd(at, `a switch such as "leaf01", Mellanox, 0xb0cf0e0300e5b940, LID 24, its columns, or a port of it`)
		default:
			l.netDumpPort(at, line, head, cols)
		}
	}
	// Whoever has a table of its own is a switch; all others are hosts.
	tables := map[ib.GUID]bool{}
	for i := range l.links {
		tables[l.links[i].near.guid] = true
	}
	for i := range l.links {
		far := &l.links[i].far
		far.kind = ib.NodeCA
		if tables[far.guid] {
			far.kind = ib.NodeSwitch
			continue
		}
		// A host's label is that of its PCI function and then the port: B184D0F0/0/0/1.
		last := far.label[strings.LastIndexByte(far.label, '/')+1:]
		if n, err := strconv.Atoi(last); err == nil && n >= 1 && n <= MaxPorts {
			far.port = n
		}
	}
}

// columns splits a row at its colons, into no more than most if that is positive: the last may hold colons itself.
func columns(line string, most int) []string {
	if most <= 0 {
		most = -1
	}
	list := strings.SplitN(line, " : ", most)
	for i := range list {
		list[i] = strings.TrimSpace(strings.Trim(strings.TrimSpace(list[i]), ":"))
	}
	return list
}

func (l *lister) netDumpHead(at numberedLine, line string) (e listedEnd) {
	i := strings.LastIndex(line, `", `)
	f := strings.Split(line[i+3:], ", ")
	if len(f) != 3 {
		l.odd(at, `a switch such as "leaf01", Mellanox, 0xb0cf0e0300e5b940, LID 24`)
		return e
	}
	guid, err1 := ib.ParseGUID(strings.TrimSpace(f[1]))
	lid, err2 := strconv.ParseUint(strings.TrimPrefix(strings.TrimSpace(f[2]), "LID "), 10, 16)
	if err1 != nil || err2 != nil || guid == 0 {
		l.odd(at, `a switch such as "leaf01", Mellanox, 0xb0cf0e0300e5b940, LID 24`)
		return e
	}
	return listedEnd{kind: ib.NodeSwitch, guid: guid, desc: strings.TrimPrefix(line[:i], `"`),
		lid: l.lidOf(at.num, lid)}
}

func (l *lister) netDumpPort(at numberedLine, line string, head listedEnd, cols []string) {
	row := columns(line, len(cols))
	cell := func(name string) string {
		if i := slices.Index(cols, name); i >= 0 && i < len(row) {
			return row[i]
		}
		return ""
	}
	k := listedLink{line: at.num, near: head}
	k.near.label = cell(colLabel)
	num := cell(colPort)
	if num == "" {
		num = k.near.label
	}
	port, err := strconv.ParseUint(num, 10, 8)
	if err != nil || port < 1 || port > MaxPorts {
		l.odd(at, "a port's number in the column "+colPort+" or "+colLabel)
		return
	}
	k.near.port = int(port)
	if guid, err := ib.ParseGUID(cell(colGUID)); err == nil && guid != 0 && cell(colState) != "DOWN" {
		k.linked = true
		k.far = listedEnd{guid: guid, label: cell(colFar), desc: strings.Trim(cell(colDesc), `"`)}
		if lid, err := strconv.ParseUint(cell(colLID), 10, 16); err == nil {
			k.far.lid = l.lidOf(at.num, lid)
		}
		k.rate.Width, _ = parseWidth(strings.TrimRight(cell(colWidth), "xX"))
		k.rate.Speed, _ = laneSpeed(cell(colSpeed))
	}
	l.links = append(l.links, k)
}
