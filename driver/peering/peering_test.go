package peering

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"softib/internal/pki"
	"softib/node/tunnel"
)

// testPatience is how long a test waits for something that has to happen.
const testPatience = time.Minute

// ca is one that signs certificates for a test.
type ca struct {
	t testing.TB
	*pki.Pair
}

func newCA(t testing.TB) ca {
	t.Helper()
	p, err := pki.NewCA(time.Now(), 24*time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	return ca{t, p}
}

// tls is what a machine has: a certificate of a name, and this CA.
func (c ca) tls(name string) *tls.Config {
	c.t.Helper()
	p, err := c.Issue(name, time.Now(), time.Hour)
	if err != nil {
		c.t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(c.Cert)
	return &tls.Config{Certificates: []tls.Certificate{p.TLS()}, RootCAs: pool}
}

// log is a handler that keeps what it is told.
type log struct {
	up      chan *Peer
	down    chan error
	trouble chan error
	room    chan *Peer
	got     chan Message // copies; nil if nobody wants them
	each    func(p *Peer, batch []Message)
	ups     atomic.Int32
	downs   atomic.Int32
}

func newLog() *log {
	return &log{up: make(chan *Peer, 1000), down: make(chan error, 1000), trouble: make(chan error, 1000),
		room: make(chan *Peer, 1000), got: make(chan Message, 100000)}
}

func (l *log) Up(p *Peer)                { l.ups.Add(1); l.up <- p }
func (l *log) Down(_ *Peer, why error)   { l.downs.Add(1); l.down <- why }
func (l *log) Room(p *Peer)              { l.room <- p }
func (l *log) Trouble(_ string, e error) { l.trouble <- e }
func (l *log) Messages(p *Peer, batch []Message) {
	if l.each != nil {
		l.each(p, batch)
		return
	}
	for _, m := range batch {
		l.got <- Message{m.Stream, bytes.Clone(m.Data)}
	}
}

// next is what comes out of a channel.
func next[T any](t testing.TB, what string, ch <-chan T) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(testPatience):
		t.Fatalf("waited for %s", what)
		panic("not reached")
	}
}

// machine is one that ends with the test.
func machine(t testing.TB, name string, c *tls.Config, change func(*Config)) (*Machine, *log) {
	t.Helper()
	l := newLog()
	cfg := Config{Name: name, TLS: c, Listen: "127.0.0.1:0", Handler: l}
	if change != nil {
		change(&cfg)
	}
	m, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	return m, l
}

// crash ends a machine as a kernel ends a process: without a word.
func (m *Machine) crash() {
	m.stop()
	m.udp.close()
	m.tcp.Close()
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, l := range m.links {
		if l.peer != nil {
			l.peer.control.c.NetConn().Close()
		}
	}
}

func connect(t testing.TB, from, to *Machine) {
	t.Helper()
	if err := from.Connect(to.cfg.Name, to.Addr().String()); err != nil {
		t.Fatal(err)
	}
}

func send(t testing.TB, p *Peer, stream uint32, text string) {
	t.Helper()
	if err := p.Send(stream, []byte(text)); err != nil {
		t.Fatal(err)
	}
	p.Flush()
}

// TestPasses: whether datagrams of other sockets pass between two machines is found out by trying, once.
func TestPasses(t *testing.T) {
	c := newCA(t)
	a, la := machine(t, "a.example", c.tls("a.example"), nil)
	b, lb := machine(t, "b.example", c.tls("b.example"), nil)
	if a.Passes(t.Context(), "b.example") {
		t.Error("they pass to a machine that was not met")
	}
	connect(t, a, b)
	pa := next(t, "up", la.up)
	next(t, "up", lb.up)
	at := pa.addr
	pa.addr = netip.AddrPortFrom(netip.MustParseAddr("127.0.0.2"), at.Port()) // where nobody is
	if a.Passes(t.Context(), "b.example") {
		t.Error("they pass to where nobody is")
	}
	pa.addr = at
	if a.Passes(t.Context(), "b.example") {
		t.Error("it was tried again at once")
	}
	pa.passage.tried = time.Time{}
	if !a.Passes(t.Context(), "b.example") || !b.Passes(t.Context(), "a.example") {
		t.Error("they do not pass")
	}
	for _, in := range []string{"", "{}", `{"Nonce":"AAAA"}`, `[]`} {
		if _, err := b.echo(t.Context(), "a.example", json.RawMessage(in)); !errors.Is(err, ErrRefused) {
			t.Errorf("%s: %v", in, err)
		}
	}
}

