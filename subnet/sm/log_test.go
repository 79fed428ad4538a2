package sm

import (
	"slices"
	"strings"
	"testing"

	"softib/proto/ib"
	"softib/proto/topo"
)

// What an operator reads: one line for each thing that happened, with names and ports, and why the sweep after it was
// made.
func TestTopologyLog(t *testing.T) {
	n := newNetwork(t, "fat-tree:radix=4,levels=2")
	h := n.manage(0, Config{SweepInterval: -1})
	n.up(h)
	port := func(node string, p int) topo.PortRef {
		return topo.PortRef{Node: n.g.ByName(node).Index, Port: ib.PortNum(p)}
	}
	spine := n.g.Nodes[n.g.ByName("leaf1").Ports[3].Peer]
	for _, c := range []struct {
		what string
		do   func()
		want []string // of each line about topology
	}{
		{"a host goes", func() { n.cut(port("h8", 1)) },
			[]string{`gone: CA "h8 HCA-1" (GUID) behind "leaf4" (GUID) port 2`}},
		{"a host comes", func() { n.join(port("h8", 1)) },
			[]string{`new: CA "h8 HCA-1" (GUID) behind "leaf4" (GUID) port 2`}},
		{"a link goes", func() { n.cut(port("leaf1", 3)) },
			[]string{`link lost: "leaf1" (GUID) port 3 to "` + spine.Name + `" (GUID) port 1`}},
		{"a link comes", func() { n.join(port("leaf1", 3)) },
			[]string{`link found: "leaf1" (GUID) port 3 to "` + spine.Name + `" (GUID) port 1, 4x NDR`}},
		{"a switch goes", func() {
			for p := 1; p < len(spine.Ports); p++ {
				n.cut(topo.PortRef{Node: spine.Index, Port: ib.PortNum(p)})
			}
		}, []string{`gone: Switch "` + spine.Name + `" (GUID) with 4 links`}},
		{"a switch comes", func() {
			for p := 1; p < len(spine.Ports); p++ {
				n.join(topo.PortRef{Node: spine.Index, Port: ib.PortNum(p)})
			}
		}, []string{`new: Switch "` + spine.Name + `" (GUID) with 4 links`}},
	} {
		h.since()
		c.do()
		n.must(30*ib.Second, c.what, func() bool { return h.rests() && h.said("topology: ") })
		n.pass(5 * ib.Second)
		var got []string
		for _, line := range h.log[h.at:] {
			if text, ok := strings.CutPrefix(line, "topology: "); ok {
				got = append(got, withoutGUIDs(text))
			}
			// The first of several links may be swept before the others go.
			if len(got) == 2 && strings.HasPrefix(got[0], "link lost: ") && strings.HasPrefix(got[1], "gone: ") {
				got = got[1:]
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s:\n got  %q\n want %q\n%s", c.what, got, c.want, n.logs())
		}
		if !h.said("sweep: swept (") {
			t.Errorf("%s, but no sweep:\n%s", c.what, n.logs())
		}
	}
}

// withoutGUIDs writes GUID for every number that is one.
func withoutGUIDs(text string) string {
	parts := strings.Split(text, "(0x")
	for i := 1; i < len(parts); i++ {
		parts[i] = "(GUID" + parts[i][strings.IndexByte(parts[i], ')'):]
	}
	return strings.Join(parts, "")
}

func TestBrief(t *testing.T) {
	for at, want := range map[ib.Time]string{
		0: "0us", 999 * ib.Microsecond: "999us", 2068 * ib.Microsecond: "2.07ms", 1500 * ib.Millisecond: "1.50s",
		90 * ib.Second: "90.00s",
	} {
		if got := brief(at); got != want {
			t.Errorf("%v is %q, want %q", at, got, want)
		}
	}
	r := SweepReport{Hosts: 1, Switches: 2, Links: 3, Degraded: 1, Engine: "updn", VLs: 1, Blocks: 4, Problems: 1,
		MADs: 9, Took: 3 * ib.Millisecond}
	if got, want := r.String(), "1 host, 2 switches, 3 links (1 degraded); updn routing on 1 lane, 4 table "+
		"blocks written; 1 problem; 9 datagrams in 3.00ms"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
