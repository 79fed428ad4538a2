package sim

import (
	"fmt"

	"softib/fabric"
	"softib/node/agent"
	"softib/node/link"
	"softib/node/madrpc"
	"softib/proto/ib"
	"softib/proto/mad"
	"softib/subnet/sm"
)

// ManagerConfig is a subnet manager that runs at a host.
type ManagerConfig struct {
	sm.Config
	// JobTime is how long it computes routes; 0 is no time.
	JobTime ib.Time
}

// managerPort is a subnet manager at a host's port, with the management service between it and the packets. Nothing of
// it outlives StopManager but what it had saved.
type managerPort struct {
	sm     *sm.Manager
	rpc    *madrpc.Port
	agents madrpc.Agents
	host   uint32
	at     uint32 // its port
	gen    uint32 // of all that ever ran

	timerAt ib.Time
	jobTime ib.Time
	running bool
	paused  bool
}

// Watcher is told what management does, at the moment it is done.
type Watcher interface {
	// Served says that the agent of a node has answered a Get, or carried out a Set.
	Served(node int, r *Request)
	// Logged says what the manager of a host reports.
	Logged(host int, e sm.Event)
}

// Request is one of subnet management.
type Request struct {
	Set  bool
	Attr mad.AttrID
	Mod  uint32
	MKey uint64
}

// Watch tells w from now on.
func (s *Sim) Watch(w Watcher) { s.watcher = w }

// StartManager starts a subnet manager at the first port of a host: all that it asks and tells travels as packets from
// there, and agents send their traps. From the first one on, links that train become active by a manager alone.
func (s *Sim) StartManager(host int, cfg ManagerConfig) error {
	if host < 0 || host >= s.NumHosts() {
		return fmt.Errorf("sim: manager at host %d: want 0 to %d", host, s.NumHosts()-1)
	}
	h := &s.hosts[host]
	if s.Adapter(host) == nil {
		return fmt.Errorf("sim: manager at host %d: its engine is no adapter", host)
	}
	if h.manager != nil {
		return fmt.Errorf("sim: manager at host %d: one runs there already", host)
	}
	if !s.managed {
		s.managed, s.autoActive = true, false
	}
	s.gen++
	st := &managerPort{
		sm: sm.New(cfg.Config), host: uint32(host), at: h.at + 1, gen: s.gen, timerAt: ib.Never, jobTime: cfg.JobTime,
		// Answers to a former life of the port find nobody.
		rpc: madrpc.New(madrpc.Config{AgentAfter: madrpc.AgentID(s.gen << 8)}),
	}
	var err error
	if st.agents, err = sm.Register(st.rpc.Register); err != nil {
		return fmt.Errorf("sim: manager at host %d: %w", host, err)
	}
	h.manager = st
	s.LogFault(fabric.FaultManagerStart, st.at, nil)
	s.setIsSM(st, true)
	st.sm.Start(s.Now())
	s.manage(st)
	return nil
}

// StopManager kills the manager of a host: its state is gone, what it had asked is answered to
// nobody, and its port says no longer that there is one.
func (s *Sim) StopManager(host int) {
	if host < 0 || s.hosts[host].manager == nil {
		return
	}
	st := s.hosts[host].manager
	s.hosts[host].manager = nil
	s.LogFault(fabric.FaultManagerStop, st.at, nil)
	s.setIsSM(st, false)
}

// PauseManager lets the process of a host's manager stand still, or go on. What it had asked to be sent goes out when
// it goes on.
func (s *Sim) PauseManager(host int, on bool) {
	if st := s.hosts[host].manager; st != nil {
		st.paused = on
		s.manage(st)
	}
}

// Manager is the manager that runs at a host; nil if there is none.
func (s *Sim) Manager(host int) *sm.Manager {
	if host < 0 || s.hosts[host].manager == nil {
		return nil
	}
	return s.hosts[host].manager.sm
}

// ManagerMemory is what the managers of a host have saved, for the next one there.
func (s *Sim) ManagerMemory(host int) sm.Memory { return s.saved[host] }

// setIsSM makes a port say that it has a manager, or not.
func (s *Sim) setIsSM(st *managerPort, on bool) {
	at := &s.PortAt(st.at).Site
	s.manager(int(at.Node)).SetCapability(at.Num, mad.CapIsSM, on)
	s.stir(int(at.Node))
}

// manage lets a manager, if there is one, do what it can now.
func (s *Sim) manage(st *managerPort) {
	if st == nil || st.running || st.paused || s.hosts[st.host].stopped {
		return
	}
	st.running = true
	for s.manageStep(st) {
	}
	st.running = false
	for e, ok := st.sm.PollEvent(); ok; e, ok = st.sm.PollEvent() {
		if s.watcher != nil {
			s.watcher.Logged(int(st.host), e)
		}
	}
	if st.sm.Subnet() != nil {
		if m, ok := st.sm.TakeMemory(); ok {
			s.saved[int(st.host)] = m
		}
	}
	// What is due already and did not happen waits for something else to happen first.
	t := ib.Earlier(st.sm.NextDeadline(), st.rpc.NextDeadline())
	s.arm(&st.timerAt, t, s.Now()+ib.Microsecond, evManager, st.host, st.gen)
}

