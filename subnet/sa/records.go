package sa

import (
	"encoding/binary"

	"softib/proto/ib"
	"softib/proto/mad"
	"softib/subnet"
)

// comp is a component of a record; a name that the table does not have is a mistake in this package.
func comp(t *mad.SARecord, field string) uint64 {
	c := t.Component(field)
	if c == 0 {
		panic("sa: " + t.Name + " has no component " + field)
	}
	return c
}

// may reports whether whoever asks may know about an end port: both are in one partition, or
// the request is trusted (IBA 15.4.1.2).
func (a *Admin) may(q *query, r subnet.Ref) bool {
	if q.trusted || r == q.from {
		return true
	}
	_, ok := a.share(q.from, r)
	return ok
}

// among lists the end ports that a query for a LID means: that LID's, or all where none is given. Any LID of a port
// will do, also one of its path bits. Ports that the asker may not know about are left out.
func (a *Admin) among(q *query, lidComp uint64, each func(subnet.Ref, *subnet.Port) bool) {
	ends := a.ends
	if q.has(lidComp) {
		r, ok := a.net.ByLID(ib.LID(binary.BigEndian.Uint16(q.data)))
		if !ok {
			return
		}
		ends = []subnet.Ref{r}
	}
	for _, r := range ends {
		if a.may(q, r) && !each(r, a.net.Port(r)) {
			return
		}
	}
}

// ports lists the ports that answer to an end port's LID: itself, and if it is a switch's all others of the switch.
func (a *Admin) ports(r subnet.Ref, each func(n *subnet.Node, num ib.PortNum, p *subnet.Port) bool) bool {
	n := a.net.Nodes[r.Node]
	if !n.IsSwitch() {
		return each(n, r.Port, &n.Ports[r.Port])
	}
	for i := range n.Ports {
		if !each(n, ib.PortNum(i), &n.Ports[i]) {
			return false
		}
	}
	return true
}

var nodeLID = comp(mad.NodeRecordTable, "LID")

func (a *Admin) listNodes(q *query) mad.Status {
	a.aim(q, nodeLID)
	var rec mad.NodeRecord
	a.among(q, nodeLID, func(r subnet.Ref, p *subnet.Port) bool {
		n := a.net.Nodes[r.Node]
		rec.LID, rec.NodeInfo, rec.NodeString = p.Info.LID, n.Info, mad.MakeNodeDescription(n.Desc)
		// NodeInfo was read through some port: the record is about this one.
		rec.PortGUID, rec.LocalPortNum = p.GUID, r.Port
		return a.add(q, &rec)
	})
	return mad.StatusOK
}

var (
	portLID     = comp(mad.PortInfoRecordTable, "EndportLID")
	portOptions = comp(mad.PortInfoRecordTable, "Options")
	portCapMask = comp(mad.PortInfoRecordTable, "CapabilityMask")
)

func (a *Admin) listPorts(q *query) mad.Status {
	skip := portLID | portOptions
	var caps mad.PortCap
	if q.mod&mad.SACapMaskMatch != 0 && q.has(portCapMask) {
		// All of the bits given, and any others (IBA 15.4.10).
		var want mad.PortInfoRecord
		if _, err := want.Parse(q.data); err != nil {
			return mad.StatusSAReqInvalid
		}
		caps = want.CapabilityMask
		skip |= portCapMask
	}
	a.aim(q, skip)
	var rec mad.PortInfoRecord
	a.among(q, portLID, func(r subnet.Ref, end *subnet.Port) bool {
		return a.ports(r, func(n *subnet.Node, num ib.PortNum, p *subnet.Port) bool {
			if p.Info.CapabilityMask&caps != caps {
				return true
			}
			rec = mad.PortInfoRecord{EndportLID: end.Info.LID, PortNum: num, PortInfo: p.Info}
			if !q.trusted {
				rec.MKey = 0
			}
			return a.add(q, &rec)
		})
	})
	return mad.StatusOK
}

var switchLID = comp(mad.SwitchInfoRecordTable, "LID")

func (a *Admin) listSwitches(q *query) mad.Status {
	a.aim(q, switchLID)
	var rec mad.SwitchInfoRecord
	a.among(q, switchLID, func(r subnet.Ref, p *subnet.Port) bool {
		n := a.net.Nodes[r.Node]
		if !n.IsSwitch() {
			return true
		}
		rec = mad.SwitchInfoRecord{LID: p.Info.LID, SwitchInfo: n.Switch}
		return a.add(q, &rec)
	})
	return mad.StatusOK
}

var managerLID = comp(mad.SMInfoRecordTable, "LID")

func (a *Admin) listManagers(q *query) mad.Status {
	a.aim(q, managerLID)
	var want subnet.Ref
	if q.has(managerLID) {
		r, ok := a.net.ByLID(ib.LID(binary.BigEndian.Uint16(q.data)))
		if !ok {
			return mad.StatusOK
		}
		want = r
	}
	var rec mad.SMInfoRecord
	for i := range a.net.Managers {
		m := &a.net.Managers[i]
		r, ok := a.net.ByPortGUID(m.Port)
		if !ok || !a.may(q, r) || q.has(managerLID) && r != want {
			continue
		}
		rec = mad.SMInfoRecord{LID: m.LID, SMInfo: m.Info}
		if !q.trusted {
			rec.SMKey = 0
		}
		if !a.add(q, &rec) {
			break
		}
	}
	return mad.StatusOK
}

var guidLID = comp(mad.GUIDInfoRecordTable, "LID")

func (a *Admin) listGUIDs(q *query) mad.Status {
	a.aim(q, guidLID)
	var rec mad.GUIDInfoRecord
	a.among(q, guidLID, func(r subnet.Ref, p *subnet.Port) bool {
		guids := a.guidsOf(p)
		per := len(rec.GUID)
		blocks := max(len(guids), int(p.Info.GUIDCap)) + per - 1
		for b := range blocks / per {
			rec = mad.GUIDInfoRecord{LID: p.Info.LID, BlockNum: uint8(b)}
			if b*per < len(guids) {
				copy(rec.GUID[:], guids[b*per:])
			}
			if b == 0 {
				rec.GUID[0] = p.GUID // the first cannot be anything else (IBA 14.2.5.5)
			}
			if !a.add(q, &rec) {
				return false
			}
		}
		return true
	})
	return mad.StatusOK
}

var (
	linkFromLID = comp(mad.LinkRecordTable, "FromLID")
	linkToLID   = comp(mad.LinkRecordTable, "ToLID")
)

func (a *Admin) listLinks(q *query) mad.Status {
	a.aim(q, linkFromLID|linkToLID)
	var to subnet.Ref
	if q.has(linkToLID) {
		r, ok := a.net.ByLID(ib.LID(binary.BigEndian.Uint16(q.data[4:])))
		if !ok {
			return mad.StatusOK
		}
		to = r
	}
	var rec mad.LinkRecord
	a.among(q, linkFromLID, func(r subnet.Ref, end *subnet.Port) bool {
		return a.ports(r, func(n *subnet.Node, num ib.PortNum, p *subnet.Port) bool {
			if !p.Up() {
				return true
			}
			peer := a.net.Nodes[p.Peer]
			far := subnet.Ref{Node: p.Peer, Port: peer.EndPort(p.PeerPort)}
			if q.has(linkToLID) && far != to || !a.may(q, far) {
				return true
			}
			rec = mad.LinkRecord{FromLID: end.Info.LID, FromPort: num, ToPort: p.PeerPort,
				ToLID: a.net.Port(far).Info.LID}
			return a.add(q, &rec)
		})
	})
	return mad.StatusOK
}
