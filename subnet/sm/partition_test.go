package sm

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"softib/internal/benchsize"
	"softib/proto/ib"
	"softib/proto/mad"
	"softib/proto/topo"
	"softib/subnet/policy"
)

// keys are the keys that a host's adapter holds, with the places of empty entries between them.
func (r *rig) keys(host int) []ib.PKey {
	all := r.w.hcas[host].Port(1).PKeys
	for len(all) > 0 && all[len(all)-1] == 0 {
		all = all[:len(all)-1]
	}
	return slices.Clone(all)
}

// front are the keys that the switch port in front of a host checks, and whether it does on the way in and out.
func (r *rig) front(host int) (keys []ib.PKey, in, out bool) {
	x := r.w.g.Nodes[host].Ports[1]
	var pi mad.PortInfo
	if _, err := pi.Parse(r.get(mad.ClassSMLID, x.Peer, 0, mad.AttrPortInfo, uint32(x.PeerPort),
		0).Data()); err != nil {
		r.t.Fatal(err)
	}
	var t mad.PKeyTable
	if _, err := t.Parse(r.get(mad.ClassSMLID, x.Peer, 0, mad.AttrPKeyTable, mad.PKeyModifier(x.PeerPort, 0),
		0).Data()); err != nil {
		r.t.Fatal(err)
	}
	for _, k := range t {
		if k != 0 {
			keys = append(keys, k)
		}
	}
	return keys, pi.PartitionEnforcementInbound, pi.PartitionEnforcementOutbound
}

func (r *rig) guid(host int) ib.GUID { return r.w.g.Nodes[host].PortGUID(1) }

func TestPartitions(t *testing.T) {
	w := build(t, spec(t, "star:6"))
	r := newRig(t, w, Config{})
	r.settle()
	for h := range 6 {
		keys, in, out := r.front(h)
		if got := r.keys(h); !slices.Equal(got, []ib.PKey{ib.PKeyDefault}) || in || out {
			t.Errorf("without a file: h%d has %v, its switch port %v, %v %v", h+1, got, keys, in, out)
		}
	}
	sub := r.m.Subnet()
	if len(sub.Partitions) != 1 || sub.Partitions[0].Key != ib.PKeyDefault || len(sub.Partitions[0].Members) != 7 ||
		!sub.Partitions[0].IPoIB {
		t.Errorf("partitions %+v", sub.Partitions)
	}
	if g := r.m.Admin().Groups(); len(g) != 1 || g[0].MGID != BroadcastMGID(ib.PKeyDefault) ||
		g[0].MLID != BroadcastMLID {
		t.Errorf("groups %+v", g)
	}

	// Two tenants, a storage server that is in both, and everybody but the manager limited in the default partition.
	text := fmt.Sprintf(`Default=0x7fff,ipoib : ALL=limited, SELF=full ;
red=0x1001,ipoib,mtu=5,rate=7 : %[1]v=full, %[2]v=full, %[3]v=full ;
blue=0x1002,ipoib : %[3]v=full, %[4]v=limited, %[5]v=limited ;
`, r.guid(1), r.guid(2), r.guid(3), r.guid(4), r.guid(5))
	r.m.SetPartitions(r.now, parts(t, text))
	r.settle()
	want := [][]ib.PKey{{0xffff}, {0x7fff, 0x9001}, {0x7fff, 0x9001}, {0x7fff, 0x9001, 0x9002}, {0x7fff, 0x1002},
		{0x7fff, 0x1002}}
	for h, keys := range want {
		if got := r.keys(h); !slices.Equal(got, keys) {
			t.Errorf("h%d has %v, want %v", h+1, got, keys)
		}
		if got, in, out := r.front(h); !slices.Equal(got, passing(keys)) || !in || !out {
			t.Errorf("the switch in front of h%d has %v (in %v, out %v), want %v", h+1, got, in, out, passing(keys))
		}
	}
	groups := r.m.Admin().Groups()
	if len(groups) != 3 {
		t.Errorf("groups %+v", groups)
	}
	for _, g := range groups {
		if g.MGID == BroadcastMGID(0x9001) && (g.MTU != ib.MTU4096 || g.Rate != 7 || g.PKey != 0x9001 ||
			g.QKey != policy.IPoIBQKey) {
			t.Errorf("red's group: %+v", g.GroupInfo)
		}
	}

	// Nothing changes: nothing is written.
	r.sets = 0
	r.m.Sweep(r.now, "test")
	r.settle()
	if r.sets != 0 {
		t.Errorf("%d writes in a sweep that changes nothing", r.sets)
	}

	// A host moves: it loses one key, at its adapter and at the switch, and others keep their places.
	text = fmt.Sprintf(`Default=0x7fff,ipoib : ALL=limited, SELF=full ;
green=0x1003 : %[2]v=full ;
red=0x1001 : %[1]v=full, %[3]v=full ;
blue=0x1002 : %[3]v=full, %[4]v=limited, %[2]v=full ;
`, r.guid(1), r.guid(2), r.guid(3), r.guid(4))
	r.m.SetPartitions(r.now, parts(t, text))
	r.settle()
	want = [][]ib.PKey{{0xffff}, {0x7fff, 0x9001}, {0x7fff, 0x9003, 0x9002}, {0x7fff, 0x9001, 0x9002}, {0x7fff, 0x1002},
		{0x7fff}}
	for h, keys := range want {
		if got := r.keys(h); !slices.Equal(got, keys) {
			t.Errorf("after the move h%d has %v, want %v", h+1, got, keys)
		}
		if got, _, _ := r.front(h); !sameKeys(got, passing(keys)) {
			t.Errorf("after the move the switch in front of h%d has %v, want %v", h+1, got, passing(keys))
		}
	}
	if g := r.m.Admin().Groups(); len(g) != 1 {
		t.Errorf("groups of partitions without ipoib stay: %+v", g)
	}

	// The plain default partition again: nobody checks any more.
	r.m.SetPartitions(r.now, policy.Partitions{})
	r.settle()
	for h := range 6 {
		_, in, out := r.front(h)
		if got := r.keys(h); !slices.Equal(got, []ib.PKey{ib.PKeyDefault}) || in || out {
			t.Errorf("in the end h%d has %v, enforced in %v, out %v", h+1, got, in, out)
		}
	}
}

