package fieldtest

import (
	"fmt"
	"strings"
	"testing"

	"softib/proto/ib"
	"softib/proto/mad"
	"softib/proto/topo"
	"softib/subnet/sm"
)

// pathRecord is what a path between two ports should be: along the tables, the smallest of what the links can do.
func (w *world) pathRecord(a, b *topo.Node, p, q int) sheet {
	w.Helper()
	way, ok := w.walk(a, p, w.lid(b, q))
	if !ok && a != b {
		w.Fatalf("no way from %s to %s", a.Name, b.Name)
	}
	if a == b {
		way = []hop{{from: a, out: p, to: b, in: q}}
	}
	m, rate := ib.MTU4096, mad.RateOf(w.rate(a, p))
	for _, h := range way {
		m = min(m, w.portInfo(h.from, h.out).NeighborMTU, w.portInfo(h.to, h.in).NeighborMTU)
		if r := mad.RateOf(w.rate(h.from, h.out)); r.Less(rate) {
			rate = r
		}
	}
	life := "0x92"
	if a == b {
		life = "0x80" // it goes nowhere
	}
	return sheet{
		"service_id": hexGUID(0), "dgid": shortGID(gid(b, q)), "sgid": shortGID(gid(a, p)), "dlid": dec(w.lid(b, q)),
		"slid":         dec(w.lid(a, p)),
		"hop_flow_raw": "0x0", "tclass": "0x0", "num_path_revers": "0x80", "pkey": "0xFFFF", "qos_class": "0x0",
		"sl":  "0x0",
		"mtu": fmt.Sprintf("0x%X", 0x80|uint8(m)), "rate": fmt.Sprintf("0x%X", 0x80|uint8(rate)), "pkt_life": life,
		"preference": "0x0", "resv2": "0x000000000000",
	}
}

