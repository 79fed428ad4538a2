package ibsim

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"softib/proto/ib"
	"softib/proto/mad"
	"softib/subnet/policy"
)

// preload is where Debian and others have ibsim's library for programs on libibumad.
var preload = []string{"/usr/lib/x86_64-linux-gnu/umad2sim/libumad2sim.so",
	"/usr/lib/aarch64-linux-gnu/umad2sim/libumad2sim.so",
	"/usr/lib64/umad2sim/libumad2sim.so", "/usr/local/lib/umad2sim/libumad2sim.so"}

// runOpenSM lets OpenSM bring the simulator's fabric up once.
func (s *simulator) runOpenSM(t testing.TB, host string, args ...string) {
	t.Helper()
	path := "/usr/sbin/opensm" // where not every user looks
	if _, err := os.Stat(path); err != nil {
		t.Fatal("no opensm on this machine; next: make test, which installs it")
	}
	lib := slices.IndexFunc(preload, func(f string) bool { _, err := os.Stat(f); return err == nil })
	if lib < 0 {
		t.Fatal("no libumad2sim.so on this machine; next: make test, which installs ibsim-utils")
	}
	dir := t.TempDir()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, append([]string{"-o", "-f", filepath.Join(dir, "log")}, args...)...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "LD_PRELOAD="+preload[lib], "IBSIM_SOCKNAME="+s.cfg.Socket, "SIM_HOST="+host,
		"OSM_CACHE_DIR="+dir, "OSM_TMP_DIR="+dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("opensm: %v\n%s", err, out)
	}
}

// TestPartitionsAsOpenSM gives partition files to OpenSM and to package policy, and holds the P_Key tables that OpenSM
// left in the fabric against what policy makes of the file.
func TestPartitionsAsOpenSM(t *testing.T) {
	g := parseSpec(t, "star:6")
	guid := func(i int) string { return fmt.Sprintf("0x%x", uint64(g.Nodes[i].GUID)+1) }
	for name, file := range map[string]string{
		"no rule for the default partition": "a=0x10 : " + guid(1) + "=full, " + guid(2) + " ;",
		"default for a few":                 "Default=0x7fff : " + guid(3) + "=full ;",
		"merged by number": "a=0x10 : " + guid(1) + "=full ;\nb=0x8010 : " + guid(2) + "=full, " +
			guid(1) + "=limited ;",
		"merged by name": "a : " + guid(1) + "=full ;\na : " + guid(2) + "=full ;",
		"numbers given in order": "a : " + guid(1) + "=full ;\nb : " + guid(1) +
			"=full ;\nc=0x3 : ALL=full ;\nd : " + guid(1) + " ;\n",
		"default membership": "a=5,defmember=full : " + guid(1) + ", " + guid(2) + "=limi, " + guid(3) +
			"=f ;",
		"words for ports": "a=5 : ALL_CAS=full ;\nb=6 : ALL_SWITCHES=full, SELF ;\nc=7,ipoib : ALL, SELF=full ;\n" +
			"d=8 : NONE ;\ne=9 : A=full;",
		"both without leave": "a=5 : " + guid(1) + "=both ;",
		"later entries replace": "a=5 : ALL=full, " + guid(1) + "=limited, " + guid(2) +
			"=limited, ALL_CAS=full, " + guid(3) + "=limited ;",
		"index 0": "a=5,indx0 : ALL=full ;",
		"decimal": "a=10 : " + fmt.Sprint(uint64(g.Nodes[1].GUID)+1) + "=full ;\n0x77 : " +
			guid(2) + ";",
		"lines": "a=5,ipoib:\n\tmgid=ff12:401b::16 # IGMP\n\t" + guid(1) + "=full\n\t" +
			guid(2) + "=full,\n\t" + guid(3) + ";b=6 : ALL ; # end\n",
		"an empty file": "# nothing\n",
	} {
		t.Run(name, func(t *testing.T) {
			parts, warnings, err := policy.ParsePartitions("partitions.conf", []byte(file))
			if err != nil || len(warnings) > 0 {
				t.Fatal(err, warnings)
			}
			s := startSim(t, g)
			conf := filepath.Join(t.TempDir(), "partitions.conf")
			if err := os.WriteFile(conf, []byte(file), 0o600); err != nil {
				t.Fatal(err)
			}
			s.runOpenSM(t, nodeID(g.Nodes[0]), "-P", conf)

			var facts []policy.PortFacts
			for i, n := range g.Nodes {
				f := policy.PortFacts{GUID: n.GUID, Type: n.Type, IsSelf: i == 0}
				if !n.IsSwitch() {
					f.GUID++ // as ibsim numbers ports
				}
				facts = append(facts, f)
			}
			resolved := parts.Resolve(facts, policy.ResolveOptions{})
			want := policy.Keys(resolved)

			p := s.dial(t, nodeID(g.Nodes[0]))
			paths := routes(g, 0)
			got := make([][]ib.PKey, len(g.Nodes))
			newAsker(t, p).run(8, func(i int, m *[mad.Size]byte) bool {
				if i == len(g.Nodes) {
					return false
				}
				smp(m, mad.AttrPKeyTable, 0, uint64(i), paths[i])
				return true
			}, func(tid uint64, m mad.View) {
				for b := m.Data(); len(b) >= 2; b = b[2:] {
					got[tid] = append(got[tid], ib.PKey(binary.BigEndian.Uint16(b)))
				}
			})
			for i, n := range g.Nodes {
				first := got[i][0]
				keys := slices.DeleteFunc(got[i], func(k ib.PKey) bool { return !k.IsValid() })
				slices.Sort(keys)
				expect := slices.Clone(want[facts[i].GUID])
				if len(resolved) > 1 && resolved[1].Index0 && len(expect) > 0 && first != expect[0] {
					t.Errorf("%s: OpenSM put %v at index 0, we would %v", n.Name, first, expect[0])
				}
				slices.Sort(expect)
				if !slices.Equal(keys, expect) {
					t.Errorf("%s: OpenSM gave it %v, we would %v", n.Name, keys, expect)
				}
			}
		})
	}
}

