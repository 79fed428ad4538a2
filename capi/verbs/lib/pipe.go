package main

import (
	"sync"
	"sync/atomic"
	"syscall"
	"unsafe"
)

// event is a struct softib_event, a record in a pipe.
type event struct{ typ, kind, handle, serial uint32 }

const eventSize = int(unsafe.Sizeof(event{}))

// pipe is the writing end of a descriptor that programs poll. Records that do not fit wait here until the
// program has read some: it asks again then (flush_events).
type pipe struct {
	fd   int
	told *uint32 // where C counts what was written, or nil

	mu      sync.Mutex
	ended   bool
	waiting []event
}

// pipes are those that records wait for, by descriptor. full counts them, so that programs which read need not look.
var pipes = struct {
	mu   sync.Mutex
	by   map[int]*pipe
	full atomic.Int32
}{by: map[int]*pipe{}}

// put writes a record and never blocks.
func (p *pipe) put(e event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended || len(p.waiting) == 0 && p.write(&e) {
		return
	}
	if len(p.waiting) == 0 {
		pipes.mu.Lock()
		pipes.by[p.fd] = p
		pipes.full.Add(1)
		pipes.mu.Unlock()
	}
	p.waiting = append(p.waiting, e)
}

// flushPipe writes what waits for a descriptor, as far as there is room.
func flushPipe(fd int) {
	if pipes.full.Load() == 0 {
		return
	}
	pipes.mu.Lock()
	p := pipes.by[fd]
	pipes.mu.Unlock()
	if p != nil {
		p.flush()
	}
}

func (p *pipe) flush() {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for n < len(p.waiting) && p.write(&p.waiting[n]) {
		n++
	}
	p.forget(n)
}

// forget drops the first n records that wait.
func (p *pipe) forget(n int) {
	if len(p.waiting) == 0 {
		return
	}
	p.waiting = append(p.waiting[:0], p.waiting[n:]...)
	if len(p.waiting) == 0 {
		pipes.mu.Lock()
		delete(pipes.by, p.fd)
		pipes.full.Add(-1)
		pipes.mu.Unlock()
	}
}

// end is called before the descriptor is closed.
func (p *pipe) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = true
	p.forget(len(p.waiting))
}

// write reports whether the record needs no further attention.
func (p *pipe) write(e *event) bool {
	for {
		_, _, errno := syscall.RawSyscall(syscall.SYS_WRITE, uintptr(p.fd), uintptr(unsafe.Pointer(e)),
			uintptr(eventSize))
		switch errno {
		case syscall.EINTR:
		case syscall.EAGAIN:
			return false
		default:
			if errno == 0 && p.told != nil {
				atomic.AddUint32(p.told, 1)
			}
			return true
		}
	}
}
