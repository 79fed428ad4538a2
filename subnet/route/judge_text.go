package route

import (
	"fmt"
	"strings"
)

// String is the report for a terminal: a line for each question, the answers first.
func (r Report) String() string {
	var b strings.Builder
	line := func(what, format string, v ...any) {
		fmt.Fprintf(&b, "%-14s %s\n", what, fmt.Sprintf(format, v...))
	}
	engine := r.Engine
	if engine == "" {
		engine = "tables of another"
	}
	verdict := "good"
	if !r.OK() {
		verdict = "NOT GOOD"
	}
	line("verdict", "%s (%s; %d switches, %d end ports, %d links between switches)", verdict, engine, r.Switches,
		r.EndPorts, r.Links)
	if r.Unreached == 0 {
		line("reachable", "all %d pairs", r.Pairs)
	} else {
		line("reachable", "%d of %d pairs are NOT", r.Unreached, r.Pairs)
		for _, m := range r.Misses {
			line("", "%s to LID %d: %s at %s", r.sw(m.From), m.To, m.Why, r.sw(m.At))
		}
	}
	if r.Apart > 0 {
		line("", "%d more pairs have no cable between them", r.Apart)
	}
	if r.BareUnreached > 0 {
		line("", "switches without end ports miss %d LIDs: only their own management packets suffer", r.BareUnreached)
	}
	if r.Looping == 0 {
		line("loops", "none")
	} else {
		line("loops", "%d entries lead into one; LID %d goes round:", r.Looping, r.LoopLID)
		for _, s := range r.Loop {
			line("", "%s port %d", r.sw(s.Switch), s.Port)
		}
	}
	if r.Cycle == nil {
		line("deadlock", "none possible: %d dependencies on %s, no cycle", r.Dependencies,
			plural(r.VLs, "lane", "lanes"))
	} else {
		line("deadlock", "POSSIBLE: these %d channels wait for each other in a circle:", len(r.Cycle))
		for _, c := range r.Cycle {
			line("", "%s port %d VL %d", r.sw(c.Switch), c.Port, c.VL)
		}
	}
	line("hops", "%.2f on average, %d at most", r.HopsAverage, r.HopsMax)
	total := int64(0)
	for _, count := range r.Hops {
		total += count
	}
	for h, count := range r.Hops {
		if count > 0 {
			line("", "%3d: %12d ways %5.1f %%", h, count, 100*float64(count)/float64(total))
		}
	}
	line("ways per link", "%d at most (%s port %d), %.1f on average, %d at least", r.LinkUse.Max,
		r.sw(r.LinkUse.Busiest.Switch), r.LinkUse.Busiest.Port, r.LinkUse.Average, r.LinkUse.Min)
	line("congestion", "shifts:  %d flows on a link at most, %.2f on average (%s)", r.Shift.Max, r.Shift.Average,
		plural(r.Shift.Permutations, "permutation", "permutations"))
	line("", "random:  %d flows on a link at most, %.2f on average (%s)", r.Random.Max, r.Random.Average,
		plural(r.Random.Permutations, "permutation", "permutations"))
	line("bisection", "%.1f %% of the bandwidth is effective under random permutations, %.1f %% under shifts",
		100*r.Bisection, 100*r.Shift.Bandwidth)
	if r.Changed != nil {
		line("changed", "%s on %s, in %s; %s", plural(r.Changed.Entries, "entry", "entries"),
			plural(r.Changed.Switches, "switch", "switches"),
			plural(r.Changed.Blocks, "block", "blocks"), plural(r.Changed.Levels, "service level", "service levels"))
	}
	return b.String()
}

// sw names a switch by number and GUID.
func (r *Report) sw(s int32) string {
	if s < 0 || int(s) >= len(r.guids) {
		return "no switch"
	}
	return fmt.Sprintf("switch %d (%v)", s, r.guids[s])
}

func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
