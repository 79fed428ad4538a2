package roce

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode"

	"golang.org/x/sys/unix"

	"softib/driver/endpoint"
	"softib/internal/descriptors"
	"softib/internal/packetsock"
	"softib/internal/patience"
	"softib/proto/ib"
)

// Interfaces are those at which this process holds RoCEv2's port. Programs use one or several of them. They are in one
// process because who listens for connections at all of them is told of requests in one place.
type Interfaces struct {
	show  func([]*Server) (string, error)
	say   func(line string)
	users atomic.Int32
	empty chan struct{} // closed when the last was released

	mu     sync.Mutex
	held   []held
	closed bool // no other will be held
	ended  bool // empty is closed
}

// held is an interface that was asked for.
type held struct {
	name   string
	server *Server // nil if it was released
}

// NewInterfaces holds none yet. Show makes the files of a program that sees these, and says in which folder. Say is
// called with what happens, a line each.
func NewInterfaces(show func([]*Server) (string, error), say func(line string)) *Interfaces {
	return &Interfaces{show: show, say: say, empty: make(chan struct{})}
}

// interfacesMax is how many an interface's number can tell apart.
const interfacesMax = 254

// Hold takes the port at interfaces of this machine, where it is not held yet.
func (x *Interfaces) Hold(names ...string) ([]*Server, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.closed {
		return nil, ErrClosed
	}
	var all []*Server
	for _, name := range names {
		i := x.place(name)
		switch {
		case i < len(x.held):
		case i == interfacesMax:
			return nil, fmt.Errorf("roce: %s: %w: more than %d were asked for; next: softib roce --stop, and start "+
				"again", name, ErrMany, interfacesMax)
		default:
			x.held = append(x.held, held{name: name})
		}
		if x.held[i].server == nil {
			c, err := FromInterface(name)
			if err != nil {
				return nil, err
			}
			if x.held[i].server, err = Hold(c); err != nil {
				return nil, err
			}
		}
		all = append(all, x.held[i].server)
	}
	return all, nil
}

// place is where the interface of a name is among those that were asked for, or would be.
func (x *Interfaces) place(name string) int {
	if i := slices.IndexFunc(x.held, func(h held) bool { return h.name == name }); i >= 0 {
		return i
	}
	return len(x.held)
}

// Server is who holds an interface's port, nil if nobody does. Its number is at least 1, and never another interface's.
func (x *Interfaces) Server(name string) (s *Server, number ib.PortNum) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if i := x.place(name); i < len(x.held) {
		return x.held[i].server, ib.PortNum(i + 1)
	}
	return nil, 0
}

// All calls each with who holds an interface's port, by number.
func (x *Interfaces) All(each func(number ib.PortNum, s *Server)) {
	x.mu.Lock()
	all := slices.Clone(x.held)
	x.mu.Unlock()
	for i, h := range all {
		if h.server != nil {
			each(ib.PortNum(i+1), h.server)
		}
	}
}

// release gives an interface's port up.
func (x *Interfaces) release(name string) error {
	x.mu.Lock()
	var s *Server
	if i := x.place(name); i < len(x.held) {
		s, x.held[i].server = x.held[i].server, nil
	}
	if s != nil && !slices.ContainsFunc(x.held, func(h held) bool { return h.server != nil }) {
		x.closed = true
	}
	x.mu.Unlock()
	if s == nil {
		return notHeld(name)
	}
	s.Close()
	return nil
}

// endIfEmpty says that the last was released, once.
func (x *Interfaces) endIfEmpty() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.closed && !x.ended {
		x.ended = true
		close(x.empty)
	}
}

func notHeld(name string) error {
	return fmt.Errorf("roce: %s: %w; next: softib roce %[1]s", name, ErrNotHeld)
}

// Empty is closed when the last interface was released: then no other will be held.
func (x *Interfaces) Empty() <-chan struct{} { return x.empty }

