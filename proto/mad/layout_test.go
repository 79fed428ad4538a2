package mad

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"softib/proto/ib"
)

// codec is what every attribute with a Go type has.
type codec interface {
	Parse([]byte) (int, error)
	Append([]byte) []byte
}

// typed pairs each Go type with the table that it must agree with.
var typed = []struct {
	layout *Layout
	fresh  func() codec
}{
	{&HeaderLayout, func() codec { return new(Header) }},
	{&NodeDescriptionLayout, func() codec { return new(NodeDescription) }},
	{&NodeInfoLayout, func() codec { return new(NodeInfo) }},
	{&SwitchInfoLayout, func() codec { return new(SwitchInfo) }},
	{&GUIDInfoLayout, func() codec { return new(GUIDInfo) }},
	{&PortInfoLayout, func() codec { return new(PortInfo) }},
	{&PKeyTableLayout, func() codec { return new(PKeyTable) }},
	{&SLtoVLLayout, func() codec { return new(SLtoVL) }},
	{&VLArbLayout, func() codec { return new(VLArb) }},
	{&LFTLayout, func() codec { return new(LFT) }},
	{&MFTLayout, func() codec { return new(MFT) }},
	{&SMInfoLayout, func() codec { return new(SMInfo) }},
	{&NoticeLayout, func() codec { return new(Notice) }},
	{&ClassPortInfoLayout, func() codec { return new(ClassPortInfo) }},
	{&PortInfoExtLayout, func() codec { return new(PortInfoExt) }},
	{&MlnxExtPortInfoLayout, func() codec { return new(MlnxExtPortInfo) }},
	{&RouterInfoLayout, func() codec { return new(RouterInfo) }},
	{&RouterGUIDsLayout, func() codec { return new(RouterGUIDs) }},
	{&RouterGroupLayout, func() codec { return new(RouterGroup) }},
	{&CongestionInfoLayout, func() codec { return new(CongestionInfo) }},
	{&CongestionKeyInfoLayout, func() codec { return new(CongestionKeyInfo) }},
	{&SwitchCongestionLayout, func() codec { return new(SwitchCongestion) }},
	{&SwitchPortCongestionLayout, func() codec { return new(SwitchPortCongestion) }},
	{&LinkStateDetailsLayout, func() codec { return new(LinkStateDetails) }},
	{&PortErrorDetailsLayout, func() codec { return new(PortErrorDetails) }},
	{&CapabilityDetailsLayout, func() codec { return new(CapabilityDetails) }},
	{&SystemGUIDDetailsLayout, func() codec { return new(SystemGUIDDetails) }},
	{&MKeyDetailsLayout, func() codec { return new(MKeyDetails) }},
	{&KeyDetailsLayout, func() codec { return new(KeyDetails) }},
	{&SwitchKeyDetailsLayout, func() codec { return new(SwitchKeyDetails) }},
	{&CMReqLayout, func() codec { return new(CMReq) }},
	{&CMMRALayout, func() codec { return new(CMMRA) }},
	{&CMRejLayout, func() codec { return new(CMRej) }},
	{&CMRepLayout, func() codec { return new(CMRep) }},
	{&CMRTULayout, func() codec { return new(CMRTU) }},
	{&CMDReqLayout, func() codec { return new(CMDReq) }},
	{&CMDRepLayout, func() codec { return new(CMDRep) }},
	{&CMLAPLayout, func() codec { return new(CMLAP) }},
	{&CMAPRLayout, func() codec { return new(CMAPR) }},
	{&SIDRReqLayout, func() codec { return new(SIDRReq) }},
	{&SIDRRepLayout, func() codec { return new(SIDRRep) }},
}

// leaves counts the fields of a struct and of the structs in it.
func leaves(rt reflect.Type) int {
	n := 0
	for i := range rt.NumField() {
		if f := rt.Field(i).Type; f == reflect.TypeFor[MlnxExtPortInfo]() {
			continue // beside PortInfo, not in it
		} else if f.Kind() == reflect.Struct {
			n += leaves(f)
		} else {
			n++
		}
	}
	return n
}

