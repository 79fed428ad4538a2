package fieldtest

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"softib/internal/perftest"
	"softib/operate/doctor"
)

// netHosts is how many hosts have networks at the same time.
const netHosts = 24

// inNet is softib exec --net on a host.
func (p *person) inNet(host string, argv ...string) string {
	p.Helper()
	return p.must(append([]string{"exec", "--net", host, "--"}, argv...)...)
}

// pings has a host ping another until that has answered, which the status tells; on a busy machine more than one answer
// may come.
func (p *person) pings(host string, args ...string) {
	p.Helper()
	p.inNet(host, append([]string{"ping", "-c1", "-w60"}, args...)...)
}

// background starts a program in the network of a host, and waits until its output has a word, which may be none.
func (p *person) background(word, host string, argv ...string) *exec.Cmd {
	p.Helper()
	return p.backgroundBy("--net", word, host, argv...)
}

// backgroundBy is background in a mode that the flag of softib exec names.
func (p *person) backgroundBy(flag, word, host string, argv ...string) *exec.Cmd {
	p.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cmd := p.command(ctx, append([]string{"exec", flag, host, "--"}, argv...)...)
	out, w, err := os.Pipe()
	if err != nil {
		p.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = w, w
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	if err := cmd.Start(); err != nil {
		p.Fatal(err)
	}
	w.Close()
	var said strings.Builder
	heard, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		found := false
		for in := bufio.NewScanner(out); in.Scan(); {
			said.WriteString(in.Text() + "\n")
			if !found && strings.Contains(in.Text(), word) {
				found = true
				close(heard)
			}
		}
	}()
	p.Cleanup(func() {
		cancel()
		_ = cmd.Wait()
		out.Close()
	})
	select {
	case <-heard:
	case <-ended:
		p.Fatalf("%s on %s has ended: %s", argv[0], host, said.String())
	case <-time.After(inTime()):
		p.Fatalf("%s on %s says nothing of %q", argv[0], host, word)
	}
	return cmd
}

// Networks of hosts: what people do with a network, with programs that nobody here wrote, as root and as somebody else.
func TestNetworks(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"ping", "iperf3", "curl", "socat", "ssh", "rping", "ib_write_bw", "qperf",
		"tshark", "mpirun", "mpicc"} {
		tool(t, name)
	}
	people(t, func(p *person) {
		p.up(fmt.Sprint("star:", netHosts), "--state", "none", "--http", "off")
		wants(p, p.inNet("h1", "cat", "/sys/class/net/ib0/mtu"), "2044")
		p.background("here", "h2", "sh", "-c", "echo here; exec sleep 600")
		wants(p, p.inNet("h1", "ping", "-c1", "h2"), "1 received")
		wants(p, p.inNet("h1", "ping", "-6", "-c1", "ip6-h2"), "1 received")
		wants(p, p.inNet("h1", "ping", "-c1", "-M", "do", "-s", "2016", "h2"), "1 received")
		_, errs, status := p.softib("exec", "--net", "h1", "--", "ping", "-c1", "-M", "do", "-s", "2017",
			"h2")
		if status == 0 {
			p.Errorf("a packet of 2045 bytes is sent: %s", errs)
		}
		out, _, _ := p.softib("exec", "--net", "h1", "--", "ping", "-c1", "-W300", "198.18.0.99")
		wants(p, out, "Destination Host Unreachable")

		p.stream("5201", "h4", "h3", "h3", "-n", "64M")
		// In the shell, because softib exec sets what is loaded first. The client connects where the server listens.
		turns := strings.Join(perftest.PairIn(p, p.dir)([]string{"LD_PRELOAD=$LD_PRELOAD"}), " ")
		p.background("here", "h12", "sh", "-c", "echo here; "+turns+" exec rping -s -a 0.0.0.0 -C 3")
		wants(p, p.inNet("h13", "sh", "-c", turns+" rping -c -a h12 -C 3 -v 2>&1"), "rdma-ping-2")
		p.connected("h14", "h15")
		p.leaves("h13", "h12")
		p.byIP()
		if p.uid != os.Getuid() {
			return // what follows is the same for everybody
		}
		p.stream("5202", "h4", "h3", "ip6-h3", "-n", "16M")
		p.stream("5203", "h4", "h3", "h3", "-u", "-b", "20M", "-n", "1M")
		p.download("h5", "h6")
		p.multicast("h7", "h8", "h9")
		p.shell("h10", "h11")
		p.programs("h1", "h9")
		p.captured("h7", "h6")
		if p.uid == 0 {
			p.mpiByTCP("h16", "h12", "h13")
			p.stays("h22", "h23")
		}
		p.fails("h1", "h2")
		p.everybody()
		p.tenants()
	})
}