// TestQoSAsOpenSM gives QoS options to OpenSM and to package policy, and holds the tables that OpenSM left against
// PortQoS. ibsim keeps no high limit.
func TestQoSAsOpenSM(t *testing.T) {
	g := parseSpec(t, "star:4")
	for name, file := range map[string]string{
		"defaults": "qos TRUE\n",
		"for all": "qos TRUE\nqos_vlarb_high 1:7,2:9\nqos_vlarb_low 0:255,3:1\n" +
			"qos_sl2vl 3,2,1,0,3,2,1,0,3,2,1,0,3,2,15,1\n",
		"by kind": "qos TRUE\nqos_sl2vl 1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1\n" +
			"qos_ca_sl2vl 2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,15\n" +
			"qos_swe_vlarb_low 2:64,2:32\nqos_ca_vlarb_high 0:1,1:2,2:3,3:4\n",
		"a short list": "qos TRUE\nqos_ca_sl2vl 3,2,1,\n",
	} {
		t.Run(name, func(t *testing.T) {
			conf, _, err := policy.ParseConfig("opensm.conf", []byte(file))
			if err != nil {
				t.Fatal(err)
			}
			s := startSim(t, g)
			path := filepath.Join(t.TempDir(), "opensm.conf")
			if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
				t.Fatal(err)
			}
			s.runOpenSM(t, nodeID(g.Nodes[0]), "-F", path)
			p := s.dial(t, nodeID(g.Nodes[0]))
			paths := routes(g, 0)
			get := func(node int, attr mad.AttrID, mod uint32) (data []byte) {
				newAsker(t, p).run(1, func(i int, m *[mad.Size]byte) bool {
					smp(m, attr, mod, 1, paths[node])
					return i == 0
				}, func(_ uint64, m mad.View) {
					if m.Status() != 0 {
						t.Fatalf("%v", mad.Dump(m))
					}
					data = slices.Clone(m.Data())
				})
				return data
			}
			for node, kind := range map[int]policy.PortKind{1: policy.QoSCA, 4: policy.QoSSwitchPort} {
				want := conf.PortQoS(kind)
				port := uint32(0)
				if g.Nodes[node].IsSwitch() {
					port = 2
				}
				var info mad.PortInfo
				if _, err := info.Parse(get(node, mad.AttrPortInfo, port)); err != nil {
					t.Fatal(err)
				}
				// OpenSM leaves out the bits of lanes that a port does not have.
				mask := ib.VL(info.OperationalVLs.VLs() - 1)
				var sl2vl mad.SLtoVL
				mod := uint32(0)
				if port != 0 {
					mod = 1<<8 | port
				}
				if _, err := sl2vl.Parse(get(node, mad.AttrSLtoVL, mod)); err != nil {
					t.Fatal(err)
				}
				for sl, vl := range sl2vl {
					w := want.SL2VL[sl]
					if w != ib.VLMgmt {
						w &= mask
					}
					if vl != w {
						t.Errorf("%v: SL %d goes to VL %d, want %d", kind, sl, vl, w)
					}
				}
				for block, list := range map[uint32][]policy.VLWeight{1: want.VLArbLow, 3: want.VLArbHigh} {
					n := min(int(info.VLArbitrationLowCap), 32)
					if block == 3 {
						n = min(int(info.VLArbitrationHighCap), 32)
					}
					data := get(node, mad.AttrVLArb, block<<16|port)
					for i := range n {
						w := policy.VLWeight{}
						if i < len(list) {
							w = list[i]
							w.VL &= mask
						}
						if got := (policy.VLWeight{VL: ib.VL(data[2*i] & 15), Weight: data[2*i+1]}); got != w {
							t.Errorf("%v: arbitration block %d entry %d is %v, want %v", kind, block, i, got, w)
						}
					}
				}
			}
		})
	}
}
