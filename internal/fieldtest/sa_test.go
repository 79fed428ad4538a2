package fieldtest

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"softib/proto/ib"
	"softib/proto/mad"
	"softib/proto/topo"
	"softib/subnet"
	"softib/subnet/sm"
)

// record is one record of saquery's: its fields, and the text for tables.
type record struct {
	sheet
	text string
}

var dotted = regexp.MustCompile(`^\s*([^.:\t][^.:]*?):?\.+(.*)$`)

// records takes what saquery prints apart.
func records(text string) (out []record) {
	var cur *record
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		if !strings.HasPrefix(line, "\t") && (strings.HasSuffix(line, "dump:") || strings.HasSuffix(line, "Info:")) {
			out = append(out, record{sheet: sheet{}})
			cur = &out[len(out)-1]
			continue
		}
		if cur == nil {
			continue
		}
		cur.text += line + "\n"
		if m := dotted.FindStringSubmatch(line); m != nil {
			if strings.Contains(line, ":.") { // a part that libibmad prints has names of its own
				m[1] += ":"
			}
			cur.sheet[m[1]] = m[2]
		}
	}
	return out
}

// keyed lists records by some of their fields.
func keyed(t testing.TB, list []record, names ...string) map[string]record {
	t.Helper()
	out := map[string]record{}
	for _, r := range list {
		var key []string
		for _, n := range names {
			v, ok := r.sheet[n]
			if !ok {
				t.Fatalf("no field %s in:\n%s", n, r.text)
			}
			key = append(key, v)
		}
		k := strings.Join(key, "/")
		if _, twice := out[k]; twice {
			t.Errorf("record %s twice", k)
		}
		out[k] = r
	}
	return out
}

// ends visits all ports that have an address.
func (w *world) ends(f func(n *topo.Node, p int)) {
	for _, n := range w.g.Nodes {
		if n.IsSwitch() {
			f(n, 0)
			continue
		}
		for p := 1; p <= n.NumPorts(); p++ {
			if n.Ports[p].Connected() {
				f(n, p)
			}
		}
	}
}

func (w *world) nodeRecord(n *topo.Node, p int) sheet {
	caps := 128
	if n.IsSwitch() {
		caps = 32
	}
	return sheet{
		"lid": dec(w.lid(n, p)), "reserved": "0x0", "base_version": "0x1", "class_version": "0x1",
		"node_type": nodeType(n.Type),
		"num_ports": dec(n.NumPorts()), "sys_guid": hexGUID(n.SystemGUID), "node_guid": hexGUID(n.GUID),
		"port_guid":     hexGUID(n.PortGUID(ib.PortNum(p))),
		"partition_cap": fmt.Sprintf("%#x", caps), "device_id": fmt.Sprintf("0x%X", n.DeviceID), "revision": "0x0",
		"vendor_id": fmt.Sprintf("0x%X", n.VendorID), "NodeDescription": n.Desc,
	}
}

func TestSaqueryNodes(t *testing.T) {
	t.Parallel()
	w := up(t, defaultSpec)
	ask := func(args ...string) []record { return records(w.run("h3", "saquery", args...)) }
	compare := func(r record, n *topo.Node, p int) {
		t.Helper()
		got := r.sheet
		// The port by which the manager saw a node: any of a switch's, an adapter's own.
		if !n.IsSwitch() {
			same(t, n.Name+": port_num", got["port_num"], dec(p))
		}
		delete(got, "port_num")
		got.expect(t, n.Name, w.nodeRecord(n, p))
	}
	for _, args := range [][]string{nil, {"NR"}, {"-N"}, {"NodeRecord"}, {"--smkey", "1", "NR"}} {
		all := keyed(t, ask(args...), "lid")
		count := 0
		w.ends(func(n *topo.Node, p int) {
			count++
			r, ok := all[dec(w.lid(n, p))]
			if !ok {
				t.Errorf("saquery %v: no record of %s", args, n.Name)
				return
			}
			compare(r, n, p)
		})
		same(t, "records", len(all), count)
	}
	for _, n := range w.some() {
		p := endPort(n, 1)
		lid := w.lid(n, p)
		for _, args := range [][]string{{"NR", dec(lid)}, {dec(lid)}, {n.Desc}, {"-N", n.Desc}} {
			list := ask(args...)
			if len(list) != 1 {
				t.Errorf("saquery %v: %d records", args, len(list))
				continue
			}
			compare(list[0], n, p)
		}
		same(t, "saquery -L", w.run("h3", "saquery", "-L", n.Desc), fmt.Sprintf("%d\n", lid))
		same(t, "saquery -l", w.run("h3", "saquery", "-l", n.Desc), fmt.Sprintf("%d\n", lid))
		same(t, "saquery -G", w.run("h3", "saquery", "-G", n.Desc), hexGUID(n.PortGUID(ib.PortNum(p)))+"\n")
		same(t, "saquery -O", w.run("h3", "saquery", "-O", dec(lid)), n.Desc+"\n")
		same(t, "saquery -U", w.run("h3", "saquery", "-U", hexGUID(n.PortGUID(ib.PortNum(p)))), n.Desc+"\n")
	}
	var want []string
	for _, n := range w.g.Hosts() {
		want = append(want, fmt.Sprintf("%6d  %q", w.lid(n, 1), n.Desc))
	}
	_, list, _ := strings.Cut(w.run("h3", "saquery", "-D"), "================\n")
	sameLines(t, "saquery -D", lines(list), want)
	wants(t, w.fails("h3", "saquery", "nobody"), `Failed to find lid for "nobody"`)
}

