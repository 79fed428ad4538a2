package netif

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"softib/internal/patience"
	"softib/node/ipoib"
	"softib/proto/ib"
	"softib/proto/mad"
	"softib/verbs"
	"softib/verbs/attach"
)

// Config is an interface that is to be.
type Config struct {
	Name string // for errors
	Tun  *os.File
	Port ib.PortNum // 1 if 0
	PKey ib.PKey
	// Addrs are what the host is to have before the interface is ready.
	Addrs []netip.Prefix
	// Connected has packets for neighbours that do the same go by connections.
	Connected bool
}

// Interface is one interface that is open.
type Interface struct {
	cfg Config
	dev *attach.Device
	ctx *verbs.Context
	pd  *verbs.PD
	tun *tun

	qp   *verbs.QP
	send *sender
	recv *receiver
	// listener takes connections; nil in datagram mode.
	listener *listener
	queued   chan queuedPacket
	// unsent counts what is in queued, or was and is about to be sent.
	unsent atomic.Int32
	asks   chan struct{} // has room for another question
	// listens rings when the host's multicast groups have changed.
	listens chan struct{}
	work    sync.WaitGroup
	end     context.CancelFunc

	mu     sync.Mutex // guards what follows
	engine *ipoib.Interface
	start  time.Time
	dests  map[*ipoib.Way]*dest
	groups map[ib.GID]*membership
	timer  *time.Timer
	// addressed is closed when the host has its addresses, ready when programs can begin.
	addressed, ready     chan struct{}
	isAddressed, isReady bool
	refuse               error // why the last question about the broadcast group was in vain
}

// membership is the port's part in a group.
type membership struct {
	group    *attach.Group // nil while it is asked for
	cancel   context.CancelFunc
	sendOnly bool
}

// queuedPacket is what has waited for a way, or what the engine itself says.
type queuedPacket struct {
	to      *dest
	proto   ipoib.Protocol
	data    []byte
	offload ipoib.Offload
}

// asksMax is how many questions to the administrator are under way.
const asksMax = 32

// Open makes the queue pair of an interface and begins to join the partition's broadcast group.
func Open(dev *attach.Device, cfg Config) (*Interface, error) {
	n := &Interface{cfg: cfg, dev: dev, ctx: verbs.Open(dev), queued: make(chan queuedPacket, 4096),
		asks: make(chan struct{}, asksMax), listens: make(chan struct{}, 1), start: time.Now(),
		dests:  map[*ipoib.Way]*dest{},
		groups: map[ib.GID]*membership{}, addressed: make(chan struct{}), ready: make(chan struct{})}
	n.cfg.Port = max(cfg.Port, 1)
	if err := n.open(); err != nil {
		_ = n.ctx.Close()
		return nil, fmt.Errorf("netif: %s: %w", cfg.Name, err)
	}
	return n, nil
}

func (n *Interface) open() error {
	port, err := n.ctx.QueryPort(n.cfg.Port)
	if err != nil {
		return err
	}
	if len(port.GIDs) == 0 {
		return errors.New("the port has no GID")
	}
	index, ok := port.PKeyIndex(n.cfg.PKey)
	if !ok {
		return fmt.Errorf("the port is not in partition %v: %w", n.cfg.PKey, ErrPartition)
	}
	if n.tun, err = newTun(n.cfg.Tun); err != nil {
		return err
	}
	if n.pd, err = n.ctx.AllocPD(); err != nil {
		return err
	}
	if n.send, err = newSender(n.ctx, n.pd); err != nil {
		return err
	}
	if n.recv, err = newReceiver(n.ctx, n.pd); err != nil {
		return err
	}
	if n.cfg.Connected {
		if n.listener, err = newListener(n.pd); err != nil {
			return err
		}
	}
	n.qp, err = n.pd.CreateQP(verbs.QPInit{Type: verbs.UD, SendCQ: n.send.cq, RecvCQ: n.recv.cq, BlockSelfMC: true,
		IPoIB: true, Caps: verbs.Caps{MaxSendWR: sendDepth, MaxRecvWR: recvDepth, MaxSendSGE: 2, MaxRecvSGE: 1}})
	if err != nil {
		return err
	}
	n.send.qp, n.recv.qp = n.qp, n.qp
	// The Q_Key is the broadcast group's, which is RFC 4391's unless somebody has chosen another.
	if err := n.qp.Ready(n.cfg.Port, index, ib.QKeyIPoIB); err != nil {
		return err
	}
	if err := n.recv.post(); err != nil {
		return err
	}
	n.engine = ipoib.New(n.now(), ipoib.Config{PKey: n.cfg.PKey, Connected: n.cfg.Connected,
		Self: ipoib.LinkAddr{QPN: n.qp.Num(), GID: port.GIDs[0]}})
	return nil
}

