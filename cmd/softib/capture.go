package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"softib/operate/control"
	"softib/proto/ib"
	"softib/proto/topo"
	"softib/proto/trace"
)

func newCapture() *cobra.Command {
	var name, file string
	var count int
	var length time.Duration
	r := captureRequest{}
	cmd := &cobra.Command{
		Use:   "capture HOST|A [B]",
		Short: "Write the packets of a host or a link to a file that Wireshark opens",
		Long: `Captures every packet that crosses the ports of a host, all ports of a switch, or
one cable, in both directions, until Ctrl-C, -c or --for ends it. The file is
pcapng with one interface for each port, as it was on the cable, CRCs included.

While it runs, programs whose packets cross these ports are switched packet by
packet, which is slower than usual. If the reader does not keep up, packets
wait a second for it, and are then left out of the capture and counted.

` + linkArgument,
		Example: `  softib capture h1 -w h1.pcapng
  softib capture leaf1 spine1 -w uplink.pcapng --for 10s
  softib capture h1 -w - | wireshark -k -i -
  softib capture h1 -w - | tshark -n -r -
  softib capture h1 --json -w - | jq .`,
		Args: arguments(1, 2, "a host, a switch or a link"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if file == "" {
				return next(&usageError{errors.New("no file to write to")},
					"softib capture %s -w FILE, or -w - for a pipe", args[0])
			}
			if count < 0 || length < 0 {
				return usage(cmd, errors.New("-c and --for want something above 0"))
			}
			p, err := newPlace(name)
			if err != nil {
				return err
			}
			var out io.Writer = cmd.OutOrStdout()
			if file == "-" {
				if newTerminal(out).isTTY && !r.JSON {
					return next(&usageError{errors.New("a capture on a terminal is of no use to anybody")},
						"softib capture %s -w - | tshark -n -r -", args[0])
				}
			} else {
				f := &lateFile{path: file}
				defer f.close()
				out = f
			}
			r.What, r.Count, r.For = args, count, length
			return p.capture(cmd.Context(), r, out, newTerminal(cmd.ErrOrStderr()))
		},
	}
	nameFlag(cmd, &name)
	f := cmd.Flags()
	f.StringVarP(&file, "write", "w", "", "write to `FILE`; - is the standard output")
	f.IntVarP(&count, "count", "c", 0, "end after `N` packets")
	f.DurationVar(&length, "for", 0, "end after `TIME`, such as 10s")
	f.BoolVar(&r.JSON, "json", false, "write lines of JSON instead of pcapng")
	return cmd
}

// lateFile is made when there is something to write: what was in it before stays if nothing comes, say because a host's
// name was mistyped.
type lateFile struct {
	path string
	f    *os.File
}

func (l *lateFile) Write(p []byte) (int, error) {
	if l.f == nil {
		f, err := os.Create(l.path)
		if err != nil {
			return 0, next(err, "softib capture -w a file that you may write, or -w - for a pipe")
		}
		l.f = f
	}
	return l.f.Write(p)
}

func (l *lateFile) close() {
	if l.f != nil {
		l.f.Close()
	}
}

// captureRequest asks for the packets of a node or a link.
type captureRequest struct {
	What  []string `json:"what"`
	Count int      `json:"count,omitempty"`
	// For is how long, from when it has begun; 0 is until the client has enough.
	For  time.Duration `json:"for,omitempty"`
	JSON bool          `json:"json,omitempty"`
}

// captured is what came of a capture; it is in the answer that follows the packets.
type captured struct {
	Packets uint64 `json:"packets"`
	Missed  uint64 `json:"missed"`
}

// capture has a fabric's packets written to out until ctx ends or there are enough.
//
// Who has had enough says so, and takes what is still to come.
func (p place) capture(ctx context.Context, r captureRequest, out io.Writer, t *terminal) error {
	conn, err := p.dial(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() {
		if c, ok := conn.(*net.UnixConn); ok {
			_ = c.CloseWrite()
		}
	})
	defer stop()
	to := &errWriter{w: out}
	var sum captured
	err = opCapture.CallTo(context.WithoutCancel(ctx), conn, r, to, func(c captured) error {
		sum = c
		return nil
	})
	switch {
	case errors.Is(to.err, syscall.EPIPE):
		return nil // whoever read it has seen enough
	case to.err != nil:
		return fmt.Errorf("the capture cannot be written: %w", to.err)
	case errors.Is(err, control.ErrHungUp):
		return next(fmt.Errorf("fabric %s ended during the capture: %w", p.name, err),
			"what came until then is in the file")
	case err != nil:
		return p.failed(err)
	}
	t.say("%s captured%s", numbered(int(sum.Packets), "packet", "packets"), missedText(sum.Missed))
	return nil
}

// errWriter remembers why it could not write.
type errWriter struct {
	w   io.Writer
	err error
}

func (w *errWriter) Write(b []byte) (n int, err error) {
	n, w.err = w.w.Write(b)
	return n, w.err
}

func missedText(n uint64) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(", %d more were not: the reader did not keep up", n)
}

const (
	// captureBuffer is how much of a capture waits for its reader.
	captureBuffer = 16 << 20
	// capturePatience is how long the fabric's packets wait for a reader that does not read.
	capturePatience = time.Second
)

