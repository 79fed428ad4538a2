package endpoint

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"softib/node/hca"
	"softib/proto/wire"
)

// strangers are both ends of a ring whose receiver cannot read the sender's memory, with pipes.
func strangers(t testing.TB) (*Out, *In, []byte) {
	t.Helper()
	mem := aligned(RingBytes)
	page, err := NewPage(aligned(PageBytes)) // that nobody has signed
	if err != nil {
		t.Fatal(err)
	}
	const somebody = 1
	out, err := NewOut(mem, page, somebody)
	if err != nil {
		t.Fatal(err)
	}
	in, err := NewIn(mem, page, somebody, 1)
	if err != nil {
		t.Fatal(err)
	}
	wishes := 0
	out.wish = func() { wishes++ }
	if out.canRefer(false) || wishes != 0 || out.canRefer(true) || out.canRefer(true) || wishes != 1 {
		t.Fatalf("pipes were asked for %d times, want once, by a long payload", wishes)
	}
	fds, err := MakePipes()
	if err != nil {
		t.Fatal(err)
	}
	var theirs []int
	for _, fd := range fds[:numPipes] {
		n, err := unix.Dup(fd)
		if err != nil {
			t.Fatal(err)
		}
		theirs = append(theirs, n)
	}
	t.Cleanup(func() { out.closePipes(); in.closePipes() })
	if out.usePipes(fds); out.canRefer(true) {
		t.Fatal("the sender uses pipes before the receiver has them")
	}
	in.usePipes(theirs)
	return out, in, mem
}

func longPacket(payload []byte) *wire.Packet {
	return &wire.Packet{LRH: wire.LRH{LNH: wire.LNHLocal},
		BTH: wire.BTH{Opcode: wire.MakeOpcode(wire.RC, wire.OpSendOnly)}, Payload: payload,
		Count: uint16(len(payload)/4096 + 1)}
}

// TestPipesAreAQueue plays random payloads through pipes and holds what comes out against what went in: whoever takes
// all, a part or nothing, and whatever was given up meanwhile, the next one is as it was sent.
func TestPipesAreAQueue(t *testing.T) {
	seeds := uint64(8)
	if testing.Short() {
		seeds = 2
	}
	memory := make([]byte, 4<<20)
	for seed := range seeds {
		r := rand.New(rand.NewPCG(seed, 9))
		for i := range memory {
			memory[i] = byte(r.Uint32())
		}
		out, in, _ := strangers(t)
		type sent struct {
			payload []byte
			q       *hca.QP
		}
		var queue []sent
		qps := []*hca.QP{new(hca.QP), new(hca.QP), new(hca.QP)}
		waits := 0
		for step := 0; step < 1500 || len(queue) > 0; step++ {
			switch {
			case step < 1500 && r.UintN(2) == 0:
				n := byRefMin + r.IntN(bundleMax*4096-byRefMin+1)
				if r.UintN(2) == 0 {
					n = r.IntN(100)
				}
				at := r.IntN(len(memory) - n)
				if !out.canRefer(n >= byRefMin) {
					t.Fatal("the sender uses no pipes")
				}
				if !out.room(n % byRefMin) {
					waits++
					continue
				}
				s := sent{memory[at : at+n], qps[r.UintN(3)]}
				out.from = s.q
				out.publish(longPacket(s.payload), false)
				queue = append(queue, s)
			case r.UintN(20) == 0:
				gone := qps[r.UintN(3)]
				out.revoke([]*hca.QP{gone})
				for i := range queue {
					if queue[i].q == gone && len(queue[i].payload) >= byRefMin {
						queue[i].q = nil
					}
				}
			default:
				c := in.ready()
				if c == nil {
					if len(queue) != 0 {
						t.Fatal("a packet is missing")
					}
					continue
				}
				var p wire.Packet
				want := queue[0]
				queue = queue[1:]
				if ok := in.get(c, &p); ok == (want.q == nil) {
					t.Fatalf("seed %d, step %d: got a packet: %v; it was given up: %v", seed, step, ok, want.q == nil)
				} else if ok && p.PayloadLen() != len(want.payload) {
					t.Fatalf("seed %d, step %d: %d bytes, want %d", seed, step, p.PayloadLen(), len(want.payload))
				} else if ok && p.Far != nil {
					takeSome(t, r, &p, want.payload)
				} else if ok && !bytes.Equal(p.Payload, want.payload) {
					t.Fatalf("seed %d, step %d: another payload", seed, step)
				}
				in.Done()
				if in.ready() == nil {
					in.tell()
				}
			}
		}
		if waits == 0 {
			t.Error("the pipes were never full")
		}
		out.closePipes()
		in.closePipes()
	}
}

