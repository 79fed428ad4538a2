package control

import (
	"bufio"
	"context"
	"encoding/gob"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"softib/node/inspect"
	"softib/node/madrpc"
	"softib/proto/ib"
)

// Port makes a port of a running fabric a transport in another process. When the fabric has said that it is there both
// sides speak gob: the client says portSaid, the fabric portHeard.
var Port = Op[PortRequest, None]{Name: "mgmt"}

// PortRequest names the node that has the port; empty for the first host with a cable.
type PortRequest struct {
	Host string `json:"host"`
}

// portSaid registers an agent or sends a message.
type portSaid struct {
	Register *madrpc.Registration
	Agent    madrpc.AgentID
	Message  *madrpc.Message
}

// portHeard answers a registration or brings what has come.
type portHeard struct {
	Registered madrpc.AgentID
	Refused    string
	Delivery   *madrpc.Delivery
}

// ServePort lends a session at a port to a client until it hangs up, and closes it.
func ServePort(ctx context.Context, r *Reply[None], session inspect.Session) error {
	defer session.Close()
	r.Hush() // from here on it is gob
	if err := r.Say(None{}); err != nil {
		return err
	}
	conn := r.Conn
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	heard := make(chan portHeard)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	wg.Go(func() {
		defer cancel()
		for dec := gob.NewDecoder(bufio.NewReader(conn)); ; {
			var x portSaid
			if dec.Decode(&x) != nil {
				return // it has hung up
			}
			var a portHeard
			switch {
			case x.Register != nil:
				id, err := session.Register(*x.Register)
				if a.Registered = id; err != nil {
					a = portHeard{Refused: err.Error()}
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
		var err error
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
				err = errors.Join(err, enc.Encode(portHeard{Delivery: &come[i]}))
			}
		}
		if err = errors.Join(err, out.Flush()); err != nil {
			return nil //nolint:nilerr // it has hung up
		}
	}
}

// portLink is the client's end.
type portLink struct {
	conn  net.Conn
	start time.Time
	out   *bufio.Writer
	enc   *gob.Encoder
	bell  chan struct{}
	done  chan struct{}

	mu         sync.Mutex
	registered []portHeard
	in         []madrpc.Delivery
	err        error
}

// OpenPort opens a port of the fabric at the other end of a connection, which is the transport's from then on. The
// connection is closed if that fails.
func OpenPort(ctx context.Context, conn net.Conn, host string) (madrpc.Transport, error) {
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	ear := newEar(ctx, conn, Port.Name)
	in := bufio.NewReaderSize(ear, 64<<10)
	err := Port.ask(conn, PortRequest{Host: host})
	for said := false; err == nil && !said; {
		var text []byte
		if text, err = in.ReadBytes('\n'); err == nil {
			_, said, err = read(text, &None{})
		}
	}
	ear.forever = true // nothing comes of a port at which nothing happens
	if !stop() {
		return nil, errors.Join(ctx.Err(), conn.Close())
	}
	if err != nil {
		conn.Close()
		return nil, lost(ctx, err)
	}
	l := &portLink{conn: conn, start: time.Now(), out: bufio.NewWriterSize(conn, 64<<10), bell: make(chan struct{}, 1),
		done: make(chan struct{})}
	l.enc = gob.NewEncoder(l.out)
	go l.receive(in)
	return l, nil
}

// receive takes what comes.
func (l *portLink) receive(in io.Reader) {
	defer close(l.done)
	for dec := gob.NewDecoder(in); ; {
		var x portHeard
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
func (l *portLink) Now() ib.Time { return ib.Time(time.Since(l.start)) * ib.Nanosecond }

// Register makes an agent. It is called before there is anything else to hear.
func (l *portLink) Register(r madrpc.Registration) (madrpc.AgentID, error) {
	if err := errors.Join(l.enc.Encode(portSaid{Register: &r}), l.out.Flush()); err != nil {
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
func (l *portLink) Queue(_ ib.Time, id madrpc.AgentID, m madrpc.Message) error {
	return l.enc.Encode(portSaid{Agent: id, Message: &m})
}

// Poll sends what is queued and hands over what has come.
func (l *portLink) Poll(take func(madrpc.Delivery)) bool {
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
func (l *portLink) Bell() <-chan struct{} { return l.bell }

// SetIsSM does nothing: managers run in the fabric's own process.
func (l *portLink) SetIsSM(bool) {}

// Err is why the fabric does not answer any more.
func (l *portLink) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// Close gives the port back.
func (l *portLink) Close() error {
	err := l.conn.Close()
	<-l.done
	return err
}
