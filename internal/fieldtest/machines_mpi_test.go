package fieldtest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"softib/internal/netpair"
)

// mpi runs Open MPI over two machines: its daemon is started on the other one as by ssh, two ranks on each are on hosts
// there, and what arrives is looked at byte by byte.
func (m *machines) mpi(t *testing.T, hosts [3]string) {
	program := exchangeProgram(t, m.dir)
	write := func(name, text string) string {
		path := filepath.Join(m.dir, name)
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
		return path
	}
	// Each machine has a name of its own: Open MPI takes nodes of one name for one.
	named := func(machine int) string {
		return fmt.Sprintf("unshare -u sh -c 'hostname m%d; exec \"$@\"' m", machine)
	}
	agent := write("agent", "#!/bin/sh\nshift\nexec "+strings.Join(m.Line(1), " ")+" "+named(1)+" sh -c \"$*\"\n")
	// Ranks go by slot: 0 and 1 are on the first machine.
	place := write("place", fmt.Sprintf(`#!/bin/sh
if [ $OMPI_COMM_WORLD_RANK -lt 2 ]; then host=%s run=%s; else host=%s run=%s; fi
XDG_RUNTIME_DIR=$run exec %s exec $host -- "$@"
`, hosts[0], m.run(0), hosts[1], m.run(1), m.softib))
	ctx, cancel := context.WithTimeout(t.Context(), machinePatience)
	defer cancel()
	line := fmt.Sprintf(`%s mpirun --allow-run-as-root --oversubscribe --bind-to none -np 4 --host %s:2,%s:2 \
	--mca plm_rsh_agent %s --mca oob_tcp_if_include eth0 --mca pml ucx --mca btl self --mca osc ucx \
	-x UCX_TLS=rc_v,self -x UCX_NET_DEVICES=softib0:1 %s %s pingpong alltoall allreduce`,
		named(0), netpair.Address(0), netpair.Address(1), agent, place, program)
	cmd := m.Command(ctx, 0, "sh", "-c", line)
	cmd.Env = append(os.Environ(), "TMPDIR="+m.dir)
	out := m.must(t, cmd)
	said := map[string]int{}
	for _, x := range exchanged.FindAllStringSubmatch(out, -1) {
		if want := hosts[map[string]int{"2": 1, "3": 1}[x[2]]]; x[3] != "4" || x[4] != want {
			t.Errorf("rank %s of %s was on %s, want %s of 4", x[2], x[3], x[4], want)
		}
		said[x[1]]++
	}
	for _, test := range []string{"pingpong", "alltoall", "allreduce"} {
		if said[test] != 4 {
			t.Errorf("%d of 4 ranks have ended %s:\n%s", said[test], test, out)
		}
	}
}
