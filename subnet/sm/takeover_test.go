package sm

import (
	"fmt"
	"slices"
	"testing"

	"softib/node/madrpc"
	"softib/proto/ib"
	"softib/proto/mad"
	"softib/proto/topo"
)

// client is a program that talks to administration.
type client struct {
	*host
	gid ib.GID
}

// client opens one at the k-th host.
func (n *network) client(k int) *client {
	h := n.open(n.hostRef(k))
	h.register(madrpc.Registration{Class: mad.ClassSA, ClassVersion: 2, RMPP: true,
		Methods: madrpc.MethodSet(mad.MethodReport)})
	return &client{h, ib.MakeGID(ib.DefaultGIDPrefix, n.g.Nodes[h.ref.Node].PortGUID(h.ref.Port))}
}

type appender interface{ Append([]byte) []byte }

// ask sends a request to where the port's manager is and waits for the answer; nil if there is none.
func (c *client) ask(method mad.Method, attr mad.AttrID, comps, key uint64, rec appender) []byte {
	c.n.t.Helper()
	hdr := mad.Header{BaseVersion: mad.BaseVersion, MgmtClass: mad.ClassSA, ClassVersion: mad.SAVersion, Method: method,
		TransactionID: uint64(c.n.seq), AttributeID: attr}
	b := hdr.Append(make([]byte, 0, mad.Size))
	b = (&mad.RMPP{}).Append(b)
	b = (&mad.SAHeader{SMKey: key, ComponentMask: comps}).Append(b)
	if rec != nil {
		b = rec.Append(b)
	}
	b = b[:mad.Size]
	smlid := c.n.hcas[c.ref.Node].Port(c.ref.Port).SMLID
	c.inbox = nil
	if err := c.rpc.Send(c.n.now, c.ids[mad.ClassSA],
		madrpc.Message{Env: mad.Envelope{LID: smlid, QPN: ib.QPNGSI, QKey: ib.QKeyGSI}, Data: b,
			Timeout: 100 * ib.Millisecond, Retries: 2}); err != nil {
		c.n.t.Fatal(err)
	}
	answered := func() bool {
		return slices.ContainsFunc(c.inbox, func(b []byte) bool { return mad.View(b).Method().IsResponse() })
	}
	if !c.n.until(ib.Second, answered) {
		return nil
	}
	return c.inbox[slices.IndexFunc(c.inbox, func(b []byte) bool { return mad.View(b).Method().IsResponse() })]
}

// must is ask for what has to be answered well.
func (c *client) must(method mad.Method, attr mad.AttrID, comps uint64, rec appender) []byte {
	c.n.t.Helper()
	b := c.ask(method, attr, comps, 0, rec)
	if b == nil || mad.View(b).Status() != mad.StatusOK {
		st := "no answer"
		if b != nil {
			st = mad.View(b).Status().String()
		}
		c.n.t.Fatalf("%v(%s): %s\n%s", method, mad.AttrName(mad.ClassSA, attr), st, c.n.logs())
	}
	return b
}

// comps are components by name.
func comps(t *mad.SARecord, names ...string) (mask uint64) {
	for _, name := range names {
		c := t.Component(name)
		if c == 0 {
			panic(name)
		}
		mask |= c
	}
	return mask
}

func mgid(k byte) ib.GID { return ib.GID{0xFF, 0x12, 0x11, 0x22, 14: 1, 15: k} }

// join makes the client a member of a group, which it makes if need be.
func (c *client) join(group ib.GID, state mad.JoinState) mad.MCMemberRecord {
	c.n.t.Helper()
	rec := mad.MCMemberRecord{MGID: group, PortGID: c.gid, JoinState: state, QKey: 0x1234, PKey: 0xFFFF}
	b := c.must(mad.MethodSet, mad.AttrMCMemberRecord,
		comps(mad.MCMemberRecordTable, "MGID", "PortGID", "JoinState", "Q_Key", "P_Key", "SL", "TClass", "FlowLabel"),
		&rec)
	if _, err := rec.Parse(b[mad.SADataOff:]); err != nil {
		c.n.t.Fatal(err)
	}
	return rec
}

func (c *client) leave(group ib.GID, state mad.JoinState) {
	c.n.t.Helper()
	rec := mad.MCMemberRecord{MGID: group, PortGID: c.gid, JoinState: state}
	c.must(mad.MethodDelete, mad.AttrMCMemberRecord, comps(mad.MCMemberRecordTable, "MGID", "PortGID", "JoinState"),
		&rec)
}