// ErrPartition is matched by the error of an interface in a partition that the port is not in.
var ErrPartition = errors.New("no such partition here")

func (n *Interface) now() ib.Time { return ib.Time(time.Since(n.start)) * ib.Nanosecond }

// Addressed is closed when the host has the addresses that it is to have.
func (n *Interface) Addressed() <-chan struct{} { return n.addressed }

// Ready is closed when the interface can be used: the broadcast group is joined, the host has its addresses, and is in
// the groups by which others find it.
func (n *Interface) Ready() <-chan struct{} { return n.ready }

// Refused is why the broadcast group could not be joined, if it could not.
func (n *Interface) Refused() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.refuse
}

// Run moves packets until ctx ends, which is no error, or the device or the TUN device does. It closes the interface.
func (n *Interface) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	n.end = func() { cancel(nil) }
	n.mu.Lock()
	n.timer = time.AfterFunc(time.Hour, func() {
		tries := int(patience.For(ipoib.AskTries*time.Second) / time.Second)
		n.with(ctx, func(now ib.Time) {
			n.engine.SetTries(tries)
			n.engine.HandleTimer(now)
		})
	})
	n.mu.Unlock()
	n.with(ctx, func(ib.Time) {})
	parts := []func(context.Context) error{n.fromHost, n.fromFabric, n.sendQueued, n.events}
	if n.listener != nil {
		if err := n.listen(ctx); err != nil {
			return fmt.Errorf("netif: %s: %w", n.cfg.Name, err)
		}
	}
	for _, f := range parts {
		n.work.Go(func() { cancel(f(ctx)) })
	}
	<-ctx.Done()
	n.timer.Stop()
	_ = n.tun.close()
	n.work.Wait()
	_ = n.ctx.Close()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return fmt.Errorf("netif: %s: %w", n.cfg.Name, err)
	}
	return nil
}

// with calls the engine, and does what it says.
func (n *Interface) with(ctx context.Context, f func(now ib.Time)) {
	n.mu.Lock()
	now := n.now()
	f(now)
	n.drain(ctx)
	n.mu.Unlock()
}

// drain does what the engine says, nothing of which waits. The lock is held.
func (n *Interface) drain(ctx context.Context) {
	for a, ok := n.engine.Poll(); ok; a, ok = n.engine.Poll() {
		switch a.Kind {
		case ipoib.Send:
			if d := n.dest(a.Way); d != nil {
				n.unsent.Add(1)
				select {
				case n.queued <- queuedPacket{d, a.Protocol, a.Packet, a.Offload}:
				default: // lost, as on any network
					n.unsent.Add(-1)
				}
			}
		case ipoib.Deliver:
			_ = n.tun.deliver(a.Packet)
		case ipoib.AskPath:
			n.ask(ctx, func() { n.findPath(ctx, a.GID) })
		case ipoib.Join:
			n.join(ctx, a.GID, a.SendOnly)
		case ipoib.Leave:
			n.leave(a.GID)
		case ipoib.Listens:
			select {
			case n.listens <- struct{}{}:
			default:
			}
		case ipoib.Close:
			if d := n.dests[a.Way]; d != nil {
				delete(n.dests, a.Way)
				n.send.retire(d)
			}
		}
	}
	if n.timer != nil {
		if at := n.engine.NextDeadline(); at != ib.Never {
			n.timer.Reset(time.Duration(max(at-n.now(), 0)/ib.Nanosecond) + time.Microsecond)
		}
	}
	if !n.isAddressed && n.engine.HasAddrs(n.cfg.Addrs) {
		n.isAddressed = true
		close(n.addressed)
	}
	if !n.isReady && n.engine.IsReady(n.cfg.Addrs) {
		n.isReady = true
		close(n.ready)
	}
}

