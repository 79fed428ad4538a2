package fieldtest

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"softib/proto/ib"
	"softib/proto/mad"
	"softib/proto/topo"
	"softib/subnet/sm"
)

// tally is what a port should have counted.
type tally struct {
	ib.Counters
	vlRcvPkts, vlRcvData, slXmit, slRcv [16]uint64
	// shut: the link is down and has no FEC.
	shut bool
}

// dgram adds datagrams that a port sent or received.
func (c *tally) dgram(count int, sent bool, sl ib.SL, vl ib.VL, multicast bool, words uint64) {
	n := uint64(count)
	pkts, data, uni, multi := ib.PortRcvPkts, ib.PortRcvData, ib.PortUnicastRcvPkts, ib.PortMulticastRcvPkts
	if sent {
		pkts, data, uni, multi = ib.PortXmitPkts, ib.PortXmitData, ib.PortUnicastXmitPkts, ib.PortMulticastXmitPkts
	}
	c.Counters[pkts] += n
	c.Counters[data] += n * words
	if multicast {
		c.Counters[multi] += n
	} else {
		c.Counters[uni] += n
	}
	if sent {
		c.slXmit[sl] += n * words
	} else {
		c.slRcv[sl] += n * words
		c.vlRcvPkts[vl] += n
		c.vlRcvData[vl] += n * words
	}
}

// sheets are what perfquery shows of a port, by option.
func (c *tally) sheets(port int) map[string]sheet {
	head := func(s sheet) sheet {
		s["PortSelect"], s["CounterSelect"] = dec(port), "0x0000"
		return s
	}
	some := func(list ...ib.Counter) sheet {
		s := sheet{}
		for _, k := range list {
			s[k.String()] = dec(c.Counters[k])
		}
		return head(s)
	}
	each := func(name string, v [16]uint64, count int) sheet {
		s := sheet{}
		for i := range count {
			s[fmt.Sprintf("%s%d", name, i)] = dec(v[i])
		}
		return head(s)
	}
	errors := []ib.Counter{
		ib.SymbolErrorCounter, ib.LinkErrorRecoveryCounter, ib.LinkDownedCounter, ib.PortRcvErrors,
		ib.PortRcvRemotePhysicalErrors,
		ib.PortRcvSwitchRelayErrors, ib.PortXmitDiscards, ib.PortXmitConstraintErrors, ib.PortRcvConstraintErrors,
		ib.LocalLinkIntegrityErrors,
		ib.ExcessiveBufferOverrunErrors, ib.VL15Dropped,
	}
	data := []ib.Counter{ib.PortXmitData, ib.PortRcvData, ib.PortXmitPkts, ib.PortRcvPkts}
	plain := some(append(append([]ib.Counter{ib.PortXmitWait, ib.QP1Dropped}, errors...), data...)...)
	plain["CounterSelect2"] = "0x00"
	ext := some(append(append([]ib.Counter{ib.PortUnicastXmitPkts, ib.PortUnicastRcvPkts, ib.PortMulticastXmitPkts,
		ib.PortMulticastRcvPkts, ib.PortXmitWait, ib.QP1Dropped}, errors...), data...)...)
	ext["CounterSelect2"] = "0x00000000"
	var zero [16]uint64
	sum := func(v [16]uint64) (n uint64) {
		for _, x := range v {
			n += x
		}
		return n
	}
	malformed := some(ib.PortLocalPhysicalErrors, ib.PortBufferOverrunErrors, ib.PortDLIDMappingErrors,
		ib.PortVLMappingErrors, ib.PortLoopingErrors)
	malformed["PortMalformedPktErrors"] = dec(c.Counters[ib.PortMalformedPacketErrors])
	fec := sheet{"PortSelect": dec(port), "CounterSelect": "0x0000000000000000", "SyncHeaderErrorCounter": "0",
		"UnknownBlockCounter": "0"}
	lanes := []string{"ErrorDetectionCounterLane", "FECCorrectableBlockCtrLane", "FECUncorrectableBlockCtrLane"}
	if !c.shut {
		lanes = []string{"FECCorrectableSymbolCtrLane"}
		fec["PortFECCorrectableBlockCtr"], fec["PortFECUncorrectableBlockCtr"], fec["PortFECCorrectedSymbolCtr"] = "0",
			"0", "0"
	}
	for lane := range 12 {
		for _, name := range lanes {
			fec[fmt.Sprintf("%s%d", name, lane)] = "0"
		}
	}
	return map[string]sheet{
		"": plain, "-x": ext, "-T": fec,
		"-X": each("XmtDataSL", c.slXmit, 16), "-S": each("RcvDataSL", c.slRcv, 16),
		"-D": some(ib.PortInactiveDiscards, ib.PortNeighborMTUDiscards,
			ib.PortSwLifetimeLimitDiscards, ib.PortSwHOQLifetimeLimitDiscards),
		"-E": malformed,
		"--oprcvcounters": head(sheet{"PortOpRcvPkts": dec(sum(c.vlRcvPkts)),
			"PortOpRcvData": dec(sum(c.vlRcvData))}),
		"--flowctlcounters":     some(ib.PortXmitFlowPkts, ib.PortRcvFlowPkts),
		"--vloppackets":         each("PortVLOpPackets", c.vlRcvPkts, 16),
		"--vlopdata":            each("PortVLOpData", c.vlRcvData, 16),
		"--vlxmitflowctlerrors": each("PortVLXmitFlowCtlUpdateErrors", zero, 16),
		"--vlxmitcounters":      each("PortVLXmitWait", zero, 16),
		"--swportvlcong":        each("SWPortVLCongestion", zero, 16),
		"--rcvcc":               head(sheet{"PortPktRcvFECN": "0", "PortPktRcvBECN": "0"}),
		"--slrcvfecn":           each("PortSLRcvFECN", zero, 16),
		"--slrcvbecn":           each("PortSLRcvBECN", zero, 16),
		"--xmitcc":              head(sheet{"PortXmitTimeCong": "0"}),
		"--vlxmittimecc":        each("PortVLXmitTimeCong", zero, 15),
	}
}

