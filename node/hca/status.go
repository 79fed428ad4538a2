package hca

import "fmt"

// WCStatus is how a work request ended: libibverbs' ibv_wc_status, in its
// order and by its names.
type WCStatus uint8

// Completion statuses.
const (
	WCSuccess WCStatus = iota
	WCLocLenErr
	WCLocQPOpErr
	WCLocEECOpErr
	WCLocProtErr
	WCWRFlushErr
	WCMWBindErr
	WCBadRespErr
	WCLocAccessErr
	WCRemInvReqErr
	WCRemAccessErr
	WCRemOpErr
	WCRetryExcErr
	WCRNRRetryExcErr
	WCLocRDDViolErr
	WCRemInvRDReqErr
	WCRemAbortErr
	WCInvEECNErr
	WCInvEECStateErr
	WCFatalErr
	WCRespTimeoutErr
	WCGeneralErr
	WCTagErr        // there is no such entry any more
	WCTagIncomplete // a rendezvous whose data do not fit
	NumWCStatus
)

var wcStatusNames = [NumWCStatus]string{
	"SUCCESS", "LOC_LEN_ERR", "LOC_QP_OP_ERR", "LOC_EEC_OP_ERR", "LOC_PROT_ERR", "WR_FLUSH_ERR",
	"MW_BIND_ERR", "BAD_RESP_ERR", "LOC_ACCESS_ERR", "REM_INV_REQ_ERR", "REM_ACCESS_ERR",
	"REM_OP_ERR", "RETRY_EXC_ERR", "RNR_RETRY_EXC_ERR", "LOC_RDD_VIOL_ERR", "REM_INV_RD_REQ_ERR",
	"REM_ABORT_ERR", "INV_EECN_ERR", "INV_EEC_STATE_ERR", "FATAL_ERR", "RESP_TIMEOUT_ERR", "GENERAL_ERR",
	"TM_ERR", "TM_RNDV_INCOMPLETE",
}

func (s WCStatus) String() string {
	if s < NumWCStatus {
		return wcStatusNames[s]
	}
	return fmt.Sprintf("WCStatus(%d)", uint8(s))
}

// WCOpcode is what a completed work request did: ibv_wc_opcode.
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
	WCFlush           WCOpcode = 8
	WCAtomicWrite     WCOpcode = 9
	WCRecv            WCOpcode = 1 << 7
	WCRecvRDMAWithImm WCOpcode = WCRecv + 1
	WCTagAdd          WCOpcode = WCRecv + 2
	WCTagDel          WCOpcode = WCRecv + 3
	WCTagSync         WCOpcode = WCRecv + 4
	WCTagRecv         WCOpcode = WCRecv + 5
	WCTagNone         WCOpcode = WCRecv + 6
)

func (o WCOpcode) String() string {
	switch o {
	case WCSend:
		return "SEND"
	case WCRDMAWrite:
		return "RDMA_WRITE"
	case WCRDMARead:
		return "RDMA_READ"
	case WCCompSwap:
		return "COMP_SWAP"
	case WCFetchAdd:
		return "FETCH_ADD"
	case WCBindMW:
		return "BIND_MW"
	case WCLocalInv:
		return "LOCAL_INV"
	case WCFlush:
		return "FLUSH"
	case WCAtomicWrite:
		return "ATOMIC_WRITE"
	case WCRecv:
		return "RECV"
	case WCRecvRDMAWithImm:
		return "RECV_RDMA_WITH_IMM"
	case WCTagAdd:
		return "TM_ADD"
	case WCTagDel:
		return "TM_DEL"
	case WCTagSync:
		return "TM_SYNC"
	case WCTagRecv:
		return "TM_RECV"
	case WCTagNone:
		return "TM_NO_TAG"
	}
	return fmt.Sprintf("WCOpcode(%d)", uint8(o))
}

// WCFlags say which optional fields of a completion are set.
type WCFlags uint8

// Completion flags.
const (
	WCGRH     WCFlags = 1 << iota // a GRH fills the first 40 bytes of the buffer
	WCWithImm                     // ImmData is the sender's immediate
	WCWithInv                     // ImmData is the R_Key that was invalidated
	_
	WCTagSyncReq   // the program has to say how many messages it knows of
	WCTagMatch     // the message's tag had an entry
	WCTagDataValid // and its data are there
)

// WROpcode is the operation of a send work request: ibv_wr_opcode.
type WROpcode uint8

