package cacheline

import (
	"runtime"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
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

// Yield lets the kernel run another thread on this core, if one waits, and reports whether one did. Since Linux 6.18
// that costs a whole slice of a thread's share: one that yields to others in a loop owes seconds before long, for which
// it then waits. Sleeping forgives that debt, and is to follow after YieldsMax.
func Yield() bool {
	began := time.Now()
	syscall.RawSyscall(syscall.SYS_SCHED_YIELD, 0, 0, 0)
	return time.Since(began) > yieldAlone
}

const (
	// YieldsMax is how many yields in a row may be to others.
	YieldsMax = 8
	// yieldAlone is how long a yield takes where nobody else waits for the core.
	yieldAlone = 700 * time.Nanosecond
)

// yielded counts the yields of this process to others since it last slept.
var yielded atomic.Uint32

// YieldCore is Yield for who has no better place to sleep than here, for a moment.
func YieldCore() {
	if yielded.Load() >= YieldsMax {
		yielded.Store(0)
		ts := syscall.Timespec{Nsec: 1000}
		syscall.RawSyscall(syscall.SYS_NANOSLEEP, uintptr(unsafe.Pointer(&ts)), 0, 0)
	} else if Yield() {
		yielded.Add(1)
	}
}

// StoreFence makes v visible at p before anything that follows is looked at.
func StoreFence(p *uint32, v uint32) { atomic.SwapUint32(p, v) }
