package live

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"softib/node/madrpc"
	"softib/proto/ib"
	"softib/proto/mad"
	"softib/proto/topo"
	"softib/verbs"
)

// routerLID is a LID of the first router: the one in subnet k.
func routerLID(f *Fabric, k int) ib.LID {
	return f.nodes[f.graph.Routers()[0].Index].lid(ib.PortNum(k + 1))
}

// TestRouted sends between two subnets: messages, reads and writes, both ways.
func TestRouted(t *testing.T) {
	f := bringUp(t, "subnets:2,routers=1,each=star:2")
	if len(f.Hosts()) != 4 {
		t.Fatalf("%d hosts", len(f.Hosts()))
	}
	if _, err := f.Host("rt1"); err == nil || !strings.Contains(err.Error(), "is a router") {
		t.Errorf("Host of a router: %v", err)
	}
	const size = 100_000
	a, b := newEnd(t, f.Hosts()[0].Device(), size), newEnd(t, f.Hosts()[3].Device(), size)
	if a.info.GID.Prefix() == b.info.GID.Prefix() {
		t.Fatal("two subnets have one prefix")
	}
	o := verbs.DefaultConnect
	o.Timeout, o.Access = 20, verbs.AccessRemoteRead|verbs.AccessRemoteWrite
	for k, c := range [2][2]*end{{a, b}, {b, a}} {
		if o.Router = routerLID(f, k); c[0].qp.Connect(c[0].info, c[1].info, o) != nil {
			t.Fatal("no connection")
		}
	}
	for i := range a.mr.Bytes() {
		a.mr.Bytes()[i] = byte(i * 7)
	}
	for _, c := range []struct {
		from   *end
		op     verbs.WROpcode
		remote *end
	}{{a, verbs.WRSend, b}, {a, verbs.WRRDMAWrite, b}, {b, verbs.WRRDMARead, a}} {
		clear(b.mr.Bytes())
		if c.op == verbs.WRSend {
			if err := b.qp.PostRecv(&verbs.RecvWR{SGList: b.mr.SGEs(0, size)}); err != nil {
				t.Fatal(err)
			}
		}
		if err := c.from.qp.PostSend(&verbs.SendWR{Opcode: c.op, Flags: verbs.SendSignaled,
			SGList: c.from.mr.SGEs(0, size), RemoteAddr: c.remote.mr.Addr(), RKey: c.remote.mr.RKey()}); err != nil {
			t.Fatal(err)
		}
		ends := []*end{c.from}
		if c.op == verbs.WRSend {
			ends = append(ends, b)
		}
		for _, e := range ends {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			var wc [1]verbs.WC
			if n, err := e.cq.Wait(ctx, wc[:]); n != 1 || err != nil || wc[0].Status != verbs.WCSuccess {
				t.Fatalf("%v: %d %v %+v", c.op, n, err, wc)
			}
			cancel()
		}
		if !bytes.Equal(a.mr.Bytes(), b.mr.Bytes()) {
			t.Errorf("%v: data differ", c.op)
		}
	}
	// The ports of the router have counted what passed, 25 packets for each of three messages, and nothing
	// waits for it to land.
	rt := f.graph.Routers()[0].Index
	in, out := f.Counters(topo.PortRef{Node: rt, Port: 1}), f.Counters(topo.PortRef{Node: rt, Port: 2})
	if in[ib.PortRcvPkts] < 75 || out[ib.PortXmitPkts] < 75 || out[ib.PortRcvPkts] == 0 || in[ib.PortXmitPkts] == 0 ||
		in[ib.PortRcvSwitchRelayErrors]+out[ib.PortRcvSwitchRelayErrors] != 0 {
		t.Errorf("ports counted %v and %v", in, out)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.plane.flights) != 0 {
		t.Errorf("%d flights are left", len(f.plane.flights))
	}
}

// TestRoutedManagement asks the agent of a host in another subnet for its counters, and gets no answer where hops do
// not suffice.
func TestRoutedManagement(t *testing.T) {
	f := bringUp(t, "subnets:2,routers=1,each=star:2")
	s := openAt(t, f, hostPort(f, 0))
	id := registerAt(t, s, askPM)
	far := f.graph.Hosts()[3]
	env := gsi(routerLID(f, 0))
	env.HasGRH, env.GID, env.HopLimit = true, ib.MakeGID(f.graph.Prefix(1), far.PortGUID(1)), 2
	ask := func() madrpc.Delivery {
		t.Helper()
		if err := s.Send(id, madrpc.Message{Env: env, Data: request(mad.ClassPerf, 1, mad.MethodGet,
			mad.AttrPortCounters, 0), Timeout: 20 * ib.Millisecond}); err != nil {
			t.Fatal(err)
		}
		return recvAt(t, s)
	}
	d := ask()
	if d.Kind != madrpc.Response || d.Env.GID != env.GID || d.Env.LID != env.LID || d.Env.HopLimit != 0xFE {
		t.Errorf("%v from %+v", d.Kind, d.Env)
	}
	if env.HopLimit = 1; ask().Kind == madrpc.Response {
		t.Error("an answer to what may not leave the subnet")
	}
}