// reel takes a capture's bytes from the fabric and gives them to who reads. Its buffer is bounded: a reader who does
// not read for capturePatience loses packets, and the fabric goes on.
type reel struct {
	to    interface{ Write(*trace.Event) error } // writes into buf
	limit int                                    // of packets; 0 is none
	stop  func()                                 // there are enough

	mu     sync.Mutex
	buf    []byte
	room   chan struct{} // sent to when the reader has taken something
	more   chan struct{} // sent to when there is something to read
	failed bool          // the reader did not come back in time
	captured
}

// Write takes an event.
func (x *reel) Write(e *trace.Event) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.limit > 0 && x.Packets >= uint64(x.limit) {
		return nil
	}
	if len(x.buf) >= captureBuffer && !x.failed {
		deadline := time.After(capturePatience)
		for len(x.buf) >= captureBuffer && !x.failed {
			x.mu.Unlock()
			select {
			case <-x.room:
			case <-deadline:
				x.failed = true
			}
			x.mu.Lock()
		}
	}
	if len(x.buf) >= captureBuffer {
		x.Missed++
		return nil
	}
	x.failed = false
	if err := x.to.Write(e); err != nil {
		return err
	}
	if e.Kind == trace.Packet {
		if x.Packets++; x.limit > 0 && x.Packets == uint64(x.limit) {
			x.stop()
		}
	}
	signal1(x.more)
	return nil
}

// signal1 sends to a channel with room for one, if there is none in it.
func signal1(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// reelBuffer is the buffer as a Writer. The lock is held by who writes an event.
type reelBuffer struct{ *reel }

func (b reelBuffer) Write(p []byte) (int, error) {
	b.buf = append(b.buf, p...)
	return len(p), nil
}

// take is what has come since; spare is memory to use next.
func (x *reel) take(spare []byte) []byte {
	x.mu.Lock()
	defer x.mu.Unlock()
	b := x.buf
	x.buf = spare[:0]
	signal1(x.room)
	return b
}

// capture answers a client.
func (s *server) capture(ctx context.Context, q captureRequest, r *control.Reply[captured]) error {
	if len(q.What) < 1 || len(q.What) > 2 || q.Count < 0 || q.For < 0 {
		return errors.New("the request has no capture: want a node or the two ends of a link")
	}
	refs, err := s.portsToCapture(q.What)
	if err != nil {
		return err
	}
	ctx, cancel := r.Heard(ctx)
	defer cancel()
	x := &reel{limit: q.Count, stop: cancel, room: make(chan struct{}, 1), more: make(chan struct{}, 1)}
	if err := s.reelWriter(x, q.JSON, refs); err != nil {
		return err
	}
	stop, err := s.f.Capture(refs, x)
	if err != nil {
		return err
	}
	if q.For > 0 {
		defer time.AfterFunc(q.For, cancel).Stop()
	}
	stopped := false
	end := func() error {
		if stopped {
			return nil
		}
		stopped = true
		return stop()
	}
	defer func() { _ = end() }()
	var spare []byte
	send := func() error {
		spare = x.take(spare)
		_, err := r.Write(spare)
		return err
	}
	for {
		if err := send(); err != nil {
			return err
		}
		select {
		case <-x.more:
			continue
		case <-ctx.Done():
		}
		// What the fabric still has comes while it is stopped.
		done := make(chan error, 1)
		go func() { done <- end() }()
		for {
			select {
			case <-x.more:
				if err := send(); err != nil {
					return err
				}
				continue
			case err := <-done:
				if err != nil {
					return err
				}
			}
			break
		}
		if err := send(); err != nil {
			return err
		}
		return r.Say(x.captured)
	}
}

// reelWriter makes the writer of a capture: its head is in the buffer from the start.
func (s *server) reelWriter(x *reel, asJSON bool, refs []topo.PortRef) error {
	if asJSON {
		x.to = trace.NewJSON(reelBuffer{x})
		return nil
	}
	w, err := trace.NewPcapng(reelBuffer{x}, trace.PcapngOptions{EpochNS: uint64(s.f.Start().UnixNano())})
	if err != nil {
		return err
	}
	g := s.f.Graph()
	for _, ref := range refs {
		if err := w.Port(uint32(ref.Node), ref.Port, g.PortName(ref), g.LinkRate(ref)); err != nil {
			return err
		}
	}
	x.to = w
	return nil
}

// portsToCapture are the ports of a node, or the two of a link.
func (s *server) portsToCapture(what []string) ([]topo.PortRef, error) {
	g := s.f.Graph()
	if n := g.ByName(what[0]); len(what) == 1 && n != nil {
		if !s.f.IsHere(n.Index) {
			return nil, elsewhere(n.Name, s.f.Where(n.Index))
		}
		var refs []topo.PortRef
		for p := range n.Ports {
			if p > 0 && n.Ports[p].Connected() {
				refs = append(refs, topo.PortRef{Node: n.Index, Port: ib.PortNum(p)})
			}
		}
		if len(refs) == 0 {
			return nil, next(fmt.Errorf("no cable is plugged into %s", n.Name), "softib capture another node")
		}
		return refs, nil
	}
	ref, err := s.mgr.LinkOf(what...)
	if err != nil {
		return nil, s.unknownLink(err)
	}
	// What crosses a cable is seen at either end, and one may be another machine's.
	if !s.f.IsHere(ref.Node) {
		if ref = g.Peer(ref); !s.f.IsHere(ref.Node) {
			return nil, elsewhere(g.PortName(ref), s.f.Where(ref.Node))
		}
	}
	return []topo.PortRef{ref}, nil
}
