package policy

import (
	"errors"
	"reflect"
	"strings"
	"testing"
)

func TestGUID2MKey(t *testing.T) {
	text := "0x0002c90300000001 0x00000000deadbeef\n\n0x0002c90300000002 0x0000000000000001\n\n"
	want := GUID2MKey{{0x2c90300000001, 0xdeadbeef}, {0x2c90300000002, 1}}
	got, err := ParseGUID2MKey("guid2mkey", []byte(text))
	if err != nil || !reflect.DeepEqual(got, want) || got.String() != text {
		t.Errorf("%v, %v", got, err)
	}
	// An entry that was cut off costs itself alone.
	for n := range len(text) {
		part, err := ParseGUID2MKey("guid2mkey", []byte(text[:n]))
		if len(part) > 2 || n > 40 && (len(part) == 0 || part[0] != want[0]) {
			t.Errorf("the first %d bytes: %v, %v", n, part, err)
		}
	}
	for bad, at := range map[string]struct {
		kind error
		want string
	}{
		"0x1":                     {ErrSyntax, "f:1:1:"},
		"0x1 0x2 0x3":             {ErrSyntax, "f:1:1:"},
		"zero 0x2":                {ErrValue, "f:1:1:"},
		"0x1 two":                 {ErrValue, "f:1:5:"},
		"0x1 2\n0x1 3":            {ErrDuplicate, "f:2:1:"},
		"0x1 0x1ffffffffffffffff": {ErrValue, "f:1:5:"},
	} {
		if _, err := ParseGUID2MKey("f", []byte(bad)); !errors.Is(err, at.kind) ||
			!strings.Contains(err.Error(), at.want) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func FuzzGUID2MKey(f *testing.F) {
	f.Add([]byte("0x0002c90300000001 0x00000000deadbeef\n\n"))
	f.Add([]byte("1 2 # a comment\n3"))
	f.Fuzz(func(t *testing.T, data []byte) {
		got, _ := ParseGUID2MKey("f", data)
		again, err := ParseGUID2MKey("f", got.Append(nil))
		if err != nil || len(again) != len(got) {
			t.Fatalf("%v reads back as %v: %v", got, again, err)
		}
	})
}
