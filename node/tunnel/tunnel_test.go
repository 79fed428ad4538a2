package tunnel

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"testing"

	"softib/proto/ib"
)

// pair is two sessions that belong together, at time 0, after a change to what they are made with.
func pair(t testing.TB, mtu int, change func(a, b *Config)) (a, b *Session) {
	t.Helper()
	x, y := configs(rand.New(rand.NewPCG(1, 2)), mtu)
	if change != nil {
		change(&x, &y)
	}
	a, err := New(0, x)
	if err != nil {
		t.Fatal(err)
	}
	if b, err = New(0, y); err != nil {
		t.Fatal(err)
	}
	return a, b
}

// carry hands all datagrams of one session to another, and returns how many.
func carry(t testing.TB, now ib.Time, from, to *Session) (n int) {
	t.Helper()
	buf := make([]byte, from.cfg.MTU)
	for ; ; n++ {
		size, ok := from.PollDatagram(now, buf)
		if !ok {
			return n
		}
		if err := to.HandleDatagram(now, buf[:size]); err != nil {
			t.Fatal(err)
		}
	}
}

// poll is one datagram, which there has to be.
func poll(t testing.TB, now ib.Time, s *Session) []byte {
	t.Helper()
	buf := make([]byte, s.cfg.MTU)
	n, ok := s.PollDatagram(now, buf)
	if !ok {
		t.Fatal("no datagram")
	}
	return buf[:n]
}

