package rdmacm

import (
	"fmt"
	"slices"
	"syscall"

	"softib/node/cm"
	"softib/proto/ib"
	"softib/proto/mad"
)

// membership is an ID's part in a multicast group.
type membership struct {
	number   uint32
	uid      uint64
	d        *ident
	g        *group
	reported uint32
}

// groupKey tells a port's groups apart. A group whose MGID the administrator makes up has a number instead.
type groupKey struct {
	mgid   ib.GID
	as     mad.JoinState
	number uint32
}

// group is a port's part in a multicast group, which its programs share: the administrator knows ports, not programs.
type group struct {
	p       *endPort
	key     groupKey
	members []member
	state   groupState
	want    mad.MCMemberRecord
	ipoib   bool // takes all of the broadcast group's parameters
	rec     mad.MCMemberRecord
	// ethernet is the network that has no administrator, if the port is there.
	ethernet Ethernet
}

// member is who shares a port's part in a group.
type member interface {
	// joined tells that the port is a member, or why not.
	joined(errno syscall.Errno)
}

type groupState uint8

const (
	groupOut groupState = iota
	groupJoining
	groupIn
	groupLeaving
)

// join makes the ID a member of the group that an address stands for.
func (d *ident) join(uid uint64, a sockaddr, as mad.JoinState) (*membership, error) {
	if d.state != stAddrBound && d.state != stAddrResolved || d.port == nil || d.qpType != qptUD {
		return nil, d.bad("joining a group")
	}
	p := d.port
	ad, err := d.ch.adapter()
	if err != nil {
		return nil, err
	}
	key := groupKey{mgid: groupOf(d.space, &a, d.key), as: as}
	info := ad.port(p.num)
	if info == nil {
		return nil, syscall.ENODEV
	}
	if info.Ethernet != nil {
		key.mgid = a.networkGID()
	}
	m := &membership{number: d.ch.host.s.newID(), uid: uid, d: d}
	if key.mgid.IsZero() {
		key.number = m.number
	}
	m.g = p.groups[key]
	if m.g == nil {
		if err := d.setQKey(0); err != nil {
			return nil, err
		}
		m.g = &group{p: p, key: key, ipoib: d.space == psIPoIB, ethernet: info.Ethernet,
			want: mad.MCMemberRecord{MGID: key.mgid, PortGID: d.gid, PKey: d.key, QKey: d.qkey, JoinState: as}}
	}
	if err := m.g.take(m); err != nil {
		return nil, err
	}
	d.groups = append(d.groups, m)
	d.ch.groups[m.number] = m
	if m.g.state == groupIn {
		m.joined(0)
	}
	return m, nil
}

// take adds a member, and has the port join if it is the first. Who comes later is not told: the group is joined
// already.
func (g *group) take(m member) error {
	g.members = append(g.members, m)
	if err := g.step(); err != nil {
		g.members = nil
		return err
	}
	g.p.groups[g.key] = g
	return nil
}

// drop takes a member away, and has the port leave if it was the last.
func (g *group) drop(m member) {
	g.members = slices.DeleteFunc(g.members, func(o member) bool { return o == m })
	_ = g.step()
}

// leave ends a membership and takes back its events.
func (m *membership) leave() {
	d := m.d
	d.groups = slices.DeleteFunc(d.groups, func(o *membership) bool { return o == m })
	delete(d.ch.groups, m.number)
	m.g.drop(m)
	d.ch.withdraw(func(e *event) bool { return e.group == m })
}

// joined tells the program that it is a member, or why not.
func (m *membership) joined(errno syscall.Errno) {
	d, rec := m.d, &m.g.rec
	if errno == 0 && d.space == psIPoIB {
		d.qkey = rec.QKey // what was assumed before does not count
	}
	if errno == 0 && d.setQKey(rec.QKey) != nil {
		errno = syscall.EINVAL
	}
	kind := evtMulticastJoin
	if errno != 0 {
		kind = evtMulticastError
	}
	e := d.event(kind, -int32(errno))
	e.group = m
	native.PutUint64(e.rec[evUID:], m.uid)
	native.PutUint32(e.rec[evID:], m.number)
	if errno == 0 {
		(&udParam{qpn: ib.QPNMulticast, qkey: rec.QKey, ah: cm.AHAttr{
			DLID: rec.MLID, SL: rec.SL, StaticRate: uint8(rec.Rate), IsGlobal: true, DGID: rec.MGID,
			FlowLabel: rec.FlowLabel,
			HopLimit:  rec.HopLimit, TClass: rec.TClass, Port: d.port.shown, SGIDIndex: d.gidIndex(),
		}}).put(e.rec[evParam:])
	}
	d.ch.push(e)
}

