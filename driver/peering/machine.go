package peering

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"softib/node/tunnel"
	"softib/proto/ib"
)

// Config is what a machine is made with.
type Config struct {
	// Name is the machine's, which its certificate has among its DNS names.
	Name string
	// TLS has the machine's certificate (Certificates) and the CA (RootCAs). Time may be set, nothing else is used.
	TLS *tls.Config
	// Listen is an address and the port for TCP and UDP; port 0 takes one that is free.
	Listen string
	// MTU is the longest datagram, without the headers of UDP and IP; 1452 bytes, which fit Ethernet's 1500 with IPv6.
	MTU int
	// Window is how many bytes may be queued for a peer and under way, 1 MiB: enough for 10 GB/s where a round trip
	// takes 100 us. A longer way needs more.
	Window int
	// Handler is told what happens.
	Handler Handler
	// Allow says whether a peer with a right certificate may connect; all may if it is nil.
	Allow func(peer string) error
	// DeadAfter is how long a peer may be silent, 2 s; TCP may be for 2.5 times as long.
	DeadAfter time.Duration
}

// Handler is told what happens. Calls about one peer come one at a time.
type Handler interface {
	// Up says that messages pass.
	Up(p *Peer)
	// Messages hands over what has come, in order. The bytes are good until it returns.
	Messages(p *Peer, batch []Message)
	// Room says that there is room again after Send returned tunnel.ErrFull.
	Room(p *Peer)
	// Down says that no more comes, and why. The peer may come up again as another *Peer.
	Down(p *Peer, why error)
	// Trouble says why a peer was not reached, or who was turned away; it is not told over and over. Peer is "" if it
	// is not known who it was.
	Trouble(peer string, err error)
}

// Message is one of a peer's.
type Message struct {
	Stream uint32
	Data   []byte
}

const (
	mtuDefault    = 1452
	windowDefault = 1 << 20
	windowLeast   = 64 << 10

	helloWait    = 5 * time.Second // for all of a meeting
	guestsMax    = 256             // connections that have proven nothing yet
	guestsOfEach = 16              // of one address

	dialFirst   = 50 * time.Millisecond // between attempts
	dialMost    = 5 * time.Second
	dialLater   = 2 * time.Second // for the one with the greater name
	learnedKept = time.Minute     // how long one is dialed that nobody here asked for
)

// Machine is this machine's end of all connections.
type Machine struct {
	cfg      Config
	port     uint16
	instance string // another one each time that a process starts
	tcp      net.Listener
	udp      *socket
	stop     context.CancelFunc
	stopped  context.Context
	running  sync.WaitGroup

	// sessions are the peers by the index of their datagrams. It is replaced, never changed.
	sessions atomic.Pointer[map[uint32]*Peer]
	strays   atomic.Uint64 // datagrams of no session

	mu       sync.Mutex
	links    map[string]*link
	methods  map[string]Method
	guests   map[netip.Addr]int
	nguests  int
	turned   uint64 // away
	troubled time.Time
}

// link is what there is with a peer, up or not.
type link struct {
	name    string
	addr    string // to dial; "" if nobody knows
	wanted  bool   // somebody here asked for it
	peer    *Peer  // nil if there is none
	changed chan struct{}
	stop    context.CancelFunc
	stopped context.Context
	dials   bool
	wasUp   bool  // since dialing last looked
	last    error // why it is not up
}

// New makes a machine that listens.
func New(c Config) (*Machine, error) {
	c.Name = strings.ToLower(c.Name)
	if c.MTU == 0 {
		c.MTU = mtuDefault
	}
	if c.Window == 0 {
		c.Window = windowDefault
	}
	if c.DeadAfter == 0 {
		c.DeadAfter = 2 * time.Second
	}
	fail := func(what string, next string) (*Machine, error) {
		return nil, fmt.Errorf("peering: %w: %s; next: %s", ErrConfig, what, next)
	}
	switch {
	case c.Name == "":
		return fail("a machine without a name", "name it as its certificate does")
	case c.Handler == nil:
		return fail("no handler", "give one")
	case c.MTU < tunnel.MTUMin || c.MTU > tunnel.MTUMax:
		return fail(fmt.Sprintf("MTU %d", c.MTU), fmt.Sprintf("one of %d to %d", tunnel.MTUMin, tunnel.MTUMax))
	case c.Window < windowLeast:
		return fail(fmt.Sprintf("a window of %d bytes", c.Window), fmt.Sprintf("%d bytes or more", windowLeast))
	case c.TLS == nil || len(c.TLS.Certificates) == 0 || c.TLS.RootCAs == nil:
		return fail("no certificate, or no CA", "softib ca issue makes both")
	}
	if cert, err := leaf(c.TLS.Certificates[0]); err != nil {
		return fail(err.Error(), "softib ca issue makes one")
	} else if err := cert.VerifyHostname(c.Name); err != nil {
		return fail(fmt.Sprintf("the certificate is not of this machine, %q: %v", c.Name, err),
			"name the machine as its certificate does, or issue one of its name")
	}
	at, err := net.ResolveTCPAddr("tcp", c.Listen)
	if err != nil {
		return fail(fmt.Sprintf("listen at %q: %v", c.Listen, err), "ADDRESS:PORT, or :PORT for all addresses")
	}
	m := &Machine{cfg: c, links: map[string]*link{}, methods: map[string]Method{}, guests: map[netip.Addr]int{}}
	m.sessions.Store(&map[uint32]*Peer{})
	m.methods[methodPing] = ping
	m.methods[methodEcho] = m.echo
	var b [8]byte
	_, _ = rand.Read(b[:])
	m.instance = hex.EncodeToString(b[:])
	if err := m.listen(at); err != nil {
		return nil, fmt.Errorf("peering: %w; next: see ss -lntup for who has the port", err)
	}
	m.stopped, m.stop = context.WithCancel(context.Background())
	m.running.Go(m.accept)
	m.running.Go(m.read)
	return m, nil
}

