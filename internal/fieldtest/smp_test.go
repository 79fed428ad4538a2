package fieldtest

import (
	stdhex "encoding/hex"
	"fmt"
	"strings"
	"testing"

	"softib/capi/umad"
	"softib/proto/ib"
	"softib/proto/mad"
	"softib/proto/topo"
	"softib/subnet/sm"
)

// asking is a way to name a node to a program, as seen from h1.
type asking struct {
	name string
	args []string
}

// ways are the ways to ask a node's port p: by address, by GUID, along a directed route.
func (w *world) ways(n *topo.Node, p int) []asking {
	self := w.node("h1")
	return []asking{
		{"LID", []string{dec(w.lid(n, p))}},
		{"GUID", []string{"-G", hexGUID(n.PortGUID(ib.PortNum(endPort(n, p))))}},
		{"directed", []string{"-D", w.route(self, n)}},
	}
}

func hexGUID(g ib.GUID) string { return fmt.Sprintf("0x%016x", uint64(g)) }

// arrival is the port by which what h1 sends comes to a node: along the tables, or along a directed route.
func (w *world) arrival(n *topo.Node, way asking) int {
	w.Helper()
	self := w.node("h1")
	if n == self {
		return 1
	}
	if way.name == "directed" {
		at, in := self, 1
		for _, hop := range strings.Split(way.args[1], ",")[1:] {
			var out int
			fmt.Sscan(hop, &out)
			at, in, _ = w.peer(at, out)
		}
		return in
	}
	path, ok := w.walk(self, 1, w.lid(n, 1))
	if !ok {
		w.Fatalf("no way from h1 to %s", n.Name)
	}
	return path[len(path)-1].in
}

// some are nodes of every kind at every distance: the asking host itself, another at its switch, one far away, a leaf
// and a spine.
func (w *world) some() []*topo.Node {
	return []*topo.Node{w.node("h1"), w.node("h2"), w.node("h32"), w.node("leaf1"), w.node("leaf8"), w.node("spine3")}
}

func TestSmpquery(t *testing.T) {
	t.Parallel()
	w := up(t, defaultSpec)
	query := func(w *world, way asking, op string, more ...string) string {
		args := append([]string{}, way.args[:len(way.args)-1]...)
		return w.run("h1", "smpquery", append(append(args, op, way.args[len(way.args)-1]), more...)...)
	}
	for _, n := range w.some() {
		for _, way := range w.ways(n, 1) {
			t.Run(n.Name+"/"+way.name, func(t *testing.T) {
				t.Parallel()
				w := w.in(t)
				in := w.arrival(n, way)
				read(t, query(w, way, "NodeInfo")).expect(t, "NodeInfo", nodeSheet(n, in))
				same(t, "NodeDesc", strings.TrimLeft(strings.TrimPrefix(query(w, way, "NodeDesc"), "Node Description:"),
					"."), n.Desc+"\n")
				for p := endPort(n, 1); p <= min(n.NumPorts(), 5); p++ {
					pi := w.portInfo(n, p)
					pi.LocalPortNum = ib.PortNum(in)
					read(t, query(w, way, "PortInfo", dec(p))).expect(t, fmt.Sprintf("PortInfo %d", p),
						portSheet(&pi, false))
				}
				if n.IsSwitch() {
					si := w.switchInfo(n)
					read(t, query(w, way, "SwitchInfo")).expect(t, "SwitchInfo", switchSheet(&si))
				}
			})
		}
	}
}

