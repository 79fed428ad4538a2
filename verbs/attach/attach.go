package attach

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"runtime/debug"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"softib/driver/endpoint"
	"softib/internal/patience"
	"softib/internal/release"
	"softib/internal/rundir"
	"softib/node/agent"
	"softib/node/hca"
	"softib/proto/ib"
	"softib/proto/mad"
	"softib/verbs"
	"softib/verbs/attach/proto"
)

// Options say where to attach.
type Options struct {
	// Host is the host of the fabric whose adapter it is, such as h1; empty: the one that softib exec runs on.
	Host string
	// Name is the fabric's, as softib up --name had it, or OWNER/NAME for one that another user shares; empty: the one
	// that softib exec runs on, or else the default one.
	Name string
	// Socket is where the fabric's daemon listens, for one that is somewhere else; Name does not count then.
	Socket string
}

// socket finds the daemon.
func (o Options) socket() (string, error) {
	if o.Socket != "" {
		return o.Socket, nil
	}
	if s := os.Getenv("SOFTIB_VERBS"); s != "" && o.Name == "" {
		return s, nil
	}
	dir, name, shared, err := rundir.Shared(cmp.Or(o.Name, rundir.DefaultName))
	if !shared {
		dir = rundir.Dir()
		err = rundir.Check(dir)
	}
	if err != nil {
		return "", fmt.Errorf("attach: %w: %w; next: softib up -d", ErrNoFabric, err)
	}
	return rundir.Verbs(dir, name), nil
}

// Errors of Open.
var (
	// ErrNoFabric is matched when no daemon answers.
	ErrNoFabric = errors.New("no fabric")
	// ErrRefused is matched when the daemon does not let the process attach.
	ErrRefused = errors.New("refused")
)

// attachPatience is how long the daemon may take to answer.
const attachPatience = 10 * time.Second

// Device is a process's part of a host's adapter. Programs give it to verbs.Open, and use what that returns.
type Device struct {
	member  *endpoint.Member
	conn    *proto.Conn
	page    *endpoint.Page
	welcome proto.Welcome

	mu    sync.Mutex // guards what follows
	ports map[ib.PortNum]proto.Port
	calls map[uint64]chan *proto.Message // that wait for an answer, by number
	asked uint64
	down  bool
	conns map[uint64]*Conn          // by number
	ears  map[uint64]func(*Request) // who listens, by number
	rings endpoint.Rings
	lines *lines // to other machines; nil before there are any

	gone chan struct{} // closed when the conversation has ended
	once sync.Once
}

// inside is what the device does for package verbs and for drop-in libraries, and keeps from programs.
type inside struct {
	*endpoint.Member
	d *Device
}

// Adapter is what the device is, as management has it.
func (i inside) Adapter() proto.Adapter { return i.d.welcome.Adapter }

// NumPorts counts the ports.
func (i inside) NumPorts() int { return len(i.d.welcome.Ports) }

// PortInfo is what management says of a port.
func (i inside) PortInfo(n ib.PortNum) (proto.Port, bool) {
	i.d.mu.Lock()
	defer i.d.mu.Unlock()
	p, ok := i.d.ports[n]
	return p, ok
}

// Close closes the device.
func (i inside) Close() error { return i.d.Close() }

// Driver is what drives the device, for package verbs. Programs have no use for it.
func (d *Device) Driver() any { return inside{d.member, d} }

// Name is the name of the host, such as h1.
func (d *Device) Name() string { return d.member.Name() }

// Open attaches this process to a host of a running fabric.
func Open(o Options) (*Device, error) {
	if o.Host = cmp.Or(o.Host, os.Getenv("SOFTIB_HOST")); o.Host == "" {
		return nil, fmt.Errorf("attach: no host is named: %w; next: name one, or softib exec HOST -- PROGRAM",
			ErrNoFabric)
	}
	socket, err := o.socket()
	if err != nil {
		return nil, err
	}
	c, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: socket, Net: "unixpacket"})
	if err != nil {
		return nil, fmt.Errorf("attach: %w: %w; next: softib up -d", ErrNoFabric, err)
	}
	d := &Device{conn: proto.NewConn(c), ports: map[ib.PortNum]proto.Port{}, calls: map[uint64]chan *proto.Message{},
		conns: map[uint64]*Conn{}, ears: map[uint64]func(*Request){},
		gone: make(chan struct{})}
	// Peers pull large payloads from our memory, which a kernel with Yama allows to those whom we name.
	_ = unix.Prctl(unix.PR_SET_PTRACER, ^uintptr(0), 0, 0, 0)
	_ = c.SetDeadline(time.Now().Add(patience.For(attachPatience)))
	if err := d.greet(o.Host); err != nil {
		c.Close()
		return nil, err
	}
	_ = c.SetDeadline(time.Time{})
	settleIn()
	go d.listen()
	return d, nil
}