// stream has iperf3 send to a host by one of its addresses. The server is for this one stream: iperf3 refuses who comes
// before it has noticed that the stream before has ended.
func (p *person) stream(port, from, to, address string, argv ...string) {
	p.Helper()
	p.background("listening", to, "iperf3", "-s", "-1", "-p", port, "--forceflush")
	wants(p, p.inNet(from, append([]string{"iperf3", "-c", address, "-p", port}, argv...)...), "receiver")
}

// download fetches a file by HTTP and compares its sum.
func (p *person) download(server, client string) {
	p.Helper()
	file, err := os.Create(filepath.Join(p.dir, "file"))
	if err != nil {
		p.Fatal(err)
	}
	sum := sha256.New()
	src := rand.NewChaCha8([32]byte{1})
	if _, err := io.CopyN(io.MultiWriter(file, sum), src, 64<<20); err != nil {
		p.Fatal(err)
	}
	file.Close()
	p.background("Serving", server, "python3", "-u", "-m", "http.server", "-d", p.dir, "8000")
	wants(p, p.inNet(client, "sh", "-c", "curl -s http://"+server+":8000/file | sha256sum"),
		fmt.Sprintf("%x", sum.Sum(nil)))
}

// leaves has programs end that have written more than their peer has read yet, and a datagram: all of it comes, though
// the network of their host ends with them. The peer does not end the last connection.
func (p *person) leaves(from, to string) {
	p.Helper()
	const size, port = 1_000_000, 5220
	got := filepath.Join(p.dir, "left")
	reads := fmt.Sprintf(`import socket, time
l = socket.socket()
l.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
l.bind(("", %d))
l.listen()
print("here", flush=True)
while True:
    c = l.accept()[0]
    time.sleep(0.1)
    n = 0
    while b := c.recv(1 << 20):
        n += len(b)
    open(%q, "a").write("%%d\n" %% n)
`, port, got)
	writes := fmt.Sprintf(`import socket
s = socket.socket()
s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4000000)
s.connect((%q, %d))
s.sendall(b"x" * %d)
`, to, port, size)
	p.background("here", to, "python3", "-c", reads)
	p.background("here", to, "sh", "-c", "echo here; exec socat -u UDP4-RECV:5221 OPEN:"+got+",creat,append")
	p.eventually("socat listens", func() bool {
		_, _, status := p.softib("exec", "--net", to, "--", "sh", "-c", "ss -Hlun | grep -q :5221")
		return status == 0
	})
	p.inNet(from, "python3", "-c", writes)
	p.must("exec", "--net=connected", from, "--", "python3", "-c", writes) // the other network ends first
	p.inNet(from, "sh", "-c", "echo word | socat -u - UDP4-DATAGRAM:"+to+":5221")
	p.eventually("what was written comes", func() bool {
		b, _ := os.ReadFile(got)
		return strings.Count(string(b), fmt.Sprintln(size)) == 2 && strings.Contains(string(b), "word\n")
	})
	p.eventually("its network ends", func() bool { return !strings.Contains(p.must("net", "list"), from+" ") })
}

