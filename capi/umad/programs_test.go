package umad

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"softib/proto/ib"
	"softib/proto/mad"
)

func TestIbstat(t *testing.T) {
	f := serve(t)
	wants(t, f.run(t, "h1", "ibstat"),
		"CA 'softib0'\n", "CA type: softib\n", "Number of ports: 2\n", "Firmware version: 1.2.3\n",
		"Hardware version: 0\n",
		"Node GUID: 0x0002c90300000100\n", "System image GUID: 0x0002c90300000100\n",
		"Port 1:\n\t\tState: Active\n\t\tPhysical state: LinkUp\n\t\tRate: 100\n\t\tBase lid: 1\n\t\tLMC: 0\n"+
			"\t\tSM lid: 1\n",
		"Port GUID: 0x0002c90300000101\n", "Link layer: InfiniBand\n",
		"Port 2:\n\t\tState: Down\n\t\tPhysical state: Polling\n")
	if got, want := f.run(t, "h1", "ibstat", "-p"), "0x0002c90300000101\n0x0002c90300000102\n"; got != want {
		t.Errorf("ibstat -p: %q, want %q", got, want)
	}
	if got := f.run(t, "h2", "ibstat", "-l"); got != "softib0\n" {
		t.Errorf("ibstat -l: %q", got)
	}
	wants(t, f.run(t, "h2", "ibstat", "softib0", "1"), "Base lid: 2\n", "Port GUID: 0x0002c90300000201\n")
	wants(t, f.fails(t, "h1", "ibstat", "mlx5_0"), "mlx5_0")
	wants(t, f.fails(t, "h9", "ibstat"), "softib: h9: no such host; next: softib status")
}

func TestAddressesAndQueries(t *testing.T) {
	f := serve(t)
	wants(t, f.run(t, "h1", "ibaddr"), "GID fe80::2:c903:0:101 LID start 0x1 end 0x1")
	wants(t, f.run(t, "h1", "ibaddr", "2"), "GID fe80::2:c903:0:201 LID start 0x2 end 0x2")
	wants(t, f.run(t, "h1", "smpquery", "nodeinfo", "-D", "0"), "NodeType:........................Channel Adapter",
		"Guid:............................0x0002c90300000100")
	wants(t, f.run(t, "h1", "smpquery", "nodeinfo", "-D", "0,1"), "Guid:............................0x0002c90300000200",
		"NumPorts:........................1\n")
	wants(t, f.run(t, "h1", "smpquery", "nodedesc", "2"), "h2 HCA-1")
	wants(t, f.run(t, "h2", "smpquery", "portinfo", "1", "2"), "LinkState:.......................Down")
	wants(t, f.run(t, "h1", "smpquery", "-P", "1", "pkeys", "2"), "0xffff 0x8001")
	wants(t, f.run(t, "h1", "ibnetdiscover"), `"h1 HCA-1"`, `"h2 HCA-1"`, `[1](2c90300000101)`)
	wants(t, f.run(t, "h1", "iblinkinfo"), "h1 HCA-1", "h2 HCA-1")
	wants(t, f.run(t, "h2", "perfquery", "1", "1"), "PortSelect:......................1", "CounterSelect:")
	wants(t, f.run(t, "h2", "ibhosts"), "0x0002c90300000200 ports 1", "0x0002c90300000100 ports 2")
}

// Port 2 of h1 has no cable: what is asked there gets no answer, and the program is told so. libibmad says no more than
// that it failed if our answer comes before it has waited for as long itself.
func TestTimeout(t *testing.T) {
	f := serve(t)
	start := time.Now()
	wants(t, f.fails(t, "h1", "smpquery", "-P", "2", "-t", "50", "nodeinfo", "-D", "0,2"), "failed", "0,2",
		"node info query failed")
	if d := time.Since(start); d < 50*time.Millisecond {
		t.Errorf("gave up after %v, want 50 ms at least", d)
	}
}

