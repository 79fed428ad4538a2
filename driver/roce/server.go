package roce

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"softib/driver/endpoint"
	"softib/proto/ib"
	"softib/proto/mad"
)

// Server holds RoCEv2's UDP port at one interface for the programs of this machine, and speaks for its queue pair 1.
//
// A program's queue pairs are a block of numbers (endpoint.BlockBits), and it has sockets of its own at each address.
// All sockets of an address share the port (SO_REUSEPORT), and the kernel gives a datagram to the one whose place among
// them is the block of the queue pair that it goes to: it does so by a filter that reads just that. So nothing that a
// program sends or receives passes through here. A place stays what it is because no socket is closed before the last:
// that of a program which has ended is kept for the next one.
type Server struct {
	name  string
	guid  ib.GUID
	steer func(fd int) error
	// relayed says that the kernel does not steer; it becomes so with the first address.
	relayed bool
	table   atomic.Pointer[[]*entry]

	mu      sync.Mutex // guards what follows, and changes of the table
	cfg     Config
	blocks  int // that were given out: they are numbered from 1
	free    []uint16
	guests  map[*guest]struct{}
	serials uint32
	losses  uint64
	totals  Counted // but for what guests have counted since they were looked at
	closed  bool

	session Session
	done    sync.WaitGroup
	Stats
}

// ErrClosed is matched when a server has ended.
var ErrClosed = errors.New("RoCEv2's port is no longer held")

// ErrRefused is matched when a server is there and does not let a program in.
var ErrRefused = errors.New("refused")

// ErrNotHeld is matched when nobody holds an interface's port.
var ErrNotHeld = errors.New("nobody holds RoCEv2's port")

// ErrMany is matched when no block of queue pair numbers is left.
var ErrMany = errors.New("too many programs")

// Hold takes the port at all addresses of an interface. Nobody else on the machine may have it.
func Hold(c Config) (*Server, error) { return hold(c, steer) }

// hold does so with what has the kernel choose among sockets.
func hold(c Config, steer func(fd int) error) (s *Server, err error) {
	s = &Server{steer: steer, name: c.Name, cfg: c, guid: c.guid(), guests: map[*guest]struct{}{},
		relayed: os.Getenv(envRelay) == "1"}
	if _, err = portMTU(c.MTU); err != nil {
		return nil, fmt.Errorf("roce: %s: %w", c.Name, err)
	}
	s.session.init(s)
	if _, err = s.changeTable(&c); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// steer has the kernel choose among the sockets of an address by the block of BTH's destination queue pair, which is in
// the word at 4 of a datagram.
func steer(fd int) error {
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 4},
		{Code: unix.BPF_ALU | unix.BPF_AND | unix.BPF_K, K: uint32(ib.QPNMask)},
		{Code: unix.BPF_ALU | unix.BPF_RSH | unix.BPF_K, K: endpoint.BlockBits},
		{Code: unix.BPF_RET | unix.BPF_A},
	}
	err := unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_REUSEPORT_CBPF,
		&unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]})
	if err != nil {
		return fmt.Errorf("%w: %w", errSteer, err)
	}
	return nil
}

// Close gives the port up. Programs that have sockets keep them, and are told that their port is down.
func (s *Server) Close() {
	s.mu.Lock()
	already := s.closed
	s.closed = true
	for g := range s.guests {
		if g.conn != nil {
			_ = g.conn.CloseRead() // who waits there closes it
		}
	}
	s.mu.Unlock()
	if already {
		return
	}
	s.session.end()
	for _, e := range s.entries() {
		e.close()
	}
	s.done.Wait()
}

// restMax is how many blocks rest before one is given out again: what is still on its way to a program that has ended
// should find nobody.
const restMax = 8

