package umad

import (
	"context"
	"fmt"
	"sync"
	"time"

	"softib/node/agent"
	"softib/node/madrpc"
	"softib/proto/ib"
	"softib/proto/mad"
)

// cable is two hosts' ports that are joined: h1 port 1 and h2 port 1. h1 has a second port without a cable.
// Each port has a real management service (madrpc) and each host a real agent; between them is a lock and no wire.
type cable struct {
	mu     sync.Mutex
	start  time.Time
	hosts  map[string]*testHost
	timer  *time.Timer
	isSM   chan string   // what SetIsSM did
	active chan struct{} // both ends of the cable have become active
	drop   func(env mad.Envelope, dgram *[mad.Size]byte) bool
	opened int
	closed int
}

type testHost struct {
	c        *cable
	name     string
	guid     ib.GUID
	ports    []mad.PortInfo // by number
	pkeys    map[ib.PortNum]mad.PKeyTable
	sl2vl    map[ib.PortNum]mad.SLtoVL
	arb      map[[2]int]mad.VLArb
	agent    *agent.Agent
	service  []*madrpc.Port
	sessions []map[madrpc.AgentID]*testSession
}

func (h *testHost) portGUID(p ib.PortNum) ib.GUID { return h.guid + ib.GUID(p) }

func (h *testHost) NodeInfo(p ib.PortNum) mad.NodeInfo {
	return mad.NodeInfo{
		BaseVersion: 1, ClassVersion: 1, NodeType: ib.NodeCA, NumPorts: uint8(len(h.ports) - 1),
		SystemImageGUID: h.guid,
		NodeGUID:        h.guid, PortGUID: h.portGUID(p), PartitionCap: 32, DeviceID: 0x1017, VendorID: 0x2C9,
	}
}
func (h *testHost) NodeDescription() string                   { return h.name + " HCA-1" }
func (h *testHost) PortInfo(p ib.PortNum) mad.PortInfo        { return h.ports[p] }
func (h *testHost) ReadCounter(ib.PortNum, ib.Counter) uint64 { return 0 }
func (h *testHost) ClearCounter(ib.PortNum, ib.Counter)       {}
func (h *testHost) GUIDs(p ib.PortNum, block int) (g mad.GUIDInfo) {
	if block == 0 {
		g[0] = h.portGUID(p)
	}
	return g
}
func (h *testHost) MlnxExtPortInfo(ib.PortNum) (pi mad.MlnxExtPortInfo)               { return pi }
func (h *testHost) ReadLaneCounter(ib.PortNum, ib.LaneCounter, int) uint64            { return 0 }
func (h *testHost) PollNotice() (n agent.Notice, ok bool)                             { return n, false }
func (h *testHost) SetMlnxExtPortInfo(ib.Time, ib.PortNum, mad.MlnxExtPortInfo) error { return nil }
func (h *testHost) SetGUIDs(ib.Time, ib.PortNum, int, mad.GUIDInfo) error             { return nil }
func (h *testHost) PKeys(p ib.PortNum, _ int) mad.PKeyTable                           { return h.pkeys[p] }
func (h *testHost) SetPKeys(_ ib.Time, p ib.PortNum, _ int, t mad.PKeyTable) error {
	h.pkeys[p] = t
	return nil
}
func (h *testHost) SLtoVL(p, _ ib.PortNum) mad.SLtoVL { return h.sl2vl[p] }
func (h *testHost) SetSLtoVL(_ ib.Time, p, _ ib.PortNum, t mad.SLtoVL) error {
	h.sl2vl[p] = t
	return nil
}
func (h *testHost) VLArb(p ib.PortNum, b mad.VLArbBlock) mad.VLArb {
	return h.arb[[2]int{int(p), int(b)}]
}
func (h *testHost) SetVLArb(_ ib.Time, p ib.PortNum, b mad.VLArbBlock, t mad.VLArb) error {
	h.arb[[2]int{int(p), int(b)}] = t
	return nil
}
func (h *testHost) SetPortInfo(_ ib.Time, p ib.PortNum, pi mad.PortInfo) error {
	switch pi.PortState {
	case ib.PortNoChange:
		pi.PortState = h.ports[p].PortState
	case ib.PortDown:
		pi.PortState = ib.PortInit // a link that goes down trains at once
	}
	pi.PortPhysicalState = h.ports[p].PortPhysicalState
	h.ports[p] = pi
	if h.c.hosts["h1"].ports[1].PortState == ib.PortActive && h.c.hosts["h2"].ports[1].PortState == ib.PortActive {
		select {
		case h.c.active <- struct{}{}:
		default:
		}
	}
	return nil
}

