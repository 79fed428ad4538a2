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

// Machines are the namespaces, each with an interface.
type Machines struct {
	pids []int // of what keeps them
	hub  int   // of what has the bridge, if there is one
	cmd  *exec.Cmd
	in   io.Closer
}

// Device is the interface of each machine.
const Device = "eth0"

// Second is another interface of each of two, with a cable of its own.
const Second = "eth1"

// Addresses are those of two machines' interfaces, and SecondAddresses those of the others.
var (
	Addresses       = [2]string{Address(0), Address(1)}
	SecondAddresses = [2]string{"198.51.100.1", "198.51.100.2"}
)

// Address is that of a machine's interface.
func Address(machine int) string { return fmt.Sprintf("192.0.2.%d", machine+1) }

// script keeps the first namespace, makes the second and joins them, and then waits until nobody needs them.
const script = `set -e
PATH=$PATH:/usr/sbin:/sbin
ip link set lo up
unshare -n sleep 3600 & second=$!
for i in $(seq 200); do
	[ "$(readlink /proc/$second/ns/net)" != "$(readlink /proc/self/ns/net)" ] && break
	sleep 0.02
done
for dev in eth0 eth1; do ip link add $dev type veth peer name $dev netns $second; done
ip addr add 192.0.2.1/24 dev eth0
ip addr add 198.51.100.1/24 dev eth1
ip link set eth0 up
ip link set eth1 up
nsenter -t $second -n sh -ec 'ip link set lo up
	ip addr add 192.0.2.2/24 dev eth0; ip addr add 198.51.100.2/24 dev eth1
	ip link set eth0 up; ip link set eth1 up'
echo $$ $second
read over || true
kill $second`

// farScript does so with two routers between them.
const farScript = `set -e
PATH=$PATH:/usr/sbin:/sbin
space() {
	unshare -n sleep 3600 & made=$!
	for i in $(seq 200); do
		[ "$(readlink /proc/$made/ns/net)" != "$(readlink /proc/self/ns/net)" ] && break
		sleep 0.02
	done
}
on() { nsenter -t $1 -n sh -ec "$2"; }
cable() { # from NAME at SPACE to NAME at SPACE
	on $2 "ip link add $1 type veth peer name $3 netns $4; ip link set $1 up"
	on $4 "ip link set $3 up"
}
space; second=$made; space; one=$made; space; two=$made
cable eth0 $$ near $one
cable middle $one middle $two
cable near $two eth0 $second
ip link set lo up
on $second 'ip link set lo up; ip addr add 203.0.113.2/24 dev eth0; ip route add default via 203.0.113.254'
ip addr add 192.0.2.1/24 dev eth0; ip route add default via 192.0.2.254
on $one "echo 1 >/proc/sys/net/ipv4/ip_forward; ip addr add 192.0.2.254/24 dev near
	ip addr add 198.51.100.1/24 dev middle; ip link set middle mtu $MIDDLE; ip route add default via 198.51.100.2"
on $two "echo 1 >/proc/sys/net/ipv4/ip_forward; ip addr add 203.0.113.254/24 dev near
	ip addr add 198.51.100.2/24 dev middle; ip link set middle mtu $MIDDLE; ip route add default via 198.51.100.1"
echo $$ $second
read over || true
kill $second $one $two`

// FarAddress is that of the second machine's interface where there are routers between the two.
const FarAddress = "203.0.113.2"

// lanScript keeps a namespace with a bridge, and makes as many machines at it as it is told.
const lanScript = `set -e
PATH=$PATH:/usr/sbin:/sbin
ip link set lo up
ip link add br0 type bridge
ip link set br0 up
pids=
for n in $(seq $MACHINES); do
	unshare -n sleep 3600 & pid=$!
	for i in $(seq 200); do
		[ "$(readlink /proc/$pid/ns/net)" != "$(readlink /proc/self/ns/net)" ] && break
		sleep 0.02
	done
	ip link add v$n type veth peer name eth0 netns $pid
	ip link set v$n master br0 up
	nsenter -t $pid -n sh -ec "ip link set lo up; ip addr add 192.0.2.$n/24 dev eth0; ip link set eth0 up"
	pids="$pids $pid"
done
echo $$ $pids
read over || true
kill $pids`

// New makes two with a cable between them, until Close.
func New() (*Machines, error) {
	m := &Machines{pids: make([]int, 2)}
	return m, m.start(script, []any{&m.pids[0], &m.pids[1]})
}

// NewFar makes two with one interface each and two routers between them, whose link to each other has an MTU of its
// own.
func NewFar(middleMTU int) (*Machines, error) {
	m := &Machines{pids: make([]int, 2)}
	return m, m.start(farScript, []any{&m.pids[0], &m.pids[1]}, "MIDDLE="+strconv.Itoa(middleMTU))
}

// NewLAN makes any number with a bridge between them.
func NewLAN(machines int) (*Machines, error) {
	m := &Machines{pids: make([]int, machines)}
	said := []any{&m.hub}
	for i := range m.pids {
		said = append(said, &m.pids[i])
	}
	return m, m.start(lanScript, said, "MACHINES="+strconv.Itoa(machines))
}

// start runs a script, which says what keeps the namespaces and then waits until nobody needs them.
func (m *Machines) start(script string, said []any, env ...string) error {
	args := []string{"-n", "sh", "-c", script}
	if os.Geteuid() != 0 {
		args = append([]string{"-r"}, args...)
	}
	m.cmd = exec.Command("unshare", args...)
	m.cmd.Stderr, m.cmd.Env = os.Stderr, append(os.Environ(), env...)
	in, err := m.cmd.StdinPipe()
	if err != nil {
		return err
	}
	m.in = in
	out, err := m.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := m.cmd.Start(); err != nil {
		return err
	}
	if _, err := fmt.Fscan(out, said...); err != nil {
		m.Close()
		return fmt.Errorf("no namespaces: %w; next: be root, or where users may have namespaces", err)
	}
	return nil
}

// Cut takes a machine's cable out of the bridge, or plugs it in again.
func (m *Machines) Cut(machine int, out bool) error {
	state := "up"
	if out {
		state = "down"
	}
	line := append(enter(m.hub), "ip", "link", "set", fmt.Sprintf("v%d", machine+1), state)
	if b, err := exec.Command(line[0], line[1:]...).CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, b)
	}
	return nil
}

// Close ends them. Programs that still run there keep them.
func (m *Machines) Close() {
	m.in.Close()
	_ = m.cmd.Wait()
}

// Line is the command line that runs another one on a machine.
func (m *Machines) Line(machine int, argv ...string) []string {
	return append(enter(m.pids[machine]), argv...)
}

// enter begins the command line that runs another one where a process is.
func enter(pid int) []string {
	line := []string{"nsenter", "-t", strconv.Itoa(pid), "-n"}
	if os.Geteuid() != 0 {
		line = append(line, "-U", "--preserve-credentials")
	}
	return line
}

// Command is that as one to run.
func (m *Machines) Command(ctx context.Context, machine int, argv ...string) *exec.Cmd {
	line := m.Line(machine, argv...)
	return exec.CommandContext(ctx, line[0], line[1:]...)
}

// Listens reports whether somebody listens on a TCP port of a machine.
func (m *Machines) Listens(machine, port int) bool {
	return listening.In(filepath.Join("/proc", strconv.Itoa(m.pids[machine]), "net"), port)
}
