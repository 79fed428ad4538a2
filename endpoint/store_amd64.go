//go:build amd64 && !race

package endpoint

// storeRelease makes v visible at p after everything stored before it. On amd64
// any store does that; sync/atomic's would also wait until all of them have
// left the core, which costs as much as handing a packet over.
//
//go:noescape
func storeRelease(p *uint32, v uint32)

// own asks for the lines of a cell that will be written soon, so that they
// are this core's by then.
//
//go:noescape
func own(c *cell)

// pause lets about two microseconds pass.
func pause()
