package fieldtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"softib/internal/built"
	"softib/internal/netpair"
	"softib/internal/rdmacore"
)

// network is two machines, and softib.
type network struct {
	*netpair.Machines
	dir    string // its run directory is in there
	devs   string // that programs use
	softib string
	env    []string
}

func newNetwork(t testing.TB, joined func() (*netpair.Machines, error)) *network {
	t.Helper()
	dir := t.TempDir()
	n := &network{dir: dir, devs: netpair.Device, softib: filepath.Join(dir, "softib")}
	if err := built.Libraries(filepath.Join(dir, "lib")); err != nil {
		t.Fatal(err)
	}
	if err := built.Command(n.softib); err != nil {
		t.Fatal(err)
	}
	run := filepath.Join(dir, "run")
	if err := os.Mkdir(run, 0o700); err != nil {
		t.Fatal(err)
	}
	n.env = append(os.Environ(), "XDG_RUNTIME_DIR="+run)
	var err error
	if n.Machines, err = joined(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.Close)
	t.Cleanup(func() {
		for machine := range netpair.Addresses {
			// Not all tests use it.
			out, err := n.on(context.Background(), machine, "sh", "-c", n.softib+" roce -d eth0 && "+n.softib+
				" roce eth0 --stop").CombinedOutput()
			if err != nil {
				t.Errorf("%v\n%s", err, out)
			}
			_ = n.on(context.Background(), machine, n.softib, "roce", "eth1", "--stop").Run()
		}
	})
	return n
}

// on is a command on one of the machines.
func (n *network) on(ctx context.Context, machine int, argv ...string) *exec.Cmd {
	cmd := n.Command(ctx, machine, argv...)
	cmd.Env = n.env
	return cmd
}

// Unmodified programs speak RoCEv2 between two machines.
func TestRoCE(t *testing.T) {
	t.Parallel()
	n := newNetwork(t, netpair.New)
	t.Run("operations", n.operations)
	t.Run("rdmacm", n.rdmacm)
	t.Run("multicast", n.multicast)
	t.Run("libraries", n.libraries)
	t.Run("several", n.several)
	t.Run("addresses", n.addresses)
	t.Run("counters", n.counters)
	t.Run("up", n.up)
	t.Run("rdma-core", n.rdmaCore)
}

// rdmaCore runs rdma-core's own tests, those of librdmacm among them, which want a network interface. What they do not
// skip has to pass, and must not become less.
func (n *network) rdmaCore(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
	defer cancel()
	line, err := rdmacore.Tests(t.TempDir(), "softib0")
	if err != nil {
		t.Fatal(err)
	}
	out, err := n.on(ctx, 0, n.roce(line...)...).CombinedOutput()
	if o := rdmacore.Read(string(out)); err != nil || len(o.Passed) < 146 || len(o.Failed) > 0 {
		t.Errorf("%v; %d tests passed, want 146 at least; failed: %q\n%s", err, len(o.Passed), o.Failed, out)
	}
}

// up has names for interfaces, as a fabric has for hosts.
func (n *network) up(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	run := func(ok bool, want []string, args ...string) {
		t.Helper()
		out, err := n.on(ctx, 0, append([]string{n.softib}, args...)...).CombinedOutput()
		if (err == nil) != ok {
			t.Fatalf("softib %q: %v\n%s", args, err, out)
		}
		for _, w := range want {
			if !strings.Contains(string(out), w) {
				t.Errorf("softib %q: no %q in\n%s", args, w, out)
			}
		}
	}
	run(true, []string{"eth0      ACTIVE, MTU 1024, 192.0.2.1", "up in the background, process ",
		"softib exec --name net eth0 -- ib_write_bw"}, "up", "-d", "--name", "net", "--roce", "eth0,eth1")
	run(false, []string{`a fabric named "net" is running`}, "up", "-d", "--name", "net", "--roce", "eth0")
	run(true, []string{"fabric    net, process ", "2 of 2 ACTIVE", "eth1      ACTIVE, MTU 1024, 198.51.100.1"},
		"status", "--name", "net")
	run(true, []string{`"interfaces": [`, `"name": "eth1"`}, "status", "--name", "net", "--json")
	run(true, []string{"softib0", "::ffff:198.51.100.1"}, "exec", "--name", "net", "eth1", "--", "ibv_devinfo", "-v")
	run(true, []string{"softib0", "softib1"}, "exec", "--name", "net", "eth0,eth1", "--", "ibv_devices")
	run(false, []string{`fabric net has no host "h1"`, "next: its hosts are eth0, eth1"}, "exec", "--name", "net", "h1",
		"--", "ibv_devices")
	run(false, []string{"the hosts of fabric net are Ethernet interfaces"}, "route", "check", "--name", "net")
	run(false, []string{"--no-sm with --roce"}, "up", "--name", "other", "--roce", "eth0", "--no-sm")
	run(false, []string{"star:2 and --roce"}, "up", "--name", "other", "--roce", "eth0", "star:2")
	run(false, []string{"no interface for RoCEv2"}, "up", "-d", "--name", "other", "--roce", "eth9")
	run(true, []string{"fabric net is down"}, "down", "--name", "net")
	run(false, []string{`no fabric named "net" is running`}, "status", "--name", "net")
}

