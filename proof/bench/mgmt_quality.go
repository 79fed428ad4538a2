package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"

	"softib/proto/ib"
	"softib/proto/topo"
	"softib/subnet/route"
)

// qualityEngines are the engines that both sides have. OpenSM's nue has one lane unless it is told otherwise.
var qualityEngines = []string{"ftree", "updn", "minhop", "dfsssp", "nue"}

// quality holds our tables against OpenSM's for the same fabric with the same addresses, whole and damaged, by the same
// judge.
func (m *management) quality(ctx context.Context) error {
	if err := m.qualityOf(ctx, m.middle, qualityEngines, 3,
		route.JudgeOptions{Seed: 1, Shifts: -1, Randoms: 200}); err != nil {
		return err
	}
	if !m.long {
		return nil
	}
	return m.qualityOf(ctx, m.fabric, []string{"ftree", "updn", "minhop"}, 1,
		route.JudgeOptions{Seed: 1, Shifts: 256, Randoms: 64})
}

// qualityOf compares engines on one fabric; seeds is how many ways to damage it are tried.
func (m *management) qualityOf(ctx context.Context, spec string, engines []string, seeds int,
	o route.JudgeOptions) error {
	whole, err := m.graph(spec)
	if err != nil {
		return err
	}
	for _, engine := range engines {
		percents := []int{0, 1, 5}
		if m.smoke {
			percents, seeds = []int{5}, 1
		}
		for _, percent := range percents {
			tries := seeds
			if percent == 0 {
				tries = 1
			}
			var c contest
			for seed := range tries {
				progress("tables of %s by %s, %d %% of links removed, %d of %d", spec, engine, percent, seed+1, tries)
				g, err := damaged(whole, percent, uint64(seed)+1)
				if err != nil {
					return err
				}
				if err := m.contest(ctx, &c, g, engine, o); m.absent(err) {
					m.add(line{what: "tables compared", peer: err.Error()})
					return nil
				} else if err != nil {
					return fmt.Errorf("%s, %d %% of links removed: %w", engine, percent, err)
				}
			}
			m.add(c.line(fmt.Sprintf("%s tables, %d %% of links removed: %s", engine, percent, size(whole))))
		}
	}
	return nil
}

// damaged removes a share of the cables between switches, chosen by a seed, but none without which a switch or a host
// would be alone.
func damaged(g *topo.Graph, percent int, seed uint64) (*topo.Graph, error) {
	g = g.Clone()
	var cables []topo.Cable
	uplinks := make([]int, len(g.Nodes))
	for _, c := range g.Cables() {
		if g.Nodes[c.A.Node].IsSwitch() && g.Nodes[c.B.Node].IsSwitch() {
			cables = append(cables, c)
			uplinks[c.A.Node]++
			uplinks[c.B.Node]++
		}
	}
	r := rand.New(rand.NewPCG(seed, 3))
	r.Shuffle(len(cables), func(i, j int) { cables[i], cables[j] = cables[j], cables[i] })
	left := (len(cables)*percent + 50) / 100
	for _, c := range cables {
		if left == 0 {
			break
		}
		if uplinks[c.A.Node] < 2 || uplinks[c.B.Node] < 2 {
			continue
		}
		if err := g.Disconnect(c.A.Node, c.A.Port); err != nil {
			return nil, err
		}
		uplinks[c.A.Node]--
		uplinks[c.B.Node]--
		left--
	}
	return g, nil
}

// contest collects what tables of both sides are worth.
type contest struct {
	ours, theirs []route.Report
	fallbacks    []string
}

// contest lets both sides route a fabric.
func (m *management) contest(ctx context.Context, c *contest, g *topo.Graph, engine string,
	o route.JudgeOptions) error {
	run, err := m.openSM(ctx, g, engine, logUsual|logTables)
	if err != nil {
		return err
	}
	dump, err := route.ParseLFTDump("opensm-lfts.dump", run.lfts)
	if err != nil {
		return err
	}
	n := route.FromGraphLIDs(g, func(r topo.PortRef) (ib.LID,
		uint8) {
		return dump.LIDs[g.Nodes[r.Node].PortGUID(r.Port)], 0
	})
	theirs, missing := dump.Tables(n)
	if len(missing) > 0 {
		return fmt.Errorf("OpenSM's dump lacks %d switches", len(missing))
	}
	// A chain, as an operator would write it: what one engine refuses the next one takes, as OpenSM falls back to
	// minhop.
	chain := engine
	if engine == "ftree" {
		chain = "ftree,updn"
	}
	result, err := route.Compute(n, chain, route.Options{})
	if err != nil {
		return err
	}
	theirs.Engine = run.engine
	c.ours = append(c.ours, route.Judge(n, result.Tables, o))
	c.theirs = append(c.theirs, route.Judge(n, theirs, o))
	if run.engine != engine {
		c.fallbacks = append(c.fallbacks, run.engine)
	}
	return nil
}

// line sums a contest up. Under shifts, all of which are sent, the largest congestion counts. Under random permutations
// the mean of each one's largest does: the largest of a few hundred is luck, one more or less, though it is shown too.
func (c *contest) line(what string) line {
	l := line{what: what, ours: worth(c.ours), peer: worth(c.theirs), target: "never worse", met: pass}
	worst := 0.0
	for i, a := range c.ours {
		b := c.theirs[i]
		worst = max(worst, float64(a.Shift.Max)/float64(b.Shift.Max), a.Random.Average/b.Random.Average)
		if !sound(a) {
			l.met = short
		}
	}
	l.ratio = fmt.Sprintf("%.2f", worst)
	const noise = 0.02 // of a ratio of means over a few hundred permutations
	if worst > 1+noise {
		l.met = short
	}
	if len(c.fallbacks) > 0 {
		l.peer += ", fell back to " + c.fallbacks[0]
	}
	return l
}

// sound reports whether tables join what cables join, without loops. Minhop promises no more.
func sound(r route.Report) bool {
	return r.Unreached == 0 && r.Looping == 0 && (r.Cycle == nil || r.Engine == "minhop")
}

// worth is the maximum congestion under permutations, for each of a few damages, and what is wrong with the tables:
// under shifts the largest, under random ones the mean of the largest and the largest of all.
func worth(reports []route.Report) string {
	var shift, random []string
	unreached, deadlock := int64(0), false
	for _, r := range reports {
		shift = append(shift, fmt.Sprint(r.Shift.Max))
		random = append(random, fmt.Sprintf("%.1f/%d", r.Random.Average, r.Random.Max))
		unreached += r.Unreached
		// A dump has no service levels, without which nothing can be said of tables that need them.
		deadlock = deadlock || r.Cycle != nil && r.Engine != "dfsssp"
	}
	text := fmt.Sprintf("shift %s, random %s", strings.Join(shift, " "), strings.Join(random, " "))
	if unreached > 0 {
		text += fmt.Sprintf(", %d pairs unreached", unreached)
	}
	if deadlock {
		text += ", can deadlock"
	}
	return text
}