// byIP has a host of each mode send, and the doctor name both with what went by IP, and no host that has sent
// next to nothing.
func (p *person) byIP() {
	p.Helper()
	const size = 32 << 20
	for _, x := range []struct{ mode, server, client string }{
		{"--net", "h3", "h4"}, {"--net=connected", "h14", "h15"},
	} {
		p.backgroundBy(x.mode, "listening", x.server, "iperf3", "-s", "-p", "5210", "--forceflush")
		p.backgroundBy(x.mode, "sent", x.client, "sh", "-c", fmt.Sprintf("iperf3 -c %s -p 5210 -n %d >/dev/null && "+
			"echo sent && exec sleep 600", x.server, size)) // counters end with their network
	}
	said := ""
	defer func() {
		if p.Failed() {
			p.Logf("the doctor says:%s", said)
		}
	}()
	p.eventually("the doctor names h4 and h15", func() bool {
		out, _, _ := p.softib("doctor", "--interval", "0", "--json")
		var r doctor.Report
		if err := json.Unmarshal([]byte(out), &r); err != nil {
			p.Fatalf("%v: %s", err, out)
		}
		named := map[string]bool{}
		said = ""
		for _, f := range findings(&r, "by-ip") {
			said += "\n" + f.Measured
			m := sentByIP.FindStringSubmatch(f.Measured)
			if m == nil {
				p.Fatalf("the doctor says %q", f.Measured)
			}
			v, _ := strconv.ParseFloat(m[1], 64)
			named[f.Objects[0]] = v >= 0.9*size/1e6 // iperf3 ends before its last bytes are sent
			if native, _ := strconv.ParseFloat(m[2], 64); native > v/100 {
				p.Errorf("%s: what a network carries is not all IP", f.Measured)
			}
		}
		_, idle := named["h2"]
		return named["h4"] && named["h15"] && !idle
	})
}

// sentByIP is what the doctor says of a host with megabytes by IP.
var sentByIP = regexp.MustCompile(`sent ([0-9.]+) MB by IP over InfiniBand and ([0-9.]+) k?B native`)

// multicast sends to a group: one host listens, one does not.
func (p *person) multicast(from, to, other string) {
	p.Helper()
	got := filepath.Join(p.dir, "group")
	listen := "echo here; exec socat -u UDP4-RECV:6000,ip-add-membership=239.1.2.3:ib0 OPEN:" + got + ",creat,append"
	p.background("here", to, "sh", "-c", listen)
	p.background("here", other, "sh", "-c", "echo here; exec socat -u UDP4-RECV:6000 OPEN:"+got+".not,creat,append")
	p.eventually("a word of the group comes", func() bool {
		p.inNet(from, "sh", "-c", "echo word | socat -u - UDP4-DATAGRAM:239.1.2.3:6000")
		b, _ := os.ReadFile(got)
		return strings.Contains(string(b), "word")
	})
	if b, _ := os.ReadFile(got + ".not"); len(b) > 0 {
		p.Errorf("who does not listen gets %q", b)
	}
}

// shell is a session of ssh.
func (p *person) shell(server, client string) {
	p.Helper()
	sshd := tool(p, "sshd")
	key := filepath.Join(p.dir, "key")
	if out, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key).CombinedOutput(); err != nil {
		p.Fatalf("ssh-keygen: %v: %s", err, out)
	}
	if p.uid == 0 {
		if err := os.MkdirAll("/run/sshd", 0o755); err != nil { // where root's goes to; the service makes it as a rule
			p.Fatal(err)
		}
	}
	p.background("listening", server, sshd, "-D", "-e", "-p", "2222", "-h", key, "-f", "/dev/null", "-o", "UsePAM=no",
		"-o", "AuthorizedKeysFile="+key+".pub", "-o", "StrictModes=no", "-o", "PidFile=none", "-o",
		"PermitRootLogin=yes")
	out, errs, _ := p.softib("exec", "--net", client, "--", "ssh", "-v", "-F", "none", "-p", "2222", "-i", key, "-o",
		"StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", server,
		"cat /sys/class/net/ib0/mtu; echo $SSH_CONNECTION")
	if !strings.HasPrefix(out, "2044\n198.18.0.") {
		p.Errorf("ssh says %s%s", out, errs)
	}
	// A shell at a terminal, to which somebody types.
	typed := fmt.Sprintf("printf 'tty\\nx=6; echo $((7*x)) times\\nexit\\n' | TERM=dumb ssh -tt -F none -p 2222 -i %s "+
		"-o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null %s", key, server)
	out, errs, status := p.softib("exec", "--net", client, "--", "sh", "-c", typed)
	if status != 0 || !strings.Contains(out, "/pts/") || !strings.Contains(out, "42 times") {
		p.Errorf("a shell by ssh says %q, %s, and ends with %d", out, errs, status)
	}
}

