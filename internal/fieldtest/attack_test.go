package fieldtest

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	waits "softib/internal/patience" // the package has a patience of its own
)

// TestHostileTenants lets programs that people know attack a fabric with two tenants, from a host of one of them and
// from one that is in none: another manager, tools that disable ports and read tables and keys, questions with the
// SM_Key that everybody knows. (What no such program does, manager.TestHostileHosts does.)
func TestHostileTenants(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"opensm", "smpquery", "ibportstate", "saquery", "ibnetdiscover",
		"ibqueryerrors", "perfquery"} {
		tool(t, name)
	}
	u := newUser(t)
	u.up("a", "fat-tree:radix=4,levels=2", "--state", "none", "--http", "off")
	exec := func(host string, args ...string) (string, bool) {
		t.Helper()
		out, errs, status := u.softib(append([]string{"exec", "--name", "a", host, "--"}, args...)...)
		return out + errs, status == 0
	}
	// Before there is a tenant everybody may ask everything.
	if out, ok := exec("h3", "smpquery", "-D", "nodeinfo", "0,1"); !ok {
		t.Fatalf("without tenants: %s", out)
	}
	u.must("tenant", "create", "red", "--hosts", "h1-h2", "--name", "a")
	u.must("tenant", "create", "blue", "--hosts", "h3-h4", "--name", "a")
	before := u.must("partition", "show", "--json", "--name", "a")
	for _, host := range []string{"h3", "h6"} {
		for _, args := range [][]string{
			{"smpquery", "-t", "100", "-D", "nodeinfo", "0,1"},
			{"smpquery", "-t", "100", "-D", "--show_keys", "portinfo", "0,1"},
			{"smpquery", "-t", "100", "pkeys", "1", "1"}, {"smpquery", "-t", "100", "-D", "portinfo", "0"},
			{"ibportstate", "-t", "100", "9", "1", "disable"},
			{"ibportstate", "-t", "100", "-D", "0,1", "1", "disable"},
			{"ibnetdiscover", "-t", "100"}, {"sminfo", "-t", "100"},
			{"saquery", "--smkey", "1", "-t", "300", "SMIR"}, {"saquery", "--smkey", "0x666", "-t", "300", "SMIR"},
		} {
			if out, ok := exec(host, args...); ok {
				t.Errorf("%s at %s is served:\n%s", strings.Join(args, " "), host, out)
			}
		}
		// Nobody answers it, so it takes its port to be down.
		text := u.conquer("a", host, "the end of its discovery", func(log string) bool {
			return strings.Contains(log, "SM port is down") || strings.Contains(log, "SUBNET UP")
		}, "-p", "15")
		if strings.Contains(text, "SUBNET UP") {
			t.Errorf("OpenSM at %s rules:\n%s", host, text)
		}
	}
	same(t, "partitions after the attack", u.must("partition", "show", "--json", "--name", "a"), before)
	wants(t, u.must("status", "--name", "a"), "Master on", "softib's")
	wants(t, u.must("doctor", "--name", "a", "--interval", "0s"), "ok      partitions")
	// Members go on to reach each other, and nobody else.
	u.must("route", "trace", "h1", "h2", "--name", "a")
	for _, to := range []string{"h1", "h6"} {
		out, _, status := u.softib("route", "trace", "h3", to, "--name", "a")
		same(t, "a packet from h3 to "+to+" arrives", status == 0, false)
		wants(t, out, "lets nothing of partition")
	}
	u.countersOfTenants("a")
	u.must("tenant", "delete", "red", "--name", "a")
	u.must("tenant", "delete", "blue", "--name", "a")
	// And after the last tenant everybody may ask again.
	if out, ok := exec("h3", "smpquery", "-D", "nodeinfo", "0,1"); !ok {
		t.Errorf("after the last tenant: %s", out)
	}
}

