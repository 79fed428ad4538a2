//go:build !amd64 || race

package endpoint

import "sync/atomic"

// storeRelease makes v visible at p after everything stored before it.
func storeRelease(p *uint32, v uint32) { atomic.StoreUint32(p, v) }

// own would ask for the lines of a cell that will be written soon.
func own(*cell) {}

// pause would let about two microseconds pass.
func pause() {}
