package endpoint

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"softib/proto/wire"
)

// driverPair is both ends of a ring that a driver without an engine receives from, or sends into.
func driverPair(t testing.TB) (*Out, *In, []byte) {
	t.Helper()
	mem := aligned(RingBytes)
	page, err := NewPage(aligned(PageBytes))
	if err != nil {
		t.Fatal(err)
	}
	out, err := NewOut(mem, page, 0)
	if err != nil {
		t.Fatal(err)
	}
	in, err := NewIn(mem, page, 0, 1)
	if err != nil {
		t.Fatal(err)
	}
	return out, in, mem
}

// TestDriver: what is put comes out, payload and all; a full ring takes no more until something was taken, and asks to
// be told.
func TestDriver(t *testing.T) {
	out, in, mem := driverPair(t)
	look, err := Observe(mem)
	if err != nil {
		t.Fatal(err)
	}
	var p wire.Packet
	p.LRH.LNH = wire.LNHLocal
	p.BTH.Opcode = wire.MakeOpcode(wire.RC, wire.OpSendOnly)
	put, got := 0, 0
	payload := func(i int) []byte { return bytes.Repeat([]byte{byte(i), byte(i >> 8)}, i*37%2049) }
	for range 20 {
		for {
			p.Payload = payload(put)
			if !out.TryPut(&p) {
				break
			}
			put++
		}
		if out.head.wants != 1 || Drained(mem) || !out.Unseen() {
			t.Fatalf("%d packets are in the ring: it is neither full nor drained, and the sender wants room", put-got)
		}
		if seen := look.Look(); seen.Packets != uint64(put-got) || !seen.Full || look.Look() != (Observed{}) {
			t.Fatalf("%d packets are in the ring, which is full: seen were %+v", put-got, seen)
		}
		var q wire.Packet
		for in.Poll(&q) {
			if !bytes.Equal(q.Payload, payload(got)) {
				t.Fatalf("packet %d has %d bytes, or others than were sent", got, len(q.Payload))
			}
			in.Done()
			got++
		}
		if put != got || !Drained(mem) || in.Ready() || out.head.wants != 0 {
			t.Fatalf("%d packets were sent and %d came", put, got)
		}
		look.Look() // there is room
	}
	if got < 20*60 {
		t.Errorf("only %d packets fit into 20 rings", got)
	}
}

// TestDriverBundles: bundles come apart into the packets that the requester meant; what says that it is one and is not
// is skipped.
func TestDriverBundles(t *testing.T) {
	out, in, _ := driverPair(t)
	var p wire.Packet
	p.LRH.LNH = wire.LNHLocal
	p.BTH.Opcode = wire.MakeOpcode(wire.RC, wire.OpSendOnly)
	for _, c := range []struct {
		count uint16
		size  int
		ok    bool
	}{{0, 4096, true}, {1, 4097, false}, {4, 16384, true}, {4, 12289, true}, {4, 12288, false}, {4, 16385, false},
		{3, 512, false}, {3, 513, true}, {64, 16384, true}, {65, 16640, false}, {2, 30, false}} {
		p.Count, p.Payload = c.count, make([]byte, c.size)
		if !out.room(c.size) {
			t.Fatal("no room")
		}
		out.publish(&p, false)
		var q wire.Packet
		ok := in.Poll(&q)
		if ok != c.ok {
			t.Errorf("%d packets of %d bytes in all: taken %v, want %v", c.count, c.size, ok, c.ok)
		}
		if !ok {
			continue
		}
		n := 0
		for i := range q.Packets() {
			s := q.Single(i)
			n += len(s.Payload)
		}
		if n != c.size {
			t.Errorf("%d packets of %d bytes in all have %d", c.count, c.size, n)
		}
		in.Done()
	}
}

// FuzzDriver: whatever a sender writes, the driver gets packets that it can take apart.
func FuzzDriver(f *testing.F) {
	f.Add(uint64(1), []byte{1, 2, 3})
	f.Fuzz(func(t *testing.T, seed uint64, junk []byte) {
		out, in, mem := driverPair(t)
		r := rand.New(rand.NewPCG(seed, 1))
		for range 200 {
			p := randomPacket(r, nil)
			p.Count = uint16(r.UintN(70))
			if out.room(len(p.Payload)) {
				out.publish(&p, false)
			}
			if len(junk) > 0 && r.UintN(3) == 0 {
				copy(mem[headBytes+r.IntN(RingBytes-headBytes-1):], junk)
			}
			var q wire.Packet
			for range 2 {
				if !in.Poll(&q) {
					break
				}
				for i := range q.Packets() {
					s := q.Single(i)
					s.Seal()
					s.Append(nil)
				}
				in.Done()
			}
		}
	})
}
