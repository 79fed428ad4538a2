package main

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"softib/ib"
	"softib/manager/tenant"
	"softib/topo"
)

// TestTenantCommands: a fabric with tenants, as a person uses it, and after a restart.
func TestTenantCommands(t *testing.T) {
	s := newShell(t)
	state := filepath.Join(t.TempDir(), "state")
	s.run("up", "-d", "star:12", "--state", state)
	wants(t, s.run("tenant", "list"), "no tenants", "softib tenant create")
	wants(t, s.run("tenant", "create", "red", "--hosts", "h2-h4,h6", "--ipoib"), "tenant red: pkey 0x1001, 4 ports, IPoIB")
	wants(t, s.run("tenant", "create", "blue", "--hosts", "h5", "--hosts", "0x0002c90300000001", "--pkey", "0x11", "--limited", "--index0"), "pkey 0x0011, 2 ports (1 not in the fabric)")
	wants(t, s.run("tenant", "add", "blue", "h7", "h8"), "4 ports")
	wants(t, s.run("tenant", "remove", "blue", "h8"), "3 ports")
	list := asJSON[[]tenantShown](t, s.run("tenant", "list", "--json"))
	if len(list) != 2 || list[0].Name != "blue" || list[0].PKey != "0x0011" || len(list[0].Members) != 3 || list[1].Name != "red" || !list[1].IPoIB {
		t.Errorf("%+v", list)
	}
	one := asJSON[tenantShown](t, s.run("tenant", "show", "blue", "--json"))
	if at := slices.IndexFunc(one.Members, func(m memberShown) bool { return m.Host == "h5" }); at < 0 || one.Members[at].Membership != "limited" || !one.Members[at].Index0 {
		t.Errorf("%+v", one)
	}
	if at := slices.IndexFunc(one.Members, func(m memberShown) bool { return m.GUID == "0x0002c90300000001" }); at < 0 || one.Members[at].Host != "" {
		t.Errorf("%+v", one)
	}
	wants(t, s.run("tenant", "show", "blue"), "h5", "limited", "index 0", "(not in the fabric)", "h7")
	wants(t, s.run("partition", "show"), "0x0011  blue", "0x1001  red", "h5 (limited)")

	// What cannot be, and what to do about it.
	s.fails(exitFailed, []string{"name red", "already", "softib tenant list"}, "tenant", "create", "red")
	s.fails(exitFailed, []string{"0x0011 is blue's"}, "tenant", "create", "green", "--pkey", "17")
	s.fails(exitUsage, []string{"0x7fff", "default partition"}, "tenant", "create", "green", "--pkey", "0x7fff")
	s.fails(exitUsage, []string{"management", "another one"}, "tenant", "create", "management")
	s.fails(exitUsage, []string{`"h99"`, "h1 to h12"}, "tenant", "add", "red", "h99")
	s.fails(exitUsage, []string{"--sl 16", "0 to 15"}, "tenant", "create", "green", "--sl", "16")
	s.fails(exitUsage, []string{"99 Gb/s", "100"}, "tenant", "create", "green", "--rate", "99")
	s.fails(exitUsage, []string{"--class mpi", "no QoS template", "softib qos apply classic"}, "tenant", "create", "green", "--class", "mpi")
	s.fails(exitFailed, []string{`"green"`, "no such tenant", "softib tenant list"}, "tenant", "delete", "green")
	s.fails(exitFailed, []string{"is no member of red"}, "tenant", "remove", "red", "h8")
	if n := len(asJSON[[]tenantShown](t, s.run("tenant", "list", "--json"))); n != 2 {
		t.Errorf("%d tenants after calls that failed", n)
	}

	// Templates.
	wants(t, s.run("qos", "show", "classic"), "mpi", "storage", "management", "bytes a turn")
	wants(t, s.run("qos", "apply", "classic"), "classic (in force)")
	wants(t, s.run("tenant", "create", "disks", "--hosts", "h9-h10", "--class", "storage", "--rate", "100", "--mtu", "2048"), "SL 2 (storage)", "at most 100 Gb/s", "MTU at most 2048")
	s.fails(exitUsage, []string{"no QoS template", "classic, flat"}, "qos", "apply", "none")
	s.fails(exitUsage, []string{"template classic has", "softib qos show classic"}, "tenant", "create", "x", "--class", "none")

	// A partition of the operator's with a tenant's key is refused, others come beside the tenants.
	g, err := topo.ParseSpec("star:12")
	if err != nil {
		t.Fatal(err)
	}
	guid := func(h string) ib.GUID { return g.ByName(h).PortGUID(1) }
	clash := writeFile(t, "clash.conf", "Default=0x7fff : ALL=full ;\nops=0x1001 : ALL=full ;\n")
	s.fails(exitFailed, []string{"in force stay", "pkey 0x1001 of tenant red is partition ops"}, "partition", "reload", clash)
	fine := writeFile(t, "fine.conf", "Default=0x7fff : ALL=full ;\nops=0x2001 : "+guid("h11").String()+"=full, "+guid("h12").String()+"=full ;\n")
	wants(t, s.run("partition", "reload", fine), "ops          2 ports: h11 h12", "red          4 ports", "h5 (limited)")
	s.fails(exitFailed, []string{"0x2001 is partition ops", "softib partition show"}, "tenant", "create", "x", "--pkey", "0x2001")

	// All of it is there again.
	s.run("down")
	wants(t, s.run("up", "-d", "star:12", "--state", state, "--partitions", fine), "tenants   3 in force: blue, disks, red", "template classic in force")
	again := asJSON[[]tenantShown](t, s.run("tenant", "list", "--json"))
	if len(again) != 3 || again[1].Class != "storage" || again[1].Rate != 100 || again[1].MTU != 2048 || len(again[0].Members) != 3 {
		t.Errorf("%+v", again)
	}
	wants(t, s.run("qos", "off"), "no QoS template")
	wants(t, s.run("tenant", "delete", "red"), "red is no more")
	if out := s.run("tenant", "delete", "disks", "--json"); strings.TrimSpace(out) != "{}" {
		t.Errorf("%q", out)
	}

	// The store is this fabric's alone.
	s.fails(exitFailed, []string{"in use by another process", "--state DIR"}, "up", "-d", "--name", "other", "star:2", "--state", state)
	s.run("down")

	// A fabric that another manages keeps them aside.
	wants(t, s.run("up", "-d", "star:12", "--state", state, "--no-sm"), "1 tenant", "not in force")
	s.fails(exitFailed, []string{"not softib's", "--no-sm"}, "tenant", "create", "x")
	s.run("down")

	// A damaged store is not taken for an empty one.
	if err := os.WriteFile(filepath.Join(state, tenant.FileName), []byte("no database"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.fails(exitFailed, []string{"damaged", "move the file away"}, "up", "-d", "star:12", "--state", state)
	s.run("up", "-d", "star:4", "--state", "none")
	s.run("tenant", "create", "x")
	s.run("down")
	if _, err := os.Stat(filepath.Join(state, tenant.FileName)); errors.Is(err, os.ErrNotExist) {
		t.Error("the damaged file is gone")
	}
}