// programs on RDMA find each other by TCP over ib0, and need no trick for it.
func (p *person) programs(server, client string) {
	p.Helper()
	for _, x := range []struct {
		port              int
		listen, ask, says []string
	}{
		{18515, []string{"ib_write_bw", "-F", "-n", "100"}, []string{"ib_write_bw", "-F", "-n", "100", server},
			[]string{"65536", "100"}},
		{19765, []string{"qperf"}, []string{"qperf", "-t", "1", "-to", "60", server, "tcp_lat"}, []string{"tcp_lat"}},
		{19765, nil, []string{"qperf", "-t", "1", "-to", "60", "-cm", "1", server, "rc_lat"}, []string{"rc_lat"}},
	} {
		if x.listen != nil {
			p.background("here", server, append([]string{"sh", "-c", `echo here; exec "$@"`, "sh"}, x.listen...)...)
			p.eventually("it listens", func() bool {
				_, _, status := p.softib("exec", "--net", server, "--", "sh", "-c",
					fmt.Sprintf("ss -Hltn | grep -q :%d", x.port))
				return status == 0
			})
		}
		wants(p, p.inNet(client, x.ask...), x.says...)
	}
}

// mpiByTCP has Open MPI start its ranks on hosts, by softib exec where others have ssh, and talk by its own TCP.
func (p *person) mpiByTCP(from, a, b string) {
	p.Helper()
	agent := filepath.Join(p.dir, "agent")
	script := "#!/bin/sh\nhost=$1; shift\nexec " + p.bin + " exec --net $host -- sh -c \"$*\"\n"
	if err := os.WriteFile(agent, []byte(script), 0o755); err != nil {
		p.Fatal(err)
	}
	l := p.ledger(a, b)
	args := []string{"exec", "--net", from, "--", tool(p, "mpirun"), "--allow-run-as-root", "--host", a + "," + b,
		"-np", "2"}
	for name, value := range map[string]string{"plm": "rsh", "plm_rsh_agent": agent, "pml": "ob1", "btl": "tcp,self",
		"btl_tcp_if_include": "ib0", "oob_tcp_if_include": "ib0"} {
		args = append(args, "--mca", name, value)
	}
	out, errs, status := p.softib(append(args, exchangeProgram(p, filepath.Dir(p.bin)), "pingpong")...)
	said := exchanged.FindAllStringSubmatch(out, -1)
	if status != 0 || len(said) != 2 {
		p.Fatalf("mpirun ends with %d: %s%s", status, out, errs)
	}
	for _, m := range said {
		n, _ := strconv.ParseUint(m[5], 10, 64)
		l.atLeast(m[4], n, n)
	}
}

// captured has tshark read what two hosts that do not know each other say.
func (p *person) captured(a, b string) {
	p.Helper()
	file := filepath.Join(p.dir, "ip.pcapng")
	ctx, cancel := patient()
	defer cancel()
	cmd := p.command(ctx, "capture", b, "-w", file)
	if err := cmd.Start(); err != nil {
		p.Fatal(err)
	}
	p.eventually("it captures", func() bool {
		st, err := os.Stat(file)
		if err == nil && st.Size() > 0 {
			return true
		}
		p.inNet(b, "true") // which the administrator hears of
		return false
	})
	p.background("here", b, "sh", "-c", "echo here; exec sleep 600")
	p.pings(a, b)
	_ = cmd.Process.Signal(syscall.SIGINT)
	_ = cmd.Wait()
	out, err := exec.Command(tool(p, "tshark"), "-n", "-r", file, "-Y", "arp or icmp", "-T", "fields",
		"-e", "arp.opcode", "-e", "icmp.type", "-e", "ip.src").Output()
	if err != nil {
		p.Fatalf("tshark: %v", err)
	}
	for _, want := range []string{"1\t\t\n", "2\t\t\n", "\t8\t198.18.0.", "\t0\t198.18.0."} {
		if !strings.Contains(string(out), want) {
			p.Errorf("tshark sees no %q in %q", want, out)
		}
	}
}