func switchSheet(si *mad.SwitchInfo) sheet {
	return sheet{
		"LinearFdbCap": dec(si.LinearFDBCap), "RandomFdbCap": dec(si.RandomFDBCap),
		"McastFdbCap":  dec(si.MulticastFDBCap),
		"LinearFdbTop": dec(si.LinearFDBTop), "DefPort": dec(si.DefaultPort),
		"DefMcastPrimPort":    dec(si.DefaultMulticastPrimaryPort),
		"DefMcastNotPrimPort": dec(si.DefaultMulticastNotPrimaryPort), "LifeTime": dec(si.LifeTimeValue),
		"StateChange":      bit(si.PortStateChange),
		"OptSLtoVLMapping": dec(si.OptimizedSLtoVLMappingProgramming), "LidsPerPort": dec(si.LIDsPerPort),
		"PartEnforceCap": dec(si.PartitionEnforcementCap),
		"InboundPartEnf": bit(si.InboundEnforcementCap), "OutboundPartEnf": bit(si.OutboundEnforcementCap),
		"FilterRawInbound": bit(si.FilterRawInboundCap), "FilterRawOutbound": bit(si.FilterRawOutboundCap),
		"EnhancedPort0": bit(si.EnhancedPortZero), "MulticastFDBTop": hexWords(si.MulticastFDBTop),
	}
}

func hexWords(l ib.LID) string { return fmt.Sprintf("0x%04x", uint16(l)) }

func TestSmpqueryTables(t *testing.T) {
	t.Parallel()
	w := up(t, defaultSpec)
	// The manager leaves these tables as they are; here are some that tell ports, lanes and levels apart.
	for _, n := range []*topo.Node{w.node("h5"), w.node("leaf2")} {
		for p := 1; p <= n.NumPorts(); p++ {
			w.write(n, mad.AttrPKeyTable, mad.PKeyModifier(ib.PortNum(p), 0),
				(&mad.PKeyTable{0xFFFF, ib.PKey(0x8000 + n.Index*16 + p), 0x0123, 31: 0x7FFF}).Append(nil))
			w.write(n, mad.AttrVLArb, mad.VLArbModifier(ib.PortNum(p), mad.VLArbLow0),
				(&mad.VLArb{{VL: ib.VL(p % 8), Weight: uint8(10 + p)}, {VL: 3, Weight: 255}}).Append(nil))
			w.write(n, mad.AttrVLArb, mad.VLArbModifier(ib.PortNum(p), mad.VLArbHigh1),
				(&mad.VLArb{31: {VL: ib.VL(p % 8), Weight: uint8(p)}}).Append(nil))
			for in := 0; in <= n.NumPorts(); in++ {
				var m mad.SLtoVL
				for sl := range m {
					m[sl] = ib.VL((sl + in + p) % 8)
				}
				w.write(n, mad.AttrSLtoVL, mad.SLtoVLModifier(ib.PortNum(in), ib.PortNum(p)), m.Append(nil))
				if !n.IsSwitch() {
					break
				}
			}
		}
	}
	for _, n := range []*topo.Node{w.node("h5"), w.node("leaf2")} {
		for p := 1; p <= min(n.NumPorts(), 3); p++ {
			for _, way := range w.ways(n, 1) {
				t.Run(fmt.Sprintf("%s/%d/%s", n.Name, p, way.name), func(t *testing.T) {
					t.Parallel()
					w := w.in(t)
					ask := func(op string) string {
						args := append(append([]string{}, way.args[:len(way.args)-1]...), op, way.args[len(way.args)-1],
							dec(p))
						return w.run("h1", "smpquery", args...)
					}
					w.comparePKeys(n, p, ask("PKeyTable"))
					w.compareSL2VL(n, p, ask("SL2VLTable"))
					w.compareVLArb(n, p, ask("VLArbitration"))
					ext := attr[mad.PortInfoExt](w, n, mad.AttrPortInfoExtended, uint32(p))
					read(t, ask("PortInfoExtended")).expect(t, "PortInfoExtended", extSheet(&ext))
					mlnx := attr[mad.MlnxExtPortInfo](w, n, mad.AttrMlnxExtPortInfo, uint32(p))
					read(t, ask("MEPI")).expect(t, "MlnxExtPortInfo", sheet{
						"StateChangeEnable":  fmt.Sprintf("0x%02x", mlnx.StateChangeEnable),
						"LinkSpeedSupported": fmt.Sprintf("0x%02x", mlnx.LinkSpeedSupported),
						"LinkSpeedEnabled":   fmt.Sprintf("0x%02x", mlnx.LinkSpeedEnabled),
						"LinkSpeedActive":    fmt.Sprintf("0x%02x", mlnx.LinkSpeedActive),
					})
				})
			}
		}
	}
	for _, n := range w.some() {
		t.Run(n.Name+"/GUIDInfo", func(t *testing.T) {
			t.Parallel()
			w := w.in(t)
			caps := int(w.portInfo(n, endPort(n, 1)).GUIDCap)
			out := w.run("h1", "smpquery", "GUIDInfo", dec(w.lid(n, 1)))
			wants(t, out, fmt.Sprintf("%d guids capacity for this port\n", caps))
			var got []string
			for line := range strings.Lines(out) {
				if at, rest, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(at) != "" {
					got = append(got, strings.Fields(rest)...)
				}
			}
			for i, g := range got {
				want := ib.GUID(0)
				if i == 0 {
					want = n.PortGUID(ib.PortNum(endPort(n, 1)))
				}
				same(t, fmt.Sprintf("GUID %d", i), g, hexGUID(want))
			}
			if len(got) < caps {
				t.Errorf("%d GUIDs, want %d", len(got), caps)
			}
		})
	}
}