// dest is what a way is to the sender. The lock is held.
func (n *Interface) dest(w *ipoib.Way) *dest {
	d := n.dests[w]
	if d == nil {
		ah, err := n.pd.CreateAH(verbs.AHAttr{DLID: w.DLID, SL: w.SL, StaticRate: uint8(w.Rate), IsGlobal: w.IsGlobal,
			DGID: w.DGID, FlowLabel: w.FlowLabel, HopLimit: w.HopLimit, TClass: w.TClass, Port: n.cfg.Port})
		if err != nil {
			return nil
		}
		d = &dest{ah: ah, qpn: w.QPN, qkey: w.QKey, mtu: w.MTU}
		if w.Connect != nil {
			d.mtu, d.conn = w.Datagram, &conn{}
			d.broken, d.ended = make(chan struct{}), make(chan struct{})
			d.connect = func(ctx context.Context) { n.ask(ctx, func() { n.connect(ctx, w, d) }) }
		}
		n.dests[w] = d
	}
	return d
}

// ask runs a question beside, not too many at once.
func (n *Interface) ask(ctx context.Context, f func()) {
	n.work.Go(func() {
		select {
		case n.asks <- struct{}{}:
			defer func() { <-n.asks }()
			f()
		case <-ctx.Done():
		}
	})
}

func (n *Interface) findPath(ctx context.Context, to ib.GID) {
	rec, err := n.dev.FindPath(ctx, n.cfg.Port, to, n.cfg.PKey)
	n.with(ctx, func(now ib.Time) { n.engine.HandlePath(now, to, rec, err == nil) })
}

// join asks for a membership. One that is there is left first, so that the administrator is asked anew. The lock is
// held.
func (n *Interface) join(ctx context.Context, mgid ib.GID, sendOnly bool) {
	n.leave(mgid)
	asking, cancel := context.WithCancel(ctx)
	m := &membership{cancel: cancel, sendOnly: sendOnly}
	n.groups[mgid] = m
	n.ask(ctx, func() {
		g, err := n.dev.JoinMulticast(asking, attach.Membership{MGID: mgid, Port: n.cfg.Port, PKey: n.cfg.PKey,
			QKey: ib.QKeyIPoIB, SendOnly: sendOnly})
		if err == nil && !sendOnly {
			err = n.qp.AttachMcast(g.MGID, g.MLID)
		}
		isBroadcast := mgid == ipoib.BroadcastGroup(n.cfg.PKey, mad.ScopeLinkLocal)
		if err == nil && isBroadcast && g.QKey != ib.QKeyIPoIB {
			err = n.qp.Modify(verbs.QPAttr{State: verbs.StateRTS, QKey: g.QKey}, verbs.MaskState|verbs.MaskQKey)
		}
		n.with(ctx, func(now ib.Time) {
			if n.groups[mgid] != m {
				if g != nil {
					n.quit(g, sendOnly)
				}
				return
			}
			var rec mad.MCMemberRecord
			if g != nil {
				m.group, rec = g, g.Record
			}
			if isBroadcast {
				n.refuse = err
			}
			n.engine.HandleJoined(now, mgid, rec, err == nil)
		})
	})
}

// leave ends a membership, or the question for one. The lock is held.
func (n *Interface) leave(mgid ib.GID) {
	m := n.groups[mgid]
	if m == nil {
		return
	}
	delete(n.groups, mgid)
	m.cancel()
	if m.group != nil {
		n.quit(m.group, m.sendOnly)
	}
}

func (n *Interface) quit(g *attach.Group, sendOnly bool) {
	if !sendOnly {
		_ = n.qp.DetachMcast(g.MGID, g.MLID)
	}
	_ = g.Leave()
}

// SetAddrs says which addresses the interface has.
func (n *Interface) SetAddrs(ctx context.Context, addrs []netip.Prefix) {
	n.with(ctx, func(now ib.Time) { n.engine.SetAddrs(now, addrs) })
}

// SetGroups says which multicast groups programs listen to at the interface.
func (n *Interface) SetGroups(ctx context.Context, groups []netip.Addr) {
	n.with(ctx, func(now ib.Time) { n.engine.SetGroups(now, groups) })
}

