package tunnel

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"softib/proto/ib"
)

// flight is a datagram under way.
type flight struct {
	at   ib.Time
	turn int // of those at one time
	to   int
	data []byte
	// again: it has come before. spoilt: it is not as it was sent, or nobody sent it.
	again, spoilt bool
}

func (f *flight) Before(g *flight) bool { return f.at < g.at || f.at == g.at && f.turn < g.turn }

// network is two sessions and what lies between them, all by a seed.
type network struct {
	r    *rand.Rand
	now  ib.Time
	ends [2]end
	air  ib.Heap[flight, *flight]
	turn int

	lose, double, spoil, replay, noise float64
	delay, jitter                      ib.Time
	lazy                               float64 // chance that nobody reads messages now
	cuts                               []span  // times in which nothing arrives
	kept                               []flight
	mtu                                int
}

type end struct {
	s      *Session
	toSend [][]byte // messages that are not queued yet
	expect [][]byte // that the peer sends and that have not come
	sentAt ib.Time  // when the next one is sent
}

// configs are two that belong together.
func configs(r *rand.Rand, mtu int) (a, b Config) {
	secret := func() (s [SecretBytes]byte) {
		for i := range s {
			s[i] = byte(r.Uint32())
		}
		return s
	}
	x, y := secret(), secret()
	i, j := r.Uint32(), r.Uint32()
	return Config{SendSecret: x, RecvSecret: y, SendIndex: i, RecvIndex: j, MTU: mtu},
		Config{SendSecret: y, RecvSecret: x, SendIndex: j, RecvIndex: i, MTU: mtu}
}

// noise is bytes of which no two pieces are alike, for messages and for what nobody sent.
var noise = func() []byte {
	b := make([]byte, 1<<16)
	r := rand.NewChaCha8([32]byte{1})
	_, _ = r.Read(b)
	return b
}()

// bytesOf is some bytes that are not to be changed.
func bytesOf(r *rand.Rand, n int) []byte {
	at := r.IntN(len(noise) - n)
	return noise[at : at+n]
}

func newNetwork(seed uint64) *network {
	r := rand.New(rand.NewPCG(seed, 1))
	n := &network{r: r, now: ib.Time(r.Int64N(int64(ib.Second)))}
	maybe := func(p, most float64) float64 {
		if r.Float64() < p {
			return 0
		}
		return most * r.Float64()
	}
	n.lose, n.double, n.spoil = maybe(0.3, 0.3), maybe(0.5, 0.3), maybe(0.5, 0.1)
	n.replay, n.noise = maybe(0.5, 0.3), maybe(0.7, 0.1)
	n.delay = ib.Time(r.Int64N(int64(5 * ib.Millisecond)))
	n.jitter = ib.Time(maybe(0.4, float64(10*ib.Millisecond)))
	n.lazy = maybe(0.5, 0.9)
	for range max(0, r.IntN(5)-2) {
		from := uint64(n.now) + r.Uint64N(uint64(2*ib.Second))
		n.cuts = append(n.cuts, span{from, from + r.Uint64N(uint64(3*ib.Second))})
	}
	n.mtu = []int{MTUMin, 600, 1452, 8952}[r.IntN(4)]
	var c [2]Config
	c[0], c[1] = configs(r, n.mtu)
	for i := range c {
		c[i].Window = windowFirst << r.IntN(4)
		c[i].Queue = (messageBytes + MessageMax) << r.IntN(6)
		if r.IntN(2) == 0 {
			c[i].RekeyDatagrams = 1 + r.Uint64N(60)
		}
		if r.IntN(4) == 0 {
			c[i].RekeyBytes = 1 + r.Uint64N(100000)
		}
		s, err := New(n.now, c[i])
		if err != nil {
			panic(err)
		}
		n.ends[i] = end{s: s, sentAt: n.now}
	}
	most := []int{20, 200, MessageMax + 1}[r.IntN(3)]
	for i := range n.ends {
		for range r.IntN(100) {
			m := bytesOf(r, r.IntN(most))
			n.ends[i].toSend = append(n.ends[i].toSend, m)
			n.ends[1-i].expect = append(n.ends[1-i].expect, m)
		}
	}
	return n
}

