//go:build !amd64 || race

package cacheline

import (
	"sync/atomic"
	"unsafe"
)

// StoreRelease makes v visible at p after everything stored before it.
func StoreRelease(p *uint32, v uint32) { atomic.StoreUint32(p, v) }

// Own would ask for a line that will be written soon.
func Own(unsafe.Pointer) {}

// Pause would let about two microseconds pass.
func Pause() {}
