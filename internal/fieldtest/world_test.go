package fieldtest

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	waits "softib/internal/patience" // the package has a patience of its own
)

// ordinaryUser is nobody.
const ordinaryUser = 65534

// person is somebody at a shell: root or not, whoever runs the tests.
type person struct {
	testing.TB
	uid      int
	bin, dir string
	// before is a command that is to run softib.
	before []string
}

// people are those who the tests can be: an ordinary user, and root if root runs them.
func people(t *testing.T, test func(*person)) {
	uids := map[string]int{"ordinary": os.Getuid()}
	if os.Getuid() == 0 {
		uids = map[string]int{"root": 0, "ordinary": ordinaryUser}
	}
	for name, uid := range uids {
		t.Run(name, func(t *testing.T) { test(newPerson(t, uid)) })
	}
}

func newPerson(t testing.TB, uid int) *person {
	t.Helper()
	library(t)
	bin, err := softib()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "softib-p-") // beside the folder of the tests, which is closed to others
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	p := &person{TB: t, uid: uid, bin: filepath.Join(dir, "softib"), dir: filepath.Join(dir, "run")}
	for _, copied := range []string{bin, filepath.Join(filepath.Dir(bin), "lib")} {
		if out, err := exec.Command("cp", "-r", copied, dir).CombinedOutput(); err != nil {
			t.Fatalf("%s", out)
		}
	}
	err = errors.Join(os.Mkdir(p.dir, 0o700), os.Chown(p.dir, uid, -1))
	if out, cerr := exec.Command("chmod", "-R", "a+rX", dir).CombinedOutput(); err != nil || cerr != nil {
		t.Fatalf("%v, %s", err, out)
	}
	if err := os.Chmod(p.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return p
}

// command is a command of softib.
func (p *person) command(ctx context.Context, args ...string) *exec.Cmd {
	args = append(append(p.before[:len(p.before):len(p.before)], p.bin), args...)
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir = "/"
	cmd.Env = append(os.Environ(), "XDG_RUNTIME_DIR="+p.dir, "HOME="+p.dir, "PATH=/usr/sbin:/usr/bin:/sbin:/bin",
		"LC_ALL=C")
	if p.uid != os.Getuid() {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(p.uid), Gid: uint32(p.uid)}}
	}
	return cmd
}

