package endpoint

import (
	"fmt"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"softib/proto/ib"
)

// Payloads by pipe. A receiver in a container cannot read the memory of a sender outside: the kernel lets nobody read
// across user namespaces who has no right in the other one, and a process has no number in a pid namespace beside its
// own. A copy into the ring and one out of it take twice the time of one. So the sender puts references to the pages
// of its payload into a pipe (vmsplice), and the receiver reads the pipe, which copies from these pages to where the
// payload belongs: once, as if it had read the sender's memory. Nobody gets more than what it is sent, where a
// descriptor of an address space would let whoever is in a container at all that is outside.
//
// What is in the ring says what is in the pipes: each cell that has its payload there takes the next pipe in turn, and
// its bytes are the next ones in it. The receiver takes them all before it gives the cell back, whether somebody wants
// them or not. There are two pipes because whoever reads one holds its lock: the sender fills the other meanwhile.
//
// The sender knows how many pages a pipe holds and has of it what the receiver has not given back, so that it never
// meets a full one. Should the kernel refuse a page all the same, the cell is void, which makes it a lost packet, and
// the pipes are not used any more; a receiver that finds less than it was told does the same.
//
// Memory stays as safe as by reference: what the receiver writes is its own memory, under its lock, and what it has
// read counts only if the sender had not given the request up by then (far.isVoid). Pages that are in a pipe stay when
// the sender has unmapped them, or has ended, and are nobody's else until they were read.

const (
	numPipes = 2
	// pipeBytes is the most that Linux gives to ordinary users (fs.pipe-max-size), if all pages are full.
	pipeBytes = 1 << 20
	// PipeFDs is how many descriptors the sender has: the ends to read from and then those to write to. It needs the
	// former so that the kernel does not end a program that writes to a receiver which is gone (SIGPIPE). The receiver
	// has the first half of them.
	PipeFDs = 2 * numPipes
)

// pages is how many pages memory lies in.
func pages(mem []byte) int {
	size := uintptr(os.Getpagesize())
	at := uintptr(unsafe.Pointer(unsafe.SliceData(mem))) % size
	return int((at + uintptr(len(mem)) + size - 1) / size)
}

// pagesMost bounds the pages of one cell's payload.
func pagesMost() int { return bundleMax*ib.MTU4096.Bytes()/os.Getpagesize() + 1 }

