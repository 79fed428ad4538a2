package fieldtest

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"softib/internal/perftest"
	"softib/proto/topo"
)

// perftestRow is a line of results: of latency tests bytes, messages, then times of which the fourth is typical; of
// bandwidth tests bytes, messages, peak, average, million messages a second.
var perftestRow = regexp.MustCompile(`(?m)^ (\d+) +(\d+) +([0-9.]+|inf|-?nan) +([0-9.]+|inf|-?nan) ` +
	`*\t* *([0-9.]+|inf|-?nan)`)

// perftestIters is how many messages a test sends: that it does counts here, not how fast.
const perftestIters = 80

// The device of a host whose adapter is known to perftest, which builds requests with ibv_wr_* and sends inline on such
// ones only.
const mellanox, connectX7 = 0x2c9, 4129

// What the programs of perftest are called with. Not here: -q 16 -b -e of ib_send_bw, which takes at most one batch of
// completions for each event and waits for ever if they come faster.
var perftests = []struct {
	name string
	// On adapters that perftest does not know, and that it does.
	plain, known []string
}{
	{
		"ib_send_lat",
		[]string{"", "-a", "-e", "-c UC -e", "-c UD", "-c UD -e", "-c XRC", "--use-srq -e", "-m 256 -s 65536", "-D 1",
			"-R -e", "-c UD -R", "-z", "-x 0", "-c UD -g"},
		[]string{"", "-c UC", "-c UD -I 64 -s 64", "-c XRC", "-I 64 -s 64", "-e -I 0",
			"--use_old_post_send -I 64 -s 32"},
	}, {
		"ib_send_bw",
		[]string{"", "-b -e", "-c UC", "-c UD -b", "-c UD -a", "-c XRC -b", "-c XRC -q 16", "--use-srq -r 64 -q 16 -b",
			"-q 16 -e", "-D 1", "-R -q 16", "-R -c UD", "-m 256", "--reversed", "-c UD -g"},
		[]string{"-a -b", "-c UC", "-c UD", "-c XRC", "--use-srq", "-q 16 -b", "-I 64 -s 64", "-I 64 -s 64 -c UD",
			"-l 8 -s 64", "-R", "--use_old_post_send -l 8 -s 64"},
	}, {
		"ib_write_lat",
		[]string{"", "-c UC", "-c XRC", "-m 256 -s 65536", "-D 1", "-R"},
		[]string{"", "-c UC", "-c XRC", "-I 64 -s 64", "-I 0 -s 64", "--use_old_post_send"},
	}, {
		"ib_write_bw",
		[]string{"", "-b", "-c UC -b", "-c XRC -b", "-q 16", "-D 3", "-R -b -q 16", "-s 8 -l 16", "-m 256", "-x 0"},
		[]string{"-a -b", "-c UC", "-c XRC", "-q 16 -b", "-D 1", "-I 64 -s 64", "-s 8 -l 16",
			"--use_old_post_send -q 16 -b"},
	}, {
		"ib_read_lat",
		[]string{"", "-e", "-c XRC", "-o 1", "-s 1048576", "-D 1", "-R"},
		[]string{"", "-c XRC"},
	}, {
		"ib_read_bw",
		[]string{"", "-a", "-b", "-e", "-c XRC -b", "-q 16 -b", "-o 1", "-D 1", "-R -q 16", "-m 256"},
		[]string{"-q 16 -b", "-c XRC"},
	}, {
		"ib_atomic_lat",
		[]string{"", "-e", "-A CMP_AND_SWAP", "-c XRC", "-D 1", "-R"},
		[]string{"", "-A CMP_AND_SWAP"},
	}, {
		"ib_atomic_bw",
		[]string{"", "-b -e", "-A CMP_AND_SWAP -b -q 16", "-c XRC", "-D 1", "-R"},
		[]string{"", "-A CMP_AND_SWAP -c XRC"},
	},
}

// perftest, with every service, over TCP and rdma_cm, with both ways to post.
func TestPerftest(t *testing.T) {
	t.Parallel()
	g, err := topo.ParseSpec("fat-tree:radix=4,levels=2")
	if err != nil {
		t.Fatal(err)
	}
	for _, host := range []string{"h2", "h7"} {
		n := g.ByName(host)
		n.VendorID, n.DeviceID = mellanox, connectX7
	}
	w := upGraph(t, g)
	for _, test := range perftests {
		tool(t, test.name)
		t.Run(test.name, func(t *testing.T) {
			for _, line := range test.plain {
				t.Run(line, func(t *testing.T) {
					w.in(t).perftestRun("h1", "h8", test.name, strings.Fields(line),
						false)
				})
			}
			t.Run("known", func(t *testing.T) {
				for _, line := range test.known {
					t.Run(line, func(t *testing.T) {
						w.in(t).perftestRun("h2", "h7", test.name, strings.Fields(line),
							true)
					})
				}
			})
		})
	}
}

