package dropin

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// ordinaryUser is nobody.
const ordinaryUser = 65534

// Namespaces, as root and as an ordinary user, whoever runs the tests.
func TestSpaces(t *testing.T) {
	if os.Getuid() == 0 && os.Getenv("DROPIN_TEST_ORDINARY") == "" {
		t.Run("root", testSpaces)
		t.Run("ordinary", func(t *testing.T) {
			cmd := exec.Command("/proc/self/exe", "-test.run=^TestSpaces$", "-test.v", "-test.timeout=5m")
			cmd.Env = append(os.Environ(), "DROPIN_TEST_ORDINARY=1", "HOME=/nonexistent")
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: ordinaryUser,
				Gid: ordinaryUser}}
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			if strings.Contains(string(out), "--- SKIP") {
				t.Errorf("skipped:\n%s", out)
			}
			t.Logf("%s", out)
		})
		return
	}
	testSpaces(t)
}

// kernelAllows asks the kernel itself whether this user gets namespaces.
func kernelAllows() error {
	cmd := exec.Command("mount", "--make-rslave", "/") // which no chroot has
	if os.Getuid() != 0 {
		cmd = exec.Command("true") // mount is for root
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	if os.Getuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getuid(), HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getgid(), HostID: os.Getgid(), Size: 1}}
	}
	return cmd.Run()
}

// theater is a tree, and what it takes to enter it.
type theater struct {
	testing.TB
	set    Set
	spaces *Spaces
	tree   string
	user   *os.File
}

func newTheater(t testing.TB) *theater {
	t.Helper()
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Fatal("no gcc on this machine; next: make test, which installs it")
	}
	dir := t.TempDir()
	x := &theater{TB: t, set: Set{filepath.Join(dir, "lib")}, tree: filepath.Join(dir, "a tree")}
	for path, text := range map[string]string{
		"lib/here": "", "a tree/sys/class/infiniband/here": "the class\n",
		"a tree/sys/devices/pcifffe:00/fffe:00:00.0/here": "the device\n",
		"a tree/etc/hosts": "198.18.0.9\th9\n",
	} {
		if err := errors.Join(os.MkdirAll(filepath.Dir(filepath.Join(dir, path)), 0o755),
			os.WriteFile(filepath.Join(dir, path), []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("../../devices/pcifffe:00/fffe:00:00.0",
		filepath.Join(x.tree, "sys/class/infiniband/softib0")); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.MkdirAll(filepath.Join(x.tree, "dev/infiniband"), 0o755),
		os.Symlink("../null", filepath.Join(x.tree, "dev/infiniband/uverbs0"))); err != nil {
		t.Fatal(err)
	}
	x.gcc("enter/enter.c", x.set.Path(enterer), "-static")
	x.spaces = NewSpaces(x.set)
	t.Cleanup(func() {
		if err := x.spaces.Close(); err != nil {
			t.Error(err)
		}
	})
	return x
}

func (x *theater) gcc(source, to string, more ...string) string {
	x.Helper()
	if out, err := exec.Command("gcc", append([]string{"-std=gnu11", "-Wall", "-Wextra", "-Werror", "-o", to, source},
		more...)...).CombinedOutput(); err != nil {
		x.Fatalf("gcc: %v\n%s", err, out)
	}
	return to
}

// command is a program in a namespace of its own. witness gets the file system that ends with it; it may be nil.
func (x *theater) command(witness func(*os.File), name string, argv ...string) *exec.Cmd {
	x.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		x.Fatal(err)
	}
	cmd := &exec.Cmd{Path: x.set.Path(enterer), Env: os.Environ()}
	user, report := -1, -1
	give := func(f *os.File) int {
		cmd.ExtraFiles = append(cmd.ExtraFiles, f)
		return 2 + len(cmd.ExtraFiles)
	}
	if x.user != nil {
		user = give(x.user)
	}
	if witness != nil {
		pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
		if err != nil {
			x.Fatal(err)
		}
		ours, theirs := os.NewFile(uintptr(pair[0]), "ours"), os.NewFile(uintptr(pair[1]), "theirs")
		report = give(theirs)
		c, err := net.FileConn(ours)
		ours.Close()
		if err != nil {
			x.Fatal(err)
		}
		x.Cleanup(func() { theirs.Close(); c.Close() })
		go func() {
			oob := make([]byte, 128)
			_, n, _, _, err := c.(*net.UnixConn).ReadMsgUnix(make([]byte, 1), oob)
			if err != nil {
				return
			}
			if m, err := syscall.ParseSocketControlMessage(oob[:n]); err == nil && len(m) == 1 {
				if fds, err := syscall.ParseUnixRights(&m[0]); err == nil && len(fds) == 1 {
					syscall.CloseOnExec(fds[0])
					witness(os.NewFile(uintptr(fds[0]), "witness"))
				}
			}
		}()
	}
	e := Entry{Tree: x.tree, Verbose: true}
	cmd.Args = e.arguments(user, report, -1, path, append([]string{name}, argv...))
	return cmd
}