// quirks changes what libibmad shows differently from what it is told: of PortCounters it takes QP1Dropped from where
// VL15Dropped is.
func quirks(option string, s sheet) sheet {
	if option == "" {
		s["QP1Dropped"] = s["VL15Dropped"]
	}
	return s
}

// perfWorld is a quiet fabric in which h5 has sent to its neighbours, to the group and to nowhere. It returns what the
// ports of h5 and h6 and of their switch should have counted.
func perfWorld(t *testing.T) (w *world, leaf *topo.Node, counted map[int]*tally) {
	w = up(t, defaultSpec, func(c *sm.Config) { c.SweepInterval = -1 })
	leaf = w.node("leaf2")
	counted = map[int]*tally{}
	for p := 1; p <= leaf.NumPorts(); p++ {
		counted[p] = &tally{}
	}
	h5, h6, h8 := w.talker("h5"), w.talker("h6"), w.node("h8")
	in, out, shut := int(h5.node.Ports[1].PeerPort), int(h6.node.Ports[1].PeerPort), int(h8.Ports[1].PeerPort)
	w.sm.stop() // nobody else sends from here on
	pi := w.portInfo(leaf, in)
	lid := dec(w.lid(leaf, 0))

	// All that was counted goes: errors, data, lanes and levels.
	for option := range counted[in].sheets(1) {
		if option == "-x" || option == "" {
			continue
		}
		for p := 1; p <= leaf.NumPorts(); p++ {
			w.run("h1", "perfquery", option, "-R", lid, dec(p))
		}
	}
	w.run("h1", "perfquery", "-x", "-R", "-a", lid)
	w.run("h1", "perfquery", "-R", "-a", lid)

	for sl := range ib.SL(4) {
		n := int(sl+1) * 5
		h5.send(n, w.lid(h6.node, 1), h6.qp.Num(), sl)
		counted[in].dgram(n, false, sl, ib.VL(sl), false, dgramWords)
		counted[out].dgram(n, true, sl, ib.VL(sl), false, dgramWords)
	}
	// To the group: a copy leaves by each port of the table.
	h5.send(3, ib.LID(sm.BroadcastMLID), 0, 1)
	const global = dgramWords + grhBytes/4
	counted[in].dgram(3, false, 1, 1, true, global)
	for _, p := range w.mft(leaf, sm.BroadcastMLID) {
		if p != in {
			counted[p].dgram(3, true, 1, 1, true, global)
		}
	}
	// To nobody.
	h5.send(4, 900, 5, 0)
	counted[in].dgram(4, false, 0, 0, false, dgramWords)
	counted[in].Counters[ib.PortRcvSwitchRelayErrors] += 4
	counted[in].Counters[ib.PortDLIDMappingErrors] += 4
	// To a host whose cable is out.
	w.check(w.SetLink(ref(leaf, shut), false))
	h5.send(6, w.lid(h8, 1), 5, 2)
	counted[in].dgram(6, false, 2, 2, false, dgramWords)
	counted[shut].shut = true
	counted[shut].Counters[ib.LinkDownedCounter]++
	counted[shut].Counters[ib.PortXmitDiscards] += 6
	counted[shut].Counters[ib.PortInactiveDiscards] += 6
	// In a partition that the switch does not let in, and in one that it does not let out.
	set := func(port int, in, out bool) {
		p := pi
		p.PortState, p.PortPhysicalState, p.LinkDownDefaultState = 0, 0, 0
		p.PartitionEnforcementInbound, p.PartitionEnforcementOutbound = in, out
		w.write(leaf, mad.AttrPKeyTable, mad.PKeyModifier(ib.PortNum(port), 0), (&mad.PKeyTable{0x8001}).Append(nil))
		w.write(leaf, mad.AttrPortInfo, uint32(port), p.Append(nil))
	}
	set(in, true, false)
	h5.send(2, w.lid(h6.node, 1), h6.qp.Num(), 0)
	counted[in].dgram(2, false, 0, 0, false, dgramWords)
	counted[in].Counters[ib.PortRcvConstraintErrors] += 2
	set(in, false, false)
	set(out, false, true)
	h5.send(7, w.lid(h6.node, 1), h6.qp.Num(), 0)
	counted[in].dgram(7, false, 0, 0, false, dgramWords)
	counted[out].Counters[ib.PortXmitConstraintErrors] += 7
	set(out, false, false)
	return w, leaf, counted
}

