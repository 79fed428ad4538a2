package cluster

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"softib/proto/ib"
)

// view is what a member knows of the store: all of it as it was at revision seen.
type view struct {
	seen     int64
	members  map[string]Member
	sections map[string][]byte
	head     Head
	headMod  int64
	missing  int64 // a head that the watch had not told of when it was looked for
}

func newView() view { return view{members: map[string]Member{}, sections: map[string][]byte{}} }

func byAge(a, b Member) int {
	return cmp.Or(cmp.Compare(a.Create, b.Create), strings.Compare(a.Name, b.Name))
}

// takeWhole puts a list in the place of what was known, and tells of the difference.
func (e *Engine) takeWhole(now ib.Time, a *Answer) {
	v := newView()
	v.seen = a.Rev
	hasMaster := false
	for i := range a.Pairs {
		p := &a.Pairs[i]
		if p.Key == MasterKey {
			hasMaster = true
			e.learnMaster(now, p, a.Rev)
			continue
		}
		e.takePair(&v, p)
	}
	if !hasMaster {
		e.learnMaster(now, nil, a.Rev)
	}
	was := e.view
	e.view = v
	for _, m := range sortedMembers(was.members) {
		if is, ok := v.members[m.Name]; !ok || is.Instance != m.Instance {
			e.tell(Event{Kind: EventMemberDown, Member: m})
		}
	}
	for _, m := range sortedMembers(v.members) {
		if w, ok := was.members[m.Name]; !ok || w.Instance != m.Instance {
			e.tell(Event{Kind: EventMemberUp, Member: m})
		}
	}
	switch {
	case v.head.Revision > was.head.Revision || plantTwice && v.head.Revision > 0:
		e.applied(sectionNames(v.sections))
	case v.head.Revision < was.head.Revision:
		// Not the store that it was. What was acknowledged is here, and stays here; a change would not find the head
		// that it is for.
		e.view.head, e.view.headMod, e.view.sections = was.head, was.headMod, was.sections
		e.backward(v.head.Revision)
	}
}

func sortedMembers(set map[string]Member) (list []Member) {
	for _, m := range set { // tidy: order-free
		list = append(list, m)
	}
	slices.SortFunc(list, byAge)
	return list
}

func sectionNames(set map[string][]byte) (list []string) {
	for name := range set { // tidy: order-free
		list = append(list, name)
	}
	slices.Sort(list)
	return list
}

func (e *Engine) applied(sections []string) {
	e.tell(Event{Kind: EventApplied, Revision: e.view.head.Revision, Sections: sections})
}

// backward tells of a store that is older than what was acknowledged.
func (e *Engine) backward(revision int64) {
	e.trouble(fmt.Sprintf("the store has revision %d of the fabric, and this machine has %d already", revision,
		e.view.head.Revision))
}

// takePair notes a pair in a view.
func (e *Engine) takePair(v *view, p *Pair) {
	switch {
	case p.Key == HeadKey:
		h, err := parseHead(p)
		if err != nil {
			e.Strange++
			return
		}
		if h.Revision < v.head.Revision {
			e.backward(h.Revision)
			return
		}
		v.head, v.headMod = h, p.Mod
	case strings.HasPrefix(p.Key, memberPrefix):
		m, err := parseInfo(p)
		if err != nil {
			e.Strange++
			return
		}
		v.members[m.Name] = m
	case strings.HasPrefix(p.Key, sectionPrefix):
		v.sections[strings.TrimPrefix(p.Key, sectionPrefix)] = p.Value
	}
}

// takeBatch notes all that changed at one revision. A watch that begins anew may tell again what is known already.
func (e *Engine) takeBatch(now ib.Time, b *Batch) {
	v := &e.view
	if b.Rev <= v.seen {
		return
	}
	v.seen = b.Rev
	was := v.head.Revision
	var changed []string
	isGone := false
	for i := range b.Changes {
		c := &b.Changes[i]
		name, isMember := strings.CutPrefix(c.Key, memberPrefix)
		section, isSection := strings.CutPrefix(c.Key, sectionPrefix)
		if isSection {
			changed = append(changed, section)
		}
		old, had := v.members[name]
		switch {
		case c.Key == MasterKey && c.Deleted:
			e.learnMaster(now, nil, b.Rev)
		case c.Key == MasterKey:
			e.learnMaster(now, &c.Pair, b.Rev)
		case !c.Deleted:
			e.takePair(v, &c.Pair)
		case isMember:
			delete(v.members, name)
		case isSection:
			delete(v.sections, section)
		case c.Key == HeadKey:
			e.backward(0)
		}
		if is, has := v.members[name]; isMember && (had != has || old.Instance != is.Instance) {
			if had {
				e.tell(Event{Kind: EventMemberDown, Member: old})
			}
			if has {
				e.tell(Event{Kind: EventMemberUp, Member: is})
			}
			if name == e.cfg.Name && (!has || is.Instance != e.cfg.Instance) {
				isGone = true
			}
		}
	}
	if isGone {
		e.leaseGone(now, e.lease)
		return
	}
	if v.head.Revision != was {
		slices.Sort(changed)
		e.applied(changed)
	}
	e.plan(now)
}

// Revision is the newest that this member has applied; 0 is a fabric about which nothing was said yet.
func (e *Engine) Revision() int64 { return e.view.head.Revision }

// Head is that revision with who made it.
func (e *Engine) Head() Head { return e.view.head }

// Section is the value of a part of what the fabric is. It is not to be changed.
func (e *Engine) Section(name string) ([]byte, bool) {
	v, ok := e.view.sections[name]
	return v, ok
}

// Sections are the names of all parts, in order.
func (e *Engine) Sections() []string { return sectionNames(e.view.sections) }
