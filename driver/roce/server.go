package roce

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"softib/driver/endpoint"
	"softib/proto/ib"
	"softib/proto/mad"
	"softib/proto/wire"
)

// Server holds RoCEv2's UDP port at one interface for the programs of this machine, and speaks for its queue pair 1.
//
// A program's queue pairs are a block of numbers (endpoint.BlockBits), and it has sockets of its own at each address.
// All sockets of an address share the port (SO_REUSEPORT), and the kernel gives a datagram to the one whose place among
// them is the block of the queue pair that it goes to: it does so by a filter that reads just that. So nothing that a
// program sends or receives passes through here. A place stays what it is because no socket is closed before the last:
// that of a program which has ended is kept for the next one.
type Server struct {
	cfg   Config
	guid  ib.GUID
	mtu   ib.MTU
	addrs []*address
	own   []*socket  // block 0's, by address
	files []*os.File // which wait for those

	mu     sync.Mutex
	blocks [][]int // by block, from 1: the descriptors by address
	free   []uint16
	guests map[*net.UnixConn]struct{} // connections of programs that have sockets
	closed bool

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
func Hold(c Config) (s *Server, err error) {
	s = &Server{cfg: c, guid: c.guid(), guests: map[*net.UnixConn]struct{}{}}
	if s.mtu, err = portMTU(c.MTU); err != nil {
		return nil, fmt.Errorf("roce: %s: %w", c.Name, err)
	}
	for _, a := range c.Addrs {
		s.addrs = append(s.addrs, &address{Addr: a, gid: a.As16(), index: c.Index})
	}
	for _, a := range s.addrs {
		// Sockets that share a port would be let in beside those of another server of ours.
		alone, err := a.bind(wire.RoCEPort, false)
		if err == nil {
			unix.Close(alone)
			alone, err = a.bind(wire.RoCEPort, true)
		}
		if err == nil {
			s.own = append(s.own, &socket{fd: alone, to: a})
			err = steer(alone)
		}
		if err != nil {
			closeAll(s.own)
			return nil, err
		}
	}
	s.session.init(s)
	for _, o := range s.own {
		f := os.NewFile(uintptr(o.fd), "roce")
		s.files = append(s.files, f)
		s.done.Go(func() { s.session.attend(o, f) })
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
		return fmt.Errorf("roce: %w: the kernel does not steer datagrams (SO_ATTACH_REUSEPORT_CBPF): %w; next: use "+
			"Linux 4.5 or later, and no sandbox that takes its options away", ErrSocket, err)
	}
	return nil
}

// Close gives the port up. Programs that have sockets keep them, and are told that their port is down.
func (s *Server) Close() {
	s.mu.Lock()
	already := s.closed
	s.closed = true
	for c := range s.guests {
		_ = c.CloseRead() // who waits there closes it
	}
	s.mu.Unlock()
	if already {
		return
	}
	s.session.end()
	for _, f := range s.files {
		_ = f.Close()
	}
	s.done.Wait()
	for _, fds := range s.blocks {
		for _, fd := range fds {
			unix.Close(fd)
		}
	}
}

// restMax is how many blocks rest before one is given out again: what is still on its way to a program that has ended
// should find nobody.
const restMax = 8

// lend gives out a block and its sockets, until they are given back.
func (s *Server) lend() (block uint16, fds []int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch n := len(s.free); {
	case s.closed:
		return 0, nil, ErrClosed
	case n > restMax:
		block = s.free[0]
		s.free = s.free[1:]
		fds = s.blocks[block-1]
		for _, fd := range fds {
			drain(fd)
		}
		return block, fds, nil
	case len(s.blocks)+1 >= endpoint.NumBlocks-1: // the last block's numbers have that of multicasts among them
		return 0, nil, fmt.Errorf("roce: %s: %w: %d; next: end some of them", s.cfg.Name, ErrMany, len(s.blocks))
	}
	for _, a := range s.addrs {
		fd, err := a.bind(wire.RoCEPort, true)
		if err != nil {
			for _, fd := range fds { // which were the last of their addresses
				unix.Close(fd)
			}
			return 0, nil, err
		}
		fds = append(fds, fd)
	}
	s.blocks = append(s.blocks, fds)
	return uint16(len(s.blocks)), fds, nil
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

func (s *Server) giveBack(block uint16) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free = append(s.free, block)
}

// terms are what a program is told that has a block.
func (s *Server) terms(block uint16) terms { return terms{Block: block, GUID: s.guid, Config: s.cfg} }

// Open is a device for this process.
func (s *Server) Open() (*Device, error) {
	block, fds, err := s.lend()
	if err != nil {
		return nil, err
	}
	own := make([]int, 0, len(fds))
	for _, fd := range fds {
		if fd, err = unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0); err != nil {
			break
		}
		own = append(own, fd)
	}
	var d *Device
	if err == nil {
		d, err = newDevice(s.terms(block), own, func() { s.giveBack(block) })
	}
	if err != nil {
		for _, fd := range own {
			unix.Close(fd)
		}
		s.giveBack(block)
	}
	return d, err
}

// GUID is the adapter's.
func (s *Server) GUID() ib.GUID { return s.guid }

// Config is what the server was made with.
func (s *Server) Config() Config { return s.cfg }

// GIDs are the interface's addresses.
func (s *Server) GIDs() []ib.GID { return s.session.gids }

// PortInfo is what a manager would say of the port, if Ethernet had one.
func (s *Server) PortInfo() mad.PortInfo { return portInfo(s.mtu, len(s.addrs)) }

// MTU is the largest that fits into the interface's.
func (s *Server) MTU() ib.MTU { return s.mtu }

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