func newCable() *cable {
	c := &cable{start: time.Now(), hosts: map[string]*testHost{}, isSM: make(chan string, 64),
		active: make(chan struct{}, 1)}
	c.timer = time.AfterFunc(time.Hour, c.expire)
	for i, ports := range []int{2, 1} {
		h := &testHost{
			c: c, name: fmt.Sprintf("h%d", i+1), guid: ib.GUID(0x0002_C903_0000_0000 + (i+1)<<8),
			ports: make([]mad.PortInfo, ports+1),
			pkeys: map[ib.PortNum]mad.PKeyTable{}, sl2vl: map[ib.PortNum]mad.SLtoVL{}, arb: map[[2]int]mad.VLArb{},
			service: make([]*madrpc.Port, ports+1), sessions: make([]map[madrpc.AgentID]*testSession, ports+1),
		}
		for p := 1; p <= ports; p++ {
			pi := &h.ports[p]
			*pi = mad.PortInfo{
				GidPrefix: ib.DefaultGIDPrefix, LinkWidthEnabled: 3, LinkWidthSupported: 3, LinkWidthActive: ib.Width4x,
				PortState: ib.PortDown, PortPhysicalState: ib.PhysPolling, LinkDownDefaultState: ib.PhysPolling,
				NeighborMTU: ib.MTU4096, MTUCap: ib.MTU4096, VLCap: 4, OperationalVLs: 1, GUIDCap: 8,
				VLArbitrationHighCap: 8, VLArbitrationLowCap: 8, LocalPortNum: ib.PortNum(p), SubnetTimeOut: 18,
				RespTimeValue: 16,
			}
			pi.SetSpeeds(ib.EDR, ib.EDR, ib.EDR)
			if p == 1 {
				pi.PortState, pi.PortPhysicalState = ib.PortActive, ib.PhysLinkUp
				pi.LID, pi.MasterSMLID, pi.LMC = ib.LID(i+1), 1, 0
			}
			h.pkeys[ib.PortNum(p)] = mad.PKeyTable{0xFFFF, 0x8001}
			h.service[p] = madrpc.New(madrpc.Config{})
			h.sessions[p] = map[madrpc.AgentID]*testSession{}
		}
		h.agent = agent.New(h)
		c.hosts[h.name] = h
	}
	return c
}

func (c *cable) now() ib.Time { return ib.Time(time.Since(c.start).Nanoseconds()) * ib.Nanosecond }

// CA implements Ports.
func (c *cable) CA(host string) (CA, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	h := c.hosts[host]
	if h == nil {
		return CA{}, fmt.Errorf("%s: %w; next: softib status lists hosts", host, ErrNoHost)
	}
	ca := CA{NodeType: ib.NodeCA, NodeGUID: h.guid, SystemGUID: h.guid, Firmware: "1.2.3", Hardware: "0",
		Type: "softib"}
	for p := 1; p < len(h.ports); p++ {
		pi := &h.ports[p]
		ca.Ports = append(ca.Ports, Port{
			Num: ib.PortNum(p), GUID: h.portGUID(ib.PortNum(p)), GIDPrefix: pi.GidPrefix, LID: pi.LID, LMC: pi.LMC,
			SMLID: pi.MasterSMLID, SMSL: pi.MasterSMSL, State: pi.PortState, Phys: pi.PortPhysicalState,
			Rate:         pi.Rate(),
			Capabilities: pi.CapabilityMask, PKeys: []ib.PKey{0xFFFF, 0x8001, 0},
		})
	}
	return ca, nil
}

// Open implements Ports.
func (c *cable) Open(host string, port ib.PortNum) (Session, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.opened++
	return &testSession{c: c, h: c.hosts[host], port: port, wake: make(chan struct{}, 1)}, nil
}

// SetIsSM implements Ports.
func (c *cable) SetIsSM(host string, port ib.PortNum, on bool) error {
	c.mu.Lock()
	pi := &c.hosts[host].ports[port]
	pi.CapabilityMask &^= mad.CapIsSM
	if on {
		pi.CapabilityMask |= mad.CapIsSM
	}
	c.mu.Unlock()
	c.isSM <- fmt.Sprintf("%s/%d %v", host, port, on)
	return nil
}

type testSession struct {
	c      *cable
	h      *testHost
	port   ib.PortNum
	agents []madrpc.AgentID
	inbox  []madrpc.Delivery
	wake   chan struct{}
}

func (s *testSession) service() *madrpc.Port { return s.h.service[s.port] }

