package roce

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"softib/proto/ib"
	"softib/verbs"
)

// has is the server's configuration with other addresses.
func (s *Server) has(addrs ...string) Config {
	c := s.Config()
	c.Addrs = nil
	for _, a := range addrs {
		c.Addrs = append(c.Addrs, netip.MustParseAddr(a))
	}
	return c
}

// becomes refreshes a server, which has to change by it.
func (s *Server) becomes(t testing.TB, c Config) {
	t.Helper()
	if changed, err := s.refresh(c); !changed || err != nil {
		t.Fatalf("changed: %v, %v", changed, err)
	}
}

// awaits waits for events.
func awaits(t testing.TB, c *verbs.Context, want ...verbs.EventType) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, w := range want {
		e, err := c.WaitEvent(ctx)
		if err != nil || e.Type != w {
			t.Fatalf("%v, %v: want %v", e, err, w)
		}
	}
}

// by connects a side's queue pair by the GID at an index to another side, with little patience.
func (s *side) by(index uint8, to *side) error {
	self, peer, o := s.info(), to.info(), verbs.DefaultConnect
	err := s.qp.Modify(verbs.QPAttr{State: verbs.StateInit, Port: 1, Access: o.Access},
		verbs.MaskState|verbs.MaskPort|verbs.MaskPKeyIndex|verbs.MaskAccess)
	if err == nil {
		err = s.qp.Modify(verbs.QPAttr{State: verbs.StateRTR, PathMTU: ib.MTU1024, DestQPN: peer.QPN, RQPSN: peer.PSN,
			MaxDestRD: 1, MinRNRTimer: 1,
			AH: verbs.AHAttr{Port: 1, IsGlobal: true, DGID: peer.GID, SGIDIndex: index, HopLimit: 64}},
			verbs.MaskState|verbs.MaskAV|verbs.MaskPathMTU|verbs.MaskDestQPN|verbs.MaskRQPSN|verbs.MaskMaxDestRD|
				verbs.MaskMinRNRTimer)
	}
	if err == nil {
		err = s.qp.Modify(verbs.QPAttr{State: verbs.StateRTS, SQPSN: self.PSN, Timeout: 14, RetryCnt: 3,
			MaxRDAtomic: 1},
			verbs.MaskState|verbs.MaskSQPSN|verbs.MaskTimeout|verbs.MaskRetryCnt|verbs.MaskRNRRetry|
				verbs.MaskMaxRDAtomic)
	}
	return err
}

// meets connects two queue pairs, of which the first goes by the address at an index.
func meets(a *side, index uint8, addr string, b *side) {
	a.Helper()
	a.check(a.by(index, b))
	peer := a.info()
	peer.GID = netip.MustParseAddr(addr).As16()
	b.check(b.qp.Connect(b.info(), peer, verbs.DefaultConnect))
}

// A program's table changes while it runs: addresses keep their index, one that is lost leaves it empty and has it
// again when it comes back. What goes by a lost address ends with an error, and all else goes on.
func TestAddresses(t *testing.T) {
	s := holdAt(t, "127.0.0.1")
	d, err := Dial(s.among().serve(t), "test", nobody)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	c, far := verbs.Open(d), open(t, "127.0.0.9")
	table := func(want ...string) {
		t.Helper()
		p, _ := d.PortInfo(1)
		var got []string
		for _, g := range p.HCA.GIDs {
			text := ""
			if !g.IsZero() {
				text = netip.AddrFrom16(g).Unmap().String()
			}
			got = append(got, text)
		}
		if !slices.Equal(got, want) || !slices.Equal(p.HCA.GIDs, s.GIDs()) || p.Info.GUIDCap != tableLength {
			t.Errorf("the table is %q, of %d, and the server's %v: want %q", got, p.Info.GUIDCap, s.GIDs(), want)
		}
	}
	table("127.0.0.1")
	first, there := newSide(t, d, verbs.RC), newSide(t, far, verbs.RC)
	meets(first, 0, "127.0.0.1", there)
	first.write(there, 10000)

	s.becomes(t, s.has("127.0.0.3", "127.0.0.1"))
	awaits(t, c, verbs.EventGIDChange)
	table("127.0.0.1", "127.0.0.3")
	second, also := newSide(t, d, verbs.RC), newSide(t, far, verbs.RC)
	meets(second, 1, "127.0.0.3", also)
	second.write(also, 10000)
	first.write(there, 20000)
	// A program that comes now has both.
	if other := s.open(t); len(other.link.places) != 2 {
		t.Errorf("another program has %d addresses", len(other.link.places))
	}

	s.becomes(t, s.has("127.0.0.3"))
	awaits(t, c, verbs.EventGIDChange)
	table("", "127.0.0.3")
	first.send(verbs.SendWR{Opcode: verbs.WRRDMAWrite, SGList: first.mr.SGEs(0, 10), RemoteAddr: there.mr.Addr(),
		RKey: there.mr.RKey()})
	if wc := first.ends(); wc.Status != verbs.WCRetryExcErr {
		t.Errorf("what goes by a lost address ends with %v", wc.Status)
	}
	second.write(also, 30000)
	if err := newSide(t, d, verbs.RC).by(0, there); !errors.Is(err, verbs.ErrInvalid) {
		t.Errorf("a queue pair by a lost address: %v", err)
	}

	// It comes back with others, while the port is down for a while.
	down := s.has("127.0.0.3", "127.0.0.4", "127.0.0.1")
	down.Down = true
	s.becomes(t, down)
	awaits(t, c, verbs.EventPortErr, verbs.EventGIDChange)
	table("127.0.0.1", "127.0.0.3", "127.0.0.4")
	up := down
	up.Down = false
	s.becomes(t, up)
	awaits(t, c, verbs.EventPortActive)
	again, back := newSide(t, d, verbs.RC), newSide(t, far, verbs.RC)
	meets(again, 0, "127.0.0.1", back)
	again.write(back, 10000)
	if changed, err := s.refresh(up); changed || err != nil {
		t.Errorf("nothing is new, and changed: %v, %v", changed, err)
	}
	// An address that cannot be had does not keep others from coming, and comes when it can.
	taken := holdAt(t, "127.0.0.6")
	want := s.has("127.0.0.1", "127.0.0.3", "127.0.0.4", "127.0.0.6", "127.0.0.7")
	if changed, err := s.refresh(want); !changed || !errors.Is(err, ErrSocket) {
		t.Errorf("an address that somebody else has: %v, %v", changed, err)
	}
	awaits(t, c, verbs.EventGIDChange)
	table("127.0.0.1", "127.0.0.3", "127.0.0.4", "127.0.0.7")
	taken.Close()
	s.becomes(t, want)
	awaits(t, c, verbs.EventGIDChange)
	table("127.0.0.1", "127.0.0.3", "127.0.0.4", "127.0.0.7", "127.0.0.6")
	wide := want
	wide.MTU = 9000
	s.becomes(t, wide)
	until(t, "the MTU is known", func() bool { p, _ := d.PortInfo(1); return p.HCA.MTU == ib.MTU4096 })
}

