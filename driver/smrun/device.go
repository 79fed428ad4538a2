package smrun

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"softib/driver/ibsim"
	"softib/driver/umad"
	"softib/node/madrpc"
	"softib/proto/ib"
)

// OnIBSim is a session of ibsim's as a transport.
func OnIBSim(s *ibsim.Session) Transport { return simulator{s} }

type simulator struct{ *ibsim.Session }

func (s simulator) Close() error {
	s.Session.Close()
	return s.Err()
}

// device is a port of the kernel's as a transport.
type device struct {
	p     *umad.Port
	start time.Time
	end   context.CancelFunc
	bell  chan struct{}
	issm  io.Closer
	claim error

	mu    sync.Mutex
	queue []madrpc.Delivery
	err   error
	done  chan struct{}
}

// OnDevice is a port of a Linux management device as a transport. It ends with the port.
func OnDevice(p *umad.Port) Transport {
	ctx, end := context.WithCancel(context.Background())
	d := &device{p: p, start: time.Now(), end: end, bell: make(chan struct{}, 1), done: make(chan struct{})}
	go d.receive(ctx)
	return d
}

// receive takes what comes, for Poll to find.
func (d *device) receive(ctx context.Context) {
	defer close(d.done)
	for {
		x, err := d.p.Recv(ctx)
		x.Data = append([]byte(nil), x.Data...) // the port's until the next Recv
		d.mu.Lock()
		if err != nil {
			d.err = err
		} else {
			d.queue = append(d.queue, x)
		}
		d.mu.Unlock()
		d.ring()
		if err != nil {
			return
		}
	}
}

func (d *device) ring() {
	select {
	case d.bell <- struct{}{}:
	default:
	}
}

func (d *device) Now() ib.Time { return ib.Time(time.Since(d.start)) * ib.Nanosecond }

func (d *device) Register(r madrpc.Registration) (madrpc.AgentID, error) { return d.p.Register(r) }

func (d *device) Queue(_ ib.Time, id madrpc.AgentID, m madrpc.Message) error { return d.p.Send(id, m) }

func (d *device) Poll(take func(madrpc.Delivery)) bool {
	d.mu.Lock()
	list := d.queue
	d.queue = nil
	d.mu.Unlock()
	for _, x := range list {
		take(x)
	}
	return len(list) > 0
}

func (d *device) Bell() <-chan struct{} { return d.bell }

// SetIsSM holds the kernel's issm device open while a manager runs.
func (d *device) SetIsSM(on bool) {
	switch {
	case on && d.issm == nil:
		if c, err := d.p.ClaimSM(); err == nil {
			d.issm = c
		} else {
			d.claim = err // others will not see that a manager runs here; all else works
		}
	case !on && d.issm != nil:
		_ = d.issm.Close()
		d.issm = nil
	}
}

// Warning is what does not work although the port does.
func (d *device) Warning() error {
	if d.claim == nil {
		return nil
	}
	return fmt.Errorf("other managers will not see this one: %w", d.claim)
}

// Err is why the transport has ended.
func (d *device) Err() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.err
}

func (d *device) Close() error {
	d.SetIsSM(false)
	d.end()
	err := d.p.Close()
	<-d.done
	return err
}
