package fieldtest

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"softib/capi/dropin"
	"softib/verbs/attach/server"
)

// A program that forks before it opens a device works; one that forks after is as safe as ibv_fork_init promises.
func TestForks(t *testing.T) {
	t.Parallel()
	path := compile(t, "forks.c")
	w := up(t, "star:2")
	for _, how := range []string{"before", "after"} {
		wants(t, w.run("h2", path, how), "good")
	}
	w.eventually("the programs' end", func() bool { return len(w.Programs()) == 0 })
}

// Programs that may not or cannot attach are told why in a line.
func TestRefusedVerbs(t *testing.T) {
	t.Parallel()
	w := up(t, "star:2")
	for _, host := range []string{"h3", "sw1"} {
		out := w.fails(host, "ibv_devinfo")
		wants(t, out, host, "Failed to open device")
		if n := strings.Count(out, "\n"); n > 3 {
			t.Errorf("%d lines for %s:\n%s", n, host, out)
		}
	}
	u := newUser(t)
	u.up("r", "star:2")
	_, errs, status := u.softib("exec", "--name", "r", "h3", "--", "ibv_devinfo")
	if status == 0 || strings.Count(strings.TrimSpace(errs), "\n") > 1 {
		t.Errorf("status %d on a host that is not there:\n%s", status, errs)
	}
	wants(t, errs, "h3", "next:")

	if os.Getuid() != 0 {
		t.Skip("only root can be somebody else")
	}
	// Another user, who gets as far as the socket.
	p := newPerson(t, ordinaryUser)
	dir := filepath.Dir(p.bin)
	socket := filepath.Join(dir, "verbs")
	l, err := server.Listen(socket)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Serve(ctx, l, w.Fabric, firmware, nil) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	if err := os.Chmod(socket, 0o777); err != nil {
		t.Fatal(err)
	}
	as := func(uid int) *exec.Cmd {
		ctx, cancel := patient()
		t.Cleanup(cancel)
		cmd := exec.CommandContext(ctx, tool(t, "ibv_devinfo"))
		h := w.host("h1")
		h.Verbs = socket
		cmd.Env = dropin.Set{Dir: filepath.Join(dir, "lib")}.Environment(os.Environ(), h)
		cmd.Dir = "/"
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
		return cmd
	}
	if out, err := as(0).CombinedOutput(); err != nil {
		t.Fatalf("its owner: %v\n%s", err, out)
	}
	out, err := as(ordinaryUser).CombinedOutput()
	if err == nil {
		t.Errorf("another user gets in:\n%s", out)
	}
	wants(t, string(out), "may not use a fabric of user 0", "next:")
	same(t, "programs", len(w.Programs()), 0)
}

// idler is a program that has attached, has talked and does nothing now.
type idler struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// line is the next line that it prints.
func (i *idler) line(t testing.TB) string {
	t.Helper()
	line, err := i.out.ReadString('\n')
	if err != nil {
		t.Fatalf("the idle program: %v", err)
	}
	return strings.TrimSpace(line)
}

// idle starts one with softib exec.
func (p *person) idle(path, host string) *idler {
	p.Helper()
	ctx, cancel := patient()
	p.Cleanup(cancel)
	i := &idler{cmd: p.command(ctx, "exec", host, "--", path)}
	i.cmd.Stderr = os.Stderr
	var err error
	if i.in, err = i.cmd.StdinPipe(); err != nil {
		p.Fatal(err)
	}
	out, err := i.cmd.StdoutPipe()
	if err != nil {
		p.Fatal(err)
	}
	i.out = bufio.NewReader(out)
	if err := i.cmd.Start(); err != nil {
		p.Fatal(err)
	}
	return i
}

// ticks is the processor time that a process has used, in hundredths of a second.
func ticks(t testing.TB, pid int) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	f := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	user, _ := strconv.Atoi(f[11]) // proc(5): utime is field 14, and the first here is 3
	system, _ := strconv.Atoi(f[12])
	return user + system
}

