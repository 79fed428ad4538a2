package sm

import (
	"fmt"
	"testing"

	"softib/proto/ib"
	"softib/proto/mad"
	"softib/proto/topo"
)

// TestAddressesSurviveRestart: a manager that remembers gives every port the address that it had, for every LMC, also
// when the fabric has forgotten everything and is found in another order.
func TestAddressesSurviveRestart(t *testing.T) {
	for lmc := range uint8(8) {
		t.Run(fmt.Sprint(lmc), func(t *testing.T) {
			n := newNetwork(t, small)
			h := n.manage(0, Config{LMC: lmc})
			n.up(h)
			n.works()
			was := n.lids()
			for ref, l := range was {
				if n.hcas[ref.Node] != nil && (n.hcas[ref.Node].Port(ref.Port).LMC != lmc || l&(1<<lmc-1) != 0) {
					t.Errorf("%s: LID %v, LMC %d", n.g.PortName(ref), l, n.hcas[ref.Node].Port(ref.Port).LMC)
				}
			}
			memory, changed := h.m.TakeMemory()
			if _, again := h.m.TakeMemory(); !changed || again {
				t.Errorf("memory changed: %v, and again: %v", changed, again)
			}
			h.die()
			// As it is.
			again := n.manage(0, Config{LMC: lmc, Memory: memory})
			n.up(again)
			n.resetCounts()
			n.pass(2 * ib.Second)
			n.works()
			n.keptLIDs(was)
			again.die()
			// After all power was gone, from another host, without one switch.
			m := newNetwork(t, small)
			gone := m.victim(2)
			m.isolate(gone, true)
			third := m.manage(5, Config{LMC: lmc, Memory: memory})
			m.up(third)
			m.works(gone)
			m.keptLIDs(was)
			m.isolate(gone, false)
			m.whole(10*ib.Second, third)
			m.keptLIDs(was)
		})
	}
}

// TestWithoutMemory: a manager that remembers nothing leaves the addresses that ports have.
func TestWithoutMemory(t *testing.T) {
	n := newNetwork(t, small)
	h := n.manage(0, Config{LMC: 2})
	n.up(h)
	was := n.lids()
	h.die()
	other := n.manage(7, Config{LMC: 2})
	n.up(other)
	n.pass(2 * ib.Second)
	n.works()
	n.keptLIDs(was)
	if n.sets[mad.AttrLFT] > 2*len(n.g.Switches()) {
		t.Errorf("%d blocks were written", n.sets[mad.AttrLFT])
	}
}

// TestMemoryConflicts: what cannot be in a file of addresses is left out and named; everything works.
func TestMemoryConflicts(t *testing.T) {
	g := spec(t, small)
	guid := func(k int) ib.GUID { return g.Hosts()[k].PortGUID(1) }
	for name, c := range map[string]struct {
		lids map[ib.GUID]ib.LID
		lmc  uint8
		kept map[int]ib.LID
		said bool
	}{
		"one for two": {map[ib.GUID]ib.LID{guid(1): 40, guid(2): 40, guid(3): 41}, 0, map[int]ib.LID{1: 40, 3: 41},
			true},
		"no address": {map[ib.GUID]ib.LID{guid(1): 0, guid(2): 0xC005, guid(3): 0xFFFF, guid(4): 0xBFFF}, 0,
			map[int]ib.LID{4: 0xBFFF}, true},
		"other LMC": {map[ib.GUID]ib.LID{guid(1): 40, guid(2): 41, guid(3): 42, guid(4): 48}, 3,
			map[int]ib.LID{4: 48}, false},
		"top":       {map[ib.GUID]ib.LID{guid(1): 0xBFF8, guid(2): 0xBFFC}, 3, nil, false},
		"strangers": {map[ib.GUID]ib.LID{0x123: 1, 0x124: 2, 0x125: 3, guid(1): 9}, 0, map[int]ib.LID{1: 9}, false},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNetwork(t, small)
			h := n.manage(0, Config{LMC: c.lmc, Memory: Memory{LIDs: c.lids}})
			n.up(h)
			n.works()
			for k, want := range c.kept {
				if got := n.lid(n.hostRef(k)); got != want {
					t.Errorf("%s: LID %v, want %v", n.g.Hosts()[k].Name, got, want)
				}
			}
			if h.said("problem", "address") != c.said {
				t.Errorf("named: %v\n%s", !c.said, n.logs())
			}
			for _, l := range n.lids() {
				if name == "strangers" && l <= 3 {
					t.Errorf("LID %v is somebody else's", l)
				}
			}
		})
	}
}