// softib runs a command of softib to its end.
func (p *person) softib(args ...string) (stdout, stderr string, status int) {
	p.Helper()
	ctx, cancel := patient()
	defer cancel()
	cmd := p.command(ctx, args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); cmd.ProcessState == nil {
		p.Fatal(err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// must is softib for what has to succeed without a complaint.
func (p *person) must(args ...string) string {
	p.Helper()
	out, errs, status := p.softib(args...)
	if status != 0 || errs != "" {
		p.Fatalf("softib %s ends with %d\n%s%s", strings.Join(args, " "), status, out, errs)
	}
	return out
}

var daemonPID = regexp.MustCompile(`process ([0-9]+)`)

// up starts a fabric in the background and returns its process.
func (p *person) up(args ...string) (pid int) {
	p.Helper()
	m := daemonPID.FindStringSubmatch(p.must(append([]string{"up", "-d"}, args...)...))
	if m == nil {
		p.Fatal("softib up -d does not name its process")
	}
	pid, _ = strconv.Atoi(m[1])
	p.Cleanup(func() { p.softib("down") })
	return pid
}

// allowed asks the kernel itself whether this user gets namespaces.
func (p *person) allowed() bool {
	args := []string{"-m", "true"}
	if p.uid != 0 {
		args = []string{"-U", "-m", "true"}
	}
	cmd := exec.Command("unshare", args...)
	if p.uid != os.Getuid() {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(p.uid), Gid: uint32(p.uid)}}
	}
	return cmd.Run() == nil
}

// observer is a shell on a host that looks into files when it is asked to.
type observer struct {
	p   *person
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func (p *person) observer(host string) *observer {
	p.Helper()
	return p.observerBy(host, `while read f; do head -n 1 "$f" || echo; done`)
}

// observerBy is an observer whose script answers each line with a line.
func (p *person) observerBy(host, script string) *observer {
	p.Helper()
	ctx, cancel := patient()
	p.Cleanup(cancel)
	cmd := p.command(ctx, "exec", host, "--", "sh", "-c", script)
	in, err := cmd.StdinPipe()
	if err != nil {
		p.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		p.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		p.Fatal(err)
	}
	return &observer{p, cmd, in, bufio.NewReader(out)}
}

func (o *observer) end() {
	o.in.Close()
	_ = o.cmd.Wait()
}

// read is the first line of a file.
func (o *observer) read(file string) string {
	o.p.Helper()
	if _, err := fmt.Fprintln(o.in, file); err != nil {
		o.p.Fatal(err)
	}
	line, err := o.out.ReadString('\n')
	if err != nil {
		o.p.Fatal(err)
	}
	return strings.TrimSuffix(line, "\n")
}

// await looks until a file is as it should be.
func (o *observer) await(file string, is func(string) bool) string {
	o.p.Helper()
	deadline := time.Now().Add(inTime())
	for {
		got := o.read(file)
		if is(got) {
			return got
		}
		if time.Now().After(deadline) {
			o.p.Fatalf("%s stays %q", file, got)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

const port1 = "/sys/class/infiniband/softib0/ports/1/"

// A host as unmodified programs see it: by shell scripts, by what is linked statically, by names.
func TestWorld(t *testing.T) {
	t.Parallel()
	tool(t, "ibstatus")
	reader := filepath.Join(scratch, "reader")
	build := exec.Command("go", "build", "-o", reader, "./testdata/reader")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%s", out)
	}
	gpu := compile(t, "gpu.c")
	people(t, func(p *person) {
		p.up("star:3")
		if !p.allowed() {
			p.fallsBack()
			return
		}
		wants(p, p.must("exec", "h2", "--", "ibstatus"), "Infiniband device 'softib0' port 1 status:\n",
			"base lid:\t 0x2\n", "sm lid:\t\t 0x4\n",
			"state:\t\t 4: ACTIVE\n", "phys state:\t 5: LinkUp\n", "rate:\t\t 400 Gb/sec (4X NDR)\n",
			"link_layer:\t InfiniBand\n")
		wants(p, p.must("exec", "h2", "--", "ibstat"), "CA 'softib0'", "Base lid: 2\n")
		same(p, "the name", p.must("exec", "h3", "--", "cat", "/sys/class/infiniband/softib0/node_desc"), "h3 HCA-1\n")
		// What sysfs says is what libibumad says.
		stat := p.must("exec", "h2", "--", "ibstat")
		guid := strings.ReplaceAll(strings.TrimSpace(p.must("exec", "h2", "--", "cat",
			"/sys/class/infiniband/softib0/node_guid")), ":", "")
		wants(p, stat, "Node GUID: 0x"+guid+"\n")
		own := filepath.Join(filepath.Dir(p.bin), "reader")
		if out, err := exec.Command("cp", reader, own).CombinedOutput(); err != nil {
			p.Fatalf("%s", out)
		}
		same(p, "a static program", p.must("exec", "h2", "--", own, "/sys/class/infiniband", port1+"lid"),
			"softib0\n0x2\n")
		wants(p, p.must("exec", "h1", "--", "getent", "hosts", "h2"), "198.18.0.2", "h2")
		wants(p, p.must("exec", "h1", "--", "getent", "hosts", "198.18.0.3"), "h3")
		wants(p, p.must("exec", "h1", "--", "getent", "hosts", "localhost"), "localhost")
		wants(p, p.must("exec", "sw1", "--", "cat", "/sys/class/infiniband/softib0/node_type"), "2: switch")
		same(p, "who", p.must("exec", "h1", "--", "id", "-u"), strconv.Itoa(p.uid)+"\n")
		same(p, "where", p.must("exec", "h1", "--", "pwd"), "/\n")
		// One user namespace for all, or none; a mount namespace for each.
		spaces := map[string]bool{}
		for _, host := range []string{"h1", "h2", "h1"} {
			spaces[p.must("exec", host, "--", "readlink", "/proc/self/ns/user")] = true
		}
		same(p, "user namespaces", len(spaces), 1)
		// Without, on demand.
		_, errs, status := p.softib("exec", "--plain", "h1", "--", "ls", "/sys/class/infiniband")
		same(p, "plain", status != 0 && strings.Contains(errs, "No such file"), true)
		wants(p, p.must("exec", "--plain", "h1", "--", "ibstat"), "CA 'softib0'")
		// On a host from another.
		same(p, "nested", p.must("exec", "h1", "--", "sh", "-c", p.bin+" exec h2 -- cat "+port1+"lid && cat "+port1+
			"lid"), "0x2\n0x1\n")
		wants(p, p.must("exec", "h1", "--", tool(p, "ucx_info"), "-d"), "Transport: rc_verbs", "Transport: ud_verbs",
			"Device: softib0:1")
		p.findsAdapter(gpu)
		p.noTraces()
	})
}

// findsAdapter checks what libraries for GPUs look for, NCCL first of all. The machine has a libibverbs.so of its own.
func (p *person) findsAdapter(gpu string) {
	p.Helper()
	own := filepath.Join(filepath.Dir(p.bin), "gpu")
	if out, err := exec.Command("cp", gpu, own).CombinedOutput(); err != nil {
		p.Fatalf("%s", out)
	}
	subsystem := "-"
	if _, err := os.Stat("/sys/bus/pci"); err == nil {
		subsystem = "/sys/bus/pci"
	}
	wants(p, p.must("exec", "h2", "--", own), "library "+filepath.Dir(p.bin)+"/lib/libibverbs.so.1\ndevice softib0\n"+
		"subsystem "+subsystem+"\nclass 0x020700\nmax_link_speed 32.0 GT/s PCIe\nmax_link_width 16\n",
		"root /sys/devices/pci", "GIN 0 0, host h2\n")
	// What the machine has of PCI itself is there too.
	for _, list := range []string{"/sys/class/pci_bus", "/sys/devices"} {
		seen := p.must("exec", "h2", "--", "ls", list)
		entries, _ := os.ReadDir(list)
		for _, e := range entries {
			wants(p, seen, e.Name()+"\n")
		}
	}
}

// The files are as the host is.
func TestWorldFresh(t *testing.T) {
	t.Parallel()
	tool(t, "ibping")
	people(t, func(p *person) {
		p.up("star:3")
		if !p.allowed() {
			p.fallsBack()
			return
		}
		o := p.observer("h1")
		defer o.end()
		same(p, "state", o.read(port1+"state"), "4: ACTIVE")
		before := o.read(port1 + "counters/port_rcv_packets")
		p.must("exec", "h2", "--", "smpquery", "nodeinfo", "1")
		o.await(port1+"counters/port_rcv_packets", func(now string) bool { return now != before })

		// The switch's port towards h1, taken down from h2.
		at := strings.Fields(p.must("exec", "h1", "--", "sh", "-c",
			"ibnetdiscover | grep '\"h1 HCA-1\"' | grep lid | head -1"))
		if len(at) == 0 {
			p.Fatal("h1 is not in the fabric")
		}
		number := strings.TrimSuffix(strings.TrimPrefix(at[0], "["), "]")
		lid := strings.TrimSpace(p.must("exec", "sw1", "--", "sh", "-c",
			"printf %d $(cat /sys/class/infiniband/softib0/ports/0/lid)"))
		if _, errs, status := p.softib("exec", "h2", "--", "ibportstate", lid, number, "disable"); status != 0 {
			p.Fatal(errs)
		}
		o.await(port1+"state", func(now string) bool { return now == "1: DOWN" })
		o.await(port1+"phys_state", func(now string) bool { return now == "2: Polling" })
		o.await(port1+"counters/link_downed", func(now string) bool { return now != "0" })
		if _, errs, status := p.softib("exec", "h2", "--", "ibportstate", lid, number, "enable"); status != 0 {
			p.Fatal(errs)
		}
		o.await(port1+"state", func(now string) bool { return now == "4: ACTIVE" })
	})
}

// fallsBack checks that programs run where the kernel gives no namespaces.
func (p *person) fallsBack() {
	p.Helper()
	wants(p, p.must("exec", "h1", "--", "ibstat"), "CA 'softib0'", "Base lid: 1\n")
	_, _, status := p.softib("exec", "h1", "--", "ls", "/sys/class/infiniband/softib0")
	same(p, "an adapter in /sys", status == 0, false)
	_, errs, status := p.softib("exec", "-v", "h1", "--", "true")
	same(p, "status with -v", status, 0)
	wants(p, errs, "softib: true runs without /sys/class/infiniband and names of hosts: ")
}

// A kernel that refuses: a user namespace in which no other can be made.
func TestWorldRefused(t *testing.T) {
	t.Parallel()
	tool(t, "ibstat")
	uid := os.Getuid()
	if uid == 0 {
		uid = ordinaryUser
	}
	p := newPerson(t, uid)
	if !p.allowed() {
		// It refuses by itself.
		p.up("star:2")
		p.fallsBack()
		return
	}
	// All in one namespace: the fabric, its programs and the end.
	script := `echo 0 >/proc/sys/user/max_user_namespaces || exit 9
unshare -U true 2>/dev/null && exit 8
s=$1
$s up -d star:2 || exit 1
$s exec h1 -- ibstat || exit 2
$s exec h1 -- ls /sys/class/infiniband/softib0 2>/dev/null && exit 3
$s exec -v h1 -- true || exit 4
$s down || exit 5`
	ctx, cancel := patient()
	defer cancel()
	cmd := p.command(ctx)
	cmd.Path, cmd.Args = "/bin/sh", []string{"sh", "-c", script, "sh", p.bin}
	const capSysResource = 24
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: uid, HostID: uid, Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: uid, HostID: uid, Size: 1}},
		AmbientCaps: []uintptr{capSysResource},
		Credential:  &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid), NoSetGroups: true},
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	wants(t, string(out), "CA 'softib0'", "softib: true runs without /sys/class/infiniband and names of hosts: ",
		"a user namespace")
}