func TestPerfquery(t *testing.T) {
	t.Parallel()
	w, leaf, counted := perfWorld(t)
	lid := dec(w.lid(leaf, 0))
	hosts := 4 // ports of the switch that lead to hosts: the questions themselves go by the others
	for p := 1; p <= hosts; p++ {
		c := w.Counters(ref(leaf, p))
		for k := range ib.NumCounter {
			same(t, fmt.Sprintf("the fabric's own %s of port %d", k, p), c[k], counted[p].Counters[k])
		}
		for option, want := range counted[p].sheets(p) {
			args := []string{lid, dec(p)}
			if option != "" {
				args = append([]string{option}, args...)
			}
			read(t, w.run("h1", "perfquery", args...)).expect(t, fmt.Sprintf("perfquery %s", strings.Join(args, " ")),
				quirks(option, want))
		}
	}

	// Over some ports, summed up and one by one. All at once would have the questions themselves in it.
	var sum tally
	for p := 1; p <= hosts; p++ {
		for k := range sum.Counters {
			sum.Counters[k] += counted[p].Counters[k]
		}
	}
	for _, ports := range []string{"1-4", "1,2,3,4"} {
		read(t, w.run("h1", "perfquery", "-a", lid, ports)).expect(t, "perfquery -a "+ports,
			quirks("", sum.sheets(255)[""]))
		read(t, w.run("h1", "perfquery", "-x", "-a", lid, ports)).expect(t, "perfquery -x -a "+ports,
			quirks("-x", sum.sheets(255)["-x"]))
		for option, flag := range map[string]string{"": "-l", "-x": "-xl"} {
			parts := strings.Split(w.run("h1", "perfquery", flag, lid, ports), "# Port ")[1:]
			same(t, "ports", len(parts), hosts)
			for i, part := range parts {
				read(t, part).expect(t, fmt.Sprintf("perfquery %s %s", flag, ports),
					quirks(option, counted[i+1].sheets(i + 1)[option]))
			}
		}
	}
	all := read(t, w.run("h1", "perfquery", "-a", lid))
	same(t, "perfquery -a: PortSelect", all["PortSelect"], "255")
	var most uint64
	for p := 1; p <= leaf.NumPorts(); p++ {
		most += w.Counters(ref(leaf, p))[ib.PortRcvPkts]
	}
	var got uint64
	fmt.Sscan(all["PortRcvPkts"], &got)
	if got < sum.Counters[ib.PortRcvPkts] || got > most {
		t.Errorf("perfquery -a: PortRcvPkts %d, want %d to %d", got, sum.Counters[ib.PortRcvPkts], most)
	}
	loop := strings.Split(w.run("h1", "perfquery", "-l", "-a", lid), "# Port ")[1:]
	same(t, "perfquery -l -a: ports", len(loop), leaf.NumPorts())

	// What is read can be reset: all, by mask, and only so.
	reset := func(port int, args ...string) { w.run("h1", "perfquery", append(args, lid, dec(port))...) }
	c := counted[1]
	w.run("h1", "perfquery", "-R", lid, "1", "0x0020") // PortRcvSwitchRelayErrors alone
	c.Counters[ib.PortRcvSwitchRelayErrors] = 0
	read(t, w.run("h1", "perfquery", lid, "1")).expect(t, "after reset by mask", quirks("", c.sheets(1)[""]))
	w.run("h1", "perfquery", "-R", lid, "1", "0x0fff") // errors
	c.Counters[ib.PortRcvConstraintErrors] = 0
	read(t, w.run("h1", "perfquery", lid, "1")).expect(t, "after reset of errors", quirks("", c.sheets(1)[""]))
	read(t, w.run("h1", "perfquery", "-r", lid, "1")).expect(t, "perfquery -r", quirks("", c.sheets(1)[""]))
	for _, k := range []ib.Counter{ib.PortRcvData, ib.PortRcvPkts, ib.PortXmitData, ib.PortXmitPkts} {
		c.Counters[k] = 0
	}
	read(t, w.run("h1", "perfquery", "-x", "-r", lid, "1")).expect(t, "perfquery -x -r",
		quirks("-x", c.sheets(1)["-x"]))
	for _, option := range []string{"-X", "-S", "-D", "-E", "-T", "--oprcvcounters", "--vloppackets", "--vlopdata"} {
		read(t, w.run("h1", "perfquery", option, "-r", lid, "1")).expect(t, "perfquery -r "+option, c.sheets(1)[option])
		reset(2, option, "-R")
	}
	reset(2, "-R")
	reset(2, "-x", "-R")
	var none tally
	for p := 1; p <= 2; p++ {
		for option, want := range none.sheets(p) {
			args := []string{lid, dec(p)}
			if option != "" {
				args = append([]string{option}, args...)
			}
			read(t, w.run("h1", "perfquery", args...)).expect(t, "after reset: perfquery "+strings.Join(args, " "),
				quirks(option, want))
		}
		c := w.Counters(ref(leaf, p))
		for k := range ib.NumCounter {
			same(t, fmt.Sprintf("the fabric's own %s of port %d after reset", k, p), c[k], 0)
		}
	}
}

