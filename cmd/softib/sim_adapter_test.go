package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"softib/operate/experiment"
	"softib/operate/wiring"
)

// TestSimAdapters asks for adapters that cost something, and for figures that there are none of.
func TestSimAdapters(t *testing.T) {
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	load := []string{"sim", "star:2,speed=HDR", "--load", "outcast:receivers=1,size=64,count=400,window=64"}
	with := func(more ...string) []string { return append(append([]string{}, load...), more...) }
	out, _, _ := softib(t, with()...)
	wants(t, out, "energy", "cost       US$")
	out, _, _ = softib(t, with("--set", "adapter=cx6", "--set", "qps=8", "--set", "read=1", "--set", "qp-cache=4")...)
	wants(t, out, "up to 8 queue pairs", "of the READs")
	for _, c := range []struct{ want, set string }{
		{"want cx5 (ConnectX-5", "adapter=cx1"}, {"name one before it, as in --set adapter=cx6", "qp-cache=4"},
		{"want 1 to 131072", "qps=0"},
	} {
		broken(t, exitUsage, []string{c.want}, with("--set", c.set)...)
	}
	broken(t, exitFailed, []string{"no two switches are joined"}, with("--set", "lose-links=1")...)
	out, _, _ = softib(t, "sim", "fat-tree:radix=4,levels=2", "--load", "permutation:size=256K", "--set",
		"lose-links=1", "--set", "sweep-after=10000", "--set", "ack-timeout=4")
	wants(t, out, "lost       1 link;")
	broken(t, exitUsage, []string{"want 1 to 6"}, with("--set", "adapter=cx6", "--set", "pcie-gen=9")...)
	broken(t, exitFailed, []string{"adapters pay for packets"}, with("--set", "adapter=cx6", "--level", "flows")...)
}

// TestPrices: sim and topo bom say the same, with prices of a file too.
func TestPrices(t *testing.T) {
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	file := filepath.Join(t.TempDir(), "prices")
	const text = "switch NDR usd 64000 watts 640 idle 50\nadapter NDR usd 100\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	const fabric = "fat-tree:radix=4,levels=2"
	for _, more := range [][]string{nil, {"--prices", file}} {
		out, _, err := softib(t, append([]string{"topo", "bom", fabric, "--json"}, more...)...)
		if err != nil {
			t.Fatal(err)
		}
		b := asJSON[wiring.Bill](t, strings.ReplaceAll(out, `"medium"`, `"_"`)) // which is only written
		out, _, err = softib(t, append([]string{"sim", fabric, "--load", "shift", "--json"}, more...)...)
		if err != nil {
			t.Fatal(err)
		}
		r := asJSON[experiment.Report](t, out)
		if c := r.Cost; c == nil || c.LowUSD != b.LowUSD || c.HighUSD != b.HighUSD || c.Watts != b.Watts ||
			c.IdleWatts != b.IdleWatts || c.Note != b.Estimate || b.LowUSD <= 0 {
			t.Errorf("%v: sim has %+v, topo bom %+v", more, r.Cost, b)
		}
		if more != nil && (len(b.AdapterLines) != 1 || b.AdapterLines[0].LowUSD != 800 ||
			b.Switches[0].HighUSD != 6*4000) {
			t.Errorf("%+v, %+v", b.AdapterLines, b.Switches)
		}
	}
	wants(t, shown(t, "topo", "bom", "--show-prices"), "switch NDR usd 22000 45000 watts 747 idle 85 ports 64",
		"cable XDR single-mode")
	wants(t, shown(t, "topo", "bom", "--show-prices", "--prices", file), "switch NDR usd 64000 64000 watts 640 idle 50")
	if err := os.WriteFile(file, []byte("\nswitch NDR usd much\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"topo", "bom"}, {"sim", "star:2", "--load", "shift"}} {
		broken(t, exitFailed, []string{"prices:2: usd is \"much\": want a number"},
			append(args, "--prices", file)...)
	}
}
