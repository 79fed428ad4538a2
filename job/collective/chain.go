package collective

// Front is what a member's next operation waits for. Read it only.
func (g *Group) Front(member int) []uint32 { return g.front[member] }

// Wait makes a member's next operation wait for these of its rank, instead of what it has done in the group.
func (g *Group) Wait(member int, on ...uint32) { g.front[member] = on }

// Tags are from which number on the group numbers its messages: ranks that are in two groups at once need two ranges.
func (g *Group) Tags(first uint32) { g.tag = first }

// Choose is the algorithm for so many bytes and members.
func (o *Operation) Choose(bytes uint64, members int) string { return o.choose(bytes, members) }

// Knows refuses an algorithm that the operation does not have.
func (o *Operation) Knows(algorithm string) error {
	_, err := pick(o.Name, algorithm, o.algorithms)
	return err
}