// Of an adapter's port, the questions themselves are in the answer.
func TestPerfqueryHost(t *testing.T) {
	t.Parallel()
	w := up(t, defaultSpec, func(c *sm.Config) { c.SweepInterval = -1 })
	h := w.node("h6")
	between := func(text string, before, after ib.Counters) {
		t.Helper()
		s := read(t, text)
		for _, k := range []ib.Counter{ib.PortRcvPkts, ib.PortRcvData, ib.PortXmitPkts, ib.PortXmitData} {
			var got uint64
			fmt.Sscan(s[k.String()], &got)
			if got < before[k] || got > after[k] {
				t.Errorf("%s is %d, want %d to %d", k, got, before[k], after[k])
			}
		}
	}
	for _, args := range [][]string{{dec(w.lid(h, 1)), "1"}, {"-G", hexGUID(h.PortGUID(1)), "1"},
		{"-x", dec(w.lid(h, 1)), "1"}, {"-C", "softib0", "-P", "1", dec(w.lid(h, 1)), "1"}} {
		before := w.Counters(ref(h, 1))
		out := w.run("h1", "perfquery", args...)
		between(out, before, w.Counters(ref(h, 1)))
	}
	for _, args := range [][]string{nil, {"-x"}, {"-C", "softib0", "-P", "1"}} {
		before := w.Counters(ref(h, 1))
		out := w.run("h6", "perfquery", args...) // its own port
		between(out, before, w.Counters(ref(h, 1)))
	}
	wants(t, w.fails("h1", "perfquery", dec(w.lid(h, 1)), "2"), "failed") // it has one port
	wants(t, w.fails("h1", "perfquery", "--swportvlcong", dec(w.lid(h, 1)), "1"), "cannot query SwPortVLCongestion")
	s := read(t, w.run("h1", "perfquery", "-c", dec(w.lid(h, 1)), "1"))
	raw := w.pma(h, mad.AttrPortSamplesControl, 1)
	l := &mad.PortSamplesControlLayout
	for name, digits := range map[string]int{"OpCode": 2, "Tick": 2, "Tag": 4} {
		f := l.Field(name)
		if f == nil {
			t.Fatalf("no field %s", name)
		}
		same(t, name, s[name], fmt.Sprintf("0x%0*x", digits, f.Get(raw, 0)))
	}
	for _, name := range []string{"PortSelect", "CounterWidth", "SampleMechanisms", "SampleStatus", "SampleStart",
		"SampleInterval"} {
		f := l.Field(name)
		if f == nil {
			t.Fatalf("no field %s", name)
		}
		same(t, name, s[name], fmt.Sprint(f.Get(raw, 0)))
	}
}

