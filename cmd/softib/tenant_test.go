package main

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"softib/operate/manager/tenant"
	"softib/proto/ib"
	"softib/proto/topo"
	"softib/verbs"
	"softib/verbs/attach"
)

// TestTenantCommands: a fabric with tenants, as a person uses it, and after a restart.
func TestTenantCommands(t *testing.T) {
	s := newShell(t)
	state := filepath.Join(t.TempDir(), "state")
	s.run("up", "-d", "star:12", "--state", state)
	wants(t, s.run("tenant", "list"), "no tenants", "softib tenant create")
	wants(t, s.run("tenant", "create", "red", "--hosts", "h2-h4,h6", "--ipoib"),
		"tenant red: pkey 0x1001, 4 ports, IPoIB")
	wants(t, s.run("tenant", "create", "blue", "--hosts", "h5", "--hosts", "0x0002c90300000001", "--pkey", "0x11",
		"--limited", "--index0"), "pkey 0x0011, 2 ports (1 not in the fabric)")
	wants(t, s.run("tenant", "add", "blue", "h7", "h8"), "4 ports")
	wants(t, s.run("tenant", "remove", "blue", "h8"), "3 ports")
	list := asJSON[[]tenantShown](t, s.run("tenant", "list", "--json"))
	if len(list) != 2 || list[0].Name != "blue" || list[0].PKey != "0x0011" || len(list[0].Members) != 3 ||
		list[1].Name != "red" || !list[1].IPoIB {
		t.Errorf("%+v", list)
	}
	one := asJSON[tenantShown](t, s.run("tenant", "show", "blue", "--json"))
	if at := slices.IndexFunc(one.Members, func(m memberShown) bool { return m.Host == "h5" }); at < 0 ||
		one.Members[at].Membership != "limited" || !one.Members[at].Index0 {
		t.Errorf("%+v", one)
	}
	at := slices.IndexFunc(one.Members, func(m memberShown) bool { return m.GUID == "0x0002c90300000001" })
	if at < 0 || one.Members[at].Host != "" {
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
	s.fails(exitUsage, []string{"--class mpi", "no QoS template", "softib qos apply classic"}, "tenant", "create",
		"green", "--class", "mpi")
	s.fails(exitFailed, []string{`"green"`, "no such tenant", "softib tenant list"}, "tenant", "delete", "green")
	s.fails(exitFailed, []string{"is no member of red"}, "tenant", "remove", "red", "h8")
	if n := len(asJSON[[]tenantShown](t, s.run("tenant", "list", "--json"))); n != 2 {
		t.Errorf("%d tenants after calls that failed", n)
	}

	// One that takes long says on standard error what it is at, from the first second on.
	s.run("fault", "link", "h12", "delay=1s")
	slow := s.command("tenant", "create", "slow", "--hosts", "h12")
	said, err := slow.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := slow.Start(); err != nil {
		t.Fatal(err)
	}
	readUntil(t, said, "the subnet manager's sweep: ")
	s.run("fault", "clear")
	if slow.Wait() == nil { // it may have given h12 up
		s.run("tenant", "delete", "slow")
	}

	// Templates.
	wants(t, s.run("qos", "show", "classic"), "mpi", "storage", "management", "bytes a turn")
	wants(t, s.run("qos", "apply", "classic"), "classic (in force)")
	wants(t, s.run("tenant", "create", "disks", "--hosts", "h9-h10", "--class", "storage", "--rate", "100", "--mtu",
		"2048"), "SL 2 (storage)", "at most 100 Gb/s", "MTU at most 2048")
	s.fails(exitUsage, []string{"no QoS template", "classic, flat"}, "qos", "apply", "none")
	s.fails(exitUsage, []string{"template classic has", "softib qos show classic"}, "tenant", "create", "x", "--class",
		"none")

	// A partition of the operator's with a tenant's key is refused, others come beside the tenants.
	g, err := topo.ParseSpec("star:12")
	if err != nil {
		t.Fatal(err)
	}
	guid := func(h string) ib.GUID { return g.ByName(h).PortGUID(1) }
	clash := writeFile(t, "clash.conf", "Default=0x7fff : ALL=full ;\nops=0x1001 : ALL=full ;\n")
	s.fails(exitFailed, []string{"in force stay", "pkey 0x1001 of tenant red is partition ops"}, "partition", "reload",
		clash)
	fine := writeFile(t, "fine.conf", "Default=0x7fff : ALL=full ;\nops=0x2001 : "+guid("h11").String()+"=full, "+
		guid("h12").String()+"=full ;\n")
	wants(t, s.run("partition", "reload", fine), "ops          2 ports: h11 h12", "red          4 ports",
		"h5 (limited)")
	s.fails(exitFailed, []string{"0x2001 is partition ops", "softib partition show"}, "tenant", "create", "x", "--pkey",
		"0x2001")

	// All of it is there again.
	s.run("down")
	wants(t, s.run("up", "-d", "star:12", "--state", state, "--partitions", fine),
		"tenants   3 in force: blue, disks, red", "template classic in force")
	again := asJSON[[]tenantShown](t, s.run("tenant", "list", "--json"))
	if len(again) != 3 || again[1].Class != "storage" || again[1].Rate != 100 || again[1].MTU != 2048 ||
		len(again[0].Members) != 3 {
		t.Errorf("%+v", again)
	}
	wants(t, s.run("qos", "off"), "no QoS template")
	wants(t, s.run("tenant", "delete", "red"), "red is no more")
	if out := s.run("tenant", "delete", "disks", "--json"); strings.TrimSpace(out) != "{}" {
		t.Errorf("%q", out)
	}

	// The store is this fabric's alone.
	s.fails(exitFailed, []string{"in use by another process", "--state DIR"}, "up", "-d", "--name", "other", "star:2",
		"--state", state)
	s.run("down")

	// A fabric that another manages keeps them aside.
	wants(t, s.run("up", "-d", "star:12", "--state", state, "--no-sm"), "1 tenant", "not in force")
	s.fails(exitFailed, []string{"not softib's", "--no-sm"}, "tenant", "create", "x")
	s.run("down")

	// A damaged store is not taken for an empty one.
	if err := os.WriteFile(filepath.Join(state, tenant.FileName), []byte("no database"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.fails(exitFailed, []string{"damaged", "move both away"}, "up", "-d", "star:12", "--state", state)
	s.run("up", "-d", "star:4", "--state", "none")
	s.run("tenant", "create", "x")
	s.run("down")
	if _, err := os.Stat(filepath.Join(state, tenant.FileName)); errors.Is(err, os.ErrNotExist) {
		t.Error("the damaged file is gone")
	}
}

// TestTenantsOfRunningPrograms: two programs that talk do not any more from the moment in which their hosts become
// different tenants', and do again when that ends.
func TestTenantsOfRunningPrograms(t *testing.T) {
	s := newShellBeside(t)
	s.run("up", "-d", "star:4")
	p := place{dir: filepath.Join(s.dir, "softib"), name: defaultName}
	do := func(r tenantRequest) {
		t.Helper()
		if err := askFabric(t.Context(), p, opTenant, r, func([]tenantShown) error { return nil }); err != nil {
			t.Fatal(err)
		}
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	type program struct {
		cq  *verbs.CQ
		qp  *verbs.QP
		mr  *verbs.MR
		pd  *verbs.PD
		lid ib.LID
	}
	open := func(host string) *program {
		t.Helper()
		dev, err := attach.Open(attach.Options{Socket: p.verbs(), Host: host})
		must(err)
		t.Cleanup(func() { dev.Close() })
		x, ctx := &program{}, verbs.Open(dev)
		port, err := ctx.QueryPort(1)
		must(err)
		x.lid = port.LID
		x.pd, err = ctx.AllocPD()
		must(err)
		x.mr, err = x.pd.RegMR(make([]byte, 4096), verbs.AccessLocalWrite)
		must(err)
		x.cq, err = ctx.CreateCQ(64)
		must(err)
		x.qp, err = x.pd.CreateQP(verbs.QPInit{Type: verbs.UD, SendCQ: x.cq, RecvCQ: x.cq,
			Caps: verbs.Caps{MaxSendWR: 8, MaxRecvWR: 32, MaxSendSGE: 1, MaxRecvSGE: 1}})
		must(err)
		must(x.qp.Ready(1, 0, probeQKey))
		return x
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	a, b := open("h2"), open("h3")
	for range 32 {
		must(b.qp.PostRecv(&verbs.RecvWR{SGList: b.mr.SGEs(0, 64)}))
	}
	ah, err := a.pd.CreateAH(verbs.AHAttr{DLID: b.lid, Port: 1})
	must(err)
	var wc [1]verbs.WC
	send := func(imm uint32) {
		t.Helper()
		must(a.qp.PostSend(&verbs.SendWR{Opcode: verbs.WRSendImm, Imm: imm, Flags: verbs.SendSignaled,
			SGList: a.mr.SGEs(0, 8), AH: ah, RemoteQPN: b.qp.Num(), RemoteQKey: probeQKey}))
		if _, err := a.cq.Wait(ctx, wc[:]); err != nil || wc[0].Status != verbs.WCSuccess {
			t.Fatalf("%v, %v", wc[0].Status, err)
		}
	}
	// got waits for a datagram; whatever has come before it is wrong.
	got := func(imm uint32) {
		t.Helper()
		if _, err := b.cq.Wait(ctx, wc[:]); err != nil || wc[0].Status != verbs.WCSuccess || wc[0].ImmData != imm {
			t.Fatalf("datagram %d, %v, %v: want %d", wc[0].ImmData, wc[0].Status, err, imm)
		}
	}
	for n := uint32(0); n < 30; n += 3 {
		send(n)
		got(n)
		do(tenantRequest{Do: tenantCreate, Name: "red", Hosts: []string{"h2"}})
		do(tenantRequest{Do: tenantCreate, Name: "blue", Hosts: []string{"h3"}})
		send(n + 1)
		do(tenantRequest{Do: tenantDelete, Name: "red"})
		do(tenantRequest{Do: tenantDelete, Name: "blue"})
		// The programs hear of their key by and by; what is sent until then is lost, as datagrams are.
		for back := false; !back; {
			if ctx.Err() != nil {
				t.Fatal("the programs do not talk any more")
			}
			send(n + 2)
			for k := b.cq.Poll(wc[:]); k > 0; k = b.cq.Poll(wc[:]) {
				if wc[0].ImmData != n+2 {
					t.Fatalf("datagram %d arrives: it was sent while h2 and h3 were of different tenants",
						wc[0].ImmData)
				}
				back = true
				must(b.qp.PostRecv(&verbs.RecvWR{SGList: b.mr.SGEs(0, 64)}))
			}
		}
		must(b.qp.PostRecv(&verbs.RecvWR{SGList: b.mr.SGEs(0, 64)}))
	}
	s.run("down")
}

// TestTenantsUnderAnotherManager: a manager that is started beside the fabric's own and becomes master keeps the
// tenants apart; they are changed again when it has gone.
func TestTenantsUnderAnotherManager(t *testing.T) {
	s := newShellBeside(t)
	s.run("up", "-d", "star:5", "--config", writeFile(t, "opensm.conf", "sminfo_polling_timeout 5000\n"))
	s.run("tenant", "create", "red", "--hosts", "h2,h3")
	p := place{dir: filepath.Join(s.dir, "softib"), name: defaultName}
	keys := func(host string) []ib.PKey {
		t.Helper()
		dev, err := attach.Open(attach.Options{Socket: p.verbs(), Host: host})
		if err != nil {
			t.Fatal(err)
		}
		defer dev.Close()
		port, err := verbs.Open(dev).QueryPort(1)
		if err != nil {
			t.Fatal(err)
		}
		return slices.DeleteFunc(slices.Clone(port.PKeys), func(k ib.PKey) bool { return k == 0 })
	}
	other := s.command("sm", "--on", "fabric:h4", "--sm-priority", "15")
	out, err := other.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Process.Kill(); _ = other.Wait() }()
	master := make(chan bool, 1)
	go func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if strings.Contains(lines.Text(), "-> Master") {
				master <- true
				_, _ = io.Copy(io.Discard, out)
			}
		}
	}()
	select {
	case <-master:
	case <-time.After(60 * time.Second):
		t.Fatal("the other manager does not become master")
	}
	// It is master, and sets what it wants by and by.
	for host, want := range map[string][]ib.PKey{"h2": {0x9001, 0x7fff}, "h4": {0xfffe, 0xffff},
		"h5": {0xfffe, 0x7fff}} {
		for deadline := time.Now().Add(60 * time.Second); !slices.Equal(keys(host), want); {
			if time.Now().After(deadline) {
				t.Fatalf("under the other manager %s has %v, want %v", host, keys(host), want)
			}
		}
	}
	s.fails(exitFailed, []string{"is Standby", "not softib's", "--sm-priority 15"}, "tenant", "add", "red", "h5")
	if got := keys("h5"); !slices.Equal(got, []ib.PKey{0xfffe, 0x7fff}) {
		t.Errorf("after a call that failed h5 has %v", got)
	}
	s.run("down")
}