// Two machines meet, whoever dials; messages and questions pass both ways, and an end that closes is heard of at once.
func TestMeet(t *testing.T) {
	for _, dialer := range []int{0, 1} {
		c := newCA(t)
		a, la := machine(t, "a.example", c.tls("a.example"), nil)
		b, lb := machine(t, "b.example", c.tls("b.example"), nil)
		connect(t, []*Machine{a, b}[dialer], []*Machine{b, a}[dialer])
		pa, pb := next(t, "up", la.up), next(t, "up", lb.up)
		if pa.Name() != "b.example" || pb.Name() != "a.example" {
			t.Error(pa.Name(), pb.Name())
		}
		send(t, pa, 7, "from a")
		send(t, pb, 8, "from b")
		if m := next(t, "message", lb.got); m.Stream != 7 || string(m.Data) != "from a" {
			t.Error(m)
		}
		if m := next(t, "message", la.got); m.Stream != 8 || string(m.Data) != "from b" {
			t.Error(m)
		}
		b.Answer("twice", func(_ context.Context, peer string, in json.RawMessage) (any, error) {
			var n int
			if err := json.Unmarshal(in, &n); err != nil || n < 0 {
				return nil, fmt.Errorf("not for %d, %s", n, peer)
			}
			return 2 * n, nil
		})
		var n int
		if err := a.Call(t.Context(), "b.example", "twice", 21, &n); err != nil || n != 42 {
			t.Error(n, err)
		}
		var remote *Remote
		if err := a.Call(t.Context(), "b.example", "twice", -1, &n); !errors.As(err, &remote) ||
			remote.Text != "not for -1, a.example" {
			t.Error(err)
		}
		if err := a.Call(t.Context(), "b.example", "thrice", 1, &n); !errors.As(err, &remote) {
			t.Error(err)
		}
		if err := a.Call(t.Context(), "c.example", "twice", 1, &n); !errors.Is(err, ErrUnknown) {
			t.Error(err)
		}
		if err := a.Call(t.Context(), "b.example", "twice", make([]byte, frameMax), &n); !errors.Is(err, ErrTooLong) {
			t.Error(err)
		}
		if st := a.Status(); len(st) != 1 || !st[0].Up || st[0].Tunnel.Messages != 1 || st[0].Since.IsZero() {
			t.Errorf("%+v", st)
		}
		b.Close()
		if why := next(t, "down", la.down); !errors.Is(why, ErrClosed) {
			t.Error(why)
		}
		if err := pa.Send(1, nil); !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
	}
}

// Two that dial each other at once end with one connection.
func TestBothDial(t *testing.T) {
	c := newCA(t)
	ta, tb := c.tls("a"), c.tls("b")
	for range 20 {
		a, la := machine(t, "a", ta, nil)
		b, lb := machine(t, "b", tb, nil)
		var both sync.WaitGroup
		both.Go(func() { connect(t, a, b) })
		both.Go(func() { connect(t, b, a) })
		both.Wait()
		// Whatever was up first may be replaced once; what is up at last carries messages.
		end := time.Now().Add(testPatience)
		for {
			pa, pb := a.Peer("b"), b.Peer("a")
			if pa != nil && pb != nil && pa.Send(1, []byte("x")) == nil {
				pa.Flush()
				select {
				case <-lb.got:
				case <-time.After(5 * time.Second):
					t.Fatal("the message does not come")
				}
				break
			}
			if time.Now().After(end) {
				t.Fatal("they do not meet")
			}
			time.Sleep(time.Millisecond)
		}
		if n := la.ups.Load() - la.downs.Load(); n != 1 {
			t.Errorf("%d connections", n)
		}
		if la.downs.Load() > 1 || lb.downs.Load() > 1 {
			t.Errorf("%d and %d went down", la.downs.Load(), lb.downs.Load())
		}
		a.Close()
		b.Close()
	}
}

// A peer that ends without a word is connected again when it is back, as a new one.
func TestRestart(t *testing.T) {
	c := newCA(t)
	for _, restarts := range []string{"a", "b"} {
		stays := map[string]string{"a": "b", "b": "a"}[restarts]
		m, l := machine(t, stays, c.tls(stays), nil)
		other, lo := machine(t, restarts, c.tls(restarts), nil)
		at := other.Addr().String()
		connect(t, m, other)
		next(t, "up", l.up)
		next(t, "up", lo.up)
		other.crash()
		if why := next(t, "down", l.down); !errors.Is(why, ErrEnded) {
			t.Error(why)
		}
		again, lo := machine(t, restarts, c.tls(restarts), func(c *Config) { c.Listen = at })
		p := next(t, "up again", l.up)
		next(t, "up again", lo.up)
		send(t, p, 1, "again")
		next(t, "message", lo.got)
		again.Close()
		m.Close()
	}
}

