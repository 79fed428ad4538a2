package roce

import (
	"context"
	"errors"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"softib/internal/inbox"
	"softib/internal/mmsg"
	"softib/node/agent"
	"softib/node/madrpc"
	"softib/proto/ib"
	"softib/proto/mad"
	"softib/proto/wire"
)

// Session is the management service of the port: what comes to queue pair 1 of any address, and goes from there. Who
// connects the machine's programs uses it.
type Session struct {
	s     *Server
	inbox inbox.Inbox
	start time.Time

	mu     sync.Mutex // guards what is below
	open   bool
	ended  bool
	svc    *madrpc.Port
	timer  *time.Timer
	pkt    wire.Packet
	scrap  []byte
	groups map[ib.GID]*joined
}

func (x *Session) init(s *Server) {
	x.s, x.start, x.inbox, x.groups = s, time.Now(), inbox.New(), map[ib.GID]*joined{}
	x.svc = madrpc.New(madrpc.Config{})
	x.timer = time.AfterFunc(time.Hour, x.expire)
	x.timer.Stop()
}

// ErrBusy is matched when the management service has its user.
var ErrBusy = errors.New("queue pair 1 is in use")

// OpenMgmt opens the management service, for one user.
func (s *Server) OpenMgmt() (*Session, error) {
	x := &s.session
	x.mu.Lock()
	defer x.mu.Unlock()
	switch {
	case x.ended:
		return nil, ErrClosed
	case x.open:
		return nil, ErrBusy
	}
	x.open = true
	return x, nil
}

// Register makes an agent.
func (x *Session) Register(r madrpc.Registration) (madrpc.AgentID, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.svc.Register(r)
}

// Send sends a message of an agent.
func (x *Session) Send(id madrpc.AgentID, m madrpc.Message) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.ended {
		return ErrClosed
	}
	err := x.svc.Send(x.Now(), id, m)
	x.pump()
	return err
}

// Recv waits for the next delivery. Its data is the caller's.
func (x *Session) Recv(ctx context.Context) (madrpc.Delivery, error) {
	return x.inbox.Recv(ctx, nil, func() error { return ErrClosed })
}

// Now is the time since the port was taken.
func (x *Session) Now() ib.Time { return ib.Time(time.Since(x.start)) * ib.Nanosecond }

// Close ends the use of the service.
func (x *Session) Close() error {
	x.end()
	return nil
}

func (x *Session) end() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.ended {
		return
	}
	x.ended = true
	x.timer.Stop()
	for _, e := range x.s.entries() {
		e.out.close()
	}
	for _, g := range x.groups {
		unix.Close(g.fd)
	}
	x.inbox.Close()
}

// forget ends what an address that is in no table any more has sent by.
func (x *Session) forget(e *entry) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.ended {
		e.out.close()
	}
}

func (x *Session) expire() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.ended {
		x.svc.HandleTimer(x.Now())
		x.pump()
	}
}

// pump sends what the service has and keeps what it delivers.
func (x *Session) pump() {
	for env, data, ok := x.svc.PollSend(); ok; env, data, ok = x.svc.PollSend() {
		x.put(&env, data)
	}
	for d, ok := x.svc.PollRecv(); ok; d, ok = x.svc.PollRecv() {
		d.Data = slices.Clone(d.Data)
		x.inbox.Put(d)
	}
	if at := x.svc.NextDeadline(); at != ib.Never {
		x.timer.Reset(time.Duration(max(at-x.Now(), 0)/ib.Nanosecond) + time.Microsecond)
	}
}

// put sends a datagram. One that cannot be sent is as good as lost, and repeated like one.
func (x *Session) put(env *mad.Envelope, data *[mad.Size]byte) {
	p, table := &x.pkt, x.s.entries()
	if int(env.GIDIndex) >= len(table) || table[env.GIDIndex].lost > 0 || !env.HasGRH {
		x.s.Unsent.Add(1)
		return
	}
	agent.NewPacket(p, env, mad.View(data[:]).Class(), 0, []ib.PKey{ib.PKeyDefault}, x.s.GIDs())
	p.Payload = data[:]
	o, err := table[env.GIDIndex].out.to(p.BTH.DestQP)
	if err == nil {
		x.scrap = p.AppendRoCE(x.scrap[:0], o.port, 0)
		to := address{gid: env.GID, index: o.from.index}
		err = unix.Sendto(o.fd, x.scrap, unix.MSG_DONTWAIT, to.name(wire.RoCEPort))
	}
	if err != nil {
		x.s.Unsent.Add(1)
		return
	}
	x.s.Sent.Add(1)
}

