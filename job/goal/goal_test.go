package goal

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"softib/job"
)

const example = `// a comment
num_ranks 3

rank 0 { /* one
that goes on */
l1: calc 1500
l2: send 4096b to 1 tag 7 cpu 2 nic 1
l2 requires l1
l3: send 1 b to 2
l3 irequires l2
}
rank 2 {
recv 1b from -1 tag -1 }
rank 1 { a: recv 4096b from 0 tag 7
b: calc 10 cpu 1
b requires a
}
`

// TestRoundTrip: what was read is written and read again, as text and as bytes.
func TestRoundTrip(t *testing.T) {
	s, err := Parse("example", []byte(example))
	if err != nil {
		t.Fatal(err)
	}
	if ops, messages, sum := s.Count(); ops != 6 || messages != 2 || sum != 4097 || s.CPUs != 3 || s.NICs != 2 {
		t.Errorf("%d operations, %d messages, %d bytes, %d processors, %d ports", ops, messages, sum, s.CPUs, s.NICs)
	}
	if o := s.Ranks[2].Ops[0]; o.Peer != job.Any || o.Tag != job.Any {
		t.Errorf("the open receive is a %v", o)
	}
	text, bin := AppendText(nil, s), AppendBinary(nil, s)
	for _, form := range [][]byte{text, bin} {
		again, err := Parse("again", form)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(AppendBinary(nil, again), bin) || !bytes.Equal(AppendText(nil, again), text) {
			t.Errorf("it was\n%s\nand is\n%s", text, AppendText(nil, again))
		}
	}
}

// TestWrong: what is wrong is said with its line.
func TestWrong(t *testing.T) {
	for text, want := range map[string]string{
		"":                                                  "no num_ranks",
		"rank 0 {\n}":                                       "f:1: want num_ranks first",
		"num_ranks 0":                                       "f:1: want at least one rank",
		"num_ranks 1000000000":                              "want a number from 0 to 262144",
		"num_ranks 2\nnum_ranks 2":                          "f:2: num_ranks was said before",
		"num_ranks 2\nrank 2 {":                             "f:2: \"2\": want a number from 0 to 1",
		"num_ranks 2\nrank 0 {\ncalc 1":                     "f:3: rank 0 has no closing brace",
		"num_ranks 1\nrank 0 {\n}\nrank 0 {":                "f:4: rank 0 was there before",
		"num_ranks 1\nrank 0 {\ncalc x\n}":                  "f:3: \"x\": want a number",
		"num_ranks 1\nrank 0 {\ndance\n}":                   "f:3: \"dance\": want send, recv, calc",
		"num_ranks 2\nrank 0 {\nsend 5 to 1":                "f:3: want send BYTESb to RANK",
		"num_ranks 2\nrank 0 {\nsend 5b to 7":               "f:3: \"7\": want a number from 0 to 1",
		"num_ranks 2\nrank 0 {\nsend 5b to 1 color 3\n}":    "f:3: \"color\": what may follow",
		"num_ranks 2\nrank 0 {\nsend 5b to 1 tag\n}":        "f:3: \"tag\" has nothing after it",
		"num_ranks 1\nrank 0 {\na: calc 1\na: calc 2\n}":    "f:4: label \"a\" is there twice",
		"num_ranks 1\nrank 0 {\na: calc 1\na requires b\n}": "f:4: rank 0 has no label \"b\"",
		"num_ranks 1\nrank 0 {\na: calc 1\na requires a\n}": "f: line 3",
		"num_ranks 2\nrank 0 {\n\nrecv 5b from 1\n}":        "f: line 4 (rank 0): receive of 5 bytes",
		"num_ranks 1\n/* no end":                            "f:2: the comment has no end",
		"num_ranks 1\nrank 0 { ; }":                         "f:2: ';' is no part of GOAL",
	} {
		_, err := Parse("f", []byte(text))
		if !errors.Is(err, job.ErrSchedule) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	s, err := Parse("f", []byte(example))
	if err != nil {
		t.Fatal(err)
	}
	whole := AppendBinary(nil, s)
	for n := headSize; n < len(whole); n++ {
		if _, err := Parse("f", whole[:n]); err == nil {
			t.Errorf("the first %d of %d bytes are taken for a schedule", n, len(whole))
		}
	}
	spent := append([]byte{cookieSpent & 0xff, cookieSpent >> 8}, whole[2:]...)
	if _, err := Parse("f", spent); err == nil || !strings.Contains(err.Error(), "make it anew") {
		t.Errorf("a file that was used up: %v", err)
	}
}

// FuzzText: any text is a schedule or an error, and a schedule can be written and read again.
func FuzzText(f *testing.F) {
	f.Add([]byte(example))
	f.Add([]byte("num_ranks 1\nrank 0 {\n}\n"))
	f.Fuzz(fuzz)
}

// FuzzBinary is the same for bytes.
func FuzzBinary(f *testing.F) {
	s, err := Parse("example", []byte(example))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(AppendBinary(nil, s))
	f.Fuzz(fuzz)
}

func fuzz(t *testing.T, data []byte) {
	s, err := Parse("f", data)
	if err != nil {
		return
	}
	bin := AppendBinary(nil, s)
	for _, form := range [][]byte{bin, AppendText(nil, s)} {
		again, err := Parse("again", form)
		if err != nil {
			t.Fatalf("it was read, and not again: %v", err)
		}
		if !bytes.Equal(AppendBinary(nil, again), bin) {
			t.Fatal("read again it is another one")
		}
	}
}