// Who has no certificate, or not the right one, is turned away, and both are told what to do.
func TestCertificates(t *testing.T) {
	c, other := newCA(t), newCA(t)
	expired := func(name string, from time.Duration) *tls.Config {
		conf := c.tls(name)
		p, err := c.Issue(name, time.Now().Add(from), time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		conf.Certificates = []tls.Certificate{p.TLS()}
		return conf
	}
	hourOff := func(name string, by time.Duration) *tls.Config {
		conf := c.tls(name)
		conf.Time = func() time.Time { return time.Now().Add(by) }
		return conf
	}
	foreign := other.tls("b")
	foreign.RootCAs = c.tls("b").RootCAs
	for _, tc := range []struct {
		what string
		b    *tls.Config
		as   string // the name that a connects to
		want string // what a is told
	}{
		{"another CA", foreign, "b", "of another CA"},
		{"expired", expired("b", -3*time.Hour), "b", "clocks"},
		{"not yet good", expired("b", 2*time.Hour), "b", "clocks"},
		{"a clock an hour behind", hourOff("b", -time.Hour), "b", "clocks"},
		{"a right certificate of another name", c.tls("b"), "c", "of another name"},
	} {
		t.Run(tc.what, func(t *testing.T) {
			a, la := machine(t, "a", c.tls("a"), nil)
			b, lb := machine(t, "b", tc.b, nil)
			if err := a.Connect(tc.as, b.Addr().String()); err != nil {
				t.Fatal(err)
			}
			err := next(t, "trouble", la.trouble)
			if !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), "next: ") {
				t.Error("a, who dials:", err)
			}
			t.Log("a:", err)
			if tc.as == "b" {
				connect(t, b, a)
				err := next(t, "trouble", lb.trouble)
				t.Log("b:", err)
				if !strings.Contains(err.Error(), "next: ") {
					t.Error("b, who dials:", err)
				}
			}
			if la.ups.Load()+lb.ups.Load() != 0 {
				t.Error("they have met")
			}
		})
	}
	t.Run("no certificate", func(t *testing.T) {
		a, la := machine(t, "a", c.tls("a"), nil)
		conn, err := tls.Dial("tcp", a.Addr().String(), &tls.Config{RootCAs: c.tls("b").RootCAs, ServerName: "a",
			NextProtos: []string{protocol}})
		if err == nil {
			_, err = conn.Read(make([]byte, 1))
			conn.Close()
		}
		if err == nil {
			t.Error("it was let in")
		}
		next(t, "trouble", la.trouble)
	})
	t.Run("a name that is not the certificate's", func(t *testing.T) {
		a, la := machine(t, "a", c.tls("a"), nil)
		conf := c.tls("b")
		conf.ServerName, conf.NextProtos = "a", []string{protocol}
		conn, err := tls.Dial("tcp", a.Addr().String(), conf)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		ctl := newControl(conn, nil)
		h := hello{Version: version, Name: "c", Index: 1, Port: 1, MTU: 1452}
		if err := ctl.write(frame{Kind: kindHello, Hello: &h}); err != nil {
			t.Fatal(err)
		}
		if err := next(t, "trouble", la.trouble); !strings.Contains(err.Error(), `calls itself "c"`) {
			t.Error(err)
		}
	})
	t.Run("one who is not allowed", func(t *testing.T) {
		a, _ := machine(t, "a", c.tls("a"), func(c *Config) {
			c.Allow = func(peer string) error { return fmt.Errorf("%s is not of this fabric; next: ask", peer) }
		})
		b, lb := machine(t, "b", c.tls("b"), nil)
		connect(t, b, a)
		if err := next(t, "trouble", lb.trouble); !errors.Is(err, ErrRefused) {
			t.Error(err)
		}
	})
	t.Run("a machine with another's certificate", func(t *testing.T) {
		if _, err := New(Config{Name: "a", TLS: c.tls("b"), Handler: newLog(), Listen: "127.0.0.1:0"}); !errors.Is(err,
			ErrConfig) {
			t.Error(err)
		}
	})
}

