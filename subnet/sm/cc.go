package sm

import (
	"encoding/binary"
	"slices"

	"softib/proto/ib"
	"softib/proto/mad"
	"softib/subnet"
	"softib/subnet/policy"
)

// congestion is what a manager knows about the congestion control of nodes (IBA A10), by port GUID.
type congestion struct {
	// set are the ports that hold the settings.
	set map[ib.GUID]bool
	// blocks is how large a port's congestion control table is, in blocks; unable are those that do not know the class.
	blocks map[ib.GUID]int
	unable map[ib.GUID]bool
	// failed counts how often a port has not answered.
	failed map[ib.GUID]int
}

// ccPatience is after how many sweeps in vain a port is left alone, until its link comes up anew.
const ccPatience = 3

func (c *congestion) init() {
	if c.set == nil {
		*c = congestion{map[ib.GUID]bool{}, map[ib.GUID]int{}, map[ib.GUID]bool{}, map[ib.GUID]int{}}
	}
}

// forget drops what is known of a port.
func (c *congestion) forget(guid ib.GUID) {
	delete(c.set, guid)
	delete(c.blocks, guid)
	delete(c.unable, guid)
	delete(c.failed, guid)
}

// forgetCongestion drops what is known of ports whose link was down: the node behind may have started anew. It is
// called before links are armed.
func (s *sweep) forgetCongestion() {
	if !s.m.cfg.Congestion.Enabled {
		return
	}
	c := &s.m.cc
	c.init()
	s.eachEnd(func(r subnet.Ref) {
		n := s.nodes[r.Node]
		p := &n.Ports[r.Port]
		if n.IsSwitch() && s.cold[r.Node] || !n.IsSwitch() && p.Info.PortState == ib.PortInit {
			c.forget(p.GUID)
		}
	})
}

// ccWrite is a setting that a port should have.
type ccWrite struct {
	ref  subnet.Ref
	attr mad.AttrID
	mod  uint32
	data []byte
	last bool // of the port's
}

// beginCongestionInfo lists the ports of which it is not known whether they can do congestion control.
func (s *sweep) beginCongestionInfo() {
	s.cursor = cursor{}
	if !s.m.cfg.Congestion.Enabled || s.m.brief {
		return
	}
	s.eachEnd(func(r subnet.Ref) {
		guid := s.nodes[r.Node].Ports[r.Port].GUID
		if _, known := s.m.cc.blocks[guid]; !known && !s.m.cc.unable[guid] &&
			s.nodes[r.Node].Info.NodeType != ib.NodeRouter {
			s.cursor.ends = append(s.cursor.ends, r)
		}
	})
}

// nextCongestionInfo asks the next of them. Something more urgent goes before; what is left over is done by the next
// sweep.
func (s *sweep) nextCongestionInfo(r *request) bool {
	if s.cursor.at >= len(s.cursor.ends) || s.ccFull() {
		return false
	}
	ref := s.cursor.ends[s.cursor.at]
	s.cursor.at++
	*r = request{what: askTable, node: ref.Node, port: ref.Port, attr: mad.AttrCongestionInfo}
	s.gmp(r, mad.ClassCC)
	return true
}

// ccFull reports whether the next datagram has to wait.
func (s *sweep) ccFull() bool {
	limit := s.m.cfg.Congestion.MaxOutstandingMADs
	return s.m.due() || limit > 0 && s.waiting >= int(limit)
}

func (s *sweep) congestionInfoReply(r *request, v mad.View) {
	guid := s.nodes[r.node].Ports[r.port].GUID
	var info mad.CongestionInfo
	if v != nil && v.Status() == mad.StatusOK {
		if _, err := info.Parse(v[mad.CCDataOff:]); err == nil {
			s.m.cc.blocks[guid] = int(info.ControlTableCap)
			return
		}
	}
	if v == nil && s.ccRetry(guid) {
		return
	}
	s.m.cc.unable[guid] = true
	s.ccUnable++
	if s.ccUnable <= grumbles {
		s.m.event(EventPolicy, "%s port %d does not do congestion control", s.name(r.node), r.port)
	}
}

// ccRetry reports whether a port that did not answer is to be tried again by a later sweep.
func (s *sweep) ccRetry(guid ib.GUID) bool {
	s.m.cc.failed[guid]++
	if s.m.cc.failed[guid] >= ccPatience {
		return false
	}
	s.m.wantLook(s.m.retryAt(0), 0, "congestion control is not set up everywhere")
	return true
}

// beginCongestion lists what ports that can do congestion control have to be told.
func (s *sweep) beginCongestion() {
	s.cursor = cursor{}
	s.ccWrites = nil
	o := &s.m.cfg.Congestion
	if !o.Enabled || s.m.brief {
		return
	}
	if s.ccUnable > grumbles {
		s.m.event(EventPolicy, "%d ports do not do congestion control, of which %d are named above", s.ccUnable,
			grumbles)
	}
	onSwitch, onCA, table := ccSwitch(o), ccAdapter(o), ccTable(o)
	s.eachEnd(func(r subnet.Ref) {
		n := s.nodes[r.Node]
		guid := n.Ports[r.Port].GUID
		blocks, able := s.m.cc.blocks[guid]
		if !able || s.m.cc.set[guid] || s.m.cc.unable[guid] {
			return
		}
		if n.IsSwitch() {
			s.ccWrites = append(s.ccWrites, ccWrite{r, mad.AttrSwitchCongestion, 0, onSwitch, true})
			return
		}
		s.ccWrites = append(s.ccWrites, ccWrite{r, mad.AttrCACongestion, 0, onCA, false})
		if len(table) > blocks {
			s.problem("%s port %d: its congestion control table has room for %d entries, cc_cct has %d: the "+
				"last are left out", s.name(r.Node), r.Port, blocks*mad.CCTPerBlock, len(o.Table))
		}
		for k := range min(len(table), blocks) {
			s.ccWrites = append(s.ccWrites, ccWrite{r, mad.AttrCongestionControlTable, uint32(k),
				fitTable(table[k], blocks), false})
		}
		s.ccWrites[len(s.ccWrites)-1].last = true
	})
}