// portRecord is a port as the administrator tells it.
func portRecord(pi *mad.PortInfo) sheet {
	s := sheet{}
	for name, v := range portSheet(pi, false) {
		s[name+":"] = v
	}
	return s
}

func TestSaqueryPorts(t *testing.T) {
	t.Parallel()
	w := up(t, defaultSpec)
	compare := func(r record, n *topo.Node, p int) {
		t.Helper()
		pi := w.portInfo(n, p)
		pi.ClientReregister = false
		got := sheet{}
		for k, v := range r.sheet {
			switch k {
			case "EndPortLid", "PortNum", "LocalPort:": // the last is where the manager's question came in
			case "Options":
				same(t, "Options", v, "0x0")
			default:
				got[k] = v
			}
		}
		want := portRecord(&pi)
		delete(want, "LocalPort:")
		got.expect(t, fmt.Sprintf("%s[%d]", n.Name, p), want)
	}
	for _, args := range [][]string{{"PIR"}, {"--smkey", "1", "PortInfoRecord"}} {
		all := keyed(t, records(w.run("h3", "saquery", args...)), "EndPortLid", "PortNum")
		count := 0
		for _, n := range w.g.Nodes {
			for p := endPort(n, 1); p <= n.NumPorts(); p++ {
				count++
				r, ok := all[fmt.Sprintf("%d/%d", w.lid(n, p), p)]
				if !ok {
					t.Errorf("no record of %s[%d]", n.Name, p)
					continue
				}
				compare(r, n, p)
			}
		}
		same(t, "records", len(all), count)
	}
	leaf := w.node("leaf3")
	list := records(w.run("h3", "saquery", "PIR", fmt.Sprintf("%d/5", w.lid(leaf, 0))))
	same(t, "saquery PIR LID/PORT: records", len(list), 1)
	compare(list[0], leaf, 5)
	same(t, "saquery PIR LID: records", len(records(w.run("h3", "saquery", "PIR", dec(w.lid(leaf, 0))))),
		leaf.NumPorts()+1)

	// Ports with a manager.
	out := w.run("h3", "saquery", "-s")
	head, rest, _ := strings.Cut(out, "IsSMdisabled ports")
	managers := records(head)
	same(t, "saquery -s: managers", len(managers), 1)
	pi := w.portInfo(w.node("h1"), 1)
	managers[0].sheet.expect(t, "saquery -s", sheet{"EndPortLid": dec(pi.LID), "PortNum": "1", "base_lid": dec(pi.LID),
		"master_sm_base_lid": dec(pi.MasterSMLID),
		"capability_mask":    fmt.Sprintf("0x%X", uint32(pi.CapabilityMask))})
	same(t, "saquery -s: disabled", len(records(rest)), 0)
}

