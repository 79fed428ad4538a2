package chakra

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"softib/job"
	"softib/job/collective"
)

// ErrTrace is what every refusal is.
var ErrTrace = errors.New("not a trace that can be run")

// File is the trace of a rank.
type File struct {
	Name string
	Data []byte
}

// Options are what a trace does not say.
type Options struct {
	// GPU is how many operations a second it does, for compute nodes that say how many they have and not how long they
	// take.
	GPU float64
	// Algorithm of all-reduces; empty is by size and number.
	Algorithm string
}

// comms are what comm_type may be (CollectiveCommType), as package collective calls them.
var comms = [...]string{"all-reduce", "reduce", "all-gather", "gather", "scatter", "broadcast", "all-to-all",
	"reduce-scatter", "reduce-scatter", "barrier"}

const (
	allReduce = 0
	allGather = 2
	// Kernels run on one processor of a rank, messages beside them.
	compute = 0
	copies  = 1
	// Tags of collectives, apart from those of a trace's own messages.
	collTags = 1 << 31
	maxOps   = 64e6
)

// rank is what was read of a file, with its operations.
type rank struct {
	file  string
	nodes []node
	at    map[uint64]int // by id: the node
	first []uint32       // by node: the operation that waits for others
	last  [][]uint32     // and those whose end is the node's
	of    []int          // by operation: the node
}

// Schedule makes a schedule of the files of ranks 0, 1 and so on.
func Schedule(files []File, opt Options) (*job.Schedule, error) {
	if len(files) == 0 {
		return nil, fmt.Errorf("%w: there are no files; next: name the part before .0.et", ErrTrace)
	}
	b := job.NewBuilder(len(files))
	ranks := make([]rank, len(files))
	nodes := 0
	for i := range files {
		r := &ranks[i]
		r.file = files[i].Name
		if err := r.read(files[i].Data); err != nil {
			return nil, err
		}
		if nodes += len(r.nodes); nodes > maxOps {
			return nil, fmt.Errorf("%w: more than %.0f million nodes; next: take fewer ranks or steps", ErrTrace,
				maxOps/1e6)
		}
		if err := r.circle(); err != nil {
			return nil, err
		}
		if err := r.begin(b, i, len(files), opt); err != nil {
			return nil, err
		}
	}
	if err := collectives(b, ranks, opt); err != nil {
		return nil, err
	}
	for i := range ranks {
		r := &ranks[i]
		for n := range r.nodes {
			for _, d := range r.nodes[n].deps {
				b.After(i, r.first[n], r.last[r.at[d]]...)
			}
		}
	}
	s, err := b.Schedule()
	var op *job.OpError
	if errors.As(err, &op) {
		r := &ranks[op.Rank]
		if int(op.Op) < len(r.of) {
			return nil, fmt.Errorf("%w: %s: %v: %s", ErrTrace, r.file, &r.nodes[r.of[op.Op]], op.What)
		}
	}
	return s, err
}

// read takes a file apart.
func (r *rank) read(data []byte) error {
	if len(data) == 0 {
		return fmt.Errorf("%w: %s is missing or empty; next: there is a file for each rank, from 0 on", ErrTrace,
			r.file)
	}
	if len(data) > 1 && data[0] == 0x1f && data[1] == 0x8b {
		return fmt.Errorf("%w: %s is compressed; next: gunzip it", ErrTrace, r.file)
	}
	r.at = map[uint64]int{}
	for k, rest := 0, data; len(rest) > 0; k++ {
		at := len(data) - len(rest)
		message, after, err := delimited(rest)
		if err != nil {
			return fmt.Errorf("%w: %s: byte %d: %w; next: take a whole file", ErrTrace, r.file, at, err)
		}
		rest = after
		if k == 0 { // GlobalMetadata
			continue
		}
		n, err := parseNode(message)
		if err != nil {
			return fmt.Errorf("%w: %s: node %d at byte %d: %w; next: take a file as Chakra's converter writes it",
				ErrTrace, r.file, k, at, err)
		}
		if was, twice := r.at[n.id]; twice {
			return fmt.Errorf("%w: %s: %v has the number of %v; next: number nodes of a rank once", ErrTrace, r.file,
				&n, &r.nodes[was])
		}
		r.at[n.id] = len(r.nodes)
		r.nodes = append(r.nodes, n)
	}
	for i := range r.nodes {
		for _, d := range r.nodes[i].deps {
			if _, ok := r.at[d]; !ok {
				return fmt.Errorf("%w: %s: %v waits for node %d, which is not in the file; next: take the dependency "+
					"out, or the node in", ErrTrace, r.file, &r.nodes[i], d)
			}
		}
	}
	return nil
}

