package live

import (
	"bytes"
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"softib/verbs"
)

// end is one side of a connection in tests.
type end struct {
	ctx  *verbs.Context
	pd   *verbs.PD
	mr   *verbs.MR
	cq   *verbs.CQ
	qp   *verbs.QP
	info verbs.Info
}

func newEnd(t testing.TB, h verbs.Device, size int) *end {
	t.Helper()
	e := &end{ctx: verbs.Open(h)}
	must := func(err error) {
		if err != nil {
			t.Helper()
			t.Fatal(err)
		}
	}
	var err error
	e.pd, err = e.ctx.AllocPD()
	must(err)
	e.mr, err = e.pd.RegMR(make([]byte, size), verbs.AccessLocalWrite|verbs.AccessRemoteWrite|verbs.AccessRemoteRead|
		verbs.AccessRemoteAtomic)
	must(err)
	e.cq, err = e.ctx.CreateCQ(1024)
	must(err)
	e.qp, err = e.pd.CreateQP(verbs.QPInit{Type: verbs.RC, SendCQ: e.cq, RecvCQ: e.cq, Caps: verbs.DefaultCaps})
	must(err)
	e.info, err = e.qp.Info(1, 77)
	must(err)
	return e
}

// connect connects with a timeout that a busy machine keeps: what is sent again counts again.
func connect(t testing.TB, a, b *end) {
	t.Helper()
	o := verbs.DefaultConnect
	o.Timeout = 20 // 4 s, eight times
	if err := a.qp.Connect(a.info, b.info, o); err != nil {
		t.Fatal(err)
	}
	if err := b.qp.Connect(b.info, a.info, o); err != nil {
		t.Fatal(err)
	}
}

func TestSendAcrossFabric(t *testing.T) {
	f := bringUp(t, "fat-tree:radix=4,levels=2")
	hosts := f.Hosts()
	a, b := newEnd(t, hosts[0].Device(), 1<<20), newEnd(t, hosts[len(hosts)-1].Device(), 1<<20)
	connect(t, a, b)
	exchange(t, a, b)
}

// exchange sends messages of many sizes from one end to the other.
func exchange(t *testing.T, a, b *end) {
	t.Helper()
	for _, size := range []int{0, 1, 8, 56, 57, 512, 513, 4096, 4097, 100000, 1 << 20} {
		for i := range a.mr.Bytes()[:size] {
			a.mr.Bytes()[i] = byte(i*7 + size)
		}
		clear(b.mr.Bytes())
		if err := b.qp.PostRecv(&verbs.RecvWR{WRID: 5, SGList: b.mr.SGEs(0, 1<<20)}); err != nil {
			t.Fatal(err)
		}
		if err := a.qp.PostSend(&verbs.SendWR{WRID: 6, Opcode: verbs.WRSend, Flags: verbs.SendSignaled,
			SGList: a.mr.SGEs(0, size)}); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
		var wc [1]verbs.WC
		if n, err := b.cq.Wait(ctx, wc[:]); n != 1 || err != nil || wc[0].Status != verbs.WCSuccess ||
			int(wc[0].ByteLen) != size {
			t.Fatalf("size %d: receive: %d %v %+v", size, n, err, wc)
		}
		if n, err := a.cq.Wait(ctx, wc[:]); n != 1 || err != nil || wc[0].Status != verbs.WCSuccess {
			t.Fatalf("size %d: send: %d %v %+v", size, n, err, wc)
		}
		cancel()
		if !bytes.Equal(a.mr.Bytes()[:size], b.mr.Bytes()[:size]) {
			t.Fatalf("size %d: data differ", size)
		}
	}
}

