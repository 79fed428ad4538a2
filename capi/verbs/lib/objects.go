package main

// #include "../clib/exports.h"
import "C"

import (
	"slices"
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
	inContext struct{ ctx *contextObj }
	// object is something of the engine that C only names.
	object[E any] struct {
		inContext
		it *E
	}
	// tracked is what events can be of.
	tracked struct {
		inContext
		handle, serial uint32
	}
	cqObj struct {
		tracked
		cq     *hca.CQ
		events *pipe // completion events, nil without a channel

		// One caller polls at a time, so that completions stay in order.
		polling atomic.Bool
		ready   *readyList        // where C finds completions; nil if it asks for each
		polled  [pollBatch]hca.WC // on their way to C
	}
	srqObj struct {
		tracked
		srq  *hca.SRQ
		recv hca.RecvWR // what is being posted, under the device's lock
	}
	qpObj struct {
		tracked
		qp *hca.QP

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
	pds      slots[object[hca.PD]]
	mrs      slots[object[hca.MR]]
	mws      slots[object[hca.MW]]
	xrcds    slots[object[hca.XRCD]]
	ahs      slots[object[hca.AH]]
	cqs      slots[cqObj]
	srqs     slots[srqObj]
	qps      slots[qpObj]

	serial atomic.Uint32

	// Objects by what the engine calls them, for its events. A queue pair may have been opened more than once.
	mu      sync.Mutex
	tracked map[any][]*tracked
}

func init() { table.tracked = map[any][]*tracked{} }

// create makes an object under the device's lock and gives it a handle. Where there are no more it is ended again.
func create[E any](c *contextObj, s *slots[object[E]], begin func(*hca.HCA) (*E, error),
	end func(*hca.HCA, *E) error) (it *E, handle C.uint32_t, errno int32) {
	h := c.dev.Enter()
	defer c.dev.LeaveQuiet()
	it, err := begin(h)
	if err != nil {
		return nil, 0, errnoOf(err)
	}
	n := s.put(&object[E]{inContext{c}, it})
	if n == 0 {
		end(h, it)
		return nil, 0, enomem
	}
	return it, C.uint32_t(n), 0
}

// destroy ends an object and takes its handle back, unless the engine refuses.
func destroy[E any](s *slots[object[E]], handle uint32, end func(*hca.HCA, *E) error) int32 {
	o := s.get(handle)
	if o == nil {
		return einval
	}
	err := end(o.ctx.dev.Enter(), o.it)
	o.ctx.dev.LeaveQuiet()
	if err == nil {
		s.drop(handle)
	}
	return errnoOf(err)
}

// track gives o, whose part t is, a handle and a serial number for C, and has events of the engine's object find it.
// It reports whether there was a handle left.
func track[T any](s *slots[T], o *T, t *tracked, it any, made *C.struct_softib_made) bool {
	t.serial = table.serial.Add(1)
	if t.handle = s.put(o); t.handle == 0 {
		return false
	}
	table.mu.Lock()
	table.tracked[it] = append(table.tracked[it], t)
	table.mu.Unlock()
	made.handle, made.serial = C.uint32_t(t.handle), C.uint32_t(t.serial)
	return true
}

// untrack ends that.
func untrack[T any](s *slots[T], t *tracked, it any) {
	table.mu.Lock()
	table.tracked[it] = slices.DeleteFunc(table.tracked[it], func(x *tracked) bool { return x == t })
	if len(table.tracked[it]) == 0 {
		delete(table.tracked, it)
	}
	table.mu.Unlock()
	s.drop(t.handle)
}

func (o *inContext) owner() *contextObj { return o.ctx }

// destroyOf ends a context's objects of one kind.
func destroyOf[T any, P interface {
	*T
	owner() *contextObj
}](c *contextObj, s *slots[T], destroy func(handle uint32) int32) {
	s.all(func(h uint32, o *T) {
		if P(o).owner() == c {
			destroy(h)
		}
	})
}
