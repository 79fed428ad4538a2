package main

import (
	"fmt"
	"strings"

	"softib/subnet/route"
)

// print shows one judged table set: a line for each question.
func (x *judged) print(t *terminal) {
	r := x.Report
	head := fmt.Sprintf("%s, tables by %s", t.bold(x.Subject), t.bold(x.Engine))
	if x.Engine == "in force" {
		head = fmt.Sprintf("%s, tables %s", t.bold(x.Subject), t.bold(x.Engine))
	}
	if r == nil {
		t.say("%s", head)
		x.refusals(t)
		return
	}
	if x.Engine == "in force" && r.Engine != "" {
		head += ", by " + r.Engine
	}
	if x.TookSec > 0 {
		head += ", computed in " + seconds(x.TookSec)
	}
	t.say("%s", head)
	x.refusals(t)
	for _, n := range x.Notes {
		l := t.under("note")
		for _, line := range wrapped(n, 68) {
			l.row("%s", line)
		}
	}
	verdict := t.green("good")
	if !x.OK {
		verdict = t.red("NOT GOOD")
	}
	t.under("verdict").row("%s", verdict)
	t.under("network").row("%s, %s, %s between switches", numbered(r.Switches, "switch", "switches"),
		numbered(r.EndPorts, "end port", "end ports"), numbered(r.Links, "link", "links"))
	x.reach(t)
	x.deadlock(t)
	l := t.under("hops")
	l.row("%.2f links between switches on average, %d at most", r.HopsAverage, r.HopsMax)
	total := int64(0)
	for _, n := range r.Hops {
		total += n
	}
	for h, n := range r.Hops {
		if n > 0 {
			share := float64(n) / float64(total)
			l.row("%2d %s %5.1f %% %12d ways", h, bar(share), 100*share, n)
		}
	}
	if r.Links > 0 {
		l = t.under("ways/link")
		l.row("%d to %d, %.1f on average; the most on", r.LinkUse.Min, r.LinkUse.Max, r.LinkUse.Average)
		l.row("%s", x.w.Step(r.LinkUse.Busiest.Switch, r.LinkUse.Busiest.Port))
	}
	if r.Shift.Permutations > 0 {
		l = t.under("congestion")
		l.row("everybody sends to somebody else at once; flows on the fullest link:")
		l.row("shifts  %4d at most, %6.2f on average over %d", r.Shift.Max, r.Shift.Average, r.Shift.Permutations)
		l.row("random  %4d at most, %6.2f on average over %d", r.Random.Max, r.Random.Average, r.Random.Permutations)
		l = t.under("bandwidth")
		l.row("%.1f %% effective bisection under random permutations,", 100*r.Bisection)
		l.row("%.1f %% under shifts", 100*r.Shift.Bandwidth)
	}
	if a := x.Choices; a != nil {
		l = t.under("adaptive")
		l.row("%.1f %% of the ways have a choice, of %.1f ports on average", 100*float64(a.Pairs)/
			float64(max(a.All, 1)), a.Ports)
		if a.Detours > 0 {
			l.row("%.1f %% have detours, by way of a third group", 100*float64(a.Detours)/float64(max(a.All, 1)))
		}
		switch {
		case a.Unreached > 0:
			l.row("%s", t.red(fmt.Sprintf("%d ways do NOT arrive if switches choose badly", a.Unreached)))
		case a.Cycle != nil:
			l.row("%s", t.red(fmt.Sprintf("%d links can wait for each other", len(a.Cycle))))
		default:
			l.row("whatever is chosen arrives, and nothing waits in a circle")
		}
	}
	if m := x.Mended; m != nil {
		l = t.under("mending")
		how := "computed in " + seconds(m.TookSec)
		if m.Whole {
			how = "starting over took " + seconds(m.TookSec)
		}
		l.row("tables of the whole network change in %s", numbered(m.Entries, "entry", "entries"))
		l.row("on %s, %s to write; %s", numbered(m.Switches, "switch", "switches"),
			numbered(m.Blocks, "block", "blocks"), how)
	}
}

// row is say with a wider label.
func (l *listing) row(format string, v ...any) {
	l.to.say("%-11s %s", l.label, fmt.Sprintf(format, v...))
	l.label = ""
}

// bar draws a share.
func bar(share float64) string {
	n := int(20*share + 0.5)
	return strings.Repeat("#", n) + strings.Repeat(".", 20-n)
}

func (x *judged) refusals(t *terminal) {
	l := t.under("refused")
	for _, why := range x.Refused {
		for _, line := range wrapped(why, 68) {
			l.row("%s", line)
		}
	}
}

