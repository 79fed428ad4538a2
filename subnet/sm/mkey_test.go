package sm

import (
	"fmt"
	"testing"

	"softib/proto/ib"
	"softib/proto/mad"
)

// guards are the ports that have a key of their own: by node, the port that a request for it comes in by.
func (r *rig) guards(f func(node int, in ib.PortNum)) {
	for i, n := range r.w.g.Nodes {
		if n.IsSwitch() {
			f(i, 0)
			continue
		}
		f(i, 1)
	}
}

// wantKey fails unless all ports are guarded by a key.
func (r *rig) wantKey(key uint64, protect uint8, lease uint16) {
	r.t.Helper()
	r.guards(func(node int, in ib.PortNum) {
		var pi mad.PortInfo
		pi.Parse(r.get(mad.ClassSMLID, node, in, mad.AttrPortInfo, 0, key).Data())
		if pi.MKey != key || pi.MKeyProtectBits != protect || pi.MKeyLeasePeriod != lease {
			r.t.Errorf("%s: key %#x, level %d, lease %d: want %#x, %d, %d", r.w.g.Nodes[node].Name, pi.MKey,
				pi.MKeyProtectBits, pi.MKeyLeasePeriod, key, protect, lease)
		}
	})
}

// intrude asks a port for its partitions with a wrong key, or tries to write them; it reports whether there was an
// answer.
func (r *rig) intrude(node int, in ib.PortNum, method mad.Method) bool {
	return r.opens(node, in, method, 0xBAD)
}

// opens does the same with any key.
func (r *rig) opens(node int, in ib.PortNum, method mad.Method, key uint64) bool {
	var req, resp [mad.Size]byte
	h := mad.Header{BaseVersion: 1, MgmtClass: mad.ClassSMLID, ClassVersion: 1, Method: method,
		AttributeID: mad.AttrPKeyTable}
	h.Append(req[:0])
	mad.View(req[:]).SetMKey(key)
	_, ok := r.w.agents[node].HandleMAD(r.now, in, req[:], resp[:])
	return ok
}

func TestMKeyRollover(t *testing.T) {
	for protect := range uint8(4) {
		t.Run(fmt.Sprint("level ", protect), func(t *testing.T) {
			w := build(t, spec(t, "fat-tree:radix=4,levels=2"))
			r := newRig(t, w, Config{MKey: 0x1111, MKeyProtect: protect, MKeyLease: 60})
			r.settle()
			r.wantKey(0x1111, protect, 60)
			for i := range w.g.Nodes {
				if protect > 0 && r.intrude(i, 1, mad.MethodSet) {
					t.Errorf("%s answers a Set with a wrong key", w.g.Nodes[i].Name)
				}
			}
			problems := r.m.Last().Problems
			r.m.Sweep(r.now, "test")
			r.settle()
			if problems+r.m.Last().Problems > 0 {
				t.Errorf("problems with a key of one's own: %q", r.log)
			}
			// A new key, and one port's answer is lost: it has the key and nobody knows.
			lost := 0
			r.lose = func(node int, v mad.View) (bool, bool) {
				if v.AttrID() == mad.AttrPortInfo && v.Method() == mad.MethodSet &&
					(node == 2 || w.g.Nodes[node].Name == "spine1") && lost < 2 {
					lost++
					return false, true
				}
				return false, false
			}
			r.m.SetMKeys(r.now, MKeyPolicy{Key: 0x2222, Protect: protect, Lease: 60})
			r.run()
			r.pass(120 * ib.Second)
			if lost != 2 {
				t.Fatalf("%d answers were lost", lost)
			}
			r.wantKey(0x2222, protect, 60)
			if r.m.Last().Problems > 0 {
				t.Errorf("problems in the end: %q", r.log)
			}
			mem, ok := r.m.TakeMemory()
			if !ok || len(mem.MKeys) != len(w.g.Nodes) || mem.MKeys[r.guid(3)] != 0x2222 {
				t.Errorf("memory %v %v", ok, mem.MKeys)
			}

			// A restart with another key, which remembers the old one.
			next := newRig(t, w, Config{MKey: 0x3333, MKeyProtect: protect, Memory: mem})
			next.now = r.now
			next.settle()
			next.wantKey(0x3333, protect, 0)
			if next.m.Last().Problems > 0 {
				t.Errorf("problems after the restart: %q", next.log)
			}
			// And one without a key, which takes it away.
			mem, _ = next.m.TakeMemory()
			last := newRig(t, w, Config{Memory: mem})
			last.now = r.now
			last.settle()
			last.wantKey(0, 0, 0)
			if mem, _ := last.m.TakeMemory(); len(mem.MKeys) != 0 {
				t.Errorf("remembers %v", mem.MKeys)
			}
		})
	}
}