func TestSaqueryPaths(t *testing.T) {
	t.Parallel()
	w := up(t, defaultSpec, brisk)
	// One link that is slow: paths over it have its rate.
	leaf := w.node("leaf2")
	w.run("h1", "ibportstate", dec(w.lid(leaf, 0)), "2", "speed", "1", "espeed", "30", "reset")
	w.whole("a slow link")
	ask := func(args ...string) []record { return records(w.run("h1", "saquery", args...)) }
	a := w.node("h1")
	for _, name := range []string{"h2", "h6", "h32", "leaf1", "spine4", "h1"} {
		b := w.node(name)
		q := endPort(b, 1)
		want := w.pathRecord(a, b, 1, q)
		x, y := w.lid(a, 1), w.lid(b, q)
		for _, args := range [][]string{
			{"-p", "--src-to-dst", fmt.Sprintf("%d:%d", x, y)},
			{"-p", "--src-to-dst", a.Desc + ":" + b.Desc},
			{"PR", "--slid", dec(x), "--dlid", dec(y)},
			{"PathRecord", "--sgid", shortGID(gid(a, 1)), "--dgid", shortGID(gid(b, q))},
			{"-p", "--sgid-to-dgid", shortGID(gid(a, 1)) + "-" + shortGID(gid(b, q))},
			{"PR", "--slid", dec(x), "--dlid", dec(y), "-n", "1", "-r", "1"},
			{"PR", "--slid", dec(x), "--dlid", dec(y), "--pkey", "0xffff"},
			{"PR", "--slid", dec(x), "--dlid", dec(y), "--sl", "0", "--tclass", "0"},
			{"--smkey", "1", "PR", "--slid", dec(x), "--dlid", dec(y)},
		} {
			list := ask(args...)
			if len(list) != 1 {
				t.Errorf("saquery %v: %d records, want 1", args, len(list))
				continue
			}
			if list[0].sheet["num_path_revers"] == "0x81" { // the number of paths that was asked for may be told back
				list[0].sheet["num_path_revers"] = "0x80"
			}
			list[0].sheet.expect(t, "saquery "+strings.Join(args, " "), want)
		}
	}
	// From and to: all paths of one end.
	from := keyed(t, ask("PR", "--slid", dec(w.lid(a, 1))), "dlid")
	w.ends(func(b *topo.Node, q int) {
		r, ok := from[dec(w.lid(b, q))]
		if !ok {
			t.Errorf("no path to %s", b.Name)
			return
		}
		r.sheet.expect(t, "path to "+b.Name, w.pathRecord(a, b, 1, q))
	})
	same(t, "paths from h1", len(from), len(w.g.Nodes))
	same(t, "paths to h1", len(keyed(t, ask("PR", "--dlid", dec(w.lid(a, 1))), "slid")), len(w.g.Nodes))
	same(t, "all paths", len(keyed(t, ask("PR"), "slid", "dlid")), len(w.g.Nodes)*len(w.g.Nodes))

	// What is asked of a path decides whether there is one. Selectors: 0 more than, 1 less than, 2 exactly, in the
	// upper two bits.
	b := w.node("h6") // behind the slow link
	ends := []string{"PR", "--slid", dec(w.lid(a, 1)), "--dlid", dec(w.lid(b, 1))}
	slow := uint8(mad.RateOf(w.rate(leaf, 2)))
	for _, c := range []struct {
		args []string
		want int
	}{
		{[]string{"--mtu", fmt.Sprint(2<<6 | uint8(ib.MTU4096))}, 1},
		{[]string{"--mtu", fmt.Sprint(0<<6 | uint8(ib.MTU2048))}, 1},
		{[]string{"--mtu", fmt.Sprint(0<<6 | uint8(ib.MTU4096))}, 0},
		{[]string{"--rate", fmt.Sprint(2<<6 | slow)}, 1},
		{[]string{"--rate", fmt.Sprint(0<<6 | slow)}, 0},
		{[]string{"--pkt_lifetime", fmt.Sprint(1<<6 | 10)}, 0},
		{[]string{"--pkt_lifetime", fmt.Sprint(2<<6 | 18)}, 1},
		{[]string{"--pkey", "0x8123"}, 0},
		{[]string{"--sl", "0"}, 1},
		{[]string{"--qos_class", "0"}, 1},
		{[]string{"--hop_limit", "1"}, 1},
	} {
		got := len(ask(append(append([]string{}, ends...), c.args...)...))
		same(t, "saquery "+strings.Join(c.args, " ")+": paths", got, c.want)
	}
	same(t, "a path to nobody", len(ask("PR", "--slid", dec(w.lid(a, 1)), "--dlid", "900")), 0)
}

// Ports with several addresses have a path to and from each.
func TestSaqueryPathsLMC(t *testing.T) {
	t.Parallel()
	w := up(t, defaultSpec, func(c *sm.Config) { c.LMC = 2 })
	a, b := w.node("h1"), w.node("h20")
	list := keyed(t, records(w.run("h1", "saquery", "-p", "--sgid-to-dgid", shortGID(gid(a, 1))+"-"+
		shortGID(gid(b, 1)))), "slid", "dlid")
	if len(list) == 0 {
		t.Fatal("no path")
	}
	for k, r := range list {
		var src, dst ib.LID
		fmt.Sscanf(k, "%d/%d", &src, &dst)
		if src&^3 != w.lid(a, 1) || dst&^3 != w.lid(b, 1) {
			t.Errorf("path from %d to %d, want from %d to %d", src, dst, w.lid(a, 1), w.lid(b, 1))
		}
		if _, ok := w.walk(a, 1, dst); !ok {
			t.Errorf("no way to %d:\n%s", dst, r.text)
		}
	}
	for bits := range ib.LID(4) {
		got := records(w.run("h1", "saquery", "PR", "--slid", dec(w.lid(a, 1)+bits), "--dlid", dec(w.lid(b, 1)+bits)))
		same(t, fmt.Sprintf("paths with bits %d", bits), len(got), 1)
	}
}

