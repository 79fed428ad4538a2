package workload

import (
	"fmt"

	"softib/node/hca"
	"softib/proto/ib"
)

// Spec is a load as data.
type Spec struct {
	// Seed is what payloads and initial memory derive from.
	Seed  uint64
	Hosts int
	// PKeys is each host's partition table.
	PKeys  [][]ib.PKey
	SRQs   []SRQ
	Conns  []Conn
	Groups []Group
}

// SRQ is a shared receive queue of a host.
type SRQ struct {
	Host    int
	XRC     bool
	Depth   int
	SGEs    int
	BufSize int
	Limit   int
	Late    ib.Time // a receive is posted again only after this long
}

// Group is a multicast group. Its members are ends of UD conns.
type Group struct {
	MLID    ib.LID
	MGID    ib.GID
	Members []EndRef
}

// EndRef names one end of a conn by the conn's ID, which survives shrinking.
type EndRef struct{ Conn, End int }

// Conn is a pair of queue pairs that talk to each other: connected ones, or two
// datagram queue pairs. Ends are numbered 0 and 1; Flows[e] is what end e
// sends.
type Conn struct {
	ID   int
	Type hca.QPType // RC, UC, UD or XRCSend; the other end of XRCSend is XRCRecv
	Host [2]int
	// SRQ is 1 + the index of the shared queue that the end receives from; 0
	// for a receive queue of its own.
	SRQ [2]int
	MTU ib.MTU
	// PSN is the first that each end sends.
	PSN         [2]ib.PSN
	PKeyIndex   [2]uint16
	SL          ib.SL
	Global      bool // packets carry a GRH
	Timeout     uint8
	Retry       uint8
	RNRRetry    uint8
	MinRNRTimer uint8
	MaxRD       uint8
	SigAll      bool
	// NoAtomic takes the right to atomics from each end's peer.
	NoAtomic bool
	CQ       [2]int // which of the host's completion queues
	// Passive leaves end 1, which sends nothing, in RTR: a responder needs no more.
	Passive bool
	// Early destroys the queue pairs as soon as both flows have ended, while others go
	// on. Only a reliable conn knows then that everything has arrived.
	Early bool
	Flows [2]Flow
}

// Crosses reports whether the ends are in partitions that do not match.
func (c *Conn) Crosses(s *Spec) bool {
	a, b := s.PKeys[c.Host[0]][c.PKeyIndex[0]], s.PKeys[c.Host[1]][c.PKeyIndex[1]]
	return !a.Matches(b)
}

// Flow is what one end sends to the other.
type Flow struct {
	SendDepth int
	SendSGEs  int
	// How the other end receives it, where it has a queue of its own.
	RecvDepth int
	RecvSGEs  int
	RecvSize  int
	Late      ib.Time // a receive is posted again only after this long
	// Slots of SlotSize bytes at the other end are written and read, Cells of
	// eight bytes are for atomics.
	Slots, SlotSize, Cells int
	// ZeroBased says that addresses there are offsets.
	ZeroBased bool
	// Windows are memory windows over the slots of the same number, at the other end.
	Windows []hca.MWType
	Ops     []Op
}

// Op is one work request.
type Op struct {
	// N numbers the ops of a flow as they were drawn. It survives shrinking.
	N     int
	Code  hca.WROpcode
	Size  int
	SGEs  int
	Flags hca.SendFlags
	// Delay is between the post of the op before and this one's.
	Delay ib.Time
	// Slot is what a WRITE, READ or bind is about; Cell what an atomic is.
	Slot, Cell int
	// Shared makes a fetch-and-add go to the target host's common counter.
	Shared bool
	// Window is 1 + the index of the window that the op goes through, binds or
	// invalidates; 0 for none.
	Window int
	// After is 1 + the N of an op of the opposite flow that must have succeeded
	// before this one is posted; 0 for none.
	After int
	// Drain moves the queue pair to SQD before the op is posted, and back to RTS when
	// it says that what was under way is done.
	Drain bool
	// Group is 1 + the index of the multicast group to send to; 0 for the peer.
	Group  int
	Misuse Misuse
}

// Receives reports whether the op takes a receive request at the other end.
func (o *Op) Receives() bool {
	switch o.Code {
	case hca.WRSend, hca.WRSendImm, hca.WRSendInv, hca.WRRDMAWriteImm:
		return true
	}
	return false
}

// Writes reports whether the op puts data into the other end's slots.
func (o *Op) Writes() bool { return o.Code == hca.WRRDMAWrite || o.Code == hca.WRRDMAWriteImm }