// run runs a shell script in a namespace; nothing may be complained of.
func (x *theater) run(script string) string {
	x.Helper()
	cmd := x.command(nil, "sh", "-c", script)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil || errs.Len() > 0 {
		x.Errorf("%s: %v\n%s%s", script, err, &out, &errs)
	}
	return out.String()
}

// outside runs it without.
func (x *theater) outside(script string) string {
	x.Helper()
	out, err := exec.Command("sh", "-c", script).Output()
	if err != nil {
		x.Fatalf("%s: %v", script, err)
	}
	return string(out)
}

func testSpaces(t *testing.T) {
	x := newTheater(t)
	var err error
	x.user, err = x.spaces.User(x.tree)
	if err != nil {
		if !errors.Is(err, ErrNoSpace) {
			t.Error(err)
		}
		if allows := kernelAllows(); allows == nil {
			t.Fatalf("the kernel allows it, and yet: %v", err)
		}
		// Then a program runs all the same.
		t.Logf("no namespaces here: %v", err)
		if out, err := x.command(nil, "sh", "-c", "echo so").Output(); err != nil || string(out) != "so\n" {
			t.Errorf("%q, %v", out, err)
		}
		return
	}
	if (x.user != nil) != (os.Getuid() != 0) {
		t.Errorf("user namespace %v for user %d", x.user, os.Getuid())
	}
	if again, err := x.spaces.User(x.tree); again != x.user || err != nil {
		t.Errorf("another one: %v, %v", again, err)
	}

	// What the tree has is there, and all that the machine has.
	for script, want := range map[string]string{
		"cat /sys/class/infiniband/here":                "the class\n",
		"cat /sys/class/infiniband/softib0/here":        "the device\n",
		"cat /sys/devices/pcifffe:00/fffe:00:00.0/here": "the device\n",
		"realpath /sys/class/infiniband/softib0":        "/sys/devices/pcifffe:00/fffe:00:00.0\n",
		"getent hosts h9 | tr -s ' '":                   "198.18.0.9 h9\n",
		"stat -L -c %F /dev/infiniband/uverbs0 && test -r /dev/infiniband/uverbs0 -a -w /dev/infiniband/uverbs0 " +
			"&& echo x >/dev/null && head -c 4 /dev/urandom | wc -c": "character special file\n4\n",
		"script -qec 'tty >/dev/null && echo typed' /dev/null": "typed\r\n", // a terminal of its own
		// Nothing can be written there.
		"echo x 2>/dev/null >/sys/class/infiniband/here; mkdir /sys/class/x 2>/dev/null; echo $?": "1\n",
		// No descriptor is left over.
		"exec 3<&- ; ls /proc/self/fd | wc -l": x.outside("exec 3<&- ; ls /proc/self/fd | wc -l"),
	} {
		if got := x.run(script); got != want {
			t.Errorf("%s: %q, want %q", script, got, want)
		}
	}
	for _, script := range []string{
		"ls /sys/class | grep -v infiniband", "ls -d /sys/class/*/ | grep -v infiniband",
		"ls /sys/devices | grep -v pcifffe", "ls /sys/devices/virtual",
		"ls /dev | grep -v infiniband", "ls /dev/pts /dev/shm | grep -v softib", "ls -l /sys/class/net /sys/class/tty",
		"cat /sys/class/net/lo/mtu", "cat /sys/devices/virtual/net/lo/mtu",
		"pwd", "id -u", "id -g", "grep -E '^Cap(Inh|Prm|Eff|Amb)' /proc/self/status", "umask", "ulimit -n",
		"grep ^NoNewPrivs /proc/self/status",
	} {
		if got, want := x.run(script), x.outside(script); !sameButOwner(got, want) {
			t.Errorf("%s: %q, outside %q", script, got, want)
		}
	}
	// Namespaces that others have named softib's by ip netns are none of ours.
	if got := x.outside(`awk '/softib/ && !/ \/run\/netns\// ' /proc/self/mountinfo`); got != "" {
		t.Errorf("mounts are seen outside:\n%s", got)
	}
	t.Run("watch", func(t *testing.T) { x.with(t).testWatch() })
	t.Run("memory", func(t *testing.T) { x.with(t).testMemory() })
	t.Run("nested", func(t *testing.T) { x.with(t).testNested() })
	t.Run("fails", func(t *testing.T) { x.with(t).testFails() })
}

