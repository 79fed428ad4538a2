package link

import "softib/proto/ib"

// Alarm is the set of errors of a port that a manager wants to be told of (IBA 14.2.5.1, traps
// 129 and 130).
type Alarm uint8

// Alarms.
const (
	AlarmIntegrity Alarm = 1 << iota // local physical errors passed their threshold
	AlarmOverrun                     // so did overruns of a buffer
)

// errorThreshold is the power-on value of LocalPhyErrors and OverrunErrors.
const errorThreshold = 8

// TakeAlarms hands out the alarms since it was last called.
func (p *Port) TakeAlarms() Alarm {
	a := p.cold.alarms
	p.cold.alarms = 0
	return a
}

// HasAlarm reports whether TakeAlarms has something.
func (p *Port) HasAlarm() bool { return p.cold.alarms != 0 }

// ErrorThresholds are PortInfo's LocalPhyErrors and OverrunErrors.
func (p *Port) ErrorThresholds() (phy, overrun uint8) { return p.cold.phyLimit, p.cold.overrunLimit }

// SetErrorThresholds sets how many errors make an alarm, each of 4 bits.
func (p *Port) SetErrorThresholds(phy, overrun uint8) {
	p.cold.phyLimit, p.cold.overrunLimit = phy&15, overrun&15
}

// physicalError counts a packet whose CRC failed. Each such packet adds to a count from which each good
// one takes; where it passes the threshold, the link's integrity is in doubt (IBA 7.12.2). The good
// ones are looked at only here, so that they cost nothing.
func (p *Port) physicalError() {
	c := p.cold
	good := p.rawCounter(ib.PortRcvPkts)
	c.phyRun -= uint8(min(good-c.phyAt, uint64(c.phyRun)))
	c.phyAt = good
	if c.phyRun++; c.phyRun > c.phyLimit {
		c.phyRun = 0
		c.count[ib.LocalLinkIntegrityErrors]++
		c.alarms |= AlarmIntegrity
	}
}

// overrun counts runs of overruns between flow-control updates; a few in a row are
// "excessive" (IBA 7.12.1).
func (p *Port) overrun() {
	if p.overrunsRun++; p.overrunsRun >= max(p.cold.overrunLimit, 1) {
		p.overrunsRun = 0
		p.cold.count[ib.ExcessiveBufferOverrunErrors]++
		p.cold.alarms |= AlarmOverrun
	}
}