func TestIbping(t *testing.T) {
	f := serve(t)
	start := func() *exec.Cmd {
		t.Helper()
		cmd := f.command(t, "h2", "ibping", "-S", "-d", "-d")
		out, err := cmd.StderrPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		serving := false
		for !serving && lines.Scan() {
			serving = strings.Contains(lines.Text(), "umad_recv: fd")
		}
		if !serving {
			t.Fatal("ibping -S does not serve")
		}
		go func() {
			for lines.Scan() {
			}
		}()
		return cmd
	}
	stop := func(cmd *exec.Cmd) {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	server := start()
	wants(t, f.run(t, "h1", "ibping", "-t", "20000", "-c", "5", "-f", "2"),
		"5 packets transmitted, 5 received, 0% packet loss")

	// The class is taken while the server runs, and free once it is killed.
	wants(t, f.fails(t, "h2", "ibping", "-S"), "can't serve class 50")
	stop(server)
	stop(start())
}

// ibsim serves ten programs at once; here are many more.
func TestManyPrograms(t *testing.T) {
	f := serve(t)
	var wait sync.WaitGroup
	slots := make(chan struct{}, 40)
	for i := range 80 {
		slots <- struct{}{}
		wait.Go(func() {
			defer func() { <-slots }()
			host := fmt.Sprintf("h%d", 1+i%2)
			out, err := f.command(t, host, "smpquery", "nodeinfo", "-D", "0,1").CombinedOutput()
			if err != nil || !strings.Contains(string(out), "Channel Adapter") {
				t.Errorf("%s: %v\n%s", host, err, out)
			}
		})
	}
	wait.Wait()
}

// IsSM is set while a program has the file open, however the program ends.
func TestIsSM(t *testing.T) {
	f := serve(t)
	program := compile(t, "issm.c")
	expect := func(want string) {
		t.Helper()
		select {
		case got := <-f.isSM:
			if got != want {
				t.Errorf("SetIsSM %s, want %s", got, want)
			}
		case <-time.After(60 * time.Second):
			t.Fatalf("no SetIsSM, want %s", want)
		}
	}
	// two opens and two closes, of which the last counts
	hold := func() *exec.Cmd {
		cmd := f.command(t, "h1", program)
		if _, err := cmd.StdinPipe(); err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "open\n" {
			t.Fatalf("%q, %v", line, err)
		}
		return cmd
	}
	a := hold()
	expect("h1/1 true")
	wants(t, f.run(t, "h2", "smpquery", "portinfo", "1", "1"), "IsSM")
	b := hold()
	_ = a.Process.Signal(syscall.SIGKILL)
	_ = a.Wait()
	wants(t, f.run(t, "h2", "smpquery", "portinfo", "1", "1"), "IsSM")
	_ = b.Process.Signal(syscall.SIGKILL)
	_ = b.Wait()
	expect("h1/1 false")
	if out := f.run(t, "h2", "smpquery", "portinfo", "1", "1"); strings.Contains(out, "IsSM\n") {
		t.Errorf("IsSM stays set:\n%s", out)
	}
}

// OpenSM takes the two hosts into one subnet, and saquery asks it.
func TestOpenSM(t *testing.T) {
	f := serve(t)
	f.mu.Lock()
	for _, h := range f.hosts {
		pi := &h.ports[1]
		pi.PortState, pi.LID, pi.MasterSMLID = ib.PortInit, 0, 0
	}
	f.mu.Unlock()
	dir := t.TempDir()
	log := filepath.Join(dir, "opensm.log")
	// What else is preloaded has to go on working.
	cmd := f.command(t, "h1", "/usr/bin/stdbuf", "-oL", tool(t, "opensm"), "-f", log)
	cmd.Env = append(cmd.Env, "OSM_TMP_DIR="+dir, "OSM_CACHE_DIR="+dir)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	select {
	case <-f.active:
	case <-time.After(60 * time.Second):
		text, _ := os.ReadFile(log)
		t.Fatalf("the ports are not active after 60 s; OpenSM's log:\n%s", text)
	}
	// Its administrator answers a moment later.
	for {
		out, err := f.command(t, "h2", "saquery").CombinedOutput()
		if err == nil && strings.Contains(string(out), "h1 HCA-1") {
			break
		}
		if len(f.isSM) > 1 {
			t.Fatalf("OpenSM has ended; saquery: %s", out)
		}
	}
	f.mu.Lock()
	for _, h := range f.hosts {
		if pi := &h.ports[1]; pi.PortState != ib.PortActive || pi.LID == 0 ||
			pi.MasterSMLID != f.hosts["h1"].ports[1].LID {
			t.Errorf("%s: %v LID %d SM %d", h.name, pi.PortState, pi.LID, pi.MasterSMLID)
		}
	}
	if f.hosts["h1"].ports[1].CapabilityMask&mad.CapIsSM == 0 {
		t.Error("h1's IsSM is clear")
	}
	f.mu.Unlock()
	wants(t, f.run(t, "h2", "sminfo"), "state 3 SMINFO_MASTER")
	wants(t, f.run(t, "h2", "saquery"), "h1 HCA-1", "h2 HCA-1") // a table in segments
	wants(t, f.run(t, "h2", "saquery", "-p"), "PathRecord dump")
}
