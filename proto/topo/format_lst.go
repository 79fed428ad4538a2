package topo

import (
	"strconv"
	"strings"

	"softib/proto/ib"
)

// The format of ibdiagnet's .lst and of opensm-subnet.lst, a line for each cable:
//
//	{ CA Ports:02 SystemGUID:0002c90300165e63 NodeGUID:… PortGUID:… VenID:000002c9 DevID:1003 Rev:00000000 {node01
//	HCA-1} LID:0005 PN:01 } { SW Ports:24 … {leaf} LID:0002 PN:14 } PHY=4x LOG=ACT SPD=10
//
// All numbers but the speed are in hex. SPD is that of a lane in Gbit/s, or FDR10.

func isListed(line string) bool {
	return strings.HasPrefix(line, "{ ") && strings.Contains(line, " Ports:") && strings.Contains(line, " NodeGUID:")
}

var listWords = map[string]ib.NodeType{"CA": ib.NodeCA, "SW": ib.NodeSwitch, "RT": ib.NodeRouter, "Rt": ib.NodeRouter,
	"RTR": ib.NodeRouter}

func readSubnetList(l *lister, lines []numberedLine) {
	const want = "a cable such as { CA Ports:02 … PN:01 } { SW Ports:24 … PN:14 } PHY=4x LOG=ACT SPD=10"
	for _, at := range lines {
		if !isListed(at.text) {
			l.odd(at, want)
			continue
		}
		k := listedLink{line: at.num, linked: true}
		near, rest, ok1 := strings.Cut(strings.TrimPrefix(at.text, "{"), " } {")
		far, facts, ok2 := strings.Cut(rest, " } ")
		if !ok1 || !ok2 || !l.listEnd(at, near, &k.near) || !l.listEnd(at, far, &k.far) {
			l.odd(at, want)
			continue
		}
		for _, f := range strings.Fields(facts) {
			if w, ok := strings.CutPrefix(f, "PHY="); ok {
				k.rate.Width, _ = parseWidth(strings.TrimRight(w, "xX"))
			}
			if s, ok := strings.CutPrefix(f, "SPD="); ok {
				k.rate.Speed, _ = laneSpeed(s)
			}
		}
		l.links = append(l.links, k)
	}
}

// listEnd reads what stands between the braces of one end.
func (l *lister) listEnd(at numberedLine, s string, e *listedEnd) bool {
	if i, j := strings.IndexByte(s, '{'), strings.LastIndexByte(s, '}'); i >= 0 && j > i {
		e.desc = s[i+1 : j]
		s = s[:i] + s[j+1:]
	}
	f := strings.Fields(s)
	if len(f) == 0 {
		return false
	}
	e.kind = listWords[strings.TrimSuffix(f[0], "-SM")] // OpenSM marks where it is itself
	for _, word := range f[1:] {
		key, value, _ := strings.Cut(word, ":")
		n, err := strconv.ParseUint(value, 16, 64)
		if err != nil {
			return false
		}
		switch key {
		case "Ports":
			e.ports = int(min(n, 1<<16))
		case "SystemGUID":
			e.system = ib.GUID(n)
		case "NodeGUID":
			e.guid = ib.GUID(n)
		case "PortGUID":
			e.portGUID = ib.GUID(n)
		case "VenID":
			e.vendor = uint32(n)
		case "DevID":
			if n > 1<<16-1 {
				n >>= 16 // OpenSM prints the 32 bits from there, at the far end
			}
			e.device = uint16(n)
		case "LID":
			e.lid = l.lidOf(at.num, n)
		case "PN":
			e.port = int(min(n, 1<<16))
		}
	}
	return e.kind != 0 && e.guid != 0 && e.port >= 1 && e.port <= MaxPorts && e.ports <= MaxPorts
}