// counters in /sys are those of all programs of the interface, and stay when these have ended.
func (n *network) counters(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	read := func() (data, sent int) {
		t.Helper()
		out, err := n.on(ctx, 1, n.roce("sh", "-c", "cd /sys/class/infiniband/softib0/ports/1 && "+
			"cat counters/port_xmit_data hw_counters/sent_pkts")...).CombinedOutput()
		if _, scan := fmt.Sscan(string(out), &data, &sent); err != nil || scan != nil {
			t.Fatalf("%v, %v\n%s", err, scan, out)
		}
		return data, sent
	}
	data, sent := read()
	const messages, size = 300, 65536
	n.perftest(t, 19600, []string{"ib_write_bw", "-s", fmt.Sprint(size), "-n", fmt.Sprint(messages)})
	for {
		now, packets := read()
		if now-data >= messages*size/4 && packets-sent >= messages*size/1024 {
			break
		}
		if time.Sleep(10 * time.Millisecond); ctx.Err() != nil {
			t.Fatalf("%d words in %d packets", now-data, packets-sent)
		}
	}
}

// addresses come to an interface and leave it while a program runs, and its cable is pulled.
func (n *network) addresses(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	ip := func(machine int, args ...string) {
		t.Helper()
		if out, err := n.on(ctx, machine, append([]string{"ip"}, args...)...).CombinedOutput(); err != nil {
			t.Fatalf("ip %v: %v\n%s", args, err, out)
		}
	}
	events := filepath.Join(t.TempDir(), "events")
	watch, _, ended := n.start(t, ctx, "sh", "-c", "exec stdbuf -oL ibv_asyncwatch >"+events)
	defer func() { _ = watch.Process.Kill(); <-ended }()
	// look waits until a file of a program that runs has a text.
	look := func(file, want string) {
		t.Helper()
		script := fmt.Sprintf("f=/sys/class/infiniband/softib0/ports/1/%s; until grep -q '%s' $f; do sleep 0.01; done",
			file, want)
		if out, err := n.on(ctx, 0, n.roce("timeout", "60", "sh", "-c", script)...).CombinedOutput(); err != nil {
			t.Fatalf("%s does not become %q: %v\n%s", file, want, err, out)
		}
	}
	index := 0
	for ; ; index++ { // the first that is empty
		out, err := n.on(ctx, 0, n.roce("cat", fmt.Sprintf("/sys/class/infiniband/softib0/ports/1/gids/%d",
			index))...).CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		if strings.HasPrefix(string(out), "0000:0000:0000:0000:0000:0000:") {
			break
		}
	}
	gid := fmt.Sprintf("gids/%d", index)
	ip(0, "addr", "add", "192.0.2.11/24", "dev", "eth0")
	look(gid, "ffff:c000:020b")
	ip(0, "addr", "add", "192.0.2.12/24", "dev", "eth0")
	look(fmt.Sprintf("gids/%d", index+1), "ffff:c000:020c")
	n.perftest(t, 19500, []string{"ib_write_bw", "-s", "65536", "-n", "100", "-x", fmt.Sprint(index)}, "-x", "0")
	// Programs of which one loses its address while they run end, with an error.
	server, _, over := n.start(t, ctx, "ib_write_bw", "-F", "-D", "100", "-p", "19502", "-x", fmt.Sprint(index))
	defer func() { _ = server.Process.Kill() }()
	if err := n.awaitListener(ctx, 19502, over); err != nil {
		t.Fatal(err)
	}
	sent := func() uint64 {
		var list []struct {
			Stats64 struct{ Tx struct{ Packets uint64 } }
		}
		out, _ := n.on(ctx, 1, "ip", "-j", "-s", "link", "show", "eth0").Output()
		if err := json.Unmarshal(out, &list); err != nil || len(list) != 1 {
			t.Fatalf("%v: %s", err, out)
		}
		return list[0].Stats64.Tx.Packets
	}
	before := sent()
	failed := make(chan string, 1)
	go func() {
		out, err := n.on(ctx, 1, n.roce("ib_write_bw", "-F", "-D", "100", "-p", "19502", "-x", "0",
			"192.0.2.1")...).CombinedOutput()
		failed <- fmt.Sprintf("%s\n%v", out, err)
	}()
	for sent() < before+1000 && ctx.Err() == nil {
		time.Sleep(5 * time.Millisecond)
	}
	ip(0, "addr", "del", "192.0.2.11/24", "dev", "eth0")
	if said := <-failed; !strings.Contains(said, "Failed status 12") /* IBV_WC_RETRY_EXC_ERR */ {
		t.Errorf("who writes to an address that is taken away: %s", said)
	}
	if err := <-over; err == nil {
		t.Error("who has lost its address ends well")
	}
	look(gid, "0000:0000:0000:0000:0000:0000")
	look("gids/0", "ffff:c000:0201")
	ip(0, "link", "set", "eth0", "down")
	look("state", "DOWN")
	ip(0, "link", "set", "eth0", "up")
	look("state", "ACTIVE")
	for _, want := range []string{"GID_CHANGE", "PORT_ERR", "PORT_ACTIVE"} {
		for {
			said, _ := os.ReadFile(events)
			if strings.Contains(string(said), want) {
				break
			}
			if time.Sleep(5 * time.Millisecond); ctx.Err() != nil {
				t.Fatalf("no %s among\n%s", want, said)
			}
		}
	}
	ip(0, "addr", "del", "192.0.2.12/24", "dev", "eth0")
	n.perftest(t, 19501, []string{"ib_write_bw", "-s", "65536", "-n", "100"})
}

