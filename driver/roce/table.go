package roce

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"softib/proto/ib"
	"softib/proto/wire"
)

// tableLength is how many GIDs a port's table has room for. It stays while programs run, which look at it once.
const tableLength = 64

// entry is an address in a port's GID table, with its sockets. It keeps both, and its index, when the interface loses
// the address: programs have the same sockets, whose place among those of the address is the queue pairs' block, and an
// address that comes back is served by them. Its index is given to another address when there is no other.
type entry struct {
	addr   *address
	serial uint32 // of the sockets: never used twice
	lost   uint64 // when the interface lost it, by a count; 0 if it has it
	own    *socket
	file   *os.File // which waits for own
	out    *senders // guarded by the session's lock
	fds    []int    // by block, from 1
	relays *relays  // nil if the kernel steers
}

// another makes a socket for another program's block.
func (e *entry) another() (int, error) {
	if e.relays != nil {
		return e.relays.add()
	}
	return e.addr.bind(wire.RoCEPort, true)
}

// key tells addresses apart: one that means something at an interface alone is another at another.
func (a *address) key() (k struct {
	ib.GID
	int
}) {
	k.GID = a.gid
	if hasZone(a.gid) {
		k.int = a.index
	}
	return k
}

// newEntry takes an address's port, with sockets for as many programs as there are. The server is locked.
func (s *Server) newEntry(a *address) (e *entry, err error) {
	// Sockets that share a port would be let in beside those of another server of ours.
	own, err := a.bind(wire.RoCEPort, false)
	if err != nil {
		return nil, err
	}
	if !s.relayed {
		unix.Close(own)
		if own, err = a.bind(wire.RoCEPort, true); err != nil {
			return nil, err
		}
		if err := s.steer(own); err != nil {
			unix.Close(own)
			if s.blocks > 0 || len(s.entries()) > 0 {
				return nil, fmt.Errorf("roce: %v: %w: %w", a.Unmap(), ErrSocket, err) // others are steered
			}
			s.relayed = true
			return s.newEntry(a)
		}
	}
	s.serials++
	e = &entry{addr: a, serial: s.serials, out: &senders{from: a},
		own: &socket{fd: own, to: a, isIPv4: withoutIPv6()}}
	if s.relayed {
		e.relays = &relays{}
	}
	for len(e.fds) < s.blocks {
		fd, err := e.another()
		if err != nil {
			unix.Close(own)
			closeFDs(e.fds)
			if e.relays != nil {
				e.relays.close()
			}
			return nil, err
		}
		e.fds = append(e.fds, fd)
	}
	e.file = os.NewFile(uintptr(own), "roce")
	s.done.Go(func() {
		s.session.attend(e.own, e.file, e.relays)
		if e.relays != nil {
			e.relays.close() // nobody else hands anything on
		}
	})
	return e, nil
}

// close ends an entry's sockets; programs have theirs.
func (e *entry) close() {
	_ = e.file.Close()
	for _, fd := range e.fds {
		unix.Close(fd)
	}
}

// live are the addresses that the interface has.
func live(table []*entry) (list []*address) {
	for _, e := range table {
		if e.lost == 0 {
			list = append(list, e.addr)
		}
	}
	return list
}

// entries is the table as it is. It is not changed, but replaced.
func (s *Server) entries() []*entry {
	if t := s.table.Load(); t != nil {
		return *t
	}
	return nil
}

// GIDs is the port's table: the interface's addresses, each where it was when it came, and zero where there is none.
func (s *Server) GIDs() []ib.GID {
	var list []ib.GID
	for _, e := range s.entries() {
		list = append(list, e.gid())
	}
	return list
}

func (e *entry) gid() (g ib.GID) {
	if e.lost == 0 {
		g = e.addr.gid
	}
	return g
}

// refresh makes the port what the interface is now, and tells the programs. It reports whether anything has changed,
// and what could not be done.
func (s *Server) refresh(c Config) (changed bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false, nil
	}
	changed = c.MTU != s.cfg.MTU || c.Down != s.cfg.Down || c.Index != s.cfg.Index
	if c.Down && !s.cfg.Down {
		s.totals.Downs++
	}
	moved, err := s.changeTable(&c)
	if !changed && !moved {
		return false, err
	}
	s.cfg = c
	for g := range s.guests {
		g.tell(s)
	}
	return true, err
}

