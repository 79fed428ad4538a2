package agent

import (
	"softib/proto/ib"
	"softib/proto/mad"
)

// mkeyState guards one port's management (IBA 14.2.4).
type mkeyState struct {
	key         uint64
	protect     uint8
	leasePeriod uint16 // in seconds; 0 never runs out
	violations  uint16

	// Of managers that rule in turn: the newest term that was heard, and the key that said so, which most requests show
	// again. ours says that key is one of a term.
	term  uint32
	heard uint64
	ours  bool

	// leaseEnd is when the protection falls because the key's owner has
	// not been heard since a stranger tried; Never while no lease runs.
	leaseEnd ib.Time
}

// expire drops the protection if the lease has run out (IBA 14.2.4).
func (k *mkeyState) expire(now ib.Time) {
	if now >= k.leaseEnd {
		k.leaseEnd = ib.Never
		k.protect = 0
	}
}

// matches reports whether a request shows the right key.
func (k *mkeyState) matches(key uint64) bool {
	return k.key == 0 || k.key == key || plantOpen && key == 0
}

// admit decides about a request to the agent and counts a violation
// if it fails; there is no answer to a failing one (IBA 14.2.4).
func (k *mkeyState) admit(now ib.Time, m mad.Method, key uint64) bool {
	k.expire(now)
	if k.matches(key) {
		k.leaseEnd = ib.Never // the owner is alive
		return true
	}
	switch m {
	case mad.MethodGet:
		if k.protect < 2 {
			return true
		}
	case mad.MethodSet, mad.MethodTrapRepress:
	default:
		return true // no such request: refused for its method
	}
	k.violate()
	if k.leasePeriod != 0 && k.leaseEnd == ib.Never {
		k.leaseEnd = now + ib.Time(k.leasePeriod)*ib.Second
	}
	return false
}

// violate counts a request that was refused.
func (k *mkeyState) violate() { k.violations = min(k.violations, 0xFFFE) + 1 }

// show puts the key fields in a PortInfo, the key itself only for those who know
// it or where the protection level lets it be read.
func (k *mkeyState) show(pi *mad.PortInfo, key uint64) {
	pi.MKey = 0
	if k.protect == 0 || k.matches(key) {
		pi.MKey = k.key
	}
	pi.MKeyProtectBits = k.protect
	pi.MKeyLeasePeriod = k.leasePeriod
	pi.MKeyViolations = k.violations
}

// SetTerms tells the agent the secret of which managers make the M_Keys of their terms (mad.TermKey); 0 is none. From
// then on it carries out nothing of an earlier term than it has heard of.
func (a *Agent) SetTerms(secret uint64) {
	a.terms = secret
	for i := range a.keys {
		k := &a.keys[i]
		k.heard = 0
		k.ours = a.isOurs(ib.PortNum(i), k.key)
	}
}

// isOurs reports whether a port's key is that of a term.
func (a *Agent) isOurs(end ib.PortNum, key uint64) bool {
	if a.terms == 0 || key == 0 {
		return false
	}
	_, ok := mad.TermOf(a.terms, a.node.NodeInfo(end).PortGUID, key)
	return ok
}

// hear looks what term the key of a request is of, and reports whether the request may go on: its term is not over, or
// it is of none. A port that has the key of an earlier term has this one's from now on: who rules has handed it over.
func (a *Agent) hear(end ib.PortNum, key uint64) bool {
	k := &a.keys[end]
	if key == k.heard || key == 0 {
		return true
	}
	own := true
	term, ok := mad.TermOf(a.terms, a.node.NodeInfo(end).PortGUID, key)
	if !ok {
		own = false
		if term, ok = mad.TermOf(a.terms, 0, key); !ok {
			return true
		}
	}
	if k.heard != 0 && mad.TermAfter(k.term, term) && !plantTerms {
		k.violate()
		return false
	}
	k.term, k.heard = term, key
	if own && k.ours {
		k.key = key
	}
	return true
}

// set takes the key fields of a PortInfo. Violations are only ever
// reset, so that a manager may write back what it read.
func (k *mkeyState) set(pi *mad.PortInfo) {
	k.key = pi.MKey
	k.protect = pi.MKeyProtectBits
	k.leasePeriod = pi.MKeyLeasePeriod
	if pi.MKeyViolations == 0 {
		k.violations = 0
	}
}