// Where packets are too long for a link between the two, both users and who holds the port are told, and what to do.
func TestRoCENarrow(t *testing.T) {
	t.Parallel()
	n := newNetwork(t, func() (*netpair.Machines, error) { return netpair.NewFar(900) })
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	try := func(port int, more ...string) (said string, err error) {
		program := append([]string{"ib_write_bw", "-F", "-s", "65536", "-n", "50", "-p", fmt.Sprint(port)}, more...)
		server, _, ended := n.start(t, ctx, program...)
		defer func() { _ = server.Process.Kill() }()
		if err := n.awaitListener(ctx, port, ended); err != nil {
			t.Fatal(err)
		}
		out, err := n.on(ctx, 1, n.roce(append(program, netpair.Addresses[0])...)...).CombinedOutput()
		_ = server.Process.Kill()
		<-ended
		return string(out), err
	}
	want := regexp.MustCompile(`packets of 10\d\d bytes do not pass to 192\.0\.2\.1: a link on the way has an MTU of ` +
		`900, and they must not be fragmented; next: have both ends use a path MTU of 512 at most \(perftest: -m 512` +
		`\), or raise the MTU of the links on the way\n`)
	said, err := try(19700)
	if err == nil || len(want.FindAllString(said, -1)) != 1 || !strings.Contains(said, "softib: eth0: packets of") {
		t.Errorf("%v: want once %q\n%s", err, want, said)
	}
	for found := 0; found == 0; time.Sleep(5 * time.Millisecond) {
		logs, _ := filepath.Glob(filepath.Join(n.dir, "run/softib/roce-*/log"))
		for _, name := range logs {
			b, _ := os.ReadFile(name)
			found += len(want.FindAll(b, -1))
		}
		if len(logs) != 2 || found > 1 || ctx.Err() != nil {
			t.Fatalf("%d times in %q: want once in one of two", found, logs)
		}
	}
	if said, err := try(19701, "-m", "512"); err != nil || strings.Contains(said, "MTU of") {
		t.Errorf("as it says: %v\n%s", err, said)
	}
}

// Programs run on kernels that do not steer datagrams to sockets, or have no IPv6.
func TestRoCEWithout(t *testing.T) {
	t.Parallel()
	n := newNetwork(t, netpair.New)
	n.env = append(n.env, "SOFTIB_ROCE_RELAY=1", "SOFTIB_ROCE_IPV6=off")
	t.Run("operations", n.operations)
	t.Run("rdmacm", n.rdmacm)
	t.Run("multicast", n.multicast)
}