func TestSaqueryGroups(t *testing.T) {
	t.Parallel()
	w := up(t, defaultSpec)
	mgid := ib.GID{0xFF, 0x12, 0x60, 0x1B, 0xFF, 0xFF, 15: 0x42}
	rec := mad.MCMemberRecord{MGID: mgid, QKey: 0x0B1B, PKey: ib.PKeyDefault, MTUSelector: mad.SelectExactly,
		MTU: ib.MTU2048, RateSelector: mad.SelectExactly, Rate: 3, SL: 0, JoinState: mad.JoinFull}
	create := []string{"Q_Key", "P_Key", "MTUSelector", "MTU", "RateSelector", "Rate", "SL", "FlowLabel", "TClass"}
	members := []string{"h2", "h9", "h30"}
	var group mad.MCMemberRecord
	var clients []*client
	for _, name := range members {
		c := w.client(name)
		clients = append(clients, c)
		group = c.join(t, rec, create...)
	}
	w.eventually("the tree of the group", func() bool {
		for _, name := range members {
			n := w.node(name)
			leaf, p, _ := w.peer(n, 1)
			found := false
			for _, out := range w.mft(leaf, group.MLID) {
				found = found || out == p
			}
			if !found {
				return false
			}
		}
		return true
	})
	want := func(port string, state uint8) sheet {
		return sheet{
			"MGID": shortGID(mgid), "PortGid": port, "qkey": fmt.Sprintf("0x%x", uint32(group.QKey)),
			"mlid": fmt.Sprintf("0x%x", uint16(group.MLID)),
			"mtu":  fmt.Sprintf("0x%x", 0x80|uint8(group.MTU)), "TClass": "0x0", "pkey": "0xffff",
			"rate":     fmt.Sprintf("0x%x", 0x80|uint8(group.Rate)),
			"pkt_life": fmt.Sprintf("0x%x", 0x80|group.PacketLifeTime), "SL": "0x0", "FlowLabel": "0x0",
			"HopLimit": "0x0", "Scope": "0x2",
			"JoinState": fmt.Sprintf("0x%x", state), "ProxyJoin": "0x0",
		}
	}
	by := []string{"--mgid", shortGID(mgid)}
	// Everybody may know the groups of its partitions; who is in them only who is trusted.
	list := records(w.run("h5", "saquery", append([]string{"MCMR"}, by...)...))
	same(t, "untrusted: records", len(list), 1)
	if len(list) == 1 {
		r := list[0].sheet
		r.expect(t, "untrusted", want("::", 0))
	}
	all := keyed(t, records(w.run("h5", "saquery", append([]string{"--smkey", "1", "MCMR"}, by...)...)), "PortGid")
	same(t, "trusted: records", len(all), len(members))
	for _, name := range members {
		g := shortGID(gid(w.node(name), 1))
		all[g].sheet.expect(t, "trusted: "+name, want(g, uint8(mad.JoinFull)))
	}
	// By other fields.
	for _, args := range [][]string{
		{"--mlid", fmt.Sprintf("%#x", uint16(group.MLID))},
		{"--gid", shortGID(gid(w.node("h9"), 1)), "--mgid", shortGID(mgid)},
		{"--qkey", "0x0b1b", "--mgid", shortGID(mgid)},
		{"--pkey", "0xffff", "--mgid", shortGID(mgid)},
		{"--mtu", fmt.Sprint(2<<6 | uint8(ib.MTU2048)), "--mgid", shortGID(mgid)},
		{"--join_state", "1", "--mgid", shortGID(mgid)},
		{"--scope", "2", "--mgid", shortGID(mgid)}, {"--proxy_join", "0", "--mgid", shortGID(mgid)},
		{"--sl", "0", "--mgid", shortGID(mgid)},
	} {
		got := records(w.run("h5", "saquery", append([]string{"--smkey", "1", "MCMR"}, args...)...))
		n := len(members)
		if args[0] == "--gid" {
			n = 1
		}
		same(t, "saquery MCMR "+strings.Join(args, " "), len(got), n)
	}
	same(t, "another MTU", len(records(w.run("h5", "saquery", "--smkey", "1", "MCMR", "--mgid", shortGID(mgid), "--mtu",
		fmt.Sprint(2<<6|uint8(ib.MTU256))))), 0)

	groups := keyed(t, records(w.run("h5", "saquery", "-g")), "MGID")
	groups[shortGID(mgid)].sheet.expect(t, "saquery -g",
		sheet{"MGID": shortGID(mgid), "Mlid": fmt.Sprintf("0x%X", uint16(group.MLID)),
			"Mtu":  fmt.Sprintf("0x%X", 0x80|uint8(group.MTU)),
			"pkey": "0xFFFF", "Rate": fmt.Sprintf("0x%X", 0x80|uint8(group.Rate)), "SL": "0x0"})
	if _, ok := groups[shortGID(sm.BroadcastMGID(ib.PKeyDefault))]; !ok {
		t.Errorf("no broadcast group among %v", groups)
	}
	names := w.run("h5", "saquery", "--smkey", "1", "-m")
	for _, name := range members {
		n := w.node(name)
		wants(t, w.run("h5", "saquery", "--smkey", "1", "-m", fmt.Sprintf("%#x", uint16(group.MLID))),
			fmt.Sprintf("%s (%s)", shortGID(gid(n, 1)), n.Desc))
		wants(t, names, shortGID(gid(n, 1)), "NodeDescription........."+n.Desc)
	}

	// Who leaves is in no list any more; the last one takes the group with it.
	for i, name := range members {
		c := clients[i]
		leave := mad.MCMemberRecord{MGID: mgid, PortGID: gid(c.node, 1), JoinState: mad.JoinFull}
		if st, _ := c.ask(t, mad.MethodDelete, mad.AttrMCMemberRecord,
			mask(mad.MCMemberRecordTable, "MGID", "PortGID", "JoinState"), &leave); st != mad.StatusOK {
			t.Fatalf("%s leaves: %v", name, st)
		}
		same(t, "members", len(records(w.run("h5", "saquery", append([]string{"--smkey", "1", "MCMR"}, by...)...))),
			len(members)-1-i)
	}
	w.eventually("the tree to go", func() bool {
		for _, s := range w.g.Switches() {
			if len(w.mft(s, group.MLID)) > 0 {
				return false
			}
		}
		return true
	})
}

