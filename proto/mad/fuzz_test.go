package mad

import (
	"bytes"
	"testing"
)

// FuzzAttributes: what parses is written back the same, but for the bits that no
// field has, and parses to the same again.
func FuzzAttributes(f *testing.F) {
	for i, tc := range typed {
		for _, g := range golden {
			if Attr(g.class, g.attr).Layout == tc.layout {
				f.Add(uint8(i), g.value.Append(nil))
			}
		}
		f.Add(uint8(i), bytes.Repeat([]byte{0xFF}, Size))
		f.Add(uint8(i), []byte{1})
	}
	f.Fuzz(func(t *testing.T, which uint8, b []byte) {
		tc := typed[int(which)%len(typed)]
		v := tc.fresh()
		n, err := v.Parse(b)
		if (err == nil) != (len(b) >= tc.layout.Size) {
			t.Fatalf("%s: %d bytes: %v", tc.layout.Name, len(b), err)
		}
		if err != nil {
			return
		}
		if n != tc.layout.Size {
			t.Fatalf("%s: parsed %d bytes, want %d", tc.layout.Name, n, tc.layout.Size)
		}
		// The table says which bits mean something.
		want := make([]byte, n)
		for i := range tc.layout.Fields {
			fl := &tc.layout.Fields[i]
			for e := range fl.Len() {
				if fl.Bits > 64 {
					copy(fl.Slice(want, e), fl.Slice(b, e))
				} else {
					fl.Put(want, e, fl.Get(b, e))
				}
			}
		}
		if got := v.Append(nil); !bytes.Equal(got, want) {
			t.Fatalf("%s:\n got %x\nwant %x", tc.layout.Name, got, want)
		}
		if tc.layout.Dump(b) == "" {
			t.Fatalf("%s dumps as nothing", tc.layout.Name)
		}
	})
}

// FuzzDump: the printer takes any bytes.
func FuzzDump(f *testing.F) {
	f.Add(drSMP(f))
	for _, g := range golden {
		f.Add(datagram(g.class, g.attr, g.value.Append(nil)))
	}
	f.Add([]byte{})
	f.Add(bytes.Repeat([]byte{0xFF}, Size))
	f.Fuzz(func(t *testing.T, b []byte) {
		if s := Dump(b); s == "" && len(b) > 0 {
			t.Fatalf("%d bytes dump as nothing", len(b))
		}
	})
}