func allLayouts() []*Layout {
	ls := []*Layout{&HeaderLayout, &SMPLayout, &DRSMPLayout, &SwitchCongestionLogLayout, &CACongestionLogLayout}
	for i := range attrs {
		if attrs[i].Layout != nil {
			ls = append(ls, attrs[i].Layout)
		}
	}
	return ls
}

func TestLayoutsAreSound(t *testing.T) {
	for _, l := range allLayouts() {
		owner := make([]string, l.Size*8)
		seen := map[string]bool{}
		for i := range l.Fields {
			f := &l.Fields[i]
			if seen[f.Name] {
				t.Errorf("%s: two fields called %s", l.Name, f.Name)
			}
			seen[f.Name] = true
			if f.end() > l.Size*8 {
				t.Errorf("%s.%s ends at bit %d, attribute has %d", l.Name, f.Name, f.end(), l.Size*8)
				continue
			}
			if f.Kind == Enum && f.Enum == nil {
				t.Errorf("%s.%s is an enum without names", l.Name, f.Name)
			}
			if f.Bits > 64 && (f.Off%8 != 0 || f.Bits%8 != 0) {
				t.Errorf("%s.%s is wide and not of whole bytes", l.Name, f.Name)
			}
			for e := range f.Len() {
				for b := range f.Bits {
					at := f.Off + e*f.Stride + b
					if owner[at] != "" {
						t.Errorf("%s: bit %d belongs to %s and %s", l.Name, at, owner[at], f.Name)
					}
					owner[at] = f.Name
				}
			}
		}
	}
}

// setStruct puts v in the Go field that carries the table's field f, element e.
func setStruct(t *testing.T, l *Layout, c codec, f *Field, e int, v uint64, wide []byte) {
	t.Helper()
	rv := reflect.ValueOf(c).Elem()
	if rv.Kind() == reflect.Array {
		rv = rv.Index(e)
		if rv.Kind() == reflect.Struct {
			rv = rv.FieldByName(f.Name)
		}
	} else {
		for _, part := range strings.Split(strings.ReplaceAll(f.Name, "_", ""), ".") {
			rv = rv.FieldByName(part)
		}
	}
	if !rv.IsValid() {
		t.Fatalf("%s: %T has no field for %s", l.Name, c, f.Name)
	}
	switch rv.Kind() {
	case reflect.Bool:
		rv.SetBool(v != 0)
	case reflect.Array:
		reflect.Copy(rv, reflect.ValueOf(wide))
	default:
		rv.SetUint(v)
	}
}

// TestTypesAgreeWithTables fills the Go type and the table's buffer with the same random
// values, one field at a time and all together, and wants the same bytes.
func TestTypesAgreeWithTables(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, tc := range typed {
		if tc.layout == &NodeDescriptionLayout {
			continue // a bare byte array: see TestGolden
		}
		t.Run(tc.layout.Name, func(t *testing.T) {
			fields := 0
			for round := range 50 {
				all, want := tc.fresh(), make([]byte, tc.layout.Size)
				for i := range tc.layout.Fields {
					f := &tc.layout.Fields[i]
					for e := range f.Len() {
						v, wide := r.Uint64()&f.max(), make([]byte, f.Bits/8)
						if round == 0 {
							v = f.max()
						}
						for k := range wide {
							wide[k] = byte(r.Uint32())
						}
						one, wantOne := tc.fresh(), make([]byte, tc.layout.Size)
						for _, x := range []struct {
							c codec
							b []byte
						}{{one, wantOne}, {all, want}} {
							setStruct(t, tc.layout, x.c, f, e, v, wide)
							if f.Bits > 64 {
								copy(f.Slice(x.b, e), wide)
							} else {
								f.Put(x.b, e, v)
							}
						}
						if got := one.Append(nil); !bytes.Equal(got, wantOne) {
							t.Fatalf("%s = %#x:\n got %x\nwant %x", f.Name, v, got, wantOne)
						}
						if f.Bits <= 64 && f.Get(wantOne, e) != v {
							t.Fatalf("%s: put %#x, got %#x", f.Name, v, f.Get(wantOne, e))
						}
						fields++
					}
				}
				got := all.Append(nil)
				if !bytes.Equal(got, want) {
					t.Fatalf("all fields:\n got %x\nwant %x", got, want)
				}
				back := tc.fresh()
				if n, err := back.Parse(got); err != nil || n != tc.layout.Size {
					t.Fatalf("Parse = %d, %v; want %d", n, err, tc.layout.Size)
				}
				if !reflect.DeepEqual(back, all) {
					t.Fatalf("parsed %+v\nwant   %+v", back, all)
				}
			}
			if fields == 0 {
				t.Fatal("nothing compared")
			}
			// Every Go field has a row: otherwise the table is the one that lacks it.
			if rt := reflect.TypeOf(tc.fresh()).Elem(); rt.Kind() == reflect.Struct &&
				leaves(rt) != len(tc.layout.Fields) {
				t.Errorf("%v has %d fields, table %d", rt, leaves(rt), len(tc.layout.Fields))
			}
		})
	}
}

