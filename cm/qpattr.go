package cm

import (
	"softib/ib"
)

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
