package hostfiles

import (
	"os"
	"path/filepath"
	"testing"

	"softib/proto/ib"
	"softib/proto/mad"
)

// An adapter at Ethernet says so, has its interface beside its GIDs, and no device for management.
func TestEthernet(t *testing.T) {
	root := filepath.Join(t.TempDir(), "files")
	info := mad.PortInfo{PortState: ib.PortActive, PortPhysicalState: ib.PhysLinkUp, LinkWidthActive: ib.Width4x,
		LinkSpeedActive: 1}
	gids := []ib.GID{{10: 0xFF, 11: 0xFF, 12: 192, 14: 2, 15: 1}, {0xFE, 0x80, 15: 9}}
	for range 2 { // anew
		err := Ethernet(root, Config{Device: "softib0", Model: "m", Interface: "eth7"}, 0x1234, gids, info)
		if err != nil {
			t.Fatal(err)
		}
	}
	port := filepath.Join(root, "sys/class/infiniband/softib0/ports/1")
	for file, want := range map[string]string{
		"link_layer": "Ethernet", "state": "4: ACTIVE", "gids/0": "0000:0000:0000:0000:0000:ffff:c000:0201",
		"gid_attrs/types/1": "RoCE v2", "gid_attrs/ndevs/0": "eth7", "pkeys/0": "0xffff", "lid": "0x0",
		"../../node_guid": "0000:0000:0000:1234",
	} {
		b, err := os.ReadFile(filepath.Join(port, file))
		if got := string(b); err != nil || got != want+"\n" {
			t.Errorf("%s: %q, %v: want %q", file, got, err, want)
		}
	}
	if list, _ := filepath.Glob(filepath.Join(root, "sys/class/infiniband_mad/*mad*")); len(list) > 0 {
		t.Errorf("there is %v", list)
	}
}