// attend takes in what comes to a socket of block 0 until it is closed. Of its queue pairs only 1 is there; what is for
// others, where the kernel does not steer, is handed on.
func (x *Session) attend(s *socket, f *os.File, programs *relays) {
	raw, err := f.SyscallConn()
	if err != nil {
		return
	}
	rx := new(incoming)
	var p wire.Packet
	for {
		n := 0
		if raw.Read(func(uintptr) bool {
			n, err = s.receive(rx)
			return n > 0
		}) != nil {
			return
		}
		for i, at := 0, 0; i < n; {
			d, begin, next := rx.datagram(i, at, s)
			if block := destBlock(d[begin:]); programs != nil && block > 0 {
				if !programs.hand(block, d[begin:], &rx.from) {
					x.s.Unhanded.Add(1)
				}
			} else if p.ParseRoCE(d, begin, &rx.from) != nil {
				x.s.Malformed.Add(1)
			} else {
				x.s.Received.Add(1)
				x.take(s, &p)
			}
			if at = next; next == 0 {
				i++
			}
		}
	}
}

// take hands a packet to the service. What is no management datagram, or of no class that anybody wants, is dropped.
func (x *Session) take(s *socket, p *wire.Packet) {
	if p.BTH.DestQP != ib.QPNGSI || !p.BTH.Opcode.Info().Has(wire.ExtDETH) || p.DETH.QKey != ib.QKeyGSI ||
		len(p.Payload) != mad.Size || !p.BTH.PKey.Matches(ib.PKeyDefault) {
		return
	}
	env := agent.EnvelopeOf(p, 0, []ib.PKey{ib.PKeyDefault})
	i := slices.Index(x.s.GIDs(), s.to.gid)
	if i < 0 {
		return // the interface has just lost the address
	}
	env.GIDIndex = uint8(i)
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.ended {
		x.svc.Handle(x.Now(), env, (*[mad.Size]byte)(p.Payload))
		x.pump()
	}
}

// joined is a group that the interface is a member of for the sake of programs.
type joined struct {
	fd    int
	users int
}

// Join makes the interface a member of a group until Leave is called as often.
func (s *Server) Join(g ib.GID) error {
	x := &s.session
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.ended {
		return ErrClosed
	}
	if j := x.groups[g]; j != nil {
		j.users++
		return nil
	}
	fd, _, err := bindGroup(live(x.s.entries()), g)
	if err != nil {
		return err
	}
	// Programs have sockets of their own; this one is there to be a member, and keeps next to nothing of what comes.
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, 0)
	x.groups[g] = &joined{fd: fd, users: 1}
	return nil
}

// Leave ends a membership.
func (s *Server) Leave(g ib.GID) {
	x := &s.session
	x.mu.Lock()
	defer x.mu.Unlock()
	if j := x.groups[g]; j != nil && !x.ended {
		if j.users--; j.users == 0 {
			unix.Close(j.fd)
			delete(x.groups, g)
		}
	}
}

// Source is the address that packets to another leave from, by the machine's routes; it is not ok if there is no way,
// or one that does not begin at the interface. Scope is the index of the interface that a link-local address is meant
// at, or 0.
func (s *Server) Source(to ib.GID, scope uint32) (from ib.GID, ok bool) {
	index := s.Config().Index
	if scope != 0 && hasZone(to) && scope != uint32(index) {
		return from, false
	}
	there := address{gid: to, index: index}
	if withoutIPv6() && !wire.IsIPv4(to) {
		return from, false
	}
	fd, err := mmsg.Open(withoutIPv6())
	if err != nil {
		return from, false
	}
	defer unix.Close(fd)
	if unix.Connect(fd, there.name(wire.RoCEPort)) != nil {
		return from, false
	}
	if from, _, err = localName(fd); err != nil {
		return from, false
	}
	return from, slices.Contains(s.GIDs(), from)
}
