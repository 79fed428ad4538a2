package fieldtest

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The group that a fabric is shared with, and users of the machine. None of them needs a name.
const (
	sharedGroup = 60010
	alice       = 60001 // of tenant red
	bob         = 60002 // of tenants red and blue
	carol       = 60003 // of none
)

// sharing is a fabric that root shares with a group, with the tenants red (h1, h2) and blue (h3, h4).
type sharing struct {
	owner *user
	dir   string // others' folders are there
}

func newSharing(t *testing.T) sharing {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can be several users; next: run the tests as root")
	}
	probe := exec.Command("true")
	probe.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: alice, Gid: alice,
		Groups: []uint32{sharedGroup}}}
	if err := probe.Run(); err != nil {
		t.Skipf("this root can be nobody else, as in a user namespace of one user: %v", err)
	}
	u := newUser(t)
	s := sharing{u, u.dir}
	// Others go through, to the folder of the program and to their own.
	for dir := s.dir; len(dir) >= len(scratch); dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o711); err != nil {
			t.Fatal(err)
		}
	}
	u.env = []string{"SOFTIB_SHARED_DIR=" + s.dir}
	u.dir = s.folder(t, 0)
	u.up("s", "star:6", "--state", "none", "--http", "127.0.0.1:0", "--shared", strconv.Itoa(sharedGroup))
	u.must("tenant", "create", "red", "--hosts", "h1-h2", "--users", fmt.Sprintf("%d,%d", alice, bob), "--name", "s")
	u.must("tenant", "create", "blue", "--hosts", "h3-h4", "--users", fmt.Sprint(bob), "--name", "s")
	return s
}

func (s sharing) folder(t testing.TB, uid int) string {
	t.Helper()
	dir := filepath.Join(s.dir, strconv.Itoa(uid))
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(dir, uid, uid); err != nil {
		t.Fatal(err)
	}
	return dir
}

// as is another user, in some groups.
func (s sharing) as(t *testing.T, uid uint32, groups ...uint32) *user {
	t.Helper()
	return &user{TB: t, bin: s.owner.bin, dir: s.folder(t, int(uid)), env: s.owner.env,
		cred: &syscall.Credential{Uid: uid, Gid: uid, Groups: groups}}
}

// on runs a program on a host of the shared fabric.
func (u *user) on(host string, args ...string) (out string, ok bool) {
	u.Helper()
	o, e, status := u.softib(append([]string{"exec", "--name", "root/s", host, "--"}, args...)...)
	return o + e, status == 0
}

// TestSharedFabric: users other than the owner run programs on the hosts of their tenants, and on no others, by
// whatever door they come.
func TestSharedFabric(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"ibv_devinfo", "ibstat", "ib_send_bw", "ib_read_bw"} {
		tool(t, name)
	}
	s := newSharing(t)
	a, b := s.as(t, alice, sharedGroup), s.as(t, bob, sharedGroup)
	for _, x := range []struct {
		u    *user
		host string
		want string // empty: it runs
	}{
		{a, "h1", ""}, {a, "h2", ""}, {b, "h2", ""}, {b, "h3", ""},
		{a, "h3", "use one of h1, h2"}, {a, "h5", "use one of h1, h2"}, {a, "sw1", "use one of h1, h2"},
		{a, "h99", "use one of h1, h2"}, {b, "h6", "use one of h1, h2, h3, h4"},
		{s.as(t, carol, sharedGroup), "h1", "softib tenant users TENANT 60003"},
		{s.as(t, carol+1), "h1", "is not shared with you"},
	} {
		out, ok := x.u.on(x.host, "ibv_devinfo")
		if ok != (x.want == "") || !strings.Contains(out, x.want) {
			t.Errorf("user %d on %s: %v, want %q:\n%s", x.u.cred.Uid, x.host, ok, x.want, out)
		}
	}
	// Who is on a host of theirs says to be on another.
	for _, args := range [][]string{{"ibv_devinfo"}, {"ibstat"}, {"rping", "-s", "-C", "1", "-a", "0.0.0.0"}} {
		tool(t, args[0])
		if out, ok := a.on("h1", append([]string{"env", "SOFTIB_HOST=h3"}, args...)...); ok ||
			strings.Contains(out, "State: Active") {
			t.Errorf("%s is served at another's host:\n%s", args[0], out)
		}
	}
	// Nothing else is for them, and the page is not either.
	for _, args := range [][]string{{"status"}, {"tenant", "list"}, {"down"}, {"log"}, {"fault", "list"}} {
		_, errs, status := a.softib(append(args, "--name", "root/s")...)
		if status == 0 || !strings.Contains(errs, "this is for its owner") {
			t.Errorf("softib %v ends with %d: %s", args, status, errs)
		}
	}
	page := strings.TrimSpace(s.owner.must("status", "--name", "s", "--json"))
	wants(t, page, `"page": "http`)
	// Two users of one tenant reach each other, by all that a program can send.
	for _, prog := range []string{"ib_send_bw", "ib_write_bw", "ib_read_bw"} {
		both(t, a, "h1", b, "h2", prog, "-s", "65536", "-n", "200", "-F")
	}
	both(t, a, "h1", b, "h1", "ib_send_bw", "-c", "UD", "-s", "2048", "-n", "200", "-F")
}

