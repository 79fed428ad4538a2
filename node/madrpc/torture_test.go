package madrpc

import (
	"bytes"
	"container/heap"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"softib/proto/ib"
	"softib/proto/mad"
)

// flight is a datagram on its way.
type flight struct {
	at  ib.Time
	seq int
	to  int
	env mad.Envelope
	b   [mad.Size]byte
}

type flights []*flight

func (f flights) Len() int { return len(f) }
func (f flights) Less(i, j int) bool {
	return f[i].at < f[j].at || f[i].at == f[j].at && f[i].seq < f[j].seq
}
func (f flights) Swap(i, j int) { f[i], f[j] = f[j], f[i] }
func (f *flights) Push(x any)   { *f = append(*f, x.(*flight)) }
func (f *flights) Pop() any {
	old := *f
	x := old[len(old)-1]
	*f = old[:len(old)-1]
	return x
}

// wire joins two ports and does to datagrams what wires do.
type wire struct {
	t              testing.TB
	rng            *rand.Rand
	now            ib.Time
	ports          [2]*Port
	lid            [2]ib.LID
	air            flights
	seq            int
	drop, dup, bad float64
	delayMax       ib.Time
	tap            func(from int, b *[mad.Size]byte) // sees what is sent
}

func newWire(t testing.TB, seed uint64, cfg Config) *wire {
	return &wire{t: t, rng: rand.New(rand.NewPCG(seed, 77)), ports: [2]*Port{New(cfg), New(cfg)}, lid: [2]ib.LID{1, 2},
		delayMax: 10 * ib.Microsecond}
}

// launch puts what the ports have onto the wire.
func (w *wire) launch() {
	for i, p := range w.ports {
		for {
			env, b, ok := p.PollSend()
			if !ok {
				break
			}
			if w.tap != nil {
				w.tap(i, b)
			}
			if env.LID != w.lid[1-i] {
				w.t.Fatalf("port %d sends to LID %d", i, env.LID)
			}
			copies := 1
			if w.rng.Float64() < w.drop {
				copies = 0
			}
			for w.rng.Float64() < w.dup {
				copies++
			}
			for range copies {
				f := &flight{at: w.now + 1 + ib.Time(w.rng.Int64N(int64(w.delayMax))), seq: w.seq, to: 1 - i,
					env: mad.Envelope{LID: w.lid[i], QPN: 1, QKey: ib.QKeyGSI}, b: *b}
				if w.rng.Float64() < w.bad {
					f.b[w.rng.IntN(64)] ^= 1 << w.rng.IntN(8)
				}
				w.seq++
				heap.Push(&w.air, f)
			}
		}
	}
}

// step goes to the next event, and says whether there was one.
func (w *wire) step() bool {
	w.launch()
	next := ib.Earlier(w.ports[0].NextDeadline(), w.ports[1].NextDeadline())
	if len(w.air) > 0 {
		next = ib.Earlier(next, w.air[0].at)
	}
	if next == ib.Never {
		return false
	}
	w.now = max(w.now, next)
	for len(w.air) > 0 && w.air[0].at <= w.now {
		f := heap.Pop(&w.air).(*flight)
		w.ports[f.to].Handle(w.now, f.env, &f.b)
	}
	for _, p := range w.ports {
		if p.NextDeadline() <= w.now {
			p.HandleTimer(w.now)
		}
	}
	return true
}

// drained fails unless a port that has nothing to do any more also holds nothing any more.
func drained(t testing.TB, p *Port) {
	t.Helper()
	p.PollRecv() // gives back the last delivery
	if used := len(p.slab.chunks)*chunkOps - len(p.slab.free); used != 0 || p.table.n != 0 || p.incoming != 0 ||
		p.calls != 0 || p.casts != 0 || p.lingers != 0 {
		t.Errorf("left over: %d ops, %d in the table, %d bytes coming in, %d calls, %d casts, %d lingering", used,
			p.table.n, p.incoming, p.calls, p.casts, p.lingers)
	}
}

// answerCookie marks answers, whose failures are not the test's matter.
const answerCookie = 1 << 40

