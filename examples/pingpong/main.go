// Command pingpong sends messages to and fro between two processes on two hosts
// of a running fabric, over a reliable connection: the "hello, world" of verbs.
//
//	softib up -d
//	go run ./examples/pingpong -host h1 -listen 127.0.0.1:17471
//	go run ./examples/pingpong -host h9 -connect 127.0.0.1:17471    # in another terminal
//
// What happens, in the order in which a program with real hardware does it too:
// open the device, allocate a protection domain, register memory, create a
// completion queue and a queue pair, tell the peer over TCP how to reach it,
// connect, post receives, post sends, and wait for completions.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"time"

	"softib/verbs"
	"softib/verbs/attach"
)

const bufSize = 4096

func main() {
	var where attach.Options
	flag.StringVar(&where.Host, "host", "", "the host to be on; what softib exec says if empty")
	flag.StringVar(&where.Name, "name", "", "the fabric, as softib up --name had it")
	listen := flag.String("listen", "", "wait for the peer at this TCP address")
	connect := flag.String("connect", "", "go to the peer at this TCP address")
	rounds := flag.Int("n", 1000, "round trips")
	flag.Parse()

	// Everything that waits ends with this, be it by Ctrl-C.
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt)
	defer cancel()
	if err := run(ctx, where, *listen, *connect, *rounds); err != nil {
		fmt.Fprintln(os.Stderr, "pingpong:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, where attach.Options, listen, connect string, rounds int) error {
	// The adapter of a host of the fabric. Whatever is made on it goes with it.
	dev, err := attach.Open(where)
	if err != nil {
		return err
	}
	defer dev.Close()
	s, err := newSide(dev)
	if err != nil {
		return err
	}

	// To connect, each side needs to know the other's LID, queue pair number and
	// first packet sequence number. Any way to tell it will do; most programs
	// have a TCP connection for it, or use the connection manager.
	peer, err := exchange(ctx, listen, connect, hello{s.info, dev.Name(), rounds})
	if err != nil {
		return err
	}
	defer peer.Close()
	if err := s.qp.Connect(s.info, peer.Info, verbs.DefaultConnect); err != nil {
		return err
	}
	// A message that comes before its receive is refused and tried again, so
	// the receive is there before the peer hears that we are ready.
	if err := s.postRecv(); err != nil {
		return err
	}
	if err := peer.barrier(); err != nil {
		return err
	}
	fmt.Printf("%s (LID %d) is connected to %s (LID %d)\n", dev.Name(), s.info.LID, peer.Host, peer.LID)
	if listen != "" {
		err = s.serve(ctx, peer.Rounds)
	} else {
		err = s.play(ctx, rounds)
	}
	// Who leaves first takes its adapter away, and with it the acknowledgement
	// that the other may still wait for.
	return errors.Join(err, peer.barrier())
}

// hello is what the sides tell each other.
type hello struct {
	verbs.Info
	Host   string
	Rounds int
}

// peer is the other side, as it said.
type peer struct {
	hello
	net.Conn
}

// exchange meets the peer at a TCP address and tells it how to reach this side.
func exchange(ctx context.Context, listen, connect string, own hello) (*peer, error) {
	var c net.Conn
	var err error
	switch {
	case (listen == "") == (connect == ""):
		return nil, errors.New("want either -listen or -connect")
	case listen != "":
		l, e := net.Listen("tcp", listen)
		if e != nil {
			return nil, e
		}
		defer l.Close()
		defer context.AfterFunc(ctx, func() { l.Close() })()
		c, err = l.Accept()
	default:
		c, err = new(net.Dialer).DialContext(ctx, "tcp", connect)
	}
	if err != nil {
		return nil, err
	}
	p := &peer{Conn: c}
	if err := errors.Join(json.NewEncoder(c).Encode(own), p.readHello()); err != nil {
		c.Close()
		return nil, err
	}
	return p, nil
}

// readHello reads one line, and not a byte of what follows.
func (p *peer) readHello() error {
	var line []byte
	for b := make([]byte, 1); len(line) == 0 || b[0] != '\n'; line = append(line, b[0]) {
		if _, err := io.ReadFull(p, b); err != nil {
			return err
		}
	}
	return json.Unmarshal(line, &p.hello)
}

// barrier returns when both sides have called it.
func (p *peer) barrier() error {
	if _, err := p.Write([]byte{1}); err != nil {
		return err
	}
	_, err := io.ReadFull(p, make([]byte, 1))
	return err
}

// side is one end of the connection and what it owns. The first half of its memory
// is sent from, the second half is received into.
type side struct {
	mr   *verbs.MR
	cq   *verbs.CQ
	qp   *verbs.QP
	info verbs.Info
	wc   [2]verbs.WC
	// Completions that came while another kind was waited for.
	sent, received int
	length         uint32
}

func newSide(dev verbs.Device) (*side, error) {
	s := &side{}
	ctx := verbs.Open(dev)

	// A protection domain holds together what may be used together.
	pd, err := ctx.AllocPD()
	if err != nil {
		return nil, err
	}
	// Memory has to be registered before an adapter touches it. For a
	// connection that only sends, the right to write locally is enough.
	if s.mr, err = pd.RegMR(make([]byte, 2*bufSize), verbs.AccessLocalWrite); err != nil {
		return nil, err
	}
	// One completion queue may serve both directions.
	if s.cq, err = ctx.CreateCQ(16); err != nil {
		return nil, err
	}
	if s.qp, err = pd.CreateQP(verbs.QPInit{Type: verbs.RC, SendCQ: s.cq, RecvCQ: s.cq,
		Caps: verbs.DefaultCaps}); err != nil {
		return nil, err
	}
	// Port 1, and any first packet sequence number.
	s.info, err = s.qp.Info(1, 0x1234)
	return s, err
}

// play sends and wants each message back.
func (s *side) play(ctx context.Context, rounds int) error {
	started := time.Now()
	var reply string
	for i := range rounds {
		if err := s.send(ctx, fmt.Sprintf("ping %d", i)); err != nil {
			return err
		}
		var err error
		if reply, err = s.receive(ctx); err != nil {
			return err
		}
		if want := fmt.Sprintf("ping %d, and back", i); reply != want {
			return fmt.Errorf("round %d: got %q, want %q", i, reply, want)
		}
	}
	fmt.Printf("%d round trips in %v\n", rounds, time.Since(started).Round(time.Microsecond))
	fmt.Printf("the last reply: %q\n", reply)
	return nil
}

// serve answers every message.
func (s *side) serve(ctx context.Context, rounds int) error {
	for range rounds {
		text, err := s.receive(ctx)
		if err != nil {
			return err
		}
		if err := s.send(ctx, text+", and back"); err != nil {
			return err
		}
	}
	fmt.Printf("%d messages answered\n", rounds)
	return nil
}

func (s *side) postRecv() error {
	return s.qp.PostRecv(&verbs.RecvWR{SGList: s.mr.SGEs(bufSize, bufSize)})
}

// send sends a text and waits until the peer's adapter has acknowledged it.
func (s *side) send(ctx context.Context, text string) error {
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

// receive waits for the next message, and posts the receive for the one after.
func (s *side) receive(ctx context.Context) (string, error) {
	for s.received == 0 {
		if err := s.wait(ctx); err != nil {
			return "", err
		}
	}
	s.received--
	text := string(s.mr.Bytes()[bufSize : bufSize+int(s.length)])
	return text, s.postRecv()
}

// wait sleeps until something completes. A program in a hurry spins on cq.Poll
// instead, as softib perf does.
func (s *side) wait(ctx context.Context) error {
	n, err := s.cq.Wait(ctx, s.wc[:])
	if err != nil {
		return err
	}
	for i := range s.wc[:n] {
		wc := &s.wc[i]
		if err := wc.Err(); err != nil {
			return err
		}
		if wc.Opcode.IsRecv() {
			s.received++
			s.length = wc.ByteLen
		} else {
			s.sent++
		}
	}
	return nil
}