func (x *theater) with(t *testing.T) *theater {
	y := *x
	y.TB = t
	return &y
}

// sameButOwner compares listings, in which other users have no names inside a user namespace.
func sameButOwner(a, b string) bool {
	blank := func(s string) string {
		s = strings.NewReplacer(" root ", " ", " nobody ", " ", " nogroup ", " ", " 65534 ", " ").Replace(s)
		return strings.Join(strings.Fields(s), " ")
	}
	return blank(blank(a)) == blank(blank(b))
}

// The end of a namespace is told when the last process in it has gone, however it went.
func (x *theater) testWatch() {
	const programs = 20
	ended := make(chan int, programs)
	var wait sync.WaitGroup
	type program struct {
		cmd   *exec.Cmd
		stdin io.WriteCloser
	}
	all := make([]program, programs)
	for i := range all {
		wait.Add(1)
		cmd := x.command(func(f *os.File) {
			defer wait.Done()
			if err := x.spaces.Watch(f, func() { ended <- i }); err != nil {
				x.Error(err)
			}
		}, "sh", "-c", "exec 5<&0; cat <&5 & exit 0") // the child outlives the program
		in, err := cmd.StdinPipe()
		if err != nil {
			x.Fatal(err)
		}
		r, w, err := os.Pipe()
		if err != nil {
			x.Fatal(err)
		}
		defer r.Close()
		cmd.Stdout = w
		if err := cmd.Start(); err != nil {
			x.Fatal(err)
		}
		w.Close()
		all[i] = program{cmd, in}
	}
	wait.Wait()
	for i := range all {
		// The program has ended; its child has not.
		if _, err := all[i].cmd.Process.Wait(); err != nil {
			x.Error(err)
		}
	}
	select {
	case i := <-ended:
		x.Fatalf("program %d's child is there, and its namespace is said to have ended", i)
	default:
	}
	var got []int
	for i := range all {
		all[i].stdin.Close()
	}
	deadline := time.After(60 * time.Second)
	for range all {
		select {
		case i := <-ended:
			got = append(got, i)
		case <-deadline:
			x.Fatalf("only %v have ended", got)
		}
	}
	slices.Sort(got)
	if len(slices.Compact(got)) != programs {
		x.Errorf("%v", got)
	}

	// One that is killed.
	watched := make(chan struct{})
	cmd := x.command(func(f *os.File) {
		if err := x.spaces.Watch(f, func() { ended <- programs }); err != nil {
			x.Error(err)
		}
		close(watched)
	}, "sleep", "1000")
	if err := cmd.Start(); err != nil {
		x.Fatal(err)
	}
	<-watched
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	select {
	case <-ended:
	case <-time.After(60 * time.Second):
		x.Error("the end of one that was killed is not told")
	}
}

