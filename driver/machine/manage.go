package machine

import "softib/proto/ib"

// SetPKeys writes the partition table of a host's port, as management does before programs begin.
func (m *Machine) SetPKeys(host int, keys []ib.PKey) {
	t := m.procs[host].port
	a := *t.adapter.Port(1)
	a.PKeys = keys
	t.adapter.SetPort(1, a)
	m.Learn(host)
}

// Learn lets a host's process know at once all that management has written at its ports; of what is written later it
// hears by itself.
func (m *Machine) Learn(host int) {
	p := m.procs[host]
	for n := 1; n <= m.HostNode(host).NumPorts(); n++ {
		p.ep.SetPort(ib.PortNum(n), p.port.written(ib.PortNum(n)))
	}
}
