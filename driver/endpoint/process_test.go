package endpoint

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"reflect"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"softib/node/hca"
	"softib/proto/wire"
)

// Both ends of a ring in processes of their own: this one, and one that does what it is told (see TestOther).

const (
	testQP, testKey = 5, 7
	// otherAt is where the other process has memory that a stranger can have as well.
	otherAt = 0x7000_0000_0000
	// otherBytes is how much, otherByte what it fills it with, and sentByte what is sent.
	otherBytes = 64 << 10
	otherByte  = 0x11
	sentByte   = 0xAA
	// patience bounds every wait of these tests.
	testPatience = 60 * time.Second
)

// other is the other process, with the memory of a ring, of its page and of ours.
type other struct {
	t        *testing.T
	cmd      *exec.Cmd
	in       *bufio.Writer
	lines    chan string
	ring     []byte
	its, our *Page
	files    []*os.File
	tid      int    // its thread that does the work
	wrote    uint64 // where that comes when it has written
}

// startOther starts the process; given another one, with the same memory.
func startOther(t *testing.T, like *other) *other {
	t.Helper()
	lines := make(chan string, 16)
	o := &other{t: t, lines: lines}
	if like == nil {
		var pages [2]*Page
		for i, size := range []int{RingBytes, PageBytes, PageBytes} {
			fd, mem, err := NewMemory("test", size)
			if err != nil {
				t.Fatal(err)
			}
			o.files = append(o.files, os.NewFile(uintptr(fd), "memory"))
			if i == 0 {
				o.ring = mem
			} else if pages[i-1], err = NewPage(mem); err != nil {
				t.Fatal(err)
			}
		}
		o.its, o.our = pages[0], pages[1]
		o.our.sign()
	} else {
		o.ring, o.its, o.our, o.files = like.ring, like.its, like.our, like.files
	}
	o.cmd = exec.Command("/proc/self/exe", "-test.run=^TestOther$", "-test.timeout=5m")
	// Signals by which Go's scheduler interrupts a loop would be stops of their own.
	o.cmd.Env = append(os.Environ(), "SOFTIB_TEST_OTHER=1", "GODEBUG=asyncpreemptoff=1")
	o.cmd.ExtraFiles = o.files
	o.cmd.Stderr = os.Stderr
	in, err := o.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := o.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := o.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	o.in = bufio.NewWriter(in)
	go func() {
		for s := bufio.NewScanner(out); s.Scan(); {
			lines <- s.Text()
		}
		close(lines)
	}()
	t.Cleanup(o.end)
	if _, err := fmt.Sscan(o.hear(), &o.tid, &o.wrote); err != nil {
		t.Fatal(err)
	}
	return o
}

// end kills the process and returns when its number is free.
func (o *other) end() {
	_ = o.cmd.Process.Kill()
	_ = o.cmd.Wait()
}

func (o *other) tell(command string) {
	fmt.Fprintln(o.in, command)
	if err := o.in.Flush(); err != nil {
		o.t.Fatal(err)
	}
}

func (o *other) hear() string {
	o.t.Helper()
	select {
	case s, ok := <-o.lines:
		if !ok {
			o.t.Fatal("the other process has ended")
		}
		return s
	case <-time.After(testPatience):
		o.t.Fatal("the other process does not answer")
	}
	return ""
}

func (o *other) do(command, want string) {
	o.t.Helper()
	o.tell(command)
	if got := o.hear(); got != want {
		o.t.Fatalf("%s: %s, want %s", command, got, want)
	}
}

// receiver is our end of a ring that the other process sends into.
func (o *other) receiver() *In {
	o.t.Helper()
	r, err := NewIn(o.ring, o.its, o.cmd.Process.Pid, 1)
	if err != nil {
		o.t.Fatal(err)
	}
	if r.head.pull == 0 {
		o.t.Skip("this kernel lets nobody read another process's memory")
	}
	o.t.Cleanup(r.far.close)
	return r
}

// sender is our end of a ring that the other process receives from.
func (o *other) sender() *Out {
	o.t.Helper()
	r, err := NewOut(o.ring, o.its, o.cmd.Process.Pid)
	if err != nil {
		o.t.Fatal(err)
	}
	o.t.Cleanup(r.to.close)
	return r
}