// The manager talks to everybody, whatever the file says about its port.
func TestManagersPartition(t *testing.T) {
	for _, text := range []string{
		"Default=0x7fff : ALL=limited ;",
		"x=1,indx0 : ALL=full ; y=2,indx0 : ALL=full ; z=3,indx0 : ALL ;",
	} {
		w := build(t, spec(t, "star:3"))
		r := newRig(t, w, Config{Partitions: parts(t, text)})
		r.settle()
		if !slices.Contains(r.keys(0), ib.PKeyDefault) {
			t.Errorf("%s: the manager's port has %v", text, r.keys(0))
		}
		keys, _, _ := r.front(0)
		if !slices.Contains(keys, ib.PKeyDefault) {
			t.Errorf("%s: the switch in front of the manager lets %v pass", text, keys)
		}
		for h := 1; h < 3; h++ {
			if !slices.Contains(r.keys(h), ib.PKeyBase) {
				t.Errorf("%s: h%d has %v", text, h+1, r.keys(h))
			}
		}
	}
}

func TestIndex0(t *testing.T) {
	w := build(t, spec(t, "star:3"))
	r := newRig(t, w, Config{})
	r.settle()
	r.m.SetPartitions(r.now, parts(t, fmt.Sprintf("Default=0x7fff : ALL=full ; fast=0x5,indx0 : %v=full ;", r.guid(1))))
	r.settle()
	if got := r.keys(1); !slices.Equal(got, []ib.PKey{0x8005, 0xffff}) {
		t.Errorf("index 0: %v", got)
	}
	if got := r.keys(2); !slices.Equal(got, []ib.PKey{0xffff}) {
		t.Errorf("not a member: %v", got)
	}
}

func TestBothKeys(t *testing.T) {
	for _, allow := range []bool{false, true} {
		w := build(t, spec(t, "star:2"))
		r := newRig(t, w, Config{AllowBothKeys: allow,
			Partitions: parts(t, "Default=0x7fff : ALL=full ; p=6 : ALL=both ;")})
		r.settle()
		want := []ib.PKey{0xffff, 0x8006}
		if allow {
			want = append(want, 0x0006)
		}
		if got := r.keys(1); !slices.Equal(got, want) {
			t.Errorf("allow %v: %v, want %v", allow, got, want)
		}
	}
}