// circle refuses nodes that wait for each other.
func (r *rank) circle() error {
	left := make([]int, len(r.nodes))
	next := make([][]int, len(r.nodes))
	var free []int
	for i := range r.nodes {
		left[i] = len(r.nodes[i].deps)
		for _, d := range r.nodes[i].deps {
			next[r.at[d]] = append(next[r.at[d]], i)
		}
		if left[i] == 0 {
			free = append(free, i)
		}
	}
	for k := 0; k < len(free); k++ {
		for _, i := range next[free[k]] {
			if left[i]--; left[i] == 0 {
				free = append(free, i)
			}
		}
	}
	if len(free) == len(r.nodes) {
		return nil
	}
	i := slices.IndexFunc(left, func(n int) bool { return n > 0 })
	// Whoever is left waits for another that is left: following that comes into the circle.
	before := func(i int) int {
		for _, d := range r.nodes[i].deps {
			if k := r.at[d]; left[k] > 0 {
				return k
			}
		}
		return i
	}
	for range left {
		i = before(i)
	}
	says := r.nodes[i].String()
	for k, steps := before(i), 0; steps < 8; k, steps = before(k), steps+1 {
		says += fmt.Sprintf(", which waits for %v", &r.nodes[k])
		if k == i {
			break
		}
	}
	return fmt.Errorf("%w: %s: nodes wait for each other: %s; next: take one of these dependencies out", ErrTrace,
		r.file, says)
}

// begin adds the operations that nodes begin with: all of them but for collectives.
func (r *rank) begin(b *job.Builder, self, ranks int, opt Options) error {
	for i := range r.nodes {
		n := &r.nodes[i]
		refuse := func(format string, args ...any) error {
			return fmt.Errorf("%w: %s: %v: %s", ErrTrace, r.file, n, fmt.Sprintf(format, args...))
		}
		o := job.Op{Kind: job.Calc, CPU: copies}
		switch n.kind {
		case nodeMetadata, nodeColl:
		case nodeLoad, nodeStore, nodeCompute:
			ns := float64(n.micros) * 1000
			if n.micros == 0 && n.ops > 0 {
				if opt.GPU <= 0 {
					return refuse("it has num_ops and no duration; next: say how fast a GPU is, with gpu=400T behind " +
						"the name")
				}
				ns = n.ops / opt.GPU * 1e9
			}
			if !(ns >= 0 && ns <= 1e15) {
				return refuse("it takes %g s; next: take a shorter trace", ns/1e9)
			}
			o.Size, o.CPU = uint64(math.Round(ns)), compute
		case nodeSend, nodeRecv:
			peer, own := n.dst, n.src
			o.Kind = job.Send
			if n.kind == nodeRecv {
				peer, own, o.Kind = n.src, n.dst, job.Recv
			}
			if peer < 0 || peer >= int64(ranks) {
				return refuse("its peer is rank %d, and there are files of ranks 0 to %d; next: add the others", peer,
					ranks-1)
			}
			if own >= 0 && own != int64(self) {
				return refuse("it is rank %d's, in the file of rank %d; next: give files the right numbers", own, self)
			}
			if n.tag < 0 || n.tag >= collTags || n.size > 1<<50 {
				return refuse("tag %d, %d bytes: want a tag below 2^31 and at most 2^50 bytes; next: mend the trace",
					n.tag, n.size)
			}
			o.Peer, o.Tag, o.Size = uint32(peer), uint32(n.tag), n.size
		default:
			return refuse("want a node that computes, sends, receives or is a collective; next: convert the trace anew")
		}
		op := b.Add(self, o)
		r.first = append(r.first, op)
		r.last = append(r.last, []uint32{op})
		for len(r.of) <= int(op) {
			r.of = append(r.of, i)
		}
	}
	return nil
}

// turn is one rank's next collective in a group.
type turn struct{ rank, node int }

