package sm

import "slices"

// historyMax bounds the sweeps that a manager remembers.
const historyMax = 128

// remember keeps the report of a sweep that has published its subnet; older ones make room.
func (m *Manager) remember(r SweepReport) {
	m.last = r
	if len(m.history) == historyMax {
		m.history = slices.Delete(m.history, 0, 1)
	}
	m.history = append(m.history, r)
}

// amend adds to the last report what its sweep did after the subnet was up.
func (m *Manager) amend(phases []PhaseReport) {
	m.last.Phases = phases
	if n := len(m.history); n > 0 {
		m.history[n-1].Phases = phases
	}
}

// History are the reports of the last sweeps, the newest at the end.
func (m *Manager) History() []SweepReport { return slices.Clone(m.history) }
