package fieldtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"softib/internal/built"
)

// network is two machines that a cable of Ethernet joins: network namespaces and a veth pair, made by whoever may.
type network struct {
	testing.TB
	softib string
	pids   [2]int // of what keeps the namespaces
	env    []string
}

// machines is the script that keeps the first namespace, makes the second and joins them, and then waits.
const machines = `set -e
PATH=$PATH:/usr/sbin:/sbin
ip link set lo up
unshare -n sleep 600 & second=$!
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

func newNetwork(t testing.TB) *network {
	t.Helper()
	dir := t.TempDir()
	n := &network{TB: t, softib: filepath.Join(dir, "softib")}
	if err := built.Libraries(filepath.Join(dir, "lib")); err != nil {
		t.Fatal(err)
	}
	if err := built.Command(n.softib); err != nil {
		t.Fatal(err)
	}
	run := filepath.Join(dir, "run")
	if err := os.Mkdir(run, 0o700); err != nil {
		t.Fatal(err)
	}
	n.env = append(os.Environ(), "XDG_RUNTIME_DIR="+run)
	args := []string{"-n", "sh", "-c", machines}
	if os.Geteuid() != 0 {
		args = append([]string{"-r"}, args...)
	}
	cmd := exec.Command("unshare", args...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		_ = cmd.Wait()
	})
	if _, err := fmt.Fscan(out, &n.pids[0], &n.pids[1]); err != nil {
		t.Fatalf("no namespaces: %v; next: run the tests as root, or where user namespaces are allowed", err)
	}
	return n
}

// on is a command on one of the machines.
func (n *network) on(ctx context.Context, machine int, argv ...string) *exec.Cmd {
	args := []string{"-t", fmt.Sprint(n.pids[machine]), "-n"}
	if os.Geteuid() != 0 {
		args = append(args, "-U", "--preserve-credentials")
	}
	cmd := exec.CommandContext(ctx, "nsenter", append(args, argv...)...)
	cmd.Env = n.env
	return cmd
}

// Unmodified programs speak RoCEv2 between two machines, in both directions of every operation.
func TestRoCE(t *testing.T) {
	n := newNetwork(t)
	for i, args := range [][]string{
		{"ib_write_bw", "-s", "65536", "-n", "200"}, {"ib_send_bw", "-s", "4096", "-n", "500"},
		{"ib_read_bw", "-s", "65536", "-n", "100"}, {"ib_atomic_bw", "-n", "200"}, {"ib_write_lat", "-n", "200"},
		{"ib_send_lat", "-n", "200"}, {"ib_send_bw", "-c", "UD", "-s", "1024", "-n", "50"},
		{"ib_send_lat", "-c", "UC", "-n", "100"}, {"ib_write_bw", "-b", "-s", "8192", "-n", "200"},
	} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
			defer cancel()
			port := []string{"-p", fmt.Sprint(19000 + i)}
			program := append([]string{n.softib, "exec", "--roce", "eth0", "--"}, append(args, port...)...)
			server := n.on(ctx, 0, program...)
			var said strings.Builder
			server.Stdout, server.Stderr = &said, &said
			if err := server.Start(); err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 1)
			go func() { ended <- server.Wait() }()
			if err := n.awaitListener(ctx, 19000+i, ended); err != nil {
				t.Fatalf("%v\n%s", err, said.String())
			}
			out, err := n.on(ctx, 1, append(program, "192.0.2.1")...).CombinedOutput()
			if err := errors.Join(err, <-ended); err != nil {
				t.Errorf("%v\n%s\nserver:\n%s", err, out, said.String())
			}
		})
	}
}

// awaitListener waits until a TCP port of the first machine is listened at, by a program that has not ended.
func (n *network) awaitListener(ctx context.Context, port int, ended <-chan error) error {
	for {
		out, err := n.on(ctx, 0, "cat", "/proc/net/tcp", "/proc/net/tcp6").Output()
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(out)) {
			f := strings.Fields(line)
			const listens = "0A"
			if len(f) > 3 && strings.HasSuffix(f[1], fmt.Sprintf(":%04X", port)) && f[3] == listens {
				return nil
			}
		}
		select {
		case err := <-ended:
			return fmt.Errorf("the server has ended: %w", err)
		case <-ctx.Done():
			return fmt.Errorf("nobody listens at port %d: %w", port, ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}
