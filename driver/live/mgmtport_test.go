package live

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"softib/node/madrpc"
	"softib/proto/ib"
	"softib/proto/mad"
	"softib/proto/topo"
)

// managed is a fabric whose subnet is up and has no manager any more.
func managed(t *testing.T, spec string) *Fabric {
	t.Helper()
	g, err := topo.ParseSpec(spec)
	if err != nil {
		t.Fatal(err)
	}
	f, err := New(g, Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	if _, err := f.BringUp(); err != nil {
		t.Fatal(err)
	}
	return f
}

func hostPort(f *Fabric, k int) topo.PortRef {
	return topo.PortRef{Node: f.graph.Hosts()[k].Index, Port: 1}
}

func openAt(t *testing.T, f *Fabric, ref topo.PortRef) *Session {
	t.Helper()
	s, err := f.OpenMgmt(ref)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func registerAt(t *testing.T, s *Session, r madrpc.Registration) madrpc.AgentID {
	t.Helper()
	id, err := s.Register(r)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func recvAt(t *testing.T, s *Session) madrpc.Delivery {
	t.Helper()
	ctx, end := context.WithTimeout(t.Context(), 60*time.Second)
	defer end()
	d, err := s.Recv(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

var (
	askSMP = madrpc.Registration{Class: mad.ClassSMLID, ClassVersion: 1}
	askDR  = madrpc.Registration{Class: mad.ClassSMDirect, ClassVersion: 1}
	askPM  = madrpc.Registration{Class: mad.ClassPerf, ClassVersion: 1}
	askSA  = madrpc.Registration{Class: mad.ClassSA, ClassVersion: 2, RMPP: true}
	giveSA = madrpc.Registration{Class: mad.ClassSA, ClassVersion: 2, RMPP: true,
		Methods: madrpc.MethodSet(mad.MethodGet, mad.MethodGetTable)}
)

func request(c mad.Class, version uint8, m mad.Method, attr mad.AttrID, mod uint32) []byte {
	b := make([]byte, mad.Size)
	h := mad.Header{BaseVersion: 1, MgmtClass: c, ClassVersion: version, Method: m, TransactionID: transactions.Add(1),
		AttributeID: attr, AttributeModifier: mod}
	h.Append(b[:0])
	return b
}

var transactions atomic.Uint64

// directed makes a directed request along some ports.
func directed(attr mad.AttrID, path ...ib.PortNum) []byte {
	b := request(mad.ClassSMDirect, 1, mad.MethodGet, attr, 0)
	b[7] = byte(len(path))
	b[32], b[33], b[34], b[35] = 0xFF, 0xFF, 0xFF, 0xFF
	for i, p := range path {
		b[129+i] = byte(p)
	}
	return b
}

func smi(l ib.LID) mad.Envelope { return mad.Envelope{LID: l, QPN: ib.QPNSMI} }
func gsi(l ib.LID) mad.Envelope { return mad.Envelope{LID: l, QPN: ib.QPNGSI, QKey: ib.QKeyGSI} }

func nodeGUID(t *testing.T, d madrpc.Delivery) ib.GUID {
	t.Helper()
	var n mad.NodeInfo
	if d.Kind != madrpc.Response || len(d.Data) < mad.Size {
		t.Fatalf("%v with %d bytes", d.Kind, len(d.Data))
	}
	if _, err := n.Parse(d.Data[mad.SMPDataOff:][:mad.SMPDataLen]); err != nil {
		t.Fatal(err)
	}
	return n.NodeGUID
}

// TestTwoSessions: programs at one port do not get each other's answers, also with the same transaction IDs and
// cookies.
func TestTwoSessions(t *testing.T) {
	f := managed(t, "star:4")
	ref := hostPort(f, 0)
	a, b := openAt(t, f, ref), openAt(t, f, ref)
	ia, ib1 := registerAt(t, a, askSMP), registerAt(t, b, askSMP)
	ja, jb := registerAt(t, a, askPM), registerAt(t, b, askPM)
	for k := range 50 {
		to := hostPort(f, 1+k%3)
		other := hostPort(f, 1+(k+1)%3)
		for _, c := range []struct {
			s  *Session
			id madrpc.AgentID
			to topo.PortRef
		}{{a, ia, to}, {b, ib1, other}} {
			if err := c.s.Send(c.id, madrpc.Message{Env: smi(f.nodes[c.to.Node].lid(1)),
				Data: request(mad.ClassSMLID, 1, mad.MethodGet, mad.AttrNodeInfo, 0), Timeout: ib.Second,
				Cookie: 7}); err != nil {
				t.Fatal(err)
			}
		}
		if got := nodeGUID(t, recvAt(t, a)); got != f.graph.Nodes[to.Node].GUID {
			t.Fatalf("first: %v", got)
		}
		if got := nodeGUID(t, recvAt(t, b)); got != f.graph.Nodes[other.Node].GUID {
			t.Fatalf("second: %v", got)
		}
	}
	for s, id := range map[*Session]madrpc.AgentID{a: ja, b: jb} {
		if err := s.Send(id, madrpc.Message{Env: gsi(f.nodes[hostPort(f, 2).Node].lid(1)),
			Data: request(mad.ClassPerf, 1, mad.MethodGet, mad.AttrClassPortInfo, 0), Timeout: ib.Second}); err != nil {
			t.Fatal(err)
		}
	}
	for _, s := range []*Session{a, b} {
		if d := recvAt(t, s); d.Kind != madrpc.Response || mad.View(d.Data).Class() != mad.ClassPerf {
			t.Errorf("%v", d.Kind)
		}
	}
	// Of two servers of one class the second is refused, until the first is gone.
	ga := registerAt(t, a, giveSA)
	if _, err := b.Register(giveSA); !errors.Is(err, madrpc.ErrInUse) {
		t.Errorf("a second server: %v", err)
	}
	if err := b.Unregister(ga); err == nil {
		t.Error("a session unregisters another's agent")
	}
	if err := a.Unregister(ga); err != nil {
		t.Fatal(err)
	}
	registerAt(t, b, giveSA)
	a.Close()
	// The other goes on.
	if err := b.Send(ib1, madrpc.Message{Env: smi(f.nodes[ref.Node].lid(1)),
		Data: request(mad.ClassSMLID, 1, mad.MethodGet, mad.AttrNodeInfo, 0), Timeout: ib.Second}); err != nil {
		t.Fatal(err)
	}
	if got := nodeGUID(t, recvAt(t, b)); got != f.graph.Nodes[ref.Node].GUID {
		t.Errorf("to itself, by LID: %v", got)
	}
	if err := a.Send(ia, madrpc.Message{Env: smi(1),
		Data: request(mad.ClassSMLID, 1, mad.MethodGet, mad.AttrNodeInfo, 0)}); err == nil {
		t.Error("a closed session sends")
	}
	if _, err := a.Register(askSMP); err == nil {
		t.Error("a closed session registers")
	}
	if err := a.Close(); err != nil {
		t.Errorf("a second Close: %v", err)
	}
}

// TestDirectedRoutes: from a host's port and from a switch's, to the node itself, to neighbours, to nowhere.
func TestDirectedRoutes(t *testing.T) {
	f := managed(t, "star:4")
	sw := f.graph.Switches()[0]
	h := hostPort(f, 0)
	s := openAt(t, f, h)
	id := registerAt(t, s, askDR)
	at := f.graph.Port(h)
	far := hostPort(f, 2)
	for _, c := range []struct {
		path []ib.PortNum
		want ib.GUID
	}{
		{nil, f.graph.Nodes[h.Node].GUID},
		{[]ib.PortNum{1}, sw.GUID},
		{[]ib.PortNum{1, f.graph.Port(far).PeerPort}, f.graph.Nodes[far.Node].GUID},
		{[]ib.PortNum{1, at.PeerPort}, f.graph.Nodes[h.Node].GUID}, // there and back again
		{[]ib.PortNum{1, at.PeerPort, 1}, 0},                       // a host passes nothing on
		{[]ib.PortNum{2}, 0},
		{[]ib.PortNum{1, 77}, 0},
		{[]ib.PortNum{0}, 0},
	} {
		if err := s.Send(id, madrpc.Message{Env: smi(ib.LIDPermissive), Data: directed(mad.AttrNodeInfo, c.path...),
			Timeout: 5 * ib.Millisecond, Cookie: 3}); err != nil {
			t.Fatal(err)
		}
		d := recvAt(t, s)
		if c.want == 0 {
			if d.Kind != madrpc.TimedOut || d.Cookie != 3 {
				t.Errorf("%v: %v", c.path, d.Kind)
			}
		} else if got := nodeGUID(t, d); got != c.want {
			t.Errorf("%v: %v, want %v", c.path, got, c.want)
		}
	}
	x := openAt(t, f, topo.PortRef{Node: sw.Index})
	id = registerAt(t, x, askDR)
	for _, c := range []struct {
		path []ib.PortNum
		want ib.GUID
	}{{nil, sw.GUID}, {[]ib.PortNum{f.graph.Port(far).PeerPort}, f.graph.Nodes[far.Node].GUID}} {
		if err := x.Send(id, madrpc.Message{Env: smi(ib.LIDPermissive), Data: directed(mad.AttrNodeInfo, c.path...),
			Timeout: ib.Second}); err != nil {
			t.Fatal(err)
		}
		if got := nodeGUID(t, recvAt(t, x)); got != c.want {
			t.Errorf("from the switch %v: %v, want %v", c.path, got, c.want)
		}
	}
}

// serve answers every request for a table with a message of a size.
func serve(t *testing.T, s *Session, id madrpc.AgentID, size int, done <-chan struct{}) {
	ctx, end := context.WithCancel(context.Background())
	go func() { <-done; end() }()
	for {
		d, err := s.Recv(ctx)
		if err != nil {
			return
		}
		if d.Kind != madrpc.Unsolicited {
			continue
		}
		b := make([]byte, mad.SADataOff+size)
		copy(b, d.Data[:mad.SADataOff])
		mad.View(b).SetMethod(mad.MethodGetTableResp)
		r := mad.RMPP{RMPPVersion: mad.RMPPVersion, RMPPType: mad.RMPPData, RMPPFlags: mad.RMPPActive}
		r.Put(b)
		for k := range size {
			b[mad.SADataOff+k] = byte(k * 7)
		}
		if err := s.Send(id, madrpc.Message{Env: d.Env.Reply(), Data: b, Timeout: 10 * ib.Second,
			Retries: 3}); err != nil {
			t.Error(err)
		}
	}
}

// TestSegmentsAcrossFabric: long messages arrive whole, between hosts and at the sender's own port, from many clients
// at once.
func TestSegmentsAcrossFabric(t *testing.T) {
	f := managed(t, topo.DefaultSpec)
	const size = 30_000
	server := openAt(t, f, hostPort(f, 3))
	done := make(chan struct{})
	defer close(done)
	go serve(t, server, registerAt(t, server, giveSA), size, done)
	lid := f.nodes[hostPort(f, 3).Node].lid(1)
	var wg sync.WaitGroup
	for k := range len(f.graph.Hosts()) {
		s := openAt(t, f, hostPort(f, k)) // one of them is the server's own
		id := registerAt(t, s, askSA)
		wg.Add(1)
		go func() {
			defer wg.Done()
			for range 5 {
				if err := s.Send(id, madrpc.Message{Env: gsi(lid),
					Data: request(mad.ClassSA, 2, mad.MethodGetTable, mad.AttrNodeRecord, 0), Timeout: 10 * ib.Second,
					Retries: 2, Cookie: uint64(k)}); err != nil {
					t.Error(err)
					return
				}
				ctx, end := context.WithTimeout(context.Background(), 60*time.Second)
				d, err := s.Recv(ctx)
				end()
				if err != nil || d.Kind != madrpc.Response || d.Cookie != uint64(k) || len(d.Data) != mad.SADataOff+
					size {
					t.Errorf("host %d: %v, %v, %d bytes", k, err, d.Kind, len(d.Data))
					return
				}
				for i := range size {
					if d.Data[mad.SADataOff+i] != byte(i*7) {
						t.Errorf("host %d: byte %d is wrong", k, i)
						return
					}
				}
			}
		}()
	}
	wg.Wait()
}

// TestSessionTimeouts: what nobody answers comes back, as often repeated as asked, and each once.
func TestSessionTimeouts(t *testing.T) {
	f := managed(t, "star:3")
	s := openAt(t, f, hostPort(f, 0))
	id := registerAt(t, s, askSA)
	dead := f.nodes[hostPort(f, 1).Node].lid(1) // has no server
	for k := range 20 {
		if err := s.Send(id, madrpc.Message{Env: gsi(dead),
			Data: request(mad.ClassSA, 2, mad.MethodGet, mad.AttrNodeRecord, 0), Timeout: ib.Millisecond,
			Retries: k % 3, Cookie: uint64(k)}); err != nil {
			t.Fatal(err)
		}
	}
	seen := map[uint64]bool{}
	for range 20 {
		d := recvAt(t, s)
		if d.Kind != madrpc.TimedOut || seen[d.Cookie] {
			t.Fatalf("%v of %d, again: %v", d.Kind, d.Cookie, seen[d.Cookie])
		}
		seen[d.Cookie] = true
	}
}

// TestCloseWithRequestsUnderWay ends sessions, and then the fabric, while programs wait.
func TestCloseWithRequestsUnderWay(t *testing.T) {
	f := managed(t, "star:4")
	var wg sync.WaitGroup
	for k := range 4 {
		for range 2 {
			s := openAt(t, f, hostPort(f, k))
			id := registerAt(t, s, askSA)
			for c := range 50 {
				if err := s.Send(id, madrpc.Message{Env: gsi(2),
					Data: request(mad.ClassSA, 2, mad.MethodGet, mad.AttrNodeRecord, 0), Timeout: 100 * ib.Second,
					Cookie: uint64(c)}); err != nil {
					t.Fatal(err)
				}
			}
			wg.Add(1)
			go func() {
				defer wg.Done()
				for {
					_, err := s.Recv(context.Background())
					if err != nil {
						if !errors.Is(err, ErrClosed) {
							t.Error(err)
						}
						return
					}
				}
			}()
			if k < 2 {
				go s.Close()
			}
		}
	}
	f.Close()
	wg.Wait()
	if _, err := f.OpenMgmt(hostPort(f, 0)); !errors.Is(err, ErrClosed) {
		t.Errorf("opening a closed fabric: %v", err)
	}
}

// TestSessionsComeAndGo opens, uses and closes sessions of all ports at once; nothing is left.
func TestSessionsComeAndGo(t *testing.T) {
	f := managed(t, "star:4")
	var wg sync.WaitGroup
	for k := range 8 {
		ref := hostPort(f, k%4)
		to := f.nodes[hostPort(f, (k+1)%4).Node].lid(1)
		want := f.graph.Nodes[hostPort(f, (k+1)%4).Node].GUID
		wg.Add(1)
		go func() {
			defer wg.Done()
			for range 50 {
				s, err := f.OpenMgmt(ref)
				if err != nil {
					t.Error(err)
					return
				}
				id, err := s.Register(askSMP)
				if err != nil {
					t.Error(err)
					return
				}
				s.SetIsSM(true)
				if err := s.Send(id, madrpc.Message{Env: smi(to),
					Data:    request(mad.ClassSMLID, 1, mad.MethodGet, mad.AttrNodeInfo, 0),
					Timeout: 5 * ib.Second}); err != nil {
					t.Error(err)
				}
				ctx, end := context.WithTimeout(context.Background(), 60*time.Second)
				d, err := s.Recv(ctx)
				end()
				var n mad.NodeInfo
				if err != nil || d.Kind != madrpc.Response {
					t.Errorf("%v, %v", err, d.Kind)
				} else if n.Parse(d.Data[mad.SMPDataOff:]); n.NodeGUID != want {
					t.Errorf("%v answers for %v", n.NodeGUID, want)
				}
				s.Close()
			}
		}()
	}
	wg.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	for k := range 4 {
		if p := f.port(hostPort(f, k)); p.managers != 0 || p.service != nil {
			t.Errorf("%s has %d managers, service %p", f.graph.PortName(hostPort(f, k)), p.managers, p.service)
		}
	}
}

// TestForgetsAgents: a session that registers again and again does not grow.
func TestForgetsAgents(t *testing.T) {
	f := managed(t, "star:2")
	s := openAt(t, f, hostPort(f, 0))
	for range 100 {
		if err := s.Unregister(registerAt(t, s, askSMP)); err != nil {
			t.Fatal(err)
		}
	}
	if len(s.p.sessions) != 0 {
		t.Errorf("%d agents are kept", len(s.p.sessions))
	}
}

// TestTrapReachesManager: a link that changes makes its switch tell the manager, again and again until it is answered.
func TestTrapReachesManager(t *testing.T) {
	f := managed(t, "star:3")
	first := hostPort(f, 0) // BringUp's manager was here: ports know it by its LID
	s := openAt(t, f, first)
	id := registerAt(t, s, madrpc.Registration{Class: mad.ClassSMLID, ClassVersion: 1,
		Methods: madrpc.MethodSet(mad.MethodTrap)})
	if err := f.SetLink(hostPort(f, 2), false); err != nil {
		t.Fatal(err)
	}
	var tid []byte
	for k := range 2 {
		d := recvAt(t, s)
		var n mad.Notice
		if _, err := n.Parse(d.Data[mad.SMPDataOff:][:mad.SMPDataLen]); err != nil || d.Kind != madrpc.Unsolicited ||
			n.TrapNumberDeviceID != mad.TrapLinkStateChange {
			t.Fatalf("%v, %+v", d.Kind, n)
		}
		if k == 0 {
			tid = bytes.Clone(d.Data[8:16])
			continue
		}
		if !bytes.Equal(tid, d.Data[8:16]) {
			t.Error("a repeated trap has another transaction ID")
		}
		rep := bytes.Clone(d.Data)
		mad.View(rep).SetMethod(mad.MethodTrapRepress)
		if err := s.Send(id, madrpc.Message{Env: d.Env.Reply(), Data: rep}); err != nil {
			t.Fatal(err)
		}
	}
	// It is silent now: the next that comes is about the next change. What was sent before it was answered may be here
	// already.
	for s.Poll(func(madrpc.Delivery) {}) {
	}
	if err := f.SetLink(hostPort(f, 2), true); err != nil {
		t.Fatal(err)
	}
	if d := recvAt(t, s); bytes.Equal(tid, d.Data[8:16]) {
		t.Error("it was not heard that the trap was answered")
	}
}
