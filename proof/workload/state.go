package workload

import (
	"softib/node/hca"
	"softib/proto/ib"
)

// End is one queue pair of a conn and what is around it.
type End struct {
	Conn *Conn
	E    int
	Host int
	QP   *hca.QP
	// Local is the region of the ops' data and of the receive buffers, Target the
	// one that the peer writes and reads: slots and cells.
	Local, Target     *hca.MR
	LocalAt, TargetAt Range
	// Flow is what the end sends; In what it receives.
	Flow, In *FlowState
	// Recvs are the buffers of the end's own receive queue.
	Recvs []*Recv
	SRQ   *SRQState

	pd, targetPD *hca.PD
	scq, rcq     *hca.CQ
	ah           *hca.AH
	unpolled     int   // signalled requests posted and not seen to complete
	joined       []int // groups
	closed       bool
	hungUp       bool
}

// FlowState is what one end of a conn sends, under way.
type FlowState struct {
	ID       int // 2*Conn.ID + end
	Spec     *Flow
	From, To *End
	Ops      []OpState
	Slots    Range // at To
	CellsAt  Range // at To
	Windows  []WindowState

	next     int
	waited   bool // the delay of the op at next is over
	waiting  bool // a timer for it is set
	draining bool // the queue pair is in SQD until it says that it is drained
	cells    []uint64
	lastSeen int // ops before it are known to have ended
}

// Opposite is the flow the other way.
func (f *FlowState) Opposite() *FlowState { return f.To.Flow }

// WindowState is a memory window over a slot.
type WindowState struct {
	MW *hca.MW
	// Key opens it; 0 while it is unbound. Stale opened it before.
	Key, Stale uint32

	slot  int
	asked uint32 // the key that the last bind asked for; type 2
	bound bool   // as far as posted requests go
}

// OpState is an op under way.
type OpState struct {
	*Op
	Flow  *FlowState
	Index int // in Flow.Ops
	// Area is the op's own memory at the sender, Pieces the list that names it.
	Area   Range
	Pieces []Piece
	// Remote is what it may write or read at the other end; no length for none.
	Remote Range
	// Posted, Done, Skipped: where it stands. A skipped op was not posted
	// because what it waited for failed.
	Posted, Done, Skipped bool
	// Signaled: its success is reported.
	Signaled bool
	Status   hca.WCStatus
	PostedAt ib.Time
	// Orig is what an atomic finds if all before it were executed once and in order,
	// After what it leaves.
	Orig, Left uint64
	// Key is the R_Key that it names.
	Key uint32

	doomed *hca.MR
}

// ID is the work request's identifier.
func (o *OpState) ID() uint64 { return sendID | uint64(o.Flow.ID)<<32 | uint64(o.Index) }

// Recv is a receive buffer. It is posted again each time it was used.
type Recv struct {
	ID     uint64
	End    *End // whose queue it is posted to; nil for a shared one
	SRQ    *SRQState
	At     Range
	Pieces []Piece
	Size   int
	Posted bool
}

// SRQState is a shared receive queue under way.
type SRQState struct {
	*SRQ
	Q     *hca.SRQ
	MR    *hca.MR
	At    Range
	Recvs []*Recv
	pd    *hca.PD
	cq    *hca.CQ
}

const (
	sendID = 1 << 63
	recvID = 1 << 62
)

// Observer is told what a program could have seen.
type Observer interface {
	// OpPosted is called when a send request was taken. Its memory is filled.
	OpPosted(now ib.Time, o *OpState)
	// SendDone is a completion of a send request, as it was polled.
	SendDone(now ib.Time, host int, wc *hca.WC)
	// RecvPosted is called when a buffer was taken by a receive queue.
	RecvPosted(now ib.Time, r *Recv)
	// RecvDone is a completion of a receive request, as it was polled, before the
	// buffer is used again.
	RecvDone(now ib.Time, host int, wc *hca.WC)
	// Event is an asynchronous event.
	Event(now ib.Time, host int, e hca.Event)
	// Closed is called after the queue pairs of a conn were destroyed before the end.
	Closed(now ib.Time, c *Conn)
	// Freed is called when memory is not registered any more.
	Freed(now ib.Time, at Range)
	// Scribbled is called when the program itself wrote over memory of its own.
	Scribbled(now ib.Time, at Range)
	// Failed is called when the program itself failed a queue pair.
	Failed(now ib.Time, e *End)
	// Refused is called when a verb did not do what the program may expect of it.
	Refused(now ib.Time, host int, verb string, err error)
}

// Runner runs a spec on a simulation.
type Runner struct {
	Sim   Fabric
	Spec  *Spec
	Mem   [][]byte // by host
	Ends  []*End   // two a conn
	Flows []*FlowState
	SRQs  []*SRQState
	// Counter is the cell of each host that shared fetch-and-adds go to.
	Counter []Range
	// Unused is memory of each host that is registered in a domain of no queue pair.
	Foreign []Range

	obs     Observer
	hosts   []*hostState
	recvs   []*Recv
	byFlow  map[int]*FlowState
	byQP    map[*hca.QP]*End
	stopped []bool
	dirty   []int
	isDirty []bool
	wcs     [16]hca.WC
	open    int // flows that are not done
	ended   []bool
	list    []hca.SGE
	started bool
}

// hostState is an adapter and what the runner made on it.
type hostState struct {
	h         *hca.HCA
	pds       []*hca.PD
	cqs       []*hca.CQ
	cqNeed    []int
	xrcd      *hca.XRCD
	foreign   *hca.MR
	counterPD []*hca.MR // by domain
	layout    layout
	mws       []*hca.MW
	ahs       []*hca.AH
	polls     int
}
