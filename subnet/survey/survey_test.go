package survey

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"softib/proto/ib"
	"softib/proto/mad"
	"softib/proto/topo"
	"softib/subnet/route"
)

// names are the survey's nodes with what each port is cabled to, sorted.
func names(s *Survey) []string {
	var list []string
	for i, n := range s.Nodes {
		var b strings.Builder
		b.WriteString(n.Name)
		for p := 1; p < len(n.Ports); p++ {
			x := &n.Ports[p]
			b.WriteString(" ")
			switch {
			case x.Cabled():
				b.WriteString(s.PortName(topo.PortRef{Node: x.Peer, Port: x.PeerPort}))
				if y := s.Nodes[x.Peer].Ports[x.PeerPort]; y.Peer != i || int(y.PeerPort) != p {
					b.WriteString("(one-sided)")
				}
			case x.Silent:
				b.WriteString("silent")
			default:
				b.WriteString("-")
			}
		}
		list = append(list, b.String())
	}
	slices.Sort(list)
	return list
}

func wantNames(t *testing.T, s *Survey, want ...string) {
	t.Helper()
	if got := names(s); !slices.Equal(got, want) {
		t.Errorf("found\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

var treeNames = []string{
	"h1 leaf1[1]", "h2 leaf1[2]", "h3 leaf2[1]", "h4 leaf2[2]",
	"leaf1 h1[1] h2[1] spine1[1] spine2[1]", "leaf2 h3[1] h4[1] spine1[2] spine2[2]",
	"spine1 leaf1[3] leaf2[3] - -", "spine2 leaf1[4] leaf2[4] - -",
}

// TestWhole: everything of a fabric that answers is read, once.
func TestWhole(t *testing.T) {
	w := tree()
	w.nodes[2].lft[7] = 3
	w.nodes[5].keys = []ib.PKey{0x8001, 0, ib.PKeyDefault}
	w.nodes[5].count[ib.SymbolErrorCounter] = 1 << 40
	s := w.survey(t, New(Config{Parts: All}))
	wantNames(t, s, treeNames...)
	// the world has no administrator
	if s.GapCount != 2 || s.Gaps[0].Class != mad.ClassSA || s.Gaps[1].Class != mad.ClassSA {
		t.Errorf("gaps %+v", s.Gaps)
	}
	if s.PortName(s.From) != "h1[1]" || s.Port(s.From).Manager == nil ||
		s.Port(s.From).Manager.SMState != mad.SMMaster {
		t.Errorf("from %v: %+v", s.From, s.Port(s.From))
	}
	if s.Port(s.From).Info.LID != 5 || s.Nodes[1].Name != "leaf1" || s.Nodes[1].LFT[7] != 3 ||
		len(s.Nodes[1].LFT) != 64 {
		t.Errorf("%+v", s.Nodes[1])
	}
	var h2 topo.PortRef
	for i, n := range s.Nodes {
		if n.Name == "h2" {
			h2 = topo.PortRef{Node: i, Port: 1}
		}
	}
	if !slices.Equal(s.Port(h2).PKeys, []ib.PKey{0x8001, 0, ib.PKeyDefault}) || !s.Port(h2).HasPKeys {
		t.Errorf("keys %v", s.Port(h2).PKeys)
	}
	if r := s.Reading(h2); !r.Valid || !r.Wide || r.Counters[ib.SymbolErrorCounter] != 1<<40 || r.At == 0 {
		t.Errorf("reading %+v", r)
	}
	if w.asked[question{mad.ClassPerf, mad.AttrPortCounters}] != 0 ||
		w.asked[question{mad.ClassSMDirect, mad.AttrNodeDescription}] != 8 ||
		w.asked[question{mad.ClassSMDirect, mad.AttrNodeInfo}] != 1+1+16-4 {
		t.Errorf("asked %v", w.asked)
	}
	if s.Asked == 0 || s.Ended <= s.Began {
		t.Errorf("asked %d, from %v to %v", s.Asked, s.Began, s.Ended)
	}
	g, err := s.Graph()
	if err != nil {
		t.Fatal(err)
	}
	if len(g.Nodes) != 8 || g.NumCables() != 8 || g.PortName(s.From) != "h1[1]" || g.Port(s.From).LID != 5 ||
		g.LinkRate(s.From) != (ib.LinkRate{Width: ib.Width4x, Speed: ib.HDR}) {
		t.Errorf("%s", topo.Describe(g))
	}
	for i, n := range g.Nodes {
		if n.Name != s.Nodes[i].Name || n.PortGUID(s.Nodes[i].EndPort(1)) == 0 {
			t.Errorf("node %d is %s and %s", i, n.Name, s.Nodes[i].Name)
		}
	}
}

// TestWindow: the order of answers makes no difference to what is found, only to the numbers.
func TestWindow(t *testing.T) {
	want := names(tree().survey(t, New(Config{Parts: All, Window: 1})))
	for _, window := range []int{2, 3, 7, 1000} {
		if got := names(tree().survey(t, New(Config{Parts: All, Window: window}))); !slices.Equal(got, want) {
			t.Errorf("window %d: %v", window, got)
		}
	}
}

// TestAgain: a second look shares what it does not read, and leaves the first as it was.
func TestAgain(t *testing.T) {
	w := tree()
	before := w.survey(t, New(Config{Parts: Counters | Tables}))
	for _, n := range w.nodes {
		n.count[ib.PortXmitData] = 77
	}
	after := w.survey(t, Again(before, Config{Parts: Counters}))
	if w.asked[question{mad.ClassSMDirect, mad.AttrNodeInfo}] != 0 ||
		w.asked[question{mad.ClassSMDirect, mad.AttrLFT}] != 0 ||
		w.asked[question{mad.ClassPerf, mad.AttrPortCountersExtended}] == 0 {
		t.Errorf("asked %v", w.asked)
	}
	if before.Reading(before.From).Counters[ib.PortXmitData] != 0 ||
		after.Reading(after.From).Counters[ib.PortXmitData] != 77 {
		t.Error("the first look has changed, or the second has not")
	}
	for i := range before.Nodes {
		if before.Nodes[i] != after.Nodes[i] {
			t.Errorf("%s was copied", before.Nodes[i].Name)
		}
	}
	// Tables are read into copies.
	w.nodes[2].lft[3] = 9
	later := w.survey(t, Again(after, Config{Parts: Tables}))
	if later.Nodes[1].LFT[3] != 9 || after.Nodes[1].LFT[3] != 0 {
		t.Error("a table was read into an older survey")
	}
	if later.Parts != Counters|Tables {
		t.Errorf("parts %b", later.Parts)
	}
}

// TestDuplicates: two nodes with one GUID are two, wherever they are, and each has its own cables.
func TestDuplicates(t *testing.T) {
	t.Run("adapters", func(t *testing.T) {
		w := tree()
		w.nodes[7].info.NodeGUID = w.nodes[5].info.NodeGUID // h4 has h2's
		wantNames(t, w.survey(t, New(Config{})), treeNames...)
	})
	t.Run("adapter of the asker", func(t *testing.T) {
		w := tree()
		w.nodes[7].info.NodeGUID = w.nodes[4].info.NodeGUID
		wantNames(t, w.survey(t, New(Config{})), treeNames...)
	})
	t.Run("spines", func(t *testing.T) {
		w := tree()
		w.nodes[1].info.NodeGUID = w.nodes[0].info.NodeGUID
		s := w.survey(t, New(Config{}))
		wantNames(t, s, treeNames...)
		g, err := s.Graph()
		if err != nil || g.NumCables() != 8 {
			t.Fatal(err)
		}
	})
	t.Run("leaves", func(t *testing.T) {
		w := tree()
		w.nodes[3].info.NodeGUID = w.nodes[2].info.NodeGUID
		wantNames(t, w.survey(t, New(Config{})), treeNames...)
	})
	t.Run("a switch and an adapter", func(t *testing.T) {
		w := tree()
		w.nodes[7].info.NodeGUID = w.nodes[0].info.NodeGUID
		wantNames(t, w.survey(t, New(Config{})), treeNames...)
	})
	t.Run("same description too", func(t *testing.T) {
		w := tree()
		w.nodes[7].info.NodeGUID, w.nodes[7].desc = w.nodes[5].info.NodeGUID, w.nodes[5].desc
		s := w.survey(t, New(Config{}))
		if got := names(s); !slices.ContainsFunc(got,
			func(n string) bool { return n == "h2-2 leaf2[2]" || n == "h2-2 leaf1[2]" }) {
			t.Errorf("%v", got)
		}
		// Renaming does not give both the same name.
		r := s.Renamed(func(g ib.GUID) string {
			if g == w.nodes[5].info.NodeGUID {
				return "twin"
			}
			return ""
		})
		if slices.ContainsFunc(r.Nodes, func(n *Node) bool { return n.Name == "twin" }) {
			t.Error("a node whose GUID is not its own was renamed by it")
		}
	})
}

// TestTwoPorts: an adapter with two ports at two switches is one node.
func TestTwoPorts(t *testing.T) {
	w := tree()
	h := w.add("big HCA-1", ib.NodeCA, 0xB16000, 2)
	w.nodes[2].peers = append(w.nodes[2].peers, topo.PortRef{Node: -1})
	w.nodes[2].ports = append(w.nodes[2].ports, w.nodes[2].ports[0])
	w.nodes[2].info.NumPorts++
	w.connect(h, 1, 2, 5)
	w.connect(h, 2, 0, 3)
	s := w.survey(t, New(Config{}))
	if got := names(s); !slices.Contains(got, "big leaf1[5] spine1[3]") || len(got) != 9 {
		t.Errorf("%v", got)
	}
}

// TestLoopback: a cable between two ports of one switch, and a plug that leads a port back to itself.
func TestLoopback(t *testing.T) {
	w := tree()
	w.connect(0, 3, 0, 4)
	w.connect(1, 3, 1, 3)
	s := w.survey(t, New(Config{}))
	got := names(s)
	if !slices.Contains(got, "spine1 leaf1[3] leaf2[3] spine1[4] spine1[3]") || len(got) != 8 {
		t.Errorf("%v", got)
	}
	if _, err := s.Graph(); err != nil {
		t.Error(err)
	}
	s.Routing(true)
}

// TestSilence: what does not answer is noted, and everything else is found.
func TestSilence(t *testing.T) {
	t.Run("a host", func(t *testing.T) {
		w := tree()
		w.twist = func(node int, _ mad.View, _ []byte) bool { return node != 7 }
		s := w.survey(t, New(Config{Parts: All}))
		want := slices.DeleteFunc(slices.Clone(treeNames), func(n string) bool { return strings.HasPrefix(n, "h4") })
		want[slices.IndexFunc(want, func(n string) bool {
			return strings.HasPrefix(n,
				"leaf2")
		})] = "leaf2 h3[1] silent spine1[2] spine2[2]"
		wantNames(t, s, want...)
	})
	t.Run("a switch that answers only who it is", func(t *testing.T) {
		w := tree()
		w.twist = func(node int, req mad.View, _ []byte) bool { return node != 1 || req.AttrID() == mad.AttrNodeInfo }
		s := w.survey(t, New(Config{Parts: All}))
		if len(s.Nodes) != 8 {
			t.Fatalf("%v", names(s))
		}
		i := slices.IndexFunc(s.Nodes, func(n *Node) bool { return n.Info.NodeGUID == w.nodes[1].info.NodeGUID })
		n := s.Nodes[i]
		if n.HasSwitch || n.LFT != nil || n.Ports[1].Known || !n.Ports[1].Cabled() || !n.Ports[2].Cabled() {
			t.Errorf("%+v", n)
		}
		if s.GapCount == 0 {
			t.Error("no gap")
		}
	})
	t.Run("tables", func(t *testing.T) {
		w := tree()
		for _, n := range w.nodes {
			n.lft = make([]ib.PortNum, 64*200)
			n.info.PartitionCap = 128
		}
		w.twist = func(node int, req mad.View, _ []byte) bool {
			return (node != 3 || req.AttrID() != mad.AttrLFT) &&
				(node != 5 || req.AttrID() != mad.AttrPKeyTable || req.AttrMod() == 0)
		}
		s := w.survey(t, New(Config{Parts: All, Window: 4}))
		if n := w.asked[question{mad.ClassSMDirect, mad.AttrLFT}]; n > 3*200+strikesMax+4 {
			t.Errorf("a switch that does not answer was asked again and again: %d", n)
		}
		i := slices.IndexFunc(s.Nodes, func(n *Node) bool { return n.Name == "leaf2" })
		if s.Nodes[i].LFT[0] != mad.LFTNone {
			t.Error("a table that was not read has entries")
		}
		i = slices.IndexFunc(s.Nodes, func(n *Node) bool { return n.Name == "h2" })
		if s.Nodes[i].Ports[1].HasPKeys {
			t.Error("half of a partition table passes for all of it")
		}
	})
	t.Run("performance management", func(t *testing.T) {
		w := tree()
		w.twist = func(_ int, req mad.View, _ []byte) bool { return req.Class() != mad.ClassPerf }
		s := w.survey(t, New(Config{Parts: All}))
		if s.Reading(s.From).Valid || w.asked[question{mad.ClassPerf, mad.AttrPortCountersExtended}]+
			w.asked[question{mad.ClassPerf, mad.AttrPortCounters}] != 0 {
			t.Errorf("asked %v", w.asked)
		}
	})
	t.Run("the asker's own port", func(t *testing.T) {
		w := tree()
		w.twist = func(int, mad.View, []byte) bool { return false }
		s := w.survey(t, New(Config{Parts: All}))
		if len(s.Nodes) != 0 || s.GapCount != 1 {
			t.Errorf("%d nodes, %d gaps", len(s.Nodes), s.GapCount)
		}
	})
	t.Run("short answers", func(t *testing.T) {
		w := tree()
		w.asked = map[question]int{}
		e := New(Config{})
		var s Send
		for e.PollSend(1, &s) {
			e.HandleReply(2, s.Cookie, w.answer(&s)[:100])
			e.HandleReply(2, s.Cookie, nil) // nobody waits for it any more
			e.HandleReply(2, 12345, nil)
		}
		if !e.Done() || e.Survey().GapCount != 1 {
			t.Errorf("%+v", e.Survey())
		}
	})
}

// TestNonsense: a node that says impossible things is left out, and the rest is found.
func TestNonsense(t *testing.T) {
	for name, spoil := range map[string]func(*mad.NodeInfo){
		"no GUID":    func(n *mad.NodeInfo) { n.NodeGUID = 0 },
		"no type":    func(n *mad.NodeInfo) { n.NodeType = 9 },
		"no ports":   func(n *mad.NodeInfo) { n.NumPorts = 0 },
		"wrong port": func(n *mad.NodeInfo) { n.LocalPortNum = 200 },
	} {
		t.Run(name, func(t *testing.T) {
			w := tree()
			w.twist = func(node int, req mad.View, resp []byte) bool {
				if node == 6 && req.AttrID() == mad.AttrNodeInfo {
					var n mad.NodeInfo
					n.Parse(resp[mad.SMPDataOff:])
					spoil(&n)
					n.Append(resp[mad.SMPDataOff:mad.SMPDataOff])
				}
				return true
			}
			s := w.survey(t, New(Config{}))
			if len(s.Nodes) != 7 || len(s.Gaps) != 1 || s.Gaps[0].Nonsense == "" {
				t.Errorf("%v, gaps %+v", names(s), s.Gaps)
			}
		})
	}
}

// TestLiar: a node that makes up another GUID with each answer cannot keep a survey busy for ever.
func TestLiar(t *testing.T) {
	w := tree()
	k := ib.GUID(0)
	w.twist = func(node int, req mad.View, resp []byte) bool {
		if node == 1 && req.AttrID() == mad.AttrNodeInfo {
			var n mad.NodeInfo
			n.Parse(resp[mad.SMPDataOff:])
			k++
			n.NodeGUID = 0xABC000 + k%3
			n.Append(resp[mad.SMPDataOff:mad.SMPDataOff])
		}
		return true
	}
	s := w.survey(t, New(Config{}))
	if len(s.Nodes) < 8 || len(s.Nodes) > 8+duplicatesMax+64 {
		t.Errorf("%d nodes", len(s.Nodes))
	}
}

// TestNarrow: nodes without counters of 64 bits are read by the old attribute.
func TestNarrow(t *testing.T) {
	w := tree()
	for _, n := range w.nodes {
		n.narrow = true
		n.count[ib.SymbolErrorCounter] = 1 << 20
		n.count[ib.PortRcvPkts] = 5
	}
	s := w.survey(t, New(Config{Parts: Counters}))
	if r := s.Reading(s.From); !r.Valid || r.Wide || r.WideData || r.Counters[ib.SymbolErrorCounter] != 0xFFFF ||
		r.Counters[ib.PortRcvPkts] != 5 {
		t.Errorf("%+v", r)
	}
}

// TestSharedLID: counters of a LID that two ports have are nobody's.
func TestSharedLID(t *testing.T) {
	w := tree()
	w.nodes[6].ports[1].LID = w.nodes[7].ports[1].LID
	s := w.survey(t, New(Config{Parts: Counters}))
	for i, n := range s.Nodes {
		if valid := s.Reading(topo.PortRef{Node: i, Port: 1}).Valid; valid == (n.Name == "h3" || n.Name == "h4") {
			t.Errorf("%s: read %v", n.Name, valid)
		}
	}
}

// TestRouting: the network has what is active, and the tables that were read.
func TestRouting(t *testing.T) {
	w := tree()
	w.nodes[2].ports[3].PortState = ib.PortArmed
	w.nodes[2].lft[8] = 4
	s := w.survey(t, New(Config{Parts: Tables}))
	r := s.Routing(false)
	if len(r.Nodes) != 4 || len(r.Net.Links()) != 3 || len(r.Net.Dests) != 8 || r.Net.Top != 8 || r.Unread != nil {
		t.Errorf("%d switches, %d links, %d destinations to %d", len(r.Nodes), len(r.Net.Links()), len(r.Net.Dests),
			r.Net.Top)
	}
	for k, i := range r.Nodes {
		if s.Nodes[i].Name == "leaf1" && r.Tables.LFT[k][8] != 4 {
			t.Error("an entry is lost")
		}
	}
	// Tables are not copied, but for one that ends before the last address.
	s.Nodes[r.Nodes[0]].LFT = s.Nodes[r.Nodes[0]].LFT[:3]
	again := s.Routing(false)
	for k, i := range again.Nodes {
		row, own := again.Tables.LFT[k], s.Nodes[i].LFT
		if shares := &row[0] == &own[0]; len(row) != 9 || shares == (k == 0) || row[2] != own[2] {
			t.Errorf("%s: %d entries, its own %v", s.Nodes[i].Name, len(row), shares)
		}
		if k == 0 && (row[3] != route.NoPort || row[8] != route.NoPort || own[:9][8] == route.NoPort) {
			t.Errorf("%s: %v of %v", s.Nodes[i].Name, row, own[:9])
		}
	}
}

// TestDeterminism: the same world gives the same survey, byte for byte.
func TestDeterminism(t *testing.T) {
	a, b := tree().survey(t, New(Config{Parts: All})), tree().survey(t, New(Config{Parts: All}))
	if !reflect.DeepEqual(a, b) {
		t.Error("two surveys of one world differ")
	}
}

// FuzzReply gives random bytes for answers: the engine must end, and must not panic; whatever it then has can be used.
func FuzzReply(f *testing.F) {
	f.Add([]byte{0})
	f.Add([]byte("\x01\x02\x03\x80\x00\x00\x00\xff"))
	f.Add([]byte{0xff, 0x00, 0x7f, 0x40, 0x01})
	f.Fuzz(func(t *testing.T, noise []byte) {
		w := tree()
		at := 0
		w.twist = func(node int, req mad.View, resp []byte) bool {
			if len(noise) == 0 {
				return true
			}
			next := func() byte { at++; return noise[(at-1)%len(noise)] }
			switch next() % 5 {
			case 0:
				return false
			case 1:
				resp[mad.SMPDataOff+int(next())%mad.SMPDataLen] = next()
			case 2:
				for i := range 64 {
					resp[mad.SMPDataOff+i] ^= next()
				}
			case 3:
				mad.View(resp).SetStatus(mad.Status(next()))
			}
			return true
		}
		s := w.survey(t, New(Config{Parts: All}))
		if _, err := s.Graph(); err != nil {
			if _, ok := errors.AsType[*topo.NodeError](err); !ok {
				if _, ok := errors.AsType[*topo.PortError](err); !ok {
					t.Fatal(err)
				}
			}
		}
		s.Routing(true)
		w.survey(t, Again(s, Config{Parts: All}))
	})
}

// TestFDR10: a port that says QDR is asked whether it is FDR10, if its device may know that, and only then.
func TestFDR10(t *testing.T) {
	const cx3, infiniHost = 0x1003, 0x5a44
	for _, c := range []struct {
		device uint16
		active ib.Speed
		mlnx   uint8
		want   ib.Speed
		asked  int
	}{
		{cx3, ib.QDR, mad.MlnxSpeedFDR10, ib.FDR10, 1},
		{cx3, ib.QDR, 0, ib.QDR, 1},
		{infiniHost, ib.QDR, mad.MlnxSpeedFDR10, ib.QDR, 0},
		{cx3, ib.HDR, 0, ib.HDR, 0},
	} {
		w := tree()
		n := w.nodes[len(w.nodes)-1]
		for i := range w.nodes {
			w.nodes[i].info.VendorID, w.nodes[i].info.DeviceID = 0x2c9, infiniHost
		}
		n.info.DeviceID = c.device
		n.ports[1].SetSpeeds(ib.FDR, ib.FDR, c.active)
		n.ports[1].Mlnx.LinkSpeedActive = c.mlnx
		s := w.survey(t, New(Config{Window: 4}))
		for _, at := range s.Nodes {
			if at.Info.NodeGUID != n.info.NodeGUID {
				continue
			}
			if got := at.Ports[1].Info.ActiveSpeed(); got != c.want {
				t.Errorf("%+v: %v", c, got)
			}
		}
		if got := w.asked[question{mad.ClassSMDirect, mad.AttrMlnxExtPortInfo}]; got != c.asked || s.GapCount != 0 {
			t.Errorf("%+v: %d questions, %d gaps", c, got, s.GapCount)
		}
	}
}
