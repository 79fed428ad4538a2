package live

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"softib/internal/inbox"
	"softib/node/agent"
	"softib/node/hca"
	"softib/node/inspect"
	"softib/node/madrpc"
	"softib/proto/ib"
	"softib/proto/mad"
	"softib/proto/topo"
)

// MgmtPort is the management service of one end port: what programs on a host send and receive management
// datagrams through. It is made when the first program opens it, and goes with the last.
type MgmtPort struct {
	f  *Fabric
	at *portState

	mu       sync.Mutex // guards what is below; never held together with another port's
	svc      *madrpc.Port
	sessions map[madrpc.AgentID]*Session
	users    int
	packet   packet
	timer    *time.Timer

	inMu  sync.Mutex // guards what others write
	inbox []packet
}

// Session is one program's use of a management port: some agents, and one queue of what has come for them.
type Session struct {
	p   *MgmtPort
	box inbox.Inbox

	mu     sync.Mutex
	issm   bool
	closed bool
}

// OpenMgmt opens the management service of a host's port or of a switch (port 0).
func (f *Fabric) OpenMgmt(ref topo.PortRef) (*Session, error) {
	if f.closed.Load() {
		return nil, ErrClosed
	}
	at := f.endPort(ref)
	if at == nil {
		return nil, fmt.Errorf("live: %s has no management service: want a host's port, or port 0 of a switch",
			f.graph.PortName(ref))
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	p := at.service
	if p == nil {
		f.agentIDs += 1 << 8 // answers to a former life of the port find nobody
		p = &MgmtPort{f: f, at: at, svc: madrpc.New(madrpc.Config{AgentAfter: f.agentIDs}),
			sessions: map[madrpc.AgentID]*Session{}}
		p.timer = time.AfterFunc(time.Hour, p.turn)
		p.timer.Stop()
		at.service = p
	}
	p.users++
	return &Session{p: p, box: inbox.New()}, nil
}

// MgmtSession is OpenMgmt for those who take a session of any fabric.
func (f *Fabric) MgmtSession(ref topo.PortRef) (inspect.Session, error) {
	s, err := f.OpenMgmt(ref)
	if err != nil {
		return nil, err // and no session that is there and nil
	}
	return s, nil
}

// Register makes an agent, as umad_register does.
func (s *Session) Register(r madrpc.Registration) (madrpc.AgentID, error) {
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	if s.closed { // which is written under both locks
		return 0, ErrClosed
	}
	id, err := s.p.svc.Register(r)
	if err == nil {
		s.p.sessions[id] = s
	}
	return id, err
}

// Unregister takes an agent away; its requests come back as canceled.
func (s *Session) Unregister(id madrpc.AgentID) error {
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	if s.p.sessions[id] != s {
		return fmt.Errorf("live: agent %d is not this session's", id)
	}
	err := s.p.svc.Unregister(id)
	s.p.pump(nil, nil)
	delete(s.p.sessions, id)
	return err
}

// Send sends a message of one of the session's agents.
func (s *Session) Send(id madrpc.AgentID, m madrpc.Message) error {
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	err := s.p.svc.Send(s.p.f.Now(), id, m)
	if err == nil {
		s.p.pump(nil, nil)
	}
	return err
}

// Queue is Send for one who sends many and then calls Poll: nothing moves before that.
func (s *Session) Queue(now ib.Time, id madrpc.AgentID, m madrpc.Message) error {
	s.p.mu.Lock()
	err := s.p.svc.Send(now, id, m)
	s.p.mu.Unlock()
	return err
}

// Poll lets everything move and hands what has come for this session to take, without waiting. The delivery's data may
// be kept only until take returns. It reports whether there was anything.
func (s *Session) Poll(take func(madrpc.Delivery)) bool {
	queue := s.box.TakeAll()
	for _, d := range queue {
		take(d)
	}
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	return s.p.pump(s, take) || len(queue) > 0
}

// Bell is sent to when something has come for the session. One value may stand for many.
func (s *Session) Bell() <-chan struct{} { return s.box.Bell() }

// Recv waits for the next delivery. Its data is the caller's.
func (s *Session) Recv(ctx context.Context) (madrpc.Delivery, error) {
	return s.box.Recv(ctx, s.p.f.closing, func() error { return ErrClosed })
}

// SetIsSM says that a subnet manager runs at the port, or does not any more.
func (s *Session) SetIsSM(on bool) {
	s.mu.Lock()
	on = on && !s.closed
	was := s.issm
	s.issm = on
	s.mu.Unlock()
	if was != on {
		s.p.f.SetIsSM(s.Ref(), on)
	}
}

// Close ends the session: its agents go, and with the last session the port's service.
func (s *Session) Close() error {
	s.SetIsSM(false)
	p := s.p
	p.mu.Lock()
	s.mu.Lock()
	already := s.closed
	s.closed = true
	s.mu.Unlock()
	for id, of := range p.sessions {
		if of == s {
			p.svc.Unregister(id)
			delete(p.sessions, id)
		}
	}
	p.pump(nil, nil)
	p.mu.Unlock()
	s.box.Close()
	if already {
		return nil
	}
	p.f.mu.Lock()
	if p.users--; p.users == 0 {
		p.at.service = nil
		p.timer.Stop()
	}
	p.f.mu.Unlock()
	return nil
}

// Ref is the port that the session is at.
func (s *Session) Ref() topo.PortRef { return s.p.at.ref() }

// drop leaves a packet at the port and sees to it that it is looked at.
func (p *MgmtPort) drop(m *packet) {
	p.inMu.Lock()
	p.inbox = append(p.inbox, *m)
	first := len(p.inbox) == 1
	p.inMu.Unlock()
	if first {
		go p.turn()
	}
}

// turn looks at what has come and at what is due.
func (p *MgmtPort) turn() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.svc.HandleTimer(p.f.Now())
	p.pump(nil, nil)
}

