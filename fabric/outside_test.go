package fabric

import (
	"math/rand/v2"
	"slices"
	"testing"

	"softib/node/ibswitch"
	"softib/node/link"
	"softib/proto/ib"
	"softib/proto/wire"
)

// half is a switch with two hosts, LIDs 10*side+1 and 10*side+2, and a third port towards another such.
type half struct {
	e    *Engine
	pool *link.Pool
	node int // of the switch; the hosts are the next two
	got  *[]arrival
	sent map[uint32]int
	side int
}

type arrival struct {
	at   ib.Time
	lid  ib.LID
	slid ib.LID
	psn  ib.PSN
}

var rate = ib.LinkRate{Width: ib.Width4x, Speed: ib.EDR}

const (
	trunk  = 700 * ib.Nanosecond
	toSend = 300
)

func newEngine(pool *link.Pool) *Engine {
	pool.BufSize = 4096
	return New(Config{Pool: pool, Rand: rand.New(rand.NewPCG(1, 2)), SwitchLatency: 100 * ib.Nanosecond,
		TrainTime: ib.Microsecond}, 1)
}

// addHalf adds the nodes of one side. slow is the rate of its second host.
func addHalf(e *Engine, pool *link.Pool, side int, slow ib.LinkRate, got *[]arrival) *half {
	h := &half{e: e, pool: pool, node: len(e.first), got: got, sent: map[uint32]int{}, side: side}
	sw := ibswitch.New(ibswitch.Config{Ports: 3}, pool)
	for _, p := range []ib.PortNum{1, 2} {
		sw.SetRoute(ib.LID(10*side)+ib.LID(p), p)
		sw.SetRoute(ib.LID(10*(3-side))+ib.LID(p), 3)
	}
	e.AddSwitch(sw)
	for i := range 2 {
		ports := link.NewPorts(2, link.Config{})
		e.AddHost([]*link.Port{&ports[0], &ports[1]})
		e.Join(e.Place(h.node, ib.PortNum(i+1)), h.host(i), 5*ib.Nanosecond)
	}
	for at := e.first[h.node]; at < e.Places(); at++ {
		e.ports[at].SetRate(rate)
	}
	e.PortAt(h.host(1)).SetRate(slow)
	e.PortAt(e.Place(h.node, 2)).SetRate(slow)
	return h
}

func (h *half) host(i int) uint32 { return h.e.Place(h.node+1+i, 1) }

func (h *half) up() {
	for i := range 3 {
		h.e.Retime(h.node + i)
	}
	for _, at := range []uint32{h.host(0), h.host(1), h.e.Place(h.node, 3)} {
		h.e.StartTraining(at)
	}
}

// feed keeps two packets of a host in its port, to all other hosts in turn.
func (h *half) feed(at uint32) {
	for p := h.e.PortAt(at); p.State() == ib.PortActive && p.Queued(0) < 2 && h.sent[at] < toSend; h.sent[at]++ {
		n := h.sent[at]
		from := ib.LID(10 * h.side)
		if at == h.host(0) {
			from++
		} else {
			from += 2
		}
		to := []ib.LID{11, 12, 21, 22}[n%4]
		if to == from {
			continue
		}
		f := h.pool.Get()
		*f.Packet = wire.Packet{
			LRH: wire.LRH{LNH: wire.LNHLocal, DLID: to, SLID: from},
			BTH: wire.BTH{Opcode: wire.MakeOpcode(wire.UC, wire.OpSendOnly), PKey: ib.PKeyDefault, DestQP: 7,
				PSN: ib.PSN(n)},
		}
		f.Own(make([]byte, 64+n*37%2000))
		f.Packet.Seal()
		f.Measure()
		f.InPort, f.Arrived = 0, h.e.Now()
		h.e.Send(at, f, 0)
	}
}

// drain does what is left to the driver.
func drain(e *Engine, halves ...*half) {
	for n, ok := e.Poll(); ok; n, ok = e.Poll() {
		switch n.Kind {
		case Trained:
			e.LinkUp(n.Place, e.PortAt(n.Place).Rate())
			e.Schedule(e.Now()+10*ib.Microsecond, Own, n.Place, 0)
		case Own:
			for _, i := range e.ends(n.Place) {
				e.PortAt(i).Command(e.Now(), ib.PortArmed)
				e.PortAt(i).Command(e.Now(), ib.PortActive)
			}
			for _, h := range halves {
				h.feed(h.host(0))
				h.feed(h.host(1))
			}
		case Room:
			for _, h := range halves {
				if n.Place == h.host(0) || n.Place == h.host(1) {
					h.feed(n.Place)
				}
			}
		case Arrived:
			f := e.Frame(n)
			*halves[0].got = append(*halves[0].got, arrival{e.Now(), f.LRH.DLID, f.LRH.SLID, f.Packet.BTH.PSN})
			e.Take(n.Place, f)
			halves[0].pool.Put(f)
		}
	}
}

// Two engines that are joined by a cable which ends outside of both deliver the same packets, at the same times, as one
// engine with that cable inside.
func TestOutside(t *testing.T) {
	slow := ib.LinkRate{Width: ib.Width1x, Speed: ib.EDR}
	var want []arrival
	var pool link.Pool
	one := newEngine(&pool)
	a, b := addHalf(one, &pool, 1, rate, &want), addHalf(one, &pool, 2, slow, &want)
	one.Join(one.Place(a.node, 3), one.Place(b.node, 3), trunk)
	a.up()
	b.up()
	for one.Step() {
		drain(one, a, b)
	}
	if pool.InUse() != 0 || len(want) == 0 {
		t.Fatalf("%d packets delivered, %d left", len(want), pool.InUse())
	}

	var got []arrival
	var pools [2]link.Pool
	e := [2]*Engine{newEngine(&pools[0]), newEngine(&pools[1])}
	h := [2]*half{addHalf(e[0], &pools[0], 1, rate, &got), addHalf(e[1], &pools[1], 2, slow, &got)}
	crossed := 0
	for i := range e {
		e[i].JoinOutside(e[i].Place(0, 3), trunk)
		h[i].up()
	}
	for {
		i := 0
		if e[1].Next() < e[0].Next() {
			i = 1
		}
		if !e[i].Step() {
			break
		}
		drain(e[i], h[i])
		for c, ok := e[i].PollOutside(); ok; c, ok = e[i].PollOutside() {
			if c.Frame != nil {
				f := pools[1-i].Get()
				f.CopyFrom(c.Frame)
				f.Flags = c.Frame.Flags
				pools[i].Put(c.Frame)
				c.Frame = f
				crossed++
			}
			e[1-i].HandleOutside(e[1-i].Place(0, 3), c)
		}
	}
	if n := pools[0].InUse() + pools[1].InUse(); n != 0 || crossed == 0 {
		t.Fatalf("%d packets crossed, %d left", crossed, n)
	}
	order := func(a, b arrival) int {
		return int(a.at-b.at)<<20 + int(a.lid)<<10 - int(b.lid)<<10 + int(a.psn) - int(b.psn)
	}
	slices.SortStableFunc(want, order)
	slices.SortStableFunc(got, order)
	if !slices.Equal(got, want) {
		for i := range min(len(got), len(want)) {
			if got[i] != want[i] {
				t.Fatalf("delivery %d: %+v, want %+v", i, got[i], want[i])
			}
		}
		t.Fatalf("%d deliveries, want %d", len(got), len(want))
	}
	t.Logf("%d deliveries, %d packets crossed", len(got), crossed)
}