func TestConfig(t *testing.T) {
	good, _ := configs(rand.New(rand.NewPCG(1, 2)), 1452)
	for what, change := range map[string]func(*Config){
		"small MTU":    func(c *Config) { c.MTU = MTUMin - 1 },
		"large MTU":    func(c *Config) { c.MTU = MTUMax + 1 },
		"small window": func(c *Config) { c.Window = 1000 },
		"small queue":  func(c *Config) { c.Queue = 1000 },
		"one secret":   func(c *Config) { c.RecvSecret = c.SendSecret },
		"no secrets":   func(c *Config) { c.RecvSecret, c.SendSecret = [32]byte{}, [32]byte{} },
		"negative":     func(c *Config) { c.DeadAfter = -1 },
	} {
		c := good
		change(&c)
		if _, err := New(0, c); !errors.Is(err, ErrConfig) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := New(0, good); err != nil {
		t.Error(err)
	}
}

// Small messages share a datagram, a large one is cut, and none may be too large.
func TestMessages(t *testing.T) {
	a, b := pair(t, 1452, nil)
	for i := range 50 {
		if err := a.Send(0, uint32(i), []byte{byte(i), 1, 2}); err != nil {
			t.Fatal(err)
		}
	}
	if n := carry(t, 0, a, b); n != 1 {
		t.Errorf("50 small messages took %d datagrams", n)
	}
	large := bytes.Repeat([]byte("0123456789abcdef"), MessageMax/16)
	if err := a.Send(0, 1<<31, large); err != nil {
		t.Fatal(err)
	}
	if n := carry(t, 0, a, b); n != 6 {
		t.Errorf("a message of 8 KiB took %d datagrams", n)
	}
	for i := range 50 {
		if stream, m, ok := b.PollMessage(); !ok || stream != uint32(i) || !bytes.Equal(m, []byte{byte(i), 1, 2}) {
			t.Fatal(i, stream, m, ok)
		}
	}
	if stream, m, ok := b.PollMessage(); !ok || stream != 1<<31 || !bytes.Equal(m, large) {
		t.Error("the large one", stream, len(m), ok)
	}
	if _, _, ok := b.PollMessage(); ok {
		t.Error("one more")
	}
	if err := a.Send(0, 1, make([]byte, MessageMax+1)); !errors.Is(err, ErrLong) {
		t.Error(err)
	}
	if err := a.Send(0, 1, nil); err != nil {
		t.Error(err)
	}
	carry(t, 0, a, b)
	if _, m, ok := b.PollMessage(); !ok || len(m) != 0 {
		t.Error("the empty one", m, ok)
	}
}

// A receiver that nobody reads from stops its sender, and goes on when it is read.
func TestWindow(t *testing.T) {
	a, b := pair(t, 1452, func(a, b *Config) { a.Queue, b.Window = 200<<10, 100<<10 })
	sent := 0
	for now := ib.Time(0); now < ib.Second; now += ib.Millisecond {
		for a.Room() {
			if err := a.Send(now, 1, make([]byte, 1000)); err != nil {
				t.Fatal(err)
			}
			sent++
		}
		if err := a.Send(now, 1, make([]byte, MessageMax)); !errors.Is(err, ErrFull) {
			t.Fatal(err)
		}
		a.HandleTimer(now)
		b.HandleTimer(now)
		carry(t, now, a, b)
		carry(t, now, b, a)
	}
	if got := int(b.in.whole); got > 100<<10 || got < 99<<10 {
		t.Errorf("%d bytes came without being read", got)
	}
	if a.Dead(ib.Second) {
		t.Error("dead, though the peer answers")
	}
	for now := ib.Second; a.Queued() > 0 || b.in.read < b.in.whole; now += ib.Millisecond {
		for {
			if _, _, ok := b.PollMessage(); !ok {
				break
			}
			sent--
		}
		carry(t, now, b, a)
		carry(t, now, a, b)
		a.HandleTimer(now)
		b.HandleTimer(now)
		if now > 2*ib.Second {
			t.Fatal("it does not go on")
		}
	}
	if sent != 0 {
		t.Errorf("%d are missing", sent)
	}
}

// Keys change in both directions on their own, and what was sealed by an old one is refused.
func TestKeyUpdate(t *testing.T) {
	a, b := pair(t, 1452, func(a, b *Config) { a.RekeyDatagrams, b.RekeyBytes = 10, 3000 })
	var first []byte
	for now := ib.Time(0); now < ib.Second; now += ib.Millisecond {
		for _, s := range []*Session{a, b} {
			if err := s.Send(now, 1, make([]byte, 100)); err != nil {
				t.Fatal(err)
			}
			s.HandleTimer(now)
		}
		d := poll(t, now, a)
		if first == nil {
			first = bytes.Clone(d)
		}
		if err := b.HandleDatagram(now, d); err != nil {
			t.Fatal(now, err)
		}
		carry(t, now, b, a)
		for {
			if _, _, ok := b.PollMessage(); !ok {
				break
			}
		}
	}
	if a.stats.Rekeys < 50 || b.stats.Rekeys < 20 || a.out.epoch != b.in.epoch || b.out.epoch != a.in.epoch {
		t.Errorf("%d and %d new keys; epochs %d %d, %d %d", a.stats.Rekeys, b.stats.Rekeys, a.out.epoch, b.in.epoch,
			b.out.epoch, a.in.epoch)
	}
	if err := b.HandleDatagram(ib.Second, first); !errors.Is(err, ErrOldKey) {
		t.Error(err)
	}
	far := poll(t, ib.Second+keepAlive, probing(a))
	binary.BigEndian.PutUint32(far[offEpoch:], b.in.epoch+2)
	if err := b.HandleDatagram(ib.Second, far); !errors.Is(err, ErrEpoch) {
		t.Error(err)
	}
	b.HandleTimer(10 * ib.Second)
	if b.in.old != nil && !b.dead {
		t.Error("the old key is kept")
	}
}

// probing is a session that has something to send.
func probing(s *Session) *Session {
	s.out.ping = true
	return s
}

// The last key is good for a short while, for what was overtaken; then it is forgotten.
func TestOldKey(t *testing.T) {
	for _, late := range []bool{false, true} {
		a, b := pair(t, 1452, func(a, _ *Config) { a.RekeyDatagrams = 2 })
		carry(t, 0, probing(a), b)
		carry(t, 0, probing(b), a)
		// Held up: number 1, still by the first key, while the two that follow have the second one.
		if err := a.Send(0, 7, []byte("held up")); err != nil {
			t.Fatal(err)
		}
		held := poll(t, 0, a)
		carry(t, 0, probing(a), b)
		if b.in.epoch != 1 {
			t.Fatal("epoch", b.in.epoch)
		}
		now, want := ib.Millisecond, error(nil)
		if late {
			now, want = ib.Second, ErrOldKey
			b.HandleTimer(now)
			if b.in.old != nil {
				t.Error("the old key is kept")
			}
		}
		if err := b.HandleDatagram(now, held); !errors.Is(err, want) {
			t.Errorf("late %v: %v", late, err)
		}
	}
}

// A datagram of another session, one that is not whole, and one that was changed anywhere are refused.
func TestRefused(t *testing.T) {
	a, b := pair(t, 1452, nil)
	if err := a.Send(0, 1, []byte("hello")); err != nil {
		t.Fatal(err)
	}
	d := poll(t, 0, a)
	for n := range d {
		if err := b.HandleDatagram(0, bytes.Clone(d[:n])); err == nil {
			t.Errorf("%d bytes were taken", n)
		}
		for bit := range 8 {
			x := bytes.Clone(d)
			x[n] ^= 1 << bit
			if err := b.HandleDatagram(0, x); err == nil {
				t.Errorf("byte %d bit %d was changed and taken", n, bit)
			}
		}
	}
	if err := a.HandleDatagram(0, bytes.Clone(d)); !errors.Is(err, ErrIndex) {
		t.Error("back to its sender:", err)
	}
	same := bytes.Clone(d)
	binary.BigEndian.PutUint32(same, a.cfg.RecvIndex)
	if err := a.HandleDatagram(0, same); !errors.Is(err, ErrForged) {
		t.Error("back to its sender by its index:", err)
	}
	if err := b.HandleDatagram(0, bytes.Clone(d)); err != nil {
		t.Error(err)
	}
	if err := b.HandleDatagram(0, d); !errors.Is(err, ErrReplayed) {
		t.Error(err)
	}
	st := b.Stats()
	if st.Received != 1 || st.Truncated == 0 || st.Forged == 0 || st.Index == 0 || st.Epoch == 0 || st.Replayed != 1 {
		t.Errorf("%+v", st)
	}
}

// sealed is a datagram as a peer with the right key and the wrong ideas may make it.
func sealed(s *Session, plain []byte) []byte {
	b := make([]byte, headerBytes, headerBytes+len(plain)+sealBytes)
	binary.BigEndian.PutUint32(b[offIndex:], s.cfg.SendIndex)
	binary.BigEndian.PutUint32(b[offEpoch:], s.out.epoch)
	binary.BigEndian.PutUint64(b[offNumber:], s.out.number)
	s.out.key.nonce(&s.out.nonce, s.out.number)
	s.out.number++
	return s.out.key.aead.Seal(b, s.out.nonce[:], plain, b[:headerBytes])
}

// A peer that breaks the protocol ends the session, and nothing else.
func TestMalformed(t *testing.T) {
	ack := func(largest uint64, first uint32, more byte, rest ...uint32) []byte {
		b := append([]byte{flagAck, 0, 0, 0, 0}, make([]byte, ackBytes)...)
		binary.BigEndian.PutUint64(b[5:], largest)
		b[25] = more
		binary.BigEndian.PutUint32(b[26:], first)
		for _, v := range rest {
			b = binary.BigEndian.AppendUint32(b, v)
		}
		return b
	}
	data := func(flags byte, at uint64, n int) []byte {
		return append(binary.BigEndian.AppendUint64([]byte{flags, 0, 0, 0, 0}, at), make([]byte, n)...)
	}
	for what, plain := range map[string][]byte{
		"unknown flag":                   {flagsAll + 1, 0, 0, 0, 0},
		"more below than there are":      {0, 0, 0, 0, 9},
		"something behind nothing":       {flagElicit, 0, 0, 0, 0, 1},
		"half an acknowledgement":        ack(0, 0, 0)[:20],
		"of what was not sent":           ack(1, 0, 0),
		"of the last number there is":    ack(1<<64-1, 0, 0),
		"below the first":                ack(0, 1, 0),
		"more ranges than it has":        ack(0, 0, 1),
		"more ranges than there may be":  ack(0, 0, 200, make([]uint32, 400)...),
		"an empty range":                 ack(0, 0, 1, 0, 0),
		"a range below the first":        ack(0, 0, 1, 1, 1),
		"no bytes":                       data(flagData|flagElicit, 0, 0),
		"half an offset":                 data(flagData|flagElicit, 0, 0)[:9],
		"bytes that want no answer":      data(flagData, 0, 1),
		"bytes and padding":              data(flagData|flagElicit|flagPad, 0, 1),
		"bytes beyond the window":        data(flagData|flagElicit, windowFirst, 1),
		"bytes beyond the last":          data(flagData|flagElicit, 1<<64-1, 2),
		"a message that is far too long": append(data(flagData|flagElicit, 0, 0), 0, 0, 0, 0, 255, 255),
	} {
		a, b := pair(t, 1452, nil)
		poll(t, 0, probing(b)) // one datagram is under way
		err := b.HandleDatagram(0, sealed(a, plain))
		if err == nil {
			b.PollMessage()
		} else if !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v", what, err)
		}
		if !b.Dead(0) || b.Stats().Malformed != 1 {
			t.Errorf("%s: %v, and the session lives", what, err)
		}
		if err := b.Send(0, 1, nil); !errors.Is(err, ErrDead) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// A peer that makes holes cannot have more of them remembered than there is room for.
func TestHoles(t *testing.T) {
	a, b := pair(t, 1452, nil)
	for i := range uint64(2 * someMax) {
		p := append(binary.BigEndian.AppendUint64([]byte{flagData | flagElicit, 0, 0, 0, 0}, 2*i+1), 0)
		a.out.number += 1 // and of numbers, too
		if err := b.HandleDatagram(0, sealed(a, p)); err != nil {
			t.Fatal(err)
		}
	}
	if len(b.in.some) > someMax || len(b.in.have) > haveMax || b.stats.NoRoom != someMax {
		t.Errorf("%d and %d spans, %d refused", len(b.in.some), len(b.in.have), b.stats.NoRoom)
	}
}

// A peer is dead when it has left something unanswered for two seconds: also where there is nothing to say, since then
// it is asked now and then whether it is there.
func TestDead(t *testing.T) {
	a, b := pair(t, 1452, nil)
	for now := ib.Time(0); now < 60*ib.Second; now += 10 * ib.Millisecond {
		a.HandleTimer(now)
		b.HandleTimer(now)
		carry(t, now, a, b)
		carry(t, now, b, a)
		if a.Dead(now) || b.Dead(now) {
			t.Fatal("dead, and nothing was lost", now)
		}
	}
	if n := a.Stats().Datagrams; n > 400 {
		t.Errorf("%d datagrams in a minute of silence", n)
	}
	buf := make([]byte, 1452)
	now := 60 * ib.Second
	for ; !a.Dead(now); now = a.NextDeadline() {
		a.HandleTimer(now)
		for {
			if _, ok := a.PollDatagram(now, buf); !ok {
				break
			}
		}
	}
	if d := now - 60*ib.Second; d < deadAfter || d > deadAfter+keepAlive {
		t.Errorf("dead after %v", d)
	}
	a.HandleTimer(now)
	if a.NextDeadline() != ib.Never || !errors.Is(a.HandleDatagram(now, buf), ErrDead) {
		t.Error("it wants to go on")
	}
	if _, ok := a.PollDatagram(now, buf); ok {
		t.Error("it goes on")
	}
}

// A way that lets only short datagrams pass is none, from the beginning or from some time on.
func TestShortWay(t *testing.T) {
	for _, from := range []ib.Time{0, ib.Second} {
		a, b := pair(t, 1452, nil)
		buf := make([]byte, 1452)
		now := ib.Time(0)
		for end := from + 4*deadAfter; !a.Dead(now); {
			if now > end {
				t.Fatalf("from %v on: not dead at %v", from, now)
			}
			if now >= ib.Second/2 && a.Answered() && a.Queued() == 0 {
				if err := a.Send(now, 1, make([]byte, 5000)); err != nil {
					t.Fatal(err)
				}
			}
			for _, way := range [][2]*Session{{a, b}, {b, a}} {
				for {
					n, ok := way[0].PollDatagram(now, buf)
					if !ok {
						break
					}
					if now < from || n < 500 {
						_ = way[1].HandleDatagram(now, buf[:n])
					}
				}
			}
			now += ib.Millisecond
			a.HandleTimer(now)
			b.HandleTimer(now)
		}
		if a.Answered() != (from > 0) || now < from+deadAfter/2 {
			t.Errorf("from %v on: dead at %v, answered %v", from, now, a.Answered())
		}
	}
}

// On a link with a rate and a queue that overflows, the session uses most of it.
func TestCongestion(t *testing.T) {
	const (
		rate  = 1000 // bits a microsecond, or 1 Gb/s
		last  = ib.Second
		queue = 256 << 10
		each  = 4096
	)
	for _, delay := range []ib.Time{20 * ib.Microsecond, 500 * ib.Microsecond, 2 * ib.Millisecond} {
		a, b := pair(t, 1452, nil)
		var air ib.Heap[flight, *flight]
		buf := make([]byte, each)
		var free [2]ib.Time
		now, turn, got := ib.Time(0), 0, 0
		ends := [2]*Session{a, b}
		for now < last {
			for a.Room() {
				if err := a.Send(now, 1, buf[:each]); err != nil {
					t.Fatal(err)
				}
			}
			for {
				if _, _, ok := b.PollMessage(); !ok {
					break
				}
				got++
			}
			for i, s := range ends {
				for {
					n, ok := s.PollDatagram(now, buf)
					if !ok {
						break
					}
					if waits := int((free[i] - now) / ib.Microsecond * rate / 8); waits > queue {
						continue
					}
					free[i] = max(free[i], now) + ib.Time(n)*8*ib.Microsecond/rate
					turn++
					air.Push(flight{at: free[i] + delay, turn: turn, to: 1 - i, data: bytes.Clone(buf[:n])})
				}
			}
			next := ib.Earlier(a.NextDeadline(), b.NextDeadline())
			if len(air) > 0 && air[0].at <= next {
				f := air.Pop()
				now = f.at
				if err := ends[f.to].HandleDatagram(now, f.data); err != nil {
					t.Fatal(err)
				}
				continue
			}
			now = next
			a.HandleTimer(now)
			b.HandleTimer(now)
		}
		used := float64(got) * each * 8 / (rate * float64(last/ib.Microsecond))
		t.Logf("%v one way: %.0f %% of the link, %+v", delay, 100*used, a.Stats())
		if used < 0.8 {
			t.Errorf("%v one way: %.0f %% of the link", delay, 100*used)
		}
	}
}

// The set agrees with one that has a bit for each number.
func TestSpans(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 3))
		var s spans
		var bits [200]bool
		for range 60 {
			from := r.Uint64N(200)
			a := span{from, min(200, from+r.Uint64N(20))}
			switch r.IntN(8) {
			case 0:
				x := r.Uint64N(50)
				s.dropBelow(x)
				clear(bits[:x])
			default:
				s.add(a)
				for i := a.from; i < a.to; i++ {
					bits[i] = true
				}
			}
			for i, sp := range s {
				if sp.from >= sp.to || i > 0 && s[i-1].to >= sp.from {
					t.Fatal(seed, s)
				}
			}
			for i, b := range bits {
				if s.has(uint64(i)) != b {
					t.Fatal(seed, i, b, s)
				}
			}
			a = span{r.Uint64N(100), 100 + r.Uint64N(100)}
			want, holds := span{a.to, a.to}, true
			for i := a.from; i < a.to; i++ {
				if !bits[i] {
					holds = false
					want.from = min(want.from, i)
				}
			}
			for want.to = want.from; want.to < a.to && !bits[want.to]; want.to++ {
			}
			if got := s.gap(a); got != want && !(holds && got.from >= got.to) || s.holds(a) != holds {
				t.Fatal(seed, a, got, want, holds, s)
			}
		}
	}
}

