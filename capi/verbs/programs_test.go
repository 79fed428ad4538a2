package verbs

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
)

const utils, perftest = "ibverbs-utils", "perftest"

func TestDevices(t *testing.T) {
	w := newWorld(t, "star:2")
	guid := fmt.Sprintf("%016x", uint64(w.Graph().ByName("h1").GUID))
	if out := w.run(t, "h1", tool(t, "ibv_devices", utils)); !strings.Contains(out, "softib0") || !strings.Contains(out, guid) {
		t.Errorf("ibv_devices has no softib0 with GUID %s:\n%s", guid, out)
	}
	out := w.run(t, "h1", tool(t, "ibv_devinfo", utils), "-v")
	for _, want := range []string{
		`hca_id:\s+softib0`, `fw_ver:\s+test`, `phys_port_cnt:\s+1`, `atomic_cap:\s+ATOMIC_HCA`, `state:\s+PORT_ACTIVE`, `max_mtu:\s+4096`,
		`active_mtu:\s+4096`, `port_lid:\s+1\b`, `link_layer:\s+InfiniBand`, `phys_state:\s+LINK_UP`, `active_width:\s+4X`, `active_speed:\s+100.0 Gbps`,
		`GID\[\s+0\]:\s+fe80:`, `max_qp_rd_atom:\s+128`, `completion timestamp_mask`,
	} {
		if !regexp.MustCompile(want).MatchString(out) {
			t.Errorf("ibv_devinfo does not say %s:\n%s", want, out)
		}
	}
}

func TestPingpong(t *testing.T) {
	w := newWorld(t, "fat-tree:radix=4,levels=2")
	for _, test := range []struct {
		kind string
		args [][]string
	}{
		{"rc", [][]string{{}, {"-e"}, {"-c"}, {"-c", "-e"}, {"-m", "256"}, {"-m", "512"}, {"-m", "1024"}, {"-m", "2048"}, {"-m", "4096"}, {"-g", "0"}, {"-s", "1000000", "-n", "20", "-c"}, {"-t"}, {"-N"}}},
		{"uc", [][]string{{}, {"-e"}, {"-m", "256"}, {"-m", "2048"}, {"-g", "0"}}},
		{"ud", [][]string{{}, {"-e"}, {"-g", "0"}, {"-s", "4096"}}},
		{"srq", [][]string{{}, {"-e"}, {"-q", "3"}, {"-m", "512"}}},
		{"xsrq", [][]string{{}, {"-e"}, {"-m", "512"}}},
	} {
		path := tool(t, "ibv_"+test.kind+"_pingpong", utils)
		for _, args := range test.args {
			t.Run(strings.TrimSuffix(test.kind+" "+strings.Join(args, " "), " "), func(t *testing.T) {
				s, c := w.pair(t, "h1", "h5", path, args...)
				for _, out := range []string{s, c} {
					if !strings.Contains(out, "iters in") && !strings.Contains(out, "success") {
						t.Errorf("no result:\n%s", out)
					}
				}
			})
		}
	}
}

// TestPerftest runs the field's own benchmarks, for their results' sake and not for speed.
func TestPerftest(t *testing.T) {
	w := newWorld(t, "star:2")
	for _, test := range []struct {
		name string
		args [][]string
	}{
		{"ib_send_lat", [][]string{{}, {"-c", "UC"}, {"-c", "UD"}, {"-c", "XRC"}, {"-e"}, {"-I", "64", "-s", "64"}, {"--use_old_post_send"}, {"--use-srq"}}},
		{"ib_send_bw", [][]string{{}, {"-c", "UC"}, {"-c", "UD"}, {"-c", "XRC"}, {"-e"}, {"-b"}, {"-q", "16"}, {"-r", "64", "--use-srq"}, {"-s", "1048576"}, {"-s", "8", "-l", "8"}}},
		{"ib_write_lat", [][]string{{}, {"-c", "UC"}, {"-c", "XRC"}}},
		{"ib_write_bw", [][]string{{}, {"-c", "UC"}, {"-c", "XRC"}, {"-b"}, {"-q", "16"}, {"-s", "8"}, {"-s", "1048576"}, {"-D", "1"}, {"--use_old_post_send"}}},
		{"ib_read_lat", [][]string{{}, {"-c", "XRC"}}},
		{"ib_read_bw", [][]string{{}, {"-b"}, {"-q", "16"}, {"-c", "XRC"}}},
		{"ib_atomic_lat", [][]string{{}, {"-A", "CMP_AND_SWAP"}}},
		{"ib_atomic_bw", [][]string{{}, {"-A", "CMP_AND_SWAP"}, {"-b"}, {"-c", "XRC"}}},
	} {
		path := tool(t, test.name, perftest)
		for _, args := range test.args {
			t.Run(strings.TrimSuffix(test.name+" "+strings.Join(args, " "), " "), func(t *testing.T) {
				args := append([]string{"-d", "softib0", "-F"}, args...)
				timed := false
				for _, a := range args {
					timed = timed || a == "-D"
				}
				if !timed {
					args = append(args, "-n", "200")
				}
				_, out := w.pair(t, "h1", "h2", path, args...)
				if !regexp.MustCompile(`(?m)^ *\d+ +\d+ +\d+\.\d+`).MatchString(out) {
					t.Errorf("no result:\n%s", out)
				}
			})
		}
	}
}
