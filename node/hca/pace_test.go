package hca

import (
	"testing"

	"softib/proto/ib"
	"softib/proto/mad"
)

// slow gives all ports a link, and a queue pair's destination a rate.
func slow(t *testing.T, w *world, rate mad.Rate, ends ...*end) {
	t.Helper()
	for _, h := range w.hosts {
		p := *h.Port(1)
		p.Rate = ib.LinkRate{Width: ib.Width4x, Speed: ib.NDR}
		h.SetPort(1, p)
	}
	for _, e := range ends {
		a := e.qp.attr.AH
		a.StaticRate = uint8(rate)
		ok(t, e.h.ModifyQP(e.qp, QPAttr{State: StateSQD}, MaskState))
		ok(t, e.h.ModifyQP(e.qp, QPAttr{State: StateSQD, AH: a}, MaskState|MaskAV))
		ok(t, e.h.ModifyQP(e.qp, QPAttr{State: StateRTS}, MaskState))
	}
}

// TestStaticRate: WRITEs, the answers to READs and datagrams take as long as their rate says, with bundles and without,
// and no longer; who has no rate, or one that the link has too, is not held back.
func TestStaticRate(t *testing.T) {
	const size, n = 16 << 10, 20
	ten, _ := mad.RateFromGbps(10)
	at := ten.ByteTime(size * n) // payload alone
	for _, c := range []struct {
		name   string
		bundle int
		rate   mad.Rate
		read   bool
		want   ib.Time
	}{
		{"write", 1, ten, false, at},
		{"write, bundled", 8, ten, false, at},
		{"read", 1, ten, true, at},
		{"read, bundled", 8, ten, true, at},
		{"the link's", 1, mad.RateOf(ib.LinkRate{Width: ib.Width4x, Speed: ib.NDR}), false, 0},
		{"none", 1, 0, false, 0},
		{"no rate", 1, 63, false, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, 2, 1)
			w.bundles(c.bundle)
			a, b := w.pair(conf{memLen: size, sendWR: n})
			paced := a
			if c.read {
				paced = b
			}
			slow(t, w, c.rate, paced)
			from := w.now
			for i := range n {
				op := WRRDMAWrite
				if c.read {
					op = WRRDMARead
				}
				a.post(SendWR{WRID: uint64(i), Opcode: op, Flags: SendSignaled, SGList: []SGE{a.sge(0, size)},
					RemoteAddr: memVA, RKey: b.mr.RKey()})
			}
			w.run()
			got := poll(a.scq)
			if len(got) != n {
				t.Fatalf("%d of %d complete", len(got), n)
			}
			took := got[n-1].At - from
			if c.want == 0 && took > at/2 {
				t.Errorf("%v, held back", took)
			}
			// Headers take some of the rate, and the last packet does not wait for itself.
			if c.want != 0 && (took < c.want*90/100 || took > c.want*115/100) {
				t.Errorf("%v, want about %v", took, c.want)
			}
			if paced.h.Stats.Retransmits != 0 {
				t.Errorf("%d sent again", paced.h.Stats.Retransmits)
			}
		})
	}
	t.Run("datagrams", func(t *testing.T) {
		w := newWorld(t, 2, 1)
		u, v := w.udEnd(0, conf{sendWR: n}), w.udEnd(1, conf{recvWR: n})
		slow(t, w, 0)
		from := w.now
		ah := u.ah(AHAttr{DLID: lidOf(1, 1), StaticRate: uint8(ten)})
		for i := range n {
			v.recv(uint64(i), v.sge(0, 2048))
			u.datagram(uint64(i), ah, v.qp.num, 0x1234, 1024)
		}
		w.run()
		got := poll(v.rcq)
		if len(got) != n {
			t.Fatalf("%d of %d arrived", len(got), n)
		}
		if took, want := got[n-1].At-from, ten.ByteTime(1024*n); took < want*90/100 || took > want*120/100 {
			t.Errorf("%v, want about %v", took, want)
		}
	})
}

// TestStaticRateLoss: a slow way that loses packets delivers all the same.
func TestStaticRateLoss(t *testing.T) {
	const n = 30
	w := newWorld(t, 2, 1)
	a, b := w.pair(conf{sendWR: n, timeout: 8})
	ten, _ := mad.RateFromGbps(10)
	slow(t, w, ten, a)
	k := 0
	w.fate = func(*flying) fate { k++; return fate{drop: k%7 == 0} }
	for i := range n {
		a.write(uint64(i), b, 512, SendSignaled)
	}
	w.run()
	for _, wc := range poll(a.scq) {
		if wc.Status != WCSuccess {
			t.Fatalf("%+v", wc)
		}
	}
	if a.h.Stats.Retransmits == 0 {
		t.Error("nothing was lost")
	}
}

// TestStaticRateEnds: a queue pair that waits for its rate fails, and starts anew, like any other.
func TestStaticRateEnds(t *testing.T) {
	w := newWorld(t, 2, 1)
	c := conf{sendWR: 8}
	a, b := w.pair(c)
	ten, _ := mad.RateFromGbps(10)
	slow(t, w, ten, a)
	for i := range 4 {
		a.write(uint64(i), b, 512, SendSignaled)
	}
	w.pump()
	if !a.qp.paced {
		t.Fatal("want it waiting")
	}
	ok(t, a.h.ModifyQP(a.qp, QPAttr{State: StateErr}, MaskState))
	if got := poll(a.scq); len(got) != 4 || a.qp.paced {
		t.Fatalf("%d flushed, paced: %v", len(got), a.qp.paced)
	}
	w.run()
	for _, e := range []*end{a, b} {
		ok(t, e.h.ModifyQP(e.qp, QPAttr{State: StateReset}, MaskState))
	}
	w.join(a, b, c, c)
	from := w.now
	a.write(9, b, 512, SendSignaled)
	w.run()
	if got := poll(a.scq); len(got) != 1 || got[0].Status != WCSuccess || got[0].At-from > 10*ib.Microsecond {
		t.Errorf("%+v, posted at %v", got, from)
	}
}

