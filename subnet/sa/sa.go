package sa

import (
	"softib/proto/ib"
	"softib/proto/mad"
	"softib/subnet"
)

// Config is what may differ between administrators. Zero values mean the defaults.
type Config struct {
	// SMKey makes a request trusted; 0 trusts nobody.
	SMKey uint64
	// PacketLifeTime is the life time of a packet on any path, as 4.096 us * 2^n: 18 by default, which is one second.
	PacketLifeTime uint8
	// ResponseMax bounds the bytes of a response: 64 MiB by default. What would take more
	// is refused for want of resources.
	ResponseMax int
	// MLIDMax is the last multicast LID to give out; by default the last that all switches have room for.
	MLIDMax ib.LID
	// ServicesMax and SubscriptionsMax bound what hosts may leave here, all together: 65536 each by default.
	// ReportsMax bounds the reports that wait to be sent: 262144 by default.
	ServicesMax, SubscriptionsMax, ReportsMax int
	// QoS chooses the class of service of paths; nil leaves it to routing and partitions.
	QoS QoS
}

func (c *Config) fill() {
	if c.PacketLifeTime == 0 {
		c.PacketLifeTime = 18
	}
	for _, d := range []struct {
		v *int
		n int
	}{{&c.ResponseMax, 64 << 20}, {&c.ServicesMax, 1 << 16}, {&c.SubscriptionsMax, 1 << 16}, {&c.ReportsMax, 1 << 18}} {
		if *d.v <= 0 {
			*d.v = d.n
		}
	}
}

// QoS chooses the class of service of a path.
type QoS interface {
	Path(PathQuery) Choice
}

// PathQuery is what a request says about a path that somebody wants.
type PathQuery struct {
	Src, Dst subnet.Ref
	SGID     ib.GID
	DGID     ib.GID
	// PKey is the partition that was asked for, 0 if none was.
	PKey         ib.PKey
	HasServiceID bool
	ServiceID    uint64
	HasQoSClass  bool
	QoSClass     uint16
	TClass       uint8
}

// Choice is what policy says about a path. Zero values leave things open.
type Choice struct {
	// Deny says that there shall be no such path.
	Deny bool
	// HasSL and SL give the service level, unless routing needs another against deadlocks.
	HasSL bool
	SL    ib.SL
	// PKey is the partition to use.
	PKey ib.PKey
	// MTUMax and RateMax are limits.
	MTUMax  ib.MTU
	RateMax mad.Rate
	// PacketLifeTime replaces the administrator's, if it is not 0.
	PacketLifeTime uint8
}

// Counters count what an administrator did since it was made.
type Counters struct {
	Requests, Responses uint64
	// Errors are responses whose status is not OK.
	Errors uint64
	// Malformed, BadSMKey and Strangers are requests that got no answer: too short or no request at all, with a
	// wrong SM_Key, from a port that is not in the subnet.
	Malformed, BadSMKey, Strangers uint64
	Reports, ReportsDropped        uint64
}

// Admin is a subnet administrator.
type Admin struct {
	cfg Config
	net *subnet.Subnet
	// ends are the end ports in use, in the order of the nodes.
	ends []subnet.Ref
	// aliases are GUIDs beside the ports' own.
	aliases  map[ib.GUID]subnet.Ref
	counters Counters

	groups   groupTable
	services serviceTable
	informs  informTable
	guids    guidTable
	events   []ib.LID // multicast LIDs to tell the manager about
	queued   map[ib.LID]queuedEvent
	refs     [2][]subnet.Ref // of the last call of Members

	q   query
	out []byte
	tid uint32
}

// New makes an administrator that knows nothing yet.
func New(cfg Config) *Admin {
	cfg.fill()
	a := &Admin{cfg: cfg, queued: map[ib.LID]queuedEvent{}}
	a.groups.init()
	a.services.init()
	a.guids.init()
	return a
}

// Counters are the administrator's counters.
func (a *Admin) Counters() Counters { return a.counters }

// SetSMKey replaces the key that makes a request trusted.
func (a *Admin) SetSMKey(k uint64) { a.cfg.SMKey = k }

// SetQoS replaces the policy; nil takes it away.
func (a *Admin) SetQoS(q QoS) { a.cfg.QoS = q }

