package sa

import (
	"cmp"
	"errors"
	"fmt"
	"math/bits"
	"slices"

	"softib/proto/ib"
	"softib/proto/mad"
	"softib/subnet"
)

// GroupInfo is what the members of a multicast group have agreed on.
type GroupInfo struct {
	MGID           ib.GID
	MLID           ib.LID
	PKey           ib.PKey
	QKey           ib.QKey
	MTU            ib.MTU
	Rate           mad.Rate
	PacketLifeTime uint8
	SL             ib.SL
	TClass         uint8
	FlowLabel      uint32
	HopLimit       uint8
	Scope          uint8
	// Permanent groups outlive their last member.
	Permanent bool
}

// Member is a port in a group.
type Member struct {
	PortGID   ib.GID
	JoinState mad.JoinState
	// Proxy says that another port of the partition asked for it, and that such may end it.
	Proxy bool
}

// Group is a multicast group and its members.
type Group struct {
	GroupInfo
	Members []Member
}

// group is a group as the administrator keeps it.
type group struct {
	info    GroupInfo
	members []Member
	at      map[ib.GUID]int // place of a port in members
	keepers int             // members that keep the group alive
}

// groupTable is all groups.
type groupTable struct {
	byMGID  map[ib.GID]*group
	byMLID  map[ib.LID]*group
	used    []uint64 // multicast LIDs that are in use, from 0xC000 on
	mlidMax ib.LID
	unique  uint32 // last number in an MGID of our own making
	// revision counts changes of groups and their members.
	revision uint64
}

func (t *groupTable) init() {
	t.byMGID, t.byMLID = map[ib.GID]*group{}, map[ib.LID]*group{}
	t.used = make([]uint64, (int(ib.LIDMulticastMax-ib.LIDMulticastMin)+64)/64)
	t.mlidMax = ib.LIDMulticastMax
}

// list is all groups in the order of their LIDs.
func (t *groupTable) list() []*group {
	all := make([]*group, 0, len(t.byMLID))
	for w, word := range t.used {
		for ; word != 0; word &= word - 1 {
			all = append(all, t.byMLID[ib.LIDMulticastMin+ib.LID(64*w+bits.TrailingZeros64(word))])
		}
	}
	return all
}

// free reports whether a multicast LID can be given out.
func (t *groupTable) free(l ib.LID) bool {
	if !l.IsMulticast() || l > t.mlidMax {
		return false
	}
	i := int(l - ib.LIDMulticastMin)
	return t.used[i/64]>>(i%64)&1 == 0
}

// allocate takes the multicast LID that is wished for, or the lowest that is free.
func (t *groupTable) allocate(wish ib.LID) (ib.LID, bool) {
	if t.free(wish) {
		return wish, true
	}
	for w, word := range t.used {
		if word != ^uint64(0) {
			l := ib.LIDMulticastMin + ib.LID(64*w+bits.TrailingZeros64(^word))
			return l, t.free(l)
		}
	}
	return 0, false
}

func (t *groupTable) insert(g *group) {
	i := int(g.info.MLID - ib.LIDMulticastMin)
	t.used[i/64] |= 1 << (i % 64)
	t.byMGID[g.info.MGID], t.byMLID[g.info.MLID] = g, g
}

func (t *groupTable) remove(g *group) {
	i := int(g.info.MLID - ib.LIDMulticastMin)
	t.used[i/64] &^= 1 << (i % 64)
	delete(t.byMGID, g.info.MGID)
	delete(t.byMLID, g.info.MLID)
}

// find is a port's membership, -1 if it has none.
func (g *group) find(port ib.GUID) int {
	if i, ok := g.at[port]; ok {
		return i
	}
	return -1
}

// setMember adds a member or changes one.
func (g *group) setMember(m Member) {
	i := g.find(m.PortGID.GUID())
	if i < 0 {
		i = len(g.members)
		g.members = append(g.members, Member{PortGID: m.PortGID})
		g.at[m.PortGID.GUID()] = i
	}
	g.keepers += keeps(m.JoinState) - keeps(g.members[i].JoinState)
	g.members[i] = m
}

