package agent

import (
	"softib/proto/ib"
	"softib/proto/mad"
)

// vendorState is what the vendor classes keep.
type vendorState struct {
	host, cpus string
	groups     [][mad.MlnxCounterGroups]uint8 // by port
}

func (a *Agent) vendorMade() *vendorState {
	if a.vendor == nil {
		a.vendor = new(vendorState)
	}
	return a.vendor
}

// SetSystem sets what the node says of itself to ibping and ibsysstat: its host name, instead of the node's
// description, and a line about each CPU, of which it has none to tell otherwise.
func (a *Agent) SetSystem(host, cpus string) {
	v := a.vendorMade()
	v.host, v.cpus = host, cpus
}

// hostName is the node's name to OpenIB's classes.
func (a *Agent) hostName() string {
	if a.vendor != nil && a.vendor.host != "" {
		return a.vendor.host
	}
	return a.description()
}

// handleOpenIB serves OpenIB's echo and system status, which belong to vendor range 2.
func (a *Agent) handleOpenIB(_ ib.Time, _ ib.PortNum, _ ib.LID, v mad.View) (st mad.Status, ok bool) {
	if v.OUI() != mad.OUIOpenIB {
		return 0, false // some other vendor's class of this number
	}
	if v.Method() != mad.MethodGet {
		return mad.StatusUnsupMethod, true
	}
	text := a.hostName()
	if v.Class() == mad.ClassSysStat {
		switch v.AttrID() {
		case mad.AttrSysStatPing:
			return mad.StatusOK, true
		case mad.AttrSysStatHost:
		case mad.AttrSysStatCPU:
			text = ""
			if a.vendor != nil {
				text = a.vendor.cpus
			}
		default:
			return mad.StatusUnsupMethodAttr, true
		}
	}
	data := v.Data()
	clear(data)
	copy(data[:len(data)-1], text) // a NUL ends it
	return mad.StatusOK, true
}

// What the switches' counter groups can be told to count, and the firmware that they claim to have.
const (
	counterGroup0 = 1<<0 | 1<<1 | 1<<2
	counterGroup1 = 1<<1 | 1<<2 | 1<<8

	firmwareMajor, firmwareMinor, firmwareSub = 0, 1, 0

	psid = "SOFTIB"
)

// Configuration space of the InfiniScale III: a page of registers for each port, one of which is PortXmitWait.
const (
	is3XmitWait  = 0x10013C
	is3PageShift = 12
	is3Pages     = 24
)

// is3Port is the port that a page of registers belongs to: the first page is port 4's.
func is3Port(page uint32) ib.PortNum {
	switch {
	case page <= 16:
		return ib.PortNum(page + 3)
	case page <= 20:
		return ib.PortNum(page + 4)
	default:
		return ib.PortNum(page - 20)
	}
}

// handleMlnx serves the part of Mellanox' own class that vendstat asks for.
func (a *Agent) handleMlnx(now ib.Time, inPort ib.PortNum, _ ib.LID, v mad.View) (st mad.Status, ok bool) {
	m := v.Method()
	switch m {
	case mad.MethodGet, mad.MethodSet:
	case mad.MethodTrap, mad.MethodTrapRepress, mad.MethodSend:
		return 0, false
	default:
		return mad.StatusUnsupMethod, true
	}
	data, set := v.Data(), m == mad.MethodSet
	switch v.AttrID() {
	case mad.AttrClassPortInfo:
		if !set {
			clear(data)
			cpi := mad.ClassPortInfo{BaseVersion: mad.BaseVersion, ClassVersion: 1, RespTimeValue: pmaRespTime}
			cpi.Append(data[:0])
			return mad.StatusOK, true
		}
	case mad.AttrMlnxGeneralInfo:
		if !set {
			a.generalInfo(now, a.keyPort(inPort), data)
			return mad.StatusOK, true
		}
	case mad.AttrMlnxConfigSpace:
		if !set && a.node.NodeInfo(a.keyPort(inPort)).DeviceID == mad.MlnxDeviceIS3 {
			return a.configSpace(v.AttrMod(), data), true
		}
	case mad.AttrMlnxCounterGroupInfo, mad.AttrMlnxConfigCounterGroup:
		if a.sw != nil && (!set || v.AttrID() == mad.AttrMlnxConfigCounterGroup) {
			return a.counterGroups(v, set, data), true
		}
	}
	return mad.StatusUnsupMethodAttr, true
}

