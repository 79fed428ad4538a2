package manager

import "softib/subnet/sm"

// SubnetConfig is what the subnet manager was told, with its defaults; false where it is not ours or has ended.
func (m *Manager) SubnetConfig() (c sm.Config, ok bool) {
	ok = m.withManager(func(x *sm.Manager) { c = x.Config() })
	return c, ok
}
