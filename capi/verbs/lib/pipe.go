package main

import (
	"sync"
	"syscall"
	"unsafe"
)

// event is a struct softib_event, a record in a pipe.
type event struct{ typ, kind, handle, serial uint32 }

const eventSize = int(unsafe.Sizeof(event{}))

// pipe is the writing end of a descriptor that programs poll. Records that do not fit wait here until the
// program has read some: it asks again then (flush_events).
type pipe struct {
	fd int

	mu      sync.Mutex
	waiting []event
}

// put writes a record and never blocks.
func (p *pipe) put(e event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.waiting) > 0 || !p.write(&e) {
		p.waiting = append(p.waiting, e)
	}
}

// flush writes what waits, as far as there is room.
func (p *pipe) flush() {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for n < len(p.waiting) && p.write(&p.waiting[n]) {
		n++
	}
	p.waiting = append(p.waiting[:0], p.waiting[n:]...)
}

// write reports whether the record needs no further attention: a pipe without reader, or a closed one, takes none any more.
func (p *pipe) write(e *event) bool {
	for {
		_, err := syscall.Write(p.fd, unsafe.Slice((*byte)(unsafe.Pointer(e)), eventSize))
		switch err {
		case syscall.EINTR:
		case syscall.EAGAIN:
			return false
		default:
			return true
		}
	}
}
