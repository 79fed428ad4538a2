package cacheline

import (
	"runtime"
	"sync/atomic"
	"syscall"
	"time"
)

// SpinLock guards an engine for well under a microsecond at a time. Giving it
// back is one plain store, where a sync.Mutex needs a locked instruction; a waiter
// spins, then lets others run, then sleeps.
type SpinLock struct{ v uint32 }

// Lock waits for the lock.
func (l *SpinLock) Lock() {
	if atomic.CompareAndSwapUint32(&l.v, 0, 1) {
		return
	}
	for i := 0; ; i++ {
		switch {
		case atomic.LoadUint32(&l.v) == 0:
			if atomic.CompareAndSwapUint32(&l.v, 0, 1) {
				return
			}
		case i > 2000:
			time.Sleep(20 * time.Microsecond)
		case i > 100:
			runtime.Gosched()
		}
	}
}

// Unlock gives it back.
func (l *SpinLock) Unlock() { StoreRelease(&l.v, 0) }

// TryLock takes the lock if nobody has it.
func (l *SpinLock) TryLock() bool { return atomic.CompareAndSwapUint32(&l.v, 0, 1) }

// YieldCore lets the kernel run another thread on this core, if one waits.
func YieldCore() { syscall.RawSyscall(syscall.SYS_SCHED_YIELD, 0, 0, 0) }

// StoreFence makes v visible at p before anything that follows is looked at.
func StoreFence(p *uint32, v uint32) { atomic.SwapUint32(p, v) }
