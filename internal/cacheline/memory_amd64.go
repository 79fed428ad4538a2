//go:build amd64 && !race

package cacheline

import "unsafe"

// StoreRelease makes v visible at p after everything stored before it. On amd64
// any store does that; sync/atomic's would also wait until all of them have
// left the core, which costs as much as handing a packet over.
//
//go:noescape
func StoreRelease(p *uint32, v uint32)

// Own asks for the line at p, which will be written soon, so that it is this core's by then.
//
//go:noescape
func Own(p unsafe.Pointer)

// Pause lets about two microseconds pass.
func Pause()
