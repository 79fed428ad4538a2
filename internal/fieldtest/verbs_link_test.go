package fieldtest

import (
	"strconv"
	"syscall"
	"testing"
	"time"

	"softib/internal/perftest"
	"softib/proto/ib"
	"softib/proto/topo"
)

// perftestRetries is how often perftest's queue pairs send a packet again (IBA 9.7.6.1.3).
const perftestRetries = 7

// ackTimeout is the time that a queue pair waits for an acknowledgement at least (IBA 9.7.6.1.3).
func ackTimeout(v int) time.Duration { return 4096 * time.Nanosecond << v }

// flows waits until a port sends in earnest.
func (w *world) flows(what string, r topo.PortRef) {
	w.Helper()
	from := w.Counters(r)[ib.PortXmitData]
	w.eventually(what, func() bool { return w.Counters(r)[ib.PortXmitData]-from > 1<<20 })
}

// The only way is cut under a stream of messages: the queue pair gives up with RETRY_EXC, after the timeouts that it
// was asked to wait and not before.
func TestLinkDownOnlyWay(t *testing.T) {
	t.Parallel()
	w := up(t, "star:3", brisk)
	// a quarter of a second, and half a one: nobody gives up because a process had no turn
	for _, timeout := range []int{16, 17} {
		s, c := w.startPair("h1", "h2", "ib_write_bw", "-F", "-D", "60", "-u", strconv.Itoa(timeout))
		w.flows("messages", ref(w.node("h2"), 1))
		cut := time.Now()
		w.check(w.SetLink(ref(w.node("h1"), 1), false))
		out := c.fails()
		took := time.Since(cut)
		wants(t, out, "Completion with error at client", "Failed status 12:") // IBV_WC_RETRY_EXC_ERR
		// The first wait may have begun before the cut, if the server had no turn. How much later it gives up is the
		// machine's matter.
		wait := ackTimeout(timeout)
		if took < perftestRetries*wait {
			t.Errorf("-u %d: failed after %v, want %v at least", timeout, took, perftestRetries*wait)
		}
		t.Logf("-u %d: failed after %v, %d times %v", timeout, took, perftestRetries+1, wait)
		s.kill() // it waits for somebody who is gone
		w.check(w.SetLink(ref(w.node("h1"), 1), true))
		w.eventually("the link's return", w.active)
	}
	// The fabric has not suffered.
	w.perftest("h1", "h2", "ib_write_bw")
}

// There is another way: the manager finds it, and the messages take it.
func TestLinkDownOtherWay(t *testing.T) {
	t.Parallel()
	w := up(t, "fat-tree:radix=4,levels=2", brisk)
	// It sends until it is told that its time is over, without a second of margin. No more than 16 messages are under
	// way, fewer than flows waits for, and each is counted.
	x := *w
	x.env = perftest.Steady(w, perftest.NoAlarm)
	s, c := x.startPair("h1", "h8", "ib_write_bw", "-F", "-D", "1", "-u", "17", "-t", "16", "-Q", "1")
	client := w.node("h8")
	w.flows("messages", ref(client, 1))
	way, ok := w.walk(client, 1, w.lid(w.node("h1"), 1))
	if !ok || len(way) != 4 {
		t.Fatalf("the way from h8 to h1 has %d hops", len(way))
	}
	w.check(w.SetLink(ref(way[1].from, way[1].out), false))
	w.eventually("another way", func() bool {
		other, ok := w.walk(client, 1, w.lid(w.node("h1"), 1))
		return ok && other[1] != way[1]
	})
	other, _ := w.walk(client, 1, w.lid(w.node("h1"), 1))
	w.flows("messages on another way", ref(other[1].from, other[1].out))
	w.check(c.cmd.Process.Signal(syscall.SIGALRM))
	out := c.finish()
	s.finish()
	w.perftestResult(out, "ib_write_bw", []string{"-D", "1"})
}