// several has programs use two interfaces: each is an adapter of its own, and librdmacm takes the one to which the
// machine's routes lead.
func (n *network) several(t *testing.T) {
	both := *n
	both.devs = "eth0,eth1"
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	out, err := n.on(ctx, 0, both.roce("sh", "-c", `ibv_devices && for d in softib0 softib1; do
		cat /sys/class/infiniband/$d/ports/1/gid_attrs/ndevs/0; ibv_devinfo -v -d $d | grep 'GID\[ *0\]'; done`,
	)...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	at := 0
	for _, want := range []string{"softib0", "softib1", "eth0\n", "::ffff:192.0.2.1", "eth1\n", "::ffff:198.51.100.1"} {
		i := strings.Index(string(out)[at:], want)
		if i < 0 {
			t.Fatalf("no %q after byte %d of\n%s", want, at, out)
		}
		at += i
	}
	for i, device := range []string{"softib0", "softib1"} {
		t.Run("perftest "+device, func(t *testing.T) {
			both.perftest(t, 19400+i, []string{"ib_write_bw", "-d", device, "-s", "65536", "-n", "200"})
		})
	}
	// Who listens everywhere is found at each address, and who sees one interface alone has its own port there.
	for _, addr := range []string{netpair.Addresses[0], netpair.SecondAddresses[0]} {
		both.meet(t, []string{"rping", "-s", "-C", "20", "-V"}, []string{"rping", "-c", "-a", addr, "-C", "20", "-V"})
	}
	one := *n
	one.devs = "eth1"
	for _, x := range []*network{&both, &one} {
		x.meet(t, []string{"rping", "-s", "-a", netpair.SecondAddresses[0], "-C", "20", "-V"},
			[]string{"rping", "-c", "-a", netpair.SecondAddresses[0], "-C", "20", "-V"})
	}
	out, err = n.on(ctx, 1, n.roce("rping", "-c", "-a", netpair.SecondAddresses[0], "-C", "1")...).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "ADDR_ERROR") {
		t.Errorf("a program that does not see the way's interface: %v\n%s", err, out)
	}
}

// libraries has UCX and libfabric find the adapter by its files in /sys and its GIDs, as applications do above them.
func (n *network) libraries(t *testing.T) {
	for i, c := range []struct {
		name   string
		env    []string
		client []string
	}{
		{"ucx_perftest", []string{"UCX_TLS=rc_verbs,ud_verbs"}, []string{"-t", "tag_bw", "-s", "4096", "-n", "2000"}},
		{"ucx_perftest", []string{"UCX_TLS=ud_verbs"}, []string{"-t", "tag_lat", "-s", "8", "-n", "500"}},
		{"fi_pingpong", nil, []string{"-p", "verbs", "-e", "msg", "-I", "50", "-c"}},
	} {
		t.Run(strings.Join(append(c.env, c.name), " "), func(t *testing.T) {
			ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
			defer cancel()
			port := strconv.Itoa(19300 + i)
			both := append(append([]string{"env"}, c.env...), c.name, "-p", port)
			server, client := both, append(append(slices.Clone(both), c.client...), "192.0.2.1")
			if c.name == "fi_pingpong" {
				server = append([]string{c.name, "-B", port}, c.client...)
				client = append([]string{c.name, "-P", port}, append(slices.Clone(c.client), "192.0.2.1")...)
			}
			cmd, said, ended := n.start(t, ctx, server...)
			defer func() { _ = cmd.Process.Kill() }()
			if err := n.awaitListener(ctx, 19300+i, ended); err != nil {
				t.Fatalf("%v\n%s", err, said)
			}
			out, err := n.on(ctx, 1, n.roce(client...)...).CombinedOutput()
			if err := errors.Join(err, <-ended); err != nil {
				t.Errorf("%v\n%s\nserver:\n%s", err, out, said)
			}
		})
	}
}

// operations tries both directions of every operation.
func (n *network) operations(t *testing.T) {
	for i, args := range [][]string{
		{"ib_write_bw", "-s", "65536", "-n", "200"}, {"ib_send_bw", "-s", "4096", "-n", "500"},
		{"ib_read_bw", "-s", "65536", "-n", "100"}, {"ib_atomic_bw", "-n", "200"}, {"ib_write_lat", "-n", "200"},
		{"ib_send_lat", "-n", "200"}, {"ib_send_bw", "-c", "UD", "-s", "1024", "-n", "50"},
		{"ib_send_lat", "-c", "UC", "-n", "100"}, {"ib_write_bw", "-b", "-s", "8192", "-n", "200"},
	} {
		t.Run(strings.Join(args, " "), func(t *testing.T) { n.perftest(t, 19000+i, args) })
	}
	// Several programs at one address at a time.
	t.Run("together", func(t *testing.T) {
		for i := range 3 {
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				t.Parallel()
				n.perftest(t, 19100+i, []string{"ib_send_bw", "-s", "4096", "-n", "500"})
			})
		}
	})
}