// write sets an attribute of a node, without any packet or program in between.
func (w *world) write(n *topo.Node, id mad.AttrID, mod uint32, data []byte) {
	w.Helper()
	r := mad.SMP{Method: mad.MethodSet, Attr: id, Modifier: mod, Directed: true, Data: data}
	b, err := r.Append(nil)
	if err != nil {
		w.Fatal(err)
	}
	var resp [mad.Size]byte
	if !w.SMP(n.Index, 0, (*[mad.Size]byte)(b), &resp) || mad.View(resp[:]).Status() != 0 {
		w.Fatalf("%s refuses attribute %#x, modifier %#x: status %v", n.Name, id, mod, mad.View(resp[:]).Status())
	}
}

func (w *world) comparePKeys(n *topo.Node, p int, text string) {
	w.Helper()
	caps := 128
	if n.IsSwitch() {
		caps = 32
	}
	wants(w, text, fmt.Sprintf("%d pkeys capacity for this port\n", caps))
	var got []string
	for line := range strings.Lines(text) {
		if _, rest, ok := strings.Cut(line, ":"); ok {
			got = append(got, strings.Fields(rest)...)
		}
	}
	if len(got) != caps {
		w.Fatalf("%d keys, want %d:\n%s", len(got), caps, text)
	}
	for i, k := range got {
		table := attr[mad.PKeyTable](w, n, mad.AttrPKeyTable, mad.PKeyModifier(ib.PortNum(p), i/32))
		same(w, fmt.Sprintf("P_Key %d", i), k, fmt.Sprintf("0x%04x", uint16(table[i%32])))
	}
}

func (w *world) compareSL2VL(n *topo.Node, p int, text string) {
	w.Helper()
	rows := 0
	for line := range strings.Lines(text) {
		var in, out int
		if k, _ := fmt.Sscanf(line, "ports: in %d, out %d:", &in, &out); k != 2 {
			continue
		}
		rows++
		if n.IsSwitch() { // of another node smpquery asks for port 0's, which is that of the port that is asked
			same(w, "out", out, p)
		}
		_, cells, _ := strings.Cut(line, "|")
		for sl, vl := range strings.Split(strings.TrimSuffix(strings.TrimSpace(cells), "|"), "|") {
			table := attr[mad.SLtoVL](w, n, mad.AttrSLtoVL, mad.SLtoVLModifier(ib.PortNum(in), ib.PortNum(p)))
			same(w, fmt.Sprintf("in %d, out %d: lane of level %d", in, out, sl), strings.TrimSpace(vl), dec(table[sl]))
		}
	}
	want := 1
	if n.IsSwitch() {
		want = n.NumPorts() + 1
	}
	same(w, "rows", rows, want)
}

