package cm

import (
	"bytes"

	"softib/ib"
	"softib/mad"
)

// earlyMax bounds the requests that wait for a listener.
const earlyMax = 256

// early is a REQ that came before somebody listened.
type early struct {
	key      peerKey
	service  uint64
	env      mad.Envelope
	tid      uint64
	modifier uint32
	data     []byte
	until    ib.Time
}

// wait keeps a REQ until its service has a listener, or for a while. False means that it does not wait.
func (p *Port) wait(key peerKey, service uint64, env mad.Envelope, tid uint64, b []byte) bool {
	if p.cfg.Grace == 0 || p.rejecting {
		return false
	}
	for i := range p.earlies {
		if p.earlies[i].key == key {
			p.counters.Duplicates++
			return true
		}
	}
	if len(p.earlies) == earlyMax {
		return false
	}
	p.earlies = append(p.earlies, early{key, service, env, tid, p.modifier, bytes.Clone(b), p.now + p.cfg.Grace})
	return true
}

// listened takes up what waited for a new listener.
func (p *Port) listened() {
	waiting := p.earlies
	p.earlies = nil
	for _, e := range waiting {
		if _, ok := p.listeners.find(e.service); ok {
			p.modifier = e.modifier
			p.handleReq(e.env, e.tid, e.data)
		} else {
			p.earlies = append(p.earlies, e)
		}
	}
}

// giveUp rejects what has waited long enough.
func (p *Port) giveUp() {
	for len(p.earlies) > 0 && p.earlies[0].until <= p.now {
		e := p.earlies[0]
		p.earlies = p.earlies[1:]
		p.rejecting = true
		p.modifier = e.modifier
		p.handleReq(e.env, e.tid, e.data)
		p.rejecting = false
	}
}

// firstEarly is when giveUp has something to do.
func (p *Port) firstEarly() ib.Time {
	if len(p.earlies) == 0 {
		return ib.Never
	}
	return p.earlies[0].until
}