// Questions about groups: how long each try waits, and how many more there are.
const (
	groupTimeout = 500 * ib.Millisecond
	groupRetries = 5
)

// step makes the port's membership what its programs want; only one question is under way at a time.
func (g *group) step() error {
	switch {
	case g.state == groupOut && len(g.members) > 0:
		return g.enter()
	case g.state == groupIn && len(g.members) == 0:
		g.exit()
	case g.state == groupOut && g.p.groups[g.key] == g:
		delete(g.p.groups, g.key)
	}
	return nil
}

// enter asks for the broadcast group first, whose parameters others share, and then to join.
func (g *group) enter() error {
	if g.ethernet != nil {
		return g.enterNetwork()
	}
	q := mad.MCMemberRecord{MGID: broadcastGroup(g.want.PKey)}
	err := g.ask(mad.MethodGet, mcMGID, &q, func(a answer) {
		var base mad.MCMemberRecord
		if a.errno == 0 {
			if _, err := base.Parse(a.record); err != nil {
				a.errno = syscall.EINVAL
			}
		}
		if a.errno != 0 && g.ipoib {
			g.entered(a)
			return
		}
		mask := mcJoin
		g.want.SL, g.want.FlowLabel, g.want.TClass = base.SL, base.FlowLabel, base.TClass
		if g.ipoib {
			g.want.QKey, g.want.MTU, g.want.Rate, g.want.HopLimit = base.QKey, base.MTU, base.Rate, base.HopLimit
			g.want.MTUSelector, g.want.RateSelector = mad.SelectExactly, mad.SelectExactly
			mask |= mcMeasures
		}
		if err := g.ask(mad.MethodSet, mask, &g.want, g.entered); err != nil {
			g.entered(answer{errno: errnoOf(err)})
		}
	})
	if err == nil {
		g.state = groupJoining
	}
	return err
}

func (g *group) entered(a answer) {
	if a.errno == 0 {
		if _, err := g.rec.Parse(a.record); err != nil || !g.rec.MLID.IsMulticast() {
			a.errno = syscall.EINVAL
		}
	}
	g.state = groupIn
	if a.errno != 0 {
		g.state = groupOut
	}
	members := slices.Clone(g.members)
	if a.errno != 0 {
		// Those who asked are told, and are members of nothing until they leave.
		g.members = nil
	}
	for _, m := range members {
		m.joined(a.errno)
	}
	_ = g.step()
}

// exit leaves. Nobody waits for the answer but who wants to join again.
func (g *group) exit() {
	if g.ethernet != nil {
		g.exitNetwork()
		return
	}
	g.state = groupLeaving
	rec := mad.MCMemberRecord{MGID: g.rec.MGID, PortGID: g.want.PortGID, JoinState: g.key.as}
	left := func(answer) {
		g.state = groupOut
		if err := g.step(); err != nil {
			g.entered(answer{errno: errnoOf(err)})
		}
	}
	if err := g.ask(mad.MethodDelete, mcLeave, &rec, left); err != nil {
		left(answer{})
	}
}

func (g *group) ask(method mad.Method, mask uint64, rec *mad.MCMemberRecord, done func(answer)) error {
	ad, err := g.p.h.adapter()
	if err != nil {
		return err
	}
	info := ad.port(g.p.num)
	if info == nil || g.p.dead {
		return fmt.Errorf("rdmacm: port %d of %s: %w", g.p.num, g.p.h.name, syscall.ENODEV)
	}
	_, err = g.p.ask(info, question{method, mad.AttrMCMemberRecord, mask, rec.Append(nil), groupTimeout, groupRetries},
		done)
	return err
}

// components is the mask of some fields of a record.
func components(t *mad.SARecord, fields ...string) (mask uint64) {
	for _, f := range fields {
		c := t.Component(f)
		if c == 0 {
			panic("rdmacm: " + t.Name + " has no component " + f)
		}
		mask |= c
	}
	return mask
}

var (
	pathMask     = components(mad.PathRecordTable, "ServiceID", "DGID", "SGID", "P_Key", "NumbPath", "Reversible")
	pathService  = components(mad.PathRecordTable, "ServiceID")
	pathQoSClass = components(mad.PathRecordTable, "QoSClass")
	pathTClass   = components(mad.PathRecordTable, "TClass")

	mcMGID     = components(mad.MCMemberRecordTable, "MGID")
	mcLeave    = components(mad.MCMemberRecordTable, "MGID", "PortGID", "JoinState")
	mcJoin     = mcLeave | components(mad.MCMemberRecordTable, "P_Key", "Q_Key", "SL", "FlowLabel", "TClass")
	mcMeasures = components(mad.MCMemberRecordTable, "Rate", "RateSelector", "MTU", "MTUSelector", "HopLimit")
)