func (n *network) send(f flight, delay ib.Time) {
	f.at = n.now + delay
	if n.jitter > 0 {
		f.at += ib.Time(n.r.Int64N(int64(n.jitter)))
	}
	n.turn++
	f.turn = n.turn
	n.air.Push(f)
}

// leave is what becomes of a datagram that an end sends.
func (n *network) leave(to int, data []byte) {
	f := flight{to: to, data: bytes.Clone(data)}
	r := n.r
	if r.Float64() < n.spoil {
		g := flight{to: to, data: bytes.Clone(data), spoilt: true}
		switch r.IntN(3) {
		case 0:
			g.data[r.IntN(len(g.data))] ^= 1 << r.IntN(8)
		case 1:
			g.data = g.data[:r.IntN(len(g.data))]
		case 2:
			g.data = append(g.data, byte(r.Uint32()))
		}
		n.send(g, n.delay)
		if r.IntN(2) == 0 {
			return // in place of the right one
		}
	}
	if r.Float64() < n.noise {
		g := flight{to: r.IntN(2), data: bytes.Clone(bytesOf(r, r.IntN(n.mtu))), spoilt: true}
		if r.IntN(2) == 0 {
			copy(g.data, data[:min(len(data), headerBytes)])
		}
		if r.IntN(4) == 0 {
			g.to, g.data = 1-to, bytes.Clone(data) // back to its sender
		}
		n.send(g, n.delay)
	}
	if r.Float64() < n.lose {
		return
	}
	n.send(f, n.delay)
}

// arrive hands a datagram to its end and checks what that says of it.
func (n *network) arrive(f flight) error {
	for _, c := range n.cuts {
		if c.from <= uint64(n.now) && uint64(n.now) < c.to {
			return nil
		}
	}
	e := &n.ends[f.to]
	whole := bytes.Clone(f.data)
	was := e.s.Stats()
	err := e.s.HandleDatagram(n.now, f.data)
	switch {
	case errors.Is(err, ErrDead):
		return nil
	case errors.Is(err, ErrMalformed):
		return fmt.Errorf("an honest peer is said to have broken the protocol")
	case err == nil && f.spoilt:
		return fmt.Errorf("a spoilt datagram of %d bytes was taken", len(whole))
	case err == nil && f.again && e.s.Stats().NoRoom == was.NoRoom:
		return fmt.Errorf("a datagram was taken twice")
	case err != nil && refused(e.s.Stats()) != refused(was)+1:
		return fmt.Errorf("refused and not counted: %w", err)
	}
	if err == nil && !f.again {
		f.data, f.again = whole, true
		if n.r.Float64() < n.double {
			n.send(f, 0)
		}
		n.kept = append(n.kept, f)
	}
	if len(n.kept) > 0 && n.r.Float64() < n.replay {
		g := n.kept[n.r.IntN(len(n.kept))]
		g.data = bytes.Clone(g.data)
		n.send(g, 0)
	}
	return nil
}

func refused(s Stats) uint64 {
	return s.Truncated + s.Index + s.OldKey + s.Epoch + s.Replayed + s.Forged + s.Malformed
}

