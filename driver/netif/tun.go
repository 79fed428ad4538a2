package netif

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"softib/node/ipoib"
)

// struct virtio_net_hdr, in the machine's byte order.
const (
	vnetSize = 10

	vnetNeedsChecksum = 1
	vnetIsValid       = 2

	vnetTCPv4 = 1
	vnetTCPv6 = 4
	vnetECN   = 0x80
)

// tun is the host's side of an interface.
type tun struct {
	f   *os.File
	raw syscall.RawConn
	// taken: a packet was read, or is about to be, that its reader has not done with.
	taken atomic.Bool

	mu  sync.Mutex // one writer at a time
	hdr [vnetSize]byte
	iov []unix.Iovec
}

func newTun(f *os.File) (*tun, error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return nil, err
	}
	return &tun{f: f, raw: raw}, nil
}

func (t *tun) close() error { return t.f.Close() }

// setCarrier says whether there is a link. A kernel that does not know how (before 4.20) shows one always.
func (t *tun) setCarrier(is bool) {
	v := 0
	if is {
		v = 1
	}
	_ = t.raw.Control(func(fd uintptr) { _ = unix.IoctlSetPointerInt(int(fd), unix.TUNSETCARRIER, v) })
}

// read waits for a packet of the host's, and returns it behind the header that b has room for.
func (t *tun) read(b []byte) ([]byte, ipoib.Offload, error) {
	for {
		var n int
		var failed error
		err := t.raw.Read(func(fd uintptr) bool {
			t.taken.Store(true)
			for n, failed = unix.Read(int(fd), b); failed == unix.EINTR; {
				n, failed = unix.Read(int(fd), b)
			}
			if failed == unix.EAGAIN {
				t.taken.Store(false)
			}
			return failed != unix.EAGAIN
		})
		if err := errors.Join(err, failed); err != nil {
			return nil, ipoib.Offload{}, fmt.Errorf("reading a packet: %w", err)
		}
		if n <= vnetSize {
			continue
		}
		return b[vnetSize:n], parseVnet(b), nil
	}
}

// done says that the packet that was read last is on its way, or lost.
func (t *tun) done() { t.taken.Store(false) }

// isEmpty reports whether the host has sent nothing that is not on its way.
func (t *tun) isEmpty() bool {
	waits := false
	err := t.raw.Control(func(fd uintptr) {
		p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err := unix.Poll(p, 0)
		waits = n > 0 || err == unix.EINTR
	})
	// In this order: whoever takes a packet says so before.
	return err != nil || !waits && !t.taken.Load()
}

func parseVnet(b []byte) (o ipoib.Offload) {
	ne := binary.NativeEndian
	o = ipoib.Offload{NeedsChecksum: b[0]&vnetNeedsChecksum != 0, HeaderLen: ne.Uint16(b[2:]), Size: ne.Uint16(b[4:]),
		ChecksumStart: ne.Uint16(b[6:]), ChecksumOffset: ne.Uint16(b[8:])}
	switch b[1] &^ vnetECN {
	case vnetTCPv4:
		o.Kind = ipoib.TCPv4
	case vnetTCPv6:
		o.Kind = ipoib.TCPv6
	}
	return o
}

func putVnet(b *[vnetSize]byte, o *ipoib.Offload) {
	*b = [vnetSize]byte{}
	ne := binary.NativeEndian
	switch {
	case o.NeedsChecksum:
		b[0] = vnetNeedsChecksum
		ne.PutUint16(b[6:], o.ChecksumStart)
		ne.PutUint16(b[8:], o.ChecksumOffset)
	case o.IsValid:
		b[0] = vnetIsValid
	}
	switch o.Kind {
	case ipoib.TCPv4:
		b[1] = vnetTCPv4
	case ipoib.TCPv6:
		b[1] = vnetTCPv6
	default:
		return
	}
	ne.PutUint16(b[2:], o.HeaderLen)
	ne.PutUint16(b[4:], o.Size)
}

// deliver hands over a packet as it is.
func (t *tun) deliver(p []byte) error {
	return t.write(&ipoib.Frame{Pieces: [][]byte{p}})
}

// write hands a frame to the host, in one call.
func (t *tun) write(f *ipoib.Frame) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	putVnet(&t.hdr, &f.Offload)
	t.iov = append(t.iov[:0], iovec(t.hdr[:]))
	if len(f.Head) > 0 {
		t.iov = append(t.iov, iovec(f.Head))
	}
	for _, p := range f.Pieces {
		t.iov = append(t.iov, iovec(p))
	}
	var errno syscall.Errno
	err := t.raw.Write(func(fd uintptr) bool {
		_, _, errno = syscall.Syscall(unix.SYS_WRITEV, fd, uintptr(unsafe.Pointer(&t.iov[0])), uintptr(len(t.iov)))
		return errno != unix.EAGAIN && errno != unix.EINTR
	})
	if err == nil && errno != 0 {
		err = errno
	}
	if err != nil && errors.Is(err, os.ErrClosed) {
		return os.ErrClosed
	}
	return err
}

func iovec(b []byte) unix.Iovec {
	v := unix.Iovec{Base: unsafe.SliceData(b)}
	v.SetLen(len(b))
	return v
}
