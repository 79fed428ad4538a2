package endpoint

import (
	"runtime"
	"sync/atomic"
	"syscall"
	"time"
)

// spinLock guards an engine for well under a microsecond at a time. Giving it
// back is one plain store, where a sync.Mutex needs a locked instruction; a waiter
// spins, then lets others run, then sleeps.
type spinLock struct{ v uint32 }

func (l *spinLock) Lock() {
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

func (l *spinLock) Unlock() { storeRelease(&l.v, 0) }

// TryLock takes the lock if nobody has it.
func (l *spinLock) TryLock() bool { return atomic.CompareAndSwapUint32(&l.v, 0, 1) }

// yieldCore lets the kernel run another thread on this core, if one waits.
func yieldCore() { syscall.RawSyscall(syscall.SYS_SCHED_YIELD, 0, 0, 0) }

// storeFence makes v visible at p before anything that follows is looked at.
func storeFence(p *uint32, v uint32) { atomic.SwapUint32(p, v) }
