package fabric

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"softib/node/link"
	"softib/proto/ib"
	"softib/proto/wire"
)

// jointEnd is an end of a cable with what is on its way to it.
type jointEnd struct {
	Joint
	inbox []any // Greeting, or the pair of lives that a packet was sent in
	ready bool
}

type lives struct{ mine, theirs uint32 }

func (e *jointEnd) begin(far *jointEnd, ready bool) {
	e.ready = ready
	far.inbox = append(far.inbox, e.Begin(ready, rate, false))
}

// hear takes in the oldest of what is on its way.
func (e *jointEnd) hear(t *testing.T, far *jointEnd) {
	if len(e.inbox) == 0 {
		return
	}
	m := e.inbox[0]
	e.inbox = e.inbox[1:]
	if p, ok := m.(lives); ok {
		if e.IsUp() && (p.mine != e.linked || p.theirs != e.own.Life) {
			t.Fatalf("a packet of lives %v came in a link of %d and %d", p, e.linked, e.own.Life)
		}
		return
	}
	reply, tell, do := e.Hear(m.(Greeting))
	if tell {
		far.inbox = append(far.inbox, reply)
	}
	if (do == Raise) != e.IsUp() && do != Stay || do == Raise && !e.ready {
		t.Fatalf("move %d, up %v, ready %v", do, e.IsUp(), e.ready)
	}
}

// Whatever falls when, no packet of one link comes in on another, and when all is quiet both ends are up, or neither.
func TestJoint(t *testing.T) {
	for seed := range uint64(3000) {
		r := rand.New(rand.NewPCG(seed, 0))
		var ends [2]jointEnd
		for i := range ends {
			ends[i].begin(&ends[1-i], r.IntN(4) > 0)
		}
		for range 200 {
			i := r.IntN(2)
			a, b := &ends[i], &ends[1-i]
			switch {
			case r.IntN(12) == 0:
				a.begin(b, r.IntN(4) > 0)
			case r.IntN(3) == 0 && a.IsUp():
				b.inbox = append(b.inbox, lives{a.own.Life, a.linked})
			default:
				a.hear(t, b)
			}
		}
		for n := 0; len(ends[0].inbox)+len(ends[1].inbox) > 0; n++ {
			if n > 1000 {
				t.Fatalf("seed %d: the ends never stop talking", seed)
			}
			ends[n%2].hear(t, &ends[1-n%2])
		}
		if want := ends[0].ready && ends[1].ready; ends[0].IsUp() != want || ends[1].IsUp() != want {
			t.Fatalf("seed %d: up %v and %v, ready %v and %v", seed, ends[0].IsUp(), ends[1].IsUp(), ends[0].ready,
				ends[1].ready)
		}
	}
}

// messages are samples of all that ends say.
func messages() [][]byte {
	var pool link.Pool
	f := pool.Get()
	*f.Packet = wire.Packet{LRH: wire.LRH{SLID: 1, DLID: 2, SL: 3, LNH: wire.LNHLocal},
		BTH: wire.BTH{Opcode: wire.MakeOpcode(wire.UD, wire.OpSendOnly), DestQP: 7, PKey: ib.PKeyDefault}}
	f.Own([]byte("hello"))
	f.Seal()
	f.LRH.VL, f.Flags = 2, link.BadICRC
	fc := wire.LinkPacket{VL: 3, FCTBS: 100, FCCL: 200}
	return [][]byte{(&Crossing{Frame: f}).AppendMessage(nil), (&Crossing{FC: fc}).AppendMessage(nil),
		Greeting{Ready: true, Rate: rate, Life: 1 << 31, Heard: 9}.AppendMessage(nil)}
}

// again writes what was read.
func again(m *Message) []byte {
	if m.IsGreeting {
		return m.Greeting.AppendMessage(nil)
	}
	return m.Crossing.AppendMessage(nil)
}

func TestMessages(t *testing.T) {
	var pool link.Pool
	for _, b := range messages() {
		m, err := ParseMessage(b, &pool)
		if err != nil || !bytes.Equal(again(&m), b) {
			t.Fatalf("%x: %v, and again %x", b, err, again(&m))
		}
		for n := range b {
			if _, err := ParseMessage(b[:n], &pool); err == nil {
				t.Fatalf("%d bytes of %x are a message", n, b)
			}
		}
	}
	if pool.InUse() != 1 {
		t.Fatalf("%d frames are in use, want that of the packet", pool.InUse())
	}
}

func FuzzMessage(f *testing.F) {
	for _, b := range messages() {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var pool link.Pool
		m, err := ParseMessage(b, &pool)
		if err != nil {
			if pool.InUse() != 0 {
				t.Fatal("a frame is lost")
			}
			return
		}
		n, err := ParseMessage(again(&m), &pool)
		if err != nil || !bytes.Equal(again(&n), again(&m)) {
			t.Fatalf("own bytes %x are read as %+v: %v", again(&m), n, err)
		}
	})
}