func (c *client) serve(id uint64, lease uint32) {
	c.n.t.Helper()
	rec := mad.ServiceRecord{ServiceID: id, ServiceGID: c.gid, ServicePKey: 0xFFFF, ServiceLease: lease}
	c.must(mad.MethodSet, mad.AttrServiceRecord, comps(mad.ServiceRecordTable, "ServiceID", "ServiceGID",
		"ServiceP_Key", "ServiceLease"), &rec)
}

func (c *client) subscribe() {
	c.n.t.Helper()
	c.must(mad.MethodSet, mad.AttrInformInfo, 0, &mad.InformInfo{LIDRangeBegin: mad.InformAllLIDs, IsGeneric: 1,
		Subscribe: 1, Type: mad.InformAllTypes,
		TrapNumberDeviceID: mad.InformAllTraps, RespTimeValue: 18, ProducerTypeVendorID: mad.InformAllProducers})
}

// table is how many records a query gives.
func (c *client) table(attr mad.AttrID, comps uint64, rec appender) int {
	c.n.t.Helper()
	b := c.must(mad.MethodGetTable, attr, comps, rec)
	var sh mad.SAHeader
	if _, err := sh.Parse(b[mad.SAHeaderOff:]); err != nil {
		c.n.t.Fatal(err)
	}
	if sh.AttributeOffset == 0 {
		return 0
	}
	return (len(b) - mad.SADataOff) / (int(sh.AttributeOffset) * 8)
}

// services is how many services of an ID there are.
func (c *client) services(id uint64) int {
	c.n.t.Helper()
	return c.table(mad.AttrServiceRecord, comps(mad.ServiceRecordTable, "ServiceID"), &mad.ServiceRecord{ServiceID: id})
}

// reports counts the reports that have come.
func (c *client) reports() (k int) {
	for _, b := range c.inbox {
		if mad.View(b).Method() == mad.MethodReport {
			k++
		}
	}
	return k
}

// flood follows the switches' multicast tables from a port and returns the host ports that a packet comes to, how often
// each.
func (n *network) flood(from topo.PortRef, mlid ib.LID) map[topo.PortRef]int {
	n.t.Helper()
	got := map[topo.PortRef]int{}
	type hop struct{ at topo.PortRef } // a switch and the port that it came in by
	start := n.g.Port(from)
	queue := []hop{{topo.PortRef{Node: start.Peer, Port: start.PeerPort}}}
	for steps := 0; len(queue) > 0; steps++ {
		if steps > 10*len(n.g.Nodes)*len(n.g.Nodes) {
			n.t.Fatalf("a packet to %v from %s goes round for ever", mlid, n.g.PortName(from))
		}
		h := queue[0].at
		queue = queue[1:]
		s := n.switches[h.Node]
		if s == nil {
			got[h]++
			continue
		}
		mask := s.MulticastPorts(mlid)
		for p := 1; p <= s.NumPorts(); p++ {
			if ib.PortNum(p) == h.Port || !mask.Has(ib.PortNum(p)) || n.links[h.Node][p].State() != ib.PortActive {
				continue
			}
			if x := n.g.Port(topo.PortRef{Node: h.Node, Port: ib.PortNum(p)}); x.Connected() {
				queue = append(queue, hop{topo.PortRef{Node: x.Peer, Port: x.PeerPort}})
			}
		}
	}
	return got
}

// reaches says how the tables of a group are not what its members want; "" if they are right. Ports that only send
// reach all receivers and get nothing.
func (n *network) reaches(mlid ib.LID, receive, sendOnly []topo.PortRef) string {
	n.t.Helper()
	for _, from := range append(slices.Clone(receive), sendOnly...) {
		got := n.flood(from, mlid)
		delete(got, from)
		for _, to := range receive {
			if to != from && got[to] != 1 {
				return fmt.Sprintf("from %s %s is reached %d times", n.g.PortName(from), n.g.PortName(to), got[to])
			}
			delete(got, to)
		}
		for to := range got {
			return fmt.Sprintf("from %s %s is reached, which is no member", n.g.PortName(from), n.g.PortName(to))
		}
	}
	return ""
}

func (n *network) mustReach(d ib.Time, mlid ib.LID, receive, sendOnly []topo.PortRef) {
	n.t.Helper()
	if !n.until(d, func() bool { return n.reaches(mlid, receive, sendOnly) == "" }) {
		n.t.Fatalf("group %v: %s\n%s", mlid, n.reaches(mlid, receive, sendOnly), n.logs())
	}
}

