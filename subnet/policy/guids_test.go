package policy

import (
	"errors"
	"reflect"
	"testing"

	"softib/proto/ib"
)

func TestGUIDs(t *testing.T) {
	got, err := ParseGUIDs("roots", []byte("# spines\n0x0002c902400a3b10\n\n  0x2c902400a3b11\t# second\r\n42\n"))
	want := GUIDList{0x0002c902400a3b10, 0x0002c902400a3b11, 42}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v, %v", got, err)
	}
	const text = "0x0002c902400a3b10\n0x0002c902400a3b11\n0x000000000000002a\n"
	if got.String() != text {
		t.Errorf("written: %q", got.String())
	}
	_, err = ParseGUIDs("roots", []byte("0x1\n0x2 0x3\nspine1\n0x1\n0002c902400a3b10\n"))
	const problems = `roots:2:5: syntax error: "0x3": expected one GUID on a line
roots:3:1: bad value: "spine1": expected a GUID: up to 16 hex digits after 0x, not all 0
roots:4:1: said twice: "0x1": expected each GUID once; it is also in line 1
roots:5:1: bad value: "0002c902400a3b10": expected a GUID: up to 16 hex digits after 0x, not all 0`
	if err == nil || err.Error() != problems {
		t.Errorf("problems:\n%v", err)
	}
}

func TestNodeNameMap(t *testing.T) {
	const file = `# names
0x0002c902400a3b10 "IB1 (Rack 11 slot 1) # left" # the first
0x2c902400a3b11	spine two
0x0002c902400a3b12    "leaf"
`
	got, err := ParseNodeNameMap("names", []byte(file))
	want := NodeNameMap{{0x0002c902400a3b10, "IB1 (Rack 11 slot 1) # left"}, {0x0002c902400a3b11, "spine two"},
		{0x0002c902400a3b12, "leaf"}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	if again, err := ParseNodeNameMap("names", got.Append(nil)); err != nil || !reflect.DeepEqual(again, got) {
		t.Errorf("%+v, %v", again, err)
	}
	for _, c := range []struct {
		line string
		kind error
		col  int
	}{
		{`0x1`, ErrMissing, 4}, {`0x1 ""`, ErrMissing, 6}, {`0x1 "a`, ErrSyntax, 5}, {`0x1 "a" b`, ErrSyntax, 9},
		{`spine "a"`, ErrValue, 1}, {`0x1 a"b`, ErrSyntax, 5},
	} {
		_, err := ParseNodeNameMap("f", []byte(c.line))
		var p *Problem
		if !errors.As(err, &p) || !errors.Is(err, c.kind) || p.Col != c.col {
			t.Errorf("%s: %v, want %v at %d", c.line, err, c.kind, c.col)
		}
	}
}

func TestGUID2LID(t *testing.T) {
	const file = "0x0002c90300000002 0x0004 0x0007\n\n0x0002c90300000001 0x0001 0x0001\n\n"
	got, err := ParseGUID2LID("guid2lid", []byte(file))
	if want := (GUID2LID{{hca + 1, 1, 1}, {hca + 2, 4, 7}}); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v, %v", got, err)
	}
	const want = "0x0002c90300000001 0x0001 0x0001\n\n0x0002c90300000002 0x0004 0x0007\n\n"
	if text := got.String(); text != want {
		t.Errorf("written: %q", text)
	}
	got, err = ParseGUID2LID("g", []byte("0x1 1 1\n0x2 1 1\n0x3 0xc000 0xc000\n0x4 5 6\n0x5 8 10\n0x1 9 9\n"+
		"0x6 7\n0x7 16 15\n0x8 0x100 0x1ff\n0x9 0xbfff 0xbfff"))
	var at []int
	if ps, ok := err.(Problems); ok {
		for _, p := range ps {
			at = append(at, p.Line)
		}
	}
	if want := []int{2, 3, 3, 4, 5, 6, 7, 8, 9}; !reflect.DeepEqual(at, want) {
		t.Errorf("problems in lines %v, want %v: %v", at, want, err)
	}
	if want := (GUID2LID{{1, 1, 1}, {9, ib.LIDUnicastMax, ib.LIDUnicastMax}}); !reflect.DeepEqual(got, want) {
		t.Errorf("what is good: %v, want %v", got, want)
	}
}

// TestListsTruncated: cut within a line, a line that needs more than it has is reported.
func TestListsTruncated(t *testing.T) {
	const file = "0x0002c90300000002 0x0004 0x0007\n"
	for i := 1; i < len(file)-1; i++ {
		if _, err := ParseGUID2LID("f", []byte(file[:i])); err == nil {
			t.Errorf("%q is accepted", file[:i])
		}
	}
	const name = `0x0002c90300000002 "leaf 1"`
	for i := 1; i < len(name); i++ {
		if _, err := ParseNodeNameMap("f", []byte(name[:i])); err == nil {
			t.Errorf("%q is accepted", name[:i])
		}
	}
}

func FuzzLists(f *testing.F) {
	f.Add([]byte("0x0002c90300000002 0x0004 0x0007\n\n0x0002c90300000001 0x0001 0x0001\n"))
	f.Add([]byte("0x0002c902400a3b10 \"IB1 (Rack 11 slot 1) # left\" # the first\n0x1 spine two\n"))
	f.Add([]byte("0x1\n0x2 # two\n"))
	f.Add([]byte("0x1 4\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if l, err := ParseGUIDs("f", data); err == nil {
			if again, err := ParseGUIDs("f", l.Append(nil)); err != nil || !reflect.DeepEqual(again, l) {
				t.Errorf("GUIDs: %v %v, were %v", again, err, l)
			}
		}
		if l, err := ParseNodeNameMap("f", data); err == nil {
			if again, err := ParseNodeNameMap("f", l.Append(nil)); err != nil || !reflect.DeepEqual(again, l) {
				t.Errorf("names: %q %v, were %q", again, err, l)
			}
		}
		if l, err := ParseGUID2LID("f", data); err == nil {
			if again, err := ParseGUID2LID("f", l.Append(nil)); err != nil || !reflect.DeepEqual(again, l) {
				t.Errorf("LIDs: %v %v, were %v", again, err, l)
			}
		}
	})
}
