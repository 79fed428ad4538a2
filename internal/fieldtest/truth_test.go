package fieldtest

import (
	"fmt"
	"strings"
	"testing"

	"softib/proto/ib"
	"softib/proto/mad"
	"softib/proto/topo"
	"softib/subnet"
	"softib/subnet/sm"
)

func ref(n *topo.Node, p int) topo.PortRef { return topo.PortRef{Node: n.Index, Port: ib.PortNum(p)} }

// endPort is the port by whose address port p is reached: 0 at a switch.
func endPort(n *topo.Node, p int) int {
	if n.IsSwitch() {
		return 0
	}
	return p
}

// portInfo is what a node holds of a port.
func (w *world) portInfo(n *topo.Node, p int) mad.PortInfo {
	w.Helper()
	pi, ok := w.PortInfo(ref(n, p))
	if !ok {
		w.Fatalf("%s has no port %d", n.Name, p)
	}
	return pi
}

// rate is what a port's link runs at.
func (w *world) rate(n *topo.Node, p int) ib.LinkRate {
	pi := w.portInfo(n, p)
	return pi.Rate()
}

// lid is the address of a node's port.
func (w *world) lid(n *topo.Node, p int) ib.LID { return w.portInfo(n, endPort(n, p)).LID }

// smp asks a node's agent, without any packet or program in between.
func (w *world) smp(n *topo.Node, attr mad.AttrID, mod uint32) []byte {
	w.Helper()
	r := mad.SMP{Method: mad.MethodGet, Attr: attr, Modifier: mod, Directed: true}
	b, err := r.Append(nil)
	if err != nil {
		w.Fatal(err)
	}
	var resp [mad.Size]byte
	if !w.SMP(n.Index, 0, (*[mad.Size]byte)(b), &resp) {
		w.Fatalf("%s does not answer attribute %#x", n.Name, attr)
	}
	if st := mad.View(resp[:]).Status(); st != 0 {
		w.Fatalf("%s answers attribute %#x, modifier %#x with status %v", n.Name, attr, mod, st)
	}
	return resp[mad.SMPDataOff : mad.SMPDataOff+mad.SMPDataLen]
}

// parser is an attribute that can be read.
type parser interface{ Parse([]byte) (int, error) }

// attr reads an attribute of a node.
func attr[T any, P interface {
	*T
	parser
}](w *world, n *topo.Node, id mad.AttrID, mod uint32) T {
	w.Helper()
	var v T
	if _, err := P(&v).Parse(w.smp(n, id, mod)); err != nil {
		w.Fatal(err)
	}
	return v
}

// pma asks a node's performance agent about a port, without any packet or program in between.
func (w *world) pma(n *topo.Node, id mad.AttrID, p int) []byte {
	w.Helper()
	var req, resp [mad.Size]byte
	h := mad.Header{BaseVersion: 1, MgmtClass: mad.ClassPerf, ClassVersion: 1, Method: mad.MethodGet, AttributeID: id}
	copy(req[:], h.Append(nil))
	req[mad.PMDataOff+1] = byte(p)
	if !w.SMP(n.Index, ib.PortNum(endPort(n, 1)), &req, &resp) {
		w.Fatalf("%s does not answer attribute %#x of performance management", n.Name, id)
	}
	if st := mad.View(resp[:]).Status(); st != 0 {
		w.Fatalf("%s answers attribute %#x of performance management with status %v", n.Name, id, st)
	}
	return resp[mad.PMDataOff:]
}

// switchInfo is what a switch holds of itself.
func (w *world) switchInfo(n *topo.Node) mad.SwitchInfo {
	return attr[mad.SwitchInfo](w, n, mad.AttrSwitchInfo, 0)
}

// lft is a switch's table up to its top.
func (w *world) lft(n *topo.Node) []ib.PortNum {
	w.Helper()
	top := int(w.switchInfo(n).LinearFDBTop)
	var out []ib.PortNum
	for block := 0; len(out) <= top; block++ {
		t := attr[mad.LFT](w, n, mad.AttrLFT, uint32(block))
		out = append(out, t[:]...)
	}
	return out[:top+1]
}

// mft is the set of a switch's ports that a multicast address leaves by.
func (w *world) mft(n *topo.Node, mlid ib.LID) (out []int) {
	w.Helper()
	at := int(mlid - 0xC000)
	for pos := 0; pos*16 <= n.NumPorts(); pos++ {
		t := attr[mad.MFT](w, n, mad.AttrMFT, mad.MFTModifier(at/32, pos))
		for bit := range 16 {
			if t[at%32]>>bit&1 != 0 {
				out = append(out, pos*16+bit)
			}
		}
	}
	return out
}

