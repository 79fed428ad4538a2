package sim

import "softib/node/link"

// hostPort is the make of hosts' ports. Adapters neither mark packets nor watch over pauses: switches do.
func (s *Sim) hostPort() link.Config {
	c := s.cfg.Port
	c.Ethernet.RED, c.Ethernet.Watchdog = link.RED{}, 0
	return c
}

// switchPort is the make of a switch's ports, each switch with randomness of its own.
func (s *Sim) switchPort(node int) link.Config {
	c := s.cfg.Port
	c.Ethernet.Seed = (s.cfg.Seed ^ 0xE7E8) * 0x9E3779B97F4A7C15 << 1
	c.Ethernet.Seed += uint64(node) * 0xBF58476D1CE4E5B9
	return c
}
