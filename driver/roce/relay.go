package roce

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"softib/internal/mmsg"
	"softib/proto/ib"
	"softib/proto/wire"
)

// Where the kernel does not choose among sockets by queue pair (SO_ATTACH_REUSEPORT_CBPF), the server has the only
// socket of an address, and hands each datagram to the program whose queue pair it is for, over a pair of Unix
// sockets: a record each, which begins with what the kernel has said of it. Programs send as they always do. It
// costs a system call and two copies for each datagram that comes.

// Names of variables by which tests, and users whose kernel says less than it should, choose what is used without.
const (
	envRelay = "SOFTIB_ROCE_RELAY" // 1: the server hands datagrams on
	envIPv6  = "SOFTIB_ROCE_IPV6"  // off: sockets are IPv4's
)

// relayHead is what a record begins with: address, port, traffic class, identification.
const relayHead = 16 + 2 + 1 + 1 + 2 + 2

func putRelayHead(b *[relayHead]byte, from *wire.RoCESource) {
	*b = [relayHead]byte{}
	copy(b[:], from.From[:])
	binary.BigEndian.PutUint16(b[16:], from.Port)
	b[18] = from.TClass
	binary.BigEndian.PutUint16(b[20:], from.ID)
}

// relays are the server's ends of the pairs of an address, by block from 1.
type relays struct{ fds atomic.Pointer[[]int] }

// add makes the pair of another program and returns its end. The server is locked.
func (r *relays) add() (int, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return -1, fmt.Errorf("roce: %w: a pair of sockets: %w", ErrSocket, err)
	}
	_ = unix.SetsockoptInt(pair[0], unix.SOL_SOCKET, unix.SO_SNDBUF, mmsg.WantBuffer)
	var all []int
	if old := r.fds.Load(); old != nil {
		all = append(all, *old...)
	}
	all = append(all, pair[0])
	r.fds.Store(&all)
	return pair[1], nil
}

// drop takes back the last pair, whose other end is closed by who has it.
func (r *relays) drop() {
	old := *r.fds.Load()
	all := append([]int(nil), old[:len(old)-1]...)
	r.fds.Store(&all)
	unix.Close(old[len(old)-1])
}

// close ends all, when nobody hands anything on any more.
func (r *relays) close() {
	if all := r.fds.Load(); all != nil {
		closeFDs(*all)
	}
}

// hand hands a datagram to the program of a block. What does not fit is lost, as in a socket that is full.
func (r *relays) hand(block uint16, datagram []byte, from *wire.RoCESource) bool {
	all := r.fds.Load()
	if all == nil || int(block) > len(*all) {
		return false
	}
	var head [relayHead]byte
	putRelayHead(&head, from)
	_, err := unix.SendmsgBuffers((*all)[block-1], [][]byte{head[:], datagram}, nil, nil,
		unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
	return err == nil
}

// destBlock is the block of the queue pair that a datagram is for; 0 if it is too short to say.
func destBlock(datagram []byte) uint16 {
	if len(datagram) < 8 {
		return 0
	}
	return blockOf(ib.QPN(binary.BigEndian.Uint32(datagram[4:])) & ib.QPNMask) // of BTH
}

var errSteer = errors.New("the kernel does not steer datagrams (SO_ATTACH_REUSEPORT_CBPF)")

// withoutIPv6 reports whether the kernel has no IPv6. Its sockets speak IPv4 as well, and are used for both where it is
// there.
func withoutIPv6() bool { return os.Getenv(envIPv6) == "off" || lacksIPv6() }

var lacksIPv6 = sync.OnceValue(func() bool {
	fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, unix.IPPROTO_UDP)
	if err == nil {
		unix.Close(fd)
	}
	return errors.Is(err, unix.EAFNOSUPPORT)
})

// widen makes a name of IPv4 one of IPv6, in place.
func widen(n *unix.RawSockaddrInet6) {
	four := *(*unix.RawSockaddrInet4)(unsafe.Pointer(n))
	*n = unix.RawSockaddrInet6{Family: unix.AF_INET6, Port: four.Port}
	n.Addr[10], n.Addr[11] = 0xFF, 0xFF
	copy(n.Addr[12:], four.Addr[:])
}

// narrow makes it one of IPv4 again, and returns its length.
func narrow(n *unix.RawSockaddrInet6) uint32 {
	four := unix.RawSockaddrInet4{Family: unix.AF_INET, Port: n.Port, Addr: [4]byte(n.Addr[12:])}
	*(*unix.RawSockaddrInet4)(unsafe.Pointer(n)) = four
	return unix.SizeofSockaddrInet4
}
