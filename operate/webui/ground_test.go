package webui

import (
	"context"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"softib/driver/endpoint"
	"softib/driver/live"
	"softib/driver/smrun"
	"softib/node/hca"
	"softib/node/inspect"
	"softib/operate/manager"
	"softib/operate/manager/tenant"
	"softib/proto/ib"
	"softib/proto/topo"
	"softib/subnet/sm"
)

// ground is a live fabric with its subnet manager, its management and its page.
type ground struct {
	f    *busyFabric
	m    *manager.Manager
	book *tenant.Book
	ui   *Server
	http *httptest.Server
}

// newGround brings a fabric up. Interval is that of samples.
func newGround(t testing.TB, spec string, interval time.Duration) *ground {
	t.Helper()
	g, err := topo.ParseSpec(spec)
	if err != nil {
		t.Fatal(err)
	}
	return newGroundOf(t, spec, g, interval)
}

// newGroundOf is newGround for a fabric that no generator makes; before is done when it is up and nobody watches yet.
func newGroundOf(t testing.TB, spec string, g *topo.Graph, interval time.Duration,
	before ...func(*live.Fabric)) *ground {
	t.Helper()
	f, err := live.New(g, live.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	journal := manager.NewJournal()
	ctx, cancel := context.WithCancel(context.Background())
	session, err := f.OpenMgmt(topo.PortRef{Node: g.Hosts()[0].Index, Port: 1})
	if err != nil {
		t.Fatal(err)
	}
	run, err := smrun.New(sm.Config{Window: 1024, Groups: f.Groups()}, session, smrun.Options{Log: journal.AddSM})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cancel(); <-run.Done() })
	go run.Run(ctx)
	select {
	case <-run.Up():
	case <-time.After(2 * time.Minute):
		t.Fatal("the subnet does not come up")
	}
	for _, do := range before {
		do(f)
	}
	x := &ground{f: newBusyFabric(f)}
	store, err := tenant.OpenStore("")
	if err != nil {
		t.Fatal(err)
	}
	enforcer := manager.NewEnforcer(f, sm.Config{}, manager.NewGuard(f.Graph(), sm.Config{}, nil), run)
	if x.book, err = tenant.Open(ctx, store, enforcer); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { x.book.Close() })
	x.m, err = manager.New(manager.Options{Name: "test", Topology: spec, Version: "1.2.3", Fabric: x.f, Subnet: run,
		Tenants: x.book, Enforcer: enforcer, Journal: journal, Interval: interval})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { x.m.Close() })
	x.ui = New(x.m, Options{})
	x.http = httptest.NewServer(x.ui)
	t.Cleanup(func() { x.ui.Close(); x.http.Close() })
	return x
}

// busyFabric is a live fabric whose ports count traffic that nobody sends, and on which a program is attached that
// nobody runs: what a page looks like on a working fabric, with all the rest as it is.
type busyFabric struct {
	*live.Fabric
	started time.Time

	mu    sync.Mutex
	load  float64 // share of hosts that send
	sick  map[topo.PortRef]float64
	since time.Time
	wait  float64 // how much longer than there was time ports say that they have waited
}

func newBusyFabric(f *live.Fabric) *busyFabric {
	return &busyFabric{Fabric: f, started: time.Now(), since: time.Now(), sick: map[topo.PortRef]float64{}}
}

// setLoad makes some share of the ports busy from now on.
func (b *busyFabric) setLoad(share float64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.load, b.since = share, time.Now()
}

// setSick makes a port count symbol errors, so many a second.
func (b *busyFabric) setSick(r topo.PortRef, perSecond float64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sick[r] = perSecond
}

// share is how busy a port is, 0 to 1, the same every time: both ends of a cable agree.
func (b *busyFabric) share(r topo.PortRef) float64 {
	p := b.Graph().Port(r)
	if !p.Connected() {
		return 0
	}
	far := topo.PortRef{Node: p.Peer, Port: p.PeerPort}
	if far.Node < r.Node {
		r = far
	}
	x := math.Mod(float64(r.Node)*0.61803+float64(r.Port)*0.3247, 1)
	if x > b.load {
		return 0
	}
	return math.Pow(x/b.load, 3)
}

// CountersOf adds what the traffic would have counted.
func (b *busyFabric) CountersOf(refs []topo.PortRef) []ib.Counters {
	list := b.Fabric.CountersOf(refs)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.load == 0 && len(b.sick) == 0 {
		return list
	}
	s := time.Since(b.since).Seconds()
	for i, r := range refs {
		c := &list[i]
		if u := b.share(r); u > 0 && b.load > 0 {
			words := uint64(u * s * float64(b.Graph().LinkRate(r).Mbps()) * 1e6 / 32)
			c[ib.PortXmitData] += words
			c[ib.PortRcvData] += words * 2 / 3
			c[ib.PortXmitPkts] += words / 512
			c[ib.PortRcvPkts] += words / 768
			c[ib.PortXmitWait] += uint64(b.wait * s * float64(b.Graph().LinkRate(r).Mbps()) * 1e6 / 32)
			if u > 0.5 {
				c[ib.PortXmitWait] += uint64(float64(words) * (u - 0.5))
			}
		}
		if e := b.sick[r]; e > 0 {
			c[ib.SymbolErrorCounter] += uint64(e * s)
			c[ib.PortRcvErrors] += uint64(e * s / 3)
		}
	}
	return list
}

// Programs shows one program, with what can go wrong.
func (b *busyFabric) Programs() []inspect.ProgramStats {
	p := inspect.ProgramStats{Host: "h1", PID: 4242, Name: "ib_write_bw", Library: "softib 1.2.3", Since: b.started}
	p.Stats.TxBytes, p.Stats.RxBytes, p.Stats.Retransmits, p.Stats.RNRNAKs = 48_000_000_000, 1_200_000, 17, 3
	p.Stats.CompletionErrors = 2
	p.Stats.SendErrors[hca.WCRetryExcErr] = 2
	p.QPs[0][3] = 4
	return []inspect.ProgramStats{p}
}

// PathLatencies shows one path.
func (b *busyFabric) PathLatencies() []inspect.PathLatency {
	var h endpoint.Histogram
	for i := range 1000 {
		h.Add(time.Duration(900+i) * time.Nanosecond)
	}
	return []inspect.PathLatency{{From: "h1", To: "h2", Times: &h, Last: time.Now()}}
}

// TestServe serves the page until it is interrupted, for whoever works on it: SERVE=127.0.0.1:8080,star:4 go test -run
// TestServe -timeout 0 ./webui
func TestServe(t *testing.T) {
	addr, spec, ok := strings.Cut(os.Getenv("SERVE"), ",")
	if !ok {
		t.Skip("set SERVE=ADDRESS,TOPOLOGY to look at the page of a busy fabric")
	}
	x := newGround(t, spec, 0)
	x.f.setLoad(0.4)
	if cables := x.m.Cables(); len(cables) > 4 {
		x.f.setSick(cables[3].B, 12)
	}
	t.Logf("http://%s/", addr)
	t.Error(http.ListenAndServe(addr, x.ui))
}