// countersOfTenants reads and clears the counters of a fabric with tenants, as OPERATE.md says.
func (u *user) countersOfTenants(name string) {
	u.Helper()
	const host, lid, manager = "h5", "5", "leaf1"
	status := u.must("status", "--name", name)
	wants(u, status, "Master on "+manager+"[0]", "14 LIDs in use, 1 to 14")
	wentDown := func(want string) {
		u.Helper()
		out := u.must("exec", "--name", name, manager, "--", "perfquery", lid, "1")
		got := regexp.MustCompile(`LinkDownedCounter:\.*(\d+)\n`).FindStringSubmatch(out)
		if got == nil || got[1] != want {
			u.Errorf("the link was down %s times:\n%s", want, out)
		}
	}
	top := func() string { u.Helper(); return u.must("top", "-n", "1", "--by", "errors", "--name", name) }
	errors := regexp.MustCompile(`(?m)^` + host + `\[1\] .* [1-9]\d*$`) // the last column
	u.must("fault", "link", host, "down", "--name", name)
	u.must("fault", "clear", host, "--name", name)
	u.shows("8 of 8 ACTIVE", "status", "--name", name)
	wentDown("1")
	if text := top(); !errors.MatchString(text) {
		u.Errorf("top shows no errors:\n%s", text)
	}
	out, _, _ := u.softib("doctor", "--interval", "0", "--json", "--name", name)
	wants(u, out, `"sections"`)
	if out, _, status := u.softib("exec", "--name", name, host, "--", "ibqueryerrors"); status == 0 {
		u.Errorf("ibqueryerrors from a host finds somebody:\n%s", out)
	}
	u.must("exec", "--name", name, host, "--", "perfquery", "9", "1") // of a switch
	for lid := range 14 {
		u.must("exec", "--name", name, manager, "--", "perfquery", "-a", "-R", strconv.Itoa(lid+1))
	}
	wentDown("0")
	if text := top(); errors.MatchString(text) {
		u.Errorf("top still shows errors:\n%s", text)
	}
}

// TestTrustedManager: where the operator says so another manager may take over, if it knows the keys. The same one does
// not at any other host.
func TestTrustedManager(t *testing.T) {
	t.Parallel()
	tool(t, "opensm")
	u := newUser(t)
	u.up("a", "star:4", "--state", "none", "--http", "off", "--trust-manager", "h3", "--m-key", "0x77", "--sm-key", "5")
	conf := filepath.Join(u.dir, "opensm.conf")
	text := "m_key 0x77\nm_key_protection_level 2\nsm_key 0x5\nsa_key 0x5\nsm_priority 15\n"
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	// It sees no further than its own port.
	u.conquer("a", "h4", "softib to notice it", func(string) bool {
		return strings.Contains(u.must("log", "--name", "a"), "where none is trusted")
	}, "-F", conf)
	wants(t, u.must("status", "--name", "a"), "Master on sw1")
	u.conquer("a", "h3", "it to rule from where it is trusted", func(log string) bool {
		return strings.Contains(log, "SUBNET UP")
	}, "-F", conf)
}

// conquer runs OpenSM at a host until something is true of its log, and returns that.
func (u *user) conquer(name, host, what string, until func(log string) bool, args ...string) string {
	u.Helper()
	file := filepath.Join(u.dir, host+".log")
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	cmd := u.command(ctx, append([]string{"exec", "--name", name, host, "--", "opensm", "-f", file}, args...)...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = inTime()
	if err := cmd.Start(); err != nil {
		u.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	text := func() string {
		b, _ := os.ReadFile(file) // it is there once OpenSM is
		return string(b)
	}
	limit, look := waits.New(patience), time.NewTicker(20*time.Millisecond)
	defer look.Stop()
	for !until(text()) {
		select {
		case err := <-ended:
			u.Fatalf("OpenSM at %s ended before %s: %v\n%s", host, what, err, text())
		case <-look.C:
		}
		if limit.Over() {
			cancel()
			<-ended
			u.Fatalf("OpenSM at %s: waited in vain for %s: %v\n%s", host, what, limit, text())
		}
	}
	cancel()
	<-ended
	wants(u, text(), "OpenSM")
	return text()
}