// Programs of a fabric read each other's memory, and so does the user from outside.
func (x *theater) testMemory() {
	peek := x.gcc("testdata/peek.c", filepath.Join(x.TempDir(), "peek"))
	one := x.command(nil, peek)
	in, err := one.StdinPipe()
	if err != nil {
		x.Fatal(err)
	}
	out, err := one.StdoutPipe()
	if err != nil {
		x.Fatal(err)
	}
	if err := one.Start(); err != nil {
		x.Fatal(err)
	}
	defer func() { in.Close(); _ = one.Wait() }()
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		x.Fatal(err)
	}
	args := strings.Fields(line)
	for name, cmd := range map[string]*exec.Cmd{"inside": x.command(nil, peek, args...),
		"outside": exec.Command(peek, args...)} {
		if got, err := cmd.CombinedOutput(); err != nil || string(got) != "the word\n" {
			x.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

// A program that starts another on another host.
func (x *theater) testNested() {
	other := filepath.Join(x.TempDir(), "other")
	if out, err := exec.Command("cp", "-a", x.tree, other).CombinedOutput(); err != nil {
		x.Fatalf("%s", out)
	}
	if err := os.WriteFile(other+"/sys/class/infiniband/here", []byte("another class\n"), 0o644); err != nil {
		x.Fatal(err)
	}
	user := ""
	if x.user != nil {
		user = "-u 4"
	}
	cmd := x.command(nil, "sh", "-c", fmt.Sprintf("%s -v -t %s %s -- /bin/sh sh -c 'cat /sys/class/infiniband/here; "+
		"id -u; cat /sys/class/net/lo/mtu'; cat /sys/class/infiniband/here",
		x.set.Path(enterer), other, user))
	if x.user != nil { // once more, for the inner one: what the outer one is given it closes
		cmd.ExtraFiles = append(cmd.ExtraFiles, x.user)
	}
	out, err := cmd.CombinedOutput()
	want := fmt.Sprintf("another class\n%d\n%sthe class\n", os.Getuid(), x.outside("cat /sys/class/net/lo/mtu"))
	if err != nil || string(out) != want {
		x.Errorf("%v: %q, want %q", err, out, want)
	}
}

// Whatever is wrong, the program runs, if there is one.
func (x *theater) testFails() {
	y := *x
	y.tree = filepath.Join(x.TempDir(), "nowhere")
	cmd := y.command(nil, "sh", "-c", "echo so; test -e /sys/class/net")
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil || out.String() != "so\n" || !strings.Contains(errs.String(), "softib: ") {
		x.Errorf("%v: %q, %q", err, &out, &errs)
	}
	cmd = x.command(nil, "sh", "-c", "exit 7")
	if err := cmd.Run(); cmd.ProcessState.ExitCode() != 7 {
		x.Error(err)
	}
	cmd = x.command(nil, "sh")
	cmd.Args[len(cmd.Args)-2] = "/nowhere"
	if b, err := cmd.CombinedOutput(); err == nil || string(b) != "softib: /nowhere: No such file or directory\n" {
		x.Errorf("%v: %q", err, b)
	}
	bad := NewSpaces(Set{x.TempDir()})
	if _, err := bad.User(x.tree); !errors.Is(err, ErrNoSpace) {
		x.Errorf("without softib-enter: %v", err)
	}
	if err := bad.Close(); err != nil {
		x.Error(err)
	}
	noTree := NewSpaces(x.set)
	if _, err := noTree.User("/nowhere"); !errors.Is(err, ErrNoSpace) || !strings.Contains(err.Error(), "/nowhere") {
		x.Errorf("without a tree: %v", err)
	}
	if err := noTree.Close(); err != nil {
		x.Error(err)
	}
	f, err := os.Open(x.tree)
	if err != nil {
		x.Fatal(err)
	}
	if err := noTree.Watch(f, func() {}); !errors.Is(err, os.ErrClosed) {
		x.Errorf("after Close: %v", err)
	}
}

// TestEnterIsCheap: to start a program in namespaces takes 10 ms of processor time at most.
func TestEnterIsCheap(t *testing.T) {
	x := newTheater(t)
	var err error
	if x.user, err = x.spaces.User(x.tree); err != nil {
		t.Logf("no namespaces here: %v", err)
		return
	}
	var worked []time.Duration // the median: the kernel counts what a cold cache or its own work cost as well
	for range 9 {
		cmd := x.command(nil, "true")
		if err := cmd.Run(); err != nil {
			t.Fatal(err)
		}
		worked = append(worked, cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime())
	}
	slices.Sort(worked)
	t.Logf("%v of processor time", worked)
	if half := worked[len(worked)/2]; half > 10*time.Millisecond {
		t.Errorf("%v of processor time, want 10 ms at most", half)
	}
}

// BenchmarkEnter is how long a program takes to start in namespaces.
func BenchmarkEnter(b *testing.B) {
	x := newTheater(b)
	var err error
	if x.user, err = x.spaces.User(x.tree); err != nil {
		b.Skipf("no namespaces here: %v", err)
	}
	for b.Loop() {
		if err := x.command(nil, "true").Run(); err != nil {
			b.Fatal(err)
		}
	}
}
