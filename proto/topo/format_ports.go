package topo

import (
	"strconv"
	"strings"

	"softib/proto/ib"
)

// The format of ibnetdiscover -p, a line for each port:
//
//	CA   134  1 0x7cfe9003003b4bde 4x EDR - SW  1719 10 0x7cfe9003009ce5b0 ( 'o0001 HCA-1' - 'ib-i1l1s01' )
//	SW  2052 37 0x506b4b03005c2740 4x ???                                    'ib-i4l1s01'
//
// The GUID is the port's, which is the switch's own for a switch. A host's node GUID does not appear.

// portWords are the format's words for each node type.
var portWords = map[string]ib.NodeType{"CA": ib.NodeCA, "SW": ib.NodeSwitch, "RT": ib.NodeRouter}

func isPortLine(line string) bool {
	f := strings.Fields(line)
	if len(f) < 5 || portWords[f[0]] == 0 || !strings.HasPrefix(f[3], "0x") {
		return false
	}
	_, err1 := strconv.Atoi(f[1])
	_, err2 := strconv.Atoi(f[2])
	return err1 == nil && err2 == nil
}

func readPortList(l *lister, lines []numberedLine) {
	for _, at := range lines {
		if !isPortLine(at.text) {
			l.odd(at, `a port such as CA 134 1 0x7cfe9003003b4bde 4x EDR - SW …`)
			continue
		}
		k := listedLink{line: at.num}
		f := strings.Fields(at.text)
		var ok bool
		if k.near, ok = l.portEnd(at, f); !ok {
			continue
		}
		if len(f) > 5 {
			k.rate.Width, k.rate.Speed, _ = parseRate(f[4] + f[5])
		}
		// Behind the rate stands the far end, if there is one, and then the descriptions.
		if len(f) > 10 && f[6] == "-" && isPortLine(strings.Join(f[7:], " ")) {
			if k.far, ok = l.portEnd(at, f[7:]); !ok {
				continue
			}
			k.linked = true
			_, names, _ := strings.Cut(at.text, "( '")
			near, far, _ := strings.Cut(strings.TrimSuffix(names, "' )"), "' - '")
			k.near.desc, k.far.desc = near, far
		} else if len(f) > 6 {
			k.near.desc = strings.Trim(strings.Join(f[6:], " "), "' ")
		}
		l.links = append(l.links, k)
	}
}

// portEnd reads: SW  1719 10 0x7cfe9003009ce5b0
func (l *lister) portEnd(at numberedLine, f []string) (e listedEnd, ok bool) {
	e.kind = portWords[f[0]]
	lid, err1 := strconv.ParseUint(f[1], 10, 16)
	port, err2 := strconv.ParseUint(f[2], 10, 8)
	guid, err3 := strconv.ParseUint(strings.TrimPrefix(f[3], "0x"), 16, 64)
	if err1 != nil || err2 != nil || err3 != nil || guid == 0 || port > MaxPorts {
		l.fail(at.num, ErrSyntax, "found %s: want a LID, a port from 0 to %d and its GUID", quoteShort(at.text),
			MaxPorts)
		return e, false
	}
	e.lid, e.port, e.portGUID = l.lidOf(at.num, lid), int(port), ib.GUID(guid)
	return e, true
}