// writeTo writes n bytes ahead to an address.
func writeTo(r *Out, addr uint64, n int) bool {
	if !r.room(n) {
		panic("the ring is full")
	}
	p := wire.Packet{BTH: wire.BTH{Opcode: wire.MakeOpcode(wire.RC, wire.OpWriteOnly), DestQP: testQP},
		RETH: wire.RETH{VA: addr, RKey: testKey}, Payload: r.space(n)}
	for i := range p.Payload {
		p.Payload[i] = sentByte
	}
	syscall.RawSyscall(syscall.SYS_GETPPID, 0, 0, 0) // who traces us knows by this where we are
	return r.writeAhead(&p)
}

// wrote is where who traces us sees that the write is over, whatever way it took.
//
//go:noinline
func wrote(ok bool) bool { return ok }

// memoryAt makes memory at an address, and fills it.
func memoryAt(addr uint64, n int) []byte {
	p, err := unix.MmapPtr(-1, 0, *(*unsafe.Pointer)(unsafe.Pointer(&addr)), uintptr(n), unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_FIXED_NOREPLACE)
	if err != nil {
		panic(err)
	}
	mem := unsafe.Slice((*byte)(p), n)
	for i := range mem {
		mem[i] = otherByte
	}
	return mem
}

// TestOther is the other process.
func TestOther(t *testing.T) {
	if os.Getenv("SOFTIB_TEST_OTHER") == "" {
		t.Skip("it is started by other tests")
	}
	runtime.LockOSThread()
	var mem [3][]byte
	for i, size := range []int{RingBytes, PageBytes, PageBytes} {
		var err error
		if mem[i], err = MapMemory(3+i, size); err != nil {
			t.Fatal(err)
		}
	}
	its, _ := NewPage(mem[1])
	our, _ := NewPage(mem[2])
	heap := memoryAt(otherAt, otherBytes)
	var in *In
	out, err := NewOut(mem[0], our, os.Getppid())
	if err != nil {
		t.Fatal(err)
	}
	fmt.Println(unix.Gettid(), reflect.ValueOf(wrote).Pointer())
	for s := bufio.NewScanner(os.Stdin); s.Scan(); {
		word, rest, _ := strings.Cut(s.Text(), " ")
		var addr uint64
		var n int
		_, _ = fmt.Sscan(rest, &addr, &n)
		switch word {
		case "have":
			fmt.Println(len(memoryAt(addr, n)) == n)
		case "sign":
			its.sign()
			fmt.Println("done")
		case "write":
			fmt.Println(wrote(writeTo(out, addr, n)))
		case "spin": // and count
			fmt.Println("done")
			for count := (*uint32)(unsafe.Pointer(&mem[1][1024])); ; atomic.AddUint32(count, 1) {
				writeTo(out, addr, n)
			}
		case "refer":
			p := wire.Packet{LRH: wire.LRH{LNH: wire.LNHLocal}, Payload: heap[:n],
				BTH: wire.BTH{Opcode: wire.MakeOpcode(wire.RC, wire.OpSendOnly)}, Count: 2}
			ok := out.canRefer(true) && out.room(0)
			out.publish(&p, false)
			fmt.Println(ok)
		case "grant":
			if in == nil {
				if in, err = NewIn(mem[0], our, os.Getppid(), 1); err != nil {
					t.Fatal(err)
				}
			}
			in.give(hca.Grant{QP: testQP, RKey: testKey, VA: otherAt, Mem: heap})
			fmt.Println("done")
		}
	}
}

// tracer stops the other process's thread where it wants. Its calls must come from one thread.
type tracer struct{ o *other }

func (x tracer) ptrace(request, data uintptr) {
	x.o.t.Helper()
	if _, _, e := syscall.RawSyscall6(syscall.SYS_PTRACE, request, uintptr(x.o.tid), 0, data, 0, 0); e != 0 {
		x.o.t.Fatalf("ptrace %#x: %v", request, e)
	}
}

