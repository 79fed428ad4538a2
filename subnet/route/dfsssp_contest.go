package route

import (
	"math/rand/v2"

	"softib/proto/ib"
)

// Rounds of a contest: each one costs as much as the first routing.
const (
	roundsSmall = 4
	roundsLarge = 2
)

// contest keeps the best of several routings: routing again evens out the links, which is good under random traffic,
// but may break a pattern that is good under shifts. The best tables are those under which fewest flows of a shift
// share a link, and of those the last ones.
type contest struct {
	s *spread
	f *flows
	// left are the routings that have not been judged yet.
	left  int
	least int
	kept  []ib.PortNum
}

func (s *spread) newContest() *contest {
	c := &contest{s: s, f: newFlows(newWalker(s.chart, s.t)), left: roundsSmall}
	if len(c.f.at) > smallNetwork {
		c.left = roundsLarge
	}
	return c
}

// another judges the tables as they are and says whether to route again. In the end the tables are the best ones.
func (c *contest) another() bool {
	if len(c.f.at) < 2 {
		return false
	}
	worst := c.f.shift(0, rand.New(rand.NewPCG(1, judgeStream))).Max
	if c.kept == nil || worst <= c.least {
		c.least = worst
		c.kept = append(c.kept[:0], c.s.all...)
	}
	c.left--
	if c.left == 0 {
		copy(c.s.all, c.kept)
	}
	return c.left > 0
}
