package play

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"softib/job"
	"softib/job/goal"
	"softib/proto/ib"
)

// parameters of LogGOPSim, in nanoseconds.
type parameters struct{ L, o, g, G, O, S int }

func (p parameters) model() Model {
	ns := func(n int) ib.Time { return ib.Time(n) * ib.Nanosecond }
	return Model{Ideal: true, Latency: ns(p.L), Overhead: ns(p.o), Gap: ns(p.g), GapPerByte: ns(p.G), PerByte: ns(p.O),
		Eager: uint64(p.S)}
}

// run plays a schedule on an ideal network and returns when each rank's processors were free again, in nanoseconds.
func run(t *testing.T, s *job.Schedule, m Model) []int {
	t.Helper()
	p := New(s, m)
	for p.NextDeadline() != ib.Never {
		p.HandleTimeout(p.NextDeadline())
	}
	if !p.Done() {
		t.Fatalf("it did not end: %s", p.Stuck())
	}
	ends := make([]int, len(s.Ranks))
	for i := range ends {
		for _, at := range p.hosts[i].cpu {
			ends[i] = max(ends[i], int(at/ib.Nanosecond))
		}
	}
	return ends
}

// TestLogGOPSim wants the end times that LogGOPSim gives for the schedules of testdata, whose first line has its
// parameters and what it printed.
func TestLogGOPSim(t *testing.T) {
	files, err := filepath.Glob("testdata/*.goal")
	if err != nil || len(files) < 8 {
		t.Fatalf("%d schedules: %v", len(files), err)
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		var p parameters
		var list string
		head, _, _ := strings.Cut(string(text), "\n")
		if _, err := fmt.Sscanf(head, "// LogGOPSim -L %d -o %d -g %d -G %d -O %d -S %d: %s", &p.L, &p.o, &p.g, &p.G,
			&p.O, &p.S, &list); err != nil {
			t.Fatalf("%s: %v", f, err)
		}
		s, err := goal.Parse(f, text)
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range strings.Split(list, ",") {
			if got := run(t, s, p.model())[i]; strconv.Itoa(got) != want {
				t.Errorf("%s: rank %d ends at %d, LogGOPSim's at %s", f, i, got, want)
			}
		}
	}
}

// TestAgainstLogGOPSim plays random schedules beside LogGOPSim itself. It needs the folder with its two programs in
// LOGGOPSIM; CONTRIBUTING.md says how to get them.
func TestAgainstLogGOPSim(t *testing.T) {
	folder := os.Getenv("LOGGOPSIM")
	if folder == "" {
		t.Skip("LOGGOPSIM is not set")
	}
	count := 200
	if n, err := strconv.Atoi(os.Getenv("LOGGOPSIM_COUNT")); err == nil {
		count = n
	}
	for seed := range count {
		r := rand.New(rand.NewPCG(uint64(seed), 1))
		p := parameters{L: r.IntN(5000), o: r.IntN(3000), g: r.IntN(3000), G: r.IntN(8), S: 65535}
		if r.IntN(2) == 0 {
			p.S = 1 + r.IntN(3000)
		}
		if r.IntN(3) == 0 {
			p.O = r.IntN(4)
		}
		s := random(t, r)
		want := theirs(t, folder, s, p)
		got := run(t, s, p.model())
		for i := range want {
			if got[i] != want[i] {
				t.Errorf("seed %d, %+v: rank %d ends at %d, LogGOPSim's at %d", seed, p, i, got[i], want[i])
				break
			}
		}
		if dir := os.Getenv("LOGGOPSIM_KEEP"); dir != "" && !t.Failed() {
			head := fmt.Sprintf("// LogGOPSim -L %d -o %d -g %d -G %d -O %d -S %d: %s\n", p.L, p.o, p.g, p.G, p.O, p.S,
				strings.ReplaceAll(strings.Trim(fmt.Sprint(want), "[]"), " ", ","))
			if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("random%d.goal", seed)),
				goal.AppendText([]byte(head), s), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// few is how many operations a rank of a random schedule has at most. LogGOPSim sorts those that can begin at one
// moment by their kind with C++'s std::sort, which keeps the order of equal ones only up to sixteen.
const few = 16

// random is a schedule of a few ranks that cannot get stuck: messages and calculations are drawn one after the other,
// and an operation waits only for those of its rank that were drawn before it.
func random(t *testing.T, r *rand.Rand) *job.Schedule {
	ranks := 2 + r.IntN(7)
	b := job.NewBuilder(ranks)
	last := make([]int, ranks) // operations so far
	wait := func(rank int, op uint32) {
		for range r.IntN(3) {
			if op > 0 {
				on := uint32(r.IntN(int(op)))
				if r.IntN(4) == 0 {
					b.AfterBegun(rank, op, on)
				} else {
					b.After(rank, op, on)
				}
			}
		}
		last[rank]++
	}
	for n := range 5 + r.IntN(40) {
		if slices.Max(last) >= few {
			break
		}
		if r.IntN(3) == 0 {
			rank := r.IntN(ranks)
			wait(rank, b.Calc(rank, uint64(r.IntN(5000))))
			continue
		}
		from := r.IntN(ranks)
		to := (from + 1 + r.IntN(ranks-1)) % ranks
		size := uint64(1 + r.IntN(4000))
		wait(from, b.Send(from, to, size, uint32(n)))
		wait(to, b.Recv(to, from, size, uint32(n)))
	}
	s, err := b.Schedule()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// theirs runs LogGOPSim.
func theirs(t *testing.T, folder string, s *job.Schedule, p parameters) []int {
	t.Helper()
	text, bin := filepath.Join(t.TempDir(), "s.goal"), filepath.Join(t.TempDir(), "s.bin")
	if err := os.WriteFile(text, goal.AppendText(nil, s), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(filepath.Join(folder, "txt2bin"), "-i", text, "-o", bin).CombinedOutput(); err != nil {
		t.Fatalf("txt2bin: %v: %s", err, out)
	}
	made, err := os.ReadFile(bin)
	if err != nil {
		t.Fatal(err)
	}
	if ours := goal.AppendBinary(nil, s); string(ours) != string(made) {
		t.Fatalf("txt2bin writes %d bytes and we %d, or others", len(made), len(ours))
	}
	args := []string{"-f", bin}
	for _, a := range []struct {
		name  string
		value int
	}{{"-L", p.L}, {"-o", p.o}, {"-g", p.g}, {"-G", p.G}, {"-O", p.O}, {"-S", p.S}} {
		args = append(args, a.name, strconv.Itoa(a.value))
	}
	out, err := exec.Command(filepath.Join(folder, "LogGOPSim"), args...).CombinedOutput()
	if err != nil {
		t.Fatalf("LogGOPSim: %v: %s", err, out)
	}
	ends := make([]int, len(s.Ranks))
	for line := range strings.Lines(string(out)) {
		var host, at int
		if n, _ := fmt.Sscanf(line, "Host %d: %d", &host, &at); n == 2 && host < len(ends) {
			ends[host] = at
		}
	}
	return ends
}
