package endpoint

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"softib/internal/cacheline"
	"softib/internal/race"
	"softib/node/hca"
	"softib/proto/wire"
)

// target is memory of ours that the other process may write to.
type target struct {
	*other
	in  *In
	mem []byte
}

func newTarget(t *testing.T) *target {
	o := startOther(t, nil)
	o.do("sign", "done")
	return &target{o, o.receiver(), make([]byte, 4096)}
}

// addr is where it is.
func (x *target) addr() uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(x.mem)))) }

func (x *target) write() string { return fmt.Sprintf("write %d %d", x.addr(), len(x.mem)) }

func (x *target) give() {
	clear(x.mem)
	x.in.give(hca.Grant{QP: testQP, RKey: testKey, VA: x.addr(), Mem: x.mem})
}

// takeBack withdraws the grant, as deregistering does, while the sender does not move, and uses the memory for
// something else.
func (x *target) takeBack() {
	x.t.Helper()
	done := make(chan struct{})
	go func() {
		x.in.withdraw()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(testPatience):
		x.t.Fatal("the receiver waits for a sender that was stopped")
	}
	for i := range x.mem {
		x.mem[i] = 0x55
	}
}

// untouched fails if anybody has written to what was taken back.
func (x *target) untouched(where string) {
	x.t.Helper()
	if i := bytes.IndexFunc(x.mem, func(r rune) bool { return r != 0x55 }); i >= 0 {
		x.t.Fatalf("%s: byte %d was written to after the grant was taken back", where, i)
	}
}

// writing reports whether the sender says that it may be.
func (x *target) writing() bool { return atomic.LoadUint64(&x.in.head.ahead.number)&1 != 0 }

// TestStoppedAtTheDoor: a sender that was stopped as it enters the kernel writes nothing once the grant was taken back,
// and says so; withdrawing does not wait for it, once nor twice.
func TestStoppedAtTheDoor(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	x := newTarget(t)
	x.give()
	x.do(x.write(), "true")
	if x.mem[0] != sentByte || x.mem[4095] != sentByte {
		t.Fatal("what was written ahead is not there")
	}
	tr := tracer{x.other}
	for range 20 {
		x.give()
		tr.begins(x.write())
		tr.runsTo(unix.SYS_PWRITEV, unix.SYS_PROCESS_VM_WRITEV)
		x.takeBack()
		x.give() // as it may use it once more
		x.takeBack()
		tr.goesOn()
		if got := x.hear(); got != "false" {
			t.Errorf("the sender says %s of a write that was made void", got)
		}
		x.untouched("at the door of the kernel")
	}
	x.give()
	x.do(x.write(), "true")
}

