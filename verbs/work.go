package verbs

import (
	"fmt"
	"unsafe"

	"softib/node/hca"
	"softib/proto/ib"
)

// SGE is one element of a scatter/gather list: some bytes of registered memory. MR.SGE makes one.
type SGE struct {
	Addr   uint64 // as MR.Addr counts
	Length uint32
	LKey   uint32 // of the region that has the bytes
}

// SendWR is a request for the send queue: ibv_send_wr, with its unions laid flat. Which fields count depends on the
// Opcode; WRID is the program's own and comes back in the completion.
type SendWR struct {
	WRID   uint64
	Opcode WROpcode
	Flags  SendFlags
	// SGList is the memory to send from, to write from, or to read into.
	SGList []SGE
	// InlineData is sent before what SGList names, if SendInline is set. It is copied when the request is posted, and
	// needs no registration.
	InlineData []byte
	// Imm is the immediate, or the R_Key to invalidate.
	Imm uint32

	// RemoteAddr and RKey name the peer's memory for writes, reads and atomics.
	RemoteAddr uint64
	RKey       uint32
	// CompareAdd is what an atomic compares with or adds; Swap is what a compare-and-swap puts there.
	CompareAdd uint64
	Swap       uint64
	// Flush is what WRFlush sees to.
	Flush Flush

	// AH, RemoteQPN and RemoteQKey say where a datagram goes. A multicast goes to ib.QPNMulticast.
	AH         *AH
	RemoteQPN  ib.QPN
	RemoteQKey ib.QKey
	// RemoteSRQN is the shared receive queue at an XRC target.
	RemoteSRQN uint32

	// Bind is what WRBindMW does: MW.Bind makes it.
	Bind *BindInfo
}

// Flush says of which bytes from RemoteAddr on a peer is to be sure that everybody there sees what was written.
type Flush struct {
	Length      uint32
	Type, Level uint8 // 1, for everybody to see; 0 for these bytes, 1 for all that RKey opens
}

// RecvWR is a receive: the memory for one incoming message.
type RecvWR struct {
	WRID   uint64
	SGList []SGE
}

// WROpcode is the operation of a send request: ibv_wr_opcode.
type WROpcode uint8

// Operations, in libibverbs' order.
const (
	WRRDMAWrite      WROpcode = iota // write to the peer's memory; the peer's program learns nothing
	WRRDMAWriteImm                   // write, and complete a receive of the peer with Imm
	WRSend                           // send a message into a receive of the peer
	WRSendImm                        // send with Imm in the peer's completion
	WRRDMARead                       // read from the peer's memory
	WRAtomicCmpSwap                  // 8 bytes: if they are CompareAdd, put Swap there; fetch what was there
	WRAtomicFetchAdd                 // 8 bytes: add CompareAdd; fetch what was there
	WRLocalInv                       // close a window of one's own: Imm is its R_Key
	WRBindMW                         // open a window: Bind
	WRSendInv                        // send, and close the peer's window that has the R_Key Imm

	WRFlush       WROpcode = 14 // done when what was written before is in the peer's memory: Flush
	WRAtomicWrite WROpcode = 15 // write 8 bytes to the peer's memory at once
)

func (o WROpcode) String() string { return hca.WROpcode(o).String() }

// SendFlags are options of a send request: ibv_send_flags.
type SendFlags uint8

// Send flags.
const (
	SendFence     SendFlags = 1 << iota // wait for the reads and atomics before it
	SendSignaled                        // make a completion even if it succeeds
	SendSolicited                       // wake a peer that waits for solicited completions
	SendInline                          // copy the data when posted
)

// WC is a work completion: ibv_wc. Unless Status is WCSuccess only WRID, Status, VendorErr and QPN count.
type WC struct {
	WRID      uint64
	Status    WCStatus
	Opcode    WCOpcode
	Flags     WCFlags
	SL        ib.SL
	PathBits  uint8
	Port      ib.PortNum
	VendorErr uint32
	ByteLen   uint32 // received; a datagram's includes the 40 bytes that are kept for its GRH
	ImmData   uint32 // immediate, or the invalidated R_Key
	QPN       ib.QPN // of this side's queue pair
	SrcQP     ib.QPN // of a datagram's sender
	PKeyIndex uint16
	SLID      ib.LID // of a datagram's sender
	// At is when the completion was made, by the device's clock.
	At ib.Time
}

