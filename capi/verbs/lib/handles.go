package main

import (
	"errors"
	"sync"
	"sync/atomic"
	"syscall"

	"softib/node/hca"
)

// kinds are the engine's errors and what libibverbs documents for them.
var kinds = [...]struct {
	err   error
	errno syscall.Errno
}{
	{hca.ErrInvalid, syscall.EINVAL},
	{hca.ErrNoMemory, syscall.ENOMEM},
	{hca.ErrFull, syscall.ENOMEM},
	{hca.ErrBusy, syscall.EBUSY},
	{hca.ErrNotSupported, syscall.EOPNOTSUPP},
	{hca.ErrDestroyed, syscall.EINVAL},
	{hca.ErrState, syscall.EINVAL},
	{hca.ErrFault, syscall.EFAULT},
}

// errnoOf is what a C caller is told.
func errnoOf(err error) int32 {
	if err == nil {
		return 0
	}
	for i := range kinds {
		if errors.Is(err, kinds[i].err) {
			return int32(kinds[i].errno)
		}
	}
	var e syscall.Errno
	if errors.As(err, &e) && e != 0 {
		return int32(e)
	}
	return int32(syscall.EIO)
}

const (
	einval     = int32(syscall.EINVAL)
	enomem     = int32(syscall.ENOMEM)
	enoent     = int32(syscall.ENOENT)
	eacces     = int32(syscall.EACCES)
	enodev     = int32(syscall.ENODEV)
	eopnotsupp = int32(syscall.EOPNOTSUPP)
)

const (
	slotChunk  = 1 << 10
	slotChunks = 1 << 11
)

// slots gives objects small handles that C can hold. Looking one up takes no lock: every message does it.
type slots[T any] struct {
	chunks [slotChunks]atomic.Pointer[[slotChunk]atomic.Pointer[T]]

	mu   sync.Mutex
	free []uint32
	next uint32 // 0 is no object
}

// get is the object of a handle, nil if there is none.
func (s *slots[T]) get(h uint32) *T {
	if h >= slotChunk*slotChunks {
		return nil
	}
	c := s.chunks[h/slotChunk].Load()
	if c == nil {
		return nil
	}
	return c[h%slotChunk].Load()
}

// put gives v a handle, or 0 if all are taken.
func (s *slots[T]) put(v *T) uint32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	var h uint32
	if n := len(s.free); n > 0 {
		h = s.free[n-1]
		s.free = s.free[:n-1]
	} else {
		if s.next+1 >= slotChunk*slotChunks {
			return 0
		}
		s.next++
		h = s.next
	}
	c := s.chunks[h/slotChunk].Load()
	if c == nil {
		c = new([slotChunk]atomic.Pointer[T])
		s.chunks[h/slotChunk].Store(c)
	}
	c[h%slotChunk].Store(v)
	return h
}

// drop takes the handle back.
func (s *slots[T]) drop(h uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.chunks[h/slotChunk].Load(); c != nil && c[h%slotChunk].Swap(nil) != nil {
		s.free = append(s.free, h)
	}
}

// all calls f for every object.
func (s *slots[T]) all(f func(h uint32, v *T)) {
	for i := range s.chunks {
		c := s.chunks[i].Load()
		if c == nil {
			continue
		}
		for j := range c {
			if v := c[j].Load(); v != nil {
				f(uint32(i*slotChunk+j), v)
			}
		}
	}
}
