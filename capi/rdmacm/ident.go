package rdmacm

import (
	"fmt"
	"math"
	"math/rand/v2"
	"syscall"
	"time"

	"softib/internal/patience"
	"softib/node/cm"
	"softib/proto/ib"
	"softib/proto/mad"
)

// state is where an ID stands; the names are those of Linux's cma.
type state uint8

const (
	stIdle state = iota
	stAddrBound
	stAddrQuery
	stAddrResolved
	stRouteQuery
	stRouteResolved
	stConnect
	stDisconnect
	stListen
	stGone
	numState
)

var stateNames = [numState]string{"idle", "bound", "resolving its address", "address resolved", "resolving its route",
	"route resolved",
	"connecting or connected", "disconnected", "listening", "gone"}

func (s state) String() string {
	if s < numState {
		return stateNames[s]
	}
	return fmt.Sprintf("state(%d)", uint8(s))
}

// Types of queue pairs, numbered as ibv_qp_type.
const (
	qptRC      = 2
	qptUC      = 3
	qptUD      = 4
	qptXRCSend = 9
	qptXRCRecv = 10
)

// udpQKey is the key of datagram services of the UDP and IB port spaces.
const udpQKey ib.QKey = 0x01234567

// ipoibQKey is the key of IP traffic in a partition whose broadcast group says nothing else.
const ipoibQKey ib.QKey = 0x0B1B

// ident is an rdma_cm ID.
type ident struct {
	number uint32
	ch     *channel
	uid    uint64 // the library's name for it; 0 until a connection request is accepted
	space  portSpace
	qpType uint8
	state  state

	src, dst sockaddr
	bound    *binding
	port     *endPort // nil until an address says which
	gid      ib.GID   // ours, of port
	dgid     ib.GID
	key      ib.PKey // the partition
	path     mad.PathRecord
	hasPath  bool
	asked    uint32 // the question that the route waits for

	reuse, afOnly, afOnlySet bool
	tos                      uint8
	tosSet                   bool
	ackTimeout               uint8 // 0: what the path says

	// Of a listener.
	service uint64
	listens []*endPort
	backlog int
	unread  int // connection requests that the program has not read

	conn    cm.ConnID
	hasConn bool
	qpn     ib.QPN
	srq     bool
	qkey    ib.QKey
	psn     ib.PSN

	groups   []*membership
	reported uint32 // events that the program has read
}

func (c *channel) newIdent(uid uint64, space portSpace, qpType uint8) *ident {
	d := &ident{number: c.host.s.newID(), ch: c, uid: uid, space: space, qpType: qpType,
		psn: ib.PSN(rand.Uint32() & 0xFFFFFF)}
	c.ids[d.number] = d
	return d
}

// bad is the error of a command that the ID's state does not allow.
func (d *ident) bad(what string) error {
	return fmt.Errorf("rdmacm: %s of ID %d, which is %v: %w", what, d.number, d.state, syscall.EINVAL)
}

// acquire ties the ID to a port of the host.
func (d *ident) acquire(info *Port, gid ib.GID) error {
	p := d.ch.host.port(info.Num)
	if p == nil || p.dead {
		return fmt.Errorf("rdmacm: port %d of %s: %w", info.Num, d.ch.host.name, syscall.ENODEV)
	}
	d.port, d.gid = p, gid
	if d.key == 0 {
		d.key = info.homeKey()
	}
	return nil
}

// bind gives the ID an address of the host.
func (d *ident) bind(a sockaddr) error {
	if a.family == afNone {
		return syscall.EAFNOSUPPORT
	}
	if d.state != stIdle {
		return d.bad("binding")
	}
	if a.family == afInet6 && a.ip.IsLinkLocalUnicast() && a.scope == 0 {
		return syscall.EINVAL
	}
	ad, err := d.ch.adapter()
	if err != nil {
		return err
	}
	was := *d
	d.src = a
	if a.family == afIB {
		d.key = a.pkey
	}
	if !a.isAny() {
		info, gid := ad.local(&a)
		if info == nil {
			err = syscall.EADDRNOTAVAIL
		} else {
			err = d.acquire(info, gid)
		}
	}
	if err == nil {
		if !d.afOnlySet && a.family == afInet {
			d.afOnly = true
		}
		err = d.ch.host.bindPort(d)
	}
	if err != nil {
		*d = was
		return err
	}
	d.dst.family = a.family
	d.state = stAddrBound
	return nil
}

