package manager

import (
	"fmt"
	"strconv"
	"strings"

	"softib/operate/manager/tenant"
	"softib/proto/ib"
	"softib/proto/topo"
)

// PortGUIDs are the port GUIDs of a host.
func (e *Enforcer) PortGUIDs(host string) ([]ib.GUID, error) {
	n := e.g.ByName(host)
	if n == nil {
		return nil, &tenant.InvalidError{Field: "host", Value: strconv.Quote(host), Want: "one of the fabric's: " +
			e.span()}
	}
	if n.IsSwitch() {
		return nil, &tenant.InvalidError{Field: "host", Value: host, Want: "a host: this is a switch"}
	}
	return n.PortGUIDs(), nil
}

func (e *Enforcer) span() string {
	hosts := e.g.Hosts()
	return hosts[0].Name + " to " + hosts[len(hosts)-1].Name
}

// Ports are the port GUIDs that words stand for: hosts (h1), ranges of hosts (h1-h8), GUIDs (0x0002c90300000001),
// several of them with commas between. A GUID need not be in the fabric. Each port comes once.
func (e *Enforcer) Ports(words ...string) ([]ib.GUID, error) {
	var list []ib.GUID
	seen := map[ib.GUID]bool{}
	add := func(guids ...ib.GUID) {
		for _, g := range guids {
			if !seen[g] {
				seen[g] = true
				list = append(list, g)
			}
		}
	}
	for _, w := range words {
		for _, word := range strings.Split(w, ",") {
			if word = strings.TrimSpace(word); word == "" {
				continue
			}
			guids, err := e.portsOf(word)
			if err != nil {
				return nil, err
			}
			add(guids...)
		}
	}
	return list, nil
}

func (e *Enforcer) portsOf(word string) ([]ib.GUID, error) {
	if e.g.ByName(word) != nil {
		return e.PortGUIDs(word)
	}
	if g, err := ib.ParseGUID(word); err == nil &&
		(strings.HasPrefix(strings.ToLower(word), "0x") || len(strings.ReplaceAll(word, ":", "")) == 16) {
		return []ib.GUID{g}, nil
	}
	if prefix, first, last, ok := hostRange(word); ok {
		var list []ib.GUID
		for i := first; i <= last; i++ {
			guids, err := e.PortGUIDs(prefix + strconv.Itoa(i))
			if err != nil {
				return nil, err
			}
			list = append(list, guids...)
		}
		return list, nil
	}
	return e.PortGUIDs(word)
}

// rangeMax is how many hosts a range may name.
const rangeMax = int(ib.LIDUnicastMax)

// hostRange reads h1-h8 or h1-8.
func hostRange(word string) (prefix string, first, last int, ok bool) {
	a, b, ok := strings.Cut(word, "-")
	if !ok {
		return "", 0, 0, false
	}
	prefix = strings.TrimRight(a, "0123456789")
	first, err := strconv.Atoi(a[len(prefix):])
	if err != nil {
		return "", 0, 0, false
	}
	last, err = strconv.Atoi(strings.TrimPrefix(b, prefix))
	if err != nil || last < first || last-first >= rangeMax {
		return "", 0, 0, false
	}
	return prefix, first, last, true
}

// HostOf is the host that has a port, and its port; false if the fabric has no such port.
func (e *Enforcer) HostOf(g ib.GUID) (*topo.Node, ib.PortNum, bool) {
	r, ok := e.port[g]
	if !ok || e.g.Nodes[r.Node].IsSwitch() {
		return nil, 0, false
	}
	return e.g.Nodes[r.Node], r.Port, true
}

// NameOf is a port as people write it: the host's name, with the port where it has several, or the GUID of one that is
// not there.
func (e *Enforcer) NameOf(g ib.GUID) string {
	n, p, ok := e.HostOf(g)
	switch {
	case !ok:
		return g.String()
	case n.NumPorts() == 1:
		return n.Name
	}
	return fmt.Sprintf("%s[%d]", n.Name, p)
}