// SetSubnet takes the subnet that a sweep published. Memberships, services and subscriptions of
// ports that left it are dropped (a port that comes back is told to register again), and subscribers hear of
// ports that came and went.
func (a *Admin) SetSubnet(s *subnet.Subnet) {
	old := a.net
	a.net = s
	a.ends = a.ends[:0]
	s.EachEnd(func(r subnet.Ref, p *subnet.Port) { a.ends = append(a.ends, r) })
	a.dropGUIDs()
	a.indexAliases()
	a.groups.mlidMax = a.mlidMax()
	a.dropLeft()
	if old != nil {
		a.reportMoves(old, s)
	}
}

// dropLeft forgets what ports that are no longer there registered, and members that are no longer in their group's
// partition.
func (a *Admin) dropLeft() {
	gone := func(g ib.GID) bool { _, ok := a.port(g); return !ok }
	for _, g := range a.groups.list() {
		for i := len(g.members) - 1; i >= 0; i-- {
			r, there := a.port(g.members[i].PortGID)
			if there {
				// Of a port whose keys are not known yet nothing is concluded.
				t := a.net.Port(r).Tables
				there = t == nil || len(t.PKeys) == 0 || a.hasKey(r, g.info.PKey)
			}
			if !there {
				a.removeMember(g, i)
			}
		}
		if !a.buryIfDead(g) {
			// Nodes may have other numbers now, so that the list of members reads differently.
			a.tell(g, GroupChanged)
		}
	}
	a.services.keep(func(s *Service) bool { _, ok := a.servicePort(&s.Record); return ok })
	a.informs.keep(func(s *Subscription) bool { return !gone(s.SubscriberGID) })
}

// mlidMax is the last multicast LID that all switches have room for.
func (a *Admin) mlidMax() ib.LID {
	top := ib.LIDMulticastMax
	for _, i := range a.net.Switches {
		if n := a.net.Nodes[i].Switch.MulticastFDBCap; n > 0 {
			top = min(top, ib.LIDMulticastMin+ib.LID(min(n, 0x3FFE))-1)
		}
	}
	if a.cfg.MLIDMax.IsMulticast() {
		top = min(top, a.cfg.MLIDMax)
	}
	return top
}

// NextDeadline is when the administrator wants HandleTimer to be called.
func (a *Admin) NextDeadline() ib.Time { return a.services.next() }

// HandleTimer expires leases.
func (a *Admin) HandleTimer(now ib.Time) { a.services.expire(now) }

// port finds the end port of a GID of this subnet.
func (a *Admin) port(g ib.GID) (subnet.Ref, bool) {
	if a.net == nil {
		return subnet.Ref{Node: subnet.None}, false
	}
	if p := g.Prefix(); p != a.net.Prefix && p != ib.DefaultGIDPrefix {
		return subnet.Ref{Node: subnet.None}, false
	}
	r, ok := a.net.ByPortGUID(g.GUID())
	if !ok {
		r, ok = a.aliases[g.GUID()]
	}
	return r, ok
}

// gid is the GID of an end port.
func (a *Admin) gid(r subnet.Ref) ib.GID { return ib.MakeGID(a.net.Prefix, a.net.Port(r).GUID) }

// defaultKeys is what a port is taken to hold whose table is not known.
var defaultKeys = []ib.PKey{ib.PKeyDefault}

// keys are the partition keys of an end port.
func (a *Admin) keys(r subnet.Ref) []ib.PKey {
	if t := a.net.Port(r).Tables; t != nil && len(t.PKeys) > 0 {
		return t.PKeys
	}
	return defaultKeys
}

// share finds a partition in which two end ports may talk; the key is the first port's.
func (a *Admin) share(r, s subnet.Ref) (ib.PKey, bool) {
	theirs := a.keys(s)
	for _, k := range a.keys(r) {
		if !k.IsValid() {
			continue
		}
		for _, t := range theirs {
			if k.Matches(t) {
				return k, true
			}
		}
	}
	return 0, false
}

// shareThis is share for a partition that somebody asked for.
func (a *Admin) shareThis(r, s subnet.Ref, want ib.PKey) (ib.PKey, bool) {
	theirs := a.keys(s)
	for _, k := range a.keys(r) {
		if k.Base() != want.Base() {
			continue
		}
		for _, t := range theirs {
			if k.Matches(t) {
				return k, true
			}
		}
	}
	return 0, false
}

// hasKey reports whether an end port is in a partition, fully or not.
func (a *Admin) hasKey(r subnet.Ref, want ib.PKey) bool {
	for _, k := range a.keys(r) {
		if k.IsValid() && k.Base() == want.Base() {
			return true
		}
	}
	return false
}