func (w *world) compareVLArb(n *topo.Node, p int, text string) {
	w.Helper()
	pi := w.portInfo(n, p)
	wants(w, text, fmt.Sprintf("LowCap %d HighCap %d\n", pi.VLArbitrationLowCap, pi.VLArbitrationHighCap))
	var vls, weights [][]string
	for line := range strings.Lines(text) {
		name, cells, ok := strings.Cut(line, ": |")
		if !ok {
			continue
		}
		var row []string
		for _, c := range strings.Split(strings.TrimSuffix(strings.TrimSpace(cells), "|"), "|") {
			row = append(row, strings.TrimSpace(c))
		}
		switch strings.TrimSpace(name) {
		case "VL":
			vls = append(vls, row)
		case "WEIGHT":
			weights = append(weights, row)
		}
	}
	if len(vls) != 4 || len(weights) != 4 {
		w.Fatalf("%d rows of lanes and %d of weights, want 4:\n%s", len(vls), len(weights), text)
	}
	for b, block := range []mad.VLArbBlock{mad.VLArbLow0, mad.VLArbLow1, mad.VLArbHigh0, mad.VLArbHigh1} {
		table := attr[mad.VLArb](w, n, mad.AttrVLArb, mad.VLArbModifier(ib.PortNum(p), block))
		for i, e := range table {
			same(w, fmt.Sprintf("block %d, entry %d", b+1, i), vls[b][i]+" "+weights[b][i],
				fmt.Sprintf("0x%X 0x%X", uint8(e.VL), e.Weight))
		}
	}
}

// extSheet is all of a PortInfoExtended. libibmad takes the fields of HDR and NDR from the other half of their
// 32-bit words than where they are: what it calls HDR supported is EDR enabled, and so on.
func extSheet(x *mad.PortInfoExt) sheet {
	h := func(v uint16) string { return fmt.Sprintf("0x%04x", v) }
	return sheet{
		"CapMask": fmt.Sprintf("0x%08x", x.CapMask), "FECModeActive": dec(x.FECModeActive),
		"FDRFECModeSupported": h(x.FDRFECModeSupported), "FDRFECModeEnabled": h(x.FDRFECModeEnabled),
		"EDRFECModeSupported": h(x.EDRFECModeSupported), "EDRFECModeEnabled": h(x.EDRFECModeEnabled),
		"HDRFECModeSupported": h(x.EDRFECModeEnabled), "HDRFECModeEnabled": h(x.NDRFECModeSupported),
		"NDRFECModeSupported": h(x.HDRFECModeEnabled), "NDRFECModeEnabled": h(0),
	}
}

// A combined route goes by address to a switch and by ports from there.
func TestSmpqueryCombined(t *testing.T) {
	t.Parallel()
	w := up(t, defaultSpec)
	leaf := w.node("leaf3")
	for p := 1; p <= leaf.NumPorts(); p++ {
		far, in, _ := w.peer(leaf, p)
		read(t, w.run("h1", "smpquery", "-c", "nodeinfo", dec(w.lid(leaf, 0)), fmt.Sprintf("0,%d", p))).expect(t,
			"NodeInfo", nodeSheet(far, in))
	}
}

// Keys are shown to those who ask for them and know them.
func TestSmpqueryKeys(t *testing.T) {
	t.Parallel()
	const key = 0x1234ABCD
	w := up(t, defaultSpec, func(c *sm.Config) { c.MKey = key })
	n := w.node("h7")
	pi := w.portInfo(n, 1)
	pi.MKey, pi.LocalPortNum = key, 1
	out := w.run("h1", "smpquery", "-K", "-y", hexGUID(key), "portinfo", dec(w.lid(n, 1)), "1")
	read(t, out).expect(t, "PortInfo", portSheet(&pi, true))
}

