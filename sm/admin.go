package sm

import (
	"softib/ib"
	"softib/mad"
)

func (m *Manager) handleSA(env mad.Envelope, data []byte) {}
func (m *Manager) forwardNotice(n *mad.Notice)            {}
func (m *Manager) published()                             { m.acknowledge() }
func (m *Manager) hasJoined() bool                        { return false }
func (m *Manager) eachJoined(put func(ib.LID, ib.GUID))   {}
