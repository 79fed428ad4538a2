package sm

import (
	"encoding/binary"
	"maps"
	"slices"

	"softib/node/madrpc"
	"softib/proto/ib"
	"softib/proto/mad"
	"softib/subnet"
	"softib/subnet/policy"
	"softib/subnet/route"
	"softib/subnet/sa"
)

// Manager is a subnet manager. See the package's comment for how it is driven.
type Manager struct {
	cfg Config
	now ib.Time

	state mad.SMState

	sub *subnet.Subnet // the last published one
	// doubt has the switches that may hold other tables than the last subnet says.
	doubt map[ib.GUID]bool
	// unsure has the hosts that a sweep has given other tables than the last subnet says, before it was given up.
	unsure map[ib.GUID]bool
	// actual is what switches hold whose last writes were put off.
	actual map[ib.GUID][]ib.PortNum
	// failing counts the sweeps in a row in which a link or a switch did not do what it was told.
	failing map[failingPort]int
	// deaf has nodes that were found and then fell silent, with the beginning of the last sweep in which they did.
	deaf map[ib.GUID]ib.Time
	// net and tables are what the last subnet was routed by.
	net    *route.Network
	tables *route.Tables
	// shared are the port tables that were seen last, for ports that hold the same.
	shared   [8]*subnet.PortTables
	sharedAt int

	sweep  *sweep // the one under way
	phases uint32 // that ever ran
	jobOut bool   // routing is being computed

	requests requests
	asked    request // being sent, and answer the one being answered: here so that neither is allocated
	answer   request
	inFlight int
	width    int     // how many may be
	streak   int     // answers since it was changed
	paced    ib.Time // when it may be narrowed again
	buf      [mad.Size]byte
	out      []outgoing // answers and the like, ahead of the sweep's requests

	guid       ib.GUID // of the manager's own port
	members    *membership
	groupsMade []ib.GID // of partitions
	unenforced map[ib.GUID]bool
	tickets    uint64 // of decisions
	force      Force
	plainLanes bool // quality of service was on once and is to leave nothing behind
	cc         congestion
	choosing   map[ib.GUID]*choosing // by switch
	byLane     map[ib.GUID]bool      // switches whose mappings go by the lane that a packet came on
	arGroups   *route.Groups         // that go with tables
	keys       keyring
	planned    *planned                // nil until there is one, see plannedRoutes
	routers    map[ib.GUID]*routerPort // by port
	// routed is what routers wanted when multicast tables were made.
	routed      map[ib.GUID][]mad.RouterGroup
	matcher     *policy.QoSMatcher
	qosSaid     string // of which engine it was said that its levels go before
	groups      []Group
	takeover    takeover
	mayAskUntil ib.Time // until when a successor may ask
	registered  bool    // hosts have registered something since memory was taken
	admin       *sa.Admin
	grouped     uint64 // revision of the groups whose tables were written
	brief       bool   // only what the subnet needs to be up
	forced      bool   // a handover makes this manager go on, whoever else is there
	tookOver    bool   // clients have to register anew
	setbacks    int    // sweeps in a row that were given up because a switch did not take its table
	restarts    int    // sweeps in a row that were given up because a node fell silent
	overtaken   int    // sweeps in a row that were given up because something changed meanwhile
	cutOffs     int    // sweeps in a row that were given up because the manager's own link had been down
	unanswered  unanswered
	lateFails   int     // sweeps in a row whose late rounds were not taken
	fullTook    ib.Time // the last full sweep, until its subnet was published
	trapSeen    map[trapKey]trapSeen
	calm        ib.Time // no refused key leads to a look before
	pathsOf     *subnet.Subnet
	lightPaths  [][]ib.PortNum

	wants    wants // reasons for the next sweep
	lids     *lidBook
	light    light
	peers    election
	last     SweepReport
	history  []SweepReport
	sweeps   int
	events   []Event
	counters Counters
	sent     uint64
}

// outgoing is a datagram that is ready to go.
type outgoing struct {
	env     mad.Envelope
	data    []byte
	timeout ib.Time
	retries int
	req     request
	tracked bool
}

// New makes a manager. Nothing happens before Start.
func New(cfg Config) *Manager {
	m := &Manager{cfg: cfg.withDefaults(), state: mad.SMNotActive, doubt: map[ib.GUID]bool{},
		choosing: map[ib.GUID]*choosing{}, byLane: map[ib.GUID]bool{}, unsure: map[ib.GUID]bool{},
		routers: map[ib.GUID]*routerPort{},
		actual:  map[ib.GUID][]ib.PortNum{},
		failing: map[failingPort]int{}, deaf: map[ib.GUID]ib.Time{}, trapSeen: map[trapKey]trapSeen{}, wants: noWants()}
	m.keys, m.guid = newKeyring(&m.cfg), m.cfg.Self
	m.keys.neighbors = maps.Clone(m.cfg.Memory.Neighbors)
	m.width = m.cfg.Window
	var refused []ib.GUID
	m.lids, refused = newLIDBook(m.cfg.Memory.LIDs)
	for k, g := range refused {
		if k == grumbles {
			m.event(EventProblem, "and %d remembered addresses more", len(refused)-k)
			break
		}
		m.event(EventProblem, "remembered address %v of port %v is no unicast LID or another port's: the port "+
			"gets a new one", m.cfg.Memory.LIDs[g], g)
	}
	m.lids.next = max(m.lids.next, m.cfg.FirstLID)
	m.groups = slices.Clone(m.cfg.Groups)
	m.admin = m.newAdmin()
	m.admin.Import(0, m.cfg.Memory.Admin)
	m.light.next = ib.Never
	m.peers.init()
	if err := m.usePolicy(m.cfg.QoS.Policy); err != nil {
		m.event(EventProblem, "QoS policy: %v: it is left out", err)
	}
	return m
}

