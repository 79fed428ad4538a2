package fieldtest

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

var (
	exchanged  = regexp.MustCompile(`(?m)^(\w+): rank (\d+) of (\d+) on (h\d+) sent (\d+)$`)
	portDataIn = regexp.MustCompile(`(?m)^Port(Xmit|Rcv)Data:\.*(\d+)$`)
)

// sub is a part of a test.
func (p *person) sub(name string, test func(*person)) {
	p.TB.(*testing.T).Run(name, func(t *testing.T) {
		x := *p
		x.TB = t
		test(&x)
	})
}

// portData is how many bytes a host's port has sent and received, as performance management counts them.
func (p *person) portData(host string) (sent, received uint64) {
	p.Helper()
	out := p.must("exec", host, "--", "perfquery", "-x")
	for _, m := range portDataIn.FindAllStringSubmatch(out, -1) {
		words, err := strconv.ParseUint(m[2], 10, 64)
		if err != nil {
			p.Fatal(err)
		}
		if m[1] == "Xmit" {
			sent = 4 * words
		} else {
			received = 4 * words
		}
	}
	if sent == 0 || received == 0 {
		p.Fatalf("perfquery on %s shows no data:\n%s", host, out)
	}
	return sent, received
}

// ledger watches how much the ports of hosts carry.
type ledger struct {
	*person
	start map[string][2]uint64
}

func (p *person) ledger(hosts ...string) *ledger {
	p.Helper()
	l := &ledger{person: p, start: map[string][2]uint64{}}
	for _, h := range hosts {
		sent, received := p.portData(h)
		l.start[h] = [2]uint64{sent, received}
	}
	return l
}

// carried is what a host's port has sent and received since.
func (l *ledger) carried(host string) (sent, received uint64) {
	l.Helper()
	sent, received = l.portData(host)
	return sent - l.start[host][0], received - l.start[host][1]
}

// atLeast checks that a host's port has carried so many bytes since.
func (l *ledger) atLeast(host string, sent, received uint64) {
	l.Helper()
	s, r := l.carried(host)
	l.Logf("%s: port sent %d bytes for a payload of %d, received %d for %d", host, s, sent, r, received)
	if s < sent || r < received {
		l.Errorf("%s sent %d bytes to other hosts, but its port %d; it received %d, its port %d", host, sent, s,
			received, r)
	}
}

// idle checks that a host's port has carried no more than management sends.
func (l *ledger) idle(host string) {
	l.Helper()
	const management = 64 << 10
	if s, r := l.carried(host); s > management || r > management {
		l.Errorf("%s took no part, but its port sent %d bytes and received %d", host, s, r)
	}
}

// mpiVia are ways of Open MPI to an adapter, by their names in tests. All others are transports of UCX.
var mpiVia = map[string][]string{
	"ofi": {"--mca", "pml", "cm", "--mca", "mtl", "ofi", "--mca", "mtl_ofi_provider_include", "verbs;ofi_rxm", "--mca",
		"btl", "self"},
	// It would warn of adapters that its table does not have.
	"openib": {"--mca", "pml", "ob1", "--mca", "btl", "openib,self", "--mca", "btl_openib_allow_ib", "1", "--mca",
		"btl_openib_warn_no_device_params_found", "0"},
}