func TestEnforceSides(t *testing.T) {
	for e := EnforceBoth; e < NumEnforcement; e++ {
		w := build(t, spec(t, "star:2"))
		r := newRig(t, w, Config{Enforce: e, Partitions: parts(t, "p=6 : ALL ;")})
		r.settle()
		_, in, out := r.front(1)
		if in != (e == EnforceBoth || e == EnforceIn) || out != (e == EnforceBoth || e == EnforceOut) {
			t.Errorf("%v: in %v, out %v", e, in, out)
		}
		if x, ok := ParseEnforcement(e.String()); !ok || x != e {
			t.Errorf("%v reads back as %v", e, x)
		}
	}
	if _, ok := ParseEnforcement("sideways"); ok {
		t.Error("sideways is taken")
	}
}

// A host in more partitions than its switch port has room for is not cut off: its adapter keeps the others out.
func TestTooManyPartitions(t *testing.T) {
	w := build(t, spec(t, "star:2"))
	var b strings.Builder
	for k := range 40 {
		fmt.Fprintf(&b, "p%d=%d : ALL ;\n", k, k+1)
	}
	r := newRig(t, w, Config{Partitions: parts(t, b.String())})
	r.settle()
	if got := r.keys(1); len(got) != 41 || got[0] != ib.PKeyBase {
		t.Errorf("%d keys: %v", len(got), got)
	}
	if _, in, out := r.front(1); in || out {
		t.Error("a table that is too small is enforced")
	}
	if !r.logged("policy", "cannot enforce 41 partitions") {
		t.Errorf("not said: %q", r.log)
	}
}

// A write whose answer is lost is done again, and a host whose link bounced is looked at again: it may have forgotten.
func TestKeysAfterTrouble(t *testing.T) {
	w := build(t, spec(t, "star:3"))
	r := newRig(t, w, Config{})
	r.settle()
	lost := 0
	r.lose = func(node int, v mad.View) (bool, bool) {
		if v.AttrID() == mad.AttrPKeyTable && v.Method() == mad.MethodSet && lost < 2 {
			lost++
			return lost == 2, true
		}
		return false, false
	}
	text := fmt.Sprintf("Default=0x7fff : ALL=full ; p=6 : %v, %v ;", r.guid(1), r.guid(2))
	r.m.SetPartitions(r.now, parts(t, text))
	r.settle()
	r.pass(ib.Second * 60)
	for h := 1; h < 3; h++ {
		if got, in, _ := r.front(h); !slices.Equal(got, []ib.PKey{0xffff, 0x8006}) ||
			!slices.Equal(r.keys(h), []ib.PKey{0xffff, 0x0006}) || !in {
			t.Errorf("h%d: %v, its switch port %v", h+1, r.keys(h), got)
		}
	}
	// The host's table is lost behind the manager's back, with its link.
	x := w.g.Nodes[1].Ports[1]
	both := []topo.PortRef{{Node: 1, Port: 1}, {Node: x.Peer, Port: x.PeerPort}}
	for _, p := range both {
		w.links[p.Node][p.Port].Down(0)
	}
	w.hcas[1].Port(1).PKeys[1] = 0
	for _, p := range both {
		w.links[p.Node][p.Port].Train()
		w.links[p.Node][p.Port].LinkUp(0)
	}
	r.m.Sweep(r.now, "test")
	r.settle()
	if got := r.keys(1); !slices.Equal(got, []ib.PKey{0xffff, 0x0006}) {
		t.Errorf("after the bounce: %v", got)
	}
}

