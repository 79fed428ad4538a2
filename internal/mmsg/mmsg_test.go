package mmsg

import (
	"bytes"
	"net/netip"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Messages that the kernel cuts come as the datagrams that they were made of, however it puts them together.
func TestSendReceive(t *testing.T) {
	fd, err := Open(false)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	at := netip.MustParseAddr("127.0.0.1")
	if err := unix.Bind(fd, &unix.SockaddrInet6{Addr: at.As16()}); err != nil {
		t.Fatal(err)
	}
	self, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	name := Name(netip.AddrPortFrom(at, uint16(self.(*unix.SockaddrInet6).Port)), 0)
	if !Cuts(fd) {
		t.Skip("the kernel does not cut messages")
	}
	const each = 100
	data := make([]byte, 4*each-30)
	for i := range data {
		data[i] = byte(i * 7)
	}
	var c Control
	var m [1]Message
	iov := unix.Iovec{Base: &data[0], Len: uint64(len(data))}
	m[0].Name, m[0].Namelen = (*byte)(unsafe.Pointer(&name)), unix.SizeofSockaddrInet6
	m[0].Iov, m[0].Iovlen = &iov, 1
	n := 0
	c.Cut(&n, each)
	m[0].Set(&c, n)
	if n, err := Send(fd, m[:]); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	var got [][]byte
	for end := time.Now().Add(time.Minute); len(got) < 4; {
		if time.Now().After(end) {
			t.Fatalf("%d datagrams have come", len(got))
		}
		buf := make([]byte, 1<<16)
		iov = unix.Iovec{Base: &buf[0], Len: uint64(len(buf))}
		m[0] = Message{}
		m[0].Iov, m[0].Iovlen = &iov, 1
		m[0].Set(&c, len(c))
		if n, err := Receive(fd, m[:]); n != 1 || err != nil {
			if err == unix.EAGAIN {
				continue
			}
			t.Fatal(n, err)
		}
		size := c.Read(m[0].Controllen).Each
		if size == 0 {
			size = int(m[0].N)
		}
		for b := buf[:m[0].N]; len(b) > 0; {
			k := min(size, len(b))
			got = append(got, b[:k])
			b = b[k:]
		}
	}
	for i, g := range got {
		if want := data[i*each : min(len(data), (i+1)*each)]; !bytes.Equal(g, want) {
			t.Errorf("datagram %d has %d bytes, not %d", i, len(g), len(want))
		}
	}
}

// FuzzRead: whatever a kernel may say is read without harm.
func FuzzRead(f *testing.F) {
	var c Control
	n := 0
	*(*int32)(c.Add(&n, unix.SOL_UDP, unix.UDP_GRO, 4)) = 1400
	*(*int32)(c.Add(&n, unix.SOL_IPV6, unix.IPV6_TCLASS, 4)) = 3
	if f := c.Read(uint64(n)); f.Each != 1400 || f.Class != 3 {
		panic(f)
	}
	f.Add(c[:n])
	f.Fuzz(func(t *testing.T, b []byte) {
		var c Control
		c.Read(uint64(copy(c[:], b)))
	})
}