func keeps(s mad.JoinState) int {
	if s&mad.JoinKeepsGroup != 0 {
		return 1
	}
	return 0
}

// removeMember takes a member out; the last one takes its place.
func (a *Admin) removeMember(g *group, i int) {
	last := len(g.members) - 1
	g.keepers -= keeps(g.members[i].JoinState)
	delete(g.at, g.members[i].PortGID.GUID())
	if i != last {
		g.members[i] = g.members[last]
		g.at[g.members[i].PortGID.GUID()] = i
	}
	g.members = g.members[:last]
	a.changed(g, GroupChanged)
}

// buryIfDead deletes a group that no member keeps alive (o15-0.1.10), with the members that only took part. It reports
// whether it did.
func (a *Admin) buryIfDead(g *group) bool {
	if g.info.Permanent || g.keepers > 0 {
		return false
	}
	a.groups.remove(g)
	a.changed(g, GroupDeleted)
	a.reportGroup(g, mad.TrapMulticastDeleted)
	return true
}

// Errors of the package.
var (
	// ErrGroup is matched by the errors of Precreate.
	ErrGroup = errors.New("no such multicast group can be")
)

// GroupError says what is wrong with a group.
type GroupError struct {
	MGID ib.GID
	Why  string
}

func (e *GroupError) Error() string { return fmt.Sprintf("sa: group %v: %s", e.MGID, e.Why) }

// Unwrap makes errors.Is(err, ErrGroup) true.
func (e *GroupError) Unwrap() error { return ErrGroup }

// Precreate makes a group that is there whether it has members or not, and returns it as it is: an MLID of 0 takes any.
// A group of this MGID that is there already is made permanent and takes the parameters, but keeps its MLID and
// members. The manager does so for the broadcast groups of IP over InfiniBand.
func (a *Admin) Precreate(want GroupInfo) (GroupInfo, error) {
	switch {
	case !validMGID(want.MGID):
		return want, &GroupError{want.MGID, "want a multicast GID, ff00::/8 without reserved flags"}
	case !want.PKey.IsValid():
		return want, &GroupError{want.MGID, fmt.Sprintf("P_Key %v: want one of a partition", want.PKey)}
	case !want.MTU.IsValid():
		return want, &GroupError{want.MGID, fmt.Sprintf("MTU %v: want 256 to 4096", want.MTU)}
	case !want.Rate.IsValid():
		return want, &GroupError{want.MGID, fmt.Sprintf("rate %v: want one of the standard's", want.Rate)}
	}
	want.Permanent = true
	want.Scope = want.MGID[1] & 0xF
	if want.PacketLifeTime == 0 {
		want.PacketLifeTime = a.cfg.PacketLifeTime
	}
	if g := a.groups.byMGID[want.MGID]; g != nil {
		want.MLID = g.info.MLID
		g.info = want
		return want, nil
	}
	g, ok := a.create(want)
	if !ok {
		return want, &GroupError{want.MGID, "all multicast LIDs that switches have room for are in use: delete " +
			"groups, or use switches with larger tables"}
	}
	return g.info, nil
}

// HasGroup reports whether there is a group.
func (a *Admin) HasGroup(mgid ib.GID) bool { return a.groups.byMGID[mgid] != nil }

// Withdraw makes a group mortal again: it goes when nobody keeps it alive. It reports whether there is such a group.
func (a *Admin) Withdraw(mgid ib.GID) bool {
	g := a.groups.byMGID[mgid]
	if g == nil {
		return false
	}
	g.info.Permanent = false
	a.buryIfDead(g)
	return true
}

// create makes a group without members.
func (a *Admin) create(info GroupInfo) (*group, bool) {
	mlid, ok := a.groups.allocate(info.MLID)
	if !ok {
		return nil, false
	}
	info.MLID = mlid
	g := &group{info: info, at: map[ib.GUID]int{}}
	a.groups.insert(g)
	a.changed(g, GroupCreated)
	a.reportGroup(g, mad.TrapMulticastCreated)
	return g, true
}

