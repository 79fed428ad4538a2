package endpoint

import (
	"testing"

	"golang.org/x/sys/unix"

	"softib/proto/ib"
	"softib/proto/wire"
)

// origins are packets, and whether they can be from block 3 of a host with the LIDs 8 to 11 and two keys.
var origins = []struct {
	name string
	p    wire.Packet
	want bool
}{
	{"its own", packetFrom(8, 0x9001), true},
	{"from another of its LIDs", packetFrom(11, 0x9001), true},
	{"by its other key", packetFrom(8, 0x7fff), true},
	{"another's LID", packetFrom(12, 0x9001), false},
	{"no LID", packetFrom(0, 0x9001), false},
	{"another's key", packetFrom(8, 0x9002), false},
	{"the other membership of its key", packetFrom(8, 0x1001), false},
	{"by its GID", globalFrom(ib.MakeGID(ib.DefaultGIDPrefix, 7)), true},
	{"by another's GID", globalFrom(ib.MakeGID(ib.DefaultGIDPrefix, 8)), false},
	{"a datagram of its queue pair", datagramFrom(3<<BlockBits + 5), true},
	{"a datagram of another's", datagramFrom(4<<BlockBits + 5), false},
	{"a datagram of QP1", datagramFrom(1), false},
}

func packetFrom(lid ib.LID, key ib.PKey) wire.Packet {
	return wire.Packet{LRH: wire.LRH{SLID: lid, LNH: wire.LNHLocal},
		BTH: wire.BTH{Opcode: wire.MakeOpcode(wire.RC, wire.OpSendOnly), PKey: key}, Payload: []byte("hello")}
}

func globalFrom(g ib.GID) wire.Packet {
	p := packetFrom(8, 0x9001)
	p.LRH.LNH, p.GRH.SGID = wire.LNHGlobal, g
	return p
}

func datagramFrom(q ib.QPN) wire.Packet {
	p := packetFrom(8, 0x9001)
	p.BTH.Opcode, p.DETH.SrcQP = wire.MakeOpcode(wire.UD, wire.OpSendOnly), q
	return p
}

func testOrigin() Origin {
	return Origin{Block: 3, Ports: []OriginPort{{}, {LID: 8, LMC: 2, Keys: []ib.PKey{0x9001, 0x7fff},
		GIDs: []ib.GID{ib.MakeGID(ib.DefaultGIDPrefix, 7)}}}}
}

// sharedOrigin is an origin and a reader of it.
func sharedOrigin(t *testing.T) (*SharedOrigin, *OriginReader) {
	t.Helper()
	s, err := ShareOrigin(2)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	r, err := ReadOrigin(s.FD)
	if err != nil {
		t.Fatal(err)
	}
	return s, r
}

// TestOrigin: what a process says it sends is its own only if its adapter could have sent it.
func TestOrigin(t *testing.T) {
	o := testOrigin()
	s, r := sharedOrigin(t)
	if p := packetFrom(8, 0x9001); r.Sends(&p) {
		t.Error("something is from a process of which nothing was said")
	}
	s.Set(o)
	for _, x := range origins {
		if o.Sends(&x.p) != x.want || r.Sends(&x.p) != x.want {
			t.Errorf("%s: %v, and %v as others see it: want %v", x.name, o.Sends(&x.p), r.Sends(&x.p), x.want)
		}
	}
	o = testOrigin()
	o.Ports[1].Keys = []ib.PKey{0x7fff}
	s.Set(o)
	if p := packetFrom(8, 0x9001); r.Sends(&p) {
		t.Error("a key that was taken away is good")
	}
	h, _ := originAt(s.mem)
	h.seq++
	if p := packetFrom(8, 0x7fff); r.Sends(&p) {
		t.Error("a packet passes while the fabric writes")
	}
	h.seq++
	if p := packetFrom(8, 0x7fff); !r.Sends(&p) {
		t.Error("no packet passes after it has written")
	}
}

// TestOriginIsTheFabrics: who is handed an origin cannot write it.
func TestOriginIsTheFabrics(t *testing.T) {
	s, _ := sharedOrigin(t)
	if _, err := unix.Mmap(s.FD, 0, PageBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err == nil {
		t.Error("it can be mapped to write")
	}
	if _, err := unix.Pwrite(s.FD, []byte{1}, 0); err == nil {
		t.Error("it can be written")
	}
	if err := unix.Ftruncate(s.FD, 0); err == nil {
		t.Error("it can be cut")
	}
	m, err := unix.Mmap(s.FD, 0, PageBytes, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer Unmap(m)
	if err := unix.Mprotect(m, unix.PROT_READ|unix.PROT_WRITE); err == nil {
		t.Error("it can be made writable")
	}
}

// TestCheckedRing: of a ring whose sender is checked nothing comes that is not the sender's, or not in the ring.
func TestCheckedRing(t *testing.T) {
	out, in, _ := pair(t)
	s, r := sharedOrigin(t)
	s.Set(testOrigin())
	in.Check(r)
	arrives := func(p wire.Packet, change func(c *cell)) bool {
		t.Helper()
		if !out.room(len(p.Payload)) {
			t.Fatal("no room")
		}
		out.publish(&p, false)
		c := in.ready()
		change(c)
		var got wire.Packet
		ok := in.get(c, &got)
		in.Done()
		return ok
	}
	as := func(*cell) {}
	for _, x := range origins {
		if got := arrives(x.p, as); got != x.want {
			t.Errorf("%s arrives: %v", x.name, got)
		}
	}
	write := packetFrom(8, 0x9001)
	write.BTH.Opcode = wire.MakeOpcode(wire.RC, wire.OpWriteOnly)
	if arrives(write, func(c *cell) { c.kind |= cellDelivered }) {
		t.Error("a payload arrives that is said to be in place")
	}
	long := packetFrom(8, 0x9001)
	long.Payload = make([]byte, byRefMin)
	if !arrives(long, as) {
		t.Error("a long payload in the ring does not arrive")
	}
	if arrives(long, func(c *cell) { c.kind |= cellByRef }) {
		t.Error("a payload by reference arrives")
	}
}