// changeTable makes the table that of the addresses which an interface has now.
func (s *Server) changeTable(c *Config) (changed bool, err error) {
	var table, retired []*entry
	var fresh []*address
	table = slices.Clone(s.entries())
	here := map[any]bool{}
	for _, a := range c.Addrs {
		addr := &address{Addr: a, gid: a.As16(), index: c.Index}
		here[addr.key()] = true
		i := slices.IndexFunc(table, func(e *entry) bool { return e.addr.key() == addr.key() })
		switch {
		case i < 0:
			fresh = append(fresh, addr)
		case table[i].lost > 0:
			changed, table[i] = true, table[i].but(0)
		}
	}
	for i, e := range table {
		if e.lost == 0 && !here[e.addr.key()] {
			s.losses++
			changed, table[i] = true, e.but(s.losses)
		}
	}
	for _, a := range fresh {
		i := len(table)
		if i == tableLength {
			if i = longestLost(table); i < 0 {
				err = errors.Join(err, fmt.Errorf("roce: %v: %w: the adapter has %d addresses", a.Unmap(), ErrSocket,
					tableLength))
				continue
			}
		}
		e, bad := s.newEntry(a)
		if err = errors.Join(err, bad); bad != nil {
			continue
		}
		if changed = true; i < len(table) {
			retired = append(retired, table[i])
			table[i] = e
		} else {
			table = append(table, e)
		}
	}
	s.table.Store(&table)
	for _, e := range retired { // of which nobody hears any more
		e.close()
		s.session.forget(e)
	}
	return changed, err
}

// but is the entry with another time of its loss.
func (e *entry) but(lost uint64) *entry {
	x := *e
	x.lost = lost
	return &x
}

// longestLost is the entry that was lost before all others; -1 if none is.
func longestLost(table []*entry) int {
	at := -1
	for i, e := range table {
		if e.lost > 0 && (at < 0 || e.lost < table[at].lost) {
			at = i
		}
	}
	return at
}

// state is what a program is told of its port, at first and whenever that changes.
type state struct {
	Config Config `json:"config"`
	Table  []slot `json:"table"`
	// Bring are the indexes of those whose sockets come with this, in order.
	Bring []int `json:"bring,omitempty"`
}

// slot is an entry as a program sees it.
type slot struct {
	Addr   netip.Addr `json:"addr"`
	Index  int        `json:"index"` // of the interface
	Serial uint32     `json:"serial"`
	Lost   bool       `json:"lost,omitempty"`
	// Relayed and IPv4 say what its socket is.
	Relayed bool `json:"relayed,omitempty"`
	IPv4    bool `json:"ipv4,omitempty"`
}

func (x *slot) address() *address { return &address{Addr: x.Addr, gid: x.Addr.As16(), index: x.Index} }

// guest is a program that has sockets.
type guest struct {
	conn    *net.UnixConn // nil if it is of this process
	block   uint16
	has     map[uint32]bool // serials of the sockets that it was given
	account account
	counted Counted // as it was last looked at
}

// state is what a guest is told, and the sockets that it does not have. The server is locked.
func (s *Server) state(g *guest) (st state, fds []int) {
	st.Config = s.cfg
	has := map[uint32]bool{}
	for i, e := range s.entries() {
		st.Table = append(st.Table, slot{e.addr.Addr, e.addr.index, e.serial, e.lost > 0,
			e.relays != nil, e.own.isIPv4})
		if has[e.serial] = true; !g.has[e.serial] {
			st.Bring = append(st.Bring, i)
			fds = append(fds, e.fds[g.block-1])
		}
	}
	g.has = has
	return st, fds
}

// tellPatience is how long a program may take to make room for news; one that does not is no longer served.
const tellPatience = time.Second

// tell tells a guest what has changed.
func (g *guest) tell(s *Server) {
	if g.conn == nil {
		return
	}
	st, fds := s.state(g)
	_ = g.conn.SetWriteDeadline(time.Now().Add(tellPatience))
	if !tell(g.conn, &terms{State: st}, fds) {
		_ = g.conn.CloseRead() // who waits there closes it
	}
}
