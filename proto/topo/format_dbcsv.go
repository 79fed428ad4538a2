package topo

import (
	"slices"
	"strconv"
	"strings"

	"softib/proto/ib"
)

// The format of ibdiagnet2.db_csv: sections, each with a line of headings.
//
//	START_NODES
//	NodeDesc,NumPorts,NodeType,…,SystemImageGUID,NodeGUID,PortGUID,DeviceID,…,VendorID,…
//	"leaf01",65,2,…
//	END_NODES
//	START_PORTS
//	NodeGuid,PortGuid,PortNum,…,LID,…,LinkWidthActv,…,LinkSpeedActv,LMC,…
//	END_PORTS
//	START_LINKS
//	NodeGuid1,PortNum1,NodeGuid2,PortNum2
//	END_LINKS
//
// Other sections are passed over but for EXTENDED_PORT_INFO, Mellanox' attribute, which alone knows FDR10.

const dbStart, dbEnd = "START_", "END_"

func isDBCSV(line string) bool {
	name, ok := strings.CutPrefix(line, dbStart)
	return ok && name != "" && !strings.ContainsAny(name, " \t,=")
}

// dbRow is a line of a section, by its headings.
type dbRow struct {
	at    numberedLine
	heads []string
	cells []string
}

func (r *dbRow) text(head string) string {
	if i := slices.Index(r.heads, head); i >= 0 && i < len(r.cells) {
		return r.cells[i]
	}
	return ""
}

// num is a cell's number, in hex behind 0x; 0 where there is none.
func (r *dbRow) num(head string) uint64 {
	n, err := strconv.ParseUint(r.text(head), 0, 64)
	if err != nil {
		return 0
	}
	return n
}

// dbPort is what the sections about ports say of one.
type dbPort struct {
	guid  ib.GUID
	lid   ib.LID
	lmc   uint8
	rate  ib.LinkRate
	could ib.LinkRate
	// fdr10 is in use, and couldFDR10 can be.
	fdr10, couldFDR10 bool
}

type dbPortKey struct {
	node ib.GUID
	port int
}

func readDBCSV(l *lister, lines []numberedLine) {
	nodes := map[ib.GUID]listedEnd{}
	ports := map[dbPortKey]dbPort{}
	var order []ib.GUID
	var links []dbRow
	l.dbSections(lines, func(section string, r *dbRow) {
		key := dbPortKey{ib.GUID(r.num("NodeGuid")), int(r.num("PortNum"))}
		switch section {
		case "NODES":
			n := l.dbNode(r)
			if _, dup := nodes[n.guid]; !dup && n.guid != 0 {
				order = append(order, n.guid)
			}
			nodes[n.guid] = n
		case "PORTS":
			p := ports[key]
			p.guid, p.lid, p.lmc = ib.GUID(r.num("PortGuid")), l.lidOf(r.at.num, r.num("LID")), uint8(r.num("LMC"))
			p.could = ib.LinkRate{Width: ib.Width(r.num("LinkWidthSup")).Widest(),
				Speed: dbSpeed(r.num("LinkSpeedSup"))}
			p.rate = ib.LinkRate{Width: ib.Width(r.num("LinkWidthActv")).Widest(),
				Speed: dbSpeed(r.num("LinkSpeedActv"))}
			ports[key] = p
		case "EXTENDED_PORT_INFO":
			p := ports[key]
			p.fdr10, p.couldFDR10 = r.num("LinkSpeedActive")&1 != 0, r.num("LinkSpeedSupported")&1 != 0
			ports[key] = p
		case "LINKS":
			links = append(links, *r)
		}
	})
	end := func(r *dbRow, guid, port string) (listedEnd, bool) {
		key := dbPortKey{ib.GUID(r.num(guid)), int(min(r.num(port), MaxPorts+1))}
		e, ok := nodes[key.node]
		if !ok || key.port < 1 || key.port > max(e.ports, 1) {
			l.fail(r.at.num, ErrUnknownNode, "port %d of node %v is not among the nodes of the file: want both in the "+
				"section NODES", key.port, key.node)
			return e, false
		}
		p := ports[key]
		e.port, e.portGUID, e.lid, e.lmc, e.could = key.port, p.guid, p.lid, p.lmc, p.could
		if p.couldFDR10 && e.could.Speed == ib.QDR {
			e.could.Speed = ib.FDR10
		}
		return e, true
	}
	for i := range links {
		k := listedLink{line: links[i].at.num, linked: true}
		var ok1, ok2 bool
		k.near, ok1 = end(&links[i], "NodeGuid1", "PortNum1")
		k.far, ok2 = end(&links[i], "NodeGuid2", "PortNum2")
		if !ok1 || !ok2 {
			return
		}
		p := ports[dbPortKey{k.near.guid, k.near.port}]
		k.rate = p.rate
		if p.fdr10 && k.rate.Speed == ib.QDR {
			k.rate.Speed = ib.FDR10
		}
		l.links = append(l.links, k)
	}
	// Nodes without cables, and the addresses of switches, which are those of their ports 0.
	for _, guid := range order {
		e := nodes[guid]
		p := ports[dbPortKey{guid, 0}]
		e.lid, e.lmc = p.lid, p.lmc
		l.links = append(l.links, listedLink{line: 1, near: e})
	}
}

