package netif

import (
	"bufio"
	"bytes"
	"context"
	"os"
	"time"

	"softib/internal/patience"
)

// settlePause is how long to wait before looking anew, at first and at most. halfPatience is how long, on an idle
// machine, peers may take that know of a connection's end to end it, too: some never do.
const (
	settlePause    = 2 * time.Millisecond
	settlePauseMax = 100 * time.Millisecond
	halfPatience   = time.Second
)

// Settle waits, until ctx ends at most, for what programs have left behind that have ended: as on any host the kernel
// still sends what they have written, sends it again if it is lost, and takes leave of their peers. Who took the
// interfaces away before would have those wait for ever.
func (s Namespace) Settle(ctx context.Context, all map[string]*Interface) {
	half := patience.New(halfPatience)
	for pause := settlePause; !s.isSettled(all, half.Over()); pause = min(2*pause, settlePauseMax) {
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

// isSettled reports whether nothing is under way; with told, it is enough that peers know that a connection has ended.
func (s Namespace) isSettled(all map[string]*Interface, told bool) bool {
	// Connections come first: what ends one is in an interface afterwards.
	for _, f := range []*os.File{s.TCP4, s.TCP6} {
		text, err := reread(f)
		if err != nil {
			continue
		}
		if untold, half := leaving(text); untold > 0 || half > 0 && !told {
			return false
		}
	}
	for _, n := range all {
		if !n.isIdle() {
			return false
		}
	}
	return true
}

// isIdle reports whether nothing of the host's waits in the interface.
func (n *Interface) isIdle() bool {
	if !n.tun.isEmpty() {
		return false
	}
	n.mu.Lock()
	waits := n.engine.Waiting() > 0
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

// leaving counts the connections of /proc/net/tcp or tcp6 that no program has any more (they have no inode), and that
// have not ended yet: those whose peers have not taken all that was written, or do not know of the end, and those of
// whose end only the peers have to speak.
func leaving(text []byte) (untold, half int) {
	const state, inode = 3, 9 // columns
	for in := bufio.NewScanner(bytes.NewReader(text)); in.Scan(); {
		words := bytes.Fields(in.Bytes())
		if len(words) <= inode || string(words[inode]) != "0" {
			continue
		}
		switch string(words[state]) {
		case tcpFinWait1, tcpLastAck, tcpClosing:
			untold++
		case tcpFinWait2:
			half++
		}
	}
	return untold, half
}