// memory is what a process has in memory, in bytes.
func memory(t testing.TB, pid int) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "VmRSS:")
	kib, err := strconv.Atoi(strings.Fields(rest)[0])
	if err != nil {
		t.Fatal(err)
	}
	return kib << 10
}

// Many programs at once cost the fabric's process little, and nothing at all while they are idle.
func TestIdlePrograms(t *testing.T) {
	t.Parallel()
	const count = 64
	path := compile(t, "idle.c")
	p := newPerson(t, os.Getuid())
	daemon := p.up("star:8")
	own := filepath.Join(filepath.Dir(p.bin), "idle")
	if out, err := exec.Command("cp", path, own).CombinedOutput(); err != nil {
		t.Fatalf("%s", out)
	}
	batch := func(n int) (all []*idler) {
		var at []string
		for i := range n {
			all = append(all, p.idle(own, fmt.Sprintf("h%d", i%8+1)))
		}
		for _, x := range all {
			x.line(t)
			at = append(at, strings.TrimPrefix(x.line(t), "at "))
		}
		for i, x := range all {
			fmt.Fprintln(x.in, at[(i+1)%n]) // each sends to the next
		}
		for _, x := range all {
			same(t, "the program", x.line(t), "idle")
		}
		return all
	}
	end := func(all []*idler) {
		for _, x := range all {
			x.in.Close()
			same(t, "the program", x.line(t), "done")
			if err := x.cmd.Wait(); err != nil {
				t.Error(err)
			}
		}
	}
	end(batch(8)) // every host once, for what is made once
	before := memory(t, daemon)
	all := batch(count)
	each := (memory(t, daemon) - before) / count
	t.Logf("%d programs cost the fabric's process %d KiB each", count, each>>10)
	if each > 1<<20 {
		t.Errorf("a program costs the fabric's process %d KiB", each>>10)
	}
	used := func() (sum int) {
		for _, x := range all {
			sum += ticks(t, x.cmd.Process.Pid)
		}
		return sum
	}
	// On a busy machine what came before may not be over: that is when nobody has used anything for a moment.
	was := -1
	p.eventually("the programs to come to rest", func() bool {
		before := was
		was = used()
		if was != before {
			time.Sleep(100 * time.Millisecond)
		}
		return was == before
	})
	const while = 2 * time.Second
	time.Sleep(while) // what is measured is what happens meanwhile
	n := used() - was
	t.Logf("%d idle programs use %d ms of processor time in %v", count, 10*n, while)
	if n > count/8 {
		t.Errorf("%d idle programs use %d ms of processor time in %v: want %d at most", count, 10*n, while, 10*count/8)
	}
	end(all)
}

// BenchmarkAttach is how long a program takes from looking for devices to its first queue pair.
func BenchmarkAttach(b *testing.B) {
	path := compile(b, "idle.c")
	p := newPerson(b, os.Getuid())
	p.up("star:2")
	own := filepath.Join(filepath.Dir(p.bin), "idle")
	if out, err := exec.Command("cp", path, own).CombinedOutput(); err != nil {
		b.Fatalf("%s", out)
	}
	var opens, queues int
	b.ResetTimer()
	for range b.N {
		x := p.idle(own, "h1")
		var open, queue int
		if _, err := fmt.Sscanf(x.line(b), "open %d us, first queue pair %d us", &open, &queue); err != nil {
			b.Fatal(err)
		}
		opens, queues = opens+open, queues+queue
		fmt.Fprintln(x.in, strings.TrimPrefix(x.line(b), "at "))
		x.in.Close()
		_, _ = io.Copy(io.Discard, x.out)
		if err := x.cmd.Wait(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(opens)/float64(b.N), "us/open")
	b.ReportMetric(float64(queues)/float64(b.N), "us/first-QP")
}
