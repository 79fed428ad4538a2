package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"softib/driver/endpoint"
	"softib/driver/live"
	"softib/internal/packetsock"
	"softib/internal/patience"
	"softib/node/hca"
	"softib/proto/ib"
	"softib/proto/mad"
	"softib/verbs/attach/proto"
)

// helloPatience is how long a process may take to say what it wants.
const helloPatience = 10 * time.Second

// Listen makes the socket that Serve takes, for its owner only. A socket that nobody listens to any more is replaced.
func Listen(path string) (*packetsock.Listener, error) {
	l, err := packetsock.Listen(path)
	if err != nil {
		return nil, fmt.Errorf("attach: %w", err)
	}
	return l, nil
}

type server struct {
	f        *live.Fabric
	firmware string
	groups   Groups
}

// Serve lets processes attach until ctx ends. Firmware is the version that adapters show; without groups no process can
// join one.
func Serve(ctx context.Context, l *packetsock.Listener, f *live.Fabric, firmware string, groups Groups) error {
	s := &server{f: f, firmware: firmware, groups: groups}
	err := packetsock.Serve(ctx, l, 1+endpoint.Pieces, s.serve)
	if err != nil {
		return fmt.Errorf("attach: %w", err)
	}
	return nil
}

// serve talks to one process.
func (s *server) serve(c packetsock.Guest) {
	conn := proto.NewConn(c.UnixConn)
	refuse := func(format string, args ...any) {
		_ = conn.Send(&proto.Message{Refusal: fmt.Sprintf(format, args...)})
	}
	// What it says is read even if it is not let in: to close with something unread would take the refusal away from
	// it.
	_ = c.SetReadDeadline(time.Now().Add(patience.For(helloPatience)))
	m, fds, err := conn.Receive()
	proto.CloseAll(fds)
	if c.Refused != nil {
		refuse("%v", c.Refused)
		return
	}
	if err != nil || m.Hello == nil {
		refuse("the first words make no sense: want a hello")
		return
	}
	_ = c.SetReadDeadline(time.Time{})
	if m.Hello.Version != proto.Version {
		refuse("the library speaks version %d, the fabric %d; next: restart the fabric with the softib that "+
			"you use now", m.Hello.Version, proto.Version)
		return
	}
	if err := c.Use(m.Hello.Host); err != nil {
		refuse("%v", err)
		return
	}
	p, err := s.f.Attach(m.Hello.Host, live.Caller{PID: int(c.Cred.Pid), UID: c.Cred.Uid,
		Library: m.Hello.Library})
	if err != nil {
		refuse("%v", err)
		return
	}
	defer p.Close()
	if err := conn.Send(&proto.Message{Welcome: s.welcome(p)}, p.FDs...); err != nil {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	t := &talk{ctx: ctx, conn: conn, p: p, groups: s.groups, leave: map[uint64]func(){},
		notes: make(chan *proto.Message, notesMax),
		calls: callBook{conns: map[uint64]Conn{}, numbers: map[Conn]uint64{}}}
	defer t.leaveAll()
	defer t.closeConns()
	defer cancel()
	done := make(chan struct{})
	var passing sync.WaitGroup
	passing.Go(func() { t.pass(done) })
	t.answer()
	close(done)
	passing.Wait()
}

// welcome describes the adapter to a process.
func (s *server) welcome(p *live.Process) *proto.Welcome {
	h := p.Host()
	n := h.Node()
	w := &proto.Welcome{Version: proto.Version, Host: h.Name(), Block: p.Block()}
	w.Adapter = proto.Adapter{
		NodeGUID: n.GUID, SystemGUID: n.SystemGUID, VendorID: n.VendorID, DeviceID: uint32(n.DeviceID),
		Firmware: s.firmware, Desc: n.Desc,
		Limits: hca.DefaultLimits(), Reorder: h.Reorder(),
	}
	for i := 1; i <= n.NumPorts(); i++ {
		num := ib.PortNum(i)
		w.Adapter.PortGUIDs = append(w.Adapter.PortGUIDs, n.PortGUID(num))
		w.Ports = append(w.Ports, port(p, num))
	}
	return w
}

func port(p *live.Process, n ib.PortNum) proto.Port {
	hp, info, change := p.Port(n)
	return proto.Port{Num: n, HCA: hp, Info: info, Change: change}
}

// talk is the conversation with one process.
type talk struct {
	ctx  context.Context // ends with the conversation
	mu   sync.Mutex      // one message at a time
	conn *proto.Conn
	p    *live.Process

	groups  Groups
	leave   map[uint64]func() // by the number of the join
	paths   atomic.Int32      // that are asked for
	notes   chan *proto.Message
	calls   callBook
	joining sync.WaitGroup
}

func (t *talk) send(m *proto.Message, fds ...int) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.conn.Send(m, fds...)
}

