package check

import (
	"slices"

	"softib/proto/ib"
)

// mgmtShrinker cuts a failing management scenario down.
type mgmtShrinker struct {
	small   Management
	checker string
	left    int
	last    Result
}

// try keeps a smaller scenario if it fails in the same way.
func (s *mgmtShrinker) try(sc Management) bool {
	if s.left == 0 {
		return false
	}
	s.left--
	res := RunManagement(&sc)
	if !slices.ContainsFunc(res.Violations, func(v Violation) bool { return v.Checker == s.checker }) {
		return false
	}
	s.small, s.last = sc, res
	return true
}

func (s *mgmtShrinker) all() {
	for progress := true; progress && s.left > 0; {
		progress = s.faults()
		progress = s.managers() || progress
		progress = s.conns() || progress
		progress = s.attacks() || progress
		progress = s.knobs() || progress
	}
}

// faults drops faults: halves first, then one by one.
func (s *mgmtShrinker) faults() bool {
	any := false
	for size := max(1, len(s.small.Faults)/2); size >= 1; size /= 2 {
		for at := 0; at+size <= len(s.small.Faults); {
			sc := s.small
			sc.Faults = slices.Delete(slices.Clone(sc.Faults), at, at+size)
			if s.try(sc) {
				any = true
			} else {
				at += size
			}
		}
	}
	return any
}

// managers drops all managers but the first, with what befalls them.
func (s *mgmtShrinker) managers() bool {
	any := false
	for k := len(s.small.Managers) - 1; k > 0; k-- {
		sc := s.small
		sc.Managers = slices.Delete(slices.Clone(sc.Managers), k, k+1)
		sc.Faults = slices.DeleteFunc(slices.Clone(sc.Faults),
			func(f MgmtFault) bool { return f.Kind == KillManager && f.Ruler == k })
		for i := range sc.Faults {
			if sc.Faults[i].Ruler > k {
				sc.Faults[i].Ruler--
			}
		}
		any = s.try(sc) || any
	}
	return any
}

func (s *mgmtShrinker) conns() bool {
	return dropEach(s, func(sc *Management) *[]MgmtConn { return &sc.Conns })
}

func (s *mgmtShrinker) attacks() bool {
	return dropEach(s, func(sc *Management) *[]Attack { return &sc.Attacks })
}

// dropEach drops elements of a list one by one.
func dropEach[T any](s *mgmtShrinker, of func(*Management) *[]T) bool {
	any := false
	for at := 0; at < len(*of(&s.small)); {
		sc := s.small
		list := of(&sc)
		*list = slices.Delete(slices.Clone(*list), at, at+1)
		if s.try(sc) {
			any = true
		} else {
			at++
		}
	}
	return any
}

// knobs sets what need not be special to what is simple.
func (s *mgmtShrinker) knobs() bool {
	any := false
	for _, turn := range []func(*Management) bool{
		func(m *Management) bool { was := m.JobTime; m.JobTime = 0; return was != 0 },
		func(m *Management) bool {
			was := m.AgentTime
			m.AgentTime = ib.Microsecond
			return was != ib.Microsecond
		},
		func(m *Management) bool { was := m.LMC; m.LMC = 0; return was != 0 },
		func(m *Management) bool {
			was := m.MKey
			m.MKey, m.MKeyProtect, m.Tenants, m.Attacks = 0, 0, 0, nil
			return was != 0
		},
		func(m *Management) bool { was := m.Window; m.Window = 16; return was != 16 },
	} {
		if sc := s.small; turn(&sc) {
			any = s.try(sc) || any
		}
	}
	return any
}