// noTraces checks that nothing of the namespaces is seen outside.
func (p *person) noTraces() {
	p.Helper()
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		p.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, " softib ") || strings.Contains(line, p.dir) {
			p.Errorf("mounted outside: %s", line)
		}
	}
}

// holders are the processes that are in a namespace or have it open.
func holders(space string) (who []string) {
	links, _ := filepath.Glob("/proc/[0-9]*/ns/*")
	fds, _ := filepath.Glob("/proc/[0-9]*/fd/*")
	for _, l := range append(links, fds...) {
		if to, err := os.Readlink(l); err == nil && to == space {
			who = append(who, l)
		}
	}
	return who
}

// Nothing is left when a fabric ends, however it ends.
func TestWorldEnds(t *testing.T) {
	t.Parallel()
	people(t, func(p *person) {
		for _, killed := range []bool{false, true} {
			pid := p.up("star:2")
			if !p.allowed() {
				p.fallsBack()
				return
			}
			o := p.observer("h1")
			same(p, "state", o.read(port1+"state"), "4: ACTIVE")
			user, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/user", o.cmd.Process.Pid))
			if err != nil {
				p.Fatal(err)
			}
			mount, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/mnt", o.cmd.Process.Pid))
			if err != nil {
				p.Fatal(err)
			}
			outer, _ := os.Readlink("/proc/self/ns/user")
			if killed {
				if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
					p.Fatal(err)
				}
				p.eventually("the fabric to be gone", func() bool {
					return syscall.Kill(pid, 0) != nil ||
						isZombie(pid)
				})
			} else {
				p.must("down")
				// The program finds an adapter that has gone.
				same(p, "state", o.read(port1+"state"), "")
			}
			o.end()
			p.eventually("the mount namespace to be gone", func() bool { return len(holders(mount)) == 0 })
			if user != outer {
				p.eventually("the user namespace to be gone", func() bool { return len(holders(user)) == 0 })
			}
			p.noTraces()
		}
		// The next fabric takes away what the killed one has left.
		p.up("star:2")
		same(p, "state", p.must("exec", "h1", "--", "cat", port1+"state"), "4: ACTIVE\n")
		p.must("down")
		own := filepath.Join(p.dir, "softib", "default.files")
		sum := sha256.Sum256([]byte(own))
		for _, left := range []string{own, fmt.Sprintf("/dev/shm/softib-%d-%x", p.uid, sum[:6])} {
			if _, err := os.Stat(left); !errors.Is(err, os.ErrNotExist) {
				p.Errorf("%s stays behind: %v", left, err)
			}
		}
	})
}

// eventually waits until something is true.
func (p *person) eventually(what string, is func() bool) {
	p.Helper()
	limit := waits.New(patience)
	for !is() {
		if limit.Over() {
			p.Fatalf("waited in vain for %s: %v", what, limit)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// isZombie reports whether a process has ended and nobody has asked for its status yet.
func isZombie(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, _ := strings.Cut(string(b), ") ")
	if err != nil {
		return true
	}
	// Its first thread may be the first to end; what it holds is held until the last one has.
	threads, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	return strings.HasPrefix(rest, "Z") && len(threads) <= 1
}