// errorsText is how ibqueryerrors writes the errors of a port, in its own order.
func errorsText(c *ib.Counters) (out string) {
	for _, k := range []ib.Counter{
		ib.SymbolErrorCounter, ib.LinkErrorRecoveryCounter, ib.LinkDownedCounter, ib.PortRcvErrors,
		ib.PortRcvRemotePhysicalErrors,
		ib.PortRcvSwitchRelayErrors, ib.PortXmitDiscards, ib.PortXmitConstraintErrors, ib.PortRcvConstraintErrors,
		ib.LocalLinkIntegrityErrors,
		ib.ExcessiveBufferOverrunErrors, ib.VL15Dropped, ib.PortXmitWait,
	} {
		if c[k] != 0 {
			out += fmt.Sprintf(" [%s == %d (%d.000)]", k, c[k], c[k])
		}
	}
	return out
}

// portErrors takes the lines of ibqueryerrors that tell of a node's ports.
func portErrors(text string, n *topo.Node) map[string]string {
	_, part, _ := strings.Cut(text, fmt.Sprintf("Errors for %#x %q\n", uint64(n.GUID), n.Desc))
	out := map[string]string{}
	for line := range strings.Lines(part) {
		port, rest, ok := strings.Cut(strings.TrimPrefix(line, fmt.Sprintf("   GUID %#x port ", uint64(n.GUID))), ":")
		switch {
		case strings.HasPrefix(line, "   GUID ") && ok:
			out[port] = strings.TrimRight(rest, "\n")
		case !strings.HasPrefix(line, " "):
			return out
		}
	}
	return out
}