// fails takes a link away in the middle and gives it back: what is under way goes on.
func (p *person) fails(a, b string) {
	p.Helper()
	p.background("listening", b, "iperf3", "-s", "-p", "5300", "--forceflush")
	done := make(chan string, 1)
	go func() { // 2 s of pause are bridged by TCP
		out, errs, _ := p.softib("exec", "--net", a, "--", "iperf3", "-c", b, "-p", "5300", "-n",
			"8M", "-b", "40M")
		done <- out + errs
	}()
	p.must("fault", "link", b, "down")
	p.eventually("the carrier is gone", func() bool { return p.inNet(b, "cat", "/sys/class/net/ib0/carrier") == "0\n" })
	p.must("fault", "clear")
	wants(p, <-done, "receiver")
	// And somebody who has never spoken with it finds it: its groups are joined again.
	p.pings("h16", b)
	p.pings("h16", "-6", "ip6-"+b)
}

// stays is a network in a namespace of ip netns.
func (p *person) stays(a, b string) {
	p.Helper()
	space := fmt.Sprintf("softib-%d", os.Getpid())
	if out, err := exec.Command(tool(p, "ip"), "netns", "add", space).CombinedOutput(); err != nil {
		p.Fatalf("ip netns add: %s", out)
	}
	p.Cleanup(func() { _ = exec.Command(tool(p, "ip"), "netns", "del", space).Run() })
	wants(p, p.must("net", "up", a, "--netns", space), "ib0 is up")
	out, err := exec.Command(tool(p, "ip"), "-n", space, "-br", "addr").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "198.18.0.22/15") {
		p.Errorf("the namespace has %s", out)
	}
	p.pings(b, a)
	wants(p, p.must("net", "list"), a+"  datagram, 0 programs, stays")
	_, errs, _ := p.softib("net", "up", a, "--netns", space)
	wants(p, errs, "has a network already", "next: softib net down")
	wants(p, p.must("net", "down", a), "is down")
	out, err = exec.Command(tool(p, "ip"), "-n", space, "-br", "addr").CombinedOutput()
	if err != nil || strings.Contains(string(out), "ib0") {
		p.Errorf("after net down the namespace has %s", out)
	}
}

// everybody has all hosts ping their next at the same time.
func (p *person) everybody() {
	p.Helper()
	stay := make([]*exec.Cmd, netHosts)
	for i := range stay {
		stay[i] = p.background("here", fmt.Sprint("h", i+1), "sh", "-c", "echo here; exec sleep 600")
	}
	var all sync.WaitGroup
	for i := range netHosts {
		all.Go(func() {
			host, next := fmt.Sprint("h", i+1), fmt.Sprint("h", (i+1)%netHosts+1)
			out, errs, status := p.softib("exec", "--net", host, "--", "ping", "-c2", "-i0.2", "-w30", next)
			if status != 0 {
				p.Errorf("%s to %s: %s%s", host, next, out, errs)
			}
		})
	}
	all.Wait()
	for _, c := range stay {
		_ = c.Process.Signal(syscall.SIGTERM)
	}
}

// connected is the mode with connections.
func (p *person) connected(a, b string) {
	p.Helper()
	in := func(host string, argv ...string) []string {
		return append([]string{"exec", "--net=connected", host, "--"}, argv...)
	}
	ctx, cancel := patient()
	defer cancel()
	server := p.command(ctx, in(a, "iperf3", "-s", "-1")...)
	if err := server.Start(); err != nil {
		p.Fatal(err)
	}
	p.eventually("it listens", func() bool {
		_, _, status := p.softib(in(a, "sh", "-c", "ss -Hltn | grep -q :5201")...)
		return status == 0
	})
	wants(p, p.must(in(b, "sh", "-c", "cat /sys/class/net/ib0/mtu; ping -c1 -M do -s 65492 "+a)...), "65520\n",
		"1 received")
	wants(p, p.must(in(b, "iperf3", "-c", a, "-n", "256M")...), "receiver")
	_ = server.Wait()
	_, errs, _ := p.softib("exec", "--net=tunnel", a, "--", "true")
	wants(p, errs, "want datagram or connected", "next:")
}