// greet says hello and makes the endpoint.
func (d *Device) greet(host string) error {
	err := d.conn.Send(&proto.Message{Hello: &proto.Hello{Version: proto.Version, Host: host,
		Library: release.Version}})
	if err != nil {
		return fmt.Errorf("attach: %w: %w; next: softib up -d", ErrNoFabric, err)
	}
	m, fds, err := d.conn.Receive()
	if err != nil {
		return fmt.Errorf("attach: %w: %w; next: softib status", ErrNoFabric, err)
	}
	defer proto.CloseAll(fds)
	switch {
	case m.Refusal != "":
		return fmt.Errorf("attach: %w: %s", ErrRefused, m.Refusal)
	case m.Welcome == nil || len(fds) != endpoint.Pieces:
		return fmt.Errorf("attach: the fabric's first words make no sense: %w; next: restart the fabric with "+
			"the softib that you use now", proto.ErrMessage)
	case m.Welcome.Version != proto.Version:
		return fmt.Errorf("attach: the fabric speaks version %d, this library %d: %w; next: restart the fabric "+
			"with the softib that you use now", m.Welcome.Version, proto.Version, ErrRefused)
	}
	w := m.Welcome
	d.welcome = *w
	share, err := endpoint.MapShare([endpoint.Pieces]int(fds))
	if err != nil {
		return err
	}
	d.page = share.Page
	cfg := hca.Config{NodeGUID: w.Adapter.NodeGUID, Ports: len(w.Ports), PortGUID: w.Adapter.PortGUIDs,
		Limits: w.Adapter.Limits, KeySeed: uint8(w.Block), Reorder: w.Adapter.Reorder}
	if d.member, err = endpoint.NewMember(endpoint.Config{Name: w.Host, Engine: cfg, Block: w.Block,
		Router: (*router)(d)}, share); err != nil {
		return err
	}
	for _, p := range w.Ports {
		d.ports[p.Num] = p
		d.member.SetPort(p.Num, p.HCA)
	}
	d.member.ForgetEvents() // the ports' first states are no news
	return nil
}

// listen hears the daemon until the conversation ends.
func (d *Device) listen() {
	for {
		m, fds, err := d.conn.Receive()
		if err != nil {
			if errors.Is(err, syscall.EINTR) {
				continue
			}
			break
		}
		d.hear(m, fds)
	}
	close(d.gone)
	d.mu.Lock()
	closing := d.down
	d.mu.Unlock()
	if !closing {
		d.member.Fail()
	}
}

// hear does what a message asks for. It must not wait for the endpoint's lock where the holder may wait for an answer:
// only what has no answer behind it is done on the spot.
func (d *Device) hear(m *proto.Message, fds []int) {
	defer func() { proto.CloseAll(fds) }()
	switch {
	case m.Answer != nil:
		d.answered(m.Answer.ID, m)
	case m.Joined != nil:
		d.answered(m.Joined.ID, m)
	case m.Path != nil:
		d.answered(m.Path.ID, m)
	case m.Listened != nil:
		d.answered(m.Listened.ID, m)
	case m.Requested != nil, m.Accepted != nil, m.Closed != 0:
		d.connection(m)
	case m.Outgoing != nil && len(fds) == 2, m.Incoming != nil && len(fds) == 2 && m.Incoming.PID != endpoint.OtherUser,
		m.Incoming != nil && len(fds) == 3:
		d.takeRing(m, fds)
	case m.Line != nil:
		if d.takeLine(m.Line, fds) {
			fds = nil
		}
	case m.Pipes != 0:
		d.member.Pipes(m.Pipes, fds)
		fds = nil // which are the ring's now
	case m.Gone != 0:
		d.member.Gone(m.Gone)
	case m.Port != nil:
		d.mu.Lock()
		d.ports[m.Port.Num] = *m.Port
		d.mu.Unlock()
		heard := &proto.Heard{Num: m.Port.Num, Change: m.Port.Change}
		d.member.PortChanged(m.Port.Num, m.Port.HCA, func() { _ = d.conn.Send(&proto.Message{Heard: heard}) })
	case m.Rejoin != 0:
		d.member.Rejoin(m.Rejoin)
	}
}

