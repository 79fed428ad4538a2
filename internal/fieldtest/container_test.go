package fieldtest

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// contained makes what the person runs from now on run in a container of its own, which shares one folder with the
// outside: that of the user's fabrics. Who is somebody else inside than outside.
func (p *person) contained(who ...string) {
	home := filepath.Dir(p.bin) // softib itself, as an image would have it
	p.before = append([]string{tool(p, "bwrap"), "--unshare-all", "--die-with-parent", "--ro-bind", "/", "/",
		"--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--tmpfs", "/dev/shm", "--tmpfs", "/run",
		"--bind", filepath.Join(p.dir, "softib"), "/run/softib", "--unsetenv", "XDG_RUNTIME_DIR",
		"--ro-bind", home, home}, who...)
}

// TestContainer: programs in containers with users, processes, memory, network and temporary files of their own find
// the fabric outside by one folder, see their host, and exchange long messages with one copy.
func TestContainer(t *testing.T) {
	t.Parallel()
	people(t, func(p *person) {
		if !p.allowed() {
			p.Skip("this kernel gives no namespaces to this user")
		}
		// The hosts' files are in the folder where that is in memory, as it is in /run.
		dir, err := os.MkdirTemp("/dev/shm", "softib-p-")
		if err != nil {
			p.Fatal(err)
		}
		p.Cleanup(func() { os.RemoveAll(dir) })
		if err := os.Chown(dir, p.uid, -1); err != nil {
			p.Fatal(err)
		}
		p.dir = dir
		p.up("star:4")
		outside := p.before
		p.contained()
		same(p, "state", p.must("exec", "h1", "--", "cat", port1+"state"), "4: ACTIVE\n")
		if out := p.must("exec", "h2", "--", "ibv_devinfo"); !strings.Contains(out, "PORT_ACTIVE") {
			p.Errorf("ibv_devinfo says\n%s", out)
		}
		server := p.observerBy("h1", `rping -s -P -V -S 60000 & read end; kill $!`)
		p.ping("h1", 20)
		// The server writes to its clients. One that goes on says how much it has read by system calls: what it takes
		// from its peer's memory, or out of its ring, it does not read.
		client := p.observerBy("h2",
			`rping -c -a h1 -V -S 60000 & while read f; do head -n 1 /proc/$!/io || echo; done`)
		client.await("", func(line string) bool {
			n, err := strconv.Atoi(strings.TrimPrefix(line, "rchar: "))
			if err != nil {
				p.Fatalf("%q: %v", line, err)
			}
			return n > 100*60000
		})
		client.end()
		// Nor does it matter who is in a container.
		p.before = outside
		p.ping("h1", 20)
		server.end()
		// Root of a container is the user who has started it.
		if p.uid != 0 {
			p.contained("--uid", "0", "--gid", "0")
			if out := p.must("exec", "h2", "--", "sh", "-c", "id -u && ibv_devinfo"); !strings.HasPrefix(out, "0\n") ||
				!strings.Contains(out, "PORT_ACTIVE") {
				p.Errorf("root of a container sees\n%s", out)
			}
		}
		p.before = outside
		p.must("down")
	})
}

// ping has rping send to a server and take from it, and compare, so many times.
func (p *person) ping(host string, rounds int) {
	p.Helper()
	for deadline := time.Now().Add(inTime()); ; time.Sleep(10 * time.Millisecond) {
		out, errs, status := p.softib("exec", "h2", "--", "rping", "-c", "-a", host, "-V", "-S", "60000", "-C",
			strconv.Itoa(rounds))
		switch {
		case status == 0 && !strings.Contains(out+errs, "error"):
			return
		case !strings.Contains(out+errs, "REJECTED") || time.Now().After(deadline): // it does not listen yet
			p.Fatalf("rping to %s ends with %d:\n%s%s", host, status, out, errs)
		}
	}
}
