package jobs

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"softib/job/play"
	"softib/proto/ib"
)

// timed is a message that somebody sends at a time.
type timed struct {
	at  ib.Time
	msg play.Message
}

// irnLoad is the default load of the IRN paper: messages come by chance (Poisson) so that links of hosts are used to a
// part, between pairs of hosts drawn at random; half of them have 32 bytes to 1 KB, 15 % 200 KB to 3 MB, and what is
// between 1 KB and 200 KB, whose distribution the paper leaves open, is drawn evenly by its logarithm, as all are here.
func irnLoad(hosts int, part float64, until ib.Time, seed uint64) (list []timed) {
	r := rand.New(rand.NewPCG(seed, 0x12A))
	classes := []struct{ part, least, most float64 }{{0.50, 32, 1e3}, {0.35, 1e3, 200e3}, {0.15, 200e3, 3e6}}
	mean := 0.0
	for _, c := range classes {
		mean += c.part * (c.most - c.least) / math.Log(c.most/c.least)
	}
	bytesPerPs := part * float64(hosts) * 40e9 / 8 / 1e12 * 1024 / 1110
	for t := 0.0; ; {
		t += r.ExpFloat64() * mean / bytesPerPs
		if ib.Time(t) >= until {
			return list
		}
		k, u := 0, r.Float64()
		for ; u > classes[k].part; k++ {
			u -= classes[k].part
		}
		c := classes[k]
		m := play.Message{ID: uint32(len(list)), From: uint32(r.IntN(hosts)), To: uint32(r.IntN(hosts - 1)),
			Size: uint64(c.least * math.Pow(c.most/c.least, r.Float64()))}
		if m.To >= m.From {
			m.To++
		}
		list = append(list, timed{ib.Time(t), m})
	}
}

// fct are the three figures of the IRN paper.
type fct struct{ slowdown, mean, p99 float64 }

// playTimed sends messages at their times and waits for all of them.
func playTimed(t *testing.T, n *Packets, list []timed, ideal func(play.Message) float64) fct {
	took := make([]float64, len(list))
	left, next := len(list), 0
	now := ib.Time(0)
	for left > 0 {
		for ; next < len(list) && list[next].at <= now; next++ {
			if err := n.Send(now, list[next].msg); err != nil {
				t.Fatal(err)
			}
		}
		until := ib.Never
		if next < len(list) {
			until = list[next].at
		}
		var err error
		if now, err = n.Advance(until); err != nil {
			t.Fatal(err)
		}
		for id, sent, ok := n.Poll(); ok; id, sent, ok = n.Poll() {
			if !sent {
				took[id] = float64(now-list[id].at) / float64(ib.Millisecond)
				left--
			}
		}
	}
	var f fct
	for i, x := range took {
		f.mean += x / float64(len(took))
		f.slowdown += x / ideal(list[i].msg) / float64(len(took))
	}
	slices.Sort(took)
	f.p99 = took[len(took)*99/100]
	return f
}

// TestIRN is the first experiments of Mittal et al., "Revisiting network support for RDMA", SIGCOMM 2018: a fat tree of
// 54 hosts, 40 Gbit/s, 2 us a link, buffers of 240 KB, a load of 70 %, and no congestion control.
// IRN without pauses does better than RoCE with them, and RoCE without them does worst.
func TestIRN(t *testing.T) {
	long(t)
	const hosts = 54
	list := irnLoad(hosts, 0.7, 1200*ib.Microsecond, 1)
	g := graphOf(t, "fat-tree:radix=6,levels=3,speed=FDR10,length=400m")
	if len(g.Hosts()) != hosts {
		t.Fatalf("%d hosts", len(g.Hosts()))
	}
	ideal := func(m play.Message) float64 {
		links := 6.
		if m.From/3 == m.To/3 {
			links = 2
		} else if m.From/9 == m.To/9 {
			links = 4
		}
		bytes := float64(m.Size) + 86*math.Ceil(float64(m.Size)/1024)
		return (links*2.0 + (links-1)*0.1 + bytes*8/40e3) / 1e3
	}
	run := func(kind string, dcqcn bool, list []timed) fct {
		n := packetsOn(t, g, Options{Seed: 1, MTU: ib.MTU1024, Buffer: 240_000,
			Ethernet: Ethernet{Kind: kind, NoDCQCN: !dcqcn}})
		f := playTimed(t, n, list, ideal)
		c := n.PauseTotals()
		t.Logf("%-10s dcqcn %-5v slowdown %6.2f, mean %.3f ms, 99 %% %.3f ms; %d pauses, %d dropped, %d sent again",
			kind, dcqcn, f.slowdown, f.mean, f.p99, c.Sent, c.Dropped, c.Resent)
		return f
	}
	t.Logf("%d messages", len(list))
	roce, irn := run(RoCE, false, list), run(RoCESelects, false, list)
	if irn.slowdown > roce.slowdown || irn.mean > roce.mean || irn.p99 > roce.p99 {
		t.Error("IRN without pauses should do at least as well as RoCE with them")
	}
	// Who goes back to each loss sends so much again that less of the load must do.
	list = list[:300]
	if lossy, roce := run(RoCELossy, false, list), run(RoCE, false, list); lossy.mean < 1.1*roce.mean ||
		lossy.p99 < 1.5*roce.p99 || lossy.slowdown < roce.slowdown {
		t.Error("RoCE without pauses should do worst")
	}
}
