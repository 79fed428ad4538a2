package cm

import "softib/proto/ib"

// QPState is the state that a queue pair is to be moved to, numbered as ibv_qp_state.
type QPState uint8

// States of a queue pair that a connection has a part in.
const (
	QPInit QPState = 1
	QPRTR  QPState = 2
	QPRTS  QPState = 3
)

// QPMask says which attributes are set, numbered as ibv_qp_attr_mask.
type QPMask uint32

// Attributes.
const (
	QPHasState        QPMask = 1 << 0
	QPHasAccess       QPMask = 1 << 3
	QPHasPKeyIndex    QPMask = 1 << 4
	QPHasPort         QPMask = 1 << 5
	QPHasAV           QPMask = 1 << 7
	QPHasPathMTU      QPMask = 1 << 8
	QPHasTimeout      QPMask = 1 << 9
	QPHasRetryCnt     QPMask = 1 << 10
	QPHasRNRRetry     QPMask = 1 << 11
	QPHasRQPSN        QPMask = 1 << 12
	QPHasMaxRDAtomic  QPMask = 1 << 13
	QPHasAltPath      QPMask = 1 << 14
	QPHasMinRNRTimer  QPMask = 1 << 15
	QPHasSQPSN        QPMask = 1 << 16
	QPHasMaxDestRD    QPMask = 1 << 17
	QPHasPathMigState QPMask = 1 << 18
	QPHasDestQPN      QPMask = 1 << 20
)

// Rights of the peer, numbered as ibv_access_flags.
const (
	AccessRemoteWrite  = 1 << 1
	AccessRemoteRead   = 1 << 2
	AccessRemoteAtomic = 1 << 3
)

// MigRearm is IBV_MIG_REARM, the only value of QPAttr.PathMigState.
const MigRearm = 1

// AHAttr is a queue pair's way to its peer: ibv_ah_attr.
type AHAttr struct {
	DLID       ib.LID
	SL         ib.SL
	SrcPath    uint8
	StaticRate uint8
	IsGlobal   bool
	DGID       ib.GID
	FlowLabel  uint32
	SGIDIndex  uint8
	HopLimit   uint8
	TClass     uint8
	Port       ib.PortNum
}

// QPAttr is what to tell a queue pair: ibv_qp_attr, as far as a connection decides it.
type QPAttr struct {
	Mask         QPMask
	State        QPState
	Access       uint32
	PKeyIndex    uint16
	Port         ib.PortNum
	AH           AHAttr
	PathMTU      ib.MTU
	DestQPN      ib.QPN
	RQPSN        ib.PSN
	SQPSN        ib.PSN
	MaxDestRD    uint8
	MinRNRTimer  uint8
	Timeout      uint8
	RetryCnt     uint8
	RNRRetry     uint8
	MaxRDAtomic  uint8
	AltAH        AHAttr
	AltPKeyIndex uint16
	AltPort      ib.PortNum
	AltTimeout   uint8
	PathMigState uint8
}

// qpStates are in which states of a connection a queue pair may be moved to each state.
var qpStates = map[QPState]stateSet{
	QPInit: awaitRep | answerReq | awaitRTU | answerRep | states(StateEstablished),
	QPRTR:  answerReq | awaitRTU | answerRep | states(StateEstablished),
	QPRTS:  answerReq | awaitRTU | answerRep | states(StateEstablished),
}

// QPAttr is what a connection's queue pair has to be told to be moved to a state.
func (p *Port) QPAttr(id ConnID, to QPState) (QPAttr, error) {
	want, ok := qpStates[to]
	if !ok {
		return QPAttr{}, &ParamError{"QPAttr", "state", uint64(to), "1 (INIT), 2 (RTR) or 3 (RTS)"}
	}
	c, err := p.call("QPAttr", id, want)
	if err != nil {
		return QPAttr{}, err
	}
	// An XRC connection has an initiator at the side that asked and a target at the other.
	isTarget, isInitiator := c.transport != UC, c.transport != UC
	if c.transport == XRC {
		isTarget, isInitiator = c.passive, !c.passive
	}
	a := QPAttr{Mask: QPHasState, State: to}
	switch to {
	case QPInit:
		a.Mask |= QPHasAccess | QPHasPKeyIndex | QPHasPort
		a.PKeyIndex, a.Port, a.Access = c.primary.PKeyIndex, p.cfg.Port, AccessRemoteWrite
		if c.responder > 0 {
			a.Access |= AccessRemoteRead | AccessRemoteAtomic
		}
	case QPRTR:
		a.Mask |= QPHasAV | QPHasPathMTU | QPHasDestQPN | QPHasRQPSN
		a.AH, a.PathMTU, a.DestQPN, a.RQPSN = p.ahAttr(&c.primary), c.primary.MTU, c.remoteQPN, c.rqPSN
		if isTarget {
			a.Mask |= QPHasMaxDestRD | QPHasMinRNRTimer
			a.MaxDestRD = c.responder
		}
		if c.hasAlt {
			a.Mask |= QPHasAltPath
			a.AltAH, a.AltPort, a.AltPKeyIndex, a.AltTimeout = p.ahAttr(&c.alternate), p.cfg.Port,
				c.alternate.PKeyIndex, c.altTime
		}
	case QPRTS:
		a.Mask |= QPHasSQPSN
		a.SQPSN = c.sqPSN
		if isInitiator {
			a.Mask |= QPHasRetryCnt | QPHasRNRRetry | QPHasMaxRDAtomic
			a.RetryCnt, a.RNRRetry, a.MaxRDAtomic = c.retry, c.rnrRetry, c.initiator
		}
		if isInitiator || isTarget {
			a.Mask |= QPHasTimeout
			a.Timeout = c.ackTime
		}
		if c.hasAlt {
			a.Mask |= QPHasPathMigState
			a.PathMigState = MigRearm
		}
	}
	return a, nil
}

func (p *Port) ahAttr(path *Path) AHAttr {
	a := AHAttr{DLID: path.DLID, SL: path.SL, SrcPath: path.PathBits, StaticRate: uint8(path.Rate), Port: p.cfg.Port}
	if path.global() {
		a.IsGlobal, a.DGID, a.FlowLabel, a.SGIDIndex, a.HopLimit, a.TClass = true, path.DGID, path.FlowLabel,
			path.GIDIndex, path.HopLimit, path.TClass
	}
	return a
}
