package fieldtest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"softib/proto/ib"
	"softib/proto/mad"
	"softib/proto/topo"
	"softib/subnet"
	"softib/subnet/sm"
)

// opensm is the command of an OpenSM on a host, with its files in a folder of its own.
func (w *world) opensm(host string, args ...string) (cmd *exec.Cmd, log string) {
	w.Helper()
	dir := w.TempDir()
	log = filepath.Join(dir, "log")
	conf := filepath.Join(dir, "opensm.conf")
	w.check(os.WriteFile(conf, []byte("force_log_flush TRUE\n"), 0o600))
	cmd = w.command(host, "opensm", append([]string{"-f", log, "--dump_files_dir", dir, "-P",
		filepath.Join(dir, "partitions.conf"), "-F", conf}, args...)...)
	cmd.Env = append(cmd.Env, "OSM_TMP_DIR="+dir, "OSM_CACHE_DIR="+dir)
	return cmd, log
}

// says waits until a log has a text.
func (w *world) says(log, text string) { w.Helper(); w.saysAgain(log, text, 1, inTime()) }

// saysAgain waits, at most so long, until a log has a text so many times.
func (w *world) saysAgain(log, text string, times int, atMost time.Duration) {
	w.Helper()
	deadline := time.Now().Add(atMost)
	for {
		all, _ := os.ReadFile(log)
		if strings.Count(string(all), text) >= times {
			return
		}
		if time.Now().After(deadline) {
			w.Fatalf("not %d times %q in OpenSM's log within %v:\n%s", times, text, atMost, all)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func (w *world) lids() string {
	var b strings.Builder
	w.ends(func(n *topo.Node, p int) { fmt.Fprintf(&b, "%s[%d] %d\n", n.Name, p, w.lid(n, p)) })
	return b.String()
}

// Debian's OpenSM brings up a fabric that has no manager of its own, with each of its engines.
func TestOpenSMEngines(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ spec, engine string }{
		{defaultSpec, "minhop"}, {defaultSpec, "updn"}, {defaultSpec, "ftree"}, {defaultSpec, "dfsssp"},
		{defaultSpec, "lash"},
		{"torus:3x3,hosts=2", "minhop"}, {"torus:3x3,hosts=2", "dfsssp"}, {"torus:3x3,hosts=2", "lash"},
	} {
		t.Run(c.engine+" on "+c.spec, func(t *testing.T) {
			t.Parallel()
			g, err := topo.ParseSpec(c.spec)
			if err != nil {
				t.Fatal(err)
			}
			w := newWorld(t, g)
			cmd, log := w.opensm("h1", "-o", "-R", c.engine)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("opensm: %v\n%s", err, out)
			}
			text, err := os.ReadFile(log)
			if err != nil {
				t.Fatal(err)
			}
			wants(t, string(text), c.engine+" tables configured on all switches", "SUBNET UP")
			for line := range strings.Lines(string(text)) {
				if strings.Contains(line, " ERR ") {
					t.Errorf("OpenSM complains: %s", line)
				}
			}
			if !w.active() {
				t.Error("not every port is Active")
			}
			if bad := w.reachable(); len(bad) > 0 {
				t.Errorf("no way from %s", strings.Join(bad, ", "))
			}
			seen := map[ib.LID]string{}
			w.ends(func(n *topo.Node, p int) {
				pi := w.portInfo(n, p)
				if pi.LID == 0 || seen[pi.LID] != "" {
					t.Errorf("%s and %s have LID %d", n.Name, seen[pi.LID], pi.LID)
				}
				seen[pi.LID] = n.Name
				same(t, n.Name+": manager", pi.MasterSMLID, w.lid(w.node("h1"), 1))
			})
			ctx, stop := context.WithCancel(context.Background())
			hosts := w.g.Hosts()
			all := w.streams(ctx, hosts[0].Name, hosts[len(hosts)-1].Name, hosts[1].Name, hosts[len(hosts)/2].Name)
			w.flowing("with "+c.engine+"'s tables", all)
			stop()
			for _, s := range all {
				<-s.done
			}
		})
	}
}

// The subnet goes from OpenSM to ours and back, by priority, and over to ours when OpenSM dies, while hosts talk.
func TestOpenSMHandover(t *testing.T) {
	t.Parallel()
	g, err := topo.ParseSpec(defaultSpec)
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, g)
	start := func(host, priority string) (*exec.Cmd, string) {
		short, log := w.opensm(host, "-p", priority, "-R", "ftree", "-s", "1")
		cmd := exec.Command(short.Path, short.Args[1:]...) // for as long as the test takes
		cmd.Env = short.Env
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
			if t.Failed() {
				text, _ := os.ReadFile(log)
				t.Logf("the log of OpenSM on %s:\n%s", host, text)
			}
		})
		return cmd, log
	}
	_, log := start("h2", "3")
	w.says(log, "SUBNET UP")
	w.eventually("every port to be Active", w.active)
	lids := w.lids()

	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	all := w.streams(ctx, "h1", "h32", "h5", "h9", "h14", "h23", "h27", "h4", "h30", "h31", "h2", "h17")
	w.flowing("under OpenSM", all)

	// Ours goes before it.
	w.sm = w.manage(ref(w.node("h9"), 1), sm.Config{Priority: 9, PollInterval: ib.Second, SweepInterval: ib.Second,
		Memory: sm.Memory{LIDs: map[ib.GUID]ib.LID{}}})
	w.sm.wait(t, "OpenSM to hand over", func(m *sm.Manager) bool {
		return m.State() == mad.SMMaster &&
			m.Subnet() != nil
	})
	w.says(log, "Entering STANDBY state")
	w.whole("the handover to ours")
	same(t, "addresses after the handover to ours", w.lids(), lids)
	w.flowing("under ours", all)
	same(t, "the manager that ports know", w.portInfo(w.node("h20"), 1).MasterSMLID, w.lid(w.node("h9"), 1))

	// Another OpenSM goes before ours.
	other, otherLog := start("h20", "13")
	w.says(otherLog, "Entering MASTER state")
	w.says(otherLog, "SUBNET UP")
	w.sm.wait(t, "ours to stand by", func(m *sm.Manager) bool { return m.State() == mad.SMStandby })
	w.eventually("ports to know OpenSM", func() bool {
		return w.portInfo(w.node("h1"), 1).MasterSMLID == w.lid(w.node("h20"), 1)
	})
	w.eventually("every port to be Active", w.active)
	if bad := w.reachable(); len(bad) > 0 {
		t.Errorf("back under OpenSM: no way from %s", strings.Join(bad, ", "))
	}
	same(t, "addresses back under OpenSM", w.lids(), lids)
	w.flowing("back under OpenSM", all)

	// It dies; of those that stand by, ours goes first.
	if err := other.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	w.sm.wait(t, "ours to take over", func(m *sm.Manager) bool {
		return m.State() == mad.SMMaster &&
			m.Subnet() != nil
	})
	w.whole("OpenSM's death")
	same(t, "addresses after OpenSM's death", w.lids(), lids)
	w.flowing("after OpenSM's death", all)

	// Ours is ended, and hands over to the OpenSM that stands by. That would notice by itself, but it asks every ten
	// seconds and believes it at the fifth silence: it would be master after 40 s or more.
	const atOnce = 20 * time.Second
	first := w.node("h2").PortGUID(1)
	w.sm.wait(t, "ours to know who stands by", func(m *sm.Manager) bool {
		return slices.ContainsFunc(m.Subnet().Managers, func(o subnet.Manager) bool {
			return o.Port == first && o.Info.SMState == mad.SMStandby
		})
	})
	w.sm.stop()
	w.saysAgain(log, "Entering MASTER state", 2, atOnce)
	w.eventually("ports to know OpenSM again", func() bool {
		return w.portInfo(w.node("h1"), 1).MasterSMLID == w.lid(w.node("h2"), 1)
	})
	same(t, "addresses after the end of ours", w.lids(), lids)
	w.flowing("after the end of ours", all)
	stop()
	for _, s := range all {
		<-s.done
		if s.err != nil {
			t.Errorf("%s: %v", s.name, s.err)
		}
	}
}