// perftestRun is one line of the table.
func (w *world) perftestRun(first, second, name string, args []string, known bool) {
	w.Helper()
	s, c := w.perftest(first, second, name, args...)
	w.perftestResult(c, name, args)
	if slices.Contains(args, "-b") || strings.HasSuffix(name, "send_lat") {
		w.perftestResult(s, name, args)
	}
	api := "OFF"
	if known && !slices.Contains(args, "--use_old_post_send") {
		api = "ON"
	}
	wants(w, c, " ibv_wr* API     : "+api+"\n")
	if i := slices.Index(args, "-I"); i >= 0 {
		wants(w, c, " Max inline data : "+args[i+1]+"[B]")
	}
}

// perftest runs a program on two hosts and returns what they printed.
func (w *world) perftest(first, second, name string, args ...string) (server, client string) {
	w.Helper()
	x := *w
	if slices.Contains(args, "-D") { // who has it run for a time may want to know how fast it is
		x.env = perftest.Pair(w, perftest.OwnTime(w))
	} else {
		x.env = perftest.Pair(w, perftest.Quick)
		args = append(args[:len(args):len(args)], "-n", strconv.Itoa(perftestMessages(args)))
	}
	args = append([]string{"-F"}, args...)
	if !slices.Contains(args, "-R") && !slices.Contains(args, "-z") {
		return x.pair(first, second, name, args...)
	}
	// With rdma_cm the server is at an address of the fabric, and listens a second time when both have agreed on
	// everything; where it is late, the client gives up, or destroys what it then goes on to use. So it waits.
	h, err := w.Host(first)
	w.check(err)
	args = append(args[:len(args):len(args)], "-p", dec(freePort(w)))
	s, c := x.start(first, name, args...), x.start(second, name, append(args, h.IP().String())...)
	client = c.finish()
	return s.finish(), client
}

// perftestMessages is how many messages of a size are sent; -a has many sizes, and large ones.
func perftestMessages(args []string) int {
	if slices.Contains(args, "-a") {
		return perftestIters / 8
	}
	return perftestIters
}

// perftestResult looks whether there is a plausible line of results for every size.
func (w *world) perftestResult(out, name string, args []string) {
	w.Helper()
	option := func(name string, otherwise int) int {
		if i := slices.Index(args, name); i >= 0 {
			otherwise, _ = strconv.Atoi(args[i+1])
		}
		return otherwise
	}
	latency := strings.HasSuffix(name, "_lat")
	datagrams := slices.Contains(args, "UD")
	size := 65536
	switch {
	case strings.Contains(name, "atomic"):
		size = 8
	case latency:
		size = 2
	case datagrams:
		size = 4096
	}
	sizes := []int{option("-s", size)}
	if slices.Contains(args, "-a") {
		sizes = nil
		last := 1 << 23
		if datagrams {
			last = 4096
		}
		for s := 2; s <= last; s *= 2 {
			sizes = append(sizes, s)
		}
	}
	// perftest finds out how fast the processor's clock is. On a busy machine it may not, and says so; its times are
	// zero or infinite then.
	clockless := strings.Contains(out, "Correlation coefficient")
	rows := perftestRow.FindAllStringSubmatch(out, -1)
	if len(rows) != len(sizes) {
		w.Fatalf("%d lines of results, want %d:\n%s", len(rows), len(sizes), out)
	}
	for i, row := range rows {
		var v [6]float64
		for i := 1; i < len(v); i++ {
			v[i], _ = strconv.ParseFloat(row[i], 64)
		}
		same(w, "size", int(v[1]), sizes[i])
		want := perftestMessages(args)
		if !latency {
			want *= option("-q", 1)
		}
		if slices.Contains(args, "-b") && strings.Contains(name, "write") {
			want = int(v[2]) // one side may end with both sides' messages
		}
		switch {
		case slices.Contains(args, "-D"):
			if v[2] < 10 {
				w.Errorf("%v messages in seconds:\n%s", v[2], out)
			}
		default:
			same(w, fmt.Sprintf("messages of %d bytes", sizes[i]), int(v[2]), want)
		}
		if clockless {
			continue
		}
		if latency && !slices.Contains(args, "-D") && (v[3] <= 0 || v[4] < v[3] || v[5] < v[3] || v[5] > v[4]) {
			w.Errorf("latencies that cannot be:\n%s", out)
		}
		// A few short messages may be 0.00 MB in a second, and a few long ones 0.000000 million in it.
		if !latency && v[4] <= 0 && v[5] <= 0 {
			w.Errorf("no bandwidth:\n%s", out)
		}
	}
}