// collectives lets groups do theirs, the first of all members, then the second and so on.
func collectives(b *job.Builder, ranks []rank, opt Options) error {
	var names []string
	lists := map[string][][]turn{} // by group and member
	for i := range ranks {
		seen := map[string]int{}
		for n := range ranks[i].nodes {
			x := &ranks[i].nodes[n]
			if x.kind != nodeColl {
				continue
			}
			if _, ok := lists[x.group]; !ok {
				names = append(names, x.group)
			}
			at, ok := seen[x.group]
			if !ok {
				at = len(lists[x.group])
				seen[x.group] = at
				lists[x.group] = append(lists[x.group], nil)
			}
			lists[x.group][at] = append(lists[x.group][at], turn{i, n})
		}
	}
	tag, left := uint32(collTags), uint32(maxOps/2)
	for _, name := range names {
		members := lists[name]
		var numbers []int
		for _, m := range members {
			numbers = append(numbers, m[0].rank)
		}
		if name == "" && len(members) < len(ranks) {
			missing := slices.IndexFunc(ranks, func(r rank) bool { return !r.has(nodeColl) })
			return fmt.Errorf("%w: %s has no collective, and others have some of all ranks; next: add it, or name "+
				"groups with pg_name", ErrTrace, ranks[max(missing, 0)].file)
		}
		g := collective.NewGroup(b, numbers)
		g.CPU = copies
		g.Tags(tag)
		for k := range members[0] {
			if err := together(g, ranks, members, k, opt, &left); err != nil {
				return err
			}
		}
		for _, m := range members {
			if len(m) > len(members[0]) {
				return unlike(ranks, members[0][len(members[0])-1], m[len(members[0])], "more")
			}
		}
		tag = collTags + (maxOps/2 - left)
	}
	return nil
}

func (r *rank) has(kind uint64) bool {
	return slices.ContainsFunc(r.nodes, func(n node) bool { return n.kind == kind })
}

// together does the k-th collective of a group.
func together(g *collective.Group, ranks []rank, members [][]turn, k int, opt Options, left *uint32) error {
	head := &ranks[members[0][k].rank].nodes[members[0][k].node]
	for m := range members {
		if k >= len(members[m]) {
			return unlike(ranks, members[0][k], members[m][k-1], "fewer")
		}
		t := members[m][k]
		if x := &ranks[t.rank].nodes[t.node]; x.comm != head.comm || x.size != head.size {
			return unlike(ranks, members[0][k], t, "other")
		}
		g.Wait(m, slices.Concat(g.Front(m), []uint32{ranks[t.rank].first[t.node]})...)
	}
	r := &ranks[members[0][k].rank]
	if !head.hasComm || head.comm < 0 || head.comm >= int64(len(comms)) || head.size > 1<<50 {
		return fmt.Errorf("%w: %s: %v: comm_type %d, comm_size %d: want a type from 0 to %d and at most 2^50 bytes; "+
			"next: mend the trace", ErrTrace, r.file, head, head.comm, head.size, len(comms)-1)
	}
	op, err := collective.ByName(comms[head.comm])
	if err != nil {
		return err
	}
	bytes, algorithm := head.size, ""
	if head.comm == allGather {
		bytes *= uint64(g.Size())
	}
	if head.comm == allReduce {
		algorithm = opt.Algorithm
	}
	count := collective.NewCounter(g.Size(), *left)
	if err := op.Do(count, bytes, algorithm); err != nil {
		return fmt.Errorf("%w: %s: %v: %w", ErrTrace, r.file, head, err)
	}
	*left -= uint32(count.Messages())
	if err := op.Do(g, bytes, algorithm); err != nil {
		return err
	}
	for m := range members {
		t := members[m][k]
		at := &ranks[t.rank]
		at.last[t.node] = g.Front(m)
		for _, o := range g.Front(m) {
			for len(at.of) <= int(o) {
				at.of = append(at.of, t.node)
			}
		}
	}
	return nil
}

// unlike is that a member does not do what another does.
func unlike(ranks []rank, a, b turn, what string) error {
	x, y := &ranks[a.rank].nodes[a.node], &ranks[b.rank].nodes[b.node]
	return fmt.Errorf("%w: %s: %v and %s: %v are of one group, and the second has %s collectives (type %d of %d "+
		"bytes, type %d of %d bytes); next: give each group a pg_name of its own", ErrTrace, ranks[a.rank].file, x,
		ranks[b.rank].file, y, what, x.comm, x.size, y.comm, y.size)
}
