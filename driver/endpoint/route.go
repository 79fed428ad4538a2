package endpoint

import (
	"fmt"
	"sync/atomic"
	"unsafe"

	"softib/node/agent"
	"softib/proto/ib"
)

// BlockBits is how many queue pair numbers a process has on an adapter: 1<<BlockBits. The block of number n is
// n>>BlockBits; block 0 belongs to the fabric.
const BlockBits = 14

// NumBlocks is how many blocks an adapter has.
const NumBlocks = 1 << (24 - BlockBits)

// Key is what the way of a packet depends on.
type Key struct {
	Port ib.PortNum
	DLID ib.LID
	SL   ib.SL
	PKey ib.PKey
	// Block is that of the destination's queue pair; 0 for a multicast.
	Block uint16
}

// Router finds ways through the fabric.
type Router interface {
	// Route is the way for a key. It may take a while. Its error ends the endpoint.
	Route(Key) (*Route, error)
	// Violated tells of a packet with a wrong key. It must not wait.
	Violated(agent.Notice)
}

// Route is the way to one process, or to the members of a group.
type Route struct {
	key   Key
	slot  *slot
	gen   uint32
	rings []*Out // none where packets vanish
	// For the ledger: the slot's number, whether it was used in this window, and its words when the window began.
	index  uint32
	active bool
	told   uint64
}

// NewRoute is a way into rings, valid as long as the slot's generation is gen.
func NewRoute(k Key, s *Slots, index int, gen uint32, rings []*Out) (*Route, error) {
	if index < 0 || index >= len(s.slots) {
		return nil, fmt.Errorf("endpoint: slot %d: want less than %d: %w", index, len(s.slots), ErrMemory)
	}
	sl := &s.slots[index]
	return &Route{key: k, slot: sl, gen: gen, rings: rings, index: uint32(index), told: sl.words}, nil
}

func (rt *Route) current() bool { return atomic.LoadUint32(&rt.slot.gen) == rt.gen }

// slot is what an endpoint and the fabric share about a way.
type slot struct {
	gen   uint32 // the fabric changes it when the way is no more
	_     uint32
	pkts  uint64 // sent, and how many words they had
	words uint64
	_     [40]byte
}

// count adds packets to the slot. The endpoint is its only writer, and nobody who reads it is in a hurry.
func (s *slot) count(pkts, words uint64) {
	s.pkts += pkts
	s.words += words
}

// NumSlots is how many ways a process has at a time, SlotsBytes the size of their memory.
const (
	NumSlots   = 8192
	SlotsBytes = NumSlots * int(unsafe.Sizeof(slot{}))
)

// Slots are the slots of one process.
type Slots struct{ slots []slot }

// NewSlots are the slots in mem.
func NewSlots(mem []byte) (*Slots, error) {
	if len(mem) < SlotsBytes {
		return nil, fmt.Errorf("endpoint: slots of %d bytes: want %d: %w", len(mem), SlotsBytes, ErrMemory)
	}
	return &Slots{unsafe.Slice((*slot)(unsafe.Pointer(unsafe.SliceData(mem))), NumSlots)}, nil
}

// Sent is how many packets and words went the way of a slot, ever.
func (s *Slots) Sent(i int) (pkts, words uint64) {
	return atomic.LoadUint64(&s.slots[i].pkts), atomic.LoadUint64(&s.slots[i].words)
}

// Gen is the generation of a slot.
func (s *Slots) Gen(i int) uint32 { return atomic.LoadUint32(&s.slots[i].gen) }

// Renew ends the generation of a slot and returns the new one.
func (s *Slots) Renew(i int) uint32 { return atomic.AddUint32(&s.slots[i].gen, 1) }
