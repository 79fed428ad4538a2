package policy

import (
	"errors"
	"maps"
	"strings"
	"testing"
)

// As Debian's opensm writes it for a star of three hosts, one of which it did not find.
const sampleNeighbors = `0x0250f11b01000011:1 0x0250f11b02000010:1

0x0250f11b02000010:1 0x0250f11b01000011:1

0x0250f11b02000010:2 0x0250f11b01000021:1

`

func TestNeighbors(t *testing.T) {
	got, err := ParseNeighbors("f", []byte(sampleNeighbors))
	if err != nil || len(got) != 3 {
		t.Fatalf("%v, %v", got, err)
	}
	if far := got[CableEnd{0x0250f11b02000010, 2}]; far != (CableEnd{0x0250f11b01000021, 1}) {
		t.Errorf("behind port 2 of the switch is %v", far)
	}
	if text := string(got.Append(nil)); text != sampleNeighbors {
		t.Errorf("it is written as\n%s", text)
	}
	for bad, at := range map[string]struct {
		kind error
		want string
	}{
		"0x1:1":                  {ErrSyntax, "f:1:1:"},
		"0x1 0x2:1":              {ErrSyntax, "f:1:1:"},
		"0x1:1 0x2":              {ErrSyntax, "f:1:7:"},
		"0x1:1 0:1":              {ErrValue, "f:1:7:"},
		"0x1:255 0x2:1":          {ErrValue, "f:1:5:"},
		"0x1:1 0x2:x":            {ErrValue, "f:1:11:"},
		"0x1:1 0x2:1\n0x1:1 3:1": {ErrDuplicate, "f:2:1:"},
	} {
		if _, err := ParseNeighbors("f", []byte(bad)); !errors.Is(err, at.kind) ||
			!strings.Contains(err.Error(), at.want) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func FuzzNeighbors(f *testing.F) {
	f.Add([]byte(sampleNeighbors))
	f.Add([]byte("1:0 2:254 # a comment\n3"))
	f.Fuzz(func(t *testing.T, data []byte) {
		got, _ := ParseNeighbors("f", data)
		again, err := ParseNeighbors("f", got.Append(nil))
		if err != nil || !maps.Equal(again, got) {
			t.Fatalf("%v reads back as %v: %v", got, again, err)
		}
	})
}
