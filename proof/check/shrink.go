package check

import (
	"slices"
)

// shrinkRuns bounds how many scenarios are tried to make a failure small.
const shrinkRuns = 80

// keptPackets is how many packets of a failure are printed.
const keptPackets = 40

// shrink cuts the failing scenario down: fewer faults, fewer conns, fewer ops, as
// long as the same checker complains.
func (f *Failure) shrink() {
	if f.Red != nil {
		if f.Found[0].Checker != "determinism" {
			*f.Red, f.Result = redShrink(*f.Red, f.Found[0].Checker)
		}
		return
	}
	if f.Cluster != nil {
		if f.Found[0].Checker != "determinism" {
			*f.Cluster, f.Result = clusterShrink(*f.Cluster, f.Found[0].Checker)
		}
		return
	}
	if f.Mgmt != nil {
		s := &mgmtShrinker{small: *f.Mgmt, checker: f.Found[0].Checker, left: shrinkRuns, last: f.Result}
		if s.checker != "determinism" {
			s.all()
		}
		f.Mgmt, f.Result = &s.small, s.last
		return
	}
	s := &shrinker{small: f.Small, checker: f.Found[0].Checker, left: shrinkRuns}
	if s.checker != "determinism" {
		s.all()
	}
	f.Small = s.small
	var flows []int
	if s.last.Failed() {
		flows = s.last.Violations[0].Flows
	} else if len(f.Found) > 0 {
		flows = f.Found[0].Flows
	}
	f.Result = run(&f.Small, runOptions{record: keptPackets, flows: flows})
}

type shrinker struct {
	small   Scenario
	checker string
	left    int
	last    Result
}

// try keeps a smaller scenario if it fails in the same way.
func (s *shrinker) try(sc Scenario) bool {
	if s.left == 0 {
		return false
	}
	s.left--
	res := Run(&sc)
	if !slices.ContainsFunc(res.Violations, func(v Violation) bool { return v.Checker == s.checker }) {
		return false
	}
	s.small, s.last = sc, res
	return true
}

func (s *shrinker) all() {
	for progress := true; progress && s.left > 0; {
		progress = s.conns()
		progress = s.faults() || progress
		progress = s.ops() || progress
	}
}

// conns drops conns: halves first, then one by one.
func (s *shrinker) conns() bool {
	any := false
	for size := len(s.small.Work.Conns) / 2; size >= 1; size /= 2 {
		for at := 0; at+size <= len(s.small.Work.Conns) && len(s.small.Work.Conns) > size; {
			sc := s.small
			sc.Work.Conns = slices.Delete(slices.Clone(sc.Work.Conns), at, at+size)
			if s.try(sc) {
				any = true
			} else {
				at += size
			}
		}
	}
	return any
}

func (s *shrinker) faults() bool {
	any := false
	for at := 0; at < len(s.small.Faults); {
		sc := s.small
		sc.Faults = slices.Delete(slices.Clone(sc.Faults), at, at+1)
		if s.try(sc) {
			any = true
		} else {
			at++
		}
	}
	return any
}

// ops drops ops of each flow: the tail by halves, then halves from the front.
func (s *shrinker) ops() bool {
	any := false
	for i := range s.small.Work.Conns {
		for e := range 2 {
			for size := (len(s.small.Work.Conns[i].Flows[e].Ops) + 1) / 2; size >= 1; size /= 2 {
				n := len(s.small.Work.Conns[i].Flows[e].Ops)
				if n < size {
					continue
				}
				if s.try(s.without(i, e, n-size, n)) || s.try(s.without(i, e, 0, size)) {
					any = true
				}
			}
		}
	}
	return any
}

// without is the scenario less some ops of a flow. Everything else is shared.
func (s *shrinker) without(conn, end, from, to int) Scenario {
	sc := s.small
	sc.Work.Conns = slices.Clone(sc.Work.Conns)
	f := &sc.Work.Conns[conn].Flows[end]
	f.Ops = slices.Delete(slices.Clone(f.Ops), from, to)
	return sc
}
