package hca

import (
	"fmt"

	"softib/proto/ib"
	"softib/proto/wire"
)

// MigState is the state of automatic path migration (IBA 17.2.8).
type MigState uint8

// Path migration states.
const (
	Migrated MigState = iota
	Rearm
	Armed
)

func (m MigState) String() string {
	switch m {
	case Migrated:
		return "MIGRATED"
	case Rearm:
		return "REARM"
	case Armed:
		return "ARMED"
	}
	return fmt.Sprintf("MigState(%d)", uint8(m))
}

// AHAttr is the way to a destination: ibv_ah_attr.
type AHAttr struct {
	DLID       ib.LID
	SL         ib.SL
	SrcPath    uint8 // low bits of the source LID
	StaticRate uint8 // mad.Rate: see pace; 0 is the port's
	IsGlobal   bool
	DGID       ib.GID
	FlowLabel  uint32
	SGIDIndex  uint8
	HopLimit   uint8
	TClass     uint8
	Port       ib.PortNum
}

// QPAttr holds a queue pair's attributes: ibv_qp_attr.
type QPAttr struct {
	State        State
	CurState     State
	PathMTU      ib.MTU
	PathMigState MigState
	QKey         ib.QKey
	RQPSN        ib.PSN
	SQPSN        ib.PSN
	DestQPN      ib.QPN
	Access       Access // remote rights of the peer: write, read, atomic
	PKeyIndex    uint16
	AltPKeyIndex uint16
	EnSQDNotify  bool
	MaxRDAtomic  uint8
	MaxDestRD    uint8
	MinRNRTimer  uint8
	Port         ib.PortNum
	Timeout      uint8
	RetryCnt     uint8
	RNRRetry     uint8
	AltPort      ib.PortNum
	AltTimeout   uint8
	AH           AHAttr
	AltAH        AHAttr
}

// AttrMask says which attributes a call to ModifyQP sets: ibv_qp_attr_mask.
type AttrMask uint32

// Attribute bits.
const (
	MaskState AttrMask = 1 << iota
	MaskCurState
	MaskEnSQDNotify
	MaskAccess
	MaskPKeyIndex
	MaskPort
	MaskQKey
	MaskAV
	MaskPathMTU
	MaskTimeout
	MaskRetryCnt
	MaskRNRRetry
	MaskRQPSN
	MaskMaxRDAtomic
	MaskAltPath
	MaskMinRNRTimer
	MaskSQPSN
	MaskMaxDestRD
	MaskPathMigState
	MaskDestQPN
	numMask = 20
)

// maskNames are the attributes' names in libibverbs, bit by bit.
var maskNames = [numMask]string{
	"qp_state", "cur_qp_state", "en_sqd_async_notify", "qp_access_flags", "pkey_index", "port_num", "qkey",
	"ah_attr", "path_mtu", "timeout", "retry_cnt", "rnr_retry", "rq_psn", "max_rd_atomic", "alt_path",
	"min_rnr_timer", "sq_psn", "max_dest_rd_atomic", "path_mig_state", "dest_qp_num",
}

func (m AttrMask) String() string {
	s := ""
	for i := 0; i < numMask; i++ {
		if m&(1<<i) != 0 {
			if s != "" {
				s += "|"
			}
			s += maskNames[i]
		}
	}
	return s
}

// move is one legal step of the state machine: the attributes that it needs
// and those that it may set besides, per service (IBA table 91).
type move struct {
	from, to State
	need     [NumQPType]AttrMask
	may      [NumQPType]AttrMask
}

// byType spreads masks over the queue pair types.
func byType(rc, uc, ud, ini, tgt AttrMask) [NumQPType]AttrMask {
	return [NumQPType]AttrMask{RC: rc, UC: uc, UD: ud, XRCSend: ini, XRCRecv: tgt, SMI: ud &^ MaskPort,
		GSI: ud &^ MaskPort}
}

const (
	pkPortAcc = MaskPKeyIndex | MaskPort | MaskAccess
	pkPortQK  = MaskPKeyIndex | MaskPort | MaskQKey
	ucRTR     = MaskAV | MaskPathMTU | MaskDestQPN | MaskRQPSN
	altEtc    = MaskAltPath | MaskAccess | MaskPKeyIndex
	rtsRC     = MaskTimeout | MaskRetryCnt | MaskRNRRetry | MaskSQPSN | MaskMaxRDAtomic
	rtsTGT    = MaskTimeout | MaskSQPSN
	rtsMay    = MaskCurState | MaskAltPath | MaskAccess | MaskPathMigState
	sqdRC     = MaskPort | MaskAV | MaskTimeout | MaskRetryCnt | MaskRNRRetry | MaskMaxRDAtomic | MaskMaxDestRD |
		MaskAltPath | MaskAccess | MaskPKeyIndex | MaskMinRNRTimer | MaskPathMigState
	sqdUC = MaskAV | MaskAltPath | MaskAccess | MaskPKeyIndex | MaskPathMigState
)