// ccSwitch is SwitchCongestionSetting as configured.
func ccSwitch(o *policy.CongestionOptions) []byte {
	x := mad.SwitchCongestion{
		ControlMap: o.SwitchControlMap, VictimMask: o.VictimMask, CreditMask: o.CreditMask, Threshold: o.Threshold,
		PacketSize:  o.PacketSize,
		CSThreshold: o.StarvationThreshold, CSReturnDelay: ccEntry(o.StarvationDelay), MarkingRate: o.MarkingRate,
	}
	return x.Append(nil)
}

func ccEntry(e policy.CCTEntry) uint16 { return uint16(e.Shift)<<14 | e.Multiplier&(1<<14-1) }

// ccAdapter is CACongestionSetting as configured.
func ccAdapter(o *policy.CongestionOptions) []byte {
	l := &mad.CACongestionLayout
	b := make([]byte, l.Size)
	put := func(field string, i int, v uint64) { l.Field(field).Put(b, i, v) }
	put("PortControl", 0, uint64(o.CAPortControl))
	put("ControlMap", 0, uint64(o.CAControlMap))
	for sl, e := range o.CA {
		put("CCTITimer", sl, uint64(e.Timer))
		put("CCTIIncrease", sl, uint64(e.Increase))
		put("TriggerThreshold", sl, uint64(e.TriggerThreshold))
		put("CCTIMin", sl, uint64(e.Min))
	}
	return b
}

// ccTable is the congestion control table as configured, in blocks. One without entries is a block whose limit is 0.
func ccTable(o *policy.CongestionOptions) [][]byte {
	l := &mad.CongestionTableLayout
	var blocks [][]byte
	for from := 0; from == 0 || from < len(o.Table); from += mad.CCTPerBlock {
		b := make([]byte, l.Size)
		l.Field("CCTILimit").Put(b, 0, uint64(max(len(o.Table), 1)-1))
		for i, e := range o.Table[from:min(from+mad.CCTPerBlock, len(o.Table))] {
			l.Field("Shift").Put(b, i, uint64(e.Shift))
			l.Field("Multiplier").Put(b, i, uint64(e.Multiplier))
		}
		blocks = append(blocks, b)
	}
	return blocks
}

// fitTable lowers a block's limit to what a port has room for.
func fitTable(b []byte, blocks int) []byte {
	limit := mad.CongestionTableLayout.Field("CCTILimit")
	if most := uint64(blocks*mad.CCTPerBlock - 1); limit.Get(b, 0) > most {
		b = slices.Clone(b)
		limit.Put(b, 0, most)
	}
	return b
}

// nextCongestion writes the next setting.
func (s *sweep) nextCongestion(r *request) bool {
	if s.cursor.at >= len(s.ccWrites) || s.ccFull() {
		return false
	}
	w := &s.ccWrites[s.cursor.at]
	*r = request{what: tell, set: true, node: w.ref.Node, port: w.ref.Port, attr: w.attr, mod: w.mod,
		extra: int32(s.cursor.at)}
	s.cursor.at++
	copy(s.gmp(r, mad.ClassCC)[mad.CCDataOff:], w.data)
	return true
}

func (s *sweep) congestionReply(r *request, v mad.View) {
	guid := s.nodes[r.node].Ports[r.port].GUID
	if s.answeredIn(mad.ClassCC, r, v) {
		// Answers come in any order: one that failed may be before the last or after it.
		if s.ccWrites[r.extra].last && !s.ccFailed[guid] {
			s.m.cc.set[guid] = true
		}
		return
	}
	delete(s.m.cc.set, guid)
	if s.ccFailed[guid] {
		return
	}
	if s.ccFailed == nil {
		s.ccFailed = map[ib.GUID]bool{}
	}
	s.ccFailed[guid] = true
	if !s.ccRetry(guid) {
		s.m.cc.unable[guid] = true
		s.m.event(EventPolicy, "%s port %d does not take congestion control settings: is its CC_Key another "+
			"than cc_key?", s.name(r.node), r.port)
	}
}

// gmp fills in a request that goes by LID to the general services of a port's node, and returns its bytes. The link
// must be active.
func (s *sweep) gmp(r *request, class mad.Class) []byte {
	b := s.m.buf[:mad.Size]
	clear(b)
	h := mad.Header{BaseVersion: mad.BaseVersion, MgmtClass: class, ClassVersion: class.Info().Version,
		Method: mad.MethodGet, AttributeID: r.attr, AttributeModifier: r.mod}
	if r.set {
		h.Method = mad.MethodSet
	}
	h.Append(b[:0])
	if class == mad.ClassCC {
		binary.BigEndian.PutUint64(b[24:], s.m.cfg.Congestion.Key)
	}
	to := s.nodes[r.node].Ports[r.port].Info.LID
	r.to = mad.Envelope{LID: to, QPN: ib.QPNGSI, QKey: ib.QKeyGSI, PKeyIndex: s.ownKeyIndex()}
	if s.levels != nil {
		r.to.SL = s.levels.Level(s.self, to)
	}
	return b
}

// ownKeyIndex is where the manager's own port has the key by which it talks to everybody.
func (s *sweep) ownKeyIndex() uint16 {
	at := slices.Index(keysAt(&s.nodes[s.self.Node].Ports[s.self.Port]), ib.PKeyDefault)
	return uint16(max(at, 0))
}
