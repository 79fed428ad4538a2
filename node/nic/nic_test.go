package nic

import (
	"math"
	"testing"

	"softib/proto/ib"
	"softib/proto/wire"
)

// base is an adapter whose figures are easy to reckon with.
func base() Config {
	return Config{PCIe: PCIe{Gen: 3, Lanes: 16, RoundTrip: 600 * ib.Nanosecond}, Packet: 10 * ib.Nanosecond, Fetches: 4}
}

func packet(op wire.Opcode, q ib.QPN, psn ib.PSN, payload int) *wire.Packet {
	return &wire.Packet{BTH: wire.BTH{Opcode: op, DestQP: q, PSN: psn}, Payload: make([]byte, payload)}
}

// TestSend reckons what a packet takes by hand: a doorbell and the request's round trip if the queue pair was idle, the
// payload's, and nothing of both if it came inline.
func TestSend(t *testing.T) {
	const ns = ib.Nanosecond
	for _, c := range []struct {
		name   string
		inline int
		first  bool
		size   int
		want   ib.Time
	}{
		{"idle", 0, true, 64, 300*ns + 600*ns + 600*ns},
		{"idle, no payload", 0, true, 0, 300*ns + 600*ns},
		{"busy", 0, false, 64, 600 * ns},
		{"inline", 64, true, 64, 300 * ns},
		{"too long for inline", 64, true, 65, 1500 * ns},
	} {
		cfg := base()
		cfg.Inline = c.inline
		a := New(cfg)
		// PCIe itself takes a few nanoseconds of it.
		if got := a.Send(0, 5, packet(wire.OpWriteOnly, 7, 1, c.size), c.first); got < c.want || got > c.want+10*ns {
			t.Errorf("%s: leaves after %v, want %v", c.name, got, c.want)
		}
		if a.NextSend() != 10*ns || a.NextReceive() != 0 {
			t.Errorf("%s: the next at %v", c.name, a.NextSend())
		}
	}
}

// TestPCIe sends faster than PCIe carries: 4 KiB with the headers of 16 packets of 256 bytes, at 16 lanes of 985 MB/s.
func TestPCIe(t *testing.T) {
	a := New(base())
	var last ib.Time
	const n = 1000
	for i := range n {
		last = a.Send(0, 5, packet(wire.OpWriteMiddle, 7, ib.PSN(i), 4096), false)
	}
	want := n * (4096 + 16*24) / (16 * 985e6)
	if got := float64(last) / float64(ib.Second); math.Abs(got/want-1) > 0.01 {
		t.Errorf("%d packets of 4 KiB take %v s, want %v", n, got, want)
	}
	if s := a.Stats(); s.FromHost != n*(4096+16*24) || s.ToHost != 0 || s.Sent != n {
		t.Errorf("%+v", s)
	}
}

// TestFetches lets every packet miss: so many at a time wait for one round trip, or for two where one needs two things.
func TestFetches(t *testing.T) {
	for _, c := range []struct {
		name   string
		op     wire.Opcode
		misses ib.Time
	}{{"a context", wire.OpAck, 1}, {"a context and a request", wire.OpReadResponseOnly, 2}} {
		cfg := base()
		cfg.Contexts, cfg.Requests = 8, 8
		a := New(cfg)
		now, n := ib.Time(0), 1000
		for i := range n {
			a.Receive(now, packet(c.op, ib.QPN(2+i), 9, 0))
			now = a.NextReceive()
		}
		// Four wait at a time.
		want := ib.Time(n/4-1) * c.misses * 600 * ib.Nanosecond
		if now < want || now > want+600*ib.Nanosecond {
			t.Errorf("%s: %d packets are taken in %v, want %v", c.name, n, now, want)
		}
		if s := a.Stats(); s.ContextMisses != uint64(n) || s.ContextHits != 0 ||
			s.RequestMisses != uint64(n)*uint64(c.misses-1) {
			t.Errorf("%s: %+v", c.name, s)
		}
	}
}

// TestOrder has packets of one queue pair behind each other, whatever each needs.
func TestOrder(t *testing.T) {
	cfg := base()
	cfg.Contexts, cfg.Requests = 8, 8
	a := New(cfg)
	first := a.Receive(0, packet(wire.OpReadResponseOnly, 5, 1, 64)) // neither its context nor its request is there
	second := a.Receive(a.NextReceive(), packet(wire.OpAck, 5, 2, 0))
	if second < first {
		t.Errorf("the second packet is ready at %v, before the first at %v", second, first)
	}
	if other := a.Receive(a.NextReceive(), packet(wire.OpReadRequest, 5+8, 2, 0)); other > first+600*ib.Nanosecond {
		t.Errorf("another's waits for it until %v", other)
	}
	early := a.Send(0, 5, packet(wire.OpWriteOnly, 7, 1, 64), true)
	if late := a.Send(a.NextSend(), 5, packet(wire.OpReadRequest, 7, 2, 0), false); late < early {
		t.Errorf("a READ leaves at %v, before the WRITE at %v", late, early)
	}
}

