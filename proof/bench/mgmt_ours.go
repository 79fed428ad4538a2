package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"softib/proto/topo"
)

// upRun is what one run of softib up took.
type upRun struct {
	up      time.Duration // from the start of the process to the moment at which its subnet was up
	manager time.Duration // the manager's part: its first sweep
	whole   time.Duration // until the command said that all is up: with ports looked at, history, mesh and page
	memory  float64       // of the whole process by then: the fabric with all its nodes, and the manager
}

// softibUp starts a fabric, waits until it is up and says so, asks it what there is to ask, and ends it.
func (m *management) softibUp(ctx context.Context, spec string, ask ...func(env []string) error) (run upRun,
	err error) {
	ctx, cancel := m.patient(ctx, "softib up "+spec+" --json to print its status")
	defer cancel()
	state, err := os.MkdirTemp(m.dir, "state-") // the tenants of another round are not ours
	if err != nil {
		return run, err
	}
	// Without later sweeps the last one is the first.
	env := []string{"XDG_RUNTIME_DIR=" + m.dir, "XDG_STATE_HOME=" + m.dir, "GOMAXPROCS=2"}
	cmd := command(ctx, env, m.softib, "up", spec, "--name", "bench", "--sweep", "0", "--state", state, "--json")
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.StdoutPipe()
	if err != nil {
		return run, err
	}
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return run, err
	}
	peak := watchMemory(cmd.Process.Pid)
	var status struct {
		Sweep struct {
			Began   time.Time `json:"began"`
			TookSec float64   `json:"took_sec"`
		} `json:"last_sweep"`
		Manager struct {
			Sweeps int `json:"sweeps"`
		} `json:"manager"`
	}
	err = gaveUp(ctx, json.NewDecoder(out).Decode(&status))
	run.manager = time.Duration(status.Sweep.TookSec * float64(time.Second))
	up := status.Sweep.Began.Add(run.manager)
	run.up, run.whole, run.memory = up.Sub(began), time.Since(began), peak(up)
	for i := 0; err == nil && i < len(ask); i++ {
		err = ask[i](env)
	}
	cancel()
	_, _ = io.Copy(io.Discard, out) // what it still has to say, so that it can end
	ended := cmd.Wait()
	switch {
	case err != nil:
		return run, fmt.Errorf("softib up %s: %w (%v)\n%s", spec, err, ended, tail(said.Bytes()))
	case status.Manager.Sweeps != 1 || run.manager <= 0 || run.up < run.manager:
		return run, fmt.Errorf("softib up %s: %d sweeps, the last of %v, %v after the start: want one, the first", spec,
			status.Manager.Sweeps, run.manager, run.up)
	}
	return run, nil
}

// smRun is what one run of softib sm --once took.
type smRun struct {
	whole  time.Duration
	cpu    time.Duration
	memory float64
}

// softibSM lets our manager bring a fabric up once, on an ibsim of its own.
func (m *management) softibSM(ctx context.Context, spec string) (run smRun, err error) {
	g, err := m.graph(spec)
	if err != nil {
		return run, err
	}
	sim, err := m.startSimulator(ctx, g)
	if err != nil {
		return run, err
	}
	defer sim.stop()
	ctx, cancel := m.patient(ctx, "softib sm --on ibsim --once to end on "+spec)
	defer cancel()
	cmd := command(ctx, []string{"IBSIM_SOCKNAME=" + sim.socket}, m.softib, "sm", "--on", "ibsim:"+sim.host, "--once")
	began := time.Now()
	out, memory, err := watched(cmd)
	run.whole, run.memory, run.cpu = time.Since(began), memory, cpuTime(cmd)
	if err != nil {
		return run, fmt.Errorf("softib sm --on ibsim: %w\n%s", gaveUp(ctx, err), tail(out))
	}
	return run, nil
}

// up compares a cold start of a whole fabric with OpenSM's on ibsim. OpenSM runs in the middle of our rounds.
func (m *management) up(ctx context.Context) error {
	g, err := m.graph(m.fabric)
	if err != nil {
		return err
	}
	var whole, part, memory, theirs, theirMemory sample
	memory.unit, theirMemory.unit = inBytes, inBytes
	for round := range m.rounds {
		progress("round %d of %d: softib up %s", round+1, m.rounds, m.fabric)
		r, err := m.softibUp(ctx, m.fabric)
		if err != nil {
			return err
		}
		whole.took(r.up)
		part.took(r.manager)
		memory.values = append(memory.values, r.memory)
		if round != m.rounds/2 {
			continue
		}
		for _, engine := range []string{"", "ftree"} {
			mask := logUsual
			if engine != "" {
				mask |= logPhases // the same run says what the routing took
			}
			peer, err := m.openSMOnce(ctx, engine, mask)
			if m.absent(err) {
				break
			}
			if err != nil {
				return err
			}
			theirs.took(peer.up)
			theirMemory.values = append(theirMemory.values, peer.memory)
		}
	}
	note := ""
	if len(theirs.values) > 0 {
		// The faster of its two usual engines, so that nobody can say that we chose.
		theirs.values = []float64{slices.Min(theirs.values)}
		theirMemory.values = []float64{slices.Min(theirMemory.values)}
		note = "(the better of minhop, ftree)"
	}
	m.compare(fmt.Sprintf("softib up, start to SUBNET UP: %s", size(g)), whole, theirs, note, 1.0/25)
	m.compare("– the manager's part of it", part, theirs, "", 0)
	m.compare("– memory of the whole process, all nodes included", memory, theirMemory, "", 0)
	return nil
}