// exporterFlags are what infiniband-exporter (guilbaults) runs ibqueryerrors with, before it takes every line apart.
var exporterFlags = []string{"--verbose", "--details", "--suppress-common", "--data", "--report-port", "--switch",
	"--ca"}

// What ibqueryerrors writes with those, line by line. A node has lines if one of its ports has counted an error, or a
// tick of waiting: of a fabric without any, only the summary is left.
var (
	errorNode = regexp.MustCompile(`^Errors for (?:(0x[0-9a-f]+) )?"[^"]+"$`)
	errorPort = regexp.MustCompile(`^   GUID 0x[0-9a-f]+ port (ALL|[1-9]\d*):` +
		`(?: \[\w+ == [1-9]\d*(?: \([\d.]+[KMGTPE]?B?\))?\])+$`)
	errorLink = regexp.MustCompile(`^ +Link info: +\d+ +\d+\[ +\] ==\( *(?:` +
		`\d+X +[\d.]+ Gbps +Active/ +LinkUp\)==> +0x[0-9a-f]+ +\d+ +\d+\[ +\] "[^"]+"|` +
		`Down/ *\w+\)==> +\[ +\] "") \( *\)$`)
)

// exporterShape wants the lines of ibqueryerrors to have that shape, and counts the nodes and ports among them.
func exporterShape(t testing.TB, text string) (nodes, ports int) {
	t.Helper()
	body, summary, ok := strings.Cut("\n"+text, "\n\n## Summary: ")
	if !ok {
		t.Fatalf("no summary in %q", text)
	}
	for line := range strings.Lines(summary) {
		if nodes++; nodes > 1 && !strings.HasPrefix(line, "##") {
			t.Errorf("a line after the summary: %q", line)
		}
	}
	nodes = 0
	lines := strings.Split(body, "\n")[1:]
	for i := 0; i < len(lines); {
		m := errorNode.FindStringSubmatch(lines[i])
		if m == nil {
			t.Fatalf("line %d is no head of a node: %q", i+1, lines[i])
		}
		nodes++
		i++
		if m[1] != "" { // a switch begins with the sum of its ports
			if p := errorPort.FindStringSubmatch(lines[i]); p == nil || p[1] != "ALL" {
				t.Fatalf("line %d is no sum: %q", i+1, lines[i])
			}
			i++
		}
		for ; i+1 < len(lines) && strings.HasPrefix(lines[i], " "); i += 2 {
			if p := errorPort.FindStringSubmatch(lines[i]); p == nil || p[1] == "ALL" {
				t.Errorf("line %d is no port: %q", i+1, lines[i])
			}
			if !errorLink.MatchString(lines[i+1]) {
				t.Errorf("line %d is no link: %q", i+2, lines[i+1])
			}
			ports++
		}
	}
	return nodes, ports
}

