package agent

import (
	"cmp"
	"slices"

	"softib/proto/ib"
	"softib/proto/mad"
)

// cctBlocks is how many blocks of 64 entries a channel adapter's congestion control table has.
const cctBlocks = 2

// ccTick is the unit of congestion control's time stamps (IBA A10.4.3.9).
const ccTick = 1024 * ib.Nanosecond

// ccState is how congestion control is set up at a node: kept, shown and guarded here, and acted on by the node's
// engine where it can (MarkingSwitch, SlowingAdapter).
type ccState struct {
	ports []ccPort // by end port

	// Of switches.
	setting mad.SwitchCongestion
	byPort  []mad.SwitchPortEntry
}

// ccPort is the part that each end port has for itself.
type ccPort struct {
	key ccKey

	// Of channel adapters.
	setting [4 + 8*ib.NumSL]byte
	limit   uint16
	table   [cctBlocks * mad.CCTPerBlock]uint16
}

// ccKey guards the congestion control of a port (IBA A10.4.1): anybody may read, only who knows the
// key may write.
type ccKey struct {
	mad.CongestionKeyInfo
	leaseEnd ib.Time
}

// admit decides about a request and counts a violation if it fails.
func (k *ccKey) admit(now ib.Time, m mad.Method, key uint64) bool {
	if now >= k.leaseEnd {
		k.leaseEnd = ib.Never
		k.CCKeyProtectBit = false
	}
	switch {
	case k.CCKey == 0 || k.CCKey == key:
		k.leaseEnd = ib.Never // the owner is alive
		return true
	case m != mad.MethodSet:
		return true
	}
	if k.CCKeyViolations < 0xFFFF {
		k.CCKeyViolations++
	}
	if k.CCKeyLeasePeriod != 0 && k.leaseEnd == ib.Never {
		k.leaseEnd = now + ib.Time(k.CCKeyLeasePeriod)*ib.Second
	}
	return false
}

// ccAttrs is what congestion control serves, where, and whether it can be written.
var ccAttrs = map[mad.AttrID]struct {
	canSet      bool
	on          portKind
	maxModifier func(*Agent) uint32
	serve       func(*Agent, *ccPort, *request) mad.Status
}{
	mad.AttrClassPortInfo:          {false, kindEnd, nil, (*Agent).ccClassPortInfo},
	mad.AttrCongestionInfo:         {false, kindEnd, nil, (*Agent).ccInfo},
	mad.AttrCongestionKeyInfo:      {true, kindEnd, nil, (*Agent).ccKeyInfo},
	mad.AttrCongestionLog:          {false, kindEnd, nil, (*Agent).ccLog},
	mad.AttrSwitchCongestion:       {true, kindBase0 | kindEnhanced0, nil, (*Agent).ccSwitch},
	mad.AttrSwitchPortCongestion:   {true, kindBase0 | kindEnhanced0, (*Agent).ccPortBlocks, (*Agent).ccSwitchPort},
	mad.AttrCACongestion:           {true, kindCA, nil, (*Agent).ccCA},
	mad.AttrCongestionControlTable: {true, kindCA, func(*Agent) uint32 { return cctBlocks - 1 }, (*Agent).ccTable},
	mad.AttrCCTimeStamp:            {false, kindEnd, nil, (*Agent).ccTimeStamp},
}

// handleCC serves a congestion control request in place; ok is false if there is no answer.
func (a *Agent) handleCC(now ib.Time, inPort ib.PortNum, _ ib.LID, v mad.View) (st mad.Status, ok bool) {
	m := v.Method()
	switch m {
	case mad.MethodGet, mad.MethodSet:
	case mad.MethodTrap, mad.MethodTrapRepress:
		return 0, false
	default:
		return mad.StatusUnsupMethod, true
	}
	port := a.keyPort(inPort)
	p := a.ccPortOf(port)
	if !p.key.admit(now, m, v.CCKey()) {
		return 0, false
	}
	row, known := ccAttrs[v.AttrID()]
	kind, _ := a.mask(port)
	set := m == mad.MethodSet
	if !known || set && !row.canSet || row.on&kind == 0 {
		return mad.StatusUnsupMethodAttr, true
	}
	limit := uint32(0)
	if row.maxModifier != nil {
		limit = row.maxModifier(a)
	}
	if v.AttrMod() > limit {
		return mad.StatusInvalidField, true
	}
	data := v.Data()
	if v.AttrID() == mad.AttrCongestionLog {
		data = v.CCLogData()
	}
	return row.serve(a, p, &request{now: now, inPort: inPort, set: set, mod: v.AttrMod(), mkey: v.CCKey(), data: data}),
		true
}