// TestMulticast: members of a group get what is sent to it, and nobody else, while they come and go and while links do.
func TestMulticast(t *testing.T) {
	n := newNetwork(t, "fat-tree:radix=4,levels=3")
	h := n.manage(0, Config{})
	n.up(h)
	var cs []*client
	for k := range 6 {
		cs = append(cs, n.client(2*k+1))
	}
	refs := func(list ...int) (r []topo.PortRef) {
		for _, k := range list {
			r = append(r, cs[k].ref)
		}
		return r
	}
	mlid := cs[0].join(mgid(1), mad.JoinFull).MLID
	cs[3].join(mgid(1), mad.JoinFull)
	n.mustReach(ib.Second, mlid, refs(0, 3), nil)
	cs[5].join(mgid(1), mad.JoinNon)
	n.mustReach(ib.Second, mlid, refs(0, 3, 5), nil)
	cs[1].join(mgid(1), mad.JoinSendOnlyNon)
	n.mustReach(ib.Second, mlid, refs(0, 3, 5), refs(1))
	other := cs[2].join(mgid(2), mad.JoinFull).MLID
	cs[1].join(mgid(2), mad.JoinFull)
	n.mustReach(ib.Second, mlid, refs(0, 3, 5), refs(1))
	n.mustReach(ib.Second, other, refs(1, 2), nil)
	// A link that the tree uses goes.
	for k := range 4 {
		links := n.switchLinks()
		ref := links[(7*k)%len(links)]
		n.cut(ref)
		n.whole(10*ib.Second, h)
		n.mustReach(ib.Second, mlid, refs(0, 3, 5), refs(1))
		n.mustReach(ib.Second, other, refs(1, 2), nil)
		n.join(ref)
		n.whole(10*ib.Second, h)
	}
	n.mustReach(ib.Second, mlid, refs(0, 3, 5), refs(1))
	// The switch of a member forgets everything.
	n.reboot(n.leafOf(cs[3].ref))
	n.whole(15*ib.Second, h)
	n.mustReach(ib.Second, mlid, refs(0, 3, 5), refs(1))
	// Members leave, one by one; one by its cable.
	cs[0].leave(mgid(1), mad.JoinFull)
	n.mustReach(ib.Second, mlid, refs(3, 5), refs(1))
	n.cut(cs[5].ref)
	n.pass(3 * ib.Second)
	n.mustReach(ib.Second, mlid, refs(3), refs(1))
	n.join(cs[5].ref)
	n.whole(5*ib.Second, h)
	n.mustReach(ib.Second, mlid, refs(3), refs(1)) // it is a member no more
	cs[3].leave(mgid(1), mad.JoinFull)
	n.pass(ib.Second)
	for _, s := range n.g.Switches() {
		if m := n.switches[s.Index].MulticastPorts(mlid); !m.Empty() {
			t.Errorf("%s still has ports for a group that is gone", s.Name)
		}
	}
	n.mustReach(ib.Second, other, refs(1, 2), nil)
}

// registered makes a group of three hosts, services with and without an end, and a subscription.
func registered(n *network) (cs []*client, mlid ib.LID) {
	n.t.Helper()
	for _, k := range []int{1, 3, 5} {
		cs = append(cs, n.client(k))
	}
	for _, c := range cs {
		mlid = c.join(mgid(1), mad.JoinFull).MLID
	}
	cs[0].serve(0x10, mad.ServiceLeaseForever)
	cs[1].serve(0x11, 1000)
	cs[2].subscribe()
	return cs, mlid
}

// remembers checks that all of it is known to the present master and works.
func (n *network) remembers(cs []*client, mlid ib.LID) {
	n.t.Helper()
	var refs []topo.PortRef
	for _, c := range cs {
		refs = append(refs, c.ref)
	}
	n.mustReach(5*ib.Second, mlid, refs, nil)
	if got := cs[0].services(0x10) + cs[0].services(0x11); got != 2 {
		n.t.Fatalf("%d services of 2\n%s", got, n.logs())
	}
	if rec := cs[1].join(mgid(1), mad.JoinFull); rec.MLID != mlid {
		n.t.Fatalf("the group's LID was %v and is %v", mlid, rec.MLID)
	}
	// The subscription works: a link that changes is reported.
	cs[2].inbox = nil
	n.replug(n.switchLinks()[1])
	if !n.until(10*ib.Second, func() bool { return cs[2].reports() > 0 }) {
		n.t.Fatalf("no report\n%s", n.logs())
	}
	n.pass(3 * ib.Second)
}

