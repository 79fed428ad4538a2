package mad

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// datagram is a GetResp that carries an attribute.
func datagram(c Class, id AttrID, data []byte) []byte {
	h := Header{BaseVersion: BaseVersion, MgmtClass: c, ClassVersion: 1, Method: MethodGetResp, TransactionID: 0x42,
		AttributeID: id}
	b := append(h.Append(nil), make([]byte, Size-HeaderSize)...)
	copy(b[c.Info().DataOff:], data)
	return b
}

// packet wraps a datagram as it crosses a link: a UD SEND Only to QP0 on
// VL15, or to QP1. The CRCs are left 0: nobody checks them here.
func packet(dgram []byte) []byte {
	qp, vl := byte(1), byte(0)
	if View(dgram).Class().IsSubnet() {
		qp, vl = 0, 15
	}
	const words = (8 + 12 + 8 + Size + 4) / 4
	p := []byte{vl << 4, 0x02, 0, 1, words >> 8, words & 0xFF, 0, 2} // LRH
	p = append(p, 0x64, 0, 0xFF, 0xFF, 0, 0, 0, qp, 0, 0, 0, 0)      // BTH
	p = append(p, 0x80, 1, 0, 0, 0, 0, 0, qp)                        // DETH
	p = append(p, dgram...)
	return append(p, 0, 0, 0, 0, 0, 0) // ICRC, VCRC
}

// pcap is a capture in which each packet has an ERF header: the framing of
// InfiniBand that tshark knows.
func pcap(packets [][]byte) []byte {
	const linkERF, typeInfiniBand, varying, header = 197, 21, 4, 16
	le, be := binary.LittleEndian, binary.BigEndian
	var b []byte
	for _, v := range []uint32{0xA1B2C3D4, 2 | 4<<16, 0, 0, 65535, linkERF} {
		b = le.AppendUint32(b, v)
	}
	for i, p := range packets {
		n := header + len(p)
		for _, v := range []uint32{uint32(i), 0, uint32(n), uint32(n)} {
			b = le.AppendUint32(b, v)
		}
		b = le.AppendUint64(b, uint64(i)<<32)
		b = append(b, typeInfiniBand, varying)
		b = be.AppendUint16(b, uint16(n))
		b = append(b, 0, 0)
		b = be.AppendUint16(b, uint16(len(p)))
		b = append(b, p...)
	}
	return b
}

// tsharkRename maps table names to tshark's where they differ by more than case
// and underscores.
var tsharkRename = map[string]string{
	"infiniband.portinfo.gidprefix":          "infiniband.portinfo.guid",
	"infiniband.p_keytable.p_key":            "", // shown as membership and base
	"infiniband.sltovlmappingtable.vl":       "", // shown in halves
	"infiniband.classportinfo.redirectp_key": "infiniband.classportinfo.redirectpkey",
	"infiniband.classportinfo.redirectq_key": "infiniband.classportinfo.redirectqkey",
	"infiniband.classportinfo.trapp_key":     "infiniband.classportinfo.trappkey",
	"infiniband.classportinfo.trapq_key":     "infiniband.classportinfo.trapqkey",
	"infiniband.guidinfo.guid":               "infiniband.switchinfo.guid",
	"infiniband.smpdirected.d":               "", // read from the wrong bytes
}

// TestTshark has Wireshark's dissector read every golden attribute, and wants the values
// that the tables give.
func TestTshark(t *testing.T) {
	tshark, err := exec.LookPath("tshark")
	if err != nil {
		t.Fatal("no tshark on this machine; next: make test, which installs it")
	}
	type sample struct {
		layout *Layout
		data   []byte
		dgram  []byte
	}
	var samples []sample
	add := func(c Class, id AttrID, data []byte) {
		d := datagram(c, id, data)
		samples = append(samples, sample{Attr(c, id).Layout, View(d).Data(), d})
	}
	for _, g := range golden {
		add(g.class, g.attr, g.value.Append(nil))
	}
	for _, g := range goldenCounters {
		add(ClassPerf, g.id, unhex(t, g.hex, CounterAttrByID(g.id).Layout.Size))
	}
	dr := drSMP(t)
	View(dr).SetReturning(true)
	View(dr).SetHopPointer(2)
	samples = append(samples, sample{&DRSMPLayout, dr, dr})

	var packets [][]byte
	for _, s := range samples {
		packets = append(packets, packet(s.dgram))
	}
	file := filepath.Join(t.TempDir(), "mad.pcap")
	if err := os.WriteFile(file, pcap(packets), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(tshark, "-r", file, "-T", "json", "--no-duplicate-keys")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("tshark: %v\n%s", err, stderr.String())
	}
	var frames []struct {
		Source struct {
			Layers map[string]any `json:"layers"`
		} `json:"_source"`
	}
	if err := json.Unmarshal(out, &frames); err != nil {
		t.Fatal(err)
	}
	if len(frames) != len(samples) {
		t.Fatalf("%d frames of %d", len(frames), len(samples))
	}
	compared := 0
	for i, s := range samples {
		got := map[string][]string{}
		flatten(got, frames[i].Source.Layers)
		for k := range got {
			if strings.Contains(k, "malformed") || strings.Contains(k, "_ws.expert") {
				t.Errorf("%s: tshark complains: %s %v", s.layout.Name, k, got[k])
			}
		}
		n := compareFields(t, s.layout, s.data, got)
		n += compareHalves(t, s.layout, s.data, got)
		n += compareFields(t, &HeaderLayout, s.dgram, got)
		if n < 8 {
			t.Errorf("%s: only %d fields found in %v", s.layout.Name, n, got)
		}
		compared += n
	}
	t.Logf("%d fields agree with tshark", compared)
	if compared < 250 {
		t.Errorf("only %d fields compared", compared)
	}
}

