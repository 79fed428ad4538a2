package hostfiles

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"softib/node/hca"
	"softib/proto/ib"
	"softib/proto/mad"
)

// Adapters at Ethernet say so, have their interface beside their GIDs, and no device for management.
func TestEthernet(t *testing.T) {
	root := filepath.Join(t.TempDir(), "files")
	info := mad.PortInfo{PortState: ib.PortActive, PortPhysicalState: ib.PhysLinkUp, LinkWidthActive: ib.Width4x,
		LinkSpeedActive: 1, GUIDCap: 8}
	gids := []ib.GID{{10: 0xFF, 11: 0xFF, 12: 192, 14: 2, 15: 1}, {0xFE, 0x80, 15: 9}}
	all := []Interface{{Name: "eth7", GUID: 0x1234, Info: info, GIDs: gids},
		{Name: "eth8", GUID: 0x5678, Info: info, GIDs: gids[:1]}}
	var e *Ethernet
	for range 2 { // anew
		var err error
		if e, err = NewEthernet(root, Config{Device: "softib0", Model: "m"}, all); err != nil {
			t.Fatal(err)
		}
	}
	port := filepath.Join(root, "sys/class/infiniband/softib0/ports/1")
	for file, want := range map[string]string{
		"link_layer": "Ethernet", "state": "4: ACTIVE", "gids/0": "0000:0000:0000:0000:0000:ffff:c000:0201",
		"gid_attrs/types/1": "RoCE v2", "gid_attrs/ndevs/0": "eth7", "pkeys/0": "0xffff", "lid": "0x0",
		"../../node_guid": "0000:0000:0000:1234", "../../../softib1/node_guid": "0000:0000:0000:5678",
		"../../../softib1/ports/1/gid_attrs/ndevs/0": "eth8", "../../../../infiniband_verbs/uverbs1/ibdev": "softib1",
		"../../../../infiniband_verbs/uverbs1/dev": "231:193",
	} {
		b, err := os.ReadFile(filepath.Join(port, file))
		if got := string(b); err != nil || got != want+"\n" {
			t.Errorf("%s: %q, %v: want %q", file, got, err, want)
		}
	}
	// An address goes, and another comes; the file is the same one.
	held, err := os.Open(filepath.Join(port, "gids/0"))
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	all[0].Info.PortState, all[0].GIDs = ib.PortDown, []ib.GID{{}, gids[1], gids[0]}
	all[0].Port[ib.PortXmitData], all[0].Port[ib.PortXmitPkts], all[0].Port[ib.LinkDownedCounter] = 1<<40, 77, 300
	all[0].Engine.SendErrors[hca.WCRetryExcErr], all[0].Engine.RNRsSent = 3, 4
	all[0].Engine.Duplicates, all[0].Engine.Drops[hca.DropDuplicate] = 5, 6
	if err := e.Update(all); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{"counters/port_xmit_data": "1099511627776", "counters/link_downed": "255",
		"hw_counters/link_downed": "300", "hw_counters/sent_pkts": "77", "hw_counters/retry_exceeded_err": "3",
		"hw_counters/send_rnr_err": "4", "hw_counters/req_transport_retries_exceeded": "3",
		"hw_counters/duplicate_request": "11", "hw_counters/lifespan": "1000"} {
		if b, err := os.ReadFile(filepath.Join(port, file)); err != nil || string(b) != want+"\n" {
			t.Errorf("%s: %q, %v: want %q", file, b, err, want)
		}
	}
	b, _ := io.ReadAll(held)
	for file, want := range map[string]string{"state": "1: DOWN\n", "gid_attrs/types/0": "",
		"gid_attrs/ndevs/2": "eth7\n",
		"gids/0":            "0000:0000:0000:0000:0000:0000:0000:0000\n", "gids/7": string(b)} {
		if b, err := os.ReadFile(filepath.Join(port, file)); err != nil || string(b) != want {
			t.Errorf("then %s is %q, %v: want %q", file, b, err, want)
		}
	}
	// Programs that want to know how near two adapters are to each other find them to be two.
	var real [2]string
	for i, name := range []string{"softib0", "softib1"} {
		var err error
		real[i], err = filepath.EvalSymlinks(filepath.Join(root, "sys/class/infiniband", name, "device"))
		if err != nil {
			t.Fatal(err)
		}
	}
	if real[0] == real[1] || !strings.HasSuffix(real[1], ":01:00.0") {
		t.Errorf("the adapters are at %s", real)
	}
	if list, _ := filepath.Glob(filepath.Join(root, "sys/class/infiniband_mad/*mad*")); len(list) > 0 {
		t.Errorf("there is %v", list)
	}
}