// moves lists every step that a user may ask for. RESET and ERR can be
// reached from anywhere and need nothing; they are not listed.
var moves = []move{
	{StateReset, StateInit,
		byType(pkPortAcc, pkPortAcc, pkPortQK, pkPortAcc, pkPortAcc), byType(0, 0, 0, 0, 0)},
	{StateInit, StateInit,
		byType(0, 0, 0, 0, 0), byType(pkPortAcc, pkPortAcc, pkPortQK, pkPortAcc, pkPortAcc)},
	{StateInit, StateRTR,
		byType(ucRTR|MaskMaxDestRD|MaskMinRNRTimer, ucRTR, 0, ucRTR, ucRTR|MaskMaxDestRD|MaskMinRNRTimer),
		byType(altEtc, altEtc, MaskPKeyIndex|MaskQKey, altEtc, altEtc)},
	{StateRTR, StateRTS,
		byType(rtsRC, MaskSQPSN, MaskSQPSN, rtsRC, rtsTGT),
		byType(rtsMay|MaskMinRNRTimer, rtsMay, MaskCurState|MaskQKey, rtsMay, rtsMay|MaskMinRNRTimer)},
	{StateRTS, StateRTS,
		byType(0, 0, 0, 0, 0),
		byType(rtsMay|MaskMinRNRTimer, rtsMay, MaskCurState|MaskQKey, rtsMay, rtsMay|MaskMinRNRTimer)},
	{StateRTS, StateSQD,
		byType(0, 0, 0, 0, 0),
		byType(MaskEnSQDNotify, MaskEnSQDNotify, MaskEnSQDNotify, MaskEnSQDNotify, MaskEnSQDNotify)},
	{StateSQD, StateRTS,
		byType(0, 0, 0, 0, 0),
		byType(rtsMay|MaskMinRNRTimer, rtsMay, MaskCurState|MaskQKey, rtsMay, rtsMay|MaskMinRNRTimer)},
	{StateSQD, StateSQD,
		byType(0, 0, 0, 0, 0),
		byType(sqdRC, sqdUC, MaskPKeyIndex|MaskQKey, sqdRC&^MaskMaxDestRD&^MaskMinRNRTimer,
			sqdUC|MaskPort|MaskTimeout|MaskMaxDestRD|MaskMinRNRTimer)},
	{StateSQE, StateRTS,
		byType(0, 0, 0, 0, 0),
		byType(0, MaskCurState|MaskAccess, MaskCurState|MaskQKey, 0, 0)},
}

// findMove is the table's row for a step, nil if it is not legal.
func findMove(from, to State, t QPType) *move {
	for i := range moves {
		m := &moves[i]
		if m.from == from && m.to == to {
			if from == StateSQE && (t == RC || t == XRCSend || t == XRCRecv) {
				return nil // reliable services go to ERR, never to SQE
			}
			return m
		}
	}
	return nil
}