// both runs a program's two sides as two users.
func both(t *testing.T, a *user, at string, b *user, to string, prog string, args ...string) {
	t.Helper()
	ctx, cancel := patient()
	defer cancel()
	port := freePort(t)
	run := func(u *user, host string, more ...string) []string {
		line := append([]string{"exec", "--name", "root/s", host, "--", prog, "-p", strconv.Itoa(port)}, args...)
		return append(line, more...)
	}
	var text bytes.Buffer
	srv := a.command(ctx, run(a, at)...)
	srv.Stdout, srv.Stderr = &text, &text
	if err := srv.Start(); err != nil {
		t.Fatal(err)
	}
	for ctx.Err() == nil && !listens(port) {
		time.Sleep(20 * time.Millisecond)
	}
	o, e, status := b.softib(run(b, to, "localhost")...)
	if status != 0 {
		cancel()
	}
	if err := srv.Wait(); err != nil || status != 0 {
		t.Errorf("%s between users %d and %d: %v\n%s%s\nthe other side: %s", prog, a.cred.Uid, b.cred.Uid, err, o, e,
			text.String())
	}
}

// TestWithdrawn: who is no user of a tenant any more loses what is running on its hosts before the command returns.
func TestWithdrawn(t *testing.T) {
	t.Parallel()
	tool(t, "ibv_asyncwatch")
	s := newSharing(t)
	a := s.as(t, alice, sharedGroup)
	ctx, cancel := patient()
	defer cancel()
	cmd := a.command(ctx, "exec", "--name", "root/s", "h1", "--", "stdbuf", "-oL", "ibv_asyncwatch")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	if !lines.Scan() || !strings.Contains(lines.Text(), "async event FD") {
		t.Fatalf("ibv_asyncwatch says %q", lines.Text())
	}
	wants(t, s.owner.must("status", "--name", "s"), "ibv_asyncwatch")
	s.owner.must("tenant", "users", "red", strconv.Itoa(bob), "--name", "s")
	if text := s.owner.must("status", "--name", "s"); strings.Contains(text, "ibv_asyncwatch") {
		t.Errorf("it is there still:\n%s", text)
	}
	said := ""
	for !strings.Contains(said, "DEVICE_FATAL") && lines.Scan() {
		said += lines.Text() + "\n"
	}
	wants(t, said, "DEVICE_FATAL")
	cancel()
	_ = cmd.Wait()
	if out, ok := a.on("h1", "ibv_devinfo"); ok {
		t.Errorf("it may come again:\n%s", out)
	}
}
