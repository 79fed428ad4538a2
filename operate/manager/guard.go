package manager

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"sync"

	"softib/proto/ib"
	"softib/proto/topo"
	"softib/subnet/sm"

	"softib/operate/manager/tenant"
)

// Guarded is a fabric whose switches can refuse subnet management; *live.Fabric is one.
type Guarded interface {
	// GuardManagement has switches take requests of subnet management from no host but at these ports, or from all.
	GuardManagement(on bool, managers []topo.PortRef)
}

// Guard keeps the management of a subnet to its managers, from the first tenant on or where the operator wants it: no
// tenant is apart from a host that can write the tables of others. Every port gets an M_Key of its own, managers an
// SM_Key that nobody knows, and switches refuse what is no manager's to send.
type Guard struct {
	always bool          // by the operator's wish
	own    sm.MKeyPolicy // what the operator wants without tenants
	keys   sm.MKeyPolicy // what holds with them
	smKey  uint64        // as the operator wants it, or everybody's
	secret uint64        // with tenants

	g       *topo.Graph
	mu      sync.Mutex
	f       Guarded // nil until there is one
	on      bool
	trusted []topo.PortRef
}

// NewGuard makes the guard of a fabric with this graph whose manager is configured like this. Trusted are ports of
// hosts at which managers may run that are not ours. Those know one M_Key, which the operator has given them, so all
// ports have that.
func NewGuard(graph *topo.Graph, c sm.Config, trusted []topo.PortRef) *Guard {
	g := &Guard{g: graph,
		own:    sm.MKeyPolicy{Key: c.MKey, PerPort: c.MKeyPerPort, Protect: c.MKeyProtect, Lease: c.MKeyLease},
		always: c.MKeyPerPort || len(trusted) > 0, smKey: c.SMKey, secret: c.SMKey, trusted: slices.Clone(trusted)}
	g.keys = g.own
	if g.keys.Protect = max(g.keys.Protect, 2); len(trusted) == 0 {
		g.keys.PerPort = true
		if g.keys.Key == 0 {
			g.keys.Key = random()
		}
	}
	if g.keys.Key == 0 {
		g.keys = g.own // the others would have nothing to speak to guarded ports with
	}
	if g.smKey == 0 {
		g.smKey = sm.DefaultSMKey
		if len(trusted) == 0 {
			g.secret = random()
		} else {
			g.secret = g.smKey
		}
	}
	return g
}

// Agree has the guards of several machines, whose managers rule in turn, make the same keys: from a secret, in place of
// chance. It comes before the guard is used.
func (g *Guard) Agree(secret []byte) {
	if len(secret) == 0 || len(g.trusted) > 0 {
		return // the operator's
	}
	if g.own.Key == 0 {
		g.keys.Key = Derive(secret, "M_Key")
	}
	if g.smKey == sm.DefaultSMKey {
		g.secret = Derive(secret, "SM_Key")
	}
}

// Derive makes a key of a secret that several machines have, for one purpose; 0 of none.
func Derive(secret []byte, what string) uint64 {
	if len(secret) == 0 {
		return 0
	}
	m := hmac.New(sha256.New, secret)
	m.Write([]byte(what))
	return max(binary.BigEndian.Uint64(m.Sum(nil)), 1)
}

// Again tells the switches once more whom they take management from: some may be new.
func (g *Guard) Again() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.apply()
}

// random is a key that nobody can guess.
func random() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // it never fails
	return max(binary.BigEndian.Uint64(b[:]), 1)
}

// wants reports whether the fabric is to be guarded.
func (g *Guard) wants(s *tenant.State) bool { return g.always || len(s.Tenants) > 0 }

// configure makes a manager one that guards, if there is something to guard.
func (g *Guard) configure(c *sm.Config, s *tenant.State) {
	if !g.wants(s) {
		return
	}
	c.MKey, c.MKeyPerPort, c.MKeyProtect, c.MKeyLease = g.keys.Key, g.keys.PerPort, g.keys.Protect, g.keys.Lease
	c.SMKey, c.Trusted = g.secret, g.ports()
}

// ports are the GUIDs of where managers may run.
func (g *Guard) ports() []ib.GUID {
	g.mu.Lock()
	defer g.mu.Unlock()
	list := []ib.GUID{}
	for _, r := range g.trusted {
		list = append(list, g.g.Nodes[r.Node].PortGUID(r.Port))
	}
	return list
}

// Tell makes a manager that runs one that guards, or that does not any more. The ticket is 0 if it knows already.
func (g *Guard) Tell(m *sm.Manager, s *tenant.State) (ticket uint64) {
	keys, smKey, ports := g.own, g.smKey, []ib.GUID(nil)
	if g.wants(s) {
		keys, smKey, ports = g.keys, g.secret, g.ports()
	}
	m.SetSMKey(smKey)
	m.SetTrusted(ports)
	if m.MKeyPolicy() == keys {
		return 0
	}
	return m.SetMKeys(0, keys)
}

// Watch has the fabric's switches stand guard from now on, if that is wanted with these tenants.
func (g *Guard) Watch(f Guarded, s tenant.State) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if on := g.wants(&s); g.f != f || g.on != on {
		g.f, g.on = f, on
		g.apply()
	}
}

// Trust takes management from one more port, at which a manager of ours runs, until it is left.
func (g *Guard) Trust(ref topo.PortRef) (leave func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.trusted = append(g.trusted, ref)
	g.apply()
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		if i := slices.Index(g.trusted, ref); i >= 0 {
			g.trusted = slices.Delete(g.trusted, i, i+1)
		}
		g.apply()
	}
}

func (g *Guard) apply() {
	if g.f != nil {
		g.f.GuardManagement(g.on, g.trusted)
	}
}
