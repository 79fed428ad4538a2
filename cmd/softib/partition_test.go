package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"softib/proto/ib"
	"softib/proto/topo"
	"softib/subnet/sm"
)

func writeFile(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestPartitionCommands(t *testing.T) {
	g, err := topo.ParseSpec("star:4")
	if err != nil {
		t.Fatal(err)
	}
	guid := func(h string) ib.GUID { return g.ByName(h).PortGUID(1) }
	file := writeFile(t, "tenants.conf", fmt.Sprintf(
		"Default=0x7fff,ipoib : ALL=limited, SELF=full ;\nred=0x1001 : %v=full, %v=full ;\n", guid("h2"), guid("h3")))
	s := newShell(t)
	out := s.run("up", "-d", "star:4", "--partitions", file)
	wants(t, out, "within 1 partition: 2 of 2 pairs")
	wants(t, s.run("partition", "show"), "0x7fff  Default", "5 ports, ipoib:", "0x1001  red", "2 ports: h2 h3")

	// A file with a mistake changes nothing.
	bad := writeFile(t, "bad.conf", "red=0x1001 : ALL=ful, EVERYBODY ;\n")
	s.fails(exitFailed, []string{"in force stay", "bad.conf:1:23", "EVERYBODY", "mend these lines", "reload again"},
		"partition", "reload", bad)
	s.fails(exitFailed, []string{"in force stay", "none.conf"}, "partition", "reload", "none.conf")
	wants(t, s.run("partition", "show"), "2 ports: h2 h3")

	// The file changes, and h3 moves.
	if err := os.WriteFile(file, fmt.Appendf(nil,
		"Default=0x7fff : ALL=full ;\nred=0x1001 : %v=full, %v=limited ;\nblue=0x1002 : %v=full ;\n", guid("h2"),
		guid("h4"), guid("h3")), 0o600); err != nil {
		t.Fatal(err)
	}
	wants(t, s.run("partition", "reload"), "red          2 ports: h2 h4 (limited)", "blue         1 port: h3")

	// A SIGHUP does the same.
	if err := os.WriteFile(file, []byte("Default=0x7fff : ALL=full ;\ngreen=0x1003 : ALL ;\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var pid int
	_, after, _ := strings.Cut(out, "process ")
	if _, err := fmt.Sscanf(after, "%d", &pid); err != nil {
		t.Fatalf("no process in %q", out)
	}
	if err := syscall.Kill(pid, syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(60 * time.Second); !strings.Contains(s.run("partition", "show"),
		"green        5 ports"); {
		if time.Now().After(deadline) {
			t.Fatal("a SIGHUP is not heard")
		}
	}
	s.run("down")

	s.fails(exitFailed, []string{"bad.conf:1:23", "mend these lines"}, "up", "star:2", "--partitions", bad)
	s.run("up", "-d", "--no-sm", "star:2")
	s.fails(exitFailed, []string{"no manager of softib's runs", "softib sm starts one"}, "partition", "show")
	s.run("down")
}

// configOf is what a command line makes of a manager's options.
func configOf(t *testing.T, args ...string) (sm.Config, *smOptions, error) {
	t.Helper()
	var o smOptions
	cmd := newVersion()
	o.flags(cmd)
	if err := cmd.ParseFlags(args); err != nil {
		t.Fatal(err)
	}
	c, err := o.config()
	return c, &o, err
}

func TestOpenSMConfig(t *testing.T) {
	roots := writeFile(t, "roots", "0x11\n0x12 # the second\n")
	conf := writeFile(t, "opensm.conf", `sm_priority 9
m_key 0x77
m_key_protection_level 2
m_key_lease_period 60
lmc 2
sweep_interval 0
routing_engine lash,updn
root_guid_file `+roots+`
max_op_vls 3
qos TRUE
qos_ca_high_limit 7
qos_policy_file (null)
part_enforce out
allow_both_pkeys TRUE
congestion_control TRUE
cc_sw_cong_setting_threshold 5
transaction_timeout 300
perfmgr TRUE
cn_guid_file /cn
`)
	c, o, err := configOf(t, "--config", conf, "--lmc", "1")
	if err != nil {
		t.Fatal(err)
	}
	if c.Priority != 9 || c.MKey != 0x77 || c.MKeyProtect != 2 || c.MKeyLease != 60 || c.LMC != 1 ||
		c.SweepInterval != -1 || c.Engines != "updn" || c.MaxVLs != 4 ||
		!c.QoS.Enabled || c.QoS.Ports[1].HighLimit != 7 || c.Enforce != sm.EnforceOut || !c.AllowBothKeys ||
		!c.Congestion.Enabled || c.Congestion.Threshold != 5 ||
		c.Timeout != 300*ib.Millisecond || len(c.Roots) != 2 || c.Roots[1] != 0x12 || c.Window != 1024 {
		t.Errorf("%+v", c)
	}
	if c, _, err := configOf(t, "--config", conf, "--cc", "100M"); err != nil || c.Congestion.CA[15].Timer != 16000 ||
		len(c.Congestion.Table) != 128 || c.Priority != 9 {
		t.Errorf("%+v, %v", c.Congestion, err)
	}
	if _, _, err := configOf(t, "--cc", "fast"); err == nil || !strings.Contains(err.Error(), "want bits a second") {
		t.Errorf("--cc fast: %v", err)
	}
	notes := strings.Join(o.notes, "\n")
	wants(t, notes, "perfmgr", "lash is left out", "cn_guid_file")
	if strings.Contains(notes, "sm_priority") {
		t.Errorf("notes: %s", notes)
	}
	// Without a file flags and defaults are all.
	c, _, err = configOf(t, "--engine", "minhop", "--sweep", "1s")
	if err != nil || c.Engines != "minhop" || c.SweepInterval != ib.Second || c.QoS.Enabled || c.Priority != 0 {
		t.Errorf("%+v, %v", c, err)
	}
	// What OpenSM itself writes leaves everything as it is, and needs none of the files that it names.
	c, o, err = configOf(t, "--config", "../../subnet/policy/testdata/opensm-default.conf")
	if err != nil || c.Engines != "" || c.Window != 1024 || c.SweepInterval != sm.DefaultSweepInterval ||
		c.Timeout != sm.DefaultTimeout || len(o.notes) != 0 {
		t.Errorf("%+v, %v, %q", c, err, o.notes)
	}
	// A policy turns quality of service on.
	pol := writeFile(t, "qos-policy.conf", "qos-ulps\n default: 2\nend-qos-ulps\n")
	c, _, err = configOf(t, "--qos-policy", pol)
	if err != nil || !c.QoS.Enabled || c.QoS.Policy == nil || c.QoS.Policy.DefaultSL != 2 {
		t.Errorf("%+v, %v", c.QoS, err)
	}
	for flag, text := range map[string]string{
		"--config": "sm_priority 99\n", "--partitions": "a : B ;", "--roots": "root\n", "--qos-policy": "qos-levels\n",
	} {
		bad := writeFile(t, "bad", text)
		if _, _, err := configOf(t, flag, bad); err == nil || !strings.Contains(err.Error(), bad+":1:") ||
			nextOf(err) == "" {
			t.Errorf("%s with %q: %v, next: %s", flag, text, err, nextOf(err))
		}
		if _, _, err := configOf(t, flag, "/nonexistent"); err == nil || nextOf(err) == "" {
			t.Errorf("%s without its file: %v", flag, err)
		}
	}
}

func TestMKeyFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "guid2mkey")
	if keys, err := readMKeys(path); keys != nil || err != nil {
		t.Errorf("no file: %v, %v", keys, err)
	}
	if err := writeMKeys(path, map[ib.GUID]uint64{1: 5, 2: 6}); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("keys are for others to read: %v, %v", info, err)
	}
	if keys, err := readMKeys(path); err != nil || len(keys) != 2 || keys[2] != 6 {
		t.Errorf("%v, %v", keys, err)
	}
}
