package smrun_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"softib/driver/live"
	"softib/proto/ib"
	"softib/proto/topo"
	"softib/subnet/policy"
	"softib/subnet/sm"
	"softib/verbs"
)

func tenants(t *testing.T, format string, args ...any) policy.Partitions {
	t.Helper()
	p, _, err := policy.ParsePartitions("partitions.conf", fmt.Appendf(nil, format, args...))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func hostKeys(h *live.Host) []ib.PKey {
	return h.Port(1).PKeys
}

// keyIndex is where a host has a partition's key.
func keyIndex(h *live.Host, base ib.PKey) int {
	return slices.IndexFunc(hostKeys(h), func(k ib.PKey) bool { return k.Base() == base })
}

// talk sends a message over a new connection, each side by the key at an index of its own, and returns how the send
// ended. Where it is to arrive there is time for it on a busy machine too.
func talk(t *testing.T, a, b *live.Host, ka, kb int, arrives bool) verbs.WCStatus {
	t.Helper()
	if ka < 0 || kb < 0 {
		t.Fatalf("%s has %v, %s has %v: no such key", a.Name(), hostKeys(a), b.Name(), hostKeys(b))
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	type half struct {
		cq   *verbs.CQ
		qp   *verbs.QP
		mr   *verbs.MR
		info verbs.Info
	}
	open := func(h *live.Host) (x half) {
		ctx := verbs.Open(h.Device())
		pd, err := ctx.AllocPD()
		must(err)
		x.mr, err = pd.RegMR(make([]byte, 64), verbs.AccessLocalWrite)
		must(err)
		x.cq, err = ctx.CreateCQ(8)
		must(err)
		x.qp, err = pd.CreateQP(verbs.QPInit{Type: verbs.RC, SendCQ: x.cq, RecvCQ: x.cq,
			Caps: verbs.Caps{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1}})
		must(err)
		x.info, err = x.qp.Info(1, 7)
		must(err)
		t.Cleanup(func() {
			for _, c := range []func() error{x.qp.Close, x.cq.Close, x.mr.Close, pd.Close} {
				if err := c(); err != nil {
					t.Error(err)
				}
			}
		})
		return x
	}
	x, y := open(a), open(b)
	o := verbs.DefaultConnect
	if o.Timeout = 20; !arrives { // 4 s, eight times
		o.Timeout, o.RetryCnt = 12, 2 // 17 ms, three times
	}
	o.PKeyIndex = uint16(ka)
	must(x.qp.Connect(x.info, y.info, o))
	o.PKeyIndex = uint16(kb)
	must(y.qp.Connect(y.info, x.info, o))
	must(y.qp.PostRecv(&verbs.RecvWR{SGList: y.mr.SGEs(0, 64)}))
	must(x.qp.PostSend(&verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendSignaled, SGList: x.mr.SGEs(0, 64)}))
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	var wc [1]verbs.WC
	_, err := x.cq.Wait(ctx, wc[:])
	must(err)
	return wc[0].Status
}

// Two tenants and a manager: who shares a partition talks, all others do not, and moving a host moves what it reaches.
func TestTenants(t *testing.T) {
	g, err := topo.ParseSpec("fat-tree:radix=4,levels=2")
	if err != nil {
		t.Fatal(err)
	}
	f, err := live.New(g, live.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	h := f.Hosts()
	guid := func(i int) ib.GUID { return h[i].Node().PortGUID(1) }
	m := start(t, f, h[0].Name(), sm.Config{Partitions: tenants(t, `Default=0x7fff : ALL=limited, SELF=full ;
red=0x1001 : %v=full, %v=full, %v=full ;
blue=0x1002 : %v=full, %v=limited, %v=limited ;
`, guid(1), guid(2), guid(3), guid(4), guid(5), guid(6))})
	m.until(t, "the subnet is up", func(m *sm.Manager) bool { return m.Subnet() != nil })
	const red, blue, all = 0x1001, 0x1002, ib.PKeyBase
	want := func(what string, a, b int, ka, kb ib.PKey, ok bool) {
		t.Helper()
		s := talk(t, h[a], h[b], keyIndex(h[a], ka), keyIndex(h[b], kb), ok)
		if ok && s != verbs.WCSuccess || !ok && s != verbs.WCRetryExcErr {
			t.Errorf("%s: %s to %s: %v", what, h[a].Name(), h[b].Name(), s)
		}
	}
	want("within red", 1, 3, red, red, true)
	want("within blue, full to limited", 4, 5, blue, blue, true)
	want("within blue, limited to full", 6, 4, blue, blue, true)
	want("limited members", 5, 6, blue, blue, false)
	want("red to blue", 1, 4, red, blue, false)
	want("red to blue in the default partition", 1, 4, all, all, false)
	want("red to the manager", 1, 0, all, all, true)

	// h3 moves to blue; h2's keys keep their places.
	before := hostKeys(h[1])
	var ticket uint64
	_ = m.Do(func(m *sm.Manager) {
		ticket = m.SetPartitions(0, tenants(t, `Default=0x7fff : ALL=limited, SELF=full ;
green=0x1003 : %v=full ;
red=0x1001 : %v=full, %v=full ;
blue=0x1002 : %v=full, %v=limited, %v=limited, %v=full ;
`, guid(1), guid(1), guid(3), guid(4), guid(5), guid(6), guid(2)))
	})
	m.until(t, "the move is done", func(m *sm.Manager) bool { return m.Force().Ticket >= ticket && !m.Sweeping() })
	if i := keyIndex(h[2], red); i >= 0 {
		t.Errorf("h3 kept the key of red at index %d", i)
	}
	after := hostKeys(h[1])
	for i, k := range before {
		if after[i] != k {
			t.Errorf("index %d of h2 was %v and is %v", i, k, after[i])
		}
	}
	want("after the move, to blue", 2, 5, blue, blue, true)
	want("after the move, within red", 1, 3, red, red, true)
	want("after the move, to red", 2, 1, blue, red, false)
}