func BenchmarkSendLat8(b *testing.B) {
	f := bringUp(b, "star:2")
	x, y := newEnd(b, f.Hosts()[0].Device(), 4096), newEnd(b, f.Hosts()[1].Device(), 4096)
	connect(b, x, y)
	b.ReportAllocs()
	took := make([]int32, b.N)
	pong := func(e *end, first bool, n int, done chan struct{}) {
		defer close(done)
		last := time.Now()
		var wc [4]verbs.WC
		rwr := &verbs.RecvWR{SGList: e.mr.SGEs(0, 64)}
		swr := &verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendSignaled | verbs.SendInline,
			InlineData: make([]byte, 8)}
		for i := 0; i < 8; i++ {
			if err := e.qp.PostRecv(rwr); err != nil {
				b.Error(err)
				return
			}
		}
		outstanding := 0
		for i := 0; i < n; i++ {
			if !first || i > 0 {
				for got := false; !got; {
					k := e.cq.Poll(wc[:])
					for _, w := range wc[:k] {
						if w.Status != 0 {
							b.Errorf("status %v", w.Status)
							return
						}
						if w.Opcode&0x80 != 0 {
							got = true
							e.qp.PostRecv(rwr)
						} else {
							outstanding--
						}
					}
				}
			}
			for outstanding > 64 {
				for _, w := range wc[:e.cq.Poll(wc[:])] {
					if w.Opcode&0x80 == 0 {
						outstanding--
					}
				}
			}
			if first {
				now := time.Now()
				took[i] = int32(now.Sub(last))
				last = now
			}
			if err := e.qp.PostSend(swr); err != nil {
				b.Error(err)
				return
			}
			outstanding++
		}
	}
	b.ResetTimer()
	d1, d2 := make(chan struct{}), make(chan struct{})
	go pong(y, false, b.N, d2)
	go pong(x, true, b.N, d1)
	<-d1
	<-d2
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2])/2, "ns-typical")
}

func BenchmarkWrite(b *testing.B) {
	for _, size := range []int{8, 4096, 65536} {
		b.Run(time.Duration(size).String(), func(b *testing.B) {
			f := bringUp(b, "star:2")
			x, y := newEnd(b, f.Hosts()[0].Device(), 1<<20), newEnd(b, f.Hosts()[1].Device(), 1<<20)
			connect(b, x, y)
			b.SetBytes(int64(size))
			b.ReportAllocs()
			var wc [32]verbs.WC
			wr := &verbs.SendWR{Opcode: verbs.WRRDMAWrite, SGList: x.mr.SGEs(0, size), RemoteAddr: y.mr.Addr(),
				RKey: y.mr.RKey()}
			out := 0
			b.ResetTimer()
			for i := 0; i < b.N; i++ {
				wr.Flags = 0
				if i%16 == 15 || i == b.N-1 {
					wr.Flags = verbs.SendSignaled
				}
				for out > 96 {
					out -= 16 * x.cq.Poll(wc[:])
				}
				if err := x.qp.PostSend(wr); err != nil {
					b.Fatal(err)
				}
				out++
			}
			for out > 16 {
				out -= 16 * x.cq.Poll(wc[:])
			}
		})
	}
}

// BenchmarkCacheLine is the floor: one word that two cores hand to each other.
func BenchmarkCacheLine(b *testing.B) {
	var x struct {
		_ [128]byte
		v atomic.Uint32
		_ [128]byte
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := uint32(0); i < uint32(b.N); i++ {
			for x.v.Load() != 2*i+1 {
			}
			x.v.Store(2*i + 2)
		}
	}()
	took := make([]int32, b.N)
	last := time.Now()
	for i := uint32(0); i < uint32(b.N); i++ {
		x.v.Store(2*i + 1)
		for x.v.Load() != 2*i+2 {
		}
		now := time.Now()
		took[i] = int32(now.Sub(last))
		last = now
	}
	<-done
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2])/2, "ns-typical")
}

// BenchmarkOneCore is the ping-pong played by one goroutine: what the
// instructions cost without any crossing between cores.
func BenchmarkOneCore(b *testing.B) {
	f := bringUp(b, "star:2")
	x, y := newEnd(b, f.Hosts()[0].Device(), 4096), newEnd(b, f.Hosts()[1].Device(), 4096)
	connect(b, x, y)
	b.ReportAllocs()
	for _, e := range []*end{x, y} {
		for i := 0; i < 20; i++ {
			e.cq.Poll(make([]verbs.WC, 1)) // take the attendant's place
		}
	}
	var wc [4]verbs.WC
	swr := &verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendSignaled | verbs.SendInline,
		InlineData: make([]byte, 8)}
	for i := 0; b.Loop(); i++ {
		from, to := x, y
		if i&1 == 1 {
			from, to = y, x
		}
		if err := to.qp.PostRecv(&verbs.RecvWR{SGList: []verbs.SGE{to.mr.SGE(0, 64)}}); err != nil {
			b.Fatal(err)
		}
		if err := from.qp.PostSend(swr); err != nil {
			b.Fatal(err)
		}
		for got := false; !got; {
			for _, w := range wc[:to.cq.Poll(wc[:])] {
				got = got || w.Opcode&0x80 != 0
			}
		}
	}
}