func TestSaqueryLinks(t *testing.T) {
	t.Parallel()
	w := up(t, defaultSpec)
	all := func(only func(from, to *topo.Node, p int) bool) (out []string) {
		for _, n := range w.g.Nodes {
			for p := 1; p <= n.NumPorts(); p++ {
				if far, in, ok := w.peer(n, p); ok && only(n, far, p) {
					out = append(out, fmt.Sprintf("%d/%d %d/%d", w.lid(n, p), p, w.lid(far, in), in))
				}
			}
		}
		return out
	}
	ask := func(args ...string) (out []string) {
		for _, r := range records(w.run("h3", "saquery", args...)) {
			out = append(out, fmt.Sprintf("%s/%s %s/%s", r.sheet["FromLID"], r.sheet["FromPort"], r.sheet["ToLID"],
				r.sheet["ToPort"]))
		}
		return out
	}
	leaf, spine := w.node("leaf2"), w.node("spine3")
	every := all(func(_, _ *topo.Node, _ int) bool { return true })
	sameLines(t, "saquery LR", ask("LR"), every)
	sameLines(t, "saquery -x", ask("-x"), every)
	sameLines(t, "saquery LR FROM", ask("LR", dec(w.lid(leaf, 0))),
		all(func(n, _ *topo.Node, _ int) bool { return n == leaf }))
	sameLines(t, "saquery LR FROM/PORT", ask("LR", fmt.Sprintf("%d/6", w.lid(leaf, 0))),
		all(func(n, _ *topo.Node, p int) bool { return n == leaf && p == 6 }))
	sameLines(t, "saquery LR FROM TO", ask("LR", dec(w.lid(leaf, 0)), dec(w.lid(spine, 0))),
		all(func(n, m *topo.Node, _ int) bool { return n == leaf && m == spine }))
}

// cells are the numbers of a row "VL: 0| 1| 2|".
func cells(row string) (out []string) {
	for _, c := range strings.Split(strings.TrimSuffix(strings.TrimSpace(row), "|"), "|") {
		out = append(out, strings.TrimSpace(c))
	}
	return out
}

