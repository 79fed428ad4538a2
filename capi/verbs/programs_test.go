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
	if out := w.run(t, "h1", tool(t, "ibv_devices", utils)); !strings.Contains(out, "softib0") ||
		!strings.Contains(out, guid) {
		t.Errorf("ibv_devices has no softib0 with GUID %s:\n%s", guid, out)
	}
	out := w.run(t, "h1", tool(t, "ibv_devinfo", utils), "-v")
	for _, want := range []string{
		`hca_id:\s+softib0`, `fw_ver:\s+test`, `phys_port_cnt:\s+1`, `atomic_cap:\s+ATOMIC_HCA`, `state:\s+PORT_ACTIVE`,
		`max_mtu:\s+4096`,
		`active_mtu:\s+4096`, `port_lid:\s+1\b`, `link_layer:\s+InfiniBand`, `phys_state:\s+LINK_UP`,
		`active_width:\s+4X`, `active_speed:\s+100.0 Gbps`,
		`GID\[\s+0\]:\s+fe80:`, `max_qp_rd_atom:\s+128`, `completion timestamp_mask`,
	} {
		if !regexp.MustCompile(want).MatchString(out) {
			t.Errorf("ibv_devinfo does not say %s:\n%s", want, out)
		}
	}
}

// TestWatched: programs under AddressSanitizer, whatever options they have, and under valgrind.
func TestWatched(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	w := newWorld(t, "star:2")
	asan := compile(t, "count.c", "-fsanitize=address")
	for _, options := range []string{"detect_leaks=1", "verify_asan_link_order=0"} {
		if out := w.run(t, "h1", tool(t, "env", "coreutils"), "ASAN_OPTIONS="+options, asan); out != "1 adapters\n" {
			t.Errorf("with ASAN_OPTIONS=%s: %q", options, out)
		}
	}
	out := w.run(t, "h1", tool(t, "valgrind", "valgrind"), "--leak-check=full", tool(t, "ibv_devinfo", utils))
	if !strings.Contains(out, "ERROR SUMMARY: 0 errors") || !strings.Contains(out, "PORT_ACTIVE") {
		t.Errorf("valgrind says:\n%s", out)
	}
}

// TestPingpong and TestPerftest run each program once or twice; internal/fieldtest has them with all that they can do.
func TestPingpong(t *testing.T) {
	if testing.Short() {
		t.Skip("many programs")
	}
	w := newWorld(t, "star:2")
	for _, kind := range []string{"rc", "uc", "ud", "srq", "xsrq"} {
		path := tool(t, "ibv_"+kind+"_pingpong", utils)
		for _, args := range [][]string{nil, {"-e"}} {
			t.Run(strings.Join(append([]string{kind}, args...), " "), func(t *testing.T) {
				s, c := w.pair(t, "h1", "h2", path, args...)
				for _, out := range []string{s, c} {
					if !strings.Contains(out, "iters in") && !strings.Contains(out, "success") {
						t.Errorf("no result:\n%s", out)
					}
				}
			})
		}
	}
}

func TestPerftest(t *testing.T) {
	if testing.Short() {
		t.Skip("many programs")
	}
	w := newWorld(t, "star:2")
	for _, name := range []string{"ib_send_lat", "ib_send_bw", "ib_write_lat", "ib_write_bw", "ib_read_lat",
		"ib_read_bw", "ib_atomic_lat", "ib_atomic_bw"} {
		path := tool(t, name, perftest)
		t.Run(name, func(t *testing.T) {
			_, out := w.pair(t, "h1", "h2", path, "-d", "softib0", "-F", "-n", "200")
			row := `(?m)^ *\d+ +\d+ +\d+\.\d+`
			if strings.Contains(out, "Correlation coefficient") {
				row = `(?m)^ *\d+ +\d+ +(\d+\.\d+|inf)` // it could not find out how fast the processor's clock is
			}
			if !regexp.MustCompile(row).MatchString(out) {
				t.Errorf("no result:\n%s", out)
			}
		})
	}
}