// reach prints which pairs are joined, and loops.
func (x *judged) reach(t *terminal) {
	r, w := x.Report, x.w
	l := t.under("reachable")
	if r.Unreached == 0 {
		l.row("all %d pairs", r.Pairs)
	} else {
		l.row("%s", t.red(fmt.Sprintf("%d of %d pairs are NOT", r.Unreached, r.Pairs)))
		for _, m := range r.Misses {
			at := fmt.Sprintf("has no way on at %s", w.Switches[m.At])
			if m.Why == "loop" {
				at = fmt.Sprintf("runs in a circle through %s", w.Switches[m.At])
			}
			l.row("hosts of %s to %s: %s", w.Switches[m.From], w.Dest(m.To), at)
		}
		if r.Unreached > int64(len(r.Misses)) {
			l.row("and more")
		}
	}
	if r.Apart > 0 {
		l.row("%d more pairs have no cable between them", r.Apart)
	}
	if r.BareUnreached > 0 {
		l.row("%d entries of switches without hosts are missing:", r.BareUnreached)
		l.row("only their own management packets suffer")
	}
	l = t.under("loops")
	if r.Looping == 0 {
		l.row("none")
		return
	}
	l.row("%s", t.red(fmt.Sprintf("%d entries lead into one", r.Looping))+
		fmt.Sprintf("; to %s it goes", w.Dest(r.LoopLID)))
	x.circle(l, x.Loop)
}

func (x *judged) deadlock(t *terminal) {
	r := x.Report
	l := t.under("deadlock")
	if r.Cycle == nil {
		l.row("none possible: %s, %d dependencies, no cycle", numbered(r.VLs, "lane", "lanes"), r.Dependencies)
		return
	}
	l.row("%s: on %s these %d wait for each other", t.red("POSSIBLE"), numbered(r.VLs, "lane", "lanes"), len(r.Cycle))
	x.circle(l, x.Deadlock)
}

// circleMost is how many steps of a circle are shown.
const circleMost = 24

func (x *judged) circle(l *listing, steps []string) {
	for i, s := range steps {
		if i == circleMost {
			l.row("  and %d more: --json lists them", len(steps)-i)
			return
		}
		l.row("  %s", s)
	}
	l.row("  and round again")
}

// printTable compares several table sets, a line each.
func (c *checking) printTable(t *terminal, list []*judged) {
	n := c.w.Net
	ends := 0
	for i := range n.Switches {
		ends += n.Switches[i].Ends
	}
	t.say("%s", t.bold(c.title))
	t.say("%s, %s, %s between switches", numbered(len(n.Switches), "switch", "switches"),
		numbered(ends, "end port", "end ports"), numbered(len(n.Links()), "link", "links"))
	for _, note := range c.notes {
		t.say("%s", note)
	}
	const widest = 11 // that leaves room for the figures
	wide := len("tables")
	label := func(x *judged) string {
		if r := []rune(x.Engine); len(r) > widest {
			return string(r[:widest-1]) + "…"
		}
		return x.Engine
	}
	for _, x := range list {
		wide = max(wide, len([]rune(label(x))))
	}
	t.say("")
	const heads = "%-*s  %-9s %5s %4s %5s %5s %6s %5s %6s %6s %7s"
	t.say("%s", strings.TrimRight(fmt.Sprintf(heads, wide, "", "", "", "hops", "", "shift", "", "rand.", "", "band-",
		""), " "))
	t.say("%s", t.bold(fmt.Sprintf(heads, wide, "tables", "verdict", "lanes", "max", "avg", "max", "avg", "max", "avg",
		"width", "time")))
	for _, x := range list {
		r := x.Report
		if r == nil {
			for i, line := range wrapped("refused: "+strings.Join(x.Refused, "; "), 76-wide) {
				name := ""
				if i == 0 {
					name = label(x)
				}
				t.say("%-*s  %s", wide, name, line)
			}
			continue
		}
		took := ""
		if x.TookSec > 0 {
			took = seconds(x.TookSec)
		}
		t.say("%s", strings.TrimRight(fmt.Sprintf("%-*s  %s %5d %4d %5.2f %5d %6.2f %5d %6.2f %5.1f%% %7s", wide,
			label(x), verdictWord(t, x), r.VLs, r.HopsMax, r.HopsAverage,
			r.Shift.Max, r.Shift.Average, r.Random.Max, r.Random.Average, 100*r.Bisection, took), " "))
	}
	t.say("")
	t.say("hops: links between switches; shift and random permutations: flows on the")
	t.say("fullest link when everybody sends at once; bandwidth: effective bisection")
	for _, x := range list {
		if x.Report == nil || x.OK {
			continue
		}
		t.say("")
		t.say("%s", t.bold(x.Engine))
		for _, n := range x.Notes[len(c.notes):] {
			t.under("note").row("%s", n)
		}
		if x.Report.Unreached > 0 || x.Report.Looping > 0 {
			x.reach(t)
		}
		if x.Report.Cycle != nil {
			x.deadlock(t)
		}
	}
}

// verdictWord is the worst that is to be said, 9 characters wide.
func verdictWord(t *terminal, x *judged) string {
	word := func(r *route.Report) string {
		switch {
		case r.Looping > 0:
			return "LOOPS"
		case r.Unreached > 0:
			return "UNREACHED"
		case r.Cycle != nil:
			return "DEADLOCK"
		}
		return "good"
	}(x.Report)
	padded := fmt.Sprintf("%-9s", word)
	if x.OK {
		return t.green(padded)
	}
	return t.red(padded)
}
