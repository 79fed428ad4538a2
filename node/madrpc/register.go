package madrpc

import (
	"fmt"
	"slices"

	"softib/proto/mad"
)

// AgentID names an agent of a port. It is the upper half of the transaction IDs
// of the agent's requests, and fits 24 bits.
type AgentID uint32

const agentMax AgentID = 1<<24 - 1

// Methods is a set of methods of requests, bit n for method n.
type Methods [2]uint64

// MethodSet is the set of the methods given; of a response, its request's.
func MethodSet(ms ...mad.Method) Methods {
	var s Methods
	for _, m := range ms {
		m = m.Request()
		s[m/64] |= 1 << (m % 64)
	}
	return s
}

// Has reports whether the set has m.
func (s Methods) Has(m mad.Method) bool { m = m.Request(); return s[m/64]>>(m%64)&1 != 0 }

// Registration is what an agent asks for.
type Registration struct {
	// Class is what the agent receives requests of. Class 0, or no Methods, is an agent that only sends;
	// any number of those may share a class.
	Class        mad.Class
	ClassVersion uint8
	// Methods are the requests that the agent wants. No other agent may have them, for this class, version and OUI.
	Methods Methods
	// OUI is the vendor, for classes from 0x30 to 0x4f, and ignored for others.
	OUI [3]byte
	// RMPP lets the port cut and join long messages. Without it an agent sees every segment as it came.
	RMPP bool
	// Name is for people: errors name the owner of a class by it.
	Name string
}

// ownerKey is what has a table of methods.
type ownerKey struct {
	class   mad.Class
	version uint8
	oui     [3]byte
}

type agent struct {
	Registration
	id AgentID
}

func (r *Registration) key() ownerKey {
	k := ownerKey{class: r.Class, version: r.ClassVersion}
	if needsOUI(r.Class) {
		k.oui = r.OUI
	}
	return k
}

// Check says what is wrong with the registration itself, whoever else is registered.
func (r *Registration) Check() error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("madrpc: %w: class 0x%02x (%s): %s", ErrRegistration, uint8(r.Class), r.Class,
			fmt.Sprintf(format, args...))
	}
	switch {
	case r.Class == 0 && r.Methods != Methods{}:
		return bad("methods need a class; give one, or no methods to send only")
	case r.Class > classMax && r.Class != mad.ClassSMDirect:
		return bad("want a class up to 0x%02x, or 0x%02x", uint8(classMax), uint8(mad.ClassSMDirect))
	case needsOUI(r.Class) && r.OUI == [3]byte{}:
		return bad("want the vendor's OUI with a class from 0x%02x to 0x%02x", uint8(vendorOUIFirst),
			uint8(vendorOUILast))
	case r.RMPP && r.Class != 0 && headerLen(r.Class) == 0:
		return bad("the class has no RMPP; register without it")
	}
	return nil
}

// Register makes an agent.
func (p *Port) Register(r Registration) (AgentID, error) {
	if err := r.Check(); err != nil {
		return 0, err
	}
	k := r.key()
	owners := p.owners[k]
	for m := range mad.Method(128) {
		if owners == nil || !r.Methods.Has(m) || owners[m] == 0 {
			continue
		}
		who := owners[m]
		return 0, &InUseError{Class: r.Class, Version: r.ClassVersion, OUI: k.oui, Method: m, Owner: who,
			Name: p.agents[who].Name}
	}
	id, err := p.newAgentID()
	if err != nil {
		return 0, err
	}
	p.agents[id] = &agent{r, id}
	if r.Methods == (Methods{}) {
		return id, nil
	}
	if owners == nil {
		owners = new([128]AgentID)
		p.owners[k] = owners
	}
	for m := range mad.Method(128) {
		if r.Methods.Has(m) {
			owners[m] = id
		}
	}
	return id, nil
}

// newAgentID takes the numbers in turn: a response to an agent that has gone finds nobody, not a newcomer.
func (p *Port) newAgentID() (AgentID, error) {
	for range agentMax {
		p.lastAgent = p.lastAgent%agentMax + 1
		if p.agents[p.lastAgent] == nil {
			return p.lastAgent, nil
		}
	}
	return 0, fmt.Errorf("madrpc: %w: all %d agent numbers are taken; unregister some", ErrInUse, agentMax)
}

// Agent says what an agent registered.
func (p *Port) Agent(id AgentID) (Registration, bool) {
	a := p.agents[id]
	if a == nil {
		return Registration{}, false
	}
	return a.Registration, true
}

// Unregister ends an agent. What it still awaits comes back as Canceled, in the order in which it was sent; messages of
// its own that were going out in segments and messages that were coming in are given up.
func (p *Port) Unregister(id AgentID) error {
	a := p.agents[id]
	if a == nil {
		return fmt.Errorf("madrpc: unregister agent %d: %w", id, ErrAgent)
	}
	delete(p.agents, id)
	if owners := p.owners[a.key()]; owners != nil {
		for m := range owners {
			if owners[m] == id {
				owners[m] = 0
			}
		}
		if *owners == [128]AgentID{} {
			delete(p.owners, a.key())
		}
	}
	var mine []ref
	for c, chunk := range p.slab.chunks {
		for i := range chunk {
			if o := &chunk[i]; o.agent == id && (o.kind == opCall || o.kind == opCast || o.kind == opRecv) {
				mine = append(mine, ref(c*chunkOps+i))
			}
		}
	}
	slices.SortFunc(mine, func(a, b ref) int { return int(int64(p.slab.at(a).seq) - int64(p.slab.at(b).seq)) })
	for _, r := range mine {
		switch o := p.slab.at(r); o.kind {
		case opRecv:
			p.endRecv(r, mad.RMPPUnspecified)
		case opCast:
			p.endCast(r)
		case opCall:
			p.finishCall(r, Canceled)
		}
	}
	return nil
}

// owner is the agent that wants to be asked this.
func (p *Port) owner(dgram []byte) *agent {
	k := ownerKey{class: mad.Class(dgram[1]), version: dgram[2]}
	if needsOUI(k.class) {
		k.oui = [3]byte(dgram[offOUI : offOUI+3])
	}
	if owners := p.owners[k]; owners != nil {
		return p.agents[owners[mad.Method(dgram[3]).Request()]]
	}
	return nil
}