// ccPortOf is the state of an end port, made when first needed.
func (a *Agent) ccPortOf(port ib.PortNum) *ccPort {
	if a.cc == nil {
		a.cc = new(ccState)
	}
	for len(a.cc.ports) <= int(port) {
		a.cc.ports = append(a.cc.ports, ccPort{key: ccKey{leaseEnd: ib.Never}})
	}
	return &a.cc.ports[port]
}

func (a *Agent) ccClassPortInfo(_ *ccPort, r *request) mad.Status {
	cpi := mad.ClassPortInfo{BaseVersion: mad.BaseVersion, ClassVersion: mad.ClassCC.Info().Version,
		RespTimeValue: pmaRespTime}
	cpi.Append(r.answer())
	return mad.StatusOK
}

func (a *Agent) ccInfo(_ *ccPort, r *request) mad.Status {
	info := mad.CongestionInfo{}
	if a.sw == nil {
		info.ControlTableCap = cctBlocks
	}
	info.Append(r.answer())
	return mad.StatusOK
}

// ccKeyInfo serves the key: hidden, where the protect bit says so, from those who do not know it.
func (a *Agent) ccKeyInfo(p *ccPort, r *request) mad.Status {
	k := &p.key
	if r.set {
		var want mad.CongestionKeyInfo
		if _, err := want.Parse(r.data); err != nil {
			return failed(err)
		}
		if want.CCKeyViolations != 0 { // they are only ever reset
			want.CCKeyViolations = k.CCKeyViolations
		}
		k.CongestionKeyInfo = want
		r.mkey = want.CCKey // its setter may see it
	}
	show := k.CongestionKeyInfo
	if show.CCKeyProtectBit && show.CCKey != r.mkey {
		show.CCKey = 0
	}
	show.Append(r.answer())
	return mad.StatusOK
}

// ccLog serves the log of congestion. An adapter's has seen none: who slows down are the queue pairs of programs.
func (a *Agent) ccLog(_ *ccPort, r *request) mad.Status {
	clear(r.data)
	l, typ := &mad.CACongestionLogLayout, mad.CCLogCA
	if a.sw != nil {
		l, typ = &mad.SwitchCongestionLogLayout, mad.CCLogSwitch
	}
	l.Field("LogType").Put(r.data, 0, uint64(typ))
	l.Field("CurrentTimeStamp").Put(r.data, 0, uint64(ccTime(r.now)))
	if s, ok := a.sw.(MarkingSwitch); ok {
		a.logMarked(s, r.data)
	}
	return mad.StatusOK
}

// logMarked tells what a switch has marked since the log was last asked for: how many packets, at which ports, and of
// which flows the last were, oldest first.
func (a *Agent) logMarked(s MarkingSwitch, data []byte) {
	l := &mad.SwitchCongestionLogLayout
	var all uint64
	var flows []MarkedFlow
	ports := data[l.Field("PortMap").Off/8:][:32]
	for p := 1; p <= int(a.ports); p++ {
		n, of := s.TakeMarked(ib.PortNum(p))
		if all, flows = all+n, append(flows, of...); n > 0 {
			ports[len(ports)-1-p/8] |= 1 << (p % 8)
		}
	}
	slices.SortStableFunc(flows, func(a, b MarkedFlow) int { return cmp.Compare(a.At, b.At) })
	flows = flows[max(0, len(flows)-mad.CCSwitchLogEvents):]
	l.Field("LogEventsCounter").Put(data, 0, min(all, 0xFFFF))
	for i, f := range flows {
		l.Field("SLID").Put(data, i, uint64(f.SLID))
		l.Field("DLID").Put(data, i, uint64(f.DLID))
		l.Field("SL").Put(data, i, uint64(f.SL))
		l.Field("TimeStamp").Put(data, i, uint64(ccTime(f.At)))
	}
}