// listen opens the two ports of one number.
func (m *Machine) listen(at *net.TCPAddr) error {
	for tries := 0; ; tries++ {
		l, err := net.ListenTCP("tcp", at)
		if err != nil {
			return err
		}
		ap := l.Addr().(*net.TCPAddr).AddrPort()
		if m.udp, err = openSocket(ap); err == nil {
			m.tcp, m.port = l, ap.Port()
			return nil
		}
		l.Close()
		if at.Port != 0 || tries == 20 {
			return fmt.Errorf("UDP at %v: %w", ap, err)
		}
	}
}

// Addr is where it listens.
func (m *Machine) Addr() netip.AddrPort { return m.tcp.Addr().(*net.TCPAddr).AddrPort() }

// Connect keeps a connection to a peer from now on. That it cannot be reached is told as trouble.
func (m *Machine) Connect(name, addr string) error {
	name = strings.ToLower(name)
	if _, _, err := net.SplitHostPort(addr); err != nil {
		return fmt.Errorf("peering: %s: address %q: %w; next: ADDRESS:PORT", name, addr, err)
	}
	if name == m.cfg.Name {
		return fmt.Errorf("peering: %q is this machine's own name; next: name another", name)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stopped.Err() != nil {
		return fmt.Errorf("peering: %w", ErrClosed)
	}
	l := m.link(name)
	l.addr, l.wanted = addr, true
	m.keep(l)
	l.note()
	return nil
}

// Disconnect forgets a peer. If it connects by itself it is welcome.
func (m *Machine) Disconnect(name string) {
	m.mu.Lock()
	l := m.links[strings.ToLower(name)]
	var p *Peer
	if l != nil {
		l.stop()
		delete(m.links, l.name)
		p = l.peer
	}
	m.mu.Unlock()
	if p != nil {
		p.end(ErrClosed, true)
	}
}

// Close ends all connections and listens no more.
func (m *Machine) Close() {
	m.stop()
	m.mu.Lock()
	var peers []*Peer
	for _, l := range m.links {
		l.stop()
		if l.peer != nil {
			peers = append(peers, l.peer)
		}
	}
	m.mu.Unlock()
	for _, p := range peers {
		p.end(ErrClosed, true)
	}
	m.tcp.Close()
	m.udp.close()
	m.running.Wait()
}

// link is the one with a peer. m.mu is held.
func (m *Machine) link(name string) *link {
	l := m.links[name]
	if l == nil {
		l = &link{name: name, changed: make(chan struct{}, 1)}
		l.stopped, l.stop = context.WithCancel(m.stopped)
		m.links[name] = l
	}
	return l
}

// note wakes who keeps the link.
func (l *link) note() {
	select {
	case l.changed <- struct{}{}:
	default:
	}
}

// keep has the link dialed whenever there is no connection. m.mu is held.
func (m *Machine) keep(l *link) {
	if l.dials {
		return
	}
	l.dials = true
	m.running.Go(func() { m.dialing(l) })
}

// dialing dials a peer until somebody stops it.
func (m *Machine) dialing(l *link) {
	lost, first := time.Now(), true
	wait := time.Duration(0)
	for {
		m.mu.Lock()
		up, addr, wanted := l.peer != nil, l.addr, l.wanted
		m.mu.Unlock()
		if up {
			select {
			case <-l.changed:
			case <-l.stopped.Done():
				return
			}
			lost, first = time.Now(), false
			m.mu.Lock()
			if l.wasUp {
				wait = 0
			}
			l.wasUp = false
			m.mu.Unlock()
			continue
		}
		if !wanted && time.Since(lost) > learnedKept {
			m.mu.Lock()
			defer m.mu.Unlock()
			l.stop()
			if l.dials = false; m.links[l.name] == l && l.peer == nil && !l.wanted {
				delete(m.links, l.name)
			}
			return
		}
		pause := wait
		if m.cfg.Name > l.name && !first {
			pause += dialLater
		}
		if !pauseFor(l, pause) {
			return
		}
		m.mu.Lock()
		up = l.peer != nil
		m.mu.Unlock()
		if up {
			continue
		}
		err := m.dial(l.stopped, l.name, addr)
		if errors.Is(err, errAlready) {
			err = nil
		}
		m.mu.Lock()
		tell := err != nil && (l.last == nil || l.last.Error() != err.Error())
		if err != nil {
			l.last = err
		}
		m.mu.Unlock()
		if tell && l.stopped.Err() == nil {
			m.cfg.Handler.Trouble(l.name, err)
		}
		wait = min(max(dialFirst, 2*wait), dialMost)
	}
}

// pauseFor waits, unless the link is stopped. A connection that comes about meanwhile ends the wait.
func pauseFor(l *link, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-l.changed:
	case <-l.stopped.Done():
	}
	return l.stopped.Err() == nil
}

