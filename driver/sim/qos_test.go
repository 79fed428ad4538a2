package sim

import (
	"math/rand/v2"
	"slices"
	"testing"

	"softib/node/hca"
	"softib/proto/ib"
	"softib/proto/topo"
	"softib/subnet/policy"
	"softib/subnet/sm"
)

// mix is MPI and storage on one fabric: short messages between hosts all over it, and many disks' clients that write to
// one server in bulk.
type mix struct {
	t     *testing.T
	s     *Sim
	rng   *rand.Rand
	bulk  map[int][]*peer // by host
	short map[int][]*rank
	times []ib.Time
	bytes uint64 // that storage has moved
}

// rank is one end of an MPI connection: it sends a message, waits until it is acknowledged, thinks, and sends the next.
type rank struct {
	*peer
	began ib.Time
}

const (
	mpiBytes     = 256
	storageBytes = 64 << 10
	storageMTU   = ib.MTU4096
	thinkMax     = 4 * ib.Microsecond
	warmup       = 200 * ib.Microsecond
	measured     = 2 * ib.Millisecond
)

// connectSL is connectRC at a service level.
func connectSL(t testing.TB, a, b *peer, sl ib.SL) {
	t.Helper()
	for _, p := range []struct{ me, peer *peer }{{a, b}, {b, a}} {
		check(t, p.me.h.ModifyQP(p.me.qp, hca.QPAttr{State: hca.StateInit, Port: 1, Access: hca.AccessRemoteWrite},
			hca.MaskState|hca.MaskPKeyIndex|hca.MaskPort|hca.MaskAccess))
		check(t, p.me.h.ModifyQP(p.me.qp, hca.QPAttr{State: hca.StateRTR,
			AH: hca.AHAttr{DLID: p.peer.lid, Port: 1, SL: sl}, PathMTU: storageMTU,
			DestQPN: p.peer.qp.Num(), RQPSN: 100, MaxDestRD: 8, MinRNRTimer: 12},
			hca.MaskState|hca.MaskAV|hca.MaskPathMTU|hca.MaskDestQPN|hca.MaskRQPSN|hca.MaskMaxDestRD|
				hca.MaskMinRNRTimer))
		check(t, p.me.h.ModifyQP(p.me.qp, hca.QPAttr{State: hca.StateRTS, SQPSN: 100, Timeout: 20, RetryCnt: 7,
			RNRRetry: 7, MaxRDAtomic: 8},
			hca.MaskState|hca.MaskSQPSN|hca.MaskTimeout|hca.MaskRetryCnt|hca.MaskRNRRetry|hca.MaskMaxRDAtomic))
	}
	a.rkey = b.mr.RKey()
}

// newMix brings a fabric up by a manager, which gets the template while the subnet is up, as softib qos apply does it.
func newMix(t *testing.T, template string, storage bool) *mix {
	t.Helper()
	s := managed(t, "fat-tree:radix=8,levels=2", nil)
	cfg := quick(1)
	cfg.SweepInterval = -1
	check(t, s.StartManager(0, cfg))
	s.Run(20 * ib.Millisecond)
	if !up(s, 0) {
		t.Fatal("the subnet is not up")
	}
	mpi, disks := ib.SL(0), ib.SL(0)
	if template != "" {
		tpl, ok := policy.TemplateByName(template)
		if !ok {
			t.Fatalf("no template %s", template)
		}
		c, _ := tpl.Class("mpi")
		d, _ := tpl.Class("storage")
		mpi, disks = c.SL, d.SL
		ticket, err := s.Manager(0).SetQoS(s.Now(), sm.QoS{Enabled: true, Ports: sm.QoSPortsOf(tpl.PortQoS())})
		check(t, err)
		s.manage(s.hosts[0].manager)
		s.Run(s.Now() + 20*ib.Millisecond)
		if f := s.Manager(0).Force(); f.Ticket != ticket || len(f.Refusals) != 0 {
			t.Fatalf("the template is not in force: %+v", f)
		}
	}
	m := &mix{t: t, s: s, rng: rand.New(rand.NewPCG(1, 7)), bulk: map[int][]*peer{}, short: map[int][]*rank{}}
	n := s.NumHosts()
	// The server is the last host; a host of each leaf writes to it without end, and so does its neighbour.
	server := n - 1
	if storage {
		for h := 0; h < n-4; h += 4 {
			p := newPeer(t, s, h, hca.RC, storageBytes)
			connectSL(t, p, newPeer(t, s, server, hca.RC, storageBytes), disks)
			m.bulk[h] = append(m.bulk[h], p)
		}
	}
	// Ranks: the same hosts, and others, to the server's own leaf and to the server itself, to where the queues are.
	for h := range n - 4 {
		to := n - 4 + h%4
		r := &rank{peer: newPeer(t, s, h, hca.RC, mpiBytes)}
		connectSL(t, r.peer, newPeer(t, s, to, hca.RC, mpiBytes), mpi)
		m.short[h] = append(m.short[h], r)
	}
	return m
}