// local is the port of an adapter that has an address, nil if none has, and which of its GIDs that is.
func (a *Adapter) local(s *sockaddr) (*Port, ib.GID) {
	switch {
	case len(a.Ports) > 0 && a.Ports[0].Ethernet != nil:
		g := s.networkGID()
		return a.byGID(g), g
	case s.family == afIB:
		return a.byGID(s.gid), s.gid
	case s.ip == a.IP || s.ip == a.IP6:
		m := a.main()
		return m, m.GID
	}
	return nil, ib.GID{}
}

// resolveAddr finds the way out towards an address.
func (d *ident) resolveAddr(src, dst sockaddr) error {
	if dst.family == afNone {
		return syscall.EINVAL
	}
	if d.state == stIdle {
		if src.family == afNone {
			src = sockaddr{family: dst.family}
			switch dst.family {
			case afInet:
				src.ip = anyIPv4
			case afInet6:
				src.ip, src.scope = anyIPv6, dst.scope
			case afIB:
				src.pkey = dst.pkey
			}
		}
		was := d.dst
		d.dst = dst // so that an ephemeral port can be shared
		if err := d.bind(src); err != nil {
			d.dst = was
			return err
		}
	}
	if d.state != stAddrBound || d.src.family != dst.family {
		return d.bad("resolving an address")
	}
	ad, err := d.ch.adapter()
	if err != nil {
		return err
	}
	mine := ad.main()
	if d.port != nil {
		mine = ad.port(d.port.num)
	}
	if mine == nil {
		return syscall.ENODEV
	}
	d.dst = dst
	d.state = stAddrQuery
	reach := d.reach
	if mine.Ethernet != nil {
		reach = d.reachNetwork
	}
	errno := reach(&ad, mine)
	if errno == 0 {
		d.state = stAddrResolved
		d.tell(evtAddrResolved, 0)
	} else {
		d.state = stAddrBound
		d.tell(evtAddrError, -int32(errno))
	}
	return nil
}

// reach finds the GID and the partition of a destination.
func (d *ident) reach(ad *Adapter, mine *Port) syscall.Errno {
	var far *Port
	var farGID ib.GID
	switch {
	case d.dst.isAny():
		far, farGID = mine, mine.GID
		if d.src.isAny() {
			d.src.setLoopback()
		}
	case d.dst.family == afIB:
		farGID = d.dst.gid
		if name, ok := d.ch.host.s.ports.ByGID(farGID); ok {
			if other, err := d.ch.host.s.ports.Adapter(name); err == nil {
				far = other.byGID(farGID)
			}
			d.meet(name)
		}
	case d.dst.ip.IsMulticast():
		farGID = groupOf(d.space, &d.dst, mine.homeKey())
	default:
		name, ok := d.ch.host.s.ports.ByIP(d.dst.ip)
		if !ok {
			return syscall.EHOSTUNREACH
		}
		other, err := d.ch.host.s.ports.Adapter(name)
		if err != nil {
			return syscall.EHOSTUNREACH
		}
		if far = other.main(); far == nil {
			return syscall.EHOSTUNREACH
		}
		farGID = far.GID
		d.meet(name)
	}
	if d.dst.family != afIB || d.key == 0 {
		d.key = mine.homeKey()
		if far != nil {
			d.key = mine.sharedKey(far)
		}
	}
	if err := d.acquire(mine, mine.GID); err != nil {
		return errnoOf(err)
	}
	d.dgid = farGID
	if d.src.isAny() && !d.src.isLoopback() {
		d.src.setHost(ad, mine)
	}
	return 0
}

// meet makes sure that the other host's connection manager is there, as it is on a host whose kernel has one.
func (d *ident) meet(name string) { _, _ = d.ch.host.s.host(name) }

// resolveRoute asks the administrator for a path.
func (d *ident) resolveRoute(timeoutMS uint32) error {
	if d.state != stAddrResolved {
		return d.bad("resolving a route")
	}
	ad, err := d.ch.adapter()
	if err != nil {
		return err
	}
	info := ad.port(d.port.num)
	if info == nil {
		return syscall.ENODEV
	}
	if info.Ethernet != nil {
		d.path, d.hasPath, d.state = d.networkPath(info), true, stRouteResolved
		d.tell(evtRouteResolved, 0)
		return nil
	}
	want := mad.PathRecord{DGID: d.dgid, SGID: d.gid, PKey: d.key, NumbPath: 1, Reversible: true,
		ServiceID: serviceID(d.space, &d.dst)}
	mask := pathMask
	switch {
	case d.src.family == afInet && d.tosSet:
		want.QoSClass = uint16(d.tos)
		mask |= pathQoSClass
	case d.src.family == afInet6 || d.src.family == afIB:
		if t := uint8(d.src.flow >> 20); t != 0 {
			want.TClass = t
			mask |= pathTClass
		}
	}
	// The program's patience is for all tries together. The administrator may be in another process, which on a busy
	// machine has its turn later than programs expect of one.
	const tries = 4
	each := min(patience.For(time.Duration(timeoutMS)*time.Millisecond/tries), math.MaxUint32*time.Millisecond)
	timeout := max(ib.Time(each.Nanoseconds())*ib.Nanosecond, 10*ib.Millisecond)
	d.asked, err = d.port.ask(info, question{mad.MethodGet, mad.AttrPathRecord, mask, want.Append(nil), timeout,
		tries - 1}, d.routed)
	if err != nil {
		return err
	}
	d.state = stRouteQuery
	return nil
}

