package hostfiles

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"softib/driver/live"
	"softib/proto/ib"
	"softib/proto/mad"
	"softib/proto/topo"
)

var testConfig = Config{Device: "softib0", Model: "softib virtual HCA", Board: "softib", Firmware: "1.2.3",
	Hardware: "0"}

func fabric(t testing.TB, spec string) *live.Fabric {
	t.Helper()
	g, err := topo.ParseSpec(spec)
	if err != nil {
		t.Fatal(err)
	}
	f, err := live.New(g, live.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func open(t testing.TB, f *live.Fabric, node string) (trees *Trees, root string, release func()) {
	t.Helper()
	trees, err := New(f, filepath.Join(t.TempDir(), "files"), testConfig)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := trees.Close(); err != nil {
			t.Error(err)
		}
	})
	root, release, err = trees.Open(node)
	if err != nil {
		t.Fatal(err)
	}
	return trees, root, release
}

func read(t testing.TB, parts ...string) string {
	t.Helper()
	b, err := os.ReadFile(strings.Join(parts, "/")) // not cleaned: .. leads back from where a link led
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// await waits until a file has a text.
func await(t testing.TB, path, want string) {
	t.Helper()
	deadline := time.Now().Add(60 * time.Second)
	for read(t, path) != want {
		if time.Now().After(deadline) {
			t.Fatalf("%s: %q, want %q", path, read(t, path), want)
		}
		time.Sleep(time.Millisecond) // files have no event that would not also be the writer's
	}
}

const adapter = "sys/class/infiniband/softib0"

func TestAdapter(t *testing.T) {
	f := fabric(t, "star:2")
	_, root, _ := open(t, f, "h1")
	n := f.Graph().ByName("h1")
	// The class leads to the device, as on a real host.
	real, err := filepath.EvalSymlinks(filepath.Join(root, adapter))
	home := fmt.Sprintf("sys/devices/pci%[1]s:00/%[1]s:00:00.0", fmt.Sprintf("%04x", freeDomain(sysDir)))
	if err != nil || real != filepath.Join(root, home, "infiniband/softib0") {
		t.Errorf("%q, %v", real, err)
	}
	gid := ib.MakeGID(ib.DefaultGIDPrefix, n.PortGUID(1)).String()
	for path, want := range map[string]string{
		"node_type":        "1: CA\n",
		"node_guid":        guid(n.GUID) + "\n",
		"sys_image_guid":   guid(n.SystemGUID) + "\n",
		"node_desc":        n.Desc + "\n",
		"fw_ver":           "1.2.3\n",
		"hw_rev":           "0\n",
		"hca_type":         "softib virtual HCA\n",
		"board_id":         "softib\n",
		"device/numa_node": lookAround(sysDir).numa + "\n",
		"device/class":     "0x020700\n",
		"device/uevent":    "DRIVER=softib\nPCI_CLASS=20700\nPCI_SLOT_NAME=" + filepath.Base(home) + "\n",
		"subsystem/../pci_bus/" + filepath.Base(home)[:7] + "/../../" + filepath.Base(home) + "/max_link_width": "16\n",
		"ports/1/state":                                     "2: INIT\n",
		"ports/1/phys_state":                                "5: LinkUp\n",
		"ports/1/rate":                                      "400 Gb/sec (4X NDR)\n",
		"ports/1/lid":                                       "0x0\n",
		"ports/1/lid_mask_count":                            "0\n",
		"ports/1/sm_lid":                                    "0x0\n",
		"ports/1/sm_sl":                                     "0\n",
		"ports/1/link_layer":                                "InfiniBand\n",
		"ports/1/gids/0":                                    gid + "\n",
		"ports/1/pkeys/0":                                   "0xffff\n",
		"ports/1/gid_attrs/types/0":                         "IB/RoCE v1\n",
		"ports/1/gid_attrs/ndevs/0":                         "",
		"ports/1/counters/port_xmit_data":                   "0\n",
		"ports/1/hw_counters/lifespan":                      "1000\n",
		"subsystem/softib0/node_type":                       "1: CA\n",
		"device/infiniband/softib0/node_type":               "1: CA\n",
		"device/infiniband_verbs/uverbs0/ibdev":             "softib0\n",
		"subsystem/../infiniband_verbs/abi_version":         "6\n",
		"subsystem/../infiniband_verbs/uverbs0/ibdev":       "softib0\n",
		"subsystem/../infiniband_verbs/uverbs0/dev":         "231:192\n",
		"subsystem/../infiniband_verbs/uverbs0/abi_version": "1\n",
		"subsystem/../infiniband_verbs/uverbs0/device/infiniband/softib0/node_type": "1: CA\n",
		"subsystem/../infiniband_mad/abi_version":                                   "5\n",
		"subsystem/../infiniband_mad/umad0/port":                                    "1\n",
		"subsystem/../infiniband_mad/umad0/dev":                                     "231:0\n",
		"subsystem/../infiniband_mad/issm0/ibdev":                                   "softib0\n",
		"subsystem/../infiniband_mad/issm0/dev":                                     "231:64\n",
	} {
		if got := read(t, root, adapter, path); got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
	pi, _ := f.PortInfo(topo.PortRef{Node: n.Index, Port: 1})
	if got, want := read(t, root, adapter, "ports/1/cap_mask"), "0x"; !strings.HasPrefix(got, want) || len(got) != 11 ||
		pi.CapabilityMask == 0 {
		t.Errorf("cap_mask: %q", got)
	}
	hosts := read(t, root, "etc/hosts")
	for _, want := range []string{"198.18.0.1\th1\n", "198.18.0.2\th2\n", "fd53:6f66:7469:6200::2\tip6-h2\n"} {
		if !strings.Contains(hosts, want) {
			t.Errorf("no %q in %q", want, hosts)
		}
	}
	if system, err := os.ReadFile(systemHosts); err == nil && !strings.HasSuffix(hosts, string(system)) {
		t.Errorf("the machine's own names are not in %q", hosts)
	}
}

func TestSwitch(t *testing.T) {
	f := fabric(t, "star:2")
	sw := f.Graph().Switches()[0]
	_, root, _ := open(t, f, sw.Name)
	if got := read(t, root, adapter, "node_type"); got != "2: switch\n" {
		t.Error(got)
	}
	if got, want := read(t, root, adapter, "ports/0/gids/0"), ib.MakeGID(0, sw.PortGUID(0)).String()[20:]+
		"\n"; !strings.HasSuffix(got, want) {
		t.Errorf("%q, want %q at the end", got, want)
	}
	if _, err := os.Stat(filepath.Join(root, "sys/class/infiniband_verbs/uverbs0")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a switch has verbs: %v", err)
	}
}

// What changes is seen, also by who has the file open; who comes later sees it at once.
func TestFresh(t *testing.T) {
	f := fabric(t, "star:2")
	trees, root, release := open(t, f, "h1")
	n := f.Graph().ByName("h1")
	ref := topo.PortRef{Node: n.Index, Port: 1}
	path := filepath.Join(root, adapter, "ports/1/state")
	held, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	if err := f.SetLink(ref, false); err != nil {
		t.Fatal(err)
	}
	await(t, path, "1: DOWN\n")
	b := make([]byte, 64)
	if n, _ := held.ReadAt(b, 0); string(b[:n]) != "1: DOWN\n" {
		t.Errorf("who has it open reads %q", b[:n])
	}
	await(t, filepath.Join(root, adapter, "ports/1/phys_state"), "2: Polling\n")
	downed := strconv.FormatUint(f.Counters(ref)[ib.LinkDownedCounter], 10) + "\n"
	if downed == "0\n" {
		t.Error("the port counts nothing")
	}
	await(t, filepath.Join(root, adapter, "ports/1/counters/link_downed"), downed)
	if err := f.SetLink(ref, true); err != nil {
		t.Fatal(err)
	}
	await(t, path, "2: INIT\n")

	// A second user keeps it fresh when the first has gone.
	_, second, err := trees.Open("h1")
	if err != nil {
		t.Fatal(err)
	}
	release()
	release()
	if err := f.SetLink(ref, false); err != nil {
		t.Fatal(err)
	}
	await(t, path, "1: DOWN\n")
	second()
	trees.wait.Wait() // nobody refreshes what nobody looks at
	if err := f.SetLink(ref, true); err != nil {
		t.Fatal(err)
	}
	if got := read(t, path); got != "1: DOWN\n" {
		t.Errorf("%q with nobody there", got)
	}
	if _, _, err := trees.Open("h1"); err != nil {
		t.Fatal(err)
	}
	if got := read(t, path); got != "2: INIT\n" {
		t.Errorf("%q for who comes later", got)
	}
}

func TestErrors(t *testing.T) {
	f := fabric(t, "star:2")
	dir := filepath.Join(t.TempDir(), "files")
	if err := os.MkdirAll(filepath.Join(dir, "left", "over"), 0o700); err != nil {
		t.Fatal(err)
	}
	trees, err := New(f, dir, testConfig)
	if err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(dir); len(left) != 0 || err != nil {
		t.Errorf("what a former fabric left is there: %v, %v", left, err)
	}
	if _, _, err := trees.Open("h9"); !errors.Is(err, ErrNoHost) {
		t.Error(err)
	}
	// A file where a folder should be.
	in := filepath.Join(dir, strconv.Itoa(f.Graph().ByName("h1").Index))
	if err := os.WriteFile(in, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := trees.Open("h1"); err == nil {
		t.Error("opened without a folder")
	}
	if _, _, err := trees.Open("h1"); err != nil {
		t.Error(err)
	}
	for range 2 {
		if err := trees.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("files stay behind: %v", err)
	}
	if _, _, err := trees.Open("h1"); !errors.Is(err, os.ErrClosed) {
		t.Error(err)
	}
}

// What a fabric left that is no more is swept away, what one has that runs is not.
func TestSweep(t *testing.T) {
	f := fabric(t, "star:2")
	in := t.TempDir()
	lives, err := New(f, filepath.Join(in, "softib-lives"), testConfig)
	if err != nil {
		t.Fatal(err)
	}
	defer lives.Close()
	path, _, err := lives.Open("h1")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"softib-left/0/sys", "other"} {
		if err := os.MkdirAll(filepath.Join(in, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(in, "softib-file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Sweep(filepath.Join(in, "softib-*")); err != nil {
		t.Error(err)
	}
	var left []string
	entries, _ := os.ReadDir(in)
	for _, e := range entries {
		left = append(left, e.Name())
	}
	if want := []string{"other", "softib-file", "softib-lives"}; !slices.Equal(left, want) {
		t.Errorf("%q, want %q", left, want)
	}
	read(t, path, adapter, "node_type")

	// Many that start while somebody sweeps.
	stop := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
				_ = Sweep(filepath.Join(in, "softib-*"))
			}
		}
	}()
	for i := range 200 {
		x, err := New(f, filepath.Join(in, "softib-new"), testConfig)
		if err != nil {
			t.Fatalf("%d: %v", i, err)
		}
		if _, err := os.Stat(x.dir); err != nil {
			t.Errorf("%d: %v", i, err)
		}
		if err := x.Close(); err != nil {
			t.Error(err)
		}
	}
	close(stop)
	<-done
}

// Who sweeps has seen, under its lock, that a folder is a dead fabric's. Whatever happens until it is removed, that is
// not the next fabric's.
func TestSweepLate(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "files")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	dead, err := lockAt(dir, syscall.LOCK_EX)
	if err != nil {
		t.Fatal(err)
	}
	st, err := dead.Stat()
	if err != nil {
		t.Fatal(err)
	}
	var next *os.File
	done := make(chan struct{})
	go func() {
		defer close(done)
		next, err = claim(dir)
	}()
	// The next fabric has its folder, or waits for the lock.
	waiter := regexp.MustCompile(fmt.Sprintf(`-> FLOCK .*:%d `, st.Sys().(*syscall.Stat_t).Ino))
	deadline := time.Now().Add(10 * time.Second)
	for isDone := false; !isDone && !waiter.MatchString(read(t, "/proc/locks")); {
		if time.Now().After(deadline) {
			t.Fatal("claim has not come to the lock")
		}
		select {
		case <-done:
			isDone = true
		case <-time.After(time.Millisecond):
		}
	}
	if err := errors.Join(os.RemoveAll(dir), dead.Close()); err != nil {
		t.Fatal(err)
	}
	<-done
	if err != nil {
		t.Fatal(err)
	}
	defer next.Close()
	if is, err := isAt(next, dir); !is || err != nil {
		t.Errorf("the next fabric's folder was swept away (%v)", err)
	}
}

// A fabric that is closed once more, late, leaves the next one's folder alone; a link is no folder of anybody's.
func TestClaimOthers(t *testing.T) {
	f := fabric(t, "star:2")
	dir := filepath.Join(t.TempDir(), "files")
	var all []*Trees
	for range 2 {
		x, err := New(f, dir, testConfig)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, x)
		if err := all[0].Close(); err != nil {
			t.Error(err)
		}
	}
	if is, err := isAt(all[1].lock, dir); !is || err != nil {
		t.Errorf("the next fabric's folder has gone (%v)", err)
	}
	link := dir + "-link"
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	if x, err := New(f, link, testConfig); err == nil {
		x.Close()
		t.Error("a link was taken for a folder")
	}
	if err := all[1].Close(); err != nil {
		t.Error(err)
	}
}