// flatten collects all leaves of tshark's tree by field name.
func flatten(into map[string][]string, v any) {
	m, ok := v.(map[string]any)
	if !ok {
		return
	}
	for k, x := range m {
		switch x := x.(type) {
		case string:
			into[k] = append(into[k], x)
		case []any:
			for _, e := range x {
				if s, ok := e.(string); ok {
					into[k] = append(into[k], s)
				} else {
					flatten(into, e)
				}
			}
		default:
			into[k] = append(into[k], "")
			flatten(into, x)
		}
	}
}

// compareHalves looks at the two tables whose entries tshark shows in two parts.
func compareHalves(t *testing.T, l *Layout, data []byte, got map[string][]string) (compared int) {
	t.Helper()
	part := func(name string, i int) uint64 {
		t.Helper()
		if i >= len(got[name]) {
			t.Fatalf("%s has no element %d: %v", name, i, got[name])
		}
		v, err := parseTshark(got[name][i])
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	switch l {
	case &PKeyTableLayout:
		for i := range PKeysPerBlock {
			v := part("infiniband.p_keytable.membershiptype", i)<<15 | part("infiniband.p_keytable.p_keybase", i)
			if want := l.Fields[0].Get(data, i); v != want {
				t.Errorf("P_Key[%d]: tshark reads %#x, the table %#x", i, v, want)
			}
			compared++
		}
	case &SLtoVLLayout:
		for i := range l.Fields[0].Count {
			half := [2]string{"infiniband.sltovlmappingtable.sltovlhighbits",
				"infiniband.sltovlmappingtable.sltovllowbits"}[i%2]
			if v, want := part(half, i/2), l.Fields[0].Get(data, i); v != want {
				t.Errorf("VL[%d]: tshark reads %d, the table %d", i, v, want)
			}
			compared++
		}
	}
	return compared
}

func compareFields(t *testing.T, l *Layout, data []byte, got map[string][]string) (compared int) {
	t.Helper()
	prefix := strings.ToLower(l.Name)
	switch l {
	case &HeaderLayout:
		prefix = "mad"
	case &DRSMPLayout:
		prefix = "smpdirected"
	case &PortCountersExtendedLayout:
		prefix = "portcounters_ext"
	}
	for i := range l.Fields {
		f := &l.Fields[i]
		name := "infiniband." + prefix + "." + strings.ToLower(f.Name)
		if to, ok := tsharkRename[name]; ok {
			name = to
		}
		vals := got[name]
		if len(vals) == 0 {
			t.Logf("not shown by tshark: %s.%s", l.Name, f.Name)
			continue
		}
		if f.Count > 1 && len(vals) == 1 {
			// An array that tshark shows as one string of bytes.
			start := f.Off / 8
			if want := fmt.Sprintf("% x", data[start:start+f.Count]); strings.ReplaceAll(vals[0], ":", " ") != want {
				t.Errorf("%s: tshark reads %q, want %q", name, vals[0], want)
			}
			compared++
			continue
		}
		for e := range min(f.Len(), len(vals)) {
			if f.Bits > 64 {
				continue
			}
			want := f.Get(data, e)
			if v, err := parseTshark(vals[e]); err != nil || v != want {
				t.Errorf("%s[%d]: tshark reads %q, the table %#x", name, e, vals[e], want)
				continue
			}
			compared++
		}
		if f.Kind == String && vals[0] == cString(f.Slice(data, 0)) {
			compared++
		}
	}
	return compared
}

// parseTshark reads a number in any of tshark's notations.
func parseTshark(s string) (uint64, error) {
	if v, err := strconv.ParseUint(s, 0, 64); err == nil {
		return v, nil
	}
	if hexed := strings.ReplaceAll(s, ":", ""); len(hexed)%2 == 0 && len(hexed) <= 16 {
		return strconv.ParseUint(hexed, 16, 64)
	}
	return 0, fmt.Errorf("no number: %q", s)
}