// routed takes the administrator's answer.
func (d *ident) routed(a answer) {
	d.asked = 0
	if d.state != stRouteQuery {
		return
	}
	if a.errno == 0 {
		if _, err := d.path.Parse(a.record); err != nil || !d.path.DLID.IsUnicast() {
			a.errno = syscall.EINVAL
		}
	}
	if a.errno != 0 {
		d.state = stAddrResolved
		d.tell(evtRouteError, -int32(a.errno))
		return
	}
	d.hasPath = true
	d.state = stRouteResolved
	d.tell(evtRouteResolved, 0)
}

// cmPath is the ID's path as the connection manager takes it.
func (d *ident) cmPath() (cm.Path, error) {
	ad, err := d.ch.adapter()
	if err != nil {
		return cm.Path{}, err
	}
	info := ad.port(d.port.num)
	if info == nil {
		return cm.Path{}, syscall.ENODEV
	}
	key, ok := info.keyIndex(d.path.PKey)
	if !ok {
		return cm.Path{}, fmt.Errorf("rdmacm: partition %v is not among those of port %d: %w", d.path.PKey, info.Num,
			syscall.EINVAL)
	}
	return cm.Path{PathRecord: d.path, PKeyIndex: key, GIDIndex: info.gidIndex(d.path.SGID),
		PathBits: uint8(d.path.SLID) & (1<<info.LMC - 1)}, nil
}

// listen takes requests for the ID's port.
func (d *ident) listen(backlog int) error {
	if d.state == stIdle {
		if err := d.bind(sockaddr{family: afInet, ip: anyIPv4}); err != nil {
			return err
		}
	}
	if d.state != stAddrBound {
		return d.bad("listening")
	}
	if d.reuse {
		if err := d.bound.check(d, false); err != nil {
			return err
		}
	}
	d.service = serviceID(d.bound.space, &d.src)
	for _, p := range d.ch.host.ports {
		if !d.ch.sees(p.num) {
			continue
		}
		if err := p.listen(d.service); err != nil {
			d.unlisten()
			return err
		}
		d.listens = append(d.listens, p)
	}
	const backlogMax = 1024 // Linux's default limit
	d.backlog = backlog
	if backlog <= 0 || backlog > backlogMax {
		d.backlog = backlogMax
	}
	d.state = stListen
	return nil
}

// unlisten ends what listen has begun.
func (d *ident) unlisten() {
	for _, p := range d.listens {
		p.unlisten(d.service)
	}
	d.listens = nil
}

// destroy ends the ID and takes back its events. Connection requests among them are rejected.
func (d *ident) destroy() {
	h := d.ch.host
	was := d.state
	d.state = stGone
	delete(d.ch.ids, d.number)
	if was == stListen {
		d.unlisten()
	}
	if d.asked != 0 {
		d.port.forget(d.asked)
	}
	for len(d.groups) > 0 {
		d.groups[0].leave()
	}
	if d.hasConn {
		d.drop()
	}
	h.release(d)
	for _, e := range d.ch.withdraw(func(e *event) bool { return e.about == d }) {
		if e.fresh != nil {
			e.fresh.destroy()
		}
	}
}

// drop gives up the ID's connection; the other side is told what it has to be told.
func (d *ident) drop() {
	d.hasConn = false
	delete(d.port.conns, d.conn)
	if !d.port.dead {
		_ = d.port.engine.Destroy(d.port.session.Now(), d.conn)
		d.port.turn()
	}
}

// migrate moves the ID, with the events that were not read, to another channel.
func (d *ident) migrate(to *channel) {
	if d.ch == to {
		d.ch.settle()
		return
	}
	from := d.ch
	moved := from.withdraw(func(e *event) bool { return e.about == d })
	from.settle()
	move := func(x *ident) {
		delete(from.ids, x.number)
		to.ids[x.number] = x
		x.ch = to
		for _, m := range x.groups {
			delete(from.groups, m.number)
			to.groups[m.number] = m
		}
	}
	move(d)
	for _, e := range moved {
		if e.fresh != nil {
			move(e.fresh)
		}
		to.push(e)
	}
}