// Local reports whether the op never leaves its adapter.
func (o *Op) Local() bool { return o.Code == hca.WRBindMW || o.Code == hca.WRLocalInv }

// Atomic reports whether the op is one.
func (o *Op) Atomic() bool { return o.Code == hca.WRAtomicCmpSwap || o.Code == hca.WRAtomicFetchAdd }

// HasImm reports whether the op carries an immediate.
func (o *Op) HasImm() bool { return o.Code == hca.WRSendImm || o.Code == hca.WRRDMAWriteImm }

func (o *Op) String() string {
	s := fmt.Sprintf("#%d %v %d bytes", o.N, o.Code, o.Size)
	if o.Misuse != None {
		s += ", " + o.Misuse.String()
	}
	return s
}

// Misuse is what an op does wrong on purpose.
type Misuse uint8

// Kinds of misuse, and how the op ends for it.
const (
	None        Misuse = iota
	BadRKey            // a key that opens nothing
	OutOfBounds        // beyond the end of the region
	ForeignPD          // the key of a region in another domain
	NoAccess           // the key of a region without the right
	StaleWindow        // the key of a window that was invalidated
	OtherWindow        // the key of a window that opens for another queue pair
	BadBind            // binds a window to a region that allows none
	QPAccess           // an operation that the peer's queue pair refuses
	BadInvKey          // SEND with invalidate of a key that opens nothing
	TooLong            // longer than any receive
	BadLKey            // a local key that opens nothing
	DeregLocal         // the local region goes as soon as the op is posted
	DeregRemote        // the target region goes as soon as the op is posted
	KillQP             // the own queue pair is failed as soon as the op is posted
	WrongQKey          // a datagram with another Q_Key
	WrongQPN           // a datagram to a queue pair that is not there
	WrongLID           // a datagram to a LID that nobody has
	NumMisuse
)

var misuseTable = [NumMisuse]struct {
	name   string
	status hca.WCStatus // how the op ends when nothing is lost
	either bool         // or it succeeds, by chance of timing
}{
	None:        {"no misuse", hca.WCSuccess, false},
	BadRKey:     {"bad R_Key", hca.WCRemAccessErr, false},
	OutOfBounds: {"out of bounds", hca.WCRemAccessErr, false},
	ForeignPD:   {"R_Key of another domain", hca.WCRemAccessErr, false},
	NoAccess:    {"R_Key without the right", hca.WCRemAccessErr, false},
	StaleWindow: {"R_Key of an invalidated window", hca.WCRemAccessErr, false},
	OtherWindow: {"R_Key of another queue pair's window", hca.WCRemAccessErr, false},
	BadBind:     {"binds to a region that allows no windows", hca.WCMWBindErr, false},
	QPAccess:    {"operation that the peer does not allow", hca.WCRemInvReqErr, false},
	BadInvKey:   {"invalidates a bad R_Key", hca.WCRemAccessErr, false},
	TooLong:     {"longer than the receive", hca.WCRemInvReqErr, false},
	BadLKey:     {"bad L_Key", hca.WCLocProtErr, false},
	DeregLocal:  {"local region deregistered", hca.WCLocProtErr, true},
	DeregRemote: {"remote region deregistered", hca.WCRemAccessErr, true},
	KillQP:      {"queue pair failed by its owner", hca.WCWRFlushErr, true},
	WrongQKey:   {"wrong Q_Key", hca.WCSuccess, false},
	WrongQPN:    {"wrong QP number", hca.WCSuccess, false},
	WrongLID:    {"wrong LID", hca.WCSuccess, false},
}

func (m Misuse) String() string {
	if m < NumMisuse {
		return misuseTable[m].name
	}
	return fmt.Sprintf("Misuse(%d)", uint8(m))
}

// Status is how the op ends when nothing is lost on the way; either says that it
// may also succeed.
func (m Misuse) Status() (s hca.WCStatus, either bool) {
	return misuseTable[m].status, misuseTable[m].either
}

// Fails reports whether an op with this misuse cannot succeed.
func (m Misuse) Fails() bool {
	return misuseTable[m].status != hca.WCSuccess && !misuseTable[m].either
}

// Totals says how much a spec asks for.
func (s *Spec) Totals() (ops, bytes int) {
	for i := range s.Conns {
		for e := range s.Conns[i].Flows {
			for j := range s.Conns[i].Flows[e].Ops {
				ops++
				bytes += s.Conns[i].Flows[e].Ops[j].Size
			}
		}
	}
	return ops, bytes
}