// TestCaches counts what a cache of so many entries has, for what is used one after the other.
func TestCaches(t *testing.T) {
	for _, c := range []struct {
		entries, keys, ways int
		least, most         float64 // of hits
	}{{1024, 512, 8, 0.9, 1}, {1024, 4096, 8, 0, 0.05}, {0, 1 << 16, 8, 1, 1}, {700, 64, 1, 0.85, 1},
		{1, 1, 8, 0.99, 1}} {
		k := newCache(c.entries, c.ways)
		hits, looks := 0, 0
		for round := range 10 {
			for key := range c.keys {
				if k.take(uint64(key)) && round > 0 {
					hits++
				}
				if round > 0 {
					looks++
				}
			}
		}
		if got := float64(hits) / float64(looks); got < c.least || got > c.most {
			t.Errorf("%d entries, %d keys: %.3f are there, want %v to %v", c.entries, c.keys, got, c.least, c.most)
		}
	}
}

// TestTranslations has WRITEs all over a memory that is larger than what the cache has pages for.
func TestTranslations(t *testing.T) {
	cfg := base()
	cfg.Translations = 64
	for _, c := range []struct {
		page   uint64
		misses uint64
	}{{4096, 4000}, {2 << 20, 8}} {
		cfg.Page = c.page
		a := New(cfg)
		for i := range 4000 {
			p := packet(wire.OpWriteOnly, 5, ib.PSN(i), 64)
			p.RETH = wire.RETH{VA: uint64(i) * 4096, RKey: 1}
			a.Receive(a.NextReceive(), p)
		}
		if s := a.Stats(); s.TranslationMisses != c.misses || s.TranslationHits != 4000-c.misses {
			t.Errorf("pages of %d: %+v", c.page, s)
		}
	}
}

// TestDC shares contexts, and pays for turning to another peer.
func TestDC(t *testing.T) {
	cfg := base()
	cfg.Contexts, cfg.Shared = 64, 8
	a := New(cfg)
	now := ib.Time(0)
	for i := range 4000 {
		q := ib.QPN(2 + i%1000)
		a.Send(now, q, packet(wire.OpWriteOnly, q, ib.PSN(i), 64), false)
		now = a.NextSend()
	}
	if s := a.Stats(); s.ContextMisses > 8 || s.Connects != 4000 || now != 4000*20*ib.Nanosecond {
		t.Errorf("%v: %+v", now, s)
	}
}

// TestNeeds has what the literature gives for processes that all talk to each other.
func TestNeeds(t *testing.T) {
	for _, c := range []struct {
		t    Transport
		want Needs
	}{
		{RC, Needs{64 * 64 * 999, 64 * 64 * 999}}, {RCSRQ, Needs{64 * 64 * 999, 64}}, {XRC, Needs{2 * 64 * 999, 64}},
		{DC, Needs{64 * 9, 64}},
	} {
		if got := c.t.Needs(1000, 64, 8); got != c.want {
			t.Errorf("%v: %+v, want %+v", c.t, got, c.want)
		}
	}
}

func TestModels(t *testing.T) {
	for _, m := range Models {
		if got, ok := Find(m.Name); !ok || got.Config != m.Config || !m.Config.On() || m.Config.PCIe.MBps() < 10_000 {
			t.Errorf("%+v", m)
		}
	}
	if _, ok := Find("cx1"); ok {
		t.Error("cx1 is known")
	}
}

func BenchmarkAdapter(b *testing.B) {
	m, _ := Find("cx6")
	a := New(m.Config)
	request, answer := packet(wire.OpReadRequest, 5, 1, 0), packet(wire.OpReadResponseOnly, 5, 1, 64)
	b.ReportAllocs()
	for i := range b.N {
		request.BTH.DestQP, answer.BTH.DestQP = ib.QPN(i&4095), ib.QPN(i&4095)
		a.Send(a.NextSend(), request.BTH.DestQP, request, false)
		a.Receive(a.NextReceive(), answer)
	}
}
