package hca

import (
	"testing"

	"softib/proto/ib"
	"softib/proto/wire"
)

// direct joins two adapters without a wire: what one emits, the other handles
// at once, the payload still in the emitter's buffer.
type direct struct {
	w   *world
	pkt wire.Packet
	buf []byte
	now ib.Time
}

// shuttle moves packets until neither side has any.
func (d *direct) shuttle() {
	a, b := d.w.hosts[0].HCA, d.w.hosts[1].HCA
	for moved := true; moved; {
		moved = false
		for _, h := range [2][2]*HCA{{a, b}, {b, a}} {
			for {
				s, has := h[0].NextSend()
				if !has {
					break
				}
				if h[0].Emit(d.now, s, &d.pkt, d.buf) {
					h[1].HandlePacket(d.now, 1, &d.pkt)
					moved = true
				}
			}
		}
	}
	d.now += 100 * ib.Nanosecond
	for _, h := range d.w.hosts {
		if h.NextDeadline() <= d.now {
			h.HandleTimeout(d.now)
		}
	}
}

func benchmark(b *testing.B, op WROpcode, n, batch int, flags SendFlags) {
	bench(b, op, n, batch, flags, Config{}, make([]byte, 4096))
}

func bench(b *testing.B, op WROpcode, n, batch int, flags SendFlags, cfg Config, buf []byte) {
	w := newWorld(b, 2, 1)
	for _, h := range w.hosts {
		h.cfg.MaxBundle, h.cfg.ByRefMin = cfg.MaxBundle, cfg.ByRefMin
	}
	x, y := w.pair(conf{mtu: ib.MTU4096, sendWR: 64, recvWR: 64, timeout: 14, memLen: max(memLen, n)})
	d := &direct{w: w, buf: buf}
	wr := SendWR{Opcode: op, SGList: []SGE{x.sge(0, n)}, RemoteAddr: memVA, RKey: y.mr.RKey()}
	if flags&SendInline != 0 {
		wr.InlineData, wr.SGList = x.mem[:n], nil
	}
	rr := RecvWR{SGList: []SGE{y.sge(0, max(n, 8))}}
	var wcs [64]WC
	b.ReportAllocs()
	b.SetBytes(int64(n))
	b.ResetTimer()
	for i := 0; i < b.N; i += batch {
		for j := range batch {
			wr.Flags = flags
			if j == batch-1 {
				wr.Flags |= SendSignaled
			}
			if op == WRSend {
				if err := y.h.PostRecv(y.qp, &rr); err != nil {
					b.Fatal(err)
				}
			}
			if err := x.h.PostSend(x.qp, &wr); err != nil {
				b.Fatal(err)
			}
		}
		d.shuttle()
		if got := x.scq.Poll(wcs[:]); got != 1 || wcs[0].Status != WCSuccess {
			b.Fatalf("%d completions, %v", got, wcs[0].Status)
		}
		if op == WRSend {
			if got := y.rcq.Poll(wcs[:]); got != batch {
				b.Fatalf("%d receives, want %d", got, batch)
			}
		}
	}
}

// One message at a time, its acknowledgement awaited.
func BenchmarkSend8(b *testing.B)       { benchmark(b, WRSend, 8, 1, 0) }
func BenchmarkSend8Inline(b *testing.B) { benchmark(b, WRSend, 8, 1, SendInline) }
func BenchmarkWrite8(b *testing.B)      { benchmark(b, WRRDMAWrite, 8, 1, 0) }
func BenchmarkWrite4K(b *testing.B)     { benchmark(b, WRRDMAWrite, 4096, 1, 0) }
func BenchmarkWrite64K(b *testing.B)    { benchmark(b, WRRDMAWrite, 65536, 1, 0) }
func BenchmarkRead8(b *testing.B)       { benchmark(b, WRRDMARead, 8, 1, 0) }
func BenchmarkRead4K(b *testing.B)      { benchmark(b, WRRDMARead, 4096, 1, 0) }
func BenchmarkFetchAdd(b *testing.B)    { benchmark(b, WRAtomicFetchAdd, 8, 1, 0) }

// Batches of 32, one completion each.
func BenchmarkSend8Batch(b *testing.B)  { benchmark(b, WRSend, 8, 32, 0) }
func BenchmarkWrite8Batch(b *testing.B) { benchmark(b, WRRDMAWrite, 8, 32, 0) }

// Bundles: by reference, and copied to buffers of 16 KiB.
var byRef = Config{MaxBundle: 64, ByRefMin: 8 << 10}

func BenchmarkBundleWrite8(b *testing.B) {
	bench(b, WRRDMAWrite, 8, 1, 0, byRef, make([]byte, 16<<10))
}

func BenchmarkBundleWrite64K(b *testing.B) {
	bench(b, WRRDMAWrite, 64<<10, 1, 0, byRef, make([]byte, 16<<10))
}

func BenchmarkBundleWrite1M(b *testing.B) {
	bench(b, WRRDMAWrite, 1<<20, 1, 0, byRef, make([]byte, 16<<10))
}

func BenchmarkBundleSend64K(b *testing.B) {
	bench(b, WRSend, 64<<10, 1, 0, Config{MaxBundle: 64}, make([]byte, 16<<10))
}

func BenchmarkBundleRead64K(b *testing.B) {
	bench(b, WRRDMARead, 64<<10, 1, 0, byRef, make([]byte, 16<<10))
}

// TestNoAllocation: the data path allocates nothing once it runs.
func TestNoAllocation(t *testing.T) {
	for _, bundle := range []int{0, 16} {
		noAllocation(t, bundle)
	}
}

func noAllocation(t *testing.T, bundle int) {
	w := newWorld(t, 2, 1)
	w.bundles(bundle)
	x, y := w.pair(conf{mtu: ib.MTU4096})
	d := &direct{w: w, buf: make([]byte, 4096)}
	var wcs [8]WC
	for _, op := range []WROpcode{WRSend, WRSendImm, WRRDMAWrite, WRRDMAWriteImm, WRRDMARead, WRAtomicCmpSwap,
		WRAtomicFetchAdd} {
		n := 5000
		if wrTable[op].kind == kindAtomic {
			n = 8
		}
		wr := SendWR{Opcode: op, Flags: SendSignaled, SGList: []SGE{x.sge(0, n)}, RemoteAddr: memVA, RKey: y.mr.RKey()}
		rr := RecvWR{SGList: []SGE{y.sge(0, n)}}
		allocs := testing.AllocsPerRun(300, func() {
			if op == WRSend || op == WRSendImm || op == WRRDMAWriteImm {
				if err := y.h.PostRecv(y.qp, &rr); err != nil {
					t.Fatal(err)
				}
			}
			if err := x.h.PostSend(x.qp, &wr); err != nil {
				t.Fatal(err)
			}
			d.shuttle()
			y.rcq.Poll(wcs[:])
			if x.scq.Poll(wcs[:]) != 1 || wcs[0].Status != WCSuccess {
				t.Fatalf("%v: %v", op, wcs[0].Status)
			}
		})
		if allocs != 0 {
			t.Errorf("%v: %v allocations a message", op, allocs)
		}
	}
}
