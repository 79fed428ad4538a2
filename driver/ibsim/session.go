package ibsim

import (
	"errors"
	"sync"
	"time"

	"softib/node/madrpc"
	"softib/proto/ib"
	"softib/proto/mad"
)

// Session is a port with the services of package madrpc: agents, answers matched with requests, retries, messages in
// segments. It is driven by one goroutine; the bell may be waited for by it.
type Session struct {
	port  *Port
	svc   *madrpc.Port
	start time.Time
	in    []Packet

	// env and data are a datagram that found ibsim's queue full.
	held    bool
	env     mad.Envelope
	data    [mad.Size]byte
	err     error
	errOnce sync.Once

	timer *time.Timer
	due   ib.Time // what the timer is set to
}

// busyPause is when to try again if nothing comes that would tell that ibsim's queue has room. Every request that it
// takes gives an answer, so this is for what gives none.
const busyPause = 200 * time.Microsecond

// InFlight is how many requests on their way keep ibsim busy; more only fill its queue.
const InFlight = 64

// recvBatch is how many datagrams are taken at once.
const recvBatch = 32

// NewSession gives a port its services. The session owns the port from then on.
func NewSession(p *Port) *Session {
	s := &Session{port: p, svc: madrpc.New(madrpc.Config{}), start: time.Now(), in: make([]Packet, recvBatch),
		due: ib.Never}
	s.timer = time.AfterFunc(time.Hour, p.ring)
	s.timer.Stop()
	return s
}

// Port is the port below.
func (s *Session) Port() *Port { return s.port }

// Now is the session's time, counted from its beginning.
func (s *Session) Now() ib.Time { return ib.Time(time.Since(s.start)) * ib.Nanosecond }

// Register makes an agent.
func (s *Session) Register(r madrpc.Registration) (madrpc.AgentID, error) { return s.svc.Register(r) }

// Unregister takes an agent away; its requests come back as canceled.
func (s *Session) Unregister(id madrpc.AgentID) error { return s.svc.Unregister(id) }

// Queue takes a message. It leaves with the next Poll.
func (s *Session) Queue(now ib.Time, id madrpc.AgentID, m madrpc.Message) error {
	return s.svc.Send(now, id, m)
}

// Poll sends what is queued, receives what has come and hands it to take, without waiting. The delivery's data may be
// kept only until take returns. It reports whether there was anything for take.
func (s *Session) Poll(take func(madrpc.Delivery)) bool {
	any := false
	for {
		now := s.Now()
		s.svc.HandleTimer(now)
		n := s.receive(now)
		for {
			d, ok := s.svc.PollRecv()
			if !ok {
				break
			}
			any = true
			take(d)
		}
		s.send()
		if n < len(s.in) {
			break
		}
	}
	s.setTimer()
	return any
}

// receive takes one batch from the port, and reports how many.
func (s *Session) receive(now ib.Time) int {
	n, err := s.port.Recv(s.in)
	for i := range s.in[:n] {
		s.svc.Handle(now, s.in[i].Env, &s.in[i].Data)
	}
	s.fail(err)
	return n
}

// send lets datagrams out until ibsim's queue is full. What comes next stays with the service, where its time does not
// run yet.
func (s *Session) send() {
	for {
		if !s.held {
			env, data, ok := s.svc.PollSend()
			if !ok {
				return
			}
			s.env, s.data, s.held = env, *data, true
		}
		err := s.port.Send(&s.env, &s.data)
		if errors.Is(err, ErrBusy) {
			return
		}
		s.fail(err)
		s.held = false
	}
}

// fail keeps the first error, for Err.
func (s *Session) fail(err error) {
	if err != nil {
		s.errOnce.Do(func() { s.err = err })
	}
}

// Err is what went wrong first with the sockets; requests time out from then on.
func (s *Session) Err() error { return s.err }

// setTimer has the bell rung when something is due. Deadlines mostly move on as answers come: the timer is let
// run out early rather than set again each time.
func (s *Session) setTimer() {
	due := s.svc.NextDeadline()
	now := s.Now()
	if s.held {
		due = min(due, now+ib.Time(busyPause)*ib.Nanosecond)
	}
	if due == ib.Never || (s.due > now && s.due <= due) {
		return
	}
	s.due = due
	s.timer.Reset(time.Duration(max(due-now, 0)/ib.Nanosecond) + time.Microsecond)
}

// Bell is sent to when something has come or is due, once Poll has found nothing more.
func (s *Session) Bell() <-chan struct{} { return s.port.Bell() }

// SetIsSM says that a subnet manager runs at the port, or does not any more.
func (s *Session) SetIsSM(on bool) { s.fail(s.port.SetIsSM(on)) }

// Close ends the session and detaches its port.
func (s *Session) Close() error {
	s.timer.Stop()
	return s.port.Close()
}
