package manager

import (
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