// Nothing is allocated for a message once things have found their size.
func TestAllocations(t *testing.T) {
	a, b := pair(t, 1452, nil)
	message, buf := make([]byte, 4096), make([]byte, 1452)
	now := ib.Time(0)
	round := func() { exchange(t, &now, a, b, message, buf) }
	for range 1000 {
		round()
	}
	if n := testing.AllocsPerRun(1000, round); n != 0 {
		t.Errorf("%v allocations a message", n)
	}
}

// exchange carries a message from a to b, and an acknowledgement back.
func exchange(t testing.TB, now *ib.Time, a, b *Session, message, buf []byte) {
	*now += ib.Microsecond
	if err := a.Send(*now, 1, message); err != nil {
		t.Fatal(err)
	}
	for i, s := range [2]*Session{a, b} {
		for {
			n, ok := s.PollDatagram(*now, buf)
			if !ok {
				break
			}
			if err := [2]*Session{b, a}[i].HandleDatagram(*now, buf[:n]); err != nil {
				t.Fatal(err)
			}
		}
	}
	for {
		if _, _, ok := b.PollMessage(); !ok {
			return
		}
	}
}

// FuzzDatagram hands in anything: as it is, and with the right seal. Nothing panics, and a session that was told
// nonsense is dead or goes on as it should.
func FuzzDatagram(f *testing.F) {
	f.Add([]byte{}, false)
	f.Add([]byte("noise on the port that is long enough to be a datagram"), false)
	f.Add([]byte{flagElicit, 0, 0, 0, 0}, true)
	f.Add(append([]byte{flagData | flagElicit, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, 0, 0, 0, 7, 0, 2, 'h', 'i'), true)
	f.Add(append([]byte{flagAck, 0, 0, 0, 1}, make([]byte, ackBytes)...), true)
	f.Fuzz(func(t *testing.T, data []byte, seal bool) {
		if len(data) > MTUMax-headerBytes-sealBytes {
			return
		}
		a, b := pair(t, 1452, nil)
		for i := range 5 {
			if err := b.Send(0, uint32(i), make([]byte, 3000)); err != nil {
				t.Fatal(err)
			}
		}
		buf := make([]byte, 1452)
		for range 4 {
			if _, ok := b.PollDatagram(0, buf); !ok {
				t.Fatal("no datagram")
			}
		}
		switch {
		case seal && len(data) >= fixedBytes:
			data = sealed(a, data)
		case len(data) >= headerBytes:
			data = bytes.Clone(data)
			binary.BigEndian.PutUint32(data, b.cfg.RecvIndex)
		}
		sealedOne := seal && len(data) >= headerBytes+fixedBytes+sealBytes
		if err := b.HandleDatagram(0, data); err == nil && !sealedOne {
			t.Fatal("taken without a seal")
		}
		for range 100 {
			if _, m, ok := b.PollMessage(); !ok || len(m) > MessageMax {
				break
			}
		}
		for now := ib.Time(0); !b.Dead(now); now = b.NextDeadline() {
			b.HandleTimer(now)
			for range 100 {
				if _, ok := b.PollDatagram(now, buf); !ok {
					break
				}
			}
			if now > 100*ib.Second {
				t.Fatal("neither dead nor answered")
			}
		}
	})
}