// steady sends messages from one to another and back until a check has run.
func steady(t *testing.T, p *Peer, l *log, during func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { during(); close(done) }()
	for n := 0; ; n++ {
		select {
		case <-done:
			if n > 0 {
				return
			}
		default:
		}
		send(t, p, 1, "steady")
		next(t, "message", l.got)
	}
}

// Noise on both ports, and datagrams of others under a session's index, harm nobody.
func TestNoise(t *testing.T) {
	c := newCA(t)
	a, la := machine(t, "a", c.tls("a"), nil)
	b, lb := machine(t, "b", c.tls("b"), nil)
	connect(t, a, b)
	pa := next(t, "up", la.up)
	pb := next(t, "up", lb.up)
	steady(t, pa, lb, func() {
		r := rand.New(rand.NewPCG(1, 1))
		u, err := net.Dial("udp", b.Addr().String())
		if err != nil {
			t.Error(err)
			return
		}
		defer u.Close()
		for range 3000 {
			x := make([]byte, r.IntN(1500))
			for i := range x {
				x[i] = byte(r.Uint32())
			}
			if len(x) >= 16 && r.IntN(2) == 0 { // of the right session, and soon to come
				binary.BigEndian.PutUint32(x, pb.index)
				clear(x[4:14])
			}
			_, _ = u.Write(x) // the socket's buffer may be full
		}
		for range 20 {
			x, err := net.Dial("tcp", b.Addr().String())
			if err != nil {
				t.Error(err)
				return
			}
			noise := make([]byte, 2000)
			for i := range noise {
				noise[i] = byte(r.Uint32())
			}
			_, _ = x.Write(noise)
			x.Close()
		}
	})
	st := pb.Stats()
	if _, strays := b.Turned(); strays == 0 || st.Forged == 0 {
		t.Errorf("%d strays, %+v", strays, st)
	}
	if lb.downs.Load() > 0 || la.downs.Load() > 0 {
		t.Error("the connection broke")
	}
}

// Thousands of connections that prove nothing cost little and keep nobody out for long.
func TestFlood(t *testing.T) {
	count := 10000
	if testing.Short() {
		count = 1000
	}
	c := newCA(t)
	a, la := machine(t, "a", c.tls("a"), nil)
	b, lb := machine(t, "b", c.tls("b"), nil)
	connect(t, a, b)
	pa := next(t, "up", la.up)
	next(t, "up", lb.up)
	var most atomic.Int32
	steady(t, pa, lb, func() {
		held := make(chan net.Conn, 200) // so many are open at a time
		for range count {
			x, err := net.Dial("tcp", b.Addr().String())
			if err != nil {
				t.Error(err)
				break
			}
			select {
			case held <- x:
			default:
				(<-held).Close()
				held <- x
			}
			b.mu.Lock()
			most.Store(max(most.Load(), int32(b.nguests)))
			b.mu.Unlock()
		}
		close(held)
		for x := range held {
			x.Close()
		}
	})
	if turned, _ := b.Turned(); turned == 0 || most.Load() > guestsOfEach {
		t.Errorf("%d turned away, %d at a time", turned, most.Load())
	}
	d, ld := machine(t, "d", c.tls("d"), nil)
	connect(t, d, b)
	next(t, "up after the flood", ld.up)
	if lb.downs.Load() > 0 {
		t.Error("the connection broke")
	}
}

// A partition that stops datagrams, TCP or both is told as what it is.
func TestPartitions(t *testing.T) {
	quick := func(c *Config) { c.DeadAfter = time.Second }
	c := newCA(t)
	t.Run("datagrams", func(t *testing.T) {
		a, la := machine(t, "a", c.tls("a"), quick)
		b, lb := machine(t, "b", c.tls("b"), quick)
		connect(t, a, b)
		next(t, "up", la.up)
		next(t, "up", lb.up)
		b.udp.close()
		why := next(t, "down", la.down)
		if !errors.Is(why, ErrNoDatagrams) || !strings.Contains(why.Error(), "next: ") {
			t.Error(why)
		}
		// It is tried again, and not told again.
		for end := time.Now().Add(testPatience); ; time.Sleep(time.Millisecond) {
			if st := a.Status(); len(st) == 1 && errors.Is(st[0].Last, ErrNoDatagrams) && len(la.trouble) == 0 {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("%+v, %d troubles", a.Status(), len(la.trouble))
			}
		}
	})
	for _, what := range []string{"TCP", "both"} {
		t.Run(what, func(t *testing.T) {
			a, la := machine(t, "a", c.tls("a"), quick)
			b, lb := machine(t, "b", c.tls("b"), quick)
			proxy := newProxy(t, b.Addr().String())
			if err := a.Connect("b", proxy.l.Addr().String()); err != nil {
				t.Fatal(err)
			}
			next(t, "up", la.up)
			next(t, "up", lb.up)
			proxy.stall.Store(true)
			want := ErrNoControl
			if what == "both" {
				b.udp.close()
				want = ErrSilent
			}
			if why := next(t, "down", la.down); !errors.Is(why, want) {
				t.Error(why)
			}
		})
	}
}