// dbSections calls row for each line of each section that has headings.
func (l *lister) dbSections(lines []numberedLine, row func(section string, r *dbRow)) {
	section := ""
	var heads []string
	for _, at := range lines {
		switch {
		case isBlank(at.text):
		case isNoise(at.text):
			l.odd(at, "")
		case section == "" && isDBCSV(at.text):
			section, heads = strings.TrimPrefix(at.text, dbStart), nil
		case section == "":
			l.odd(at, "the start of a section such as START_NODES")
		case at.text == dbEnd+section:
			section = ""
		case heads == nil:
			heads = splitCSV(at.text)
		default:
			row(section, &dbRow{at, heads, splitCSV(at.text)})
		}
	}
	if section != "" {
		l.fail(lines[len(lines)-1].num, ErrSyntax, "the file ends within section %s: want %s%s", section, dbEnd,
			section)
	}
}

func (l *lister) dbNode(r *dbRow) listedEnd {
	e := listedEnd{kind: ib.NodeType(r.num("NodeType")), guid: ib.GUID(r.num("NodeGUID")), desc: r.text("NodeDesc"),
		system: ib.GUID(r.num("SystemImageGUID")), vendor: uint32(r.num("VendorID")),
		device: uint16(r.num("DeviceID")), ports: int(min(r.num("NumPorts"), MaxPorts+1))}
	if e.kind < ib.NodeCA || e.kind > ib.NodeRouter || e.guid == 0 || e.ports > MaxPorts {
		l.fail(r.at.num, ErrSyntax, "found %s: want a node with a NodeGUID, a NodeType from 1 to 3 and at most %d "+
			"ports", quoteShort(r.at.text), MaxPorts)
	}
	if e.kind == ib.NodeSwitch {
		e.portGUID = ib.GUID(r.num("PortGUID"))
	}
	return e
}

// dbSpeed reads the active speeds of PortInfo as the file joins them: bits of LinkSpeedActive, from bit 8 those of
// LinkSpeedExtActive, and from bit 16 those of the second extension.
func dbSpeed(n uint64) ib.Speed {
	for _, at := range [...]struct {
		bit   uint64
		speed ib.Speed
	}{{1 << 16, ib.XDR}, {8 << 8, ib.NDR}, {4 << 8, ib.HDR}, {2 << 8, ib.EDR}, {1 << 8, ib.FDR}, {4, ib.QDR},
		{2, ib.DDR}, {1, ib.SDR}} {
		if n&at.bit != 0 {
			return at.speed
		}
	}
	return 0
}

// splitCSV splits a line at commas outside of quotes.
func splitCSV(line string) []string {
	var cells []string
	quoted, start := false, 0
	for i := 0; i <= len(line); i++ {
		switch {
		case i < len(line) && line[i] == '"':
			quoted = !quoted
		case i == len(line) || line[i] == ',' && !quoted:
			cells = append(cells, strings.Trim(strings.TrimSpace(line[start:i]), `"`))
			start = i + 1
		}
	}
	return cells
}
