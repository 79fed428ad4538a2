package job

import "slices"

// Merge is several schedules at once, each with ranks of its own: those of the second follow those of the first. No
// rank hears of another schedule's, so that nothing in them can be mistaken.
func Merge(list ...*Schedule) *Schedule {
	all := &Schedule{CPUs: 1, NICs: 1}
	for _, s := range list {
		first, groups := uint32(len(all.Ranks)), uint32(len(all.Groups))
		all.CPUs, all.NICs = max(all.CPUs, s.CPUs), max(all.NICs, s.NICs)
		for i := range s.Ranks {
			r := s.Ranks[i]
			if first > 0 {
				ops := make([]Op, len(r.Ops))
				for n, o := range r.Ops {
					if o.Kind != Calc && o.Peer != Any {
						o.Peer += first
					}
					if o.Kind == Aggregate {
						o.Tag += groups
					}
					ops[n] = o
				}
				r.Ops = ops
			}
			all.Ranks = append(all.Ranks, r)
		}
		for _, g := range s.Groups {
			g.Ranks = slices.Clone(g.Ranks)
			for i := range g.Ranks {
				g.Ranks[i] += first
			}
			all.Groups = append(all.Groups, g)
		}
	}
	return all
}
