package machine

import "softib/proto/ib"

// Managed says that management has written something at a host's ports: addresses, keys, states. Its process hears of
// it a little later.
func (m *Machine) Managed(host int) { m.at(m.Now()+m.around(wakeTime), doManage, host, 0) }

// Learn lets a host's process know at once all that management has written at its ports.
func (m *Machine) Learn(host int) {
	p := m.procs[host]
	if p.dead {
		return
	}
	p.step(func() {
		for n := 1; n <= m.HostNode(host).NumPorts(); n++ {
			p.ep.SetPort(ib.PortNum(n), *p.port.adapter.Port(ib.PortNum(n)))
		}
	})
}