// mpirun runs an MPI program, rank by rank in turn on some hosts.
func (p *person) mpirun(hosts []string, ranks int, transports string, argv ...string) string {
	p.Helper()
	dir, err := os.MkdirTemp(p.dir, "mpi")
	if err != nil {
		p.Fatal(err)
	}
	place := filepath.Join(dir, "place")
	script := "#!/bin/sh\ncase $((OMPI_COMM_WORLD_RANK % " + strconv.Itoa(len(hosts)) + ")) in\n"
	for i, h := range hosts {
		script += fmt.Sprintf("%d) host=%s ;;\n", i, h)
	}
	script += "esac\nexec " + p.bin + " exec $host -- \"$@\"\n"
	if err := os.WriteFile(place, []byte(script), 0o755); err != nil {
		p.Fatal(err)
	}
	if err := os.Chown(dir, p.uid, -1); err != nil {
		p.Fatal(err)
	}
	ctx, cancel := patient()
	defer cancel()
	cmd := p.command(ctx)
	via := mpiVia[transports]
	if via == nil {
		via = []string{"--mca", "pml", "ucx", "--mca", "btl", "self", "--mca", "osc", "ucx"}
	}
	args := append([]string{"mpirun", "--oversubscribe", "--bind-to", "none", "-np", strconv.Itoa(ranks)},
		append(via[:len(via):len(via)], place)...)
	if p.uid == 0 {
		args = append([]string{args[0], "--allow-run-as-root"}, args[1:]...)
	}
	cmd.Path, cmd.Args = tool(p, "mpirun"), append(args, argv...)
	cmd.Env = append(cmd.Env, "TMPDIR="+dir, "UCX_TLS="+transports, "UCX_NET_DEVICES=softib0:1")
	// mpirun takes its ranks along if it is asked to end.
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 5 * time.Second
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil || errs.Len() > 0 {
		p.Fatalf("%s: %v\n%s%s", strings.Join(cmd.Args, " "), err, &out, &errs)
	}
	return out.String()
}

// exchangeProgram is the MPI program of the tests, in a folder.
func exchangeProgram(t testing.TB, dir string) string {
	t.Helper()
	out := filepath.Join(dir, "exchange")
	cmd := exec.Command(tool(t, "mpicc"), "-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-o", out,
		filepath.Join("testdata", "mpi", "exchange.c"))
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("mpicc: %v\n%s", err, text)
	}
	if err := os.Chmod(out, 0o755); err != nil {
		t.Fatal(err)
	}
	return out
}

// Open MPI through UCX's verbs transports, through libfabric and by itself: ranks on four hosts below four switches,
// what arrives is looked at byte by byte, and the hosts' ports have carried it. The ranks busy-poll, so the test does
// not run beside others. Open MPI's own openib knows no links that are faster than HDR.
func TestMPI(t *testing.T) {
	people(t, func(p *person) {
		p.up("fat-tree:radix=4,levels=2,speed=EDR")
		program := exchangeProgram(p, filepath.Dir(p.bin))
		worlds := []int{2, 4, 8}
		if p.uid != os.Getuid() {
			worlds = []int{4}
		}
		// rc_v is UCX's name for rc_verbs with ud_verbs to connect.
		for _, transports := range []string{"rc_v,self", "ud_v,self"} {
			for _, ranks := range worlds {
				p.sub(fmt.Sprintf("%s/%d", transports, ranks),
					func(p *person) { p.exchange(program, transports, ranks) })
			}
		}
		for via := range mpiVia {
			if p.uid == os.Getuid() {
				p.sub(via, func(p *person) { p.exchange(program, via, 2) })
			}
		}
	})
}

// exchange runs the MPI program and compares what its ranks say with what the ports have carried.
func (p *person) exchange(program, transports string, ranks int) {
	p.Helper()
	hosts, bystander := []string{"h1", "h3", "h5", "h7"}, "h2"
	tests := []string{"pingpong", "alltoall", "allreduce"}
	l := p.ledger(append([]string{bystander}, hosts...)...)
	out := p.mpirun(hosts, ranks, transports, append([]string{program}, tests...)...)

	payload, said := map[string]uint64{}, map[string]int{}
	for _, m := range exchanged.FindAllStringSubmatch(out, -1) {
		rank, _ := strconv.Atoi(m[2])
		same(p, "the size of the world", m[3], strconv.Itoa(ranks))
		same(p, fmt.Sprintf("the host of rank %d", rank), m[4], hosts[rank%len(hosts)])
		n, err := strconv.ParseUint(m[5], 10, 64)
		if err != nil {
			p.Fatal(err)
		}
		payload[m[4]] += n
		said[m[1]]++
	}
	for _, test := range tests {
		same(p, "ranks that have ended "+test, said[test], ranks)
	}
	for i, h := range hosts {
		if i >= ranks {
			l.idle(h)
			continue
		}
		if payload[h] < 1<<20 {
			p.Errorf("%s had %d bytes for other hosts: that proves nothing", h, payload[h])
		}
		l.atLeast(h, payload[h], payload[h]) // every exchange is as much to a rank as from it
	}
	l.idle(bystander)
}
