package endpoint

import (
	"errors"
	"fmt"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// PageBytes is the size of a Page's memory.
const PageBytes = 4096

// Page is what the endpoints that send to one endpoint, or take from it, share with it: the
// word by which it is woken, and by what its memory is known.
type Page struct {
	h     *pageHead
	local *localBell // nil: who sleeps there is woken by the word alone
	// onWake is called in place of the kernel, where a machine in virtual time wants to know.
	onWake func(program, attendant bool) bool
	onRest func()
}

type pageHead struct {
	// bell is odd while nobody looks at the endpoint's rings, and goes up by one with each change. So who is about to
	// sleep at it sees that it was woken, although somebody has said since that nobody looks.
	bell  uint32
	_     [60]byte
	owner identity // where the endpoint's process is
}

// asleep is the bit of a bell that says that nobody looks.
const asleep = 1

// MaySleep reports whether a bell, as Await returned it, is one at which a thread may sleep.
func MaySleep(bell uint32) bool { return bell&asleep != 0 }

// NewPage is a page in memory of PageBytes.
func NewPage(mem []byte) (*Page, error) {
	if len(mem) < PageBytes {
		return nil, fmt.Errorf("endpoint: a page of %d bytes: want %d", len(mem), PageBytes)
	}
	return &Page{h: (*pageHead)(unsafe.Pointer(unsafe.SliceData(mem)))}, nil
}

// OnWake has f called whenever the page is woken, instead of the kernel, with whom it is for: a thread of the program
// that sleeps in C code, the attendant, or both. F says whether that was one.
func (p *Page) OnWake(f func(program, attendant bool) bool) {
	p.onWake = f
}

// wake rings if nobody looks. A thread of the program that sleeps there is woken rather than the attendant: what came
// is for it, and it does the same.
func (p *Page) wake() {
	if p.Attend() && !plantWake && !p.rouse(1, forProgram) {
		p.rouse(all, forAttendant)
	}
}

// Knock makes the attendant look, whoever else claims to.
func (p *Page) Knock() {
	p.Attend()
	p.rouse(all, forAttendant|forProgram)
}

// all is more than ever sleep at a bell.
const all = 1 << 30

// rouse ends the sleep of some of those who sleep, and reports whether there was one.
func (p *Page) rouse(most int, who uint32) bool {
	switch {
	case p.onWake != nil:
		return p.onWake(who&forProgram != 0, who&forAttendant != 0)
	case p.local == nil:
		return futexWake(&p.h.bell, most, who)
	case who&forAttendant != 0:
		p.local.ring()
		return true
	}
	return false
}

// sleep waits to be woken while the bell is as it was, at most ns nanoseconds; negative is for ever.
func (p *Page) sleep(bell uint32, ns int64) {
	switch {
	case p.local == nil:
		futexWait(&p.h.bell, bell, ns, forAttendant)
	case p.bell() == bell:
		p.local.wait(ns)
	}
}

// Who sleeps at a bell, as the kernel's futexes know them; C code has the second.
const (
	forAttendant = 1 << iota
	forProgram
)

const (
	futexWaitBits = 9
	futexWakeBits = 10
)

// futexWake wakes so many of those who sleep at a word, and reports whether there was one.
func futexWake(w *uint32, most int, who uint32) bool {
	n, _, errno := syscall.RawSyscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(w)), futexWakeBits, uintptr(most), 0, 0,
		uintptr(who))
	return errno == 0 && n > 0
}

// futexWait sleeps while the word has the value v, at most ns nanoseconds; negative is for ever.
func futexWait(w *uint32, v uint32, ns int64, who uint32) {
	var ts *unix.Timespec
	if ns >= 0 {
		var now unix.Timespec
		_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &now)
		t := unix.NsecToTimespec(now.Nano() + ns)
		ts = &t
	}
	_, _, _ = syscall.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(w)), futexWaitBits, uintptr(v),
		uintptr(unsafe.Pointer(ts)), 0, uintptr(who))
}

// NewMemory makes memory that can be handed to other processes, filled with zeros, and maps it. The
// descriptor is the caller's.
func NewMemory(name string, size int) (fd int, mem []byte, err error) {
	return newMemory(name, size, 0)
}