func TestTruncationsFail(t *testing.T) {
	for _, tc := range typed {
		full := tc.fresh().Append(nil)
		if len(full) != tc.layout.Size {
			t.Errorf("%s: appended %d bytes, want %d", tc.layout.Name, len(full), tc.layout.Size)
		}
		for n := range full {
			got, err := tc.fresh().Parse(full[:n])
			var le *LayoutError
			if !errors.Is(err, ErrShort) || !errors.As(err, &le) || le.Got != uint64(n) || got != 0 {
				t.Errorf("%s: %d of %d bytes: n = %d, err = %v", tc.layout.Name, n, len(full), got, err)
			}
		}
	}
	for _, l := range allLayouts() {
		b := make([]byte, l.Size)
		for n := range b {
			if _, err := l.Get(b[:n], l.Fields[0].Name); !errors.Is(err, ErrShort) {
				t.Errorf("%s: Get in %d bytes: %v", l.Name, n, err)
			}
		}
	}
	for n := range Size {
		if _, err := AsView(make([]byte, n)); !errors.Is(err, ErrShort) {
			t.Fatalf("AsView of %d bytes: %v", n, err)
		}
	}
}

func TestByName(t *testing.T) {
	b := make([]byte, 64)
	if err := PortInfoLayout.Set(b, "LID", 0x1234); err != nil {
		t.Fatal(err)
	}
	if err := PortInfoLayout.Set(b, "LMC", 5); err != nil {
		t.Fatal(err)
	}
	var p PortInfo
	if _, err := p.Parse(b); err != nil || p.LID != 0x1234 || p.LMC != 5 {
		t.Errorf("LID %v, LMC %v, err %v", p.LID, p.LMC, err)
	}
	lft := make([]byte, 64)
	if err := LFTLayout.Set(lft, "Port[63]", 36); err != nil || lft[63] != 36 {
		t.Errorf("Port[63]: err %v, byte %d", err, lft[63])
	}
	if v, err := LFTLayout.Get(lft, "Port[63]"); err != nil || v != 36 {
		t.Errorf("Port[63] = %d, %v", v, err)
	}
	if err := NodeDescriptionLayout.SetBytes(b, "NodeString", []byte("leaf1")); err != nil ||
		MakeNodeDescription("leaf1") != NodeDescription(b) {
		t.Errorf("NodeString: err %v, %q", err, b)
	}
	if s, err := NodeDescriptionLayout.GetBytes(b, "NodeString"); err != nil || cString(s) != "leaf1" {
		t.Errorf("NodeString = %q, %v", s, err)
	}

	for _, tc := range []struct {
		what string
		err  error
		want error
	}{
		{"unknown", PortInfoLayout.Set(b, "Lid", 1), ErrField},
		{"index", LFTLayout.Set(b, "Port[64]", 1), ErrField},
		{"index text", LFTLayout.Set(b, "Port[x]", 1), ErrField},
		{"too big", PortInfoLayout.Set(b, "LMC", 8), ErrRange},
		{"wide", NoticeLayout.Set(b, "DataDetails", 8), ErrRange},
		{"bits as bytes", PortInfoLayout.SetBytes(b, "LMC", []byte{1}), ErrRange},
		{"long bytes", NodeDescriptionLayout.SetBytes(b, "NodeString", make([]byte, 65)), ErrRange},
		{"short", PortInfoLayout.Set(b[:63], "LID", 1), ErrShort},
	} {
		if !errors.Is(tc.err, tc.want) {
			t.Errorf("%s: %v, want %v", tc.what, tc.err, tc.want)
		}
	}
	want := "mad: PortInfo.LMC: value does not fit: got 8, want a value of 3 bits"
	if err := PortInfoLayout.Set(b, "LMC", 8); err == nil || err.Error() != want {
		t.Errorf("error reads %q, want %q", err, want)
	}
}

