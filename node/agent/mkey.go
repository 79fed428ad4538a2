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
	if k.violations < 0xFFFF {
		k.violations++
	}
	if k.leasePeriod != 0 && k.leaseEnd == ib.Never {
		k.leaseEnd = now + ib.Time(k.leasePeriod)*ib.Second
	}
	return false
}

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