// Start makes the manager discover the subnet and, if no other does, manage it.
func (m *Manager) Start(now ib.Time) {
	m.now = now
	m.become(mad.SMDiscovering, "start")
	m.want(now, "start")
}

// State is where the manager stands among others.
func (m *Manager) State() mad.SMState { return m.state }

// GUID is that of the port that the manager is at.
func (m *Manager) GUID() ib.GUID { return m.guid }

// Port is the GUID of the port that the manager runs at; 0 before it has asked.
func (m *Manager) Port() ib.GUID { return m.guid }

// Config is what the manager was told, with the defaults of what it was not.
func (m *Manager) Config() Config { return m.cfg }

// Subnet is the subnet as the last complete sweep left it; nil before the first.
func (m *Manager) Subnet() *subnet.Subnet { return m.sub }

// Last is the report of the last sweep that was completed.
func (m *Manager) Last() SweepReport { return m.last }

// Sweeps counts the sweeps that were completed.
func (m *Manager) Sweeps() int { return m.sweeps }

// Sent counts the datagrams that were sent.
func (m *Manager) Sent() uint64 { return m.sent }

// Sweeping reports whether a sweep is under way or due.
func (m *Manager) Sweeping() bool { return m.sweep != nil || m.wants.any() }

func (m *Manager) become(s mad.SMState, why string) {
	if m.state == s {
		return
	}
	m.event(EventState, "%s -> %s: %s", m.state, s, why)
	m.state = s
}

// PollSend gives the next datagram to send. False means that there is none now.
func (m *Manager) PollSend(now ib.Time, send *Send) bool {
	m.now = max(m.now, now)
	// Looking for a request may end a phase, which leaves something to tell: who is told that there is nothing goes to
	// sleep.
	return m.pollOut(send) || m.pollRequest(send) || m.pollOut(send)
}

// pollOut is the next datagram that is ready.
func (m *Manager) pollOut(send *Send) bool {
	if len(m.out) == 0 {
		return false
	}
	o := m.out[0]
	m.out = m.out[1:]
	*send = Send{Env: o.env, Data: o.data, Timeout: o.timeout, Retries: o.retries}
	if o.tracked {
		o.req.to = o.env
		send.Cookie = m.requests.Put(o.req)
		binary.BigEndian.PutUint64(o.data[8:], madrpc.TransactionOf(send.Cookie))
	}
	m.sent++
	return true
}

// pollRequest is the next request of what is going on: a sweep, a look, or the renewal of keys.
func (m *Manager) pollRequest(send *Send) bool {
	m.startSweep()
	if m.inFlight >= min(m.width, m.cfg.Window) {
		return false
	}
	r := &m.asked
	*r = request{}
	switch {
	case m.lightMay() && m.nextLight(r):
		r.phase = lightPhase
	case m.sweep != nil:
		if !m.sweep.nextRepeat(r) && !m.sweep.next(r) {
			// If that was its end, what has waited for it goes on: a light sweep has no other deadline.
			return m.sweep == nil && m.pollRequest(send)
		}
		r.phase = m.phases
	case m.nextRenewal(r):
		r.phase = renewPhase
	default:
		return false
	}
	*send = Send{
		Env: mad.Envelope{LID: ib.LIDPermissive, QPN: ib.QPNSMI}, Data: m.buf[:],
		Timeout: m.cfg.Timeout, Retries: m.cfg.Retries, Cookie: m.requests.Put(*r),
	}
	if r.to.QPN == ib.QPNGSI {
		send.Env = r.to
	}
	if r.set && m.sweep != nil {
		send.Retries = 0 // the sweep sees to that
		*m.requests.write(send.Cookie) = m.buf
	}
	// The lower half of the transaction is ours; whoever carries the datagram owns the upper one.
	binary.BigEndian.PutUint64(m.buf[8:], madrpc.TransactionOf(send.Cookie))
	m.inFlight++
	m.sent++
	return true
}