// answer answers what the process asks until it is gone.
func (t *talk) answer() {
	for {
		m, fds, err := t.conn.Receive()
		proto.CloseAll(fds)
		if err != nil {
			return
		}
		if m.Violation != nil {
			t.p.Violated(*m.Violation)
		}
		if m.Heard != nil {
			t.p.Heard(m.Heard.Num, m.Heard.Change)
		}
		if m.Join != nil {
			t.join(m.Join)
		}
		if m.Leave != 0 {
			t.leaveGroup(m.Leave)
		}
		if m.Dead != 0 {
			t.p.LineDead(m.Dead)
		}
		if m.Pipes != 0 {
			_ = t.passPipes(m.Pipes, t.p.Pipes(m.Pipes))
		}
		if m.FindPath != nil {
			t.findPath(m.FindPath)
		}
		t.connections(m)
		if m.Ask == nil {
			continue
		}
		r, err := t.p.Resolve(endpoint.Key(m.Ask.Key))
		if errors.Is(err, live.ErrClosed) {
			return
		}
		// Without a way, packets go nowhere, by the slot that is there for it.
		a := &proto.Answer{ID: m.Ask.ID, Slot: r.Slot, Gen: r.Gen, Rings: r.Rings}
		for _, c := range r.New {
			if e, ok := c.Sender(); ok {
				err := t.send(&proto.Message{Outgoing: &proto.Ring{ID: c.ID, PID: e.PID}}, e.FDs()...)
				e.Close()
				if err != nil {
					return
				}
			}
		}
		if r.Line != nil && t.sendLine(r.Line) != nil {
			return
		}
		if err := t.send(&proto.Message{Answer: a}); err != nil {
			return
		}
	}
}

// sendLine hands out one end of a line, and with the first one the socket of all.
func (t *talk) sendLine(l *live.Line) error {
	m := &proto.Line{ID: l.ID, Sends: l.Sends, Peer: l.Far.Addr, MTU: min(l.Near.MTU, l.Far.MTU),
		SendSecret: l.Secret[:], RecvSecret: l.Back[:], SendIndex: l.Far.Index, RecvIndex: l.Near.Index, Port: l.Port,
		From: proto.Origin{LID: l.Origin.LID, LMC: l.Origin.LMC, GIDs: l.Origin.GIDs, DLID: l.Way.DLID, SL: l.Way.SL,
			PKey: l.Way.PKey, Block: l.Block}}
	t.mu.Lock()
	defer t.mu.Unlock()
	var fds []int
	if fd := t.p.TakeSocket(); fd >= 0 {
		fds = append(fds, fd)
		defer proto.CloseAll(fds)
	}
	return t.conn.Send(&proto.Message{Line: m}, fds...)
}

// pass tells the process what happens around it.
func (t *talk) pass(done <-chan struct{}) {
	for {
		select {
		case <-done:
			return
		case m := <-t.notes:
			if err := t.send(m); errors.Is(err, syscall.EPIPE) || errors.Is(err, net.ErrClosed) {
				return
			}
			continue
		case <-t.p.Bell():
		}
		for n, ok := t.p.PollNote(); ok; n, ok = t.p.PollNote() {
			var err error
			switch {
			case n.Incoming != nil:
				if e, ok := n.Incoming.Receiver(); ok {
					err = t.send(&proto.Message{Incoming: &proto.Ring{ID: n.Incoming.ID, Port: e.Port, PID: e.PID}},
						e.FDs()...)
					e.Close()
				}
			case n.Piped != nil:
				err = t.passPipes(n.Piped.ID, n.Piped.TakePipes())
			case n.Gone != nil:
				err = t.send(&proto.Message{Gone: n.Gone.ID})
			case n.Line != nil:
				err = t.sendLine(n.Line)
			case n.GoneLine != nil:
				err = t.send(&proto.Message{Gone: n.GoneLine.ID})
			case n.Port != 0:
				pt := port(t.p, n.Port)
				err = t.send(&proto.Message{Port: &pt})
			case n.Rejoin != 0:
				err = t.send(&proto.Message{Rejoin: n.Rejoin})
			}
			if errors.Is(err, syscall.EPIPE) || errors.Is(err, net.ErrClosed) {
				return
			}
		}
	}
}

