package manager

import (
	"errors"

	"softib/proto/ib"
	"softib/proto/topo"
	"softib/subnet"
	"softib/subnet/sm"
)

// SubnetConfig is what the subnet manager was told, with its defaults; false where it is not ours or has ended.
func (m *Manager) SubnetConfig() (c sm.Config, ok bool) {
	ok = m.withManager(func(x *sm.Manager) { c = x.Config() })
	return c, ok
}

// ReadFrom says from which port the nodes can be read, and with which keys. They are asked from any where nothing is
// guarded: ok is false then.
func (m *Manager) ReadFrom() (from topo.PortRef, keys *subnet.Keys, ok bool) {
	m.withManager(func(x *sm.Manager) {
		if keys = x.Keys(); keys != nil {
			from, ok = m.g.ByPortGUID(x.Port())
		}
	})
	return from, keys, ok
}

// ErrNoPort is a fabric that cannot be asked.
var ErrNoPort = errors.New("no host has a link that is up: there is no port to ask the fabric from")

// AskFrom is a port to ask the whole fabric from, and the keys to show.
func (m *Manager) AskFrom() (topo.PortRef, *subnet.Keys, error) {
	if from, keys, ok := m.ReadFrom(); ok {
		return from, keys, nil
	}
	for _, h := range m.g.Hosts() {
		for p := 1; p <= h.NumPorts(); p++ {
			r := topo.PortRef{Node: h.Index, Port: ib.PortNum(p)}
			if pi, ok := m.opts.Fabric.PortInfo(r); ok && pi.PortState > ib.PortDown {
				return r, nil, nil
			}
		}
	}
	return topo.PortRef{}, nil, ErrNoPort
}
