package netpair

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"

	"softib/internal/listening"
)

// Pair is the two, each with an interface.
type Pair struct {
	pids [2]int // of what keeps the namespaces
	cmd  *exec.Cmd
	in   io.Closer
}

// Device is the interface of each machine.
const Device = "eth0"

// Addresses are those of the interfaces.
var Addresses = [2]string{"192.0.2.1", "192.0.2.2"}

// script keeps the first namespace, makes the second and joins them, and then waits until nobody needs them.
const script = `set -e
PATH=$PATH:/usr/sbin:/sbin
ip link set lo up
unshare -n sleep 3600 & second=$!
for i in $(seq 200); do
	[ "$(readlink /proc/$second/ns/net)" != "$(readlink /proc/self/ns/net)" ] && break
	sleep 0.02
done
ip link add eth0 type veth peer name eth0 netns $second
ip addr add 192.0.2.1/24 dev eth0
ip link set eth0 up
nsenter -t $second -n sh -ec 'ip link set lo up; ip addr add 192.0.2.2/24 dev eth0; ip link set eth0 up'
echo $$ $second
read over || true
kill $second`

// New makes them, until Close.
func New() (*Pair, error) {
	args := []string{"-n", "sh", "-c", script}
	if os.Geteuid() != 0 {
		args = append([]string{"-r"}, args...)
	}
	p := &Pair{cmd: exec.Command("unshare", args...)}
	p.cmd.Stderr = os.Stderr
	in, err := p.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	p.in = in
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	if _, err := fmt.Fscan(out, &p.pids[0], &p.pids[1]); err != nil {
		p.Close()
		return nil, fmt.Errorf("no namespaces: %w; next: be root, or where users may have namespaces", err)
	}
	return p, nil
}

// Close ends them. Programs that still run there keep them.
func (p *Pair) Close() {
	p.in.Close()
	_ = p.cmd.Wait()
}

// Line is the command line that runs another one on a machine.
func (p *Pair) Line(machine int, argv ...string) []string {
	line := []string{"nsenter", "-t", strconv.Itoa(p.pids[machine]), "-n"}
	if os.Geteuid() != 0 {
		line = append(line, "-U", "--preserve-credentials")
	}
	return append(line, argv...)
}

// Command is that as one to run.
func (p *Pair) Command(ctx context.Context, machine int, argv ...string) *exec.Cmd {
	line := p.Line(machine, argv...)
	return exec.CommandContext(ctx, line[0], line[1:]...)
}

// Listens reports whether somebody listens on a TCP port of a machine.
func (p *Pair) Listens(machine, port int) bool {
	return listening.In(filepath.Join("/proc", strconv.Itoa(p.pids[machine]), "net"), port)
}