// MakePipes makes the pipes of a ring. The descriptors are the caller's, as PipeFDs says.
func MakePipes() (fds []int, err error) {
	fds = make([]int, PipeFDs)
	for i := range numPipes {
		var p [2]int
		if err = unix.Pipe2(p[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err == nil {
			fds[i], fds[numPipes+i] = p[0], p[1]
			_, err = unix.FcntlInt(uintptr(p[1]), unix.F_SETPIPE_SZ, pipeBytes)
		}
		if err != nil {
			closePipes(fds)
			return nil, fmt.Errorf("endpoint: pipes: %w", err)
		}
	}
	return fds, nil
}

// closePipes closes descriptors; 0 stands for none.
func closePipes(fds []int) {
	for _, fd := range fds {
		if fd > 0 {
			unix.Close(fd)
		}
	}
}

// What a receiver can take, as it says in its ring's head.
const (
	pullsUnsaid uint32 = iota
	pullsMemory        // it reads the sender's memory
	pullsLittle        // it cannot, and would have pipes
	pullsPipes         // it has them
)

// outPipes is the sender's end.
type outPipes struct {
	fds   []int
	room  uint64 // pages of a pipe
	next  int    // which one is next
	put   [numPipes]uint64
	limit [numPipes]uint64            // put may not pass it
	ends  [ringCells][numPipes]uint64 // put behind each cell
}

func newOutPipes(fds []int) *outPipes {
	p := &outPipes{fds: fds, room: uint64(pipeBytes / os.Getpagesize())}
	for i := range p.limit {
		p.limit[i] = p.room
	}
	return p
}

// fits reports whether the next pipe takes whatever comes.
func (p *outPipes) fits() bool { return p.put[p.next]+uint64(pagesMost()) <= p.limit[p.next] }

// taken is for what the receiver has given back, up to a cell's place.
func (p *outPipes) taken(place uint32) {
	for i := range p.limit {
		p.limit[i] = p.ends[place][i] + p.room
	}
}

// give puts the pages of a payload into the next pipe. False means that it did not work, and never will again.
func (p *outPipes) give(payload []byte) bool {
	i := p.next
	p.next = (i + 1) % numPipes
	p.put[i] += uint64(pages(payload))
	for len(payload) > 0 {
		list := iovec{uintptr(unsafe.Pointer(unsafe.SliceData(payload))), uintptr(len(payload))}
		n, _, e := syscall.RawSyscall6(unix.SYS_VMSPLICE, uintptr(p.fds[numPipes+i]), uintptr(unsafe.Pointer(&list)), 1,
			unix.SPLICE_F_NONBLOCK, 0, 0)
		if e == syscall.EINTR {
			continue
		}
		if e != 0 || int(n) > len(payload) || n == 0 {
			return false
		}
		payload = payload[n:]
	}
	return true
}

// OnWish has f called, at most once, where pipes would be of use. It must not wait.
func (r *Out) OnWish(f func()) { r.wish = f }

// usePipes lets the sender use pipes, which become its own, once the receiver says that it has them.
func (r *Out) usePipes(fds []int) {
	r.closePipes()
	r.pipes = newOutPipes(fds)
}

// closePipes ends the use of pipes.
func (r *Out) closePipes() {
	if r.pipes != nil {
		closePipes(r.pipes.fds)
		r.pipes = nil
	}
}

// piped is a payload in a pipe. It is read from its beginning to its end.
type piped struct {
	*far
	fds    []int
	next   int // the pipe that the next payload is in
	fd     int // that which this one is in
	at     int
	left   int // bytes of it that nobody has taken
	begun  bool
	broken bool
}

// begin is for a cell whose payload of n bytes is in a pipe.
func (p *piped) begin(n int) bool {
	if len(p.fds) == 0 || p.broken {
		return false
	}
	p.fd, p.at, p.left, p.begun = p.fds[p.next], 0, n, true
	p.next = (p.next + 1) % numPipes
	return true
}

// take reads from the pipe. A payload that is not there never will be: its cell comes after it.
func (p *piped) take(dst []byte) bool {
	for len(dst) > 0 {
		n, _, e := syscall.RawSyscall(unix.SYS_READ, uintptr(p.fd), uintptr(unsafe.Pointer(unsafe.SliceData(dst))),
			uintptr(len(dst)))
		switch {
		case e == syscall.EINTR:
			continue
		case e == syscall.EFAULT:
			return false // the program's own fault
		case e != 0 || n == 0:
			p.broken, p.left = true, 0
			return false
		}
		dst = dst[n:]
		p.at, p.left = p.at+int(n), p.left-int(n)
	}
	return true
}

// CopyTo copies from off on, which is where the last call ended.
func (p *piped) CopyTo(dst []byte, off int) bool {
	return off == p.at && len(dst) <= p.left && p.take(dst) && !p.isVoid()
}

// end ends a payload, and takes what nobody wanted. It is true.
func (p *piped) end(r *In) bool {
	p.begun = false
	for p.left > 0 {
		var buf [4096]byte
		p.take(buf[:min(p.left, len(buf))])
	}
	if p.broken {
		r.closePipes()
	}
	return true
}

// usePipes lets the receiver use pipes, which become its own, and tells the sender so.
func (r *In) usePipes(fds []int) {
	r.closePipes()
	r.pipe = piped{far: &r.far, fds: fds}
	r.say(pullsPipes)
}

// closePipes ends the use of pipes; the sender has to copy then.
func (r *In) closePipes() {
	if r.pipe.fds != nil {
		r.say(pullsUnsaid)
		closePipes(r.pipe.fds)
		r.pipe = piped{}
	}
}
