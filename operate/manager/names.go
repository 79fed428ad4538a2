package manager

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"softib/proto/ib"
	"softib/proto/topo"
)

// ErrUnknown is matched where a name fits nothing in the fabric, or more than one thing.
var ErrUnknown = errors.New("not in this fabric")

// Node finds a node by its name, its GUID or a port's GUID.
func (m *Manager) Node(name string) (*topo.Node, error) {
	if i, ok := m.names[name]; ok {
		return m.g.Nodes[i], nil
	}
	if guid, ok := parseGUID(name); ok {
		if n := m.g.ByGUID(guid); n != nil {
			return n, nil
		}
		if r, ok := m.g.ByPortGUID(guid); ok {
			return m.g.Nodes[r.Node], nil
		}
	}
	return nil, fmt.Errorf("no node is called %q: %w", name, ErrUnknown)
}

// parseGUID reads 16 hexadecimal digits, with or without 0x.
func parseGUID(s string) (ib.GUID, bool) {
	s = strings.TrimPrefix(strings.ToLower(s), "0x")
	if len(s) != 16 {
		return 0, false
	}
	v, err := strconv.ParseUint(s, 16, 64)
	return ib.GUID(v), err == nil
}

// Port finds a port: "leaf1[5]", "leaf1/5", or a node that has only one.
func (m *Manager) Port(name string) (topo.PortRef, error) {
	node, port, ok := splitPort(name)
	n, err := m.Node(node)
	if err != nil {
		if n, e := m.Node(name); e == nil && n.NumPorts() == 1 {
			return topo.PortRef{Node: n.Index, Port: 1}, nil
		}
		return topo.PortRef{}, err
	}
	if !ok {
		if n.NumPorts() != 1 {
			return topo.PortRef{}, fmt.Errorf("%s has ports 1 to %d: want one, such as %s[1]: %w", n.Name, n.NumPorts(),
				n.Name, ErrUnknown)
		}
		port = 1
	}
	if port < 1 || port > n.NumPorts() {
		return topo.PortRef{}, fmt.Errorf("%s has no port %d: want 1 to %d: %w", n.Name, port, n.NumPorts(), ErrUnknown)
	}
	return topo.PortRef{Node: n.Index, Port: ib.PortNum(port)}, nil
}

// splitPort takes the port's number off a name.
func splitPort(s string) (node string, port int, ok bool) {
	rest, bracket := strings.CutSuffix(s, "]")
	at := strings.LastIndexByte(rest, '[')
	if !bracket || at < 0 {
		rest, at = s, strings.LastIndexByte(s, '/')
	}
	if at < 0 {
		return s, 0, false
	}
	port, err := strconv.Atoi(rest[at+1:])
	if err != nil {
		return s, 0, false
	}
	return rest[:at], port, true
}

// Link finds a cable by what it joins: two nodes, or two ports, or one port or one node with one cable, and nothing.
// Between two nodes that more than one cable joins, a port has to be named.
func (m *Manager) Link(a, b string) (topo.PortRef, error) {
	if b == "" {
		if n, err := m.Node(a); err == nil {
			if r, ok := m.onlyCable(n); ok {
				return r, nil
			}
		}
		r, err := m.Port(a)
		if err != nil {
			return r, err
		}
		if _, ok := m.CableOf(r); !ok {
			return r, fmt.Errorf("no cable is plugged into %s: %w", m.g.PortName(r), ErrUnknown)
		}
		return r, nil
	}
	var found []topo.PortRef
	na, pa, hasA := splitPort(a)
	nb, pb, hasB := splitPort(b)
	x, err := m.Node(na)
	if err != nil {
		return topo.PortRef{}, err
	}
	y, err := m.Node(nb)
	if err != nil {
		return topo.PortRef{}, err
	}
	for p := 1; p <= x.NumPorts(); p++ {
		q := &x.Ports[p]
		if q.Connected() && q.Peer == y.Index && (!hasA || p == pa) && (!hasB || int(q.PeerPort) == pb) &&
			(x != y || p < int(q.PeerPort)) {
			found = append(found, topo.PortRef{Node: x.Index, Port: ib.PortNum(p)})
		}
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return topo.PortRef{}, fmt.Errorf("no cable joins %s and %s: %w", a, b, ErrUnknown)
	}
	return topo.PortRef{}, fmt.Errorf("%d cables join %s and %s: want one of them, such as %s: %w", len(found), a, b,
		m.g.PortName(found[0]), ErrUnknown)
}

// onlyCable is the port of a node's one cable; a node with more has to be asked for by port.
func (m *Manager) onlyCable(n *topo.Node) (r topo.PortRef, ok bool) {
	for p := 1; p <= n.NumPorts(); p++ {
		if n.Ports[p].Connected() {
			if ok {
				return r, false
			}
			r, ok = topo.PortRef{Node: n.Index, Port: ib.PortNum(p)}, true
		}
	}
	return r, ok
}

// LinkName names a cable by both ends.
func (m *Manager) LinkName(cable int) string {
	c := m.cables[cable]
	return m.g.PortName(c.A) + " " + m.g.PortName(c.B)
}