// TestTakeover: nothing that hosts have registered is lost when the subnet changes hands, in whatever way, although no
// host registers anew; and what was given up meanwhile does not come back.
func TestTakeover(t *testing.T) {
	for _, how := range []string{"handover", "death", "restart", "there and back"} {
		t.Run(how, func(t *testing.T) {
			n := newNetwork(t, small)
			first := n.manage(0, Config{Priority: 5})
			n.up(first)
			var second *host
			if how == "death" {
				second = n.manage(6, Config{Priority: 3})
				n.pass(ib.Second)
			}
			cs, mlid := registered(n)
			n.remembers(cs, mlid)
			n.pass(25 * ib.Second) // polls of a standby
			asked := 0
			n.see = func(_ int, req, _ mad.View) {
				var pi mad.PortInfo
				if req.Method() == mad.MethodSet && req.AttrID() == mad.AttrPortInfo {
					if _, err := pi.Parse(req[mad.SMPDataOff:][:mad.SMPDataLen]); err == nil && pi.ClientReregister {
						asked++
					}
				}
			}
			ends := len(hostPorts(n.g)) // switches have no clients
			want := ends
			switch how {
			case "handover":
				second = n.manage(6, Config{Priority: 9})
				n.rules(60*ib.Second, second)
			case "death":
				first.die()
				n.rules(100*ib.Second, second)
			case "restart":
				memory, _ := first.m.TakeMemory()
				first.die()
				second = n.manage(0, Config{Priority: 5, Memory: memory})
				n.rules(60*ib.Second, second)
			case "there and back":
				second = n.manage(6, Config{Priority: 9})
				n.rules(60*ib.Second, second)
				// Meanwhile things change: the first master must not remember what was.
				cs[0].leave(mgid(1), mad.JoinFull)
				cs[0].must(mad.MethodDelete, mad.AttrServiceRecord,
					comps(mad.ServiceRecordTable, "ServiceID", "ServiceGID", "ServiceP_Key"),
					&mad.ServiceRecord{ServiceID: 0x10, ServiceGID: cs[0].gid, ServicePKey: 0xFFFF})
				cs[2].serve(0x12, 500)
				n.pass(25 * ib.Second)
				second.die()
				n.rules(100*ib.Second, first)
				n.mustReach(5*ib.Second, mlid, []topo.PortRef{cs[1].ref, cs[2].ref}, nil)
				if a, b, c := cs[1].services(0x10), cs[1].services(0x11), cs[1].services(0x12); a != 0 || b != 1 ||
					c != 1 {
					t.Errorf("services: %d, %d, %d: want 0, 1, 1\n%s", a, b, c, n.logs())
				}
				if asked != 2*ends {
					t.Errorf("%d requests to register anew, want %d twice", asked, ends)
				}
				return
			}
			if asked < want || asked > want+len(n.g.Switches()) {
				t.Errorf("%d requests to register anew, want one of each of %d ports", asked, want)
			}
			asked = 0
			second.m.Sweep(n.now, "test")
			n.pass(ib.Second)
			if asked != 0 {
				t.Errorf("%d requests more", asked)
			}
			n.remembers(cs, mlid)
		})
	}
}

// TestOnlyMastersAdminister: who does not manage the subnet does not answer for it either.
func TestOnlyMastersAdminister(t *testing.T) {
	n := newNetwork(t, small)
	a, b := n.manage(0, Config{Priority: 5}), n.manage(4, Config{Priority: 3})
	n.rules(60*ib.Second, a)
	c := n.client(2)
	ask := func(h *host, key uint64) []byte {
		p := n.hcas[c.ref.Node].Port(c.ref.Port)
		was := p.SMLID
		p.SMLID = n.lid(h.ref)
		defer func() { p.SMLID = was }()
		return c.ask(mad.MethodGetTable, mad.AttrNodeRecord, 0, key, nil)
	}
	if ask(a, 0) == nil {
		t.Error("a master does not answer")
	}
	if ask(b, 0) != nil {
		t.Error("a standby answers")
	}
	if ask(a, 0x55) != nil {
		t.Error("a wrong SM_Key is answered")
	}
	n.command(a, b, cmdDisable, DefaultSMKey)
	if ask(b, 0) != nil {
		t.Error("a disabled manager answers")
	}
}