// install makes a peer the one that there is of its name, in place of another. Whoever has the lesser name decides, and
// keeps what it has unless that is of a process that is gone.
func (m *Machine) install(p *Peer, decides bool) error {
	m.mu.Lock()
	if m.stopped.Err() != nil {
		m.mu.Unlock()
		return ErrClosed
	}
	l := m.link(p.name)
	old := l.peer
	if old != nil && decides && old.instance == p.instance {
		m.mu.Unlock()
		return errAlready
	}
	if l.addr == "" {
		l.addr = p.addr.String()
	}
	l.peer = p
	if l.wanted || m.cfg.Name < p.name {
		m.keep(l)
	}
	l.note()
	m.mu.Unlock()
	if old != nil {
		old.end(ErrReplaced, false)
	}
	return nil
}

// cameUp takes note that a peer is up.
func (m *Machine) cameUp(p *Peer) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if l := m.links[p.name]; l != nil && l.peer == p {
		l.wasUp, l.last = true, nil
	}
}

// removed takes note that a peer is down, and reports whether that is for the reason for which it was before.
func (m *Machine) removed(p *Peer, why error) (again bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.register(p, false)
	l := m.links[p.name]
	if l == nil || l.peer != p {
		return false
	}
	for _, e := range []error{ErrSilent, ErrNoDatagrams, ErrNoControl, ErrEnded, ErrReplaced} {
		again = again || errors.Is(l.last, e) && errors.Is(why, e)
	}
	l.peer, l.last = nil, why
	if !l.wanted && (errors.Is(why, ErrClosed) || !l.dials) {
		l.stop()
		delete(m.links, p.name)
	}
	l.note()
	return again
}

// register makes a session's datagrams find it, or find it no more. m.mu is held.
func (m *Machine) register(p *Peer, on bool) {
	s := maps.Clone(*m.sessions.Load())
	if on {
		s[p.index] = p
	} else if s[p.index] == p {
		delete(s, p.index)
	}
	m.sessions.Store(&s)
}

// Peer is the one of a name that is up; nil if none is.
func (m *Machine) Peer(name string) *Peer {
	m.mu.Lock()
	defer m.mu.Unlock()
	if l := m.links[strings.ToLower(name)]; l != nil && l.peer != nil && l.peer.isUp.Load() {
		return l.peer
	}
	return nil
}

// Status is how it is with a peer.
type Status struct {
	Name, Addr string
	Up         bool
	Since      time.Time // that it is up; zero if it is not
	Last       error     // why it is not up, as far as that is known
	Tunnel     tunnel.Stats
}

// Status is how it is with all peers, by name.
func (m *Machine) Status() []Status {
	m.mu.Lock()
	var all []Status
	var peers []*Peer
	for _, name := range slices.Sorted(maps.Keys(m.links)) {
		l := m.links[name]
		all = append(all, Status{Name: name, Addr: l.addr, Last: l.last})
		peers = append(peers, l.peer)
	}
	m.mu.Unlock()
	for i, p := range peers {
		if p != nil && p.isUp.Load() {
			all[i].Up, all[i].Last, all[i].Tunnel = true, nil, p.Stats()
			all[i].Since = *p.since.Load()
		}
	}
	return all
}

// Turned is how many connections were turned away because there were too many, and how many datagrams came that were of
// no session.
func (m *Machine) Turned() (connections, datagrams uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.turned, m.strays.Load()
}

func (m *Machine) deadAfter() ib.Time { return ib.Time(m.cfg.DeadAfter.Nanoseconds()) * ib.Nanosecond }