// Groups are all groups, in the order of their multicast LIDs; members are in the order of their GIDs.
func (a *Admin) Groups() []Group {
	var all []Group
	for _, g := range a.groups.list() {
		all = append(all, g.export())
	}
	return all
}

func (g *group) export() Group {
	members := slices.Clone(g.members)
	slices.SortFunc(members, func(x, y Member) int { return cmp.Compare(x.PortGID.GUID(), y.PortGID.GUID()) })
	return Group{GroupInfo: g.info, Members: members}
}

// EventKind says what happened to a multicast group, or that it was not about one.
type EventKind uint8

// Kinds of event.
const (
	GroupChanged EventKind = iota
	GroupCreated
	GroupDeleted
	GUIDsChanged // a port should have other GUIDs
	NumEventKind
)

func (k EventKind) String() string {
	if k < NumEventKind {
		return [...]string{"changed", "created", "deleted", "GUIDs changed"}[k]
	}
	return fmt.Sprintf("EventKind(%d)", uint8(k))
}

// Event tells the manager that the tables of a multicast LID have to be looked at, or those of a port (EachGUIDs).
// Events of one LID or port that nobody has polled are joined, so what an event says is what is so now.
type Event struct {
	Kind EventKind
	MLID ib.LID
	MGID ib.GID
	Port ib.GUID
}

// Revision changes whenever a group comes, goes or changes its members: who has seen this revision need not look again.
func (a *Admin) Revision() uint64 { return a.groups.revision }

// EachGroup visits all groups in the order of their multicast LIDs, without copying: f must not keep or change what it
// is given. Members are in no particular order, but always in the same one after the same requests.
func (a *Admin) EachGroup(f func(info *GroupInfo, members []Member)) {
	for _, g := range a.groups.list() {
		f(&g.info, g.members)
	}
}

// queuedEvent is an event that waits to be polled.
type queuedEvent struct {
	kind EventKind
	mgid ib.GID
}

// changed notes that the manager has to look at a group.
func (a *Admin) changed(g *group, kind EventKind) {
	a.groups.revision++
	a.tell(g, kind)
}

// tell queues an event.
func (a *Admin) tell(g *group, kind EventKind) {
	l := g.info.MLID
	old, ok := a.queued[l]
	if !ok {
		a.events = append(a.events, l)
	} else if kind == GroupChanged {
		kind = old.kind
	}
	a.queued[l] = queuedEvent{kind, g.info.MGID}
}

// PollEvent is the next change of a multicast group or of a port's GUIDs.
func (a *Admin) PollEvent() (Event, bool) {
	if len(a.events) == 0 {
		return a.guids.poll()
	}
	l := a.events[0]
	a.events = a.events[1:]
	if len(a.events) == 0 {
		a.events = nil
	}
	e := Event{Kind: a.queued[l].kind, MLID: l, MGID: a.queued[l].mgid}
	delete(a.queued, l)
	g := a.groups.byMLID[l]
	if g == nil {
		e.Kind = GroupDeleted
		return e, true
	}
	if e.Kind == GroupDeleted {
		e.Kind = GroupCreated // its LID went to another group meanwhile
	}
	e.MGID = g.info.MGID
	return e, true
}

// Members are the ports that receive what goes to a multicast LID, and those that only send, in the order of nodes.
// Both hold until the next call.
func (a *Admin) Members(mlid ib.LID) (receivers, senders []subnet.Ref) {
	g := a.groups.byMLID[mlid]
	if g == nil {
		return nil, nil
	}
	receivers, senders = a.refs[0][:0], a.refs[1][:0]
	for i := range g.members {
		m := &g.members[i]
		r, ok := a.port(m.PortGID)
		switch {
		case !ok:
		case m.JoinState&mad.JoinReceives != 0:
			receivers = append(receivers, r)
		default:
			senders = append(senders, r)
		}
	}
	byPlace := func(x, y subnet.Ref) int { return cmp.Or(cmp.Compare(x.Node, y.Node), cmp.Compare(x.Port, y.Port)) }
	slices.SortFunc(receivers, byPlace)
	slices.SortFunc(senders, byPlace)
	a.refs = [2][]subnet.Ref{receivers, senders}
	return receivers, senders
}