// perftest runs a program on both machines, which meet at a TCP port; the second one's has more arguments. With -F it
// goes on where it cannot find out how fast the processor's clock is, as on a busy machine.
func (n *network) perftest(t *testing.T, port int, args []string, more ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	// On a busy machine either may have no turn for longer than the two seconds after which perftest's own timeout,
	// of 14, gives up.
	program := append(args, "-F", "-u", "18", "-p", fmt.Sprint(port))
	server, said, ended := n.start(t, ctx, program...)
	defer func() { _ = server.Process.Kill() }()
	if err := n.awaitListener(ctx, port, ended); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	out, err := n.on(ctx, 1, n.roce(append(append(program, more...), "192.0.2.1")...)...).CombinedOutput()
	if err := errors.Join(err, <-ended); err != nil {
		t.Errorf("%v\n%s\nserver:\n%s", err, out, said)
	}
}

// roce is a command that runs a program at the interfaces.
func (n *network) roce(argv ...string) []string {
	return append([]string{n.softib, "exec", "--roce", n.devs, "--"}, argv...)
}

// start starts a program on the first machine, and collects what it says until it has ended.
func (n *network) start(t *testing.T, ctx context.Context, argv ...string) (*exec.Cmd, *strings.Builder,
	<-chan error) {
	t.Helper()
	cmd, said := n.on(ctx, 0, n.roce(argv...)...), &strings.Builder{}
	cmd.Stdout, cmd.Stderr = said, said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	return cmd, said, ended
}

// rdmacm has librdmacm's programs find each other by the machines' own addresses. Who asks before the other listens is
// refused, and asks again.
func (n *network) rdmacm(t *testing.T) {
	for _, c := range []struct{ server, client []string }{
		{[]string{"rping", "-s", "-a", "192.0.2.1", "-C", "20", "-V"},
			[]string{"rping", "-c", "-a", "192.0.2.1", "-C", "20", "-V"}},
		{[]string{"ucmatose", "-c", "5"}, []string{"ucmatose", "-c", "5", "-s", "192.0.2.1"}},
		{[]string{"udaddy"}, []string{"udaddy", "-s", "192.0.2.1"}},
		{[]string{"ib_send_lat", "-F", "-R", "-n", "100", "-p", "19200"},
			[]string{"ib_send_lat", "-F", "-R", "-n", "100", "-p", "19200", "192.0.2.1"}},
	} {
		n.meet(t, c.server, c.client)
	}
}

// meet runs a server on the first machine and a client on the second until it has found it.
func (n *network) meet(t *testing.T, server, client []string) {
	t.Run(n.devs+" "+strings.Join(client, " "), func(t *testing.T) {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		defer cancel()
		cmd, said, ended := n.start(t, ctx, server...)
		defer func() { _ = cmd.Process.Kill() }()
		for {
			out, err := n.on(ctx, 1, n.roce(client...)...).CombinedOutput()
			if err == nil {
				if err := <-ended; err != nil {
					t.Errorf("server: %v\n%s", err, said)
				}
				return
			}
			select {
			case err := <-ended:
				t.Fatalf("%s\nserver: %v\n%s", out, err, said)
			case <-time.After(100 * time.Millisecond):
			}
			if ctx.Err() != nil {
				t.Fatalf("client: %v\n%s", err, out)
			}
		}
	})
}

// multicast sends to a member on the other machine. Datagrams that come before it is there are lost; it wants 20 of any
// that come after.
func (n *network) multicast(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	member, said, ended := n.start(t, ctx, "mckey", "-m", "239.1.1.1", "-b", "192.0.2.1", "-C", "20")
	defer func() { _ = member.Process.Kill() }()
	for {
		out, err := n.on(ctx, 1, n.roce("mckey", "-m", "239.1.1.1", "-b", "192.0.2.2", "-s", "-C",
			"20")...).CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		select {
		case err := <-ended:
			if err != nil || !strings.Contains(said.String(), "return status 0") {
				t.Errorf("member: %v\n%s", err, said)
			}
			return
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// awaitListener waits until a TCP port of the first machine is listened at, by a program that has not ended.
func (n *network) awaitListener(ctx context.Context, port int, ended <-chan error) error {
	for !n.Listens(0, port) {
		select {
		case err := <-ended:
			return fmt.Errorf("the server has ended: %w", err)
		case <-ctx.Done():
			return fmt.Errorf("nobody listens at port %d: %w", port, ctx.Err())
		case <-time.After(5 * time.Millisecond):
		}
	}
	return nil
}
