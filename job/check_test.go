package job

import (
	"errors"
	"strings"
	"testing"
)

// TestRefused: what cannot run is refused, and the error names where and what to do.
func TestRefused(t *testing.T) {
	for name, c := range map[string]struct {
		build func(b *Builder)
		want  []string
	}{
		"no such rank": {func(b *Builder) { b.Send(0, 9, 1, 0) }, []string{"rank 0, operation 0", "ranks 0 to 2"}},
		"a receive that nobody sends": {func(b *Builder) { b.Line(17); b.Recv(1, 0, 8, 3) },
			[]string{"line 17 (rank 1)", "nobody sends that", "next:"}},
		"another tag": {func(b *Builder) { b.Send(0, 1, 8, 4); b.Recv(1, 0, 8, 3) }, []string{"nobody sends that"}},
		"a message that nobody takes": {func(b *Builder) { b.Send(2, 1, 8, 4) },
			[]string{"rank 2, operation 0", "does not receive 1"}},
		"too few for open receives": {func(b *Builder) {
			b.Send(0, 1, 8, 4)
			b.Recv(1, int(Any), 8, Any)
			b.Recv(1, int(Any), 8, 4)
		}, []string{"2 receives are open", "1 messages are left"}},
		"an open send": {func(b *Builder) { b.Send(0, 1, 8, Any) }, []string{"only a receive"}},
		"no kind":      {func(b *Builder) { b.Add(0, Op{}) }, []string{"want a send, a recv or a calc"}},
		"a circle": {func(b *Builder) {
			b.Line(3)
			x, y, z := b.Calc(0, 1), b.Calc(0, 1), b.Calc(0, 1)
			b.After(0, y, x)
			b.After(0, z, y)
			b.AfterBegun(0, x, z)
		}, []string{"line 3", "waits for itself", "which waits for line 3", "next:"}},
		"itself": {func(b *Builder) { x := b.Calc(2, 5); b.After(2, x, x) },
			[]string{"rank 2, operation 0", "waits for itself"}},
	} {
		b := NewBuilder(3)
		c.build(b)
		_, err := b.Schedule()
		if !errors.Is(err, ErrSchedule) {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for _, w := range c.want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%s: %q does not say %q", name, err, w)
			}
		}
	}
}

// TestSchedule: what was built is there, waits in the order in which they were told.
func TestSchedule(t *testing.T) {
	b := NewBuilder(2)
	s := b.Send(0, 1, 100, 7)
	c1, c2 := b.Calc(0, 5), b.Add(0, Op{Kind: Calc, Size: 6, CPU: 3})
	b.After(0, c2, s)
	b.After(0, c1, s)
	b.AfterBegun(0, c2, c1)
	r := b.Recv(1, int(Any), 100, 7)
	b.After(1, b.Calc(1, 1), r)
	got, err := b.Schedule()
	if err != nil {
		t.Fatal(err)
	}
	if ops, messages, bytes := got.Count(); ops != 5 || messages != 1 || bytes != 100 {
		t.Errorf("it has %d operations, %d messages, %d bytes", ops, messages, bytes)
	}
	if got.CPUs != 4 || got.NICs != 1 {
		t.Errorf("it needs %d processors and %d ports", got.CPUs, got.NICs)
	}
	r0 := &got.Ranks[0]
	if e := r0.Ended(s); len(e) != 2 || e[0] != c2 || e[1] != c1 {
		t.Errorf("%v wait for the send's end", e)
	}
	if e := r0.Begun(c1); len(e) != 1 || e[0] != c2 || r0.Waits(c2) != 2 || r0.Waits(s) != 0 {
		t.Errorf("%v wait for the beginning of the first calculation, the second for %d", e, r0.Waits(c2))
	}
}

// TestGroups: operations of the network that cannot be done are refused.
func TestGroups(t *testing.T) {
	for what, spoil := range map[string]func(b *Builder, g uint32){
		"there are 1 groups":         func(b *Builder, g uint32) { b.Aggregate(0, g+1, AllReduce, 0, 8) },
		"not in that group":          func(b *Builder, g uint32) { b.Aggregate(2, g, AllReduce, 0, 8) },
		"want one of the group's":    func(b *Builder, g uint32) { b.Aggregate(0, g, Reduce, 2, 8) },
		"does something else then":   func(b *Builder, g uint32) { b.Aggregate(1, g, AllReduce, 0, 8) },
		"rank 1 has 1 operations of": func(b *Builder, g uint32) { b.Aggregate(0, g, AllReduce, 0, 8) },
		"it is number 1 of the group": func(b *Builder, g uint32) {
			b.Aggregate(0, g, Reduce, 0, 8)
			b.Aggregate(1, g, Reduce, 1, 8)
		},
	} {
		b := NewBuilder(3)
		g := b.Group(Group{Ranks: []uint32{0, 1}, Payload: 256})
		b.Aggregate(0, g, AllReduce, 0, 64)
		b.Aggregate(1, g, AllReduce, 0, 64)
		spoil(b, g)
		if _, err := b.Schedule(); !errors.Is(err, ErrSchedule) || !strings.Contains(err.Error(), what) {
			t.Errorf("%q: %v", what, err)
		}
	}
}
