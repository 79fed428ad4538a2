package topo

import (
	"strings"
	"testing"

	"softib/proto/ib"
)

// TestCapable: what ports can do comes from the dump if it says so, and else from the node's other ports.
func TestCapable(t *testing.T) {
	const end = ` Active/  LinkUp)==>       5    8[  ] "MF0;leaf2:SX6036/U1" ( `
	text := strings.ReplaceAll(string(readFile(t, "dumps/small.linkinfo")), `4X  10.0 Gbps (FDR10)`+end,
		`1X           5.0 Gbps`+end+`Could be 4X Could be 14.0625 Gbps`)
	r, err := Read("linkinfo", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	at := PortRef{r.ByName("leaf1").Index, 8}
	full := ib.LinkRate{Width: ib.Width4x, Speed: ib.FDR}
	if got := r.LinkRate(at); got != (ib.LinkRate{Width: ib.Width1x, Speed: ib.DDR}) || r.CapableLink(at) != full {
		t.Errorf("runs at %v, can do %v", got, r.CapableLink(at))
	}
	roundTrip(t, r.Graph)

	g := mustRead(t, "small.ibdiagnet2.db_csv").Graph
	for _, c := range []struct {
		node  string
		port  ib.PortNum
		width ib.Width
		speed ib.Speed
	}{
		{"leaf1", 2, ib.Width4x, ib.FDR10}, // at QDR beside others at FDR10
		{"leaf2", 1, ib.Width4x, ib.FDR10}, // a lane of four
		{"node02", 1, ib.Width1x, ib.FDR10},
		{"leaf1", 5, 0, 0},
	} {
		want := ib.LinkRate{Width: c.width, Speed: c.speed}
		if got := g.Capable(PortRef{g.ByName(c.node).Index, c.port}); got != want {
			t.Errorf("%s[%d] can do %v", c.node, c.port, got)
		}
	}
	// A section that says it is believed.
	text = strings.Replace(string(readFile(t, "dumps/small.ibdiagnet2.db_csv")), "LMC,PortPhyState,PortState\n",
		"LMC,PortPhyState,LinkSpeedSup\n", 1)
	text = strings.ReplaceAll(text, ",4,0,5,4\n", ",4,0,5,263\n") // FDR and below
	if g, err = Parse("db_csv", []byte(text)); err != nil {
		t.Fatal(err)
	}
	if got := g.Capable(PortRef{g.ByName("node02").Index, 1}); got != full {
		t.Errorf("node02 can do %v", got)
	}
	if g.CapableLink(PortRef{}) != (ib.LinkRate{}) {
		t.Error("no cable can do something")
	}
}