// passPipes hands a process its ends of a ring's pipes, if there are any.
func (t *talk) passPipes(id uint32, fds []int) error {
	if len(fds) == 0 {
		return nil
	}
	defer proto.CloseAll(fds)
	return t.send(&proto.Message{Pipes: id}, fds...)
}

// Groups asks the subnet's administrator for programs. A port has one membership in a multicast group for all of its
// programs, those of librdmacm among them, so whoever keeps those fills this.
type Groups interface {
	// Join waits for the administrator's answer. Leave is called once.
	Join(ctx context.Context, host string, port ib.PortNum, want mad.MCMemberRecord) (got mad.MCMemberRecord,
		leave func(), err error)
	// Path is the administrator's path from a port.
	Path(ctx context.Context, host string, port ib.PortNum, want mad.PathRecord) (mad.PathRecord, error)
	// Listen and Connect use the port's connection manager, which is librdmacm's too. What happens is told by calls
	// that must not wait.
	Listen(host string, port ib.PortNum, sid uint64, told func(Happened)) (stop func(), err error)
	Connect(host string, q *proto.Connect, told func(Happened)) (Conn, error)
}

// pathsMax bounds what one process can ask for at a time.
const pathsMax = 64

// findPath asks for a path, while the conversation goes on.
func (t *talk) findPath(q *proto.FindPath) {
	a := &proto.Path{ID: q.ID}
	switch {
	case t.groups == nil:
		a.Why = "this fabric has no service for paths"
	case t.paths.Add(1) > pathsMax:
		a.Why = "the process asks for too many paths at once"
		t.paths.Add(-1)
	default:
		t.joining.Go(func() {
			defer t.paths.Add(-1)
			var err error
			if a.Got, err = t.groups.Path(t.ctx, t.p.Host().Name(), q.Port, q.Want); err != nil {
				a.Why = err.Error()
			}
			_ = t.send(&proto.Message{Path: a})
		})
		return
	}
	_ = t.send(&proto.Message{Path: a})
}

// membersMax bounds what one process can be a member of.
const membersMax = 1024

// join has a process's port join, while the conversation goes on.
func (t *talk) join(j *proto.Join) {
	ctx, cancel := context.WithCancel(context.Background())
	why := ""
	t.mu.Lock()
	switch _, taken := t.leave[j.ID]; {
	case t.groups == nil:
		why = "this fabric has no service for multicast groups"
	case taken:
		why = "the number of the membership is in use"
	case len(t.leave) >= membersMax:
		why = "the process is a member of too many groups"
	default:
		t.leave[j.ID] = cancel // until there is a membership to end
	}
	t.mu.Unlock()
	if why != "" {
		cancel()
		_ = t.send(&proto.Message{Joined: &proto.Joined{ID: j.ID, Why: why}})
		return
	}
	t.joining.Go(func() {
		defer cancel()
		answer := &proto.Joined{ID: j.ID}
		got, leave, err := t.groups.Join(ctx, t.p.Host().Name(), j.Port, j.Want)
		if err == nil {
			answer.Got = got
			t.mu.Lock()
			if _, wanted := t.leave[j.ID]; wanted {
				t.leave[j.ID] = leave
				leave = nil
			}
			t.mu.Unlock()
			if leave != nil {
				leave() // it has left before it was told
			}
		} else {
			answer.Why = err.Error()
			t.leaveGroup(j.ID)
		}
		_ = t.send(&proto.Message{Joined: answer})
	})
}

// leaveGroup ends a membership, or the question for one.
func (t *talk) leaveGroup(id uint64) {
	t.mu.Lock()
	leave := t.leave[id]
	delete(t.leave, id)
	t.mu.Unlock()
	if leave != nil {
		leave()
	}
}

// leaveAll ends what a process has not ended itself.
func (t *talk) leaveAll() {
	t.mu.Lock()
	ids := make([]uint64, 0, len(t.leave))
	for id := range t.leave {
		ids = append(ids, id)
	}
	t.mu.Unlock()
	for _, id := range ids {
		t.leaveGroup(id)
	}
	t.joining.Wait()
}