func TestSaqueryServices(t *testing.T) {
	t.Parallel()
	w := up(t, defaultSpec)
	same(t, "at first", len(records(w.run("h3", "saquery", "SR"))), 0)
	c := w.client("h9")
	rec := mad.ServiceRecord{ServiceID: 0x10001234, ServiceGID: gid(c.node, 1), ServicePKey: ib.PKeyDefault,
		ServiceLease: 3600}
	copy(rec.ServiceName[:], "the test's service")
	copy(rec.ServiceKey[:], "0123456789abcdef")
	for i := range rec.ServiceData {
		rec.ServiceData[i] = byte(i)
	}
	all := []string{"ServiceID", "ServiceGID", "ServiceP_Key", "ServiceLease", "ServiceKey", "ServiceName"}
	if st, _ := c.ask(t, mad.MethodSet, mad.AttrServiceRecord, mask(mad.ServiceRecordTable, all...)|0xFF80,
		&rec); st != mad.StatusOK {
		t.Fatalf("registering: %v", st)
	}
	for _, args := range [][]string{{"SR"}, {"-S"}, {"ServiceRecord"}} {
		for _, trusted := range []bool{false, true} {
			full := append([]string{"-K"}, args...)
			if trusted {
				full = append([]string{"--smkey", "1", "-K"}, args...)
			}
			list := records(w.run("h3", "saquery", full...))
			if len(list) != 1 {
				t.Fatalf("saquery %v: %d records, want 1", full, len(list))
			}
			s := list[0].sheet
			same(t, "ServiceID", s["ServiceID"], hexGUID(ib.GUID(rec.ServiceID)))
			same(t, "ServiceGID", s["ServiceGID"], shortGID(rec.ServiceGID))
			same(t, "ServiceP_Key", s["ServiceP_Key"], "0xFFFF")
			same(t, "ServiceName", s["ServiceName"], "the test's service")
			var lease uint32
			fmt.Sscanf(s["ServiceLease"], "0x%x", &lease)
			if lease == 0 || lease > rec.ServiceLease {
				t.Errorf("lease %q, want at most %d s", s["ServiceLease"], rec.ServiceLease)
			}
			for i, part := range []int{1, 2, 4, 8} { // 16 numbers of 8 bits, 8 of 16, 4 of 32, 2 of 64
				for k := range 16 / part {
					var got, want uint64
					_, rest, _ := strings.Cut(list[0].text, fmt.Sprintf("ServiceData%d.%d.", 8*part, k+1))
					fmt.Sscanf(strings.TrimLeft(rest, "."), "0x%x", &got)
					for _, b := range rec.ServiceData[16*i+part*k:][:part] {
						want = want<<8 | uint64(b)
					}
					same(t, fmt.Sprintf("ServiceData%d.%d", 8*part, k+1), got, want)
				}
			}
			key := fmt.Sprintf("ServiceKey..............0x%x\n", rec.ServiceKey)
			same(t, fmt.Sprintf("trusted %v: knows the key", trusted), strings.Contains(list[0].text, key), trusted)
		}
	}
	if st, _ := c.ask(t, mad.MethodDelete, mad.AttrServiceRecord,
		mask(mad.ServiceRecordTable, "ServiceID", "ServiceGID", "ServiceP_Key"), &rec); st != mad.StatusOK {
		t.Fatalf("deregistering: %v", st)
	}
	same(t, "in the end", len(records(w.run("h3", "saquery", "SR"))), 0)
}

