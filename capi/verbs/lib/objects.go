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
	// Enter gives exclusive use of the engine until Leave, or LeaveQuiet where nothing was put under way; TakeIn takes
	// in what has come first.
	Enter() *hca.HCA
	Leave()
	LeaveQuiet()
	TakeIn(last bool)
	Poll(cq *hca.CQ, out []hca.WC) int
	// NotifyCQ has f called when cq, which was armed, raises its event. f must not block or call back.
	NotifyCQ(cq *hca.CQ, f func())
	// NotifyEvents has f called for each asynchronous event, likewise.
	NotifyEvents(f func(hca.Event))
	// Stage has recvs and sends called to post what C has staged.
	Stage(recvs, sends func(h *hca.HCA, list *uint64))
	// Arm is for a program that is about to sleep until cq's next event.
	Arm(cq *hca.CQ, solicitedOnly bool)
	// Await is what a thread does before it sleeps in C until there is an event, and says at which bell; Told says that
	// there is one.
	Await() (bell uint32)
	// Nap is Await for a thread that polls.
	Nap() (bell uint32)
	Told()
	// EnterToSend is Enter for what is posted to send queues of connected queue pairs.
	EnterToSend() *hca.HCA
	// UseReadyList has move called when there are completions of cq to move to where C finds them; outside counts
	// those. Advance then takes the place of Poll, and reports whether peers have changed the program's memory.
	UseReadyList(cq *hca.CQ, move func(), outside func() int)
	Advance(cq *hca.CQ, empty int) bool
	// Adapter and PortInfo are what management says.
	Adapter() proto.Adapter
	NumPorts() int
	PortInfo(n ib.PortNum) (proto.Port, bool)
	// Now is the device's clock.
	Now() ib.Time
	// Hint is a struct softib_hint, outside Go's memory.
	Hint() unsafe.Pointer
}

// The objects that C holds by handle. Their fields are set when they are made, but for what says otherwise.
type (
	contextObj struct {
		handle uint32
		dev    device
		shared *shared // what dev is
		events *pipe
	}
	// tracked is what an event needs to know of its object.
	tracked struct {
		ctx            *contextObj
		handle, serial uint32
	}
	// object is something of the engine.
	object[E any] struct {
		tracked
		it *E
	}
	cqObj struct {
		object[hca.CQ]
		events *pipe // completion events, nil without a channel

		// One caller polls at a time, so that completions stay in order.
		polling atomic.Bool
		ready   *readyList        // where C finds completions; nil if it asks for each
		polled  [pollBatch]hca.WC // on their way to C
	}
	srqObj struct {
		object[hca.SRQ]
		recv hca.RecvWR // what is being posted, under the device's lock
	}
	qpObj struct {
		object[hca.QP]

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
	pds      objects[object[hca.PD], hca.PD]
	mrs      objects[object[hca.MR], hca.MR]
	mws      objects[object[hca.MW], hca.MW]
	xrcds    objects[object[hca.XRCD], hca.XRCD]
	ahs      objects[object[hca.AH], hca.AH]
	cqs      objects[cqObj, hca.CQ]
	srqs     objects[srqObj, hca.SRQ]
	qps      objects[qpObj, hca.QP]

	serial atomic.Uint32

	// Objects by what the engine calls them, for its events. A queue pair may have been opened more than once.
	mu      sync.Mutex
	tracked map[any][]*tracked
}

func init() { table.tracked = map[any][]*tracked{} }

// objects are those of one kind: T for C, E for the engine.
type objects[T, E any] struct{ slots[T] }

// held is any of them.
type held[T, E any] interface {
	*T
	base() *object[E]
}

func (o *object[E]) base() *object[E] { return o }

// of is the engine's object that C calls by a handle; nil if there is none.
func of[T, E any, P held[T, E]](s *objects[T, E], handle C.uint32_t) *E {
	if o := s.get(uint32(handle)); o != nil {
		return P(o).base().it
	}
	return nil
}

// among is of for an object that goes into another one of a context: both are of one device, or it is not found. It is
// ok if there is none to be found.
func among[T, E any, P held[T, E]](c *contextObj, s *objects[T, E], handle C.uint32_t) (it *E, ok bool) {
	if handle == 0 {
		return nil, true
	}
	if o := s.get(uint32(handle)); o != nil && P(o).base().ctx.shared == c.shared {
		return P(o).base().it, true
	}
	return nil, false
}

// create makes an object under the device's lock and gives it a handle. Where there are no more it is ended again. With
// made, which C gets, there may be events of it.
func create[T, E any, P held[T, E]](c *contextObj, s *objects[T, E], o P, made *C.struct_softib_made,
	begin func(*hca.HCA) (*E, error), end func(*hca.HCA, *E) error) (errno int32) {
	h := c.dev.Enter()
	defer c.dev.LeaveQuiet()
	it, err := begin(h)
	if err != nil {
		return errnoOf(err)
	}
	b := o.base()
	b.ctx, b.it = c, it
	if b.handle = s.put((*T)(o)); b.handle == 0 {
		end(h, it)
		return enomem
	}
	if made != nil {
		b.serial = table.serial.Add(1)
		table.mu.Lock()
		table.tracked[it] = append(table.tracked[it], &b.tracked)
		table.mu.Unlock()
		made.handle, made.serial = C.uint32_t(b.handle), C.uint32_t(b.serial)
	}
	return 0
}

// use has f do something to an object under the device's lock.
func use[T, E any, P held[T, E]](s *objects[T, E], handle uint32, f func(h *hca.HCA, o P) error) int32 {
	o := P(s.get(handle))
	if o == nil {
		return einval
	}
	dev := o.base().ctx.dev
	err := f(dev.Enter(), o)
	dev.Leave()
	return errnoOf(err)
}

// destroy ends an object and takes its handle back, unless the engine refuses.
func destroy[T, E any, P held[T, E]](s *objects[T, E], handle uint32, end func(*hca.HCA, *E) error) int32 {
	var b *object[E]
	if errno := use(s, handle, func(h *hca.HCA, o P) error {
		b = o.base()
		return end(h, b.it)
	}); errno != 0 {
		return errno
	}
	if b.serial != 0 {
		table.mu.Lock()
		table.tracked[b.it] = slices.DeleteFunc(table.tracked[b.it], func(t *tracked) bool { return t == &b.tracked })
		if len(table.tracked[b.it]) == 0 {
			delete(table.tracked, b.it)
		}
		table.mu.Unlock()
	}
	s.drop(handle)
	return 0
}

// destroyOf ends a context's objects of one kind.
func destroyOf[T, E any, P held[T, E]](c *contextObj, s *objects[T, E], destroy func(handle uint32) int32) {
	s.all(func(h uint32, o *T) {
		if P(o).base().ctx == c {
			destroy(h)
		}
	})
}