// Close gives all ports up.
func (x *Interfaces) Close() {
	x.mu.Lock()
	x.closed = true
	x.mu.Unlock()
	x.All(func(_ ib.PortNum, s *Server) { s.Close() })
}

// Users counts the programs, and those who keep the ports for programs to come.
func (x *Interfaces) Users() int { return int(x.users.Load()) }

// The protocol of programs: one record asks and one answers, both JSON; the answer to who uses an interface brings its
// sockets, and it brings the memory of its account. The connection stays for as long as the program has them, or wants
// ports to be held.

const protocolVersion = 2

// hello is what a program says.
type hello struct {
	Version    int      `json:"softib_roce"`
	Want       want     `json:"want,omitempty"`
	Interfaces []string `json:"interfaces,omitempty"`
}

// want is what it wants.
type want string

const (
	wantNothing want = ""
	wantUse     want = "use"     // sockets of one interface
	wantKeep    want = "keep"    // ports that are held while the connection is there
	wantStay    want = "stay"    // ports that are held whatever becomes of programs
	wantRelease want = "release" // ports that are held no longer
	wantHeld    want = "held"    // to know what is held
)

// terms are what it is told. Who uses an interface is told more whenever its state changes.
type terms struct {
	Error string  `json:"error,omitempty"`
	Block uint16  `json:"block,omitempty"`
	GUID  ib.GUID `json:"guid,omitempty"`
	State state   `json:"state"`
	View  View    `json:"view"`
	Held  []Held  `json:"held,omitempty"`
}

// Held is an interface whose port is held.
type Held struct {
	Name     string       `json:"name"`
	State    ib.PortState `json:"state"`
	MTU      ib.MTU       `json:"mtu"`
	Addrs    []string     `json:"addrs"` // in the order of the table
	Programs int          `json:"programs"`
	Counted  LinkCounts   `json:"counted"`
}

// View is what a program sees that uses some interfaces.
type View struct {
	GUIDs []ib.GUID `json:"guids,omitempty"` // of its adapters, in the order in which it has named the interfaces
	Files string    `json:"files,omitempty"` // the folder of what it finds in /sys
}

const (
	helloMax = 1 << 13
	termsMax = 1 << 15
	// helloPatience is how long a program may take to say what it wants, on an idle machine: nobody holds a descriptor
	// for nothing.
	helloPatience = 10 * time.Second
)

// Serve answers programs until ctx ends.
func (x *Interfaces) Serve(ctx context.Context, l *packetsock.Listener) error {
	return packetsock.Serve(ctx, l, 1, x.greet)
}

// greet is one connection.
func (x *Interfaces) greet(c packetsock.Guest) {
	var h hello
	buf := make([]byte, helloMax)
	if c.SetReadDeadline(time.Now().Add(patience.For(helloPatience))) != nil {
		return
	}
	n, fds, err := receive(c.UnixConn, buf)
	defer func() { closeFDs(fds) }()
	if err != nil || json.Unmarshal(buf[:n], &h) != nil {
		return
	}
	err = c.Refused
	if err == nil && h.Version != protocolVersion {
		err = fmt.Errorf("roce: the program speaks version %d and the server %d; next: end all programs and softib "+
			"roce, and start again with one version of softib", h.Version, protocolVersion)
	}
	if err == nil && h.Want == wantUse {
		var a account
		if len(fds) > 0 {
			a, err = mapAccount(fds[0])
			fds = fds[1:]
			defer func() { endpoint.Unmap(a.mem) }()
		}
		if err == nil {
			x.use(c, h.Interfaces, a)
			return
		}
	}
	var t terms
	if err == nil && h.Want == wantHeld {
		t.Held = x.list()
	} else if err == nil {
		t.View, err = x.execute(&h)
	}
	if err != nil {
		t = terms{Error: err.Error()}
	} else if h.Want == wantKeep || h.Want == wantStay {
		x.users.Add(1)
		if h.Want == wantKeep {
			defer x.users.Add(-1)
		}
	}
	told := tell(c.UnixConn, &t, nil)
	if h.Want == wantRelease {
		x.endIfEmpty() // after who wanted it was told
	}
	if told && h.Want == wantKeep {
		_ = c.SetReadDeadline(time.Time{})
		_, _ = c.Read(buf) // until it hangs up
	}
}