func (s *testSession) Register(r madrpc.Registration) (madrpc.AgentID, error) {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	id, err := s.service().Register(r)
	if err == nil {
		s.agents = append(s.agents, id)
		s.h.sessions[s.port][id] = s
	}
	return id, err
}

func (s *testSession) Unregister(id madrpc.AgentID) error {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	err := s.service().Unregister(id)
	s.c.drain()
	delete(s.h.sessions[s.port], id)
	return err
}

func (s *testSession) Send(id madrpc.AgentID, m madrpc.Message) error {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	err := s.service().Send(s.c.now(), id, m)
	s.c.drain()
	return err
}

func (s *testSession) Recv(ctx context.Context) (madrpc.Delivery, error) {
	for {
		s.c.mu.Lock()
		if len(s.inbox) > 0 {
			d := s.inbox[0]
			s.inbox = s.inbox[1:]
			s.c.mu.Unlock()
			return d, nil
		}
		s.c.mu.Unlock()
		select {
		case <-ctx.Done():
			return madrpc.Delivery{}, ctx.Err()
		case <-s.wake:
		}
	}
}

func (s *testSession) Close() error {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	for _, id := range s.agents {
		if s.h.sessions[s.port][id] == s {
			_ = s.service().Unregister(id)
		}
	}
	s.c.drain()
	for _, id := range s.agents {
		delete(s.h.sessions[s.port], id)
	}
	s.c.closed++
	return nil
}

func (c *cable) expire() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drain()
}

// drain carries datagrams until there are none, hands out what was delivered, and sets the timer.
func (c *cable) drain() {
	next := ib.Never
	for again := true; again; {
		again, next = false, ib.Never
		for _, name := range [...]string{"h1", "h2"} {
			h := c.hosts[name]
			for p := 1; p < len(h.service); p++ {
				h.service[p].HandleTimer(c.now())
				for {
					env, dgram, ok := h.service[p].PollSend()
					if !ok {
						break
					}
					again = true
					d := *dgram
					if c.drop == nil || !c.drop(env, &d) {
						c.carry(h, ib.PortNum(p), env, &d)
					}
				}
				for {
					d, ok := h.service[p].PollRecv()
					if !ok {
						break
					}
					if s := h.sessions[p][d.Agent]; s != nil {
						d.Data = append([]byte(nil), d.Data...)
						s.inbox = append(s.inbox, d)
						select {
						case s.wake <- struct{}{}:
						default:
						}
					}
				}
				next = min(next, h.service[p].NextDeadline())
			}
		}
	}
	if next != ib.Never {
		c.timer.Reset(time.Duration(max(0, next-c.now())/ib.Nanosecond) * time.Nanosecond)
	}
}

// far is the other end of a port's cable.
func (c *cable) far(h *testHost, p ib.PortNum) *testHost {
	switch {
	case p != 1 || h.ports[p].PortPhysicalState != ib.PhysLinkUp:
		return nil
	case h.name == "h1":
		return c.hosts["h2"]
	}
	return c.hosts["h1"]
}

// carry takes a datagram to whom it is for, and the answer of a node itself back.
func (c *cable) carry(h *testHost, p ib.PortNum, env mad.Envelope, d *[mad.Size]byte) {
	from := mad.Envelope{LID: h.ports[p].LID, QPN: env.QPN, QKey: env.QKey, SL: env.SL}
	v := mad.View(d[:])
	if v.Class() == mad.ClassSMDirect {
		c.direct(h, p, true, mad.Envelope{LID: ib.LIDPermissive}, d)
		return
	}
	to, in := c.far(h, p), ib.PortNum(1)
	if env.LID == h.ports[p].LID || env.LID == 0 || env.LID == ib.LIDPermissive {
		to, in = h, p
	}
	if to == nil || to != h && env.LID != to.ports[in].LID {
		return
	}
	if to.service[in].Handle(c.now(), from, d) || madrpc.IsResponse(d[:]) {
		return
	}
	if _, ok := to.agent.HandleMAD(c.now(), in, d[:], d[:]); ok {
		back := from.Reply()
		back.LID = to.ports[in].LID
		h.service[p].Handle(c.now(), back, d)
	}
}

// direct follows a directed route.
func (c *cable) direct(h *testHost, p ib.PortNum, fromHere bool, env mad.Envelope, d *[mad.Size]byte) {
	for {
		v := h.agent.Deliver(c.now(), p, fromHere, d[:])
		switch v.Do {
		case agent.SendPort:
			if h = c.far(h, v.Port); h == nil {
				return
			}
			p, fromHere = 1, false
		case agent.ToManager:
			h.service[p].Handle(c.now(), env, d)
			return
		default:
			return
		}
	}
}