// generalInfo says what the device is. What it says of its firmware is softib's own.
func (a *Agent) generalInfo(now ib.Time, port ib.PortNum, data []byte) {
	info := a.node.NodeInfo(port)
	clear(data)
	l := &mad.MlnxGeneralInfoLayout
	put := func(name string, v uint64) { l.Field(name).Put(data, 0, v) }
	put("HWRevision", uint64(info.Revision))
	put("HWDeviceID", uint64(info.DeviceID))
	put("Uptime", uint64(now/ib.Second))
	put("FWMajor", firmwareMajor)
	put("FWMinor", firmwareMinor)
	put("FWSubMinor", firmwareSub)
	copy(l.Field("PSID").Slice(data, 0), psid)
	if mad.MlnxHasExtFW(info.DeviceID) {
		put("FWExtMajor", firmwareMajor)
		put("FWExtMinor", firmwareMinor)
		put("FWExtSubMinor", firmwareSub)
	}
}

// configSpace reads words of an InfiniScale III's configuration space: those that it has are its ports'
// PortXmitWait.
func (a *Agent) configSpace(mod uint32, data []byte) mad.Status {
	n, err := mad.MlnxConfigCount(mod)
	if err != nil {
		return failed(err)
	}
	for i := range n {
		r := mad.MlnxConfigAt(data, i)
		r.Data = 0
		page := (r.Address - is3XmitWait) >> is3PageShift
		if r.Address == is3XmitWait+page<<is3PageShift && page >= 1 && page <= is3Pages {
			if p := is3Port(page); a.hasPort(p) {
				r.Data = uint32(min(a.node.ReadCounter(p, ib.PortXmitWait), 0xFFFFFFFF))
			}
		}
		mad.PutMlnxConfig(data, i, r)
	}
	return mad.StatusOK
}

// counterGroups serves what groups of counters a port of a switch counts. Whatever they are told, all counters
// of service levels are counted.
func (a *Agent) counterGroups(v mad.View, set bool, data []byte) mad.Status {
	port := ib.PortNum(v.AttrMod())
	if v.AttrMod() > uint32(a.ports) {
		return mad.StatusInvalidField
	}
	if v.AttrID() == mad.AttrMlnxCounterGroupInfo {
		clear(data)
		l := &mad.MlnxCounterGroupInfoLayout
		l.Field("NumGroups").Put(data, 0, mad.MlnxCounterGroups)
		for i, mask := range [...]uint64{counterGroup0, counterGroup1} {
			l.Field("GroupMask").Put(data, i, mask)
		}
		return mad.StatusOK
	}
	s, f := a.vendorMade(), mad.MlnxConfigCounterGroupLayout.Field("GroupSelect")
	if s.groups == nil {
		s.groups = make([][mad.MlnxCounterGroups]uint8, int(a.ports)+1)
		for i := range s.groups {
			s.groups[i] = [...]uint8{0, 1} // what is sent at each level
		}
	}
	g := &s.groups[port]
	if set {
		var want [mad.MlnxCounterGroups]uint8
		for i, mask := range [...]uint64{counterGroup0, counterGroup1} {
			w := f.Get(data, i)
			if mask>>w&1 == 0 {
				return mad.StatusInvalidField
			}
			want[i] = uint8(w)
		}
		*g = want
	}
	clear(data)
	for i, w := range g {
		f.Put(data, i, uint64(w))
	}
	return mad.StatusOK
}
