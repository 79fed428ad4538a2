package load

import (
	"fmt"
	"slices"
	"strconv"

	"softib/job/collective"
)

// whole are the operations whose size is that of the vector that every rank has; that of the others is one rank's part
// of it, as MPI counts.
var whole = map[string]bool{"all-reduce": true, "broadcast": true, "reduce": true, "barrier": true}

// collectives are the operations of package collective as kinds.
func collectives() (list []Kind) {
	for _, op := range collective.Operations() {
		k := Kind{Name: op.Name, Help: op.Help}
		names := ""
		for _, a := range op.Algorithms() {
			names += a + ", "
		}
		k.Options = []Option{{"algorithm", "", names + "or auto for what suits size and fabric"},
			{"size", "64K", "bytes of each rank's part"}, {"count", "1", "how often, one after the other"},
			{"compute", "0", "nanoseconds of work before each"}, {"add", "0", "picoseconds that adding a byte takes"}}
		if whole[op.Name] {
			k.Options[1].Help = "bytes of the vector"
		}
		if slices.Contains(op.Algorithms(), collective.Sharp) {
			k.Options = append(k.Options, Option{"payload", strconv.Itoa(collective.SharpPayload),
				"bytes that switches take at a time, algorithm=sharp of up to 4K"})
		}
		if op.Name == "all-reduce" {
			k.Options = append(k.Options, Option{"per-host", "",
				"ranks that share a host, and reduce there first (those of a server, by auto)"})
		}
		k.make = func(m *maker) error { return m.collective(&op) }
		list = append(list, k)
	}
	return list
}

func (m *maker) collective(op *collective.Operation) error {
	bytes, count := m.number("size", 0, 1<<40), m.number("count", 1, 1<<20)
	work, add := m.number("compute", 0, 1<<40), m.number("add", 0, 1<<30)
	payload := uint64(0)
	if m.set["payload"] != "" {
		payload = m.number("payload", 8, 4<<10)
	}
	if m.err != nil {
		return m.err
	}
	if !whole[op.Name] {
		bytes *= uint64(m.n)
	}
	ranks := make([]int, m.n)
	for i := range ranks {
		ranks[i] = i
	}
	algorithm, perHost := m.way(op, bytes)
	if m.err != nil {
		return m.err
	}
	do := func(g *collective.Group) (err error) {
		if perHost > 1 {
			err = g.Hierarchical(bytes, perHost, algorithm)
		} else {
			err = op.Do(g, bytes, algorithm)
		}
		if err != nil {
			err = fmt.Errorf("%w: %s: %w", ErrLoad, op.Name, err)
		}
		return err
	}
	c := collective.NewCounter(m.n, uint32(maxOps/2/count))
	c.Payload = int(payload)
	if err := do(c); err != nil {
		return err
	}
	g := collective.NewGroup(m.b, ranks)
	g.AddTime, g.Payload = add, int(payload)
	for range count {
		if work > 0 {
			g.Compute(work)
		}
		if err := do(g); err != nil {
			return err
		}
	}
	return nil
}