// send posts a rank's next message.
func (m *mix) send(r *rank) {
	r.began = m.s.Now()
	r.write(m.t)
}

// run lets both loads go on for a while and returns the times of messages, sorted.
func (m *mix) run() []ib.Time {
	s := m.s
	start := s.Now()
	ranks := map[uint64]struct {
		host int
		r    *rank
	}{}
	id := uint64(0)
	for h := range s.NumHosts() {
		for _, p := range m.bulk[h] {
			p.cq.ReqNotify(false)
			for range 8 {
				p.write(m.t)
			}
		}
		for _, r := range m.short[h] {
			id++
			ranks[id] = struct {
				host int
				r    *rank
			}{h, r}
			r.cq.ReqNotify(false)
			s.At(start+ib.Time(m.rng.Int64N(int64(thinkMax))), id)
		}
		s.Wake(h)
	}
	ids := map[*rank]uint64{}
	for i, x := range ranks {
		ids[x.r] = i
	}
	var wc [16]hca.WC
	for end := start + warmup + measured; s.Now() < end; {
		w := s.Next(end)
		switch w.Kind {
		case WakeTimer:
			x := ranks[w.ID]
			m.send(x.r)
			s.Wake(x.host)
		case WakeHost:
			h := s.Host(w.Host).(*hca.HCA)
			for _, ok := h.PollEvent(); ok; _, ok = h.PollEvent() {
			}
			for _, p := range m.bulk[w.Host] {
				p.cq.ReqNotify(false)
				for n := p.cq.Poll(wc[:]); n > 0; n = p.cq.Poll(wc[:]) {
					for range n {
						p.write(m.t)
						if s.Now() > start+warmup {
							m.bytes += storageBytes
						}
					}
				}
			}
			for _, r := range m.short[w.Host] {
				r.cq.ReqNotify(false)
				if n := r.cq.Poll(wc[:]); n > 0 {
					if wc[0].Status != hca.WCSuccess {
						m.t.Fatalf("a message ends with %v", wc[0].Status)
					}
					if s.Now() > start+warmup {
						m.times = append(m.times, s.Now()-r.began)
					}
					s.At(s.Now()+ib.Time(m.rng.Int64N(int64(thinkMax))), ids[r])
				}
			}
			s.Wake(w.Host)
		}
	}
	slices.Sort(m.times)
	return m.times
}

// TestClassicTemplate: with the tables of the template, written by the manager, bulk writes to a server do not move the
// p99 of short messages that go the same ways. A packet that has begun to leave a port is not called back, so a link
// may cost a message the time of one packet of storage; two of them are the bound for all links of its way. Without the
// template the same load moves the p99 fifty times as far.
func TestClassicTemplate(t *testing.T) {
	if testing.Short() {
		t.Skip("a load of many packets, in one goroutine")
	}
	at := func(times []ib.Time, q float64) ib.Time { return times[int(q*float64(len(times)-1))] }
	quiet := newMix(t, "classic", false).run()
	loaded := newMix(t, "classic", true)
	busy := loaded.run()
	without := newMix(t, "", true)
	flat := without.run()
	for _, x := range []struct {
		name  string
		times []ib.Time
		bytes uint64
	}{{"MPI alone", quiet, 0}, {"with storage, template classic", busy, loaded.bytes},
		{"with storage, no template", flat, without.bytes}} {
		t.Logf("%-32s %6d messages: p50 %v, p99 %v, most %v; storage %.0f Gb/s", x.name, len(x.times), at(x.times, 0.5),
			at(x.times, 0.99), x.times[len(x.times)-1],
			8*float64(x.bytes)/(float64(measured)/float64(ib.Second))/1e9)
		if len(x.times) < 1000 {
			t.Fatalf("%s: %d messages: not enough for a p99", x.name, len(x.times))
		}
	}
	g := loaded.s.graph
	host := loaded.s.HostNode(0)
	rate := g.LinkRate(topo.PortRef{Node: host.Index, Port: 1})
	packet := ib.Time(float64(storageMTU.Bytes()+60) * 8 / float64(rate.Mbps()) * 1e6) // ps: bits over Mb/s
	bound := at(quiet, 0.99) + 2*packet
	if got := at(busy, 0.99); got > bound {
		t.Errorf("with the template storage moves the p99 of MPI from %v to %v: want at most %v", at(quiet, 0.99), got,
			bound)
	}
	if got := at(flat, 0.99); got < at(quiet, 0.99)+100*packet {
		t.Errorf("without the template the p99 is %v: is there any storage traffic?", got)
	}
	if loaded.bytes < without.bytes*9/10 {
		t.Errorf("the template costs storage: %d bytes, %d without", loaded.bytes, without.bytes)
	}
}
