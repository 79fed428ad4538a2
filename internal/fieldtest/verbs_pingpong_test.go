package fieldtest

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var (
	pingpongSpeed = regexp.MustCompile(`(?m)^(\d+) bytes in [0-9.]+ seconds = [0-9.]+ Mbit/sec$`)
	pingpongTime  = regexp.MustCompile(`(?m)^(\d+) iters in [0-9.]+ seconds = [0-9.]+ usec/iter$`)
	// pingpongEnd is an address as the programs exchange it; they differ a little in how they write it.
	pingpongEnd = regexp.MustCompile(`(?m)^ *(local|remote)(?: address)?: +LID (?:0x)?([0-9a-f]{4}), QPN .*GID (\S+)$`)
)

// rdma-core's examples, with all that they have: events, validation, every MTU, global addresses.
func TestPingpong(t *testing.T) {
	t.Parallel()
	w := up(t, "fat-tree:radix=4,levels=2")
	const iters = 200
	// Time stamps (rc -t) are for polling only: when the program sleeps, it takes an event for which the completion is
	// gone already for an error.
	mtus := [][]string{{"-m", "256"}, {"-m", "512"}, {"-m", "1024"}, {"-m", "2048"}, {"-m", "4096"}}
	global := []string{"-g", "0"}
	large := []string{"-c", "-m", "256", "-s", "65536"}
	for _, kind := range []struct {
		name string
		size int // of a message, if nothing else is said
		args [][]string
	}{
		{"rc", 4096, append(mtus, global, []string{"-c"}, large, []string{"-N", "-c"})},
		{"uc", 4096, append(mtus, global, []string{"-c"}, large)},
		{"ud", 2048, [][]string{{}, global, {"-c"}, {"-s", "4096", "-c"}}},
		{"srq", 4096, append(mtus, global, []string{"-c"}, large, []string{"-q", "3"})},
		{"xsrq", 4096, append(mtus, global)},
	} {
		name := "ibv_" + kind.name + "_pingpong"
		tool(t, name)
		t.Run(kind.name, func(t *testing.T) {
			if kind.name == "rc" {
				w.in(t).pair("h1", "h6", name, "-t")
			}
			for _, args := range kind.args {
				for _, sleep := range []bool{false, true} {
					args := slices.Clone(args)
					if sleep {
						args = append(args, "-e")
					}
					t.Run(strings.Join(args, " "), func(t *testing.T) {
						w := w.in(t)
						size := kind.size
						if i := slices.Index(args, "-s"); i >= 0 {
							size, _ = strconv.Atoi(args[i+1])
						} else {
							args = append(args, "-s", strconv.Itoa(size))
						}
						if kind.name != "xsrq" { // whose tests are five
							args = append(args, "-n", strconv.Itoa(iters))
						}
						s, c := w.pair("h1", "h6", name, args...)
						w.pingpong(s, "h1", "h6", slices.Contains(args, "-g"))
						w.pingpong(c, "h6", "h1", slices.Contains(args, "-g"))
						for _, out := range []string{s, c} {
							if kind.name == "xsrq" {
								wants(t, out, "success")
								continue
							}
							if m := pingpongTime.FindStringSubmatch(out); m == nil || m[1] != strconv.Itoa(iters) {
								t.Errorf("no time of %d messages:\n%s", iters, out)
							}
							if m := pingpongSpeed.FindStringSubmatch(out); m == nil ||
								m[1] != strconv.Itoa(2*size*iters) {
								t.Errorf("no speed of %d bytes:\n%s", 2*size*iters, out)
							}
							if strings.Contains(out, "invalid data") {
								t.Errorf("other data than were sent:\n%s", out)
							}
						}
					})
				}
			}
		})
	}
}

// pingpong compares the addresses that a program prints with those of its host and of its peer's.
func (w *world) pingpong(out, local, remote string, global bool) {
	w.Helper()
	seen := map[string]bool{}
	for _, m := range pingpongEnd.FindAllStringSubmatch(out, -1) {
		host := w.node(local)
		if m[1] == "remote" {
			host = w.node(remote)
		}
		seen[m[1]] = true
		same(w, m[1]+" LID", m[2], fmt.Sprintf("%04x", uint16(w.lid(host, 1))))
		want := "::"
		if global {
			want = netip.AddrFrom16(gid(host, 1)).String()
		}
		same(w, m[1]+" GID", m[3], want)
	}
	if !seen["local"] || !seen["remote"] {
		w.Errorf("no addresses in:\n%s", out)
	}
}