// TestPlaceKeys holds placeKeys against what it promises, on random tables.
func TestPlaceKeys(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		capacity := 1 + rng.IntN(40)
		have := make([]ib.PKey, rng.IntN(capacity+1))
		for i := range have {
			if rng.IntN(3) > 0 {
				have[i] = ib.PKey(rng.IntN(12))<<1 | ib.PKey(rng.IntN(2))<<15
			}
		}
		want := make([]ib.PKey, 0, capacity)
		for range rng.IntN(capacity) + 1 {
			if k := ib.PKey(1+rng.IntN(30))<<1 | ib.PKey(rng.IntN(2))<<15; !slices.Contains(want, k) {
				want = append(want, k)
			}
		}
		got := placeKeys(have, want)
		if len(got) > capacity {
			t.Fatalf("have %v, want %v: %v is longer than %d", have, want, got, capacity)
		}
		if got[0] != want[0] || !sameKeys(got, want) {
			t.Fatalf("have %v, want %v: %v does not hold them", have, want, got)
		}
		for i, k := range want {
			was := slices.Index(have, k)
			if i > 0 && was > 0 && slices.Index(got, k) != was {
				t.Fatalf("have %v, want %v: %v moves %v from %d", have, want, got, k, was)
			}
		}
		if again := placeKeys(got, want); !slices.Equal(again, got) {
			t.Fatalf("have %v, want %v: %v, and then %v", have, want, got, again)
		}
	}
}

// BenchmarkPartitions is what 100 partitions of 100 hosts cost to work out among 11,664 hosts, and to hold against all
// tables once they are known.
func BenchmarkPartitions(b *testing.B) {
	g := spec(b, benchsize.Tree("fat-tree:radix=36,levels=3"))
	w := build(b, g)
	m := New(Config{})
	r := &rig{t: b, w: w, m: m, from: topo.PortRef{Node: g.Hosts()[0].Index, Port: 1}}
	m.Start(0)
	r.settle()
	var text strings.Builder
	text.WriteString("Default=0x7fff,ipoib : ALL=limited, SELF=full ;\n")
	hosts := g.Hosts()
	for k := range 100 {
		fmt.Fprintf(&text, "tenant%d=%d,ipoib : ", k, k+1)
		for i := range 100 {
			if i > 0 {
				text.WriteString(", ")
			}
			fmt.Fprintf(&text, "%v=full", hosts[(k*100+i)%len(hosts)].PortGUID(1))
		}
		text.WriteString(" ;\n")
	}
	p := parts(b, text.String())
	sub := m.Subnet()
	newSweep := func() *sweep {
		s := &sweep{m: m, nodes: slices.Clone(sub.Nodes), own: make([]bool, len(sub.Nodes)), self: sub.Self,
			switches: sub.Switches, failed: map[int32]int{}}
		s.repath()
		return s
	}
	b.Run("change", func(b *testing.B) {
		for b.Loop() {
			m.cfg.Partitions, m.members = p, nil
			s := newSweep()
			s.beginKeys()
			if len(s.keyWrites) < 2*len(hosts) {
				b.Fatalf("%d writes", len(s.keyWrites))
			}
			for i := range s.keyWrites {
				k := &s.keyWrites[i]
				s.tookKeys(k.ref, k.block, &k.keys)
			}
		}
	})
	m.SetPartitions(0, p)
	r.settle()
	sub = m.Subnet()
	b.Run("no change", func(b *testing.B) {
		for b.Loop() {
			s := newSweep()
			s.beginKeys()
			if len(s.keyWrites) != 0 {
				b.Fatalf("%d writes", len(s.keyWrites))
			}
		}
	})
}

// TestGivenUpWhileKeysAreWritten: a sweep is given up after some hosts have got their keys, and by then they are to
// have others: those that they had before.
func TestGivenUpWhileKeysAreWritten(t *testing.T) {
	r := newRig(t, build(t, spec(t, "star:4")), Config{})
	r.settle()
	r.lose = func(node int, v mad.View) (bool, bool) {
		if node != 2 || v.AttrID() != mad.AttrPKeyTable || v.Method() != mad.MethodSet {
			return false, false
		}
		r.m.SetPartitions(r.now, policy.Partitions{})
		return true, false
	}
	was := r.keys(1)
	r.m.SetPartitions(r.now, parts(t, fmt.Sprintf("Default=0x7fff : ALL=full ;\nred=0x1001 : %v=full, %v=full ;\n",
		r.guid(1), r.guid(2))))
	r.settle()
	if is := r.keys(1); !slices.Equal(is, was) {
		t.Errorf("a host has %v: want %v\n%s", is, was, strings.Join(r.log, "\n"))
	}
}
