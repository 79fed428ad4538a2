package mmsg

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Bounds of what one call sends and receives. The kernel cuts a message into 64 datagrams at most, of 64 KiB together.
const (
	sendMessages = 16
	sendBytes    = 256 << 10
	cutBytes     = 65000
	cutMax       = 64

	receiveMessages = 16
	receiveBytes    = 1 << 16
)

// Batch is datagrams to one address: messages of datagrams that lie side by side, all of one length but for the last.
type Batch struct {
	name  unix.RawSockaddrInet6
	mtu   int
	cuts  bool
	buf   []byte
	msgs  [sendMessages]Message
	iovs  [sendMessages]unix.Iovec
	ctrl  [sendMessages]Control
	count int
	sent  int
}

// NewBatch is for datagrams of at most mtu bytes. Cuts says whether the kernel cuts messages of the socket.
func NewBatch(to netip.AddrPort, mtu int, cuts bool) (*Batch, error) {
	zone, err := Zone(to.Addr())
	if err != nil {
		return nil, err
	}
	return &Batch{name: Name(to, zone), mtu: mtu, cuts: cuts, buf: make([]byte, max(sendBytes, 2*mtu))}, nil
}

// Zone is the interface that an address is of, 0 if it does not say.
func Zone(a netip.Addr) (uint32, error) {
	if a.Zone() == "" {
		return 0, nil
	}
	i, err := net.InterfaceByName(a.Zone())
	if err != nil {
		return 0, fmt.Errorf("zone %s: %w", a.Zone(), err)
	}
	return uint32(i.Index), nil
}

// Fill takes datagrams from poll, which writes the next one and says how long it is, as long as there are some and room
// for them. It reports whether there are any to send.
func (o *Batch) Fill(poll func(buf []byte) (int, bool)) bool {
	o.count, o.sent = 0, 0
	at := 0
	for more := true; more && o.count < sendMessages && at+o.mtu <= len(o.buf); {
		begin, n, ok := at, 0, false
		for k := 0; k < cutMax && at+o.mtu <= len(o.buf) && at-begin+o.mtu <= cutBytes || k == 0; k++ {
			if n, ok = poll(o.buf[at : at+o.mtu]); !ok {
				more = false
				break
			}
			if at += n; n < o.mtu || !o.cuts {
				break
			}
		}
		if at == begin {
			break
		}
		i := o.count
		o.count++
		o.iovs[i] = unix.Iovec{Base: &o.buf[begin], Len: uint64(at - begin)}
		m := &o.msgs[i]
		m.Name, m.Namelen = (*byte)(unsafe.Pointer(&o.name)), unix.SizeofSockaddrInet6
		m.Iov, m.Iovlen = &o.iovs[i], 1
		c := 0
		if at-begin > o.mtu {
			o.ctrl[i].Cut(&c, o.mtu)
		}
		m.Set(&o.ctrl[i], c)
	}
	return o.count > 0
}

// Unsent reports whether there is something left to send.
func (o *Batch) Unsent() bool { return o.sent < o.count }

// Send sends as much as the socket takes without waiting. The error is unix.EAGAIN if that is not all; any other is of
// the first message that is left, which Skip leaves out.
func (o *Batch) Send(fd int) error {
	n, err := Send(fd, o.msgs[o.sent:o.count])
	o.sent += n
	return err
}

// Skip leaves out a message that the kernel has refused with an error: it is lost, as on the way.
func (o *Batch) Skip(err error) {
	o.sent++
	if errors.Is(err, unix.EIO) || errors.Is(err, unix.EINVAL) {
		o.cuts = false // an interface that cannot
	}
}

// Inbox is where messages go that have come.
type Inbox struct {
	msgs [receiveMessages]Message
	iovs [receiveMessages]unix.Iovec
	ctrl [receiveMessages]Control
	data [receiveMessages][receiveBytes]byte
	n    int
}

// Receive takes in messages without waiting.
func (b *Inbox) Receive(fd int) (err error) {
	for i := range b.msgs {
		b.iovs[i] = unix.Iovec{Base: &b.data[i][0], Len: receiveBytes}
		b.msgs[i].Iov, b.msgs[i].Iovlen = &b.iovs[i], 1
		b.msgs[i].Set(&b.ctrl[i], len(b.ctrl[i]))
	}
	b.n, err = Receive(fd, b.msgs[:])
	return err
}

// Len is how many have come.
func (b *Inbox) Len() int { return b.n }

// At is a message that has come, and how many bytes each of its datagrams has, but for the last.
func (b *Inbox) At(i int) (data []byte, each int) {
	data = b.data[i][:min(b.msgs[i].N, receiveBytes)]
	if each = b.ctrl[i].Read(b.msgs[i].Controllen).Each; each <= 0 {
		each = max(1, len(data))
	}
	return data, each
}
