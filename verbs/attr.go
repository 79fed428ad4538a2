package verbs

import (
	"softib/node/hca"
	"softib/proto/ib"
)

// QPType is a queue pair's transport service: ibv_qp_type.
type QPType uint8

// Services.
const (
	RC      QPType = iota // reliable connection: sends, writes, reads, atomics; in order, exactly once
	UC                    // unreliable connection: sends and writes; what is lost is lost
	UD                    // unreliable datagrams: to anybody, of one packet each; multicast
	XRCSend               // initiator of an extended reliable connection
	XRCRecv               // its target, which has no queues of its own: see XRCD
)

func (t QPType) String() string { return hca.QPType(t).String() }

// State is a queue pair's state: ibv_qp_state. Connect and Ready go through the first four.
type State uint8

// States (IBA figure 124).
const (
	StateReset State = iota
	StateInit        // receives may be posted
	StateRTR         // ready to receive: knows its peer
	StateRTS         // ready to send
	StateSQD         // send queue drained: sending pauses
	StateSQE         // send queue error, of UC and UD
	StateErr         // everything posted is flushed
)

func (s State) String() string { return hca.State(s).String() }

// MigState is the state of automatic path migration (IBA 17.2.8).
type MigState uint8

// Path migration states.
const (
	Migrated MigState = iota
	Rearm
	Armed
)

func (m MigState) String() string { return hca.MigState(m).String() }

// Access says who may do what with memory: ibv_access_flags.
type Access uint16

// Access flags. What peers may write, the adapter has to be allowed to write locally too.
const (
	AccessLocalWrite   Access = 1 << iota // receives, reads and the results of atomics may be put there
	AccessRemoteWrite                     // peers may write
	AccessRemoteRead                      // peers may read
	AccessRemoteAtomic                    // peers may do atomics
	AccessMWBind                          // windows may be opened on it
	AccessZeroBased                       // addresses count from 0
)

// Caps are a queue pair's sizes.
type Caps struct {
	MaxSendWR, MaxRecvWR   int // requests posted and not complete
	MaxSendSGE, MaxRecvSGE int // elements of a request's list
	MaxInline              int // bytes of an inline request
}

// DefaultCaps are sizes that suit most programs.
var DefaultCaps = Caps{MaxSendWR: 128, MaxRecvWR: 128, MaxSendSGE: 4, MaxRecvSGE: 4, MaxInline: 64}

// AHAttr is the way to a destination: ibv_ah_attr.
type AHAttr struct {
	DLID       ib.LID
	SL         ib.SL
	SrcPath    uint8 // low bits of the source LID
	StaticRate uint8 // as PathRecord has it; 0 is the port's
	IsGlobal   bool  // the packets have a global route header: DGID and what follows count
	DGID       ib.GID
	FlowLabel  uint32
	SGIDIndex  uint8
	HopLimit   uint8
	TClass     uint8
	Port       ib.PortNum // of this side
}

// QPAttr holds a queue pair's attributes: ibv_qp_attr.
type QPAttr struct {
	State        State
	CurState     State
	PathMTU      ib.MTU
	PathMigState MigState
	QKey         ib.QKey
	RQPSN        ib.PSN // the first that the peer will send
	SQPSN        ib.PSN // the first to send
	DestQPN      ib.QPN
	Access       Access // what the peer may do: write, read, atomic
	PKeyIndex    uint16
	AltPKeyIndex uint16
	EnSQDNotify  bool
	MaxRDAtomic  uint8 // reads and atomics under way to the peer
	MaxDestRD    uint8 // and from it
	MinRNRTimer  uint8
	Port         ib.PortNum
	Timeout      uint8 // 4.096 µs · 2^n; 0 waits for ever
	RetryCnt     uint8 // 0 to 7
	RNRRetry     uint8 // 0 to 6; 7 is without end
	AltPort      ib.PortNum
	AltTimeout   uint8
	AH           AHAttr
	AltAH        AHAttr
}

// AttrMask says which attributes a call of Modify sets: ibv_qp_attr_mask.
type AttrMask uint32

// Attributes, by their fields in QPAttr; MaskAV is AH, and MaskAltPath everything whose name begins with Alt.
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
)

func (m AttrMask) String() string { return hca.AttrMask(m).String() }

// Limits are a device's capabilities: ibv_device_attr.
type Limits struct {
	MaxQP, MaxCQ, MaxMR, MaxPD, MaxSRQ, MaxAH, MaxMW int
	MaxQPWR, MaxSGE, MaxCQE, MaxSRQWR, MaxInline     int
	MaxRDAtomic, MaxInitRDAtomic                     int
	MaxMcastGrp, MaxMcastQPAttach                    int
	MaxMRSize                                        uint64
	MaxMsgSize                                       uint32
}

// Port is a port's state and addresses: ibv_port_attr with its tables of GIDs and P_Keys.
type Port struct {
	GUID  ib.GUID
	State ib.PortState
	LID   ib.LID
	LMC   uint8
	SMLID ib.LID // of the subnet manager
	SMSL  ib.SL
	MTU   ib.MTU
	Rate  ib.LinkRate // of its link; zero if nobody says
	GIDs  []ib.GID
	PKeys []ib.PKey
	// Ethernet: the port speaks RoCEv2. Its GIDs are IP addresses, and it has no LID.
	Ethernet bool
	// PKeyViolations and QKeyViolations count packets with a wrong key.
	PKeyViolations, QKeyViolations uint16
}

// PKeyIndex is where the port has a partition, for QPAttr.PKeyIndex: the very key if it is there, or else the other
// kind of membership in the same partition.
func (p *Port) PKeyIndex(key ib.PKey) (uint16, bool) {
	found, ok := 0, false
	for i, k := range p.PKeys {
		if k == key {
			return uint16(i), true
		}
		if !ok && k.IsValid() && k.Base() == key.Base() {
			found, ok = i, true
		}
	}
	return uint16(found), ok
}
