package sm

import (
	"softib/proto/ib"
	"softib/proto/mad"
	"softib/subnet"
)

// A switch tells by one bit that some port has changed. Writing the bit back says that the change was seen, and it also
// takes away a change that came after the ports were read. So they are read once more after that, those apart that were
// written later.

// beginRecheck lists the ports to read.
func (s *sweep) beginRecheck() {
	s.cursor = cursor{}
	if s.m.brief {
		return
	}
	for _, i := range s.cleared {
		n := s.nodes[i]
		for p := 1; p < len(n.Ports); p++ {
			// All links of a switch through which nothing could pass were armed, and would not have been if they had
			// gone.
			if !s.cold[i] || !n.Ports[p].Up() {
				s.cursor.ends = append(s.cursor.ends, subnet.Ref{Node: i, Port: ib.PortNum(p)})
			}
		}
	}
}

// nextRecheck reads the next one.
func (s *sweep) nextRecheck(r *request) bool {
	c := &s.cursor
	if c.at >= len(c.ends) {
		return false
	}
	ref := c.ends[c.at]
	c.at++
	*r = request{what: askTable, node: ref.Node, port: ref.Port, attr: mad.AttrPortInfo, mod: uint32(ref.Port)}
	s.smp(r)
	return true
}

// rechecked asks for a look if the port is not as it was. A switch that does not answer any more will be missed
// otherwise.
func (s *sweep) rechecked(r *request, v mad.View) {
	if v == nil || v.Status() != mad.StatusOK {
		return
	}
	var now mad.PortInfo
	if _, err := now.Parse(v[mad.SMPDataOff:][:mad.SMPDataLen]); err != nil {
		return
	}
	n := s.nodes[r.node]
	was := &n.Ports[r.port]
	is := subnet.Port{Info: now}
	fell := was.Info.PortState.HasLink() && now.PortState < was.Info.PortState
	if fell {
		// The switch may have started anew. What one would know that by (no address, a table that ends elsewhere, no
		// active link) this sweep may have written since: only its table can tell.
		s.missed(r.node)
		s.m.doubt[n.Info.NodeGUID] = true
	}
	if fell || is.Info.PortState.HasLink() != was.Info.PortState.HasLink() {
		s.m.wantLook(s.m.now, n.Info.NodeGUID, "a port of "+nodeName(n)+" has changed meanwhile")
	}
}