// TestStaticRateFirst: a queue pair that has not sent owes nothing, however little of its time the driver's clock has
// shown, and may make up for as much as any other; what it owes counts from its first packet.
func TestStaticRateFirst(t *testing.T) {
	const n = 10
	ten, _ := mad.RateFromGbps(10)
	for _, at := range []ib.Time{-ib.Second, 0, ib.Nanosecond, ib.Second} {
		for _, catchUp := range []ib.Time{0, ten.ByteTime(1024 * n * 2)} {
			w := newWorld(t, 2, 1)
			u, v := w.udEnd(0, conf{sendWR: n}), w.udEnd(1, conf{recvWR: n})
			slow(t, w, 0)
			w.now, u.h.cfg.CatchUp = at, catchUp
			ah := u.ah(AHAttr{DLID: lidOf(1, 1), StaticRate: uint8(ten)})
			for i := range n {
				v.recv(uint64(i), v.sge(0, 2048))
				u.datagram(uint64(i), ah, v.qp.num, 0x1234, 1024)
			}
			w.pump()
			if u.qp.paced != (catchUp == 0) {
				t.Errorf("at %v, with %v to make up for: waits: %v", at, catchUp, u.qp.paced)
			}
			w.run()
			got := poll(v.rcq)
			if len(got) != n {
				t.Fatalf("%d of %d arrived", len(got), n)
			}
			want := ten.ByteTime(1024 * n)
			if took := got[n-1].At - at - w.delay; catchUp == 0 && (took < want*80/100 || took > want*120/100) {
				t.Errorf("at %v: %v, want about %v", at, took, want)
			}
		}
	}
}

// TestRateLimit: a queue pair sends no faster than its limit, whatever it sends, after the burst that it may send at
// once, and its timers wait for it. Without a limit any more it sends as before.
func TestRateLimit(t *testing.T) {
	const size, n = 16 << 10, 20
	for _, c := range []struct {
		name        string
		bundle      int
		kbps, burst uint32
		read        bool
	}{
		{"10 Gb/s", 1, 10_000_000, 0, false},
		{"10 Gb/s, bundled", 8, 10_000_000, 0, false},
		{"READs", 8, 10_000_000, 0, true},
		{"a burst", 1, 10_000_000, 8 * size, false},
		{"the least", 8, MinRateLimit, 0, false},
		{"the least, bursts", 1, MinRateLimit, 8 * size, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, 2, 1)
			w.bundles(c.bundle)
			a, b := w.pair(conf{memLen: size, sendWR: n, timeout: 14, mtu: ib.MTU4096})
			paced, op := a, WRRDMAWrite
			if c.read {
				paced, op = b, WRRDMARead
			}
			ok(t, paced.h.LimitRate(paced.qp, c.kbps, c.burst))
			send := func() ib.Time {
				t.Helper()
				from := w.now
				for i := range n {
					a.post(SendWR{WRID: uint64(i), Opcode: op, Flags: SendSignaled, SGList: []SGE{a.sge(0, size)},
						RemoteAddr: memVA, RKey: b.mr.RKey()})
				}
				w.run()
				got := poll(a.scq)
				if len(got) != n || got[n-1].Status != WCSuccess {
					t.Fatalf("%d of %d complete: %+v", len(got), n, got)
				}
				return got[n-1].At - from
			}
			took := send()
			want := ib.Time(int64(size*n-int(c.burst)) * 8_000_000_000 / int64(c.kbps)) // payload alone
			// Headers take some, and the last packet does not wait for itself.
			if took < want*90/100 || took > want*120/100 {
				t.Errorf("%v, want about %v", took, want)
			}
			if r := paced.h.Stats.Retransmits; r != 0 {
				t.Errorf("%d sent again", r)
			}
			ok(t, paced.h.LimitRate(paced.qp, 0, 0))
			w.runFor(ib.Second)
			if again := send(); again > want/10 {
				t.Errorf("%v without a limit", again)
			}
			w.close()
		})
	}
	t.Run("refused", func(t *testing.T) {
		w := newWorld(t, 2, 1)
		a, b := w.xrcPair(conf{})
		wantAttr(t, a.h.LimitRate(a.qp, MinRateLimit-1, 0), "modify_qp", "rate_limit", ErrInvalid)
		wantAttr(t, a.h.LimitRate(a.qp, 0, 1), "modify_qp", "max_burst_sz", ErrInvalid)
		wantAttr(t, b.h.LimitRate(b.qp, 1e6, 0), "modify_qp", "qp_type", ErrInvalid)
		ok(t, a.h.LimitRate(a.qp, 1e6, 0))
		if got := a.qp.RateLimit(); got != 1e6 {
			t.Errorf("%d", got)
		}
		ok(t, a.h.ModifyQP(a.qp, QPAttr{State: StateReset}, MaskState))
		if got := a.qp.RateLimit(); got != 0 {
			t.Errorf("%d after a reset", got)
		}
		wantAttr(t, a.h.LimitRate(a.qp, 1e6, 0), "modify_qp", "qp_state", ErrState)
	})
}