// ends waits for a completion of any status.
func (s *side) ends() verbs.WC {
	s.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var wc [1]verbs.WC
	if _, err := s.cq.Wait(ctx, wc[:]); err != nil {
		s.Fatal(err)
	}
	return wc[0]
}

// An index is given to another address when all others have theirs, and the one that was lost first is the first.
func TestReuse(t *testing.T) {
	s := holdAt(t, "127.0.0.1")
	d, err := Dial(s.among().serve(t), "test", nobody)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	addr := func(i int) string { return fmt.Sprintf("127.0.1.%d", i) }
	var full []string
	for i := range tableLength {
		full = append(full, addr(i))
	}
	full[0] = "127.0.0.1"
	s.becomes(t, s.has(full...))
	s.becomes(t, s.has(slices.Delete(slices.Clone(full), 7, 8)...))
	s.becomes(t, s.has(slices.Delete(slices.Clone(full), 5, 8)...)) // 5 and 6 as well
	if _, err := s.refresh(s.has(append(full, addr(100))...)); !errors.Is(err, ErrSocket) {
		t.Errorf("one address too many: %v", err)
	}
	s.becomes(t, s.has(slices.Delete(slices.Clone(full), 7, 8)...))
	s.becomes(t, s.has(slices.Delete(slices.Clone(full), 5, 8)...))
	s.becomes(t, s.has(append(slices.Delete(slices.Clone(full), 5, 8), addr(100))...))
	gids := s.GIDs()
	if want := ib.GID(netip.MustParseAddr(addr(100)).As16()); gids[7] != want || !gids[5].IsZero() || len(gids) != 64 {
		t.Errorf("%v is at %d of %d: want 7", addr(100), slices.Index(gids, want), len(gids))
	}
	until(t, "the program knows", func() bool { p, _ := d.PortInfo(1); return slices.Equal(p.HCA.GIDs, gids) })
	a, b := newSide(t, d, verbs.RC), newSide(t, open(t, "127.0.0.9"), verbs.RC)
	meets(a, 7, addr(100), b)
	a.write(b, 10000)
}

// Whatever a program is told of its port, it takes it or refuses it, and its sockets are those of its table.
func FuzzState(f *testing.F) {
	f.Add([]byte(`{"config":{"MTU":1500},"table":[{"addr":"192.0.2.1","index":2,"serial":1}],"bring":[0]}`),
		[]byte(`{"table":[{"addr":"192.0.2.1","serial":1,"lost":true},{"addr":"fe80::1%eth0","serial":2}],"bring":[1]}`))
	f.Add([]byte(`{"table":[{"addr":""}],"bring":[7]}`), []byte(`{"bring":[-1,0]}`))
	f.Add([]byte(`{"table":[{"addr":"::1","serial":3},{"addr":"::1","serial":3}],"bring":[0,0]}`), []byte(`{}`))
	f.Fuzz(func(t *testing.T, first, second []byte) {
		l, err := newLink(nil, new(Stats), 1, 8)
		if err != nil {
			t.Fatal(err)
		}
		defer l.close()
		for _, b := range [][]byte{first, second} {
			var st state
			if json.Unmarshal(b, &st) != nil || len(st.Bring) > tableLength || len(st.Table) > tableLength {
				continue
			}
			fds := make([]int, len(st.Bring))
			for i := range fds {
				if fds[i], err = unix.Eventfd(0, unix.EFD_CLOEXEC); err != nil {
					t.Fatal(err)
				}
			}
			if l.apply(&st, fds) == nil {
				if p := (&Device{}).port(&st); len(p.GIDs) != len(l.places) || len(l.socks) != len(l.places) {
					t.Errorf("%d GIDs, %d places, %d sockets", len(p.GIDs), len(l.places), len(l.socks))
				}
			}
		}
	})
}