const vendorClass mad.Class = 0x32

var vendorOUI = [3]byte{0, 0x14, 5}

// message is a long one whose payload follows from its seed.
func message(class mad.Class, method mad.Method, tid uint64, n int, seed uint64) []byte {
	hdr := HeaderLen(class)
	b := make([]byte, hdr+n)
	version := uint8(2)
	if class == vendorClass {
		version = 1
		copy(b[offOUI:], vendorOUI[:])
	}
	h := mad.Header{BaseVersion: mad.BaseVersion, MgmtClass: class, ClassVersion: version, Method: method,
		TransactionID: tid}
	h.Append(b[:0])
	b[mad.RMPPOff+2] = mad.RMPPActive
	rng := rand.NewPCG(seed, 5)
	p := b[hdr:]
	for len(p) >= 8 {
		binary.BigEndian.PutUint64(p, rng.Uint64())
		p = p[8:]
	}
	for i := range p {
		p[i] = byte(rng.Uint64())
	}
	return b
}

// answerSize and answerSeed follow from a request, so that a repeated request has the same answer.
func answerSize(tid uint64, sizeMax int) int {
	r := rand.New(rand.NewPCG(tid, 9))
	if r.IntN(4) == 0 {
		return r.IntN(600)
	}
	return r.IntN(sizeMax + 1)
}

// TestTorture sends requests of every kind in both directions over a wire that loses, repeats and reorders. Whatever is
// sent comes to exactly one end, and nothing is left over.
func TestTorture(t *testing.T) {
	seeds := uint64(60)
	if testing.Short() {
		seeds = 10
	}
	var total [numKind]int
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { torture(t, seed, &total) })
	}
	t.Logf("responses %d, unsolicited %d, timed out %d, aborted %d", total[Response], total[Unsolicited],
		total[TimedOut], total[Aborted])
	if total[Response] == 0 || total[TimedOut] == 0 || total[Unsolicited] == 0 {
		t.Error("not every end was seen")
	}
}

type expected struct {
	kind    string
	from    int
	tid     uint64
	seed    uint64
	n       int
	ends    int
	arrived int
	failed  bool
}