// proxy hands on bytes of TCP, until it stalls.
type proxy struct {
	l     net.Listener
	stall atomic.Bool
}

func newProxy(t *testing.T, to string) *proxy {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{l: l}
	end := make(chan struct{})
	var running sync.WaitGroup
	t.Cleanup(func() { l.Close(); close(end); running.Wait() })
	hand := func(to, from net.Conn) {
		buf := make([]byte, 1<<16)
		for {
			n, err := from.Read(buf)
			if err != nil {
				if !p.stall.Load() {
					to.Close()
				}
				return
			}
			if !p.stall.Load() {
				_, _ = to.Write(buf[:n])
			}
		}
	}
	running.Go(func() {
		for {
			x, err := l.Accept()
			if err != nil {
				return
			}
			y, err := net.Dial("tcp", to)
			if err != nil {
				x.Close()
				continue
			}
			running.Go(func() { hand(x, y) })
			running.Go(func() { hand(y, x) })
			running.Go(func() { <-end; x.Close(); y.Close() })
		}
	})
	return p
}

// Many send at once; what each sends comes in its order, exactly once. Who sends too much waits until there is room.
func TestLoad(t *testing.T) {
	const senders = 8
	each := 5000
	if testing.Short() {
		each = 500
	}
	c := newCA(t)
	a, la := machine(t, "a", c.tls("a"), nil)
	var seen [senders]int
	total, n := make(chan struct{}), 0
	b, lb := machine(t, "b", c.tls("b"), nil)
	lb.each = func(p *Peer, batch []Message) {
		for _, m := range batch {
			k := int(binary.BigEndian.Uint32(m.Data))
			if k != seen[m.Stream] || len(m.Data) != 4+k%4000 {
				t.Errorf("sender %d: message %d of %d bytes, not %d", m.Stream, k, len(m.Data), seen[m.Stream])
			}
			seen[m.Stream]++
			if n++; n == senders*each {
				close(total)
			}
		}
	}
	connect(t, a, b)
	p := next(t, "up", la.up)
	next(t, "up", lb.up)
	var all sync.WaitGroup
	var mu sync.Mutex
	room := sync.NewCond(&mu)
	stop := make(chan struct{})
	go func() {
		for {
			select {
			case <-la.room:
				mu.Lock()
				room.Broadcast()
				mu.Unlock()
			case <-stop:
				return
			}
		}
	}()
	for s := range senders {
		all.Go(func() {
			msg := make([]byte, 4+4000)
			for k := range each {
				binary.BigEndian.PutUint32(msg, uint32(k))
				for {
					mu.Lock()
					err := p.Send(uint32(s), msg[:4+k%4000])
					if errors.Is(err, tunnel.ErrFull) {
						p.Flush()
						room.Wait()
						mu.Unlock()
						continue
					}
					mu.Unlock()
					if err != nil {
						t.Error(err)
						return
					}
					break
				}
				if k%16 == 0 {
					p.Flush()
				}
			}
			p.Flush()
		})
	}
	all.Wait()
	next(t, "all messages", total)
	close(stop)
	t.Logf("%+v", p.Stats())
}

// FuzzControl: whatever comes over TLS is read without harm, and not beyond its bounds.
func FuzzControl(f *testing.F) {
	f.Add([]byte{0, 0, 0, 2, '{', '}'})
	f.Add([]byte{0, 0, 0, 30, '{', '"', 'k', 'i', 'n', 'd', '"', ':', '"', 'h', 'e', 'l', 'l', 'o', '"', '}'})
	f.Add([]byte{255, 255, 255, 255, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		c := newControl(nil, bufio.NewReader(bytes.NewReader(b)))
		if f, err := c.read(helloMax); err == nil && (len(b) < 6 || len(f.Body) > helloMax) {
			t.Error("read from nothing")
		}
		c = newControl(nil, bufio.NewReader(bytes.NewReader(b)))
		_, _ = c.readHello()
		if _, err := io.ReadAll(c.r); err != nil {
			t.Error(err)
		}
	})
}