// tenants do not hear each other.
func (p *person) tenants() {
	p.Helper()
	former := regexp.MustCompile(`(?m)^h(1[7-9]|2[0-4]) `)
	p.eventually("networks that would keep their former partitions have ended", func() bool {
		return !former.MatchString(p.must("net", "list"))
	})
	p.must("tenant", "create", "red", "--hosts", "h17,h18", "--ipoib")
	p.must("tenant", "create", "blue", "--hosts", "h19,h20", "--ipoib")
	p.must("tenant", "create", "dry", "--hosts", "h21")
	p.background("here", "h18", "sh", "-c", "echo here; exec sleep 600")
	p.background("here", "h20", "sh", "-c", "echo here; exec sleep 600")
	p.pings("h17", "h18")
	p.pings("h19", "h20")
	out, _, _ := p.softib("exec", "--net", "h17", "--", "ping", "-c1", "-W300", "h20")
	wants(p, out, "Destination Host Unreachable")
	wants(p, p.inNet("h17", "ls", "/sys/class/net"), "ib0.ffff")
	p.children("h23", "h24", "h22")
	_, errs, status := p.softib("exec", "--net", "h21", "--", "true")
	same(p, "a network without IPoIB", status, 1)
	wants(p, errs, "--ipoib")
}

// children are interfaces in second partitions: two hosts that are in two find each other there, and a third, which is
// only in the first with them, hears nothing of it.
func (p *person) children(a, b, third string) {
	p.Helper()
	p.must("tenant", "create", "one", "--hosts", strings.Join([]string{a, b, third}, ","), "--ipoib")
	p.must("tenant", "create", "two", "--hosts", a+","+b, "--ipoib")
	p.inNet(a, "true")
	ask := "ip -br -4 addr | sed -nE 's/^(ib0\\.9[0-9a-f]{3}) .* (10[0-9.]+)\\/23.*/\\1 \\2/p'"
	var dev, ip4 string
	if _, err := fmt.Sscan(p.inNet(b, "sh", "-c", ask), &dev, &ip4); err != nil {
		p.Fatalf("%s has no interface in its second partition: %v:\n%s", b, err, p.inNet(b, "ip", "-br", "addr"))
	}
	same(p, third+"'s interfaces in second partitions", p.inNet(third, "sh", "-c", ask), "")
	got := filepath.Join(p.dir, "child")
	for host, file := range map[string]string{b: got, third: got + ".not"} {
		p.background("here", host, "sh", "-c", "echo here; exec socat -u UDP4-RECV:6001,reuseaddr OPEN:"+file+
			",creat,append")
	}
	ip6 := fmt.Sprintf("fd53:6f66:7469:%s::%x", strings.TrimPrefix(dev, "ib0."), 24)
	p.pings(a, ip4)
	p.pings(a, "-6", ip6)
	p.pings(a, third) // in the first they do know each other
	out, _, _ := p.softib("exec", "--net", a, "--", "ping", "-c1", "-W300", strings.TrimSuffix(ip4, "24")+"22")
	wants(p, out, "Destination Host Unreachable")
	p.eventually("a broadcast comes", func() bool {
		p.inNet(a, "sh", "-c", "echo word | socat -u - UDP4-DATAGRAM:255.255.255.255:6001,broadcast,"+
			"so-bindtodevice="+dev)
		heard, _ := os.ReadFile(got)
		return strings.Contains(string(heard), "word")
	})
	if heard, _ := os.ReadFile(got + ".not"); len(heard) > 0 {
		p.Errorf("%s hears %q, which was said in a partition that it is not in", third, heard)
	}
}