// Send operations.
const (
	WRRDMAWrite WROpcode = iota
	WRRDMAWriteImm
	WRSend
	WRSendImm
	WRRDMARead
	WRAtomicCmpSwap
	WRAtomicFetchAdd
	WRLocalInv
	WRBindMW
	WRSendInv
	wrTagRead     WROpcode = 10 // of rendezvous, posted by nobody; libibverbs has others there
	wrTagFinish   WROpcode = 11
	WRFlush       WROpcode = 14
	WRAtomicWrite WROpcode = 15
	NumWROpcode   WROpcode = 16
)

// wrTable says, per operation: its name, what its completion is called, which
// services carry it (IBA table 30) and what it does.
var wrTable = [NumWROpcode]struct {
	name     string
	wc       WCOpcode
	services qpTypeSet
	kind     wrKind
	flags    WCFlags // of its completion
}{
	WRRDMAWrite:      {"RDMA_WRITE", WCRDMAWrite, onRC | onUC | onXRC, kindWrite, 0},
	WRRDMAWriteImm:   {"RDMA_WRITE_WITH_IMM", WCRDMAWrite, onRC | onUC | onXRC, kindWrite, 0},
	WRSend:           {"SEND", WCSend, onRC | onUC | onUD | onXRC, kindSend, 0},
	WRSendImm:        {"SEND_WITH_IMM", WCSend, onRC | onUC | onUD | onXRC, kindSend, 0},
	WRRDMARead:       {"RDMA_READ", WCRDMARead, onRC | onXRC, kindRead, 0},
	WRAtomicCmpSwap:  {"ATOMIC_CMP_AND_SWP", WCCompSwap, onRC | onXRC, kindAtomic, 0},
	WRAtomicFetchAdd: {"ATOMIC_FETCH_AND_ADD", WCFetchAdd, onRC | onXRC, kindAtomic, 0},
	WRLocalInv:       {"LOCAL_INV", WCLocalInv, onRC | onUC | onXRC, kindLocal, 0},
	WRBindMW:         {"BIND_MW", WCBindMW, onRC | onUC | onXRC, kindLocal, 0},
	WRSendInv:        {"SEND_WITH_INV", WCSend, onRC | onXRC, kindSend, 0},
	wrTagRead:        {"TAG_READ", WCTagRecv, onTag, kindRead, WCTagDataValid},
	wrTagFinish:      {"TAG_FINISH", WCSend, onTag, kindSend, 0},
	WRFlush:          {"FLUSH", WCFlush, onRC | onXRC, kindFlush, 0},
	WRAtomicWrite:    {"ATOMIC_WRITE", WCAtomicWrite, onRC | onXRC, kindAtomicWrite, 0},
}

type wrKind uint8

const (
	kindSend wrKind = iota
	kindWrite
	kindRead
	kindAtomic
	kindFlush
	kindAtomicWrite
	kindLocal
)

// isAnswered reports whether the responder answers such a request with a response of its own, and not by an
// acknowledgement that may be for others too.
func (k wrKind) isAnswered() bool { return k >= kindRead && k <= kindAtomicWrite }

// fetches reports whether the answer has something for the requester's memory.
func (k wrKind) fetches() bool { return k == kindRead || k == kindAtomic }

type qpTypeSet uint8

const (
	onRC qpTypeSet = 1 << iota
	onUC
	onUD
	onXRC
	onTag // the send queue of a queue pair whose shared queue matches tags
)

func (o WROpcode) String() string {
	if o < NumWROpcode && wrTable[o].name != "" {
		return wrTable[o].name
	}
	return fmt.Sprintf("WROpcode(%d)", uint8(o))
}

// SendFlags of a send work request: ibv_send_flags.
type SendFlags uint8

// Send flags.
const (
	SendFence SendFlags = 1 << iota
	SendSignaled
	SendSolicited
	SendInline

	sendFlagsAll = SendInline<<1 - 1
)

// Access says who may do what with a memory region: ibv_access_flags.
type Access uint16

// Access flags.
const (
	AccessLocalWrite Access = 1 << iota
	AccessRemoteWrite
	AccessRemoteRead
	AccessRemoteAtomic
	AccessMWBind
	AccessZeroBased
	_ // on demand, of huge pages: what regions are made of
	_
	AccessFlushGlobal     // a peer may have what it wrote seen by everybody
	AccessFlushPersistent // and kept when the power fails: of queue pairs; no region has such memory

	accessAll = AccessZeroBased<<1 - 1 | AccessFlushGlobal
	// accessNeedsLocal are the rights that imply writing locally (IBA C10-107).
	accessNeedsLocal = AccessRemoteWrite | AccessRemoteAtomic
)