// HandleReply takes the answer to a request; a nil data means that none came in time.
func (m *Manager) HandleReply(now ib.Time, cookie uint64, data []byte) {
	m.now = max(m.now, now)
	var ok bool
	if m.answer, ok = m.requests.Take(cookie); !ok {
		return
	}
	r := &m.answer
	var v mad.View
	if len(data) >= mad.Size {
		v = mad.View(data[:mad.Size:mad.Size])
		if v.AttrID() != r.attr || !v.Method().IsResponse() || r.phase != 0 && v.AttrMod() != r.mod {
			v = nil // an answer to something else is none
		}
	}
	if r.phase == 0 {
		switch r.what {
		case tellReport:
			if v != nil {
				m.admin.HandleReportResp(m.now, r.to, data)
			}
		case askRecords:
			m.tookRecords(r.attr, data) // may be shorter than a datagram
		default:
			m.peerReply(r, v)
		}
		return
	}
	m.inFlight--
	m.pace(v != nil)
	if r.phase == lightPhase {
		m.lightReply(r, v)
		return
	}
	if r.phase == renewPhase {
		m.renewed(r, v)
		return
	}
	if m.sweep != nil && r.phase == m.phases {
		if r.set {
			m.sweep.writing--
		}
		if data == nil && (m.sweep.overtaken() || m.sweep.sendAgain(r, m.requests.write(cookie))) {
			return
		}
		m.sweep.reply(r, v)
	}
}

// pace narrows the window where answers do not come, and widens it slowly as they do: subnet management has no flow
// control, and nodes with small buffers lose what comes too fast (IBA 7.9.3). Who repeats the same burst loses the same
// datagrams again.
func (m *Manager) pace(answered bool) {
	switch {
	case answered:
		if m.streak++; m.streak >= m.width {
			m.width, m.streak = min(m.width+1, m.cfg.Window), 0
		}
	case m.now >= m.paced:
		m.width, m.streak = max(m.width/2, 1), 0
		m.paced = m.now + m.cfg.Timeout
	}
}

// NextDeadline is when the manager wants HandleTimer to be called.
func (m *Manager) NextDeadline() ib.Time {
	d := ib.Earlier(ib.Earlier(m.light.next, m.keys.renewal.next), m.admin.NextDeadline())
	switch {
	case !m.maySweep():
	case m.sweep == nil:
		d = ib.Earlier(d, m.wants.at())
	case m.sweep.hold > m.now:
		d = ib.Earlier(d, m.sweep.hold)
		if at := m.wants.at(); at > m.now || m.sweep.pressed() {
			d = ib.Earlier(d, at)
		}
	}
	return ib.Earlier(d, m.peers.next)
}

// HandleTimer does what has become due.
func (m *Manager) HandleTimer(now ib.Time) {
	m.now = max(m.now, now)
	if now >= m.peers.next {
		m.pollPeers()
	}
	if now >= m.light.next {
		m.startLight()
	}
	if now >= m.keys.renewal.next {
		m.startRenewal()
	}
	m.admin.HandleTimer(m.now)
}

// wants are the reasons for sweeps: for a full one, and for a look at some nodes. A full one that can wait does not
// hold up a look, and does not come sooner for it.
type wants struct {
	full, look wish
	lookAt     map[ib.GUID]bool
}

// wish is when something should begin and why; Never if there is no reason.
type wish struct {
	at  ib.Time
	why string
}

func noWants() wants { return wants{full: wish{at: ib.Never}, look: wish{at: ib.Never}} }

// at is when the next sweep should begin.
func (w *wants) at() ib.Time { return ib.Earlier(w.full.at, w.look.at) }

func (w *wants) any() bool { return w.at() != ib.Never }

// sooner moves a wish ahead. The reason is that of the earliest.
func (w *wish) sooner(at ib.Time, why string) {
	if at < w.at {
		*w = wish{at, why}
	}
}

// due reports whether the next sweep should begin now.
func (m *Manager) due() bool { return m.now >= m.wants.at() && m.maySweep() }

// maySweep reports whether sweeps are this manager's to make.
func (m *Manager) maySweep() bool { return m.state != mad.SMStandby && m.state != mad.SMNotActive }

// want asks for a full sweep, not before at.
func (m *Manager) want(at ib.Time, why string) { m.wants.full.sooner(at, why) }

// wantLook asks for a look at one switch.
func (m *Manager) wantLook(at ib.Time, guid ib.GUID, why string) {
	w := &m.wants
	w.look.sooner(at, why)
	if w.lookAt == nil {
		w.lookAt = map[ib.GUID]bool{}
	}
	w.lookAt[guid] = true
}

// retryAt is when to try again what did not work: with the next light sweep's time, or after as long where there are
// none.
func (m *Manager) retryAt(tries int) ib.Time {
	pause := m.cfg.SweepInterval
	if pause <= 0 {
		pause = DefaultSweepInterval
	}
	return m.now + pause<<min(max(tries, 0), retryDoublings)
}

// retryDoublings bounds how long the pauses between tries grow.
const retryDoublings = 5

// Sweep asks for a full sweep now. A manager that stands by or is disabled does none.
func (m *Manager) Sweep(now ib.Time, why string) {
	m.now = max(m.now, now)
	if m.maySweep() {
		m.want(m.now, why)
	}
}

// lightPhase marks requests of light sweeps.
const lightPhase = 1<<32 - 1