// events follows the port: the carrier is there while its link is up, and whoever manages it is asked anew when
// something has changed.
func (n *Interface) events(ctx context.Context) error {
	for {
		e, err := n.ctx.WaitEvent(ctx)
		if err != nil {
			return err
		}
		if e.Type == verbs.EventDeviceFatal {
			return fmt.Errorf("the adapter is gone: %w", verbs.ErrClosed)
		}
		if e.Port != n.cfg.Port {
			continue
		}
		switch e.Type {
		case verbs.EventPortErr:
			n.tun.setCarrier(false)
		case verbs.EventPortActive, verbs.EventLIDChange, verbs.EventSMChange, verbs.EventGIDChange,
			verbs.EventPKeyChange, verbs.EventClientReregister:
			port, err := n.ctx.QueryPort(n.cfg.Port)
			if err != nil || len(port.GIDs) == 0 {
				continue
			}
			if port.State == ib.PortActive {
				n.tun.setCarrier(true)
			}
			n.with(ctx, func(now ib.Time) {
				n.engine.HandleLink(now, ipoib.LinkAddr{QPN: n.qp.Num(), GID: port.GIDs[0]})
			})
		}
	}
}

// fromHost takes packets of the host's and sends them.
func (n *Interface) fromHost(ctx context.Context) error {
	for {
		b, err := n.send.buffer(ctx)
		if err != nil {
			return err
		}
		data, o, err := n.tun.read(n.send.room(b))
		if err != nil {
			return err
		}
		var to *dest
		n.mu.Lock()
		if w := n.engine.HandlePacket(n.now(), data, o); w != nil {
			to = n.dest(w)
		}
		n.drain(ctx)
		n.mu.Unlock()
		if to == nil {
			n.send.release(b)
		} else if err := n.send.packet(ctx, b, to, protocolOf(data), data, &o); err != nil {
			return err
		}
		n.tun.done()
	}
}

func protocolOf(b []byte) ipoib.Protocol {
	if b[0]>>4 == 4 {
		return ipoib.IPv4
	}
	return ipoib.IPv6
}

// sendQueued sends what has waited.
func (n *Interface) sendQueued(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case q := <-n.queued:
			b, err := n.send.buffer(ctx)
			if err != nil {
				return err
			}
			data := n.send.room(b)[vnetSize:]
			data = data[:copy(data, q.data)]
			if err := n.send.packet(ctx, b, q.to, q.proto, data, &q.offload); err != nil {
				return err
			}
			n.unsent.Add(-1)
		}
	}
}

// fromFabric takes datagrams and hands what is in them to the host.
func (n *Interface) fromFabric(ctx context.Context) error {
	var together ipoib.Coalescer
	for {
		batch, err := n.recv.wait(ctx)
		if err != nil {
			return err
		}
		n.mu.Lock()
		now := n.now()
		for i := range batch {
			if d, ok := n.datagram(&batch[i]); ok {
				if p := n.engine.HandleDatagram(now, &d); p != nil {
					together.Add(p)
				}
			}
		}
		n.drain(ctx)
		n.mu.Unlock()
		together.Flush()
		for f, ok := together.Poll(); ok; f, ok = together.Poll() {
			if err := n.hand(f); err != nil {
				return err
			}
		}
		if err := n.recv.repost(batch, n.qp.Num(), n.listener); err != nil {
			return err
		}
	}
}

// hand hands a frame to the host. What the kernel finds wrong, or has no interface up for, is lost.
func (n *Interface) hand(f *ipoib.Frame) error {
	if err := n.tun.write(f); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.EIO) {
		return err
	}
	return nil
}

// datagram is what a completion has brought, by a datagram or by a connection. The lock is held.
func (n *Interface) datagram(wc *verbs.WC) (d ipoib.Datagram, ok bool) {
	if wc.Status != verbs.WCSuccess {
		return d, false
	}
	if wc.QPN != n.qp.Num() {
		b, from := n.listener.bytes(wc)
		if from == nil {
			return d, false
		}
		return ipoib.Datagram{SrcQPN: from.ud, SGID: from.gid, Payload: b}, true
	}
	b := n.recv.bytes(wc)
	if len(b) < grhSize {
		return d, false
	}
	d = ipoib.Datagram{SrcQPN: wc.SrcQP, Payload: b[grhSize:]}
	if wc.Flags&verbs.WCGRH != 0 {
		d.SGID = ib.GID(b[8:24])
	}
	return d, true
}
