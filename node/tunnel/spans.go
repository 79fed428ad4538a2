package tunnel

import "slices"

// span is the numbers from one up to, and not with, another.
type span struct{ from, to uint64 }

// spans is a set of numbers as spans in ascending order that neither overlap nor touch.
type spans []span

// search is the index of the first span that ends at x or later.
func (s spans) search(x uint64) int {
	// What is looked for is nearly always at the end, or next to it.
	if n := len(s); n == 0 || s[n-1].to < x {
		return n
	}
	i, _ := slices.BinarySearchFunc(s, x, func(a span, x uint64) int {
		if a.to < x {
			return -1
		}
		return 1
	})
	return i
}

// add puts the numbers of a span into the set.
func (s *spans) add(a span) {
	if a.from >= a.to {
		return
	}
	i := s.search(a.from)
	j := i
	for ; j < len(*s) && (*s)[j].from <= a.to; j++ {
		a.from, a.to = min(a.from, (*s)[j].from), max(a.to, (*s)[j].to)
	}
	if j == i+1 {
		(*s)[i] = a
		return
	}
	*s = slices.Replace(*s, i, j, a)
}

// has reports whether x is in the set.
func (s spans) has(x uint64) bool {
	i := s.search(x)
	if i < len(s) && s[i].to == x {
		i++
	}
	return i < len(s) && s[i].from <= x
}

// holds reports whether all numbers of a span are in the set.
func (s spans) holds(a span) bool {
	i := s.search(a.from)
	if i < len(s) && s[i].to == a.from {
		i++
	}
	return a.from >= a.to || i < len(s) && s[i].from <= a.from && a.to <= s[i].to
}

// dropBelow takes all numbers below x out of the set.
func (s *spans) dropBelow(x uint64) {
	n := 0
	for n < len(*s) && (*s)[n].to <= x {
		n++
	}
	if n > 0 {
		*s = slices.Delete(*s, 0, n)
	}
	if len(*s) > 0 && (*s)[0].from < x {
		(*s)[0].from = x
	}
}

// gap is the first span within a that has nothing of the set; it is empty if there is none.
func (s spans) gap(a span) span {
	for i := s.search(a.from); i < len(s) && s[i].from < a.to; i++ {
		if s[i].from > a.from {
			return span{a.from, s[i].from}
		}
		a.from = max(a.from, s[i].to)
	}
	return span{a.from, max(a.from, a.to)}
}