// WCStatus is how a request ended: ibv_wc_status.
type WCStatus uint8

// Statuses, in libibverbs' order. Any but WCSuccess has put the queue pair into StateErr, or the send queue of a
// datagram queue pair into StateSQE.
const (
	WCSuccess        WCStatus = iota
	WCLocLenErr               // a message longer than its receive
	WCLocQPOpErr              // the queue pair cannot do this request
	WCLocEECOpErr             // not used
	WCLocProtErr              // the list names memory that is not registered for this
	WCWRFlushErr              // the queue pair was in the error state before the request's turn came
	WCMWBindErr               // a window could not be bound
	WCBadRespErr              // the peer answered what makes no sense
	WCLocAccessErr            // the peer's request was refused here
	WCRemInvReqErr            // the peer found the request invalid
	WCRemAccessErr            // the peer's memory is not open for this: key, bounds or rights
	WCRemOpErr                // the peer could not do it
	WCRetryExcErr             // no answer: the peer or the way to it is gone
	WCRNRRetryExcErr          // the peer had no receive posted, for too long
	WCLocRDDViolErr           // not used
	WCRemInvRDReqErr          // not used
	WCRemAbortErr             // the peer gave up
	WCInvEECNErr              // not used
	WCInvEECStateErr          // not used
	WCFatalErr                // the device is gone
	WCRespTimeoutErr          // not used
	WCGeneralErr              // anything else
)

func (s WCStatus) String() string { return hca.WCStatus(s).String() }

// WCOpcode is what a completed request did: ibv_wc_opcode.
type WCOpcode uint8

// Completion opcodes; those of receives have bit 7 set, as in libibverbs.
const (
	WCSend WCOpcode = iota
	WCRDMAWrite
	WCRDMARead
	WCCompSwap
	WCFetchAdd
	WCBindMW
	WCLocalInv
	WCFlush       WCOpcode = 8
	WCAtomicWrite WCOpcode = 9

	WCRecv            WCOpcode = 1 << 7
	WCRecvRDMAWithImm WCOpcode = WCRecv + 1
)

func (o WCOpcode) String() string { return hca.WCOpcode(o).String() }

// IsRecv reports whether a receive completed, and not a send request.
func (o WCOpcode) IsRecv() bool { return o&WCRecv != 0 }

// WCFlags say which optional fields of a completion are set: ibv_wc_flags.
type WCFlags uint8

// Completion flags.
const (
	WCGRH     WCFlags = 1 << iota // a global route header fills the first 40 bytes of the memory
	WCWithImm                     // ImmData is the sender's immediate
	WCWithInv                     // ImmData is the R_Key that was invalidated
)

// Err is nil for a request that succeeded, and otherwise a *StatusError that says how it ended.
func (w *WC) Err() error {
	if w.Status == WCSuccess {
		return nil
	}
	return &StatusError{WRID: w.WRID, QPN: w.QPN, Status: w.Status}
}

// StatusError is a request that ended with something else than success.
type StatusError struct {
	WRID   uint64
	QPN    ib.QPN
	Status WCStatus
}

func (e *StatusError) Error() string {
	return fmt.Sprintf("verbs: request %d of QP %v ended with %v", e.WRID, e.QPN, e.Status)
}

// Requests and completions are laid out as the engine's, so that posting and polling convert nothing: a request of a
// program is a request of the engine. The first fields of AH and BindInfo are the engine's, to which the engine's
// requests point. TestLayout compares names and offsets; the sizes are compared here.
var (
	_ [unsafe.Sizeof(hca.SendWR{})]byte = [unsafe.Sizeof(SendWR{})]byte{}
	_ [unsafe.Sizeof(hca.RecvWR{})]byte = [unsafe.Sizeof(RecvWR{})]byte{}
	_ [unsafe.Sizeof(hca.WC{})]byte     = [unsafe.Sizeof(WC{})]byte{}
	_ [unsafe.Sizeof(hca.QPAttr{})]byte = [unsafe.Sizeof(QPAttr{})]byte{}
)

func sendRequest(wr *SendWR) *hca.SendWR { return (*hca.SendWR)(unsafe.Pointer(wr)) }

func recvRequest(wr *RecvWR) *hca.RecvWR { return (*hca.RecvWR)(unsafe.Pointer(wr)) }

func completions(out []WC) []hca.WC {
	return unsafe.Slice((*hca.WC)(unsafe.Pointer(unsafe.SliceData(out))), len(out))
}