func TestSaqueryTables(t *testing.T) {
	t.Parallel()
	w := up(t, defaultSpec)
	ask := func(args ...string) []record { return records(w.run("h3", "saquery", args...)) }
	leaf, host := w.node("leaf2"), w.node("h5")
	lid, hostLID := w.lid(leaf, 0), w.lid(host, 1)

	t.Run("LFTR", func(t *testing.T) {
		w := w.in(t)
		compare := func(r record, n *topo.Node) {
			table := w.lft(n)
			rows := 0
			for line := range strings.Lines(r.text) {
				var l, port int
				if k, _ := fmt.Sscanf(line, "%d %d", &l, &port); k != 2 {
					continue
				}
				rows++
				if l < len(table) {
					same(t, fmt.Sprintf("%s: %d", n.Name, l), ib.PortNum(port), table[l])
				}
			}
			same(t, "rows", rows, 64)
		}
		all := keyed(t, ask("LFTR"), "LID", "Block")
		same(t, "records", len(all), len(w.g.Switches()))
		for _, n := range w.g.Switches() {
			compare(all[fmt.Sprintf("%d/0", w.lid(n, 0))], n)
		}
		one := ask("LFTRecord", fmt.Sprintf("%d/0", lid))
		same(t, "records", len(one), 1)
		compare(one[0], leaf)
		same(t, "a block that is not there", len(ask("LFTR", fmt.Sprintf("%d/9", lid))), 0)
	})
	t.Run("MFTR", func(t *testing.T) {
		w := w.in(t)
		compare := func(r record, n *topo.Node) {
			rows := 0
			for line := range strings.Lines(r.text) {
				var l, mask int
				if k, _ := fmt.Sscanf(strings.TrimSpace(line), "0x%x 0x%x", &l, &mask); k != 2 {
					continue
				}
				rows++
				want := 0
				for _, p := range w.mft(n, ib.LID(l)) {
					want |= 1 << p
				}
				same(t, fmt.Sprintf("%s: %#x", n.Name, l), mask, want)
			}
			same(t, "rows", rows, 32)
		}
		all := keyed(t, ask("MFTR"), "LID", "Position", "Block")
		for _, n := range w.g.Switches() {
			r, ok := all[fmt.Sprintf("%d/0/0", w.lid(n, 0))]
			if !ok {
				t.Errorf("no record of %s", n.Name)
				continue
			}
			compare(r, n)
		}
		one := ask("MFTRecord", fmt.Sprintf("%d/0/0", lid))
		same(t, "records", len(one), 1)
		compare(one[0], leaf)
	})
	t.Run("SWIR", func(t *testing.T) {
		w := w.in(t)
		compare := func(r record, n *topo.Node) {
			si := w.switchInfo(n)
			r.sheet.expect(t, n.Name, sheet{
				"LID": dec(w.lid(n, 0)), "LinearFDBCap": fmt.Sprintf("0x%X", si.LinearFDBCap),
				"RandomFDBCap":                   fmt.Sprintf("0x%X", si.RandomFDBCap),
				"MulticastFDBCap":                fmt.Sprintf("0x%X", si.MulticastFDBCap),
				"LinearFDBTop":                   fmt.Sprintf("0x%X", uint16(si.LinearFDBTop)),
				"DefaultPort":                    dec(si.DefaultPort),
				"DefaultMulticastPrimaryPort":    dec(si.DefaultMulticastPrimaryPort),
				"DefaultMulticastNotPrimaryPort": dec(si.DefaultMulticastNotPrimaryPort),
				"LifeTimeValue/PortStateChange/OpSL2VL": fmt.Sprintf("0x%X",
					si.LifeTimeValue<<3|b2i(si.PortStateChange)<<2|si.OptimizedSLtoVLMappingProgramming),
				"LIDsPerPort":             fmt.Sprintf("0x%X", si.LIDsPerPort),
				"PartitionEnforcementCap": fmt.Sprintf("0x%X", si.PartitionEnforcementCap),
				"MulticastFDBTop":         fmt.Sprintf("0x%X", uint16(si.MulticastFDBTop)),
				"flags": fmt.Sprintf("0x%X",
					b2i(si.InboundEnforcementCap)<<7|b2i(si.OutboundEnforcementCap)<<6|b2i(si.FilterRawInboundCap)<<5|
						b2i(si.FilterRawOutboundCap)<<4|b2i(si.EnhancedPortZero)<<3),
			})
		}
		all := keyed(t, ask("SWIR"), "LID")
		same(t, "records", len(all), len(w.g.Switches()))
		for _, n := range w.g.Switches() {
			compare(all[dec(w.lid(n, 0))], n)
		}
		one := ask("SWIR", dec(lid))
		same(t, "records", len(one), 1)
		compare(one[0], leaf)
	})
	t.Run("SMIR", func(t *testing.T) {
		w := w.in(t)
		self := w.node("h1")
		var info subnet.Manager
		for _, m := range w.subnet().Managers {
			if m.Port == self.PortGUID(1) {
				info = m
			}
		}
		for key, shown := range map[string]uint64{"0": 0, "1": sm.DefaultSMKey} {
			for _, args := range [][]string{{"SMIR"}, {"SMIR", dec(w.lid(self, 1))}} {
				list := ask(append([]string{"--smkey", key}, args...)...)
				same(t, "records", len(list), 1)
				list[0].sheet.expect(t, "SMInfoRecord", sheet{"LID": dec(w.lid(self, 1)),
					"GUID": hexGUID(self.PortGUID(1)), "SM_Key": hexGUID(ib.GUID(shown)),
					"ActCount": dec(info.Info.ActCount), "Priority": dec(info.Info.Priority),
					"SMState": dec(info.Info.SMState)})
			}
		}
	})
	t.Run("GIR", func(t *testing.T) {
		w := w.in(t)
		all := keyed(t, ask("GIR"), "LID", "Block")
		w.ends(func(n *topo.Node, p int) {
			r, ok := all[fmt.Sprintf("%d/0", w.lid(n, p))]
			if !ok {
				t.Errorf("no record of %s", n.Name)
				return
			}
			for i := range 8 {
				want := ib.GUID(0)
				if i == 0 {
					want = n.PortGUID(ib.PortNum(p))
				}
				same(t, fmt.Sprintf("%s: GUID %d", n.Name, i), r.sheet[fmt.Sprintf("GUID %d", i)], hexGUID(want))
			}
		})
		same(t, "records of h5", len(ask("GIR", dec(hostLID))), int(w.portInfo(host, 1).GUIDCap+7)/8)
		same(t, "a block of h5", len(ask("GIR", fmt.Sprintf("%d/2", hostLID))), 1)
	})
	t.Run("PKTR", func(t *testing.T) {
		w := w.in(t)
		compare := func(r record, n *topo.Node, p, block int) {
			_, text, _ := strings.Cut(r.text, "PKey Table:")
			table := attr[mad.PKeyTable](w, n, mad.AttrPKeyTable, mad.PKeyModifier(ib.PortNum(p), block))
			got := strings.Fields(text)
			same(t, "keys", len(got), len(table))
			for i := range min(len(got), len(table)) {
				same(t, fmt.Sprintf("%s[%d]: key %d", n.Name, p, i), got[i], fmt.Sprintf("0x%04x", uint16(table[i])))
			}
		}
		all := keyed(t, ask("--smkey", "1", "PKTR"), "LID", "Port", "Block")
		w.ends(func(n *topo.Node, p int) {
			if r, ok := all[fmt.Sprintf("%d/%d/0", w.lid(n, p), p)]; ok {
				compare(r, n, p, 0)
			} else {
				t.Errorf("no record of %s", n.Name)
			}
		})
		wants(t, w.fails("h3", "saquery", "PKTR"), "0x0200") // keys are for those who are trusted
		one := ask("--smkey", "1", "PKTR", fmt.Sprintf("%d/1/0", hostLID))
		same(t, "records", len(one), 1)
		compare(one[0], host, 1, 0)
	})
	t.Run("SL2VL", func(t *testing.T) {
		w := w.in(t)
		compare := func(r record, n *topo.Node) {
			var in, out int
			fmt.Sscan(r.sheet["InPort"], &in)
			fmt.Sscan(r.sheet["OutPort"], &out)
			table := attr[mad.SLtoVL](w, n, mad.AttrSLtoVL, mad.SLtoVLModifier(ib.PortNum(in), ib.PortNum(out)))
			_, row, _ := strings.Cut(r.text, "VL:")
			for sl, vl := range cells(row) {
				same(t, fmt.Sprintf("%s: %d to %d: lane of level %d", n.Name, in, out, sl), vl, dec(table[sl]))
			}
		}
		list := ask("SL2VL", dec(lid))
		// From every port and the switch itself, to every port.
		if least := leaf.NumPorts() * (leaf.NumPorts() + 1); len(list) < least {
			t.Errorf("%d records of %s, want %d", len(list), leaf.Name, least)
		}
		for _, r := range list {
			compare(r, leaf)
		}
		one := ask("SL2VLTableRecord", fmt.Sprintf("%d/1/2", lid))
		same(t, "records", len(one), 1)
		compare(one[0], leaf)
		of := ask("SL2VL", dec(hostLID))
		same(t, "records of a host", len(of), 1)
		compare(of[0], host)
		if all := keyed(t, ask("SL2VL"), "LID", "InPort", "OutPort"); len(all) < len(w.g.Hosts())+
			len(w.g.Switches())*8*9 {
			t.Errorf("%d records", len(all))
		}
	})
	t.Run("VLAR", func(t *testing.T) {
		w := w.in(t)
		compare := func(r record, n *topo.Node) {
			var port, block int
			fmt.Sscan(r.sheet["Port"], &port)
			fmt.Sscan(r.sheet["Block"], &block)
			table := attr[mad.VLArb](w, n, mad.AttrVLArb, mad.VLArbModifier(ib.PortNum(port), mad.VLArbBlock(block)))
			var vls, weights []string
			for line := range strings.Lines(r.text) {
				name, row, _ := strings.Cut(line, ":")
				switch strings.TrimSpace(name) {
				case "VL":
					vls = append(vls, cells(row)...)
				case "Weight":
					weights = append(weights, cells(row)...)
				}
			}
			if len(vls) != 32 || len(weights) != 32 {
				t.Fatalf("%d lanes and %d weights:\n%s", len(vls), len(weights), r.text)
			}
			for i, e := range table {
				same(t, fmt.Sprintf("%s[%d] block %d: %d", n.Name, port, block, i), vls[i]+" "+weights[i],
					fmt.Sprintf("%d %d", e.VL, e.Weight))
			}
		}
		list := ask("VLAR", dec(lid))
		if len(list) < leaf.NumPorts()*4 {
			t.Errorf("%d records of %s, want %d", len(list), leaf.Name, leaf.NumPorts()*4)
		}
		for _, r := range list {
			if r.sheet["Port"] != "0" { // where nothing is arbitrated
				compare(r, leaf)
			}
		}
		one := ask("VLAR", fmt.Sprintf("%d/1/3", hostLID))
		same(t, "records", len(one), 1)
		compare(one[0], host)
	})
}

func b2i(b bool) uint8 {
	if b {
		return 1
	}
	return 0
}