// peer is the far end of a port's cable.
func (w *world) peer(n *topo.Node, p int) (*topo.Node, int, bool) {
	x := &n.Ports[p]
	if !x.Connected() {
		return nil, 0, false
	}
	return w.g.Nodes[x.Peer], int(x.PeerPort), true
}

// hop is a step of a path: out of a port of a node into one of the next.
type hop struct {
	from *topo.Node
	out  int
	to   *topo.Node
	in   int
}

// walk follows the switches' own tables from a node's port to an address. It reports false where they end or run in a
// circle.
func (w *world) walk(n *topo.Node, port int, dst ib.LID) ([]hop, bool) {
	w.Helper()
	var way []hop
	for range len(w.g.Nodes) + 2 {
		if n.IsSwitch() {
			if w.lid(n, 0) == dst {
				return way, true
			}
			t := w.lft(n)
			if int(dst) >= len(t) || int(t[dst]) > n.NumPorts() || t[dst] == 0 {
				return way, false
			}
			port = int(t[dst])
		} else if len(way) > 0 {
			pi := w.portInfo(n, way[len(way)-1].in)
			return way, pi.LID>>pi.LMC == dst>>pi.LMC
		}
		to, in, ok := w.peer(n, port)
		if !ok {
			return way, false
		}
		way = append(way, hop{n, port, to, in})
		n = to
	}
	return way, false
}

// subnet is the subnet as the manager has published it.
func (w *world) subnet() (s *subnet.Subnet) {
	w.Helper()
	if err := w.sm.Do(func(m *sm.Manager) { s = m.Subnet() }); err != nil {
		w.Fatal(err)
	}
	return s
}

// route is a directed route from a host to a node, as programs write it: 0,1,5. It is a shortest one.
func (w *world) route(from, to *topo.Node) string {
	w.Helper()
	type step struct {
		n    *topo.Node
		path string
	}
	seen := map[*topo.Node]bool{from: true}
	for queue := []step{{from, "0"}}; len(queue) > 0; queue = queue[1:] {
		s := queue[0]
		if s.n == to {
			return s.path
		}
		if s.n != from && !s.n.IsSwitch() {
			continue
		}
		for p := 1; p <= s.n.NumPorts(); p++ {
			if far, _, ok := w.peer(s.n, p); ok && !seen[far] {
				seen[far] = true
				queue = append(queue, step{far, fmt.Sprintf("%s,%d", s.path, p)})
			}
		}
	}
	w.Fatalf("no way from %s to %s", from.Name, to.Name)
	return ""
}

// node finds a node by its name.
func (w *world) node(name string) *topo.Node {
	w.Helper()
	n := w.g.ByName(name)
	if n == nil {
		w.Fatalf("no node %s", name)
	}
	return n
}

// gid is a port's default GID.
func gid(n *topo.Node, p int) ib.GID {
	return ib.MakeGID(ib.DefaultGIDPrefix, n.PortGUID(ib.PortNum(p)))
}

// field is a line "Name:.....value" of what programs print with libibmad.
type field struct{ name, value string }

// fields takes the lines apart, in order; lines of another form are left out.
func fields(text string) (out []field) {
	for line := range strings.Lines(text) {
		name, rest, ok := strings.Cut(strings.TrimSuffix(line, "\n"), ":")
		if ok && strings.HasPrefix(rest, ".") && !strings.HasPrefix(name, "#") {
			out = append(out, field{strings.TrimSpace(name), strings.TrimLeft(rest, ".")})
		}
	}
	return out
}

// sheet is what one dump says, by field.
type sheet map[string]string

// read makes a sheet of a text with one dump in it.
func read(t testing.TB, text string) sheet {
	t.Helper()
	s := sheet{}
	for _, f := range fields(text) {
		if _, twice := s[f.name]; twice {
			t.Errorf("field %s twice in:\n%s", f.name, text)
		}
		s[f.name] = f.value
	}
	if len(s) == 0 {
		t.Errorf("no field in:\n%s", text)
	}
	return s
}

// expect compares all of a sheet with what is wanted, both ways.
func (s sheet) expect(t testing.TB, what string, want sheet) {
	t.Helper()
	for name, v := range want {
		got, ok := s[name]
		if !ok {
			t.Errorf("%s: no field %s", what, name)
		} else if got != v {
			t.Errorf("%s: %s is %q, want %q", what, name, got, v)
		}
	}
	for name, v := range s {
		if _, ok := want[name]; !ok {
			t.Errorf("%s: field %s (%q) is not compared", what, name, v)
		}
	}
}