func TestSaqueryInforms(t *testing.T) {
	t.Parallel()
	w := up(t, defaultSpec)
	same(t, "at first", len(records(w.run("h3", "saquery", "--smkey", "1", "IIR"))), 0)
	for _, name := range []string{"h9", "h17"} {
		c := w.client(name)
		in := mad.InformInfo{LIDRangeBegin: mad.InformAllLIDs, IsGeneric: 1, Subscribe: 1, Type: 0xFFFF,
			TrapNumberDeviceID: 64, QPN: ib.QPNGSI, ProducerTypeVendorID: mad.ProducerClassManager}
		if st, _ := c.ask(t, mad.MethodSet, mad.AttrInformInfo, 0, &in); st != mad.StatusOK {
			t.Fatalf("%s subscribes: %v", name, st)
		}
	}
	list := keyed(t, records(w.run("h3", "saquery", "--smkey", "1", "IIR")), "SubscriberGID")
	same(t, "trusted: subscriptions", len(list), 2)
	for _, name := range []string{"h9", "h17"} {
		g := shortGID(gid(w.node(name), 1))
		s, ok := list[g]
		if !ok {
			t.Fatalf("no subscription of %s: %v", name, list)
		}
		same(t, "lid_range_begin", s.sheet["lid_range_begin"], "65535")
		same(t, "trap_num", s.sheet["trap_num"], "64")
		same(t, "is_generic", s.sheet["is_generic"], "0x1")
		one := records(w.run("h3", "saquery", "--smkey", "1", "IIR", g))
		same(t, "by subscriber", len(one), 1)
	}
	same(t, "untrusted, a stranger", len(records(w.run("h3", "saquery", "-I"))), 0)
	same(t, "untrusted, a subscriber", len(records(w.run("h9", "saquery", "-I"))), 1)
}

func TestSaqueryClassPortInfo(t *testing.T) {
	t.Parallel()
	w := up(t, defaultSpec)
	for _, args := range [][]string{{"-c"}, {"CPI"}, {"ClassPortInfo"}} {
		list := records(w.run("h3", "saquery", args...))
		if len(list) != 1 {
			t.Fatalf("%d records", len(list))
		}
		s := list[0].sheet
		same(t, "Base version", s["Base version"], "1")
		same(t, "Class version", s["Class version"], "2")
		same(t, "Redirect LID", s["Redirect LID"], "0")
		var caps uint32
		fmt.Sscanf(s["Capability mask"], "0x%x", &caps)
		if caps&0x200 == 0 {
			t.Errorf("capability mask %#x does not offer optional records", caps)
		}
	}
	// A key that is nobody's is refused rather than taken for none.
	wants(t, w.fails("h3", "saquery", "--smkey", "0x77", "NR"), "failed")
}
