// Package cacheline is what the drivers in real time need below sync/atomic: stores that publish and no more, requests
// for cache lines ahead of their use, and a lock for well under a microsecond. Where the processor is not amd64, or the
// race detector looks, ordinary atomics stand in.
package cacheline