// Tables grow and shrink; files are mended when a disk that was full is not any more.
func TestTables(t *testing.T) {
	x := &tree{root: t.TempDir(), text: map[string]string{}, ports: make([]*port, 1), dirs: []string{"p"}}
	long := port{gids: []ib.GID{{15: 1}, {15: 2}}, pkeys: []ib.PKey{0xffff, 0x8001}}
	long.info = mad.PortInfo{PortState: ib.PortActive}
	x.setState(0, long)
	x.setState(0, port{info: long.info, gids: long.gids[:1:1], pkeys: long.pkeys[:1:1]})
	for path, want := range map[string]string{
		"gids/0": "0000:0000:0000:0000:0000:0000:0000:0001\n", "gids/1": "0000:0000:0000:0000:0000:0000:0000:0000\n",
		"gid_attrs/types/0": "IB/RoCE v1\n", "gid_attrs/types/1": "", "pkeys/0": "0xffff\n", "pkeys/1": "0x0000\n",
		"state": "4: ACTIVE\n",
	} {
		if got := read(t, x.root, "p", path); got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
	if err := x.take(); err != nil {
		t.Error(err)
	}
	good := x.root
	x.root = filepath.Join(good, "p", "state") // not a folder
	down := long
	down.info.PortState = ib.PortDown
	x.setState(0, down)
	if x.take() == nil {
		t.Error("no error")
	}
	x.root = good
	x.setState(0, down)
	if got := read(t, x.root, "p/state"); got != "1: DOWN\n" || x.take() != nil {
		t.Errorf("%q is not mended", got)
	}
}

func TestWords(t *testing.T) {
	for _, tc := range []struct {
		rate ib.LinkRate
		want string
	}{
		{ib.LinkRate{}, "2.5 Gb/sec (1X SDR)"},
		{ib.LinkRate{Width: ib.Width4x, Speed: ib.SDR}, "10 Gb/sec (4X SDR)"},
		{ib.LinkRate{Width: ib.Width4x, Speed: ib.FDR10}, "40 Gb/sec (4X FDR10)"},
		{ib.LinkRate{Width: ib.Width4x, Speed: ib.FDR}, "56 Gb/sec (4X FDR)"},
		{ib.LinkRate{Width: ib.Width12x, Speed: ib.EDR}, "300 Gb/sec (12X EDR)"},
		{ib.LinkRate{Width: ib.Width2x, Speed: ib.HDR}, "100 Gb/sec (2X HDR)"},
		{ib.LinkRate{Width: ib.Width4x, Speed: ib.XDR}, "800 Gb/sec (4X XDR)"},
	} {
		if got := rate(tc.rate); got != tc.want {
			t.Errorf("%v: %q, want %q", tc.rate, got, tc.want)
		}
	}
	var states, phys []string
	for s := range ib.NumPortState + 1 {
		states = append(states, stateName(s))
	}
	if want := []string{"NOP", "DOWN", "INIT", "ARMED", "ACTIVE", "UNKNOWN"}; !slices.Equal(states, want) {
		t.Errorf("%q", states)
	}
	for s := range ib.NumPhysState + 1 {
		phys = append(phys, physName(s))
	}
	if want := []string{"<unknown>", "Sleep", "Polling", "Disabled", "PortConfigurationTraining", "LinkUp",
		"LinkErrorRecovery", "Phy Test", "<unknown>"}; !slices.Equal(phys, want) {
		t.Errorf("%q", phys)
	}
	for list, want := range map[string]string{
		"0": "1", "0-1": "3", "0-3,8": "10f", "0-31": "ffffffff", "0-32": "1,ffffffff", "63": "80000000,00000000",
		"": "0", "x-y": "0", "5-2": "0", "0-99999999": "0",
	} {
		if got := cpuMask(list); got != want {
			t.Errorf("%q: %q, want %q", list, got, want)
		}
	}
	for _, tc := range []struct {
		v    uint64
		bits uint
		want string
	}{{3, 4, "3\n"}, {16, 4, "15\n"}, {256, 8, "255\n"}, {1 << 40, 64, "1099511627776\n"},
		{^uint64(0), 64, "18446744073709551615\n"}} {
		if got := counterText(tc.v, tc.bits); got != tc.want {
			t.Errorf("%d of %d bits: %q, want %q", tc.v, tc.bits, got, tc.want)
		}
	}
	for name, want := range map[string]bool{"h1": true, "node-3.rack_2": true, "": false, "a b": false,
		"x\n1.2.3.4 evil": false, "-a": false} {
		if nameShape.MatchString(name) != want {
			t.Errorf("%q", name)
		}
	}
}

// A new host: what a program's start waits for.
func BenchmarkFirst(b *testing.B) {
	f := fabric(b, "star:2")
	for b.Loop() {
		trees, err := New(f, filepath.Join(b.TempDir(), "files"), testConfig)
		if err != nil {
			b.Fatal(err)
		}
		if _, _, err := trees.Open("h1"); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		trees.Close()
		b.StartTimer()
	}
}

// What an open host costs each second while nothing happens, and when every counter of traffic changes.
func BenchmarkRefresh(b *testing.B) {
	f := fabric(b, "star:32")
	trees, _, _ := open(b, f, "h1")
	trees.mu.Lock() // from who refreshes
	defer trees.mu.Unlock()
	x := trees.trees[f.Graph().ByName("h1").Index]
	b.Run("idle", func(b *testing.B) {
		for b.Loop() {
			if err := trees.refresh([]*tree{x}, true); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("traffic", func(b *testing.B) {
		c := x.count[0]
		for b.Loop() {
			for _, k := range []ib.Counter{ib.PortXmitData, ib.PortRcvData, ib.PortXmitPkts, ib.PortRcvPkts,
				ib.PortUnicastXmitPkts, ib.PortUnicastRcvPkts} {
				c[k] += 12345
			}
			x.setCounters(0, c)
			if err := trees.refresh(nil, true); err != nil {
				b.Fatal(err)
			}
		}
	})
}
