package netif

import (
	"bufio"
	"bytes"
	"context"
	"os"
	"time"

	"softib/internal/patience"
)

// settlePause is how long to wait before looking anew, at first and at most. lastPatience is how long, on an idle
// machine, peers may take that know of a connection's end to end it, too, and the kernel to close what a program had:
// some peers never do.
const (
	settlePause    = 2 * time.Millisecond
	settlePauseMax = 100 * time.Millisecond
	lastPatience   = time.Second
)

// Settle waits, until ctx ends at most, for what programs have left behind that have ended: as on any host the kernel
// still sends what they have written, sends it again if it is lost, and takes leave of their peers. Who took the
// interfaces away before would have those wait for ever.
func (s Namespace) Settle(ctx context.Context, all map[string]*Interface) {
	last := patience.New(lastPatience)
	for pause := settlePause; ; pause = min(2*pause, settlePauseMax) {
		settled, untold := s.isSettled(all, last.Over())
		if settled {
			return
		}
		if untold { // peers have their time from when they know
			last = patience.New(lastPatience)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

// isSettled reports whether nothing is under way, and whether there are peers that have not heard of a connection's end
// yet; with told, it is enough that all have.
func (s Namespace) isSettled(all map[string]*Interface, told bool) (settled, untold bool) {
	open := false
	// Connections come first: what ends one is in an interface afterwards.
	for _, f := range []*os.File{s.TCP4, s.TCP6} {
		text, err := reread(f)
		if err != nil {
			continue
		}
		u, o := leaving(text)
		untold, open = untold || u > 0, open || o > 0
	}
	if untold || open && !told {
		return false, untold
	}
	for _, n := range all {
		if !n.isIdle() {
			return false, false
		}
	}
	return true, false
}

// isIdle reports whether nothing of the host's waits in the interface.
func (n *Interface) isIdle() bool {
	if !n.tun.isEmpty() {
		return false
	}
	n.mu.Lock()
	waits := n.engine.IsUp() && n.engine.Waiting() > 0 // where the partition has no IP nothing ever goes
	var all []*dest
	for _, d := range n.dests {
		all = append(all, d)
	}
	n.mu.Unlock()
	return !waits && n.unsent.Load() == 0 && n.send.isIdle(all)
}

// States of connections in /proc/net/tcp (enum in the kernel's net/tcp_states.h).
const (
	tcpFinWait1 = "04"
	tcpFinWait2 = "05"
	tcpLastAck  = "09"
	tcpClosing  = "0B"
)

// leaving counts the connections of /proc/net/tcp or tcp6 that have not ended yet: of those that no program has any
// more (they have no inode) those whose peers have not taken all that was written, or do not know of the end; and open
// ones, of whose end only the peers have to speak, or that a program has. The last program's end is told before the
// kernel has closed its sockets.
func leaving(text []byte) (untold, open int) {
	const state, inode = 3, 9 // columns
	in := bufio.NewScanner(bytes.NewReader(text))
	in.Scan() // what the columns are
	for in.Scan() {
		words := bytes.Fields(in.Bytes())
		if len(words) <= inode {
			continue
		}
		if string(words[inode]) != "0" {
			open++
			continue
		}
		switch string(words[state]) {
		case tcpFinWait1, tcpLastAck, tcpClosing:
			untold++
		case tcpFinWait2:
			open++
		}
	}
	return untold, open
}