// drain lets an end say and hear what there is.
func (n *network) drain(i int, buf []byte) error {
	e := &n.ends[i]
	for e.sentAt <= n.now && len(e.toSend) > 0 {
		room := e.s.Room()
		err := e.s.Send(n.now, uint32(len(e.toSend)), e.toSend[0])
		if err != nil && !errors.Is(err, ErrFull) && !errors.Is(err, ErrDead) || errors.Is(err, ErrFull) && room {
			return fmt.Errorf("send: room %v, %w", room, err)
		}
		if err != nil {
			e.sentAt = n.now + ib.Millisecond
			break
		}
		e.toSend = e.toSend[1:]
		if n.r.IntN(8) == 0 {
			e.sentAt = n.now + ib.Time(n.r.Int64N(int64(50*ib.Millisecond)))
		}
	}
	for n.r.Float64() >= n.lazy {
		stream, m, ok := e.s.PollMessage()
		if !ok {
			break
		}
		if len(e.expect) == 0 || int(stream) != len(e.expect) || !bytes.Equal(m, e.expect[0]) {
			return fmt.Errorf("message %d of %d bytes, not in its turn or changed; %d are expected", stream, len(m),
				len(e.expect))
		}
		e.expect = e.expect[1:]
	}
	for {
		size, ok := e.s.PollDatagram(n.now, buf)
		if !ok {
			return nil
		}
		if size > n.mtu {
			return fmt.Errorf("a datagram of %d bytes, MTU %d", size, n.mtu)
		}
		n.leave(1-i, buf[:size])
	}
}

// over reports whether all is said and heard, or both ends are dead.
func (n *network) over() (done, dead bool) {
	done = true
	for i := range n.ends {
		e := &n.ends[i]
		done = done && len(e.expect) == 0 && len(e.toSend) == 0
		dead = dead || e.s.Dead(n.now)
	}
	return done, dead
}

// torture runs a seed and says what is wrong.
func torture(seed uint64) (dead bool, err error) {
	n := newNetwork(seed)
	buf := make([]byte, n.mtu)
	end := n.now + 1000*ib.Second
	for steps := 0; ; steps++ {
		for i := range n.ends {
			if err := n.drain(i, buf); err != nil {
				return false, fmt.Errorf("end %d at %v: %w", i, n.now, err)
			}
		}
		done, dead := n.over()
		switch {
		case done:
			return false, nil
		case dead:
			// Not without a reason: losses alone do not do it, only a silence does that was long.
			if !slices.ContainsFunc(n.cuts, func(c span) bool {
				return c.from < uint64(n.now) && c.to-c.from > uint64(deadAfter/2)
			}) {
				return true, fmt.Errorf("dead at %v without a long silence", n.now)
			}
			return true, nil
		case n.now > end || steps > 2_000_000:
			return false, fmt.Errorf("not done at %v after %d steps: %+v", n.now, steps, n.ends[0].s.Stats())
		}
		next := ib.Never
		for i := range n.ends {
			e := &n.ends[i]
			next = ib.Earlier(next, e.s.NextDeadline())
			if len(e.toSend) > 0 {
				next = ib.Earlier(next, e.sentAt)
			}
			if e.s.in.whole > e.s.in.read {
				next = ib.Earlier(next, n.now+ib.Millisecond) // for who was too lazy to read
			}
		}
		if len(n.air) > 0 && n.air[0].at <= next {
			f := n.air.Pop()
			n.now = max(n.now, f.at)
			if err := n.arrive(f); err != nil {
				return false, fmt.Errorf("end %d at %v: %w", f.to, n.now, err)
			}
			continue
		}
		n.now = max(n.now, next)
		for i := range n.ends {
			n.ends[i].s.HandleTimer(n.now)
		}
	}
}

// Every message comes exactly once, in order and unchanged, whatever becomes of datagrams; or the session is dead.
func TestTorture(t *testing.T) {
	seeds, dead := uint64(2000), 0
	if testing.Short() {
		seeds = 200
	}
	for seed := range seeds {
		d, err := torture(seed)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if d {
			dead++
		}
	}
	t.Logf("%d seeds, %d of them ended dead", seeds, dead)
	if dead == 0 || dead > int(seeds)/4 {
		t.Errorf("%d of %d seeds ended dead", dead, seeds)
	}
}
