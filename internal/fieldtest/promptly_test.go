package fieldtest

import (
	"os"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

// promptly gives this process, which has the fabric, and what it starts the next processor that is free, where the
// kernel lets us: for programs that take an answer after 100 ms of real time for none, and cannot be told otherwise.
// What they then say of the fabric is about the fabric, and not about who else computes on this machine.
func promptly(t testing.TB) {
	t.Helper()
	set := func(policy uint32, priority uint32) {
		tasks, err := os.ReadDir("/proc/self/task")
		if err != nil {
			t.Fatal(err)
		}
		for _, task := range tasks {
			id, _ := strconv.Atoi(task.Name())
			attr := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: policy, Priority: priority}
			if err := unix.SchedSetAttr(id, &attr, 0); err != nil && err != unix.ESRCH {
				t.Logf("no real-time priority: %v", err)
				return
			}
		}
	}
	set(unix.SCHED_RR, 1)
	t.Cleanup(func() { set(unix.SCHED_NORMAL, 0) })
}
