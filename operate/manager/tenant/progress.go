package tenant

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"

	"softib/internal/patience"
)

// Progress is how far a change has come: who makes it says so, and anybody may look.
type Progress struct {
	limit *patience.Limit // knows since when, and the load

	mu          sync.Mutex
	back        bool // to what was before
	what        string
	done, total int
}

type progressKey struct{}

// WithProgress is a context for changes whose progress somebody wants to see.
func WithProgress(ctx context.Context) (context.Context, *Progress) {
	p := &Progress{limit: patience.New(enforceMax)}
	return context.WithValue(ctx, progressKey{}, p), p
}

// ProgressOf is where to say how far a change is.
func ProgressOf(ctx context.Context) *Progress {
	if p, ok := ctx.Value(progressKey{}).(*Progress); ok {
		return p
	}
	return &Progress{} // which nobody reads
}

// At says what is under way, and how far it is with that; total is 0 where nobody knows.
func (p *Progress) At(what string, done, total int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.what, p.done, p.total = what, done, total
}

// Step says that one more of what is under way is done.
func (p *Progress) Step() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done++
}

// goBack says that it is about what was before, from now on.
func (p *Progress) goBack() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.back = true
}

// stage is what is under way.
func (p *Progress) stage() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	text := p.what
	if p.total > 0 {
		text += fmt.Sprintf(", %d of %d", p.done, p.total)
	}
	if p.back {
		text = "going back to what was before: " + text
	}
	return text
}

// String is what is under way, for how long, and what the machine has to do besides; empty if nothing is.
func (p *Progress) String() string {
	if s := p.stage(); s != "" {
		return fmt.Sprintf("%s (%v)", s, p.limit)
	}
	return ""
}

// enforce is the fabric's Enforce, within its time.
func (b *Book) enforce(ctx context.Context, was, want State) error {
	if ctx.Value(progressKey{}) == nil {
		ctx, _ = WithProgress(ctx)
	}
	ctx, cancel := patience.Context(context.WithoutCancel(ctx), b.most)
	defer cancel()
	err := b.fabric.Enforce(ctx, was, want)
	if errors.Is(err, context.DeadlineExceeded) {
		late := cmp.Or(context.Cause(ctx), err)
		return &RefusedError{Refusals: []Refusal{{Node: "the fabric", Why: fmt.Sprintf("%v of this: %s", late,
			ProgressOf(ctx).stage())}}, late: late}
	}
	return err
}
