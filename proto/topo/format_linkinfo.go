package topo

import (
	"strconv"
	"strings"

	"softib/proto/ib"
)

// The format of iblinkinfo, a heading for each node and a line for each port:
//
//	CA: node01 HCA-1:
//	      0x0002c9030001f1a1      1    1[  ] ==( 4X          10.0 Gbps Active/  LinkUp)==>       2    9[  ] "leaf" ( )
//	Switch: 0x0002c902004b2678 leaf:
//	           2    8[  ] ==(                Down/ Polling)==>             [  ] "" ( )
//	           2    9[  ] ==( 4X          10.0 Gbps Active/  LinkUp)==>       1    1[  ] "node01 HCA-1" ( Could be FDR10 )
//
// and with -l a line that has all of it:
//
//	0x0002c902004b2678 "leaf"   2    9[  ] ==( 4X 10.0 Gbps Active/  LinkUp)==>  0x0002c9030001f1a1   1    1[  ] "…" ( )
//
// GUIDs of hosts are their ports'. Without -l the far end is known by its address alone.

// linkArrow stands between the two ends.
const linkArrow = ")==>"

// linkHeads start a node.
var linkHeads = [...]struct {
	word string
	kind ib.NodeType
}{{"CA:", ib.NodeCA}, {"Switch:", ib.NodeSwitch}, {"Router:", ib.NodeRouter}}

func isLinkInfo(line string) bool {
	if strings.Contains(line, "==(") && strings.Contains(line, linkArrow) {
		return true
	}
	for _, h := range linkHeads {
		if strings.HasPrefix(line, h.word+" ") && strings.HasSuffix(line, ":") {
			return true
		}
	}
	return false
}

func readLinkInfo(l *lister, lines []numberedLine) {
	// A line of -l does not say what a node is: a GUID that several ports have is a switch's.
	uses := map[ib.GUID]map[int]bool{}
	var head listedEnd
	for _, at := range lines {
		line := strings.TrimSpace(at.text)
		before, after, isLink := strings.Cut(line, "==(")
		state, behind, hasArrow := strings.Cut(after, linkArrow)
		if !isLink || !hasArrow {
			if isBlank(line) || !isLinkInfo(line) {
				l.odd(at, `a node such as "Switch: 0x… name:" or a port such as 2 9[ ] ==( 4X 10.0 Gbps …`)
				continue
			}
			head = linkHead(line)
			continue
		}
		k := listedLink{line: at.num, near: head}
		if !l.linkEnd(at, before, &k.near) {
			continue
		}
		if k.near.guid == 0 && k.near.portGUID == 0 {
			l.fail(at.num, ErrUnknownNode, "a port before any node: want a line such as Switch: 0x… name: first")
			continue
		}
		k.rate = linkRate(state)
		if behind = strings.TrimSpace(behind); !strings.HasPrefix(behind, "[") {
			if !l.linkEnd(at, behind, &k.far) {
				continue
			}
			k.linked = true
			k.near.could = linkCould(behind, k.rate)
			k.far.could = k.near.could
		}
		for _, e := range [2]*listedEnd{&k.near, &k.far} {
			if e.kind == 0 && e.portGUID != 0 && uses[e.portGUID] == nil {
				uses[e.portGUID] = map[int]bool{}
			}
			if e.kind == 0 && e.portGUID != 0 {
				uses[e.portGUID][e.port] = true
			}
		}
		l.links = append(l.links, k)
	}
	for i := range l.links {
		for _, e := range [2]*listedEnd{&l.links[i].near, &l.links[i].far} {
			switch n := len(uses[e.portGUID]); {
			case e.kind != 0 || e.portGUID == 0:
			case n > 1:
				e.kind = ib.NodeSwitch
			default:
				e.kind = ib.NodeCA
			}
		}
	}
}

// linkHead reads "Switch: 0x0002c902004b2678 leaf:" and "CA: node01 HCA-1:".
func linkHead(line string) (e listedEnd) {
	for _, h := range linkHeads {
		rest, ok := strings.CutPrefix(line, h.word+" ")
		if !ok {
			continue
		}
		e.kind, e.desc = h.kind, strings.TrimSuffix(rest, ":")
		if word, name, _ := strings.Cut(e.desc, " "); strings.HasPrefix(word, "0x") {
			if guid, err := ib.ParseGUID(word); err == nil {
				e.guid, e.desc = guid, name
			}
		}
	}
	return e
}

// linkEnd reads a port on either side of the arrow: a GUID and a description if there are such, the LID, the port, the
// number on the panel in brackets, and on the far side the description.
func (l *lister) linkEnd(at numberedLine, s string, e *listedEnd) bool {
	port, _, ok := strings.Cut(s, "[")
	rest := s[len(port):]
	if i := strings.LastIndexByte(port, '"'); i >= 0 {
		// A description in front, which may hold brackets itself.
		if q := strings.IndexByte(s, '"'); q >= 0 {
			if name, after, closed := strings.Cut(s[q+1:], `"`); closed {
				e.desc = strings.TrimSpace(name)
				head := s[:q]
				port, _, ok = strings.Cut(after, "[")
				rest = after[len(port):]
				port = head + " " + port
			}
		}
	}
	f := strings.Fields(port)
	if len(f) == 3 && strings.HasPrefix(f[0], "0x") {
		guid, err := ib.ParseGUID(f[0])
		if err != nil {
			ok = false
		}
		if e.guid == 0 || e.kind != ib.NodeSwitch {
			e.portGUID = guid
		}
		f = f[1:]
	}
	if !ok || len(f) != 2 {
		l.odd(at, "a LID and a port such as 2 9[ ]")
		return false
	}
	lid, err1 := strconv.ParseUint(f[0], 10, 16)
	num, err2 := strconv.ParseUint(f[1], 10, 8)
	if err1 != nil || err2 != nil || num > MaxPorts {
		l.odd(at, "a LID and a port such as 2 9[ ]")
		return false
	}
	e.lid, e.port = l.lidOf(at.num, lid), int(num)
	if _, name, ok := strings.Cut(rest, `"`); ok && e.desc == "" {
		e.desc, _, _ = strings.Cut(name, `"`)
	}
	return true
}

// linkCould reads what both ends of a link can do beyond what it does: "( Could be 4X Could be 25.78125 Gbps)".
func linkCould(s string, rate ib.LinkRate) ib.LinkRate {
	_, remark, _ := strings.Cut(s[strings.LastIndexByte(s, '"')+1:], "(")
	const word = "Could be "
	if !strings.Contains(remark, word) {
		return ib.LinkRate{}
	}
	for _, part := range strings.Split(remark, word)[1:] {
		value, _, _ := strings.Cut(strings.TrimRight(part, " )"), " ")
		if lanes, ok := strings.CutSuffix(value, "X"); ok {
			if w, ok := parseWidth(lanes); ok {
				rate.Width = w
			}
		} else if speed, ok := laneSpeed(value); ok {
			rate.Speed = speed
		}
	}
	return rate
}

// linkRate reads " 4X  10.0 Gbps (FDR10) Active/  LinkUp", or nothing of a link that is down.
func linkRate(s string) (r ib.LinkRate) {
	for i, f := range strings.Fields(s) {
		if lanes, ok := strings.CutSuffix(f, "X"); ok && i == 0 {
			r.Width, _ = parseWidth(lanes)
		} else if speed, ok := laneSpeed(f); ok && r.Speed == 0 {
			r.Speed = speed
		} else if f == "(FDR10)" {
			r.Speed = ib.FDR10
		}
	}
	return r
}