func TestIbqueryerrors(t *testing.T) {
	t.Parallel()
	w, leaf, _ := perfWorld(t)
	// Switches' own discards and relay errors are common and have thresholds in the file that comes with the program:
	// here none.
	bad := 0
	want := map[string]string{}
	var sum ib.Counters
	for p := 1; p <= leaf.NumPorts(); p++ {
		c := w.Counters(ref(leaf, p))
		if s := errorsText(&c); s != "" {
			want[dec(p)] = s
			bad++
		}
		for k := range c {
			sum[k] += c[k]
		}
	}
	same(t, "ports with errors", bad, 3)
	want["ALL"] = errorsText(&sum)
	compare := func(what string, got map[string]string) {
		t.Helper()
		for p, s := range want {
			same(t, fmt.Sprintf("%s: port %s", what, p), got[p], s)
		}
		same(t, what+": ports", len(got), len(want))
	}
	// The manager is gone, so nobody tells levels: --skip-sl. A status of 1 says that there are errors.
	errs := func(args ...string) string { return w.exits(1, "h1", "ibqueryerrors", args...) }
	nodes, ports := exporterShape(t, errs(append(exporterFlags, "--skip-sl")...)) // a cable of these is out
	same(t, "nodes for infiniband-exporter", nodes, 1)
	same(t, "ports for infiniband-exporter", ports, bad)
	out := errs("--skip-sl")
	compare("ibqueryerrors", portErrors(out, leaf))
	far := 0 // the other end of the cable that is out
	for _, n := range w.g.Nodes {
		if n == leaf {
			continue
		}
		for p, s := range portErrors(out, n) {
			if p != "ALL" {
				var num int
				fmt.Sscan(p, &num)
				c := w.Counters(ref(n, num))
				same(t, fmt.Sprintf("%s[%d]", n.Name, num), s, errorsText(&c))
				far++
			}
		}
	}
	same(t, "ports with errors elsewhere", far, 0) // the host behind the cable cannot be asked
	wants(t, out, fmt.Sprintf("%d ports have errors beyond threshold", bad))

	compare("ibqueryerrors -G", portErrors(errs("--skip-sl", "-D", w.route(w.node("h1"), leaf)), leaf))
	compare("ibqueryerrors --switch", portErrors(errs("--skip-sl", "--switch"), leaf))
	same(t, "ibqueryerrors --ca", len(portErrors(w.run("h1", "ibqueryerrors", "--skip-sl", "--ca"), leaf)), 0)
	same(t, "ibqueryerrors --router", len(portErrors(w.run("h1", "ibqueryerrors", "--skip-sl", "--router"), leaf)), 0)

	// Suppressed counters are not shown.
	out = errs("--skip-sl", "-s", "PortXmitDiscards,LinkDownedCounter,PortRcvSwitchRelayErrors")
	got := portErrors(out, leaf)
	for _, p := range []int{1, 2} {
		c := w.Counters(ref(leaf, p))
		c[ib.PortRcvSwitchRelayErrors] = 0
		same(t, fmt.Sprintf("ibqueryerrors -s: port %d", p), got[dec(p)], errorsText(&c))
	}
	same(t, "ibqueryerrors -s: port 4", got["4"], "")

	// With details of discards and errors, with the data counters, with the link.
	details := portErrors(errs("--skip-sl", "--details"), leaf)
	shut := w.Counters(ref(leaf, 4))
	// It calls the details of discards by the names that the same places have among the details of errors.
	wants(t, details["4"], fmt.Sprintf("[PortXmitDiscards == %d (%d.000)]", shut[ib.PortXmitDiscards],
		shut[ib.PortXmitDiscards]), fmt.Sprintf("[PortLocalPhysicalErrors == %d]", shut[ib.PortInactiveDiscards]))
	in := w.Counters(ref(leaf, 1))
	data := portErrors(errs("--skip-sl", "--data"), leaf)
	counted := func(text string, k ib.Counter) (n uint64) { // what a line says of a counter
		t.Helper()
		_, rest, ok := strings.Cut(text, fmt.Sprintf("[%s == ", k))
		if _, err := fmt.Sscan(rest, &n); !ok || err != nil {
			t.Errorf("no %s in %q", k, text)
		}
		return n
	}
	// Its questions to the hosts pass the ports that they are about.
	grown := func(what, text string, before, after ib.Counters) {
		t.Helper()
		for _, k := range []ib.Counter{ib.PortRcvData, ib.PortRcvPkts, ib.PortXmitData, ib.PortXmitPkts,
			ib.PortUnicastRcvPkts, ib.PortMulticastRcvPkts} {
			if n := counted(text, k); n < before[k] || n > after[k] {
				t.Errorf("%s: %s is %d, want %d to %d", what, k, n, before[k], after[k])
			}
		}
	}
	grown("--data", data["1"], in, w.Counters(ref(leaf, 1)))
	link := errs("--skip-sl", "-r")
	host := w.node("h5")
	wants(t, linkText(link), linkText(fmt.Sprintf("Link info: %d %d[ ] %s %s %d %d[ ] %q ( )", w.lid(leaf, 0), 1,
		w.linkWords(leaf, 1), hexGUID(host.PortGUID(1)), w.lid(host, 1), 1, host.Desc)))
	counters := w.run("h1", "ibqueryerrors", "--skip-sl", "--counters", "-D", w.route(w.node("h1"), leaf))
	_, line, _ := strings.Cut(counters, fmt.Sprintf("GUID %#x port 1: ", uint64(leaf.GUID)))
	grown("--counters", line, in, w.Counters(ref(leaf, 1)))

	// Cleared after reading: errors, then data.
	compare("ibqueryerrors -k", portErrors(errs("--skip-sl", "-k"), leaf))
	for p := 1; p <= 4; p++ {
		c := w.Counters(ref(leaf, p))
		same(t, fmt.Sprintf("errors of port %d after -k", p), errorsText(&c), "")
	}
	if w.Counters(ref(leaf, 1))[ib.PortRcvPkts] < in[ib.PortRcvPkts] {
		t.Error("-k clears data counters too")
	}
	w.run("h1", "ibqueryerrors", "--skip-sl", "-K")
	for p := 1; p <= 4; p++ {
		if n := w.Counters(ref(leaf, p))[ib.PortRcvPkts]; n >= in[ib.PortRcvPkts]/2 {
			t.Errorf("port %d has counted %d packets since -K", p, n)
		}
	}
}