// stopped waits until the thread stands still, and says why it does.
func (x tracer) stopped(what string) unix.WaitStatus {
	x.o.t.Helper()
	defer time.AfterFunc(testPatience, func() { _ = x.o.cmd.Process.Kill() }).Stop()
	for {
		var ws unix.WaitStatus
		_, err := unix.Wait4(x.o.tid, &ws, unix.WALL, nil)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || !ws.Stopped() {
			x.o.t.Fatalf("waited for %s; the sender has not stopped, within %v: %#x, %v", what, testPatience, ws, err)
		}
		return ws
	}
}

// step lets it go on to the next stop. A signal is none, nor that the thread was interrupted before.
func (x tracer) step(request uintptr, what string) {
	x.o.t.Helper()
	for {
		x.ptrace(request, 0)
		ws := x.stopped(what)
		if s := ws.StopSignal(); s&^0x80 == unix.SIGTRAP && ws>>16 == 0 {
			return
		}
	}
}

// at is the instruction that it stands before.
func (x tracer) at() uint64 {
	x.o.t.Helper()
	var r unix.PtraceRegs
	if err := unix.PtraceGetRegs(x.o.tid, &r); err != nil {
		x.o.t.Fatal(err)
	}
	return r.PC()
}

// Of the kernel's struct user: the address of the first breakpoint, and which of them count.
const debugAddr, debugWhich = 848, 848 + 7*8

// reaches lets it run until it stands before an instruction for the nth time, without a stop in between: beside busy
// loops every stop takes as long as the scheduler lets those run. It reports false if the write is over before.
func (x tracer) reaches(at uint64, n int) bool {
	x.o.t.Helper()
	poke := func(where, what uintptr) {
		if _, _, e := syscall.RawSyscall6(syscall.SYS_PTRACE, unix.PTRACE_POKEUSR, uintptr(x.o.tid), where, what, 0,
			0); e != 0 {
			x.o.t.Skipf("this machine has no breakpoints as amd64 does: %v", e)
		}
	}
	poke(debugAddr, uintptr(at))
	poke(debugAddr+8, uintptr(x.o.wrote))
	poke(debugWhich, 1|4)
	defer poke(debugWhich, 0)
	for what := fmt.Sprintf("a breakpoint at %#x or where the write is over", at); ; n-- {
		x.step(unix.PTRACE_CONT, what)
		switch got := x.at(); {
		case got == x.o.wrote:
			return false
		case got != at:
			x.o.t.Fatalf("the sender stands at %#x: want %#x or %#x", got, at, x.o.wrote)
		case n == 1:
			return true
		}
		x.step(unix.PTRACE_SINGLESTEP, "the instruction behind a breakpoint")
	}
}

// syscallInfo is the beginning of the kernel's ptrace_syscall_info.
type syscallInfo struct {
	op     uint8
	_      [7]byte
	ip, sp uint64
	nr     uint64
	_      [64]byte
}

const (
	ptraceGetSyscallInfo = 0x420e
	atEntry, atExit      = 1, 2
)

// begins has the sender write, and stops it on its way.
func (x tracer) begins(command string) {
	x.o.t.Helper()
	x.ptrace(unix.PTRACE_SEIZE, unix.PTRACE_O_TRACESYSGOOD)
	x.ptrace(unix.PTRACE_INTERRUPT, 0)
	x.stopped("a thread that was interrupted")
	x.o.tell(command)
	x.runsTo(syscall.SYS_GETPPID)
	x.step(unix.PTRACE_SYSCALL, "the end of getppid")
}

// runsTo lets it run to the door of one of these system calls.
func (x tracer) runsTo(calls ...uint64) {
	x.o.t.Helper()
	for {
		x.step(unix.PTRACE_SYSCALL, fmt.Sprintf("a system call of %v", calls))
		var s syscallInfo
		if _, _, e := syscall.RawSyscall6(syscall.SYS_PTRACE, ptraceGetSyscallInfo, uintptr(x.o.tid), unsafe.Sizeof(s),
			uintptr(unsafe.Pointer(&s)), 0, 0); e != 0 {
			x.o.t.Skipf("this kernel does not say where a traced thread is: %v", e)
		}
		for _, nr := range calls {
			if s.op == atEntry && s.nr == nr {
				return
			}
		}
	}
}

// goesOn lets it go.
func (x tracer) goesOn() { x.ptrace(unix.PTRACE_DETACH, 0) }
