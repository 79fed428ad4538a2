package main

import (
	"sync"
	"sync/atomic"
	"unsafe"

	"softib/node/hca"
	"softib/proto/ib"
	"softib/verbs"
	"softib/verbs/attach/proto"
)

// device is what an opened device must be able to do.
type device interface {
	verbs.Device
	// NotifyCQ has f called when cq, which was armed, raises its event. f must not block or call back.
	NotifyCQ(cq *hca.CQ, f func())
	// NotifyEvents has f called for each asynchronous event, likewise.
	NotifyEvents(f func(hca.Event))
	// Stage has f called to post what C has staged.
	Stage(f func(h *hca.HCA, staged *uint64))
	// Arm is for a program that is about to sleep until cq's next event.
	Arm(cq *hca.CQ, solicitedOnly bool)
	// EnterToSend is Enter for what is posted to send queues of connected queue pairs.
	EnterToSend() *hca.HCA
	// Tap has move called when there are completions of cq to move to where C finds them; outside counts those. Advance
	// then takes the place of Poll, and reports whether peers have changed the program's memory.
	Tap(cq *hca.CQ, move func(), outside func() int)
	Advance(cq *hca.CQ, empty int) bool
	// Adapter and PortInfo are what management says.
	Adapter() proto.Adapter
	NumPorts() int
	PortInfo(n ib.PortNum) (proto.Port, bool)
	// Now is the device's clock.
	Now() ib.Time
	// Hint is a struct softib_hint, outside Go's memory.
	Hint() unsafe.Pointer
	Close() error
}

// The objects that C holds by handle. Their fields are set when they are made, but for what says otherwise.
type (
	contextObj struct {
		handle uint32
		dev    device
		events *pipe
	}
	pdObj struct {
		ctx *contextObj
		pd  *hca.PD
	}
	mrObj struct {
		ctx *contextObj
		mr  *hca.MR
	}
	mwObj struct {
		ctx *contextObj
		mw  *hca.MW
	}
	xrcdObj struct {
		ctx  *contextObj
		xrcd *hca.XRCD
	}
	ahObj struct {
		ctx *contextObj
		ah  *hca.AH
	}
	cqObj struct {
		ctx            *contextObj
		cq             *hca.CQ
		handle, serial uint32
		events         *pipe // completion events, nil without a channel

		// One caller polls at a time, so that completions stay in order.
		polling atomic.Bool
		ready   *readyList        // where C finds completions; nil if it asks for each
		polled  [pollBatch]hca.WC // on their way to C
	}
	srqObj struct {
		ctx            *contextObj
		srq            *hca.SRQ
		handle, serial uint32
		recv           hca.RecvWR // what is being posted, under the device's lock
	}
	qpObj struct {
		ctx            *contextObj
		qp             *hca.QP
		handle, serial uint32

		// What is being posted, under the device's lock.
		send   hca.SendWR
		bind   hca.BindInfo
		recv   hca.RecvWR
		inline []byte

		groups []membership // multicast, under the device's lock
	}
	membership struct {
		gid ib.GID
		lid ib.LID
	}
)

// pollBatch is how many completions are moved at a time.
const pollBatch = 16

// table is everything that C holds. A process has one device, however often it opens it.
var table struct {
	contexts slots[contextObj]
	pds      slots[pdObj]
	mrs      slots[mrObj]
	mws      slots[mwObj]
	xrcds    slots[xrcdObj]
	ahs      slots[ahObj]
	cqs      slots[cqObj]
	srqs     slots[srqObj]
	qps      slots[qpObj]

	serial atomic.Uint32

	// Objects by what the engine calls them, for its events. A queue pair may have been opened more than once.
	mu    sync.Mutex
	byQP  map[*hca.QP][]*qpObj
	byCQ  map[*hca.CQ]*cqObj
	bySRQ map[*hca.SRQ]*srqObj
}

func init() {
	table.byQP = map[*hca.QP][]*qpObj{}
	table.byCQ = map[*hca.CQ]*cqObj{}
	table.bySRQ = map[*hca.SRQ]*srqObj{}
}