// A port that another manager guards is named, and everything else works.
func TestForeignMKey(t *testing.T) {
	for protect := uint8(1); protect < 4; protect++ {
		w := build(t, spec(t, "star:4"))
		first := newRig(t, w, Config{})
		first.settle()
		var req, resp [mad.Size]byte
		pi := first.portInfo(2, 1, 1)
		pi.PortState, pi.PortPhysicalState = ib.PortNoChange, ib.PhysNoChange
		pi.MKey, pi.MKeyProtectBits, pi.MKeyLeasePeriod = 0x777, protect, 30
		h := mad.Header{BaseVersion: 1, MgmtClass: mad.ClassSMLID, ClassVersion: 1, Method: mad.MethodSet,
			AttributeID: mad.AttrPortInfo, AttributeModifier: 1}
		h.Append(req[:0])
		pi.Append(mad.View(req[:]).Data()[:0])
		if _, ok := w.agents[2].HandleMAD(0, 1, req[:], resp[:]); !ok {
			t.Fatal("the key is not taken")
		}
		r := newRig(t, w, Config{LMC: 1, MKey: 0x1})
		r.now = ib.Second
		r.settle()
		if !r.logged("problem", "guarded by an M_Key that this manager does not know") {
			t.Errorf("level %d: not named: %q", protect, r.log)
		}
		if protect == 1 && !r.logged("h3", "protection level 1", "30 s") {
			t.Errorf("not named: %q", r.log)
		}
		for _, h := range []int{0, 1, 3} {
			if w.hcas[h].Port(1).LMC != 1 {
				t.Errorf("level %d: h%d has LMC %d", protect, h+1, w.hcas[h].Port(1).LMC)
			}
		}
		// The owner is gone: its lease ends after the attempts, and the port is ours.
		r.pass(200 * ib.Second)
		if w.hcas[2].Port(1).LMC != 1 {
			t.Errorf("level %d: h3 is not taken after its lease: %q", protect, r.log)
		}
	}
}

// Leases are kept while the manager lives, however often a stranger tries, and whether light sweeps run or not.
func TestMKeyLease(t *testing.T) {
	for _, interval := range []ib.Time{10 * ib.Second, -1} {
		w := build(t, spec(t, "star:4"))
		r := newRig(t, w, Config{MKey: 0x1111, MKeyProtect: 2, MKeyLease: 6, SweepInterval: interval})
		r.settle()
		for range 50 {
			r.guards(func(node int, in ib.PortNum) {
				if r.intrude(node, in, mad.MethodGet) {
					t.Fatalf("sweeps every %v: %s gave its key up after %v", interval, w.g.Nodes[node].Name, r.now)
				}
			})
			r.pass(ib.Second)
		}
		// Without the manager the protection falls.
		r.guards(func(node int, in ib.PortNum) { r.intrude(node, in, mad.MethodGet) })
		r.now += 7 * ib.Second
		r.guards(func(node int, in ib.PortNum) {
			if !r.intrude(node, in, mad.MethodGet) {
				t.Errorf("%s is guarded for ever", w.g.Nodes[node].Name)
			}
		})
	}
}