// manageStep moves everything one step and reports whether anything moved.
func (s *Sim) manageStep(st *managerPort) (moved bool) {
	if st.sm.NextDeadline() <= s.Now() {
		st.sm.HandleTimer(s.Now())
	}
	if st.rpc.NextDeadline() <= s.Now() {
		st.rpc.HandleTimer(s.Now())
	}
	var send sm.Send
	for st.sm.PollSend(s.Now(), &send) {
		moved = true
		if err := st.rpc.Send(s.Now(), st.agents.Of(&send), send); err != nil && send.Timeout > 0 {
			st.sm.HandleReply(s.Now(), send.Cookie, nil)
		}
	}
	if j, ok := st.sm.PollJob(); ok {
		moved = true
		done := func() {
			j.Run()
			st.sm.HandleJob(s.Now(), j)
		}
		if st.jobTime == 0 {
			done()
		} else {
			s.plan(s.Now()+st.jobTime, func() {
				if s.hosts[st.host].manager == st {
					done()
					s.manage(st)
				}
			})
		}
	}
	for s.hasRoom(st) {
		env, data, ok := st.rpc.PollSend()
		if !ok {
			break
		}
		moved = true
		s.sendMAD(st.host, st.at, &env, data)
	}
	for d, ok := st.rpc.PollRecv(); ok; d, ok = st.rpc.PollRecv() {
		moved = true
		st.sm.HandleDelivery(s.Now(), d)
	}
	return moved
}

// loopMax is how many packets to itself a manager may have on their way.
const loopMax = 16

// hasRoom reports whether a manager's port takes another packet. A datagram that waits in the
// service instead does not time out there.
func (s *Sim) hasRoom(st *managerPort) bool {
	h := &s.hosts[st.host]
	return !s.full(h, st.at, int(ib.VLMgmt)) && h.loop.Len() < loopMax
}

// managerTimeout lets a manager look at its timers, if it is still the one that set them.
func (s *Sim) managerTimeout(host, gen uint32) {
	if st := s.hosts[host].manager; st != nil && st.gen == gen && s.rings(&st.timerAt) {
		s.manage(st)
	}
}

// Inject sends a datagram from the first port of a host, as root of that host can.
func (s *Sim) Inject(host int, env mad.Envelope, data []byte) error {
	if host < 0 || host >= s.NumHosts() || len(data) != mad.Size {
		return fmt.Errorf("sim: %d bytes from host %d: want %d, from 0 to %d", len(data), host, mad.Size,
			s.NumHosts()-1)
	}
	s.sendMAD(uint32(host), s.hosts[host].at+1, &env, (*[mad.Size]byte)(data))
	return nil
}

// sendMAD makes a packet of a datagram and sends it from a port of a host.
func (s *Sim) sendMAD(host, at uint32, env *mad.Envelope, data *[mad.Size]byte) {
	site := &s.PortAt(at).Site
	a := s.manager(int(site.Node)).adapter.Port(site.Num)
	f := s.pool.Get()
	v := mad.View(data[:])
	agent.NewPacket(f.Packet, env, v.Class(), a.LID, a.PKeys, a.GIDs)
	f.Own(data[:])
	f.Seal()
	s.Mix(at, v.TID())
	if v.Class() == mad.ClassSMDirect {
		s.sendSMP(host, at, f)
	} else {
		s.sendFrom(at, f)
	}
}

// sendFrom sends a management packet of a host by its LIDs; one to itself comes back.
func (s *Sim) sendFrom(at uint32, f *link.Frame) {
	p := s.PortAt(at)
	if own := s.lidOf(int(p.Site.Node), p.Site.Num); own != 0 && f.LRH.DLID == own {
		s.loopBack(uint32(p.Site.Host), at, f)
		return
	}
	s.sendMgmt(at, f)
}

// loopBack sends a packet of a host to the host itself.
func (s *Sim) loopBack(host, at uint32, f *link.Frame) {
	s.hosts[host].loop.Push(f)
	s.Schedule(s.Now()+loopDelay, evLoop, host, uint32(s.PortAt(at).Site.Num))
}

// toManager hands a packet to the manager at the port where it has come to rest.
func (s *Sim) toManager(st *managerPort, f *link.Frame) {
	p := f.Sync()
	if agent.IsMAD(p) {
		site := &s.PortAt(st.at).Site
		a := s.manager(int(site.Node)).adapter.Port(site.Num)
		env := agent.EnvelopeOf(p, a.LMC, a.PKeys)
		st.rpc.Handle(s.Now(), env, (*[mad.Size]byte)(p.Payload))
	}
	s.pool.Put(f)
	s.manage(st)
}