// pump moves everything that can move: out of the service, through the fabric, back into the service, and to the
// sessions, of which one may take its deliveries at once. It reports whether there were any.
func (p *MgmtPort) pump(one *Session, take func(madrpc.Delivery)) (any bool) {
	for moved := true; moved; {
		moved = p.drain()
		now := p.f.Now()
		for env, data, ok := p.svc.PollSend(); ok; env, data, ok = p.svc.PollSend() {
			moved = true
			p.out(now, &env, data)
		}
		for x, ok := p.svc.PollRecv(); ok; x, ok = p.svc.PollRecv() {
			moved, any = true, true
			if s := p.sessions[x.Agent]; s != nil && s == one {
				take(x)
			} else if s != nil {
				s.keep(x)
			}
		}
	}
	if at := p.svc.NextDeadline(); at != ib.Never {
		p.timer.Reset(time.Duration(max(at-p.f.Now(), 0)/ib.Nanosecond) + time.Microsecond)
	}
	return any
}

// drain takes what others have left.
func (p *MgmtPort) drain() bool {
	p.inMu.Lock()
	in := p.inbox
	p.inbox = nil
	p.inMu.Unlock()
	now := p.f.Now()
	for i := range in {
		p.in(now, &in[i])
	}
	return len(in) > 0
}

// in hands a packet from the fabric to the service. What no program wants goes to the node's agent.
func (p *MgmtPort) in(now ib.Time, m *packet) {
	if p.svc.Handle(now, m.env, &m.data) {
		return
	}
	method, at := mad.View(m.data[:]).Method(), place{p.at.node, p.at.num, false}
	var here bool
	p.f.lock(now)
	switch {
	case m.BTH.DestQP != ib.QPNSMI && !method.IsResponse():
		next, on, mine := p.f.answer(at, m)
		if here = mine; on {
			p.f.carry(next, m, nil)
		}
	case m.BTH.DestQP == ib.QPNSMI && method == mad.MethodTrapRepress:
		p.f.deliver(at, m)
	}
	p.f.mu.Unlock()
	if here {
		p.svc.Handle(now, m.env, &m.data)
	}
}

// out puts a datagram of the service onto the fabric.
func (p *MgmtPort) out(now ib.Time, env *mad.Envelope, data *[mad.Size]byte) {
	m, at := &p.packet, p.at
	p.f.lock(now)
	from := at.onAdapter()
	m.data, m.away = *data, false
	agent.NewPacket(&m.Packet, env, mad.View(data[:]).Class(), at.lid(at.num), from.PKeys, from.GIDs)
	mine := p.f.carry(place{at.node, at.num, true}, m, p)
	p.f.mu.Unlock()
	if mine {
		p.in(now, m)
	}
}

// onAdapter is a host's port as management has written it; all is zero for a switch's.
func (p *portState) onAdapter() (a hca.Port) {
	if p.host != nil {
		a = *p.host.eng.Port(p.num)
	}
	return a
}

// keep queues a delivery.
func (s *Session) keep(x madrpc.Delivery) {
	x.Data = slices.Clone(x.Data)
	s.box.Put(x)
}

// lock takes the fabric's lock for carrying packets.
func (f *Fabric) lock(now ib.Time) {
	f.mu.Lock()
	f.now = max(f.now, now)
	f.eng.Advance(f.now)
}

// SetIsSM counts the subnet managers that run at a port, one more or one less; the port's capabilities say whether
// there is any.
func (f *Fabric) SetIsSM(ref topo.PortRef, on bool) {
	f.lock(f.Now())
	defer f.mu.Unlock()
	p := f.port(ref)
	if p == nil {
		return
	}
	if on {
		p.managers++
	} else {
		p.managers--
	}
	p.agent.SetCapability(ref.Port, mad.CapIsSM, p.managers > 0)
	f.stir(p.node)
}

// Now is the fabric's time.
func (s *Session) Now() ib.Time { return s.p.f.Now() }