// ModifyQP sets the attributes that mask names, and moves the state machine
// if the state is among them. Nothing changes unless everything is right.
func (h *HCA) ModifyQP(q *QP, a QPAttr, mask AttrMask) error {
	const verb = "modify_qp"
	if q == nil || q.dead {
		return attrErr(ErrDestroyed, verb, "qp", q, "a live queue pair")
	}
	if mask >= 1<<numMask {
		return badAttr(verb, "attr_mask", uint32(mask), "known attributes")
	}
	h.withdrawn = true
	if mask&MaskCurState != 0 && a.CurState != q.state {
		return attrErr(ErrState, verb, "cur_qp_state", a.CurState, "the state it is in: "+q.state.String())
	}
	to := q.state
	if mask&MaskState != 0 {
		to = a.State
		if to >= NumState {
			return badAttr(verb, "qp_state", to, "RESET, INIT, RTR, RTS, SQD or ERR")
		}
	}
	rest := mask &^ (MaskState | MaskCurState)
	switch {
	case to == StateReset || to == StateErr && mask&MaskState != 0:
		if rest != 0 {
			return badAttr(verb, "attr_mask", rest, "qp_state alone when moving to "+to.String())
		}
		if to == StateErr {
			if q.state == StateReset {
				q.setState(StateInit) // an unused queue pair may be failed too
			}
			q.toError()
			return nil
		}
		q.abandonHeld()
		q.giveUp()
		for _, c := range []*CQ{q.sendCQ, q.recvCQ} {
			if c != nil {
				c.purge(q.num, 0)
			}
		}
		h.ready.remove(q)
		h.unbindWindows(q)
		q.setState(StateReset)
		q.reset()
		return nil
	case to == StateErr:
		return attrErr(ErrState, verb, "qp_state", q.state, "RESET first")
	}
	m := findMove(q.state, to, q.typ)
	if m == nil {
		return attrErr(ErrState, verb, "qp_state", fmt.Sprintf("%v to %v", q.state, to), "a step of the state machine")
	}
	if miss := m.need[q.typ] &^ mask; miss != 0 {
		return badAttr(verb, "attr_mask", mask, "also "+miss.String()+" for "+q.state.String()+" to "+to.String())
	}
	if extra := rest &^ (m.need[q.typ] | m.may[q.typ]); extra != 0 {
		return badAttr(verb, "attr_mask", mask, "not "+extra.String()+" for "+q.state.String()+" to "+to.String())
	}
	next := q.attr
	if err := h.mergeAttr(q, &next, &a, mask); err != nil {
		return err
	}
	forced := mask&MaskPathMigState != 0 && next.PathMigState == Migrated && q.attr.PathMigState == Armed
	q.attr = next
	q.enter(to, mask)
	if forced {
		q.migrate()
	}
	return nil
}

// mergeAttr checks the attributes in mask and copies them to next.
func (h *HCA) mergeAttr(q *QP, next, a *QPAttr, mask AttrMask) error {
	const verb = "modify_qp"
	has := func(m AttrMask) bool { return mask&m != 0 }
	small := func(m AttrMask, got uint8, limit uint8) error {
		if has(m) && got > limit {
			for i := 0; i < numMask; i++ {
				if m == 1<<i {
					return badAttr(verb, maskNames[i], got, fmt.Sprintf("0 to %d", limit))
				}
			}
		}
		return nil
	}
	if has(MaskPort) {
		if h.Port(a.Port) == nil {
			return badAttr(verb, "port_num", a.Port, fmt.Sprintf("1 to %d", h.NumPorts()))
		}
		next.Port = a.Port
	}
	port := h.Port(next.Port)
	if port == nil && (q.typ == SMI || q.typ == GSI) {
		next.Port, port = 1, h.Port(1)
	}
	if has(MaskPKeyIndex) {
		if port == nil || int(a.PKeyIndex) >= len(port.PKeys) {
			return badAttr(verb, "pkey_index", a.PKeyIndex, "an index of the port's P_Key table")
		}
		next.PKeyIndex = a.PKeyIndex
	}
	if has(MaskAccess) {
		if a.Access&^(accessAll&^AccessZeroBased|AccessFlushPersistent) != 0 {
			return badAttr(verb, "qp_access_flags", a.Access, "remote access flags")
		}
		next.Access = a.Access
	}
	if has(MaskQKey) {
		next.QKey = a.QKey
	}
	if has(MaskAV) {
		if err := h.checkAHAttr(verb, "ah_attr", &a.AH, false); err != nil {
			return err
		}
		next.AH = a.AH
	}
	if has(MaskPathMTU) {
		if !a.PathMTU.IsValid() || a.PathMTU > port.MTU {
			return badAttr(verb, "path_mtu", a.PathMTU, "256 to the port's "+port.MTU.String())
		}
		next.PathMTU = a.PathMTU
	}
	if has(MaskDestQPN) {
		if a.DestQPN > ib.QPNMask {
			return badAttr(verb, "dest_qp_num", uint32(a.DestQPN), "24 bits")
		}
		next.DestQPN = a.DestQPN
	}
	if has(MaskRQPSN) {
		next.RQPSN = a.RQPSN & ib.PSNMask
	}
	if has(MaskSQPSN) {
		next.SQPSN = a.SQPSN & ib.PSNMask
	}
	l := h.cfg.Limits
	for _, err := range []error{
		small(MaskMaxRDAtomic, a.MaxRDAtomic, uint8(min(l.MaxInitRDAtomic, 255))),
		small(MaskMaxDestRD, a.MaxDestRD, uint8(min(l.MaxRDAtomic, 255))),
		small(MaskTimeout, a.Timeout, 31),
		small(MaskRetryCnt, a.RetryCnt, 7),
		small(MaskRNRRetry, a.RNRRetry, 7),
		small(MaskMinRNRTimer, a.MinRNRTimer, 31),
	} {
		if err != nil {
			return err
		}
	}
	if has(MaskMaxRDAtomic) {
		next.MaxRDAtomic = a.MaxRDAtomic
	}
	if has(MaskMaxDestRD) {
		next.MaxDestRD = a.MaxDestRD
	}
	if has(MaskTimeout) {
		next.Timeout = a.Timeout
	}
	if has(MaskRetryCnt) {
		next.RetryCnt = a.RetryCnt
	}
	if has(MaskRNRRetry) {
		next.RNRRetry = a.RNRRetry
	}
	if has(MaskMinRNRTimer) {
		next.MinRNRTimer = a.MinRNRTimer
	}
	if has(MaskEnSQDNotify) {
		next.EnSQDNotify = a.EnSQDNotify
	}
	if has(MaskAltPath) {
		alt := h.Port(a.AltPort)
		if alt == nil {
			return badAttr(verb, "alt_port_num", a.AltPort, fmt.Sprintf("1 to %d", h.NumPorts()))
		}
		if int(a.AltPKeyIndex) >= len(alt.PKeys) {
			return badAttr(verb, "alt_pkey_index", a.AltPKeyIndex, "an index of the port's P_Key table")
		}
		if a.AltTimeout > 31 {
			return badAttr(verb, "alt_timeout", a.AltTimeout, "0 to 31")
		}
		if err := h.checkAHAttr(verb, "alt_ah_attr", &a.AltAH, false); err != nil {
			return err
		}
		next.AltAH, next.AltPort, next.AltPKeyIndex, next.AltTimeout = a.AltAH, a.AltPort, a.AltPKeyIndex, a.AltTimeout
	}
	if has(MaskPathMigState) {
		// A user re-arms, or forces the migration of an armed path (IBA 17.2.8.1.2).
		switch {
		case a.PathMigState == Rearm && next.AltAH.DLID != 0:
		case a.PathMigState == Migrated && (q.attr.PathMigState == Armed || q.attr.PathMigState == Migrated):
		default:
			return badAttr(verb, "path_mig_state", a.PathMigState,
				"REARM with an alternate path loaded, or MIGRATED when ARMED")
		}
		next.PathMigState = a.PathMigState
	}
	return nil
}

