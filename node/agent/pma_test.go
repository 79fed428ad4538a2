package agent

import (
	"testing"

	"softib/proto/ib"
	"softib/proto/mad"
)

// pm asks the performance agent.
func pm(t *testing.T, a *Agent, m mad.Method, id mad.AttrID, mod uint32, data []byte) mad.View {
	t.Helper()
	h := mad.Header{
		BaseVersion: mad.BaseVersion, MgmtClass: mad.ClassPerf, ClassVersion: 1, Method: m,
		TransactionID: 9, AttributeID: id, AttributeModifier: mod,
	}
	req := append(h.Append(nil), make([]byte, mad.Size-mad.HeaderSize)...)
	copy(req[mad.PMDataOff:], data)
	resp := make([]byte, mad.Size)
	n, ok := a.HandleMAD(0, 1, req, resp)
	if !ok {
		return nil
	}
	v := mad.View(resp)
	if n != mad.Size || v.Method() != mad.MethodGetResp || v.TID() != 9 || v.AttrID() != id {
		t.Fatalf("malformed answer:\n%s", mad.Dump(resp))
	}
	return v
}

// counters reads an attribute's counters of a port.
func counters(t *testing.T, a *Agent, m mad.Method, id mad.AttrID, port uint8, mask uint64) (ib.Counters, mad.Status) {
	t.Helper()
	attr := mad.CounterAttrByID(id)
	data := make([]byte, attr.Layout.Size)
	attr.SetPortSelect(data, port)
	attr.SetSelect(data, mask)
	v := pm(t, a, m, id, 0, data)
	if v == nil {
		t.Fatalf("%v has no answer", id)
	}
	if attr.PortSelect(v.Data()) != port || attr.Select(v.Data()) != mask {
		t.Errorf("answer is about port %d, mask %#x", attr.PortSelect(v.Data()), attr.Select(v.Data()))
	}
	c, err := attr.Counters(v.Data())
	if err != nil {
		t.Fatal(err)
	}
	return c, v.Status()
}

func TestCounters(t *testing.T) {
	_, n := benchCA(t)
	a := New(n)
	for c := range ib.NumCounter {
		n.ctr[1][c] = 10 + uint64(c)
		n.ctr[2][c] = ^uint64(0) - 1
	}
	n.ctr[1][ib.LocalLinkIntegrityErrors] = 15
	n.ctr[1][ib.ExcessiveBufferOverrunErrors] = 16

	for _, id := range []mad.AttrID{mad.AttrPortCounters, mad.AttrPortRcvErrorDetails, mad.AttrPortXmitDiscardDetails,
		mad.AttrPortCountersExtended} {
		attr := mad.CounterAttrByID(id)
		one, st := counters(t, a, mad.MethodGet, id, 1, 0)
		if st != mad.StatusOK {
			t.Fatal(st)
		}
		two, _ := counters(t, a, mad.MethodGet, id, 2, 0)
		all, _ := counters(t, a, mad.MethodGet, id, mad.PortSelectAll, 0)
		for _, row := range attr.Rows {
			limit := uint64(1)<<row.Field.Bits - 1
			if want := min(n.ctr[1][row.Counter], limit); one[row.Counter] != want {
				t.Errorf("%s.%s of port 1 = %d, want %d", attr.Layout.Name, row.Counter, one[row.Counter], want)
			}
			if want := min(n.ctr[2][row.Counter], limit); two[row.Counter] != want {
				t.Errorf("%s.%s of port 2 = %d, want %d", attr.Layout.Name, row.Counter, two[row.Counter], want)
			}
			if all[row.Counter] != limit {
				t.Errorf("%s.%s of all ports = %d, want %d", attr.Layout.Name, row.Counter, all[row.Counter], limit)
			}
		}
		for _, port := range []uint8{0, 3, 254} {
			if _, st := counters(t, a, mad.MethodGet, id, port, 0); st != mad.StatusInvalidField {
				t.Errorf("%s of port %d: %v", attr.Layout.Name, port, st)
			}
		}
	}
	pc, _ := counters(t, a, mad.MethodGet, mad.AttrPortCounters, 1, 0)
	if pc[ib.LocalLinkIntegrityErrors] != 15 || pc[ib.ExcessiveBufferOverrunErrors] != 15 {
		t.Errorf("4-bit counters read %d and %d", pc[ib.LocalLinkIntegrityErrors], pc[ib.ExcessiveBufferOverrunErrors])
	}
}

func TestCountersSumOverPorts(t *testing.T) {
	_, s := benchSwitch(t)
	a := New(s)
	for p := range s.ctr {
		s.ctr[p][ib.PortXmitData] = uint64(p) + 100
	}
	s.ctr[0][ib.PortXmitData] = 5
	all, st := counters(t, a, mad.MethodGet, mad.AttrPortCountersExtended, mad.PortSelectAll, 0)
	if want := uint64(36*37/2 + 36*100); st != mad.StatusOK || all[ib.PortXmitData] != want {
		t.Errorf("%v: sum %d, want %d", st, all[ib.PortXmitData], want)
	}
	zero, st := counters(t, a, mad.MethodGet, mad.AttrPortCountersExtended, 0, 0)
	if st != mad.StatusOK || zero[ib.PortXmitData] != 5 {
		t.Errorf("%v: port 0 has %d, want 5", st, zero[ib.PortXmitData])
	}
}

