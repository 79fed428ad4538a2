package experiment

import "softib/driver/jobs"

// Ethernet is what pauses, marks and losses a run on Ethernet has had.
type Ethernet struct {
	// Network is one of jobs.Kinds.
	Network string `json:"network"`
	// PausesSent counts pause frames, and Paused is for how long ports were paused, all together.
	PausesSent uint64  `json:"pauses_sent"`
	Paused     float64 `json:"paused_s"`
	// Marked counts packets, Notified the congestion notification packets that they led to.
	Marked   uint64 `json:"marked"`
	Notified uint64 `json:"notified"`
	// Dropped counts packets that found a buffer full, Resent those that were sent again.
	Dropped uint64 `json:"dropped"`
	Resent  uint64 `json:"resent"`
	// Storms is how often a watchdog has taken its peer for broken, GivenUp how many packets it has dropped for that,
	// and StormPorts where.
	Storms     uint64   `json:"storms"`
	GivenUp    uint64   `json:"given_up"`
	StormPorts []string `json:"storm_ports,omitempty"`
}

func (s *Spec) isEthernet() bool {
	return s.Options.Ethernet.Kind != "" && s.Options.Ethernet.Kind != jobs.InfiniBand
}

// ethernet adds what ports have counted.
func (r *Report) ethernet(s *Spec, p *jobs.Packets) {
	if !s.isEthernet() {
		return
	}
	t := p.PauseTotals()
	r.Ethernet = &Ethernet{Network: s.Options.Ethernet.Kind, PausesSent: t.Sent, Paused: seconds(t.Paused),
		Marked: t.Marked, Notified: t.CNPs, Dropped: t.Dropped, Resent: t.Resent, Storms: t.Storms, GivenUp: t.Given}
	for _, at := range t.StormPorts {
		r.Ethernet.StormPorts = append(r.Ethernet.StormPorts, s.Graph.PortName(at))
	}
}