// newMemory does so, and seals it besides when it is mapped.
func newMemory(name string, size int, seals int) (fd int, mem []byte, err error) {
	fd, err = unix.MemfdCreate("softib-"+name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return -1, nil, fmt.Errorf("endpoint: shared memory: %w", err)
	}
	if err = unix.Ftruncate(fd, int64(size)); err == nil {
		mem, err = unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	}
	if err == nil {
		// A peer that shrinks it would make the other end fault.
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS,
			unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL|seals)
	}
	if err != nil {
		Unmap(mem)
		unix.Close(fd)
		return -1, nil, fmt.Errorf("endpoint: shared memory: %w", err)
	}
	return fd, mem, nil
}

// MapMemory maps memory that another process has made. It wants it sealed against shrinking.
func MapMemory(fd, size int) ([]byte, error) {
	if err := checkMemory(fd, size); err != nil {
		return nil, err
	}
	mem, err := unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("endpoint: shared memory: %w", err)
	}
	return mem, nil
}

// checkMemory makes sure that memory cannot go away under us.
func checkMemory(fd, size int) error {
	seals, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil || seals&unix.F_SEAL_SHRINK == 0 {
		return fmt.Errorf("endpoint: shared memory is not sealed against shrinking: %w", ErrMemory)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Size < int64(size) {
		return fmt.Errorf("endpoint: shared memory of %d bytes: want %d: %w", st.Size, size, ErrMemory)
	}
	return nil
}

// Share is what an endpoint and the fabric share, besides rings.
type Share struct {
	Page   *Page
	Slots  *Slots
	Ledger *Ledger
}

// Pieces is how many pieces of memory a share is: its page, its slots and its ledger.
const Pieces = 3

// MakeShare makes a share for another process. The descriptors and the memory are the caller's to give back, also where
// there is an error.
func MakeShare() (s Share, fds []int, mem [][]byte, err error) {
	for i, name := range [Pieces]string{"page", "slots", "ledger"} {
		fd, m, err := NewMemory(name, pieceBytes[i])
		if err != nil {
			return s, fds, mem, err
		}
		fds, mem = append(fds, fd), append(mem, m)
	}
	s, err = newShare(mem)
	return s, fds, mem, err
}

// NewShare makes one for a process that shares it with nobody.
func NewShare() (Share, error) {
	s, fds, mem, err := MakeShare()
	for _, fd := range fds {
		unix.Close(fd)
	}
	if err != nil {
		for _, m := range mem {
			Unmap(m)
		}
	}
	return s, err
}

// MapShare maps a share that the fabric has made.
func MapShare(fds [Pieces]int) (Share, error) {
	mem := make([][]byte, Pieces)
	for i, fd := range fds {
		var err error
		if mem[i], err = MapMemory(fd, pieceBytes[i]); err != nil {
			return Share{}, err
		}
	}
	return newShare(mem)
}

var pieceBytes = [Pieces]int{PageBytes, SlotsBytes, LedgerBytes}

func newShare(mem [][]byte) (s Share, err error) {
	var errs [Pieces]error
	s.Page, errs[0] = NewPage(mem[0])
	s.Slots, errs[1] = NewSlots(mem[1])
	s.Ledger, errs[2] = NewLedger(mem[2])
	return s, errors.Join(errs[:]...)
}

// Rings maps rings. The addresses of one that is given back stay readable, and are used for the next one: C code that
// follows the hint without a lock may look there a moment later.
type Rings struct {
	mu   sync.Mutex
	free []unsafe.Pointer
}

// Map maps a ring that another process has made.
func (r *Rings) Map(fd int) ([]byte, error) {
	if err := checkMemory(fd, RingBytes); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	var at unsafe.Pointer
	flags := unix.MAP_SHARED
	if n := len(r.free); n > 0 {
		at = r.free[n-1]
		r.free = r.free[:n-1]
		flags |= unix.MAP_FIXED
	}
	p, err := unix.MmapPtr(fd, 0, at, RingBytes, unix.PROT_READ|unix.PROT_WRITE, flags)
	if err != nil {
		if at != nil {
			r.free = append(r.free, at)
		}
		return nil, fmt.Errorf("endpoint: a ring: %w", err)
	}
	return unsafe.Slice((*byte)(p), RingBytes), nil
}

// Unmap gives a ring's memory back.
func (r *Rings) Unmap(mem []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	at := unsafe.Pointer(unsafe.SliceData(mem))
	if _, err := unix.MmapPtr(-1, 0, at, RingBytes, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE|unix.MAP_FIXED); err == nil {
		r.free = append(r.free, at)
	}
}

// Unmap gives mapped memory back.
func Unmap(mem []byte) {
	if len(mem) > 0 {
		_ = unix.Munmap(mem)
	}
}