// execute does what somebody wants who uses nothing.
func (x *Interfaces) execute(h *hello) (v View, err error) {
	switch h.Want {
	case wantNothing:
	case wantKeep, wantStay:
		servers, err := x.Hold(h.Interfaces...)
		if err != nil {
			return v, err
		}
		for _, s := range servers {
			v.GUIDs = append(v.GUIDs, s.GUID())
		}
		v.Files, err = x.show(servers)
		return v, err
	case wantRelease:
		for _, name := range h.Interfaces {
			if err := x.release(name); err != nil {
				return v, err
			}
		}
	default:
		return v, fmt.Errorf("roce: somebody wants %q; next: use one version of softib", h.Want)
	}
	return v, nil
}

// list is what is held.
func (x *Interfaces) list() (all []Held) {
	x.All(func(_ ib.PortNum, s *Server) {
		info := s.PortInfo()
		h := Held{Name: s.name, State: info.PortState, MTU: info.NeighborMTU, Counted: s.Counted().Link,
			Addrs: []string{}}
		for _, a := range live(s.entries()) {
			h.Addrs = append(h.Addrs, a.Unmap().WithZone("").String())
		}
		s.mu.Lock()
		h.Programs = len(s.guests)
		s.mu.Unlock()
		all = append(all, h)
	})
	return all
}

// tell answers; it reports whether there is more to come.
func tell(c *net.UnixConn, t *terms, fds []int) bool {
	b, err := json.Marshal(t)
	if err != nil {
		return false
	}
	_, _, err = c.WriteMsgUnix(b, unix.UnixRights(fds...), nil)
	return err == nil && t.Error == ""
}

// use lends a program sockets until it hangs up.
func (x *Interfaces) use(c packetsock.Guest, names []string, a account) {
	refuse := func(err error) { tell(c.UnixConn, &terms{Error: err.Error()}, nil) }
	if len(names) != 1 {
		refuse(fmt.Errorf("roce: %d interfaces: a program opens one at a time", len(names)))
		return
	}
	s, _ := x.Server(names[0])
	if s == nil {
		refuse(notHeld(names[0]))
		return
	}
	who := descriptors.Holder{PID: int(c.Cred.Pid), UID: c.Cred.Uid}
	holds := len(s.entries())
	if err := descriptors.Programs.Take(who, holds); err != nil {
		refuse(fmt.Errorf("roce: %w", err))
		return
	}
	defer descriptors.Programs.Give(who, holds)
	x.users.Add(1) // before it knows
	defer x.users.Add(-1)
	g, err := s.admit(c.UnixConn, a, func(t terms, fds []int) bool { return tell(c.UnixConn, &t, fds) })
	if err != nil {
		refuse(err)
		return
	}
	defer s.dismiss(g)
	_ = c.SetReadDeadline(time.Time{})
	buf := make([]byte, warningBytes)
	for warnings := 0; ; warnings++ { // until it hangs up, or the server ends
		n, err := c.Read(buf)
		if err != nil || n == 0 {
			return
		}
		if warnings < warningsMax {
			x.say(fmt.Sprintf("%s: process %d: %s", s.name, c.Cred.Pid, printable(buf[:n])))
		}
	}
}

// What a program may tell when it uses an interface is a line for people, and not many of them.
const (
	warningBytes = 512
	warningsMax  = 16
)

// printable is what a stranger has said, without what would do something to a terminal.
func printable(b []byte) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, string(b))
}