// takeSome copies a payload, or the beginning of it, in pieces.
func takeSome(t *testing.T, r *rand.Rand, p *wire.Packet, want []byte) {
	t.Helper()
	for off := 0; off < p.FarLen && r.UintN(8) != 0; {
		dst := make([]byte, 1+r.IntN(p.FarLen-off))
		if !p.Far.CopyTo(dst, off) {
			t.Fatal("a payload cannot be read")
		}
		if !bytes.Equal(dst, want[off:off+len(dst)]) {
			t.Fatalf("another payload from byte %d on", off)
		}
		off += len(dst)
	}
}

// TestPipeGivenUp: what is given up while it is copied is lost, and what follows is not.
func TestPipeGivenUp(t *testing.T) {
	out, in, _ := strangers(t)
	first, second := bytes.Repeat([]byte{1}, byRefMin), bytes.Repeat([]byte{2}, byRefMin)
	mine, other := new(hca.QP), new(hca.QP)
	for _, s := range []struct {
		payload []byte
		q       *hca.QP
	}{{first, mine}, {first, mine}, {second, other}, {second, other}} {
		if !out.canRefer(true) || !out.room(0) {
			t.Fatal("no room")
		}
		out.from = s.q
		out.publish(longPacket(s.payload), false)
	}
	var p wire.Packet
	if !in.get(in.ready(), &p) {
		t.Fatal("the first packet is lost")
	}
	out.revoke([]*hca.QP{mine})
	if p.Far.CopyTo(make([]byte, byRefMin), 0) {
		t.Error("a payload was read after it was taken back")
	}
	in.Done()
	if in.get(in.ready(), &p) {
		t.Error("a packet that was taken back is not lost")
	}
	in.Done()
	for range 2 {
		got := make([]byte, byRefMin)
		if !in.get(in.ready(), &p) || !p.Far.CopyTo(got, 0) || !bytes.Equal(got, second) {
			t.Error("another queue pair's packet is lost with it")
		}
		in.Done()
	}
}

// TestPipeRefused: a payload of which the kernel gives no pages is a lost packet, and the sender copies from then on.
func TestPipeRefused(t *testing.T) {
	out, in, _ := strangers(t)
	none, err := unix.Mmap(-1, 0, 1<<20, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Munmap(none) }()
	if !out.canRefer(true) || !out.room(0) {
		t.Fatal("no room")
	}
	out.publish(longPacket(none[:byRefMin]), false)
	var p wire.Packet
	if in.get(in.ready(), &p) {
		t.Error("a packet without a payload is not lost")
	}
	in.Done()
	copied(t, out, in)
}

// TestPipeTooShort: a sender that says more than it gives loses its packets, and nobody waits for the rest.
func TestPipeTooShort(t *testing.T) {
	out, in, _ := strangers(t)
	if !out.canRefer(true) || !out.room(0) {
		t.Fatal("no room")
	}
	out.publish(longPacket(make([]byte, byRefMin)), false)
	(*chunkDesc)(unsafe.Pointer(&in.area[0])).length = 2 * byRefMin
	var p wire.Packet
	if !in.get(in.ready(), &p) || p.Far.CopyTo(make([]byte, 2*byRefMin), 0) {
		t.Error("more was read than was given")
	}
	in.Done()
	copied(t, out, in)
}

// copied makes sure that a long payload goes through the ring.
func copied(t *testing.T, out *Out, in *In) {
	t.Helper()
	if in.tell(); out.canRefer(true) || !out.room(byRefMin) {
		t.Fatal("the pipes are still used")
	}
	want := bytes.Repeat([]byte{7}, byRefMin)
	out.publish(longPacket(want), false)
	var p wire.Packet
	if !in.get(in.ready(), &p) || p.Far != nil || !slices.Equal(p.Payload, want) {
		t.Error("a payload that was copied is another one")
	}
	in.Done()
}
