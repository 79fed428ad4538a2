package etcd

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"softib/internal/patience"
	"softib/operate/cluster"
	"softib/proto/ib"
)

// Keys are values that only the master writes, together or not at all. One caller at a time.
type Keys struct {
	m      *Member
	prefix string
	stamp  int64 // the revision at which they were last written
}

// stampKey is written with every change: whoever compares with it finds that somebody else has written.
const stampKey = "stamp"

// keysPatience is how long a write may take that etcd does not answer.
const keysPatience = 15 * time.Second

// Keys is a place for values below a name of its own.
func (m *Member) Keys(name string) *Keys { return &Keys{m: m, prefix: name + "/"} }

// Read is all values. What is written after it is written only if nobody else has written meanwhile.
func (k *Keys) Read() (map[string][]byte, error) {
	a := k.m.store.Do(k.m.ctx, cluster.Request{Op: cluster.OpGet, Key: k.prefix, Prefix: true,
		Patience: ib.Time(connectPatience) * ib.Nanosecond})
	if a.Outcome != cluster.OutcomeDone {
		return nil, k.m.store.silent(errors.New(a.Text))
	}
	values := make(map[string][]byte, len(a.Pairs))
	k.stamp = 0
	for i := range a.Pairs {
		p := &a.Pairs[i]
		if name := strings.TrimPrefix(p.Key, k.prefix); name == stampKey {
			k.stamp = p.Mod
		} else {
			values[name] = p.Value
		}
	}
	return values, nil
}

// Write puts some values and drops others, as the master that this machine is.
func (k *Keys) Write(put map[string][]byte, drop []string) error {
	ctx, cancel := patience.Context(k.m.ctx, keysPatience)
	defer cancel()
	id := rand.Text()
	term, unsure := int64(0), false
	for {
		// An attempt that had no answer is repeated as it was, whoever is the master by now.
		if !unsure {
			var err error
			if term, err = k.term(ctx); err != nil {
				return k.m.advise(err)
			}
		}
		r := cluster.Request{Op: cluster.OpTxn, Patience: ib.Second, Txn: cluster.Txn{
			If:   []cluster.Compare{{Key: k.prefix + stampKey, Mod: k.stamp}, {Key: cluster.MasterKey, Mod: term}},
			Then: []cluster.Write{{Key: k.prefix + stampKey, Value: []byte(id)}}, Else: []string{k.prefix + stampKey}}}
		for _, name := range slices.Sorted(maps.Keys(put)) {
			r.Txn.Then = append(r.Txn.Then, cluster.Write{Key: k.prefix + name, Value: put[name]})
		}
		for _, name := range drop {
			r.Txn.Then = append(r.Txn.Then, cluster.Write{Key: k.prefix + name, Delete: true})
		}
		a := k.m.store.Do(ctx, r)
		switch {
		case a.Outcome == cluster.OutcomeDone && a.Held:
			k.stamp = a.Rev
			return nil
		case a.Outcome == cluster.OutcomeDone:
			var stamp cluster.Pair
			for _, p := range a.Pairs {
				stamp = p
			}
			switch {
			case string(stamp.Value) == id: // an attempt that had no answer
				k.stamp = stamp.Mod
				return nil
			case stamp.Mod != k.stamp:
				return k.m.advise(fmt.Errorf("cluster: %s: %w", k.prefix, cluster.ErrStale))
			case !k.isMasterSince(term):
				return k.m.advise(fmt.Errorf("cluster: %s: %w", k.prefix, cluster.ErrNotMaster))
			}
			unsure = false // certainly not written; the master has lapsed and come back meanwhile
		case a.Outcome == cluster.OutcomeUnknown || unsure:
			unsure = true
			select {
			case <-time.After(rewatchAfter):
			case <-ctx.Done():
				return k.m.advise(fmt.Errorf("cluster: %s: %w: %s", k.prefix, cluster.ErrUnsettled, a.Text))
			}
		case a.Outcome == cluster.OutcomeFull:
			return k.m.advise(fmt.Errorf("cluster: %s: %w", k.prefix, cluster.ErrFull))
		default:
			return k.m.advise(fmt.Errorf("cluster: %s: %w: %s", k.prefix, cluster.ErrRefused, a.Text))
		}
	}
}

// term is the one of this machine's mastership. One that has lapsed is waited for a moment: it may come back.
func (k *Keys) term(ctx context.Context) (term int64, err error) {
	for {
		if locked(k.m, func(e *cluster.Engine) bool { term = e.Term(); return e.Master(now()) }) {
			return term, nil
		}
		if k.m.MasterName() != locked(k.m, (*cluster.Engine).Name) || ctx.Err() != nil {
			return term, fmt.Errorf("cluster: %s: %w", k.prefix, cluster.ErrNotMaster)
		}
		time.Sleep(rewatchAfter / 10)
	}
}

// isMasterSince says whether this machine has become the master anew since a term.
func (k *Keys) isMasterSince(term int64) bool {
	return locked(k.m, func(e *cluster.Engine) bool { return e.Term() > term && e.MasterName() == e.Name() })
}