// takeRing takes in one end of a ring, with the page of who is at the other. What cannot be mapped is no way.
func (d *Device) takeRing(m *proto.Message, fds []int) {
	ring, err := d.rings.Map(fds[0])
	if err != nil {
		return
	}
	page, err := endpoint.MapPage(fds[1])
	if err != nil {
		d.rings.Unmap(ring)
		return
	}
	free := func() { d.rings.Unmap(ring) }
	if o := m.Outgoing; o != nil {
		if r, err := endpoint.NewOut(ring, page, o.PID); err == nil {
			r.OnWish(func() { d.member.Later(func() { _ = d.conn.Send(&proto.Message{Pipes: o.ID}) }) })
			d.member.Outgoing(o.ID, r, free)
		}
	} else if r, err := endpoint.NewIn(ring, page, m.Incoming.PID, m.Incoming.Port); err == nil {
		if len(fds) == 3 { // another user's
			origin, err := endpoint.ReadOrigin(fds[2])
			if err != nil {
				free()
				return
			}
			r.Check(origin)
		}
		d.member.Incoming(m.Incoming.ID, r, free)
	}
}

// call sends a question, whose number it makes, and waits for the answer.
func (d *Device) call(ctx context.Context, number *uint64, question *proto.Message) (*proto.Message, error) {
	d.mu.Lock()
	d.asked++
	*number = d.asked
	d.mu.Unlock()
	return d.callAs(ctx, *number, question)
}

// callAs sends a question that has a number.
func (d *Device) callAs(ctx context.Context, number uint64, question *proto.Message) (a *proto.Message, err error) {
	c := make(chan *proto.Message, 1)
	d.mu.Lock()
	d.calls[number] = c
	d.mu.Unlock()
	if err := d.conn.Send(question); err != nil {
		return nil, fmt.Errorf("%w: %w", verbs.ErrClosed, err)
	}
	select {
	case a = <-c:
	case <-ctx.Done():
		d.answered(number, nil)
		err = ctx.Err()
	case <-d.gone:
		err = verbs.ErrClosed
	}
	return a, err
}

// answered ends a call.
func (d *Device) answered(id uint64, m *proto.Message) {
	d.mu.Lock()
	c := d.calls[id]
	delete(d.calls, id)
	d.mu.Unlock()
	if c != nil {
		c <- m
	}
}

// router is the device as its endpoint needs it.
type router Device

// Route asks the daemon for a way. The endpoint's lock is held.
func (r *router) Route(k endpoint.Key) (*endpoint.Route, error) {
	d := (*Device)(r)
	ask := &proto.Ask{Key: proto.Key(k)}
	m, err := d.call(context.Background(), &ask.ID, &proto.Message{Ask: ask})
	if err != nil || m.Answer == nil {
		return nil, cmp.Or(err, proto.ErrMessage)
	}
	return d.member.Way(k, m.Answer.Slot, m.Answer.Gen, m.Answer.Rings)
}

// Violated tells the daemon of a packet with a wrong key, as soon as that is possible.
func (r *router) Violated(v agent.Notice) {
	d := (*Device)(r)
	d.member.Later(func() { _ = d.conn.Send(&proto.Message{Violation: &v}) })
}

// Close detaches: everything that was made on the device goes, memberships in multicast groups too. Calls that still
// wait end with an error that matches verbs.ErrClosed.
func (d *Device) Close() error {
	d.once.Do(func() {
		d.mu.Lock()
		d.down = true
		d.mu.Unlock()
		_ = d.member.Close()
		d.conn.Close()
		<-d.gone
		d.closeLines()
	})
	return nil
}

// Failed reports whether the device has failed: its fabric is gone.
func (d *Device) Failed() bool { return d.member.Failed() }

