package main

import (
	"bufio"
	"context"
	"encoding/gob"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"softib/driver/smrun"
	"softib/node/madrpc"
	"softib/proto/ib"
)

// A port of a running fabric as a transport in another process. After {"v":1,"op":"mgmt","host":"h1"} and
// {"line":"ready"} both sides speak gob: the client says mgmtSaid, the fabric mgmtHeard. The request ends with its
// brace: nothing follows it that could be taken for gob.

// mgmtSaid registers an agent or sends a message.
type mgmtSaid struct {
	Register *madrpc.Registration
	Agent    madrpc.AgentID
	Message  *madrpc.Message
}

// mgmtHeard answers a registration or brings what has come.
type mgmtHeard struct {
	Registered madrpc.AgentID
	Refused    string
	Delivery   *madrpc.Delivery
}

// mgmt lends a port of this fabric to a client until it hangs up.
func (s *server) mgmt(ctx context.Context, conn net.Conn, host string, tell func(answer) error) error {
	ref, err := endPort(s.f.Fabric, host)
	if err != nil {
		return err
	}
	session, err := s.f.OpenMgmt(ref)
	if err != nil {
		return err
	}
	defer session.Close()
	if err := tell(answer{Line: "ready"}); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	heard := make(chan mgmtHeard)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	wg.Go(func() {
		defer cancel()
		for dec := gob.NewDecoder(bufio.NewReader(conn)); ; {
			var x mgmtSaid
			if dec.Decode(&x) != nil {
				return // it has hung up
			}
			var a mgmtHeard
			switch {
			case x.Register != nil:
				id, err := session.Register(*x.Register)
				if a.Registered = id; err != nil {
					a = mgmtHeard{Refused: err.Error()}
				}
			case x.Message == nil:
				return
			default:
				if session.Send(x.Agent, *x.Message) == nil {
					continue
				}
				a.Delivery = &madrpc.Delivery{Agent: x.Agent, Kind: madrpc.Canceled, Cookie: x.Message.Cookie}
			}
			select {
			case heard <- a:
			case <-ctx.Done():
				return
			}
		}
	})
	out := bufio.NewWriterSize(conn, 64<<10)
	enc := gob.NewEncoder(out)
	for {
		select {
		case <-ctx.Done():
			return nil
		case a := <-heard:
			err = enc.Encode(a)
		case <-session.Bell():
			// A client that does not read must hold up nobody but itself, so nothing is written while the port's
			// service is ours.
			var come []madrpc.Delivery
			session.Poll(func(d madrpc.Delivery) {
				d.Data = append([]byte(nil), d.Data...)
				come = append(come, d)
			})
			for i := range come {
				err = errors.Join(err, enc.Encode(mgmtHeard{Delivery: &come[i]}))
			}
		}
		if err = errors.Join(err, out.Flush()); err != nil {
			return nil //nolint:nilerr // it has hung up
		}
	}
}

// mgmtLink is the client's end.
type mgmtLink struct {
	conn  net.Conn
	start time.Time
	out   *bufio.Writer
	enc   *gob.Encoder
	bell  chan struct{}
	done  chan struct{}

	mu         sync.Mutex
	registered []mgmtHeard
	in         []madrpc.Delivery
	err        error
}

// openMgmt opens a port of a running fabric.
func (p place) openMgmt(ctx context.Context, host string) (smrun.Transport, error) {
	conn, err := p.dial(ctx)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	in := bufio.NewReaderSize(conn, 64<<10)
	err = func() error {
		b, err := json.Marshal(request{Version: protocolVersion, Op: opMgmt, Host: host})
		if err != nil {
			return err
		}
		if _, err := conn.Write(b); err != nil {
			return err
		}
		line, err := in.ReadBytes('\n')
		if err != nil {
			return err
		}
		var a answer
		if err := json.Unmarshal(line, &a); err != nil {
			return err
		}
		return a.err()
	}()
	if !stop() {
		return nil, errors.Join(ctx.Err(), conn.Close())
	}
	if err != nil {
		conn.Close()
		if nextOf(err) == "" {
			err = next(fmt.Errorf("fabric %s: %w", p.name, err),
				"restart the fabric with the softib that you use now: softib down, softib up -d")
		}
		return nil, err
	}
	l := &mgmtLink{conn: conn, start: time.Now(), out: bufio.NewWriterSize(conn, 64<<10), bell: make(chan struct{}, 1),
		done: make(chan struct{})}
	l.enc = gob.NewEncoder(l.out)
	go l.receive(in)
	return l, nil
}

// receive takes what comes.
func (l *mgmtLink) receive(in io.Reader) {
	defer close(l.done)
	for dec := gob.NewDecoder(in); ; {
		var x mgmtHeard
		err := dec.Decode(&x)
		l.mu.Lock()
		switch {
		case err != nil:
			l.err = errors.New("the fabric has ended")
		case x.Delivery != nil:
			l.in = append(l.in, *x.Delivery)
		default:
			l.registered = append(l.registered, x)
		}
		l.mu.Unlock()
		select {
		case l.bell <- struct{}{}:
		default:
		}
		if err != nil {
			return
		}
	}
}

// Now is the time since the port was opened.
func (l *mgmtLink) Now() ib.Time { return ib.Time(time.Since(l.start)) * ib.Nanosecond }

// Register makes an agent. It is called before there is anything else to hear.
func (l *mgmtLink) Register(r madrpc.Registration) (madrpc.AgentID, error) {
	if err := errors.Join(l.enc.Encode(mgmtSaid{Register: &r}), l.out.Flush()); err != nil {
		return 0, err
	}
	for {
		l.mu.Lock()
		if len(l.registered) > 0 {
			x := l.registered[0]
			l.registered = l.registered[1:]
			l.mu.Unlock()
			if x.Refused != "" {
				return 0, errors.New(x.Refused)
			}
			return x.Registered, nil
		}
		err := l.err
		l.mu.Unlock()
		if err != nil {
			return 0, err
		}
		<-l.bell
	}
}

// Queue takes a message; it leaves with the next Poll.
func (l *mgmtLink) Queue(_ ib.Time, id madrpc.AgentID, m madrpc.Message) error {
	return l.enc.Encode(mgmtSaid{Agent: id, Message: &m})
}

// Poll sends what is queued and hands over what has come.
func (l *mgmtLink) Poll(take func(madrpc.Delivery)) bool {
	_ = l.out.Flush() // if it fails the fabric has ended, which receive notices
	l.mu.Lock()
	in := l.in
	l.in = nil
	l.mu.Unlock()
	for _, d := range in {
		take(d)
	}
	return len(in) > 0
}

// Bell is sent to when something has come.
func (l *mgmtLink) Bell() <-chan struct{} { return l.bell }

// SetIsSM does nothing: managers run in the fabric's own process.
func (l *mgmtLink) SetIsSM(bool) {}

// Err is why the fabric does not answer any more.
func (l *mgmtLink) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// Close gives the port back.
func (l *mgmtLink) Close() error {
	err := l.conn.Close()
	<-l.done
	return err
}