// lend gives out a block with its sockets, until they are given back. The server is locked.
func (s *Server) lend() (block uint16, err error) {
	table := s.entries()
	switch n := len(s.free); {
	case s.closed:
		return 0, ErrClosed
	case n > restMax:
		block = s.free[0]
		s.free = s.free[1:]
		for _, e := range table {
			drain(e.fds[block-1])
		}
		return block, nil
	case s.blocks+1 >= endpoint.NumBlocks-1: // the last block's numbers have that of multicasts among them
		return 0, fmt.Errorf("roce: %s: %w: %d; next: end some of them", s.name, ErrMany, s.blocks)
	}
	var fds []int
	for i, e := range table {
		fd, err := e.another()
		if err != nil {
			closeFDs(fds) // which were the last of their addresses
			for _, e := range table[:i] {
				if e.relays != nil {
					e.relays.drop()
				}
			}
			return 0, err
		}
		fds = append(fds, fd)
	}
	for i, e := range table {
		e.fds = append(e.fds, fds[i])
	}
	s.blocks++
	return uint16(s.blocks), nil
}

// drainMax is more datagrams than a socket keeps. Who sends faster than they are thrown away does not hold up others.
const drainMax = 1 << 14

// drain throws away what has come to a socket for who had it before.
func drain(fd int) {
	var b [1]byte
	for range drainMax {
		if _, _, err := unix.Recvfrom(fd, b[:], unix.MSG_DONTWAIT); err != nil && !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// admit lends a program a block; at is where it is told of changes, nil if it is of this process. Each is called with
// what it is told now, and its sockets, while nothing changes; if that is false it is not let in. The account is given
// back when it is dismissed.
func (s *Server) admit(at *net.UnixConn, a account, each func(t terms, fds []int) bool) (*guest, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := &guest{conn: at, account: a}
	var err error
	if g.block, err = s.lend(); err != nil {
		return nil, err
	}
	st, fds := s.state(g)
	if !each(terms{Block: g.block, GUID: s.guid, State: st}, fds) {
		s.free = append(s.free, g.block)
		return nil, ErrClosed
	}
	s.guests[g] = struct{}{}
	return g, nil
}

// dismiss takes back what a program was lent.
func (s *Server) dismiss(g *guest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.guests[g]; ok {
		delete(s.guests, g)
		g.fold(&s.totals)
		s.free = append(s.free, g.block)
	}
}

// Open is a device for this process. It does not hear of changes.
func (s *Server) Open() (d *Device, err error) {
	a, fd, err := newAccount()
	if err != nil {
		return nil, err
	}
	unix.Close(fd)
	g, bad := s.admit(nil, a, func(t terms, fds []int) bool {
		own := make([]int, 0, len(fds))
		for _, fd := range fds {
			if fd, err = unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0); err != nil {
				closeFDs(own)
				return false
			}
			own = append(own, fd)
		}
		d, err = newDevice(t, own, a)
		return err == nil
	})
	if err == nil {
		err = bad
	}
	if err != nil {
		return nil, err
	}
	d.release = func() { s.dismiss(g) }
	return d, nil
}

// GUID is the adapter's.
func (s *Server) GUID() ib.GUID { return s.guid }

// Name is the interface's.
func (s *Server) Name() string { return s.name }

// Config is what the interface is now.
func (s *Server) Config() Config {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cfg
}

// PortInfo is what a manager would say of the port, if Ethernet had one.
func (s *Server) PortInfo() mad.PortInfo {
	c := s.Config()
	return c.portInfo()
}

// MTU is the largest that fits into the interface's.
func (s *Server) MTU() ib.MTU { return s.PortInfo().NeighborMTU }

// guid is that of the interface's hardware address as EUI-64 has it, as Linux's rxe does, or else one that no vendor
// has given out: its second bit says so.
func (c *Config) guid() ib.GUID {
	if m := c.Hardware; len(m) == 6 && [6]byte(m) != [6]byte{} {
		return ib.GUID(binary.BigEndian.Uint64([]byte{m[0] ^ 2, m[1], m[2], 0xFF, 0xFE, m[3], m[4], m[5]}))
	}
	var b [8]byte
	_, _ = rand.Read(b[:])
	b[0] = b[0]&^1 | 2
	return ib.GUID(binary.BigEndian.Uint64(b[:]))
}