// settleIn suits Go's runtime to a process that attaches. The heap of a library is small, and its program's memory is
// none of its business. The attendant sleeps in the kernel; without a processor of Go's to spare, Go's monitor takes
// the sleeper's away every time, for which it wakes up ten thousand times a second, on the core of a poller.
var settleIn = sync.OnceFunc(func() {
	debug.SetGCPercent(400)
	runtime.GOMAXPROCS(max(runtime.GOMAXPROCS(0), 4))
})

// Membership says which multicast group to join.
type Membership struct {
	MGID ib.GID     // zero: the subnet's administrator makes up a new group
	Port ib.PortNum // 1 if 0
	PKey ib.PKey    // the partition; the port's first with full membership if 0
	QKey ib.QKey    // of a group that does not exist yet; rdma_cm's default if 0
	// SendOnly makes the port one that sends to the group and gets nothing from it. There has to be such a group.
	SendOnly bool
}

// Group is a multicast group that the port is a member of. The subnet has the parameters: members who came first have
// set them.
type Group struct {
	MGID ib.GID
	MLID ib.LID
	PKey ib.PKey
	QKey ib.QKey // datagrams and queue pairs of the group have to have it
	MTU  ib.MTU  // bounds a datagram
	// Record is all that the administrator says.
	Record mad.MCMemberRecord

	d    *Device
	id   uint64
	addr verbs.AHAttr
}

// AHAttr is the way to the group, for verbs.PD.CreateAH.
func (g *Group) AHAttr() verbs.AHAttr { return g.addr }

// JoinMulticast makes the device's port a member of a multicast group: the administrator is asked, and the manager
// writes the switches' tables. It may be a moment until it has, and what is sent before does not arrive. A queue pair
// gets what comes to the port after verbs.QP.AttachMcast. Groups of IP over InfiniBand get the parameters of their
// broadcast group. The membership ends with Leave or Close.
func (d *Device) JoinMulticast(ctx context.Context, want Membership) (*Group, error) {
	port := max(want.Port, 1)
	join := &proto.Join{Port: port, Want: mad.MCMemberRecord{MGID: want.MGID, PKey: want.PKey, QKey: want.QKey}}
	if want.SendOnly {
		join.Want.JoinState = mad.JoinSendOnlyNon
	}
	m, err := d.call(ctx, &join.ID, &proto.Message{Join: join})
	if err != nil {
		if ctx.Err() != nil {
			_ = d.conn.Send(&proto.Message{Leave: join.ID})
		}
		return nil, fmt.Errorf("attach: joining %v: %w", want.MGID, err)
	}
	a := m.Joined
	switch {
	case a == nil:
		return nil, fmt.Errorf("attach: joining %v: %w", want.MGID, proto.ErrMessage)
	case a.Why != "":
		return nil, fmt.Errorf("attach: joining %v: %w: %s", want.MGID, ErrRefused, a.Why)
	}
	r := &a.Got
	return &Group{MGID: r.MGID, MLID: r.MLID, PKey: r.PKey, QKey: r.QKey, MTU: r.MTU, Record: *r, d: d, id: join.ID,
		addr: verbs.AHAttr{DLID: r.MLID, SL: r.SL, StaticRate: uint8(r.Rate), IsGlobal: true, DGID: r.MGID,
			FlowLabel: r.FlowLabel, HopLimit: r.HopLimit, TClass: r.TClass, Port: port}}, nil
}

// Leave ends the membership. Queue pairs have to be detached by themselves.
func (g *Group) Leave() error {
	if err := g.d.conn.Send(&proto.Message{Leave: g.id}); err != nil {
		return fmt.Errorf("attach: leaving %v: %w: %w", g.MGID, verbs.ErrClosed, err)
	}
	return nil
}

// FindPath asks the subnet's administrator for the path to another port, in a partition.
func (d *Device) FindPath(ctx context.Context, port ib.PortNum, to ib.GID, key ib.PKey) (mad.PathRecord, error) {
	ask := &proto.FindPath{Port: max(port, 1), Want: mad.PathRecord{DGID: to, PKey: key}}
	m, err := d.call(ctx, &ask.ID, &proto.Message{FindPath: ask})
	switch {
	case err != nil:
	case m.Path == nil:
		err = proto.ErrMessage
	case m.Path.Why != "":
		err = fmt.Errorf("%w: %s", ErrRefused, m.Path.Why)
	default:
		return m.Path.Got, nil
	}
	return mad.PathRecord{}, fmt.Errorf("attach: the path to %v: %w", to, err)
}