func TestSmpdump(t *testing.T) {
	t.Parallel()
	w := up(t, defaultSpec)
	attrs := []struct {
		id       mad.AttrID
		mod      uint32
		switches bool // only
	}{
		{mad.AttrNodeDescription, 0, false}, {mad.AttrPortInfo, 1, false}, {mad.AttrGUIDInfo, 0, false},
		{mad.AttrPKeyTable, 0, false}, {mad.AttrSwitchInfo, 0, true}, {mad.AttrLFT, 0, true}, {mad.AttrMFT, 0, true},
	}
	for _, n := range []*topo.Node{w.node("h1"), w.node("h9"), w.node("spine2")} {
		for _, a := range attrs {
			if a.switches && !n.IsSwitch() {
				continue
			}
			for _, way := range w.ways(n, 1) {
				if way.name == "GUID" {
					continue // smpdump has none
				}
				args := append(append([]string{}, way.args...), fmt.Sprintf("%#x", uint16(a.id)), fmt.Sprint(a.mod))
				out := w.run("h1", "smpdump", args...)
				text, _, _ := strings.Cut(out, "SMP status") // which it adds for directed routes
				got, err := stdhex.DecodeString(strings.Join(strings.Fields(text), ""))
				if err != nil {
					t.Fatalf("smpdump %v: %v\n%s", args, err, out)
				}
				want := append([]byte(nil), w.smp(n, a.id, a.mod)...)
				if a.id == mad.AttrPortInfo {
					want[28] = byte(w.arrival(n, way)) // LocalPortNum
				}
				same(t, fmt.Sprintf("smpdump %v", args), stdhex.EncodeToString(got), stdhex.EncodeToString(want))
			}
		}
		wants(t, w.run("h1", "smpdump", "-s", dec(w.lid(n, 1)), "0x10"), n.Desc)
	}
}

func TestIbaddr(t *testing.T) {
	t.Parallel()
	w := up(t, defaultSpec, func(c *sm.Config) { c.LMC = 2 })
	for _, n := range w.some() {
		pi := w.portInfo(n, endPort(n, 1))
		first, last := int(pi.LID), int(pi.LID)+1<<pi.LMC-1
		g := shortGID(gid(n, 1))
		for _, way := range w.ways(n, 1) {
			same(t, n.Name, w.run("h1", "ibaddr", way.args...),
				fmt.Sprintf("GID %s LID start %#x end %#x\n", g, first, last))
		}
		by := dec(pi.LID)
		same(t, n.Name+" -l", w.run("h1", "ibaddr", "-l", by), fmt.Sprintf("LID start %#x end %#x\n", first, last))
		same(t, n.Name+" -L", w.run("h1", "ibaddr", "-L", by), fmt.Sprintf("LID start %d end %d\n", first, last))
		same(t, n.Name+" -g", w.run("h1", "ibaddr", "-g", by), fmt.Sprintf("GID %s \n", g))
		if !n.IsSwitch() {
			same(t, n.Name+" alone", w.run(n.Name, "ibaddr"),
				fmt.Sprintf("GID %s LID start %#x end %#x\n", g, first, last))
		}
	}
}

func TestIbstat(t *testing.T) {
	t.Parallel()
	w := up(t, defaultSpec)
	for _, n := range []*topo.Node{w.node("h1"), w.node("h20"), w.node("leaf4")} {
		p := endPort(n, 1)
		pi := w.portInfo(n, p)
		count := 1
		head := fmt.Sprintf("CA 'softib0'\n\tCA type: %s\n\tNumber of ports: %d\n\tFirmware version: %s\n"+
			"\tHardware version: %s\n"+
			"\tNode GUID: %s\n\tSystem image GUID: %s\n", umad.Model, count, firmware, umad.Hardware, hexGUID(n.GUID),
			hexGUID(n.SystemGUID))
		port := []string{
			fmt.Sprintf("Port %d:", p), "State: " + portState(pi.PortState), "Physical state: " +
				physState(pi.PortPhysicalState),
			fmt.Sprintf("Rate: %d", gigabits(pi.Rate())), fmt.Sprintf("Base lid: %d", pi.LID),
			fmt.Sprintf("LMC: %d", pi.LMC),
			fmt.Sprintf("SM lid: %d", pi.MasterSMLID), fmt.Sprintf("Capability mask: 0x%08x",
				uint32(pi.CapabilityMask)),
			"Port GUID: " + hexGUID(n.PortGUID(ib.PortNum(p))), "Link layer: InfiniBand",
		}
		same(t, "ibstat -l", w.run(n.Name, "ibstat", "-l"), "softib0\n")
		same(t, "ibstat -p", w.run(n.Name, "ibstat", "-p"), hexGUID(n.PortGUID(ib.PortNum(p)))+"\n")
		if n.IsSwitch() {
			continue // ibstat shows ports from 1 on
		}
		same(t, "ibstat", w.run(n.Name, "ibstat"), head+"\t"+strings.Join(port, "\n\t\t")+"\n")
		same(t, "ibstat -s", w.run(n.Name, "ibstat", "-s"), head)
		same(t, "ibstat softib0", w.run(n.Name, "ibstat", "softib0"), head+"\t"+strings.Join(port, "\n\t\t")+"\n")
		same(t, "ibstat softib0 1", w.run(n.Name, "ibstat", "softib0", "1"), "CA: 'softib0'\n"+strings.Join(port, "\n")+
			"\n")
	}
	wants(t, w.fails("h1", "ibstat", "mlx5_0"), "mlx5_0")
}