// flowMask is all of a flow label.
const flowMask = 1<<20 - 1

// checkAHAttr checks the way to a destination.
func (h *HCA) checkAHAttr(verb, name string, a *AHAttr, multicastOK bool) error {
	if a.Port == 0 {
		a.Port = 1
	}
	port := h.Port(a.Port)
	if port == nil {
		return badAttr(verb, name+".port_num", a.Port, fmt.Sprintf("1 to %d", h.NumPorts()))
	}
	if h.cfg.RoCE.ByGID {
		if !a.IsGlobal {
			return badAttr(verb, name+".is_global", a.IsGlobal, "1: on Ethernet there are no other addresses than GIDs")
		}
		// IP's flow label has 20 bits, and programs that want to say which of UDP's ports they mean set more (UCX).
		a.DLID, a.SrcPath, a.FlowLabel = networkLID(a.DGID), 0, a.FlowLabel&flowMask
	}
	switch {
	case a.DLID.IsUnicast():
	case a.DLID == ib.LIDPermissive && multicastOK:
	case a.DLID.IsMulticast() && multicastOK:
		if !a.IsGlobal || !isGroup(a.DGID) {
			return badAttr(verb, name+".is_global", a.IsGlobal, "a multicast DGID beside a multicast DLID")
		}
	default:
		return badAttr(verb, name+".dlid", a.DLID, "a unicast LID")
	}
	if a.SL >= ib.NumSL {
		return badAttr(verb, name+".sl", a.SL, "0 to 15")
	}
	if int(a.SrcPath) >= 1<<port.LMC {
		return badAttr(verb, name+".src_path_bits", a.SrcPath, fmt.Sprintf("less than 2^LMC (%d)", 1<<port.LMC))
	}
	if a.IsGlobal {
		if int(a.SGIDIndex) >= len(port.GIDs) {
			return badAttr(verb, name+".grh.sgid_index", a.SGIDIndex, "an index of the port's GID table")
		}
		if h.cfg.RoCE.ByGID && port.GIDs[a.SGIDIndex].IsZero() {
			return badAttr(verb, name+".grh.sgid_index", a.SGIDIndex, "an index with an address, which this has lost")
		}
		if a.FlowLabel > flowMask {
			return badAttr(verb, name+".grh.flow_label", a.FlowLabel, "20 bits")
		}
	}
	return nil
}