func torture(t *testing.T, seed uint64, total *[numKind]int) {
	rng := rand.New(rand.NewPCG(seed, 1))
	w := newWire(t, seed, Config{Window: 1 + rng.IntN(100), AckTimeout: 50 * ms, TimeWait: 2 * ib.Second})
	w.drop, w.dup = rng.Float64()*0.3, rng.Float64()*0.3
	if rng.IntN(3) == 0 {
		w.delayMax = 40 * ms
	}
	if rng.IntN(4) == 0 {
		w.drop = 0
	}
	sizeMax := []int{500, 5000, 60000}[rng.IntN(3)]
	var sa, vendor, perf [2]AgentID
	for i, p := range w.ports {
		sa[i] = register(t, p, Registration{Class: mad.ClassSA, ClassVersion: 2, RMPP: true,
			Methods: MethodSet(mad.MethodGetTable, mad.MethodGetMulti)})
		vendor[i] = register(t, p, Registration{Class: vendorClass, ClassVersion: 1, RMPP: true, OUI: vendorOUI,
			Methods: MethodSet(mad.MethodSend)})
		perf[i] = register(t, p, Registration{Class: mad.ClassPerf, ClassVersion: 1, Methods: MethodSet(mad.MethodGet)})
	}
	var all []*expected
	casts := make(map[string]*expected) // by payload
	start := func() {
		i := rng.IntN(2)
		e := &expected{from: i, seed: rng.Uint64(), n: rng.IntN(sizeMax)}
		cookie := uint64(len(all))
		m := Message{Env: mad.Envelope{LID: w.lid[1-i], QPN: 1, QKey: ib.QKeyGSI}, Timeout: 200 * ms,
			Retries: rng.IntN(8), Cookie: cookie}
		var id AgentID
		switch rng.IntN(4) {
		case 0:
			e.kind, id, m.Data = "plain", perf[i], dgram(mad.ClassPerf, mad.MethodGet, cookie, byte(cookie))
		case 1:
			e.kind, id, m.Data = "table", sa[i], dgram(mad.ClassSA, mad.MethodGetTable, cookie, byte(cookie))
		case 2:
			e.kind, id, m.Data = "multi", sa[i], message(mad.ClassSA, mad.MethodGetMulti, cookie, e.n, e.seed)
		case 3:
			e.kind, id, m.Timeout = "cast", vendor[i], 0
			m.Data = message(vendorClass, mad.MethodSend, cookie, e.n+8, e.seed)
			casts[string(m.Data[40:])] = e
		}
		e.tid = uint64(id)<<32 | cookie
		all = append(all, e)
		send(t, w.ports[i], w.now, id, m)
	}
	receive := func() {
		for i, p := range w.ports {
			for {
				d, ok := p.PollRecv()
				if !ok {
					break
				}
				total[d.Kind]++
				tid := tidOf(d.Data)
				switch {
				case d.Kind == Unsolicited && d.Agent == vendor[i]:
					e := casts[string(d.Data[40:])]
					if e == nil || e.from == i {
						t.Fatalf("a message of %d bytes that nobody sent", len(d.Data))
					}
					e.arrived++
				case d.Kind == Unsolicited:
					m := Message{Env: d.Env.Reply(), Retries: 5, Cookie: answerCookie}
					switch method := mad.Method(d.Data[3]); method {
					case mad.MethodGet:
						m.Data = bytes.Clone(d.Data)
						m.Data[3] = byte(mad.MethodGetResp)
					default:
						e := all[uint32(tid)]
						if method == mad.MethodGetMulti {
							want := message(mad.ClassSA, method, tid, e.n, e.seed)
							if !bytes.Equal(d.Data[56:], want[56:]) {
								t.Fatalf("request of %d bytes arrived with %d or other ones", len(want), len(d.Data))
							}
							e.arrived++
						}
						m.Data = message(mad.ClassSA, method|methodResponse, tid, answerSize(tid, sizeMax), tid)
					}
					_ = p.Send(w.now, d.Agent, m) // a repeated request whose answer is still going out
				case d.Cookie == answerCookie:
				default:
					e := all[d.Cookie]
					e.ends++
					if e.from != i || tid != e.tid {
						t.Fatalf("%v of transaction %#x, want %#x", d.Kind, tid, e.tid)
					}
					if d.Kind != Response {
						e.failed = true
						continue
					}
					if e.kind == "plain" {
						if len(d.Data) != mad.Size || d.Data[100] != byte(d.Cookie) {
							t.Fatal("another response")
						}
						continue
					}
					want := message(mad.ClassSA, mad.Method(d.Data[3]), tid, answerSize(tid, sizeMax), tid)
					if !bytes.Equal(d.Data[56:], want[56:]) {
						t.Fatalf("response of %d bytes arrived with %d or other ones", len(want), len(d.Data))
					}
				}
			}
		}
	}
	for range 60 + rng.IntN(100) {
		for range rng.IntN(4) {
			start()
		}
		for range rng.IntN(200) {
			if !w.step() {
				break
			}
			receive()
		}
	}
	for w.step() {
		receive()
	}
	for i, e := range all {
		want := 1
		if e.kind == "cast" && !e.failed {
			want = 0
		}
		if e.ends != want {
			t.Errorf("%s %d ended %d times", e.kind, i, e.ends)
		}
		switch {
		case e.kind == "cast" && (e.arrived > 1 || !e.failed && e.arrived != 1):
			t.Errorf("cast %d arrived %d times; failed: %v", i, e.arrived, e.failed)
		case e.kind == "multi" && (e.arrived > 1 || !e.failed && e.arrived != 1):
			t.Errorf("request %d arrived %d times; failed: %v", i, e.arrived, e.failed)
		case e.failed && w.drop == 0 && w.delayMax < ms:
			t.Errorf("%s %d failed on a wire that loses nothing", e.kind, i)
		}
	}
	for _, p := range w.ports {
		drained(t, p)
	}
}