// TestClearByMask clears each counter of each attribute alone.
func TestClearByMask(t *testing.T) {
	for _, id := range []mad.AttrID{mad.AttrPortCounters, mad.AttrPortRcvErrorDetails, mad.AttrPortXmitDiscardDetails,
		mad.AttrPortCountersExtended} {
		attr := mad.CounterAttrByID(id)
		for _, row := range attr.Rows {
			_, n := benchCA(t)
			a := New(n)
			for p := range n.ctr {
				for c := range n.ctr[p] {
					n.ctr[p][c] = 3
				}
			}
			got, st := counters(t, a, mad.MethodSet, id, 2, 1<<row.Select)
			if st != mad.StatusOK || got[row.Counter] != 0 {
				t.Errorf("%s.%s: %v, answer %d", attr.Layout.Name, row.Counter, st, got[row.Counter])
			}
			for c := range ib.NumCounter {
				want := uint64(3)
				if c == row.Counter {
					want = 0
				}
				if n.ctr[2][c] != want || n.ctr[1][c] != 3 {
					t.Errorf("clearing %s left %s at %d (port 1: %d)", row.Counter, c, n.ctr[2][c], n.ctr[1][c])
				}
			}
		}
	}
	_, n := benchCA(t)
	a := New(n)
	for p := range n.ctr {
		n.ctr[p][ib.PortRcvErrors] = 3
	}
	attr := mad.CounterAttrByID(mad.AttrPortCounters)
	if _, st := counters(t, a, mad.MethodSet, mad.AttrPortCounters, mad.PortSelectAll,
		attr.SelectAll()); st != mad.StatusOK {
		t.Fatal(st)
	}
	if n.ctr[1][ib.PortRcvErrors] != 0 || n.ctr[2][ib.PortRcvErrors] != 0 {
		t.Errorf("clearing all ports left %d and %d", n.ctr[1][ib.PortRcvErrors], n.ctr[2][ib.PortRcvErrors])
	}
	if _, st := counters(t, a, mad.MethodSet, mad.AttrPortCounters, 7, attr.SelectAll()); st != mad.StatusInvalidField {
		t.Errorf("clearing port 7: %v", st)
	}
}

func TestPMClassPortInfoAndStatus(t *testing.T) {
	b, _ := benchCA(t)
	var cpi mad.ClassPortInfo
	v := pm(t, b.Agent, mad.MethodGet, mad.AttrClassPortInfo, 0, nil)
	if _, err := cpi.Parse(v.Data()); err != nil || v.Status() != mad.StatusOK {
		t.Fatal(v.Status(), err)
	}
	if cpi.BaseVersion != 1 || cpi.ClassVersion != 1 || cpi.CapabilityMask&mad.PMCapAllPortSelect == 0 ||
		cpi.CapabilityMask&mad.PMCapExtendedWidth == 0 || cpi.CapabilityMask&mad.PMCapXmitWait == 0 {
		t.Errorf("ClassPortInfo %+v", cpi)
	}
	for _, tc := range []struct {
		name string
		m    mad.Method
		id   mad.AttrID
		mod  uint32
		want mad.Status
	}{
		{"ClassPortInfo is read-only", mad.MethodSet, mad.AttrClassPortInfo, 0, mad.StatusUnsupMethodAttr},
		{"ClassPortInfo has no modifier", mad.MethodGet, mad.AttrClassPortInfo, 1, mad.StatusInvalidField},
		{"PortCounters has no modifier", mad.MethodGet, mad.AttrPortCounters, 1, mad.StatusInvalidField},
		{"unknown attribute", mad.MethodGet, 0x7777, 0, mad.StatusUnsupMethodAttr},
		{"unknown method", 0x15, mad.AttrPortCounters, 0, mad.StatusUnsupMethod},
	} {
		if v := pm(t, b.Agent, tc.m, tc.id, tc.mod, []byte{0, 1}); v == nil || v.Status() != tc.want {
			t.Errorf("%s: %v, want %v", tc.name, v, tc.want)
		}
	}
	for _, m := range []mad.Method{mad.MethodTrap, mad.MethodTrapRepress, mad.MethodGetResp} {
		if pm(t, b.Agent, m, mad.AttrPortCounters, 0, nil) != nil {
			t.Errorf("%v is answered", m)
		}
	}
	h := mad.Header{BaseVersion: 1, MgmtClass: mad.ClassPerf, ClassVersion: 2, Method: mad.MethodGet,
		AttributeID: mad.AttrClassPortInfo}
	req := append(h.Append(nil), make([]byte, mad.Size-mad.HeaderSize)...)
	resp := make([]byte, mad.Size)
	if _, ok := b.HandleMAD(0, 1, req, resp); !ok || mad.View(resp).Status() != mad.StatusBadVersion {
		t.Errorf("class version 2: %v %v", ok, mad.View(resp).Status())
	}
}
