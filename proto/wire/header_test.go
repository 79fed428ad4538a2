package wire

import (
	"bytes"
	"errors"
	"testing"
)

// header is one header's codec and one value of it, for the checks that
// all headers share.
type header[T comparable] struct {
	size   int
	golden string // hex
	value  T
	parse  func([]byte) (T, int, error)
	append func(T, []byte) []byte
	// reserved, in hex, has all reserved bits set and otherwise equals golden.
	reserved string
}

// check holds golden bytes against the value both ways, and every truncation
// must fail.
func (h header[T]) check(t *testing.T) {
	t.Helper()
	b := unhex(t, h.golden)
	if len(b) != h.size {
		t.Fatalf("golden has %d bytes, want %d", len(b), h.size)
	}
	v, n, err := h.parse(append(b, 0xAA, 0x55))
	if err != nil || n != h.size || v != h.value {
		t.Errorf("parse: got %+v, %d, %v\nwant %+v, %d", v, n, err, h.value, h.size)
	}
	if got := h.append(h.value, []byte{0x99}); !bytes.Equal(got[1:], b) || got[0] != 0x99 {
		t.Errorf("append: got %x, want 99%x", got, b)
	}
	for i := range b {
		_, n, err := h.parse(b[:i])
		if !errors.Is(err, ErrTruncated) || n != 0 {
			t.Errorf("first %d bytes: %d, %v; want 0, %v", i, n, err, ErrTruncated)
		}
	}
	if h.reserved != "" {
		if v, _, err := h.parse(unhex(t, h.reserved)); err != nil || v != h.value {
			t.Errorf("reserved bits set: got %+v, %v\nwant %+v", v, err, h.value)
		}
	}
}

// fuzz holds parse, append, parse to be the identity.
func (h header[T]) fuzz(f *testing.F) {
	f.Add(unhex(f, h.golden))
	f.Add(bytes.Repeat([]byte{0xFF}, h.size))
	f.Add(make([]byte, h.size-1))
	f.Fuzz(func(t *testing.T, b []byte) {
		v, n, err := h.parse(b)
		if err != nil {
			if len(b) >= h.size {
				t.Fatalf("%d bytes: %v", len(b), err)
			}
			return
		}
		if n != h.size {
			t.Fatalf("took %d bytes, want %d", n, h.size)
		}
		w := h.append(v, nil)
		again, m, err := h.parse(w)
		if err != nil || m != len(w) || len(w) != h.size || again != v {
			t.Fatalf("got %+v, %d, %v\nwant %+v", again, m, err, v)
		}
	})
}