// QueryQP returns the attributes and the state.
func (h *HCA) QueryQP(q *QP) (QPAttr, error) {
	if q == nil || q.dead {
		return QPAttr{}, attrErr(ErrDestroyed, "query_qp", "qp", q, "a live queue pair")
	}
	a := q.attr
	a.State, a.CurState = q.state, q.state
	a.SQPSN, a.RQPSN = q.nextPSN, q.ePSN
	if h.cfg.RoCE.ByGID {
		a.AH.DLID = 0
	}
	return a, nil
}

// enter does what arriving in a state means.
func (q *QP) enter(to State, mask AttrMask) {
	from := q.state
	q.transition(to)
	if mask&(MaskAV|MaskPort|MaskPKeyIndex|MaskPathMTU|MaskPathMigState) != 0 {
		q.refreshPath()
	}
	switch to {
	case StateRTR:
		if from == StateInit {
			q.ePSN = q.attr.RQPSN
			q.refreshPath()
		}
	case StateRTS:
		switch from {
		case StateRTR:
			q.nextPSN = q.attr.SQPSN
			q.sentPSN, q.ackPSN = q.nextPSN, q.nextPSN
			q.retry, q.rnrRetry = q.attr.RetryCnt, q.attr.RNRRetry
		case StateSQD, StateSQE:
			q.drained, q.draining = false, false
			q.markReady()
		}
	case StateSQD:
		if mask&MaskMaxDestRD != 0 && q.res != nil {
			q.sizeResponder()
		}
		if from == StateRTS {
			q.draining, q.drained = mask&MaskEnSQDNotify != 0 && q.attr.EnSQDNotify, false
			q.askAck()
			q.checkDrained()
		}
	}
}

// refreshPath derives the packet headers' addresses from the attributes.
func (q *QP) refreshPath() {
	port := q.h.Port(q.attr.Port)
	if port == nil {
		return
	}
	if q.isUD() {
		q.setMTU(port.MTU)
		q.path.port = q.attr.Port
		q.path.pkey = pkeyAt(port, q.attr.PKeyIndex)
		return
	}
	if q.attr.PathMTU.IsValid() {
		q.setMTU(q.attr.PathMTU)
	}
	a := &q.attr.AH
	q.path = path{
		port: q.attr.Port, dlid: a.DLID, slid: port.LID | ib.LID(a.SrcPath), sl: a.SL,
		pkey: pkeyAt(port, q.attr.PKeyIndex), global: a.IsGlobal, loop: port.ownsLID(a.DLID),
		rate: port.slowRate(a.StaticRate),
	}
	if a.IsGlobal {
		q.grh = makeGRH(port, a)
	}
	q.refreshHeader()
}

func (q *QP) setMTU(m ib.MTU) {
	q.mtu = m.Bytes()
	q.mtuShift = uint8(7 + m)
}

// refreshHeader derives what all packets of a connected queue pair have in
// common.
func (q *QP) refreshHeader() {
	q.lrh = wire.LRH{SL: q.path.sl, LNH: wire.LNHLocal, DLID: q.path.dlid, SLID: q.path.slid}
	if q.path.global {
		q.lrh.LNH = wire.LNHGlobal
	}
	q.bth = wire.BTH{
		Opcode: wire.MakeOpcode(qpTypes[q.typ].wire, 0), PKey: q.path.pkey, DestQP: q.attr.DestQPN,
		Migrate: q.attr.PathMigState == Migrated,
	}
}

func pkeyAt(p *Port, i uint16) ib.PKey {
	if int(i) < len(p.PKeys) {
		return p.PKeys[i]
	}
	return 0
}

func makeGRH(port *Port, a *AHAttr) wire.GRH {
	g := wire.GRH{IPVer: 6, TClass: a.TClass, Flow: a.FlowLabel, NxtHdr: wire.GRHNextIBA, HopLimit: a.HopLimit,
		DGID: a.DGID}
	if int(a.SGIDIndex) < len(port.GIDs) {
		g.SGID = port.GIDs[a.SGIDIndex]
	}
	return g
}