// TestTortureGarbage flips bits in what is on the wire. Messages may then be wrong, as RMPP has no checksum; but every
// request ends once, and nothing is left over.
func TestTortureGarbage(t *testing.T) {
	for seed := range uint64(40) {
		w := newWire(t, seed, Config{AckTimeout: 50 * ms, TimeWait: 2 * ib.Second, ReassemblyMax: 1 << 20})
		w.bad, w.drop, w.dup = 0.05, 0.02, 0.1
		var sa [2]AgentID
		for i, p := range w.ports {
			sa[i] = register(t, p, Registration{Class: mad.ClassSA, ClassVersion: 2, RMPP: true,
				Methods: MethodSet(mad.MethodGetTable, mad.MethodGetMulti)})
		}
		ends := make([]int, 100)
		receive := func() {
			for i, p := range w.ports {
				for {
					d, ok := p.PollRecv()
					if !ok {
						break
					}
					if d.Kind != Unsolicited {
						if d.Cookie != answerCookie {
							ends[d.Cookie]++
						}
						continue
					}
					if len(d.Data) < 56 {
						t.Fatalf("message of %d bytes", len(d.Data))
					}
					d.Data[3] |= methodResponse
					d.Data[mad.RMPPOff+2] = mad.RMPPActive
					_ = p.Send(w.now, sa[i], Message{Env: d.Env.Reply(), Data: d.Data, Retries: 3,
						Cookie: answerCookie})
				}
			}
		}
		for i := range ends {
			side := i % 2
			send(t, w.ports[side], w.now, sa[side], Message{
				Env:     mad.Envelope{LID: w.lid[1-side], QPN: 1},
				Data:    message(mad.ClassSA, mad.MethodGetMulti, uint64(i), 10*i*i%9000, uint64(i)),
				Timeout: 100 * ms, Retries: 4, Cookie: uint64(i),
			})
			for range 10 {
				w.step()
				receive()
			}
		}
		for w.step() {
			receive()
		}
		for i, n := range ends {
			if n != 1 {
				t.Errorf("seed %d: request %d ended %d times", seed, i, n)
			}
		}
		for _, p := range w.ports {
			drained(t, p)
		}
	}
}

// TestBigTables moves tables of megabytes both ways at once over a wire that loses one datagram in a hundred.
func TestBigTables(t *testing.T) {
	w := newWire(t, 3, Config{AckTimeout: 20 * ms})
	w.drop, w.dup = 0.01, 0.01
	const size = 4 << 20
	var got [2]int
	var sa [2]AgentID
	for i, p := range w.ports {
		sa[i] = register(t, p, Registration{Class: mad.ClassSA, ClassVersion: 2, RMPP: true,
			Methods: MethodSet(mad.MethodGetTable)})
	}
	for i, p := range w.ports {
		send(t, p, 0, sa[i], Message{Env: mad.Envelope{LID: w.lid[1-i], QPN: 1},
			Data: dgram(mad.ClassSA, mad.MethodGetTable, 1, 0), Timeout: ib.Second, Retries: 5})
	}
	for w.step() && got[0]+got[1] < 2 {
		for i, p := range w.ports {
			d, ok := p.PollRecv()
			switch {
			case !ok:
			case d.Kind == Unsolicited:
				// The answer takes longer than the request's timeout: segments that arrive count as life.
				_ = p.Send(w.now, sa[i], Message{Env: d.Env.Reply(),
					Data: message(mad.ClassSA, mad.MethodGetTableResp, tidOf(d.Data), size, 8), Retries: 20})
			case d.Kind == Response:
				if !bytes.Equal(d.Data[56:], message(mad.ClassSA, mad.MethodGetTableResp, 0, size, 8)[56:]) {
					t.Error("another table")
				}
				got[i]++
			default:
				t.Fatal(d.Kind)
			}
		}
	}
	if got != [2]int{1, 1} {
		t.Fatalf("tables arrived: %v", got)
	}
	if w.now < ib.Second {
		t.Errorf("it took %v only, which proves nothing about timeouts", w.now)
	}
}
