// Command pingpong sends messages to and fro between two hosts of a fabric over a
// reliable connection: the "hello, world" of verbs.
//
//	go run ./examples/pingpong
//
// What happens, in the order in which a program with real hardware does it too:
// open the device, allocate a protection domain, register memory, create a
// completion queue and a queue pair, tell the peer how to reach it, connect,
// post receives, post sends, and wait for completions.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"softib/driver/live"
	"softib/proto/topo"
	"softib/verbs"
)

const (
	rounds  = 1000
	bufSize = 4096
)

func main() {
	if err := run(os.Stdout, rounds); err != nil {
		fmt.Fprintln(os.Stderr, "pingpong:", err)
		os.Exit(1)
	}
}

func run(w io.Writer, rounds int) error {
	// A fabric: two hosts, h1 and h2, at one switch. Bringing it up gives the
	// ports their addresses (LIDs), fills the switch's tables and makes the
	// links Active. With hardware, the subnet manager would have done this
	// long ago.
	graph, err := topo.ParseSpec("star:2")
	if err != nil {
		return err
	}
	fabric, err := live.New(graph, live.Config{})
	if err != nil {
		return err
	}
	defer fabric.Close()
	if _, err := fabric.BringUp(); err != nil {
		return err
	}

	// Each side is what would be a process on its own host.
	client, err := newSide(fabric.Hosts()[0])
	if err != nil {
		return err
	}
	defer client.close()
	server, err := newSide(fabric.Hosts()[1])
	if err != nil {
		return err
	}
	defer server.close()

	// To connect, each side needs to know the other's LID, queue pair number and
	// first packet sequence number. Programs exchange these over a socket or
	// through the connection manager; here one function knows both.
	if err := client.qp.Connect(client.info, server.info, verbs.DefaultConnect); err != nil {
		return err
	}
	if err := server.qp.Connect(server.info, client.info, verbs.DefaultConnect); err != nil {
		return err
	}

	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	served := make(chan error, 1)
	go func() { served <- server.serve(ctx, rounds) }()

	started := time.Now()
	var reply string
	for i := range rounds {
		if err := client.send(ctx, fmt.Sprintf("ping %d", i)); err != nil {
			return err
		}
		if reply, err = client.receive(ctx); err != nil {
			return err
		}
		if want := fmt.Sprintf("ping %d, and back", i); reply != want {
			return fmt.Errorf("round %d: got %q, want %q", i, reply, want)
		}
	}
	took := time.Since(started)
	if err := <-served; err != nil {
		return err
	}
	fmt.Fprintf(w, "%s (LID %d) and %s (LID %d): %d round trips in %v\n", "h1", client.info.LID, "h2", server.info.LID,
		rounds, took.Round(time.Microsecond))
	fmt.Fprintf(w, "the last reply: %q\n", reply)
	return nil
}

// side is one end of the connection and what it owns. The first half of its memory
// is sent from, the second half is received into.
type side struct {
	pd   *verbs.PD
	mr   *verbs.MR
	cq   *verbs.CQ
	qp   *verbs.QP
	info verbs.Info
	wc   [2]verbs.WC
	// Completions that came while another kind was waited for.
	sent, received int
	length         uint32
}

func newSide(host *live.Host) (*side, error) {
	s := &side{}
	var err error
	ctx := verbs.Open(host)

	// A protection domain holds together what may be used together.
	if s.pd, err = ctx.AllocPD(); err != nil {
		return nil, err
	}
	// Memory has to be registered before an adapter touches it. For a
	// connection that only sends, the right to write locally is enough.
	if s.mr, err = s.pd.RegMR(make([]byte, 2*bufSize), verbs.AccessLocalWrite); err != nil {
		return nil, err
	}
	// One completion queue may serve both directions.
	if s.cq, err = ctx.CreateCQ(16); err != nil {
		return nil, err
	}
	if s.qp, err = s.pd.CreateQP(verbs.QPInit{Type: verbs.RC, SendCQ: s.cq, RecvCQ: s.cq,
		Caps: verbs.DefaultCaps}); err != nil {
		return nil, err
	}
	// Port 1, and any first packet sequence number.
	s.info, err = s.qp.Info(1, 0x1234)
	return s, err
}

// close frees in the reverse order: what is in use cannot be freed.
func (s *side) close() {
	for _, f := range []func() error{s.qp.Close, s.cq.Close, s.mr.Close, s.pd.Close} {
		if err := f(); err != nil {
			fmt.Fprintln(os.Stderr, "pingpong:", err)
		}
	}
}

// send sends a text and waits until the peer's adapter has acknowledged it.
// Before that it makes sure that the answer will find a receive: a message
// without one is refused and tried again, which costs time.
func (s *side) send(ctx context.Context, text string) error {
	if err := s.qp.PostRecv(&verbs.RecvWR{SGList: s.mr.SGEs(bufSize, bufSize)}); err != nil {
		return err
	}
	n := copy(s.mr.Bytes()[:bufSize], text)
	if err := s.qp.PostSend(&verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendSignaled,
		SGList: s.mr.SGEs(0, n)}); err != nil {
		return err
	}
	for s.sent == 0 {
		if err := s.wait(ctx); err != nil {
			return err
		}
	}
	s.sent--
	return nil
}

// receive waits for the next message.
func (s *side) receive(ctx context.Context) (string, error) {
	for s.received == 0 {
		if err := s.wait(ctx); err != nil {
			return "", err
		}
	}
	s.received--
	return string(s.mr.Bytes()[bufSize : bufSize+int(s.length)]), nil
}

// wait sleeps until something completes. A program in a hurry spins on cq.Poll
// instead, as softib perf does.
func (s *side) wait(ctx context.Context) error {
	n, err := s.cq.Wait(ctx, s.wc[:])
	if err != nil {
		return err
	}
	for _, wc := range s.wc[:n] {
		if wc.Status != verbs.WCSuccess {
			return fmt.Errorf("%v ended with %v", wc.Opcode, wc.Status)
		}
		if wc.Opcode == verbs.WCRecv {
			s.received++
			s.length = wc.ByteLen
		} else {
			s.sent++
		}
	}
	return nil
}

// serve answers every message.
func (s *side) serve(ctx context.Context, rounds int) error {
	if err := s.qp.PostRecv(&verbs.RecvWR{SGList: s.mr.SGEs(bufSize, bufSize)}); err != nil {
		return err
	}
	for range rounds {
		text, err := s.receive(ctx)
		if err != nil {
			return err
		}
		if err := s.send(ctx, text+", and back"); err != nil {
			return err
		}
	}
	return nil
}