func TestCounterTables(t *testing.T) {
	for _, a := range counterAttrs {
		seen := map[uint8]bool{}
		counters := 0
		for _, f := range a.Layout.Fields {
			if !strings.HasPrefix(f.Name, "CounterSelect") && f.Name != "PortSelect" && f.Name != "OpCode" {
				counters += f.Len()
			}
		}
		if len(a.Rows) != counters {
			t.Errorf("%s: %d rows, %d counters in the layout", a.Layout.Name, len(a.Rows), counters)
		}
		for i, row := range a.Rows {
			if row.Field == nil {
				t.Fatalf("%s: no field for %s", a.Layout.Name, row.Counter)
			}
			if seen[row.Select] {
				t.Errorf("%s: select bit %d twice", a.Layout.Name, row.Select)
			}
			seen[row.Select] = true

			// Written too large, read back as the most that fits.
			b := make([]byte, a.Layout.Size)
			a.PutCounter(b, i, ^uint64(0))
			got, err := a.Counters(b)
			if err != nil {
				t.Fatal(err)
			}
			var want ib.Counters
			if row.Source == FromCounter {
				want[row.Counter] = 1<<row.Field.Bits - 1
			}
			if got != want || row.Field.Get(b, row.Elem) != row.Field.max() {
				t.Errorf("%s.%s[%d] saturates at %d", a.Layout.Name, row.Field.Name, row.Elem,
					row.Field.Get(b, row.Elem))
			}
			low := min(7, row.Field.max())
			a.PutCounter(b, i, low)
			if got, _ := a.Counters(b); row.Source == FromCounter && got[row.Counter] != low ||
				row.Field.Get(b, row.Elem) != low {
				t.Errorf("%s.%s[%d] = %d, want %d", a.Layout.Name, row.Field.Name, row.Elem, row.Field.Get(b, row.Elem),
					low)
			}
		}
		b := make([]byte, a.Layout.Size)
		a.SetSelect(b, a.SelectAll())
		a.SetPortSelect(b, 9)
		if a.Select(b) != a.SelectAll() || a.PortSelect(b) != 9 {
			t.Errorf("%s: select %#x, port %d", a.Layout.Name, a.Select(b), a.PortSelect(b))
		}
		if CounterAttrByID(a.ID) != a {
			t.Errorf("%s is not found by its ID", a.Layout.Name)
		}
	}
	if CounterAttrByID(AttrClassPortInfo) != nil {
		t.Error("ClassPortInfo is no counter attribute")
	}
	// Bits that monitoring programs rely on.
	pc := CounterAttrByID(AttrPortCounters)
	for _, tc := range []struct {
		c   ib.Counter
		bit uint8
	}{{ib.SymbolErrorCounter, 0}, {ib.VL15Dropped, 11}, {ib.PortXmitData, 12}, {ib.PortRcvPkts, 15},
		{ib.PortXmitWait, 16}, {ib.QP1Dropped, 17}} {
		for _, row := range pc.Rows {
			if row.Counter == tc.c && row.Select != tc.bit {
				t.Errorf("%s is selected by bit %d, want %d", tc.c, row.Select, tc.bit)
			}
		}
	}
}