// TestNoAddressesLeft: where the addresses do not suffice, as many ports as possible get theirs, the others are named,
// and nobody's changes.
func TestNoAddressesLeft(t *testing.T) {
	n := newNetwork(t, small)
	lids := map[ib.GUID]ib.LID{}
	for l := ib.LID(1); l <= ib.LIDUnicastMax; l++ {
		if l != 77 && l != 0x3000 && l < 0xBFF0 {
			lids[ib.GUID(0x900000)+ib.GUID(l)] = l
		}
	}
	keep := n.g.Hosts()[3].PortGUID(1)
	delete(lids, 0x900000+5)
	lids[keep] = 5
	h := n.manage(0, Config{Memory: Memory{LIDs: lids}})
	n.up(h)
	n.works() // 16 at the end and two in between suffice for 14 ports
	if got := n.lid(n.hostRef(3)); got != 5 {
		t.Errorf("LID %v, want 5", got)
	}
	for l := ib.LID(0xBFF0); l <= ib.LIDUnicastMax; l++ {
		lids[ib.GUID(0x900000)+ib.GUID(l)] = l
	}
	m := newNetwork(t, small)
	h = m.manage(0, Config{Memory: Memory{LIDs: lids}})
	m.must(10*ib.Second, "the sweep ends", h.rests)
	if !h.said("problem", "no address is left") {
		t.Errorf("not named:\n%s", m.logs())
	}
	with := 0
	for _, l := range m.lids() {
		if l != 0 {
			with++
		}
	}
	if with != 3 {
		t.Errorf("%d ports have an address, want 3", with)
	}
}

// TestNewHosts: hosts that come get new addresses, and those that go keep theirs for when they come back.
func TestNewHosts(t *testing.T) {
	n := newNetwork(t, small)
	late := []topo.PortRef{n.hostRef(2), n.hostRef(5)}
	for _, ref := range late {
		n.cut(ref)
	}
	h := n.manage(0, Config{})
	n.up(h)
	first := n.lids()
	for _, ref := range late {
		n.join(ref)
	}
	n.whole(5*ib.Second, h)
	n.keptLIDs(first)
	was := n.lids()
	away := n.hostRef(4)
	n.cut(away)
	n.pass(3 * ib.Second)
	n.hcas[away.Node].Port(away.Port).LID = 0 // it starts anew
	n.join(away)
	n.whole(5*ib.Second, h)
	n.keptLIDs(was)
	// Two hosts that changed places keep their addresses too.
	if _, dirty := h.m.TakeMemory(); !dirty {
		t.Error("nothing to remember")
	}
}

func FuzzLIDBook(f *testing.F) {
	f.Add([]byte{1, 2, 3, 0x81, 0x42, 7, 9})
	f.Add([]byte{0xFF, 0, 0xFF, 0, 0xC0, 0xBF, 0xFF})
	f.Fuzz(func(t *testing.T, ops []byte) {
		b, _ := newLIDBook(nil)
		lmcs := map[ib.GUID]uint8{}
		for k := 0; k+3 < len(ops); k += 4 {
			g, lmc := ib.GUID(ops[k]%16)+1, ops[k+1]%8
			l := ib.LID(ops[k+2])<<8 | ib.LID(ops[k+3])
			switch ops[k+1] >> 6 {
			case 0:
				if _, has := b.of[g]; !has && b.claim(g, l, lmc) {
					lmcs[g] = lmc
				}
			case 1:
				b.release(g)
				delete(lmcs, g)
			default:
				if _, has := b.of[g]; has {
					continue
				}
				if _, ok := b.give(g, lmc); !ok {
					t.Fatalf("no %d addresses left for 16 ports", 1<<lmc)
				}
				lmcs[g] = lmc
			}
			seen := map[ib.LID]ib.GUID{}
			for g, lmc := range lmcs {
				base := b.of[g]
				if base == 0 || base&(1<<lmc-1) != 0 || int(base)+1<<lmc-1 > int(ib.LIDUnicastMax) {
					t.Fatalf("port %v: LID %v with LMC %d", g, base, lmc)
				}
				for i := range ib.LID(1) << lmc {
					if o := seen[base+i]; o != 0 || b.owner(base+i) != g {
						t.Fatalf("LID %v: %v, %v and %v", base+i, o, b.owner(base+i), g)
					}
					seen[base+i] = g
				}
			}
		}
	})
}
