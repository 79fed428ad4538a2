package fieldtest

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"softib/internal/built"
	"softib/operate/doctor"
	"softib/operate/status"
	"softib/proto/topo"
)

// softib builds the command, beside the drop-in, as users have it.
var softib = sync.OnceValues(func() (string, error) {
	bin := filepath.Join(scratch, "softib")
	return bin, built.Command(bin)
})

// user is somebody at a shell, with a runtime folder of their own.
type user struct {
	testing.TB
	bin, dir string
	env      []string
	cred     *syscall.Credential // nil is who runs the tests
}

func newUser(t testing.TB) *user {
	t.Helper()
	library(t)
	bin, err := softib()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp(scratch, "u")
	if err != nil {
		t.Fatal(err)
	}
	return &user{TB: t, bin: bin, dir: dir}
}

// command is a command of softib.
func (u *user) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, u.bin, args...)
	cmd.Env = append(os.Environ(), "XDG_RUNTIME_DIR="+u.dir, "PATH=/usr/sbin:/usr/bin:/sbin:/bin:"+os.Getenv("PATH"),
		"OSM_TMP_DIR="+u.dir, "OSM_CACHE_DIR="+u.dir)
	cmd.Env = append(cmd.Env, u.env...)
	if u.cred != nil {
		cmd.Dir, cmd.SysProcAttr = u.dir, &syscall.SysProcAttr{Credential: u.cred}
	}
	return cmd
}

// softib runs a command of softib to its end and returns what it printed and its status.
func (u *user) softib(args ...string) (stdout, stderr string, status int) {
	u.Helper()
	ctx, cancel := patient()
	defer cancel()
	cmd := u.command(ctx, args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); cmd.ProcessState == nil {
		u.Fatal(err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// must is softib for what has to succeed.
func (u *user) must(args ...string) string {
	u.Helper()
	out, errs, status := u.softib(args...)
	if status != 0 {
		u.Fatalf("softib %s ends with %d\n%s%s", strings.Join(args, " "), status, out, errs)
	}
	return out
}

// shows waits until a command of softib prints a text, however it ends.
func (u *user) shows(text string, args ...string) {
	u.Helper()
	for deadline := time.Now().Add(inTime()); ; time.Sleep(20 * time.Millisecond) {
		out, errs, _ := u.softib(args...)
		if strings.Contains(out, text) {
			return
		}
		if time.Now().After(deadline) {
			u.Fatalf("softib %s does not say %q:\n%s%s", strings.Join(args, " "), text, out, errs)
		}
	}
}

// up starts a fabric in the background, which ends with the test.
func (u *user) up(name string, args ...string) {
	u.Helper()
	u.must(append([]string{"up", "-d", "--name", name}, args...)...)
	u.Cleanup(func() { u.softib("down", "--name", name) })
}

// dump is what ibnetdiscover says of a fabric, without the date and in order.
func (u *user) dump(name, host string) (text string, sorted []string) {
	u.Helper()
	text = u.must("exec", "--name", name, host, "--", "ibnetdiscover")
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "# Topology file: generated on") {
			sorted = append(sorted, strings.TrimRight(line, "\n"))
		}
	}
	return text, sorted
}

// takenOver lets an OpenSM at a host take a fabric over, whose own manager is at leaf1: doctor and an alarm name both.
func (u *user) takenOver(name, host string) {
	u.Helper()
	wants(u, u.must("status", "--name", name), "Master on leaf1[0]")
	ctx, cancel := context.WithCancel(context.Background())
	cmd := u.command(ctx, "exec", "--name", name, host, "--", "opensm", "-p", "13", "-f",
		filepath.Join(u.dir, host+".log"))
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = inTime()
	if err := cmd.Start(); err != nil {
		u.Fatal(err)
	}
	defer func() { cancel(); _ = cmd.Wait() }()
	const says = "not by its own manager at leaf1"
	u.shows("Master on "+host, "status", "--name", name)
	var st status.Status
	if err := json.Unmarshal([]byte(u.must("status", "--json", "--name", name)), &st); err != nil {
		u.Fatal(err)
	}
	alarms := func() (text string) {
		resp, err := http.Get(st.Page + "api/v1/alarms")
		if err != nil {
			u.Fatal(err)
		}
		defer resp.Body.Close()
		b, _ := io.ReadAll(resp.Body)
		return string(b)
	}
	for deadline := time.Now().Add(inTime()); !strings.Contains(alarms(), says); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			u.Fatalf("no alarm: %s", alarms())
		}
	}
	wants(u, alarms(), "managed from "+host)
	out, _, code := u.softib("doctor", "--interval", "0", "--json", "--name", name)
	same(u, "doctor's status", code, 1)
	var rep doctor.Report
	if err := json.Unmarshal([]byte(out), &rep); err != nil {
		u.Fatal(err)
	}
	if list := findings(&rep, "taken-over"); len(list) != 1 || !strings.Contains(list[0].Measured, host) ||
		!strings.Contains(list[0].Measured, says) {
		u.Errorf("doctor finds %s", words(&rep))
	}
}

// The command itself: programs through softib exec, a dump through softib up FILE, a fabric that is left to OpenSM.
func TestCommand(t *testing.T) {
	t.Parallel()
	tool(t, "ibnetdiscover")
	u := newUser(t)
	u.up("a")
	want, err := topo.ParseSpec(defaultSpec)
	if err != nil {
		t.Fatal(err)
	}
	text, first := u.dump("a", "h1")
	got, err := topo.Parse("dump", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	sameLines(t, "cables", wiring(got), wiring(want))
	for _, n := range want.Nodes {
		if m := got.ByGUID(n.GUID); m == nil || m.Name != n.Name || m.Desc != n.Desc {
			t.Errorf("%s is not in the dump", n.Name)
		}
	}
	same(t, "nodes that the administrator knows", len(records(u.must("exec", "--name", "a", "h17", "--", "saquery"))),
		len(want.Nodes))
	wants(t, u.must("exec", "--name", "a", "leaf3", "--", "smpquery", "nodedesc", "-D", "0"), "leaf3")
	_, errs, status := u.softib("exec", "--name", "a", "h1", "--", "ibstat", "nobody")
	same(t, "the status of a program that fails", status != 0, true)
	wants(t, errs, "nobody")

	file := filepath.Join(u.dir, "dump.topo")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	u.up("b", file)
	_, second := u.dump("b", "h1")
	sameLines(t, "the dump of the dump's fabric", second, first)

	tool(t, "opensm")
	u.takenOver("a", "h5")
	u.up("c", "--no-sm")
	u.must("exec", "--name", "c", "h1", "--", "opensm", "-o", "-R", "ftree", "-f", filepath.Join(u.dir, "opensm.log"))
	wants(t, u.must("status", "--name", "c"), "64 ACTIVE")
	same(t, "hosts under OpenSM", len(lines(u.must("exec", "--name", "c", "h9", "--", "ibhosts"))), 32)
}