// gigabits is a link's rate as sysfs rounds it.
func gigabits(r ib.LinkRate) int { return int(r.Mbps() / 1000) }

func TestSminfo(t *testing.T) {
	t.Parallel()
	w := up(t, defaultSpec, func(c *sm.Config) { c.Priority = 5 })
	self, other := w.node("h1"), w.node("h9")
	standby := w.manage(ref(other, 1), sm.Config{Priority: 2})
	standby.wait(t, "the second manager to stand by", func(m *sm.Manager) bool { return m.State() == mad.SMStandby })
	last := map[*topo.Node]int{}
	check := func(text string, of *topo.Node, lid ib.LID, m *manager, priority int, word string) {
		t.Helper()
		var num, act, prio, state int
		var guid uint64
		var got string
		if _, err := fmt.Sscanf(text, "sminfo: sm lid %d sm guid 0x%x, activity count %d priority %d state %d %s\n",
			&num, &guid, &act, &prio, &state, &got); err != nil {
			t.Fatalf("%v in %q", err, text)
		}
		var want mad.SMState
		_ = m.Do(func(m *sm.Manager) { want = m.State() })
		same(t, "lid", ib.LID(num), lid)
		same(t, "guid", ib.GUID(guid), of.PortGUID(1))
		same(t, "priority", prio, priority)
		same(t, "state", state, int(want))
		same(t, "word", got, word)
		if act < last[of] {
			t.Errorf("activity count %d after %d", act, last[of])
		}
		last[of] = act
	}
	lid := w.lid(self, 1)
	check(w.run("h1", "sminfo"), self, lid, w.sm, 5, "SMINFO_MASTER")
	check(w.run("h30", "sminfo"), self, lid, w.sm, 5, "SMINFO_MASTER")
	check(w.run("h30", "sminfo", dec(lid)), self, lid, w.sm, 5, "SMINFO_MASTER")
	check(w.run("h30", "sminfo", "-G", hexGUID(self.PortGUID(1))), self, lid, w.sm, 5, "SMINFO_MASTER")
	check(w.run("h30", "sminfo", "-D", w.route(w.node("h30"), self)), self, 0, w.sm, 5, "SMINFO_MASTER")
	check(w.run("h30", "sminfo", dec(w.lid(other, 1))), other, w.lid(other, 1), standby, 2, "SMINFO_STANDBY")

	// sminfo sends its commands without the managers' key: who does not know that key cannot command them.
	for _, command := range []int{1, 2, 3, 4, 5} {
		out := w.fails("h30", "sminfo", "-s", "0", "-p", "15", "-a", "7", dec(w.lid(other, 1)), dec(command))
		wants(t, out, "failed")
	}
	check(w.run("h30", "sminfo", dec(w.lid(other, 1))), other, w.lid(other, 1), standby, 2, "SMINFO_STANDBY")
	check(w.run("h30", "sminfo"), self, lid, w.sm, 5, "SMINFO_MASTER")
	wants(t, w.fails("h30", "sminfo", "-t", "100", dec(w.lid(w.node("h2"), 1))), "failed") // nobody manages there
}
