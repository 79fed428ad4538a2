package endpoint

import (
	"fmt"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"softib/node/hca"
)

// hintRings is how many rings C code looks at by itself.
const hintRings = 64

// hint is what C code may look at without calling Go: whether a look at a completion queue can be worth it. It lies
// outside Go's heap, and it is advice: to miss something now is to see it at the next look.
type hint struct {
	stirs  uint32 // changes whenever something needs a look
	nrings uint32 // or hintMany
	dead   uint32
	reaped uint32 // C: polls that were answered with completions without a call
	ring   [hintRings]struct {
		seq  unsafe.Pointer // into a ring's memory
		want uint32
		_    uint32
	}
	// staged and sends are not 0 while C has receives and send requests that nobody has posted yet; see Stage.
	staged uint64
	sends  uint64
	parked uint32 // queue pairs wait for room at a peer
	polls  cPolls
	// sleepers is how many threads sleep in C, which are woken by the bell; naps those of them that poll.
	sleepers uint32
	naps     uint32
	// switched is not 0 if the packet that was sent last goes through the fabric, which needs a core then.
	switched uint32
	bell     unsafe.Pointer
}

const hintMany = 0xFFFFFFFF

// newHint makes a hint, outside of Go's heap where C looks at it.
func newHint(outside bool) (*hint, error) {
	if !outside {
		return new(hint), nil
	}
	mem, err := unix.Mmap(-1, 0, int(unsafe.Sizeof(hint{})), unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, fmt.Errorf("endpoint: memory that C looks at: %w", err)
	}
	return (*hint)(unsafe.Pointer(unsafe.SliceData(mem))), nil
}

// Hint is the endpoint's hint.
func (e *Endpoint) Hint() unsafe.Pointer { return unsafe.Pointer(e.hint) }

// Stage lets C code post without a call into Go: it leaves receives and send requests somewhere and sets the hint's
// words for them. Recvs is called to post the former before the engine is used, and before it is given a packet; sends
// is to post the latter before the engine is used and whenever it was. Both are called with the endpoint locked.
func (e *Endpoint) Stage(recvs, sends func(h *hca.HCA, list *uint64)) {
	e.mu.Lock()
	e.postStaged, e.postSends = recvs, sends
	e.mu.Unlock()
}

// takeStaged posts the receives that were staged, and reports whether there were some.
func (e *Endpoint) takeStaged() bool {
	if atomic.LoadUint64(&e.hint.staged) == 0 || e.postStaged == nil {
		return false
	}
	e.postStaged(e.eng, &e.hint.staged)
	return true
}

// Staged is told that there are send requests to post, as the hint tells it where C code has staged them.
func (e *Endpoint) Staged() { atomic.StoreUint64(&e.hint.sends, 1) }

// takeSends posts the send requests that were staged, sends them, and reports whether there were some. C stages where
// the queue has others under way, so whoever does something that may end those calls this afterwards: the program
// relies on it, and may not call again.
func (e *Endpoint) takeSends() bool {
	if atomic.LoadUint64(&e.hint.sends) == 0 || e.postSends == nil {
		return false
	}
	e.postSends(e.eng, &e.hint.sends)
	e.owed = false
	e.send()
	return true
}

// hintRing tells where the next packet of a ring will be.
func (e *Endpoint) hintRing(r *In) {
	if r.hint < 0 {
		return
	}
	h := &e.hint.ring[r.hint]
	h.want = r.next + 1
	h.seq = unsafe.Pointer(&r.cell(r.next).seq)
}

// hintAll numbers the rings anew.
func (e *Endpoint) hintAll() {
	atomic.StoreUint32(&e.hint.nrings, 0)
	for i, r := range e.in {
		if r.hint = i; i >= hintRings || e.page.isLocal() {
			r.hint = -1
			continue
		}
		e.hintRing(r)
	}
	n := uint32(len(e.in))
	if n > hintRings || e.wire != nil || e.net != nil { // what a network has, only a call can tell
		n = hintMany
	}
	atomic.StoreUint32(&e.hint.nrings, n)
	e.stir()
}

// stir makes whoever looks at the hint look at the endpoint.
func (e *Endpoint) stir() { atomic.AddUint32(&e.hint.stirs, 1) }

// UseReadyList lets C code find completions of a queue without a call into Go: move is called with the endpoint locked
// when there are some, and may Poll them from the queue as far as there is room where C looks. Outside counts those
// that are there. Advance takes the place of Poll. Nil ends it.
func (e *Endpoint) UseReadyList(cq *hca.CQ, move func(), outside func() int) {
	e.mu.Lock()
	waiterOf(cq).move = move
	cq.Watch(outside)
	e.mu.Unlock()
}

// hand moves the completions of queues that have a ready list.
func (e *Endpoint) hand() {
	for cq := e.eng.NextNews(); cq != nil; cq = e.eng.NextNews() {
		if move := waiterOf(cq).move; move != nil {
			move()
			if atomic.LoadUint32(&e.hint.naps) != 0 {
				e.rousePrograms()
			}
		}
	}
}

// looked counts how often the program has looked for completions: here, and where C looks.
func (e *Endpoint) looked() uint32 { return e.polls + atomic.LoadUint32(&e.hint.reaped) }