// ccTime is a time as congestion control counts it.
func ccTime(now ib.Time) uint32 { return uint32(now / ccTick) }

func (a *Agent) ccTimeStamp(_ *ccPort, r *request) mad.Status {
	clear(r.data)
	mad.CCTimeStampLayout.Fields[0].Put(r.data, 0, uint64(ccTime(r.now)))
	return mad.StatusOK
}

func (a *Agent) ccSwitch(_ *ccPort, r *request) mad.Status {
	if r.set {
		var want mad.SwitchCongestion
		if _, err := want.Parse(r.data); err != nil {
			return failed(err)
		}
		a.cc.setting = want
		a.applyMarking()
	}
	a.cc.setting.Append(r.answer())
	return mad.StatusOK
}

// ccPortBlocks is the last block of a switch's settings by port.
func (a *Agent) ccPortBlocks() uint32 { return uint32(a.ports) / mad.CCPortsPerBlock }

func (a *Agent) ccSwitchPort(_ *ccPort, r *request) mad.Status {
	if a.cc.byPort == nil {
		a.cc.byPort = make([]mad.SwitchPortEntry, int(a.ports)+1)
	}
	part := a.cc.byPort[min(int(r.mod)*mad.CCPortsPerBlock, len(a.cc.byPort)):]
	var block mad.SwitchPortCongestion
	if r.set {
		if _, err := block.Parse(r.data); err != nil {
			return failed(err)
		}
		copy(part, block[:])
		a.applyMarking()
	}
	block = mad.SwitchPortCongestion{}
	copy(block[:], part)
	block.Append(r.answer())
	return mad.StatusOK
}

func (a *Agent) ccCA(p *ccPort, r *request) mad.Status {
	if r.set {
		l := &mad.CACongestionLayout
		for i := range l.Fields {
			f := &l.Fields[i]
			for e := range f.Len() {
				f.Put(p.setting[:], e, f.Get(r.data, e))
			}
		}
		a.applySlowing(a.keyPort(r.inPort), p)
	}
	copy(r.answer()[:len(p.setting)], p.setting[:])
	return mad.StatusOK
}

// ccTable serves a block of the congestion control table. CCTI_Limit, the last entry that is used, is one for
// all blocks.
func (a *Agent) ccTable(p *ccPort, r *request) mad.Status {
	l := &mad.CongestionTableLayout
	limit, shift, mult := &l.Fields[0], &l.Fields[1], &l.Fields[2]
	part := p.table[r.mod*mad.CCTPerBlock:][:mad.CCTPerBlock]
	if r.set {
		want := limit.Get(r.data, 0)
		if want >= cctBlocks*mad.CCTPerBlock {
			return mad.StatusInvalidField
		}
		p.limit = uint16(want)
		for i := range part {
			part[i] = uint16(shift.Get(r.data, i)<<mult.Bits | mult.Get(r.data, i))
		}
		a.applySlowing(a.keyPort(r.inPort), p)
	}
	clear(r.data)
	limit.Put(r.data, 0, uint64(p.limit))
	for i, e := range part {
		shift.Put(r.data, i, uint64(e)>>mult.Bits)
		mult.Put(r.data, i, uint64(e))
	}
	return mad.StatusOK
}

// applyMarking tells a switch how its ports mark packets.
func (a *Agent) applyMarking() {
	if s, ok := a.sw.(MarkingSwitch); ok {
		s.SetCongestion(a.cc.setting, a.cc.byPort)
	}
}

// applySlowing tells an adapter how a port slows down.
func (a *Agent) applySlowing(port ib.PortNum, p *ccPort) {
	n, ok := a.node.(SlowingAdapter)
	if !ok {
		return
	}
	l := &mad.CACongestionLayout
	get := func(name string, i int) uint64 { return l.Field(name).Get(p.setting[:], i) }
	c := CongestionSetting{PortControl: uint16(get("PortControl", 0)), ControlMap: uint16(get("ControlMap", 0)),
		Table: append([]uint16(nil), p.table[:]...), Limit: p.limit}
	for i := range c.Entries {
		c.Entries[i] = CongestionEntry{Timer: uint16(get("CCTITimer", i)), Increase: uint8(get("CCTIIncrease", i)),
			Min: uint8(get("CCTIMin", i))}
	}
	n.SetCongestion(port, c)
}
