package cm

import (
	"bytes"

	"softib/proto/ib"
	"softib/proto/mad"
)

// earlyMax bounds the requests that wait for a listener.
const earlyMax = 256

// early is a request, for a connection or a look-up, that came before somebody listened.
type early struct {
	key      earlyKey
	service  uint64
	env      mad.Envelope
	tid      uint64
	modifier uint32
	data     []byte
	until    ib.Time
}

// earlyKey tells requests apart, of which the asker may send copies.
type earlyKey struct {
	from ib.LID
	attr mad.AttrID
	id   uint32
}

// wait keeps a request until its service has a listener, or for a while. False means that it does not wait.
func (p *Port) wait(attr mad.AttrID, id uint32, service uint64, env mad.Envelope, tid uint64, b []byte) bool {
	key := earlyKey{env.LID, attr, id}
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
			p.again(&e)
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
		p.again(&e)
		p.rejecting = false
	}
}

// again handles a request as if it had just come.
func (p *Port) again(e *early) {
	p.modifier = e.modifier
	if e.key.attr == mad.AttrSIDRReq {
		p.handleSIDRReq(e.env, e.tid, e.data)
	} else {
		p.handleReq(e.env, e.tid, e.data)
	}
}

// firstEarly is when giveUp has something to do.
func (p *Port) firstEarly() ib.Time {
	if len(p.earlies) == 0 {
		return ib.Never
	}
	return p.earlies[0].until
}