// TestStoppedAnywhere stops the sender at every instruction of the stretch in which it says that it may be writing.
func TestStoppedAnywhere(t *testing.T) {
	if race.Enabled {
		t.Skip("the detector adds thousands of instructions, which are not what programs run")
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	x := newTarget(t)
	x.give()
	x.do(x.write(), "true")
	tr := tracer{x.other}
	// What it runs through, from where it is known to be; the last of these are those of the stretch. A sender that
	// takes long, as it does step by step, is sent by Go into its scheduler where it looks whether its stack is large
	// enough. That is another way, which it does not go again.
	var way, last []uint64
	all := 0
	scheduled := func(at uint64) bool { return runtime.FuncForPC(uintptr(at)).Name() == "runtime.newstack" }
	for deadline := time.Now().Add(testPatience); len(way) == 0 || !slices.Equal(way, last) ||
		slices.ContainsFunc(way, scheduled); {
		if time.Now().After(deadline) {
			t.Fatalf("the sender goes no way twice: the last have %d and %d instructions", len(last), len(way))
		}
		way, last, all = nil, way, 0
		x.give()
		tr.begins(x.write())
		for ; all == 0 || x.writing(); tr.step(unix.PTRACE_SINGLESTEP, "the next instruction") {
			if way = append(way, tr.at()); tr.at() == x.wrote {
				t.Fatal("the sender has written and did not say so")
			}
			if x.writing() {
				all++
			}
		}
		tr.goesOn()
		x.hear()
	}
	results := map[string]int{}
	others := 0 // walks that went another way
	for steps := 0; steps < all; steps++ {
		x.give()
		tr.begins(x.write())
		here, times := len(way)-all+steps, 0
		for _, at := range way[:here+1] {
			if at == way[here] {
				times++
			}
		}
		if !tr.reaches(way[here], times) || !x.writing() {
			if others++; others > all {
				t.Fatalf("%d instructions in: the sender goes another way than it did", steps)
			}
			tr.goesOn()
			x.hear()
			steps-- // it was not there yet
			continue
		}
		x.takeBack()
		tr.goesOn()
		results[x.hear()]++
		x.untouched(fmt.Sprintf("after %d instructions", steps))
	}
	t.Logf("of %d instructions, writes were made void or not: %v; %d went another way", all, results, others)
	if results["false"] < 5 || results["true"] < 1 {
		t.Errorf("the sender was stopped at %v: want some before and some after the write", results)
	}
}

// TestStoppedAtRandom stops a sender that does nothing but write, by a signal, at any moment.
func TestStoppedAtRandom(t *testing.T) {
	x := newTarget(t)
	x.do(strings.Replace(x.write(), "write", "spin", 1), "done")
	count := (*uint32)(unsafe.Add(unsafe.Pointer(x.its.h), 1024))
	// turns waits until the sender has tried again, twice: the first may have begun before.
	turns := func() {
		deadline := time.Now().Add(testPatience)
		for was := atomic.LoadUint32(count); atomic.LoadUint32(count)-was < 2; cacheline.YieldCore() {
			if time.Now().After(deadline) {
				t.Fatal("the sender does not go on")
			}
		}
	}
	r := rand.New(rand.NewPCG(1, 2))
	midst := 0
	for range 300 {
		x.give()
		turns()
		for range r.UintN(2000) {
			_ = atomic.LoadUint32(count)
		}
		if err := unix.Kill(x.cmd.Process.Pid, unix.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		var ws unix.WaitStatus
		if _, err := unix.Wait4(x.cmd.Process.Pid, &ws, unix.WUNTRACED, nil); err != nil || !ws.Stopped() {
			t.Fatalf("the sender does not stop: %v %v", ws, err)
		}
		if x.writing() {
			midst++
		}
		x.takeBack()
		if err := unix.Kill(x.cmd.Process.Pid, unix.SIGCONT); err != nil {
			t.Fatal(err)
		}
		turns()
		x.untouched("by a signal")
	}
	t.Logf("in %d of 300 it was stopped while it may have been writing", midst)
}

// TestRunning: withdrawing from a sender that writes all the time and is not stopped.
func TestRunning(t *testing.T) {
	x := newTarget(t)
	x.do(strings.Replace(x.write(), "write", "spin", 1), "done")
	for range 2000 {
		x.give()
		for range 200 {
			_ = x.writing()
		}
		x.takeBack()
		x.untouched("while it runs")
	}
}

// TestRevokedRing: a ring that the fabric has revoked is neither written past nor pulled through.
func TestRevokedRing(t *testing.T) {
	x := newTarget(t)
	x.give()
	x.do(x.write(), "true")
	x.do("refer 0 16384", "true")
	var p wire.Packet
	if !x.in.get(x.in.ready(), &p) {
		t.Fatal("there is no packet")
	}
	if !p.Far.CopyTo(make([]byte, p.FarLen), 0) {
		t.Fatal("the payload cannot be read")
	}
	Revoke(x.ring)
	x.do(x.write(), "false")
	if p.Far.CopyTo(make([]byte, p.FarLen), 0) {
		t.Error("a payload was pulled through a ring that was revoked")
	}
}

// reuse ends a process and has a stranger take its number.
func (o *other) reuse() {
	o.t.Helper()
	pid := o.cmd.Process.Pid
	o.end()
	for deadline := time.Now().Add(testPatience); time.Now().Before(deadline); {
		if err := os.WriteFile("/proc/sys/kernel/ns_last_pid", fmt.Append(nil, pid-1), 0); err != nil {
			o.t.Skipf("the kernel does not let this user say which number the next process gets: %v", err)
		}
		// Others start processes as well.
		if stranger := startOther(o.t, o); stranger.cmd.Process.Pid == pid {
			o.cmd, o.in, o.lines = stranger.cmd, stranger.in, stranger.lines
			o.do(fmt.Sprintf("have %d %d", o.its.owner().at, os.Getpagesize()), "true")
			return
		} else {
			stranger.end()
		}
	}
	o.t.Fatalf("no process got the number %d", pid)
}

// memory is what the process with the other's number has at otherAt.
func (o *other) memory() []byte {
	o.t.Helper()
	b := make([]byte, otherBytes)
	local := []unix.Iovec{{Base: &b[0], Len: otherBytes}}
	if n, err := unix.ProcessVMReadv(o.cmd.Process.Pid, local, []unix.RemoteIovec{{Base: otherAt, Len: otherBytes}},
		0); err != nil || n != otherBytes {
		o.t.Fatalf("%d bytes can be read: %v", n, err)
	}
	return b
}

// TestNumberReused: the receiver has ended and its number is another process's, which has memory at the same addresses,
// that of the nonce included. Nothing there changes, and nothing counts as written.
func TestNumberReused(t *testing.T) {
	for _, known := range []bool{true, false} {
		t.Run(fmt.Sprintf("written before %v", known), func(t *testing.T) {
			o := startOther(t, nil)
			o.do("sign", "done")
			o.do("grant", "done")
			out := o.sender()
			if known {
				if !writeTo(out, otherAt, 64) {
					t.Fatal("nothing is written ahead")
				}
				if b := o.memory(); b[0] != sentByte || b[63] != sentByte || b[64] != otherByte {
					t.Fatal("what was written ahead is not there")
				}
			}
			o.reuse()
			if writeTo(out, otherAt, 64) {
				t.Error("a write to a process that has ended counts as done")
			}
			if !bytes.Equal(o.memory(), bytes.Repeat([]byte{otherByte}, otherBytes)) {
				t.Error("a stranger's memory was written to")
			}
		})
	}
}

// TestNumberReusedPull: likewise the sender of a payload by reference.
func TestNumberReusedPull(t *testing.T) {
	o := startOther(t, nil)
	o.do("sign", "done")
	in := o.receiver()
	for range 2 {
		o.do("refer 0 16384", "true")
	}
	var p wire.Packet
	b := make([]byte, 16384)
	if !in.get(in.ready(), &p) || !p.Far.CopyTo(b, 0) || !bytes.Equal(b, bytes.Repeat([]byte{otherByte}, len(b))) {
		t.Fatal("the payload cannot be read")
	}
	in.Done()
	o.reuse()
	if in.get(in.ready(), &p) && p.Far.CopyTo(b, 0) {
		t.Error("a stranger's memory counts as the payload")
	}
}

// TestForkedChild: the kernel wipes the nonce in a forked child, so that it cannot pass for its parent.
func TestForkedChild(t *testing.T) {
	smaps, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(smaps), fmt.Sprintf("\n%x-", ownIdentity().at))
	_, flags, _ := strings.Cut(rest, "VmFlags:")
	flags, _, _ = strings.Cut(flags, "\n")
	if !ok || !strings.Contains(flags+" ", " wf ") {
		t.Errorf("the page with the nonce has flags %q: want wf (wipe on fork)", flags)
	}
}