// onIBSim compares both managers as processes on the same simulator.
func (m *management) onIBSim(ctx context.Context) error {
	var whole, cpu, memory, theirs, theirCPU, theirMemory sample
	memory.unit, theirMemory.unit = inBytes, inBytes
	for round := range m.rounds {
		progress("round %d of %d: softib sm --on ibsim, %s", round+1, m.rounds, m.fabric)
		r, err := m.softibSM(ctx, m.fabric)
		if m.absent(err) {
			m.add(line{what: "softib sm --on ibsim --once", ours: "not measured", peer: err.Error()})
			return nil
		}
		if err != nil {
			return err
		}
		whole.took(r.whole)
		cpu.took(r.cpu)
		memory.values = append(memory.values, r.memory)
		if round != m.rounds/2 {
			continue
		}
		for _, engine := range []string{"", "ftree"} {
			mask := logUsual
			if engine != "" {
				mask |= logPhases
			}
			peer, err := m.openSMOnce(ctx, engine, mask)
			if m.absent(err) {
				break
			}
			if err != nil {
				return err
			}
			theirs.took(peer.whole)
			theirCPU.took(peer.cpu)
			theirMemory.values = append(theirMemory.values, peer.memory)
		}
	}
	if len(theirs.values) > 0 {
		theirs.values = []float64{slices.Min(theirs.values)}
		theirCPU.values = []float64{slices.Min(theirCPU.values)}
		theirMemory.values = []float64{slices.Min(theirMemory.values)}
	}
	m.compare("softib sm --on ibsim --once, whole process (opensm -o)", whole, theirs, "", 1.0/5)
	m.compare("– processor time of that process", cpu, theirCPU, "", 0)
	m.compare("– memory of that process: the manager's part", memory, theirMemory, "", 1.0/2)
	return nil
}

// asked is a command for a fabric that is up, and how many seconds it may take, as somebody who types it counts them; 0
// if there is no target.
type asked struct {
	args []string
	most float64
}

// upHugeMost is within how many seconds the largest fabric is to be up.
const upHugeMost = 15

// askedOfHuge is what the largest fabric is asked, as people type it: what a command waits for to measure it is part of
// what it takes. docs/TRUTH.md says the targets.
func askedOfHuge(g *topo.Graph) []asked {
	return []asked{
		{args: []string{"status"}},
		{args: []string{"top", "-n", "1"}, most: 2},
		{args: []string{"doctor"}, most: 20},
		{args: []string{"tenant", "create", "red", "--hosts", g.Hosts()[0].Name}},
		{args: []string{"tenant", "add", "red", g.Hosts()[1].Name}},
	}
}

// upHuge brings up the largest fabric that addresses suffice for.
func (m *management) upHuge(ctx context.Context) error {
	g, err := m.graph(m.huge)
	if err != nil {
		return err
	}
	var up, whole, memory sample
	memory.unit = inBytes
	ask := askedOfHuge(g)
	clocks := make([]sample, len(ask))
	for round := range m.few() {
		progress("round %d of %d: softib up %s", round+1, m.few(), m.huge)
		r, err := m.softibUp(ctx, m.huge, func(env []string) error {
			for i, a := range ask {
				progress("round %d of %d: softib %s", round+1, m.few(), strings.Join(a.args, " "))
				began := time.Now()
				if _, err := m.output(ctx, env, m.softib, append(slices.Clone(a.args), "--name",
					"bench")...); err != nil {
					return err
				}
				clocks[i].took(time.Since(began))
			}
			return nil
		})
		if err != nil {
			return err
		}
		up.took(r.up)
		whole.took(r.whole)
		memory.values = append(memory.values, r.memory)
	}
	m.limit(fmt.Sprintf("softib up on 2 cores: %s", size(g)), up, upHugeMost, sample{}, "")
	m.add(line{what: "– until the command says so", ours: whole.String()})
	m.add(line{what: "– memory of the whole process, all nodes included", ours: memory.String()})
	for i, a := range ask {
		what := "– softib " + strings.Join(a.args, " ")
		if a.most > 0 {
			m.limit(what, clocks[i], a.most, sample{}, "")
		} else {
			m.add(line{what: what, ours: clocks[i].String()})
		}
	}
	return nil
}

// few is the number of rounds for what takes long.
func (m *management) few() int { return min(m.rounds, 3) }

// paths is what a path costs that somebody asks the administrator for.
func (m *management) paths(ctx context.Context) error {
	var took sample
	for range m.rounds {
		progress("PathRecord")
		out, err := m.goBench(ctx, "./subnet/sa", "PathGet$", 200000)
		if err != nil {
			return err
		}
		ns, err := metric(out, "ns/op")
		if err != nil {
			return err
		}
		took.values = append(took.values, ns/1e9)
	}
	m.limit(fmt.Sprintf("PathRecord answered, 11664 hosts: %.2g million a second", 1e-6/took.median()), took, 10e-6,
		sample{}, "")
	return nil
}