// With a manager, ibqueryerrors asks it for levels and by GUIDs.
func TestIbqueryerrorsManaged(t *testing.T) {
	t.Parallel()
	w := up(t, defaultSpec, brisk)
	leaf := w.node("leaf6")
	wants(t, w.run("h1", "ibqueryerrors"), "0 bad nodes found")
	nodes, _ := exporterShape(t, w.run("h1", "ibqueryerrors", exporterFlags...))
	same(t, "nodes of a clean fabric for infiniband-exporter", nodes, 0)
	w.run("h1", "ibportstate", dec(w.lid(leaf, 0)), "7", "reset")
	w.whole("reset")
	nodes, ports := exporterShape(t, w.exits(1, "h1", "ibqueryerrors", exporterFlags...))
	same(t, "nodes for infiniband-exporter", nodes, 2)
	same(t, "ports for infiniband-exporter", ports, 2)
	far, in, _ := w.peer(leaf, 7)
	c := w.Counters(ref(leaf, 7))
	for _, args := range [][]string{nil, {"-G", hexGUID(leaf.GUID)}, {"-S", hexGUID(leaf.GUID)}, {"--switch"}} {
		out := w.exits(1, "h1", "ibqueryerrors", args...)
		same(t, "ibqueryerrors "+strings.Join(args, " "), portErrors(out, leaf)["7"], errorsText(&c))
	}
	d := w.Counters(ref(far, in))
	same(t, "the far end", portErrors(w.exits(1, "h1", "ibqueryerrors"), far)[dec(in)], errorsText(&d))
	// Within its threshold an error is none.
	file := filepath.Join(t.TempDir(), "thresholds")
	w.check(os.WriteFile(file, []byte("LinkDownedCounter=1000\n"), 0o600))
	wants(t, w.run("h1", "ibqueryerrors", "--threshold-file", file), "0 bad nodes found")
	cache := filepath.Join(t.TempDir(), "cache")
	w.run("h1", "ibnetdiscover", "--cache", cache)
	same(t, "ibqueryerrors --load-cache", portErrors(w.exits(1, "h1", "ibqueryerrors", "--load-cache", cache),
		leaf)["7"], errorsText(&c))
}
