package perf

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"softib/proto/ib"
	"softib/verbs"
)

// The connection may be one between processes.
func TestOverASocket(t *testing.T) {
	a, b := fabric(t, "star:2")
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var conns [2]net.Conn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "socket")
		if conns[i], err = net.FileConn(f); err != nil {
			t.Fatal(err)
		}
		f.Close()
	}
	passive := make(chan error, 1)
	go func() { passive <- Passive(t.Context(), b.Device(), conns[1]) }()
	rows := 0
	cfg := Config{Test: SendBW, Sizes: []int{8, 5000}, Iters: 50, QPs: MaxQPs, TxDepth: 2}
	err = Active(t.Context(), a.Device(), conns[0], cfg, func(Setting) error { return nil },
		func(Row) error { rows++; return nil })
	if err := errors.Join(err, <-passive); err != nil || rows != 2 {
		t.Errorf("%d rows, %v", rows, err)
	}
}

// A side ends when the other one is gone, or talks nonsense, and says which.
func TestBadPeers(t *testing.T) {
	a, b := fabric(t, "star:2")
	end := `{"end":{"device":"x","qps":[{"LID":1,"QPN":77,"PSN":0,"Port":1,"MTU":5}],"addr":0,"rkey":0}}` + "\n"
	config := `{"config":{"test":"send_lat","iters":1000000}}` + "\n"
	for _, c := range []struct {
		name, says string
		active     bool // the side under test
		nonsense   bool // or it is the other's failure
	}{
		{"passive gone at once", "", true, false},
		{"passive gone before it is ready", end, true, false},
		{"passive gone during the test", end + `{"step":"ready"}` + "\n", true, false},
		{"passive fails", end + `{"error":"on fire"}` + "\n", true, false},
		{"passive of another kind", "SSH-2.0-OpenSSH\r\n", true, true},
		{"no queue pairs", `{"end":{"device":"x"}}` + "\n", true, true},
		{"wrong step", end + `{"step":"intact"}` + "\n", true, true},
		{"two things at once", `{"step":"ready","config":{"test":"send_lat"}}` + "\n", true, true},
		{"a long word", strings.Repeat("x", wordMax+1), true, true},
		{"talkative", end + strings.Repeat(`{"step":"ready"}`+"\n", 2*wordsMax), true, true},
		{"active gone at once", "", false, false},
		{"active gone during the test", config + end, false, false},
		{"active without a test", end, false, true},
		{"active with no such test", `{"config":{"test":"waltz"}}` + "\n", false, true},
		{"done before it begins", config + end + `{"step":"bye"}` + "\n", false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			ours, theirs := net.Pipe()
			go func() { _, _ = io.Copy(io.Discard, theirs) }()
			go func() {
				_, _ = io.WriteString(theirs, c.says)
				if !c.nonsense {
					theirs.Close()
				}
			}()
			defer theirs.Close()
			ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
			defer cancel()
			var err error
			if c.active {
				err = Active(ctx, a.Device(), ours, Config{Test: SendLat, Iters: MaxIters / 10},
					func(Setting) error { return nil }, func(Row) error { return nil })
			} else {
				err = Passive(ctx, b.Device(), ours)
			}
			if _, isPeer := errors.AsType[*PeerError](err); isPeer == c.nonsense ||
				errors.Is(err, ErrTalk) != c.nonsense {
				t.Errorf("got %v", err)
			}
		})
	}
}

// What a side refuses is its own error, and the other's peer's.
func TestFirst(t *testing.T) {
	own, peer := errors.New("own"), &PeerError{"own"}
	for _, c := range []struct{ active, passive, want error }{
		{nil, nil, nil}, {own, peer, own}, {peer, own, own}, {own, nil, own}, {nil, own, own}, {peer, peer, peer},
		{peer, nil, peer},
	} {
		if got := First(c.active, c.passive); got != c.want {
			t.Errorf("First(%v, %v) = %v, want %v", c.active, c.passive, got, c.want)
		}
	}
}

// The largest test's queue pairs fit into a word.
func TestLargestWord(t *testing.T) {
	e := address{Device: strings.Repeat("x", 64), Addr: 1<<64 - 1, RKey: 1<<32 - 1}
	for range MaxQPs {
		e.QPs = append(e.QPs, verbs.Info{LID: 0xFFFF, QPN: 0xFFFFFF, PSN: 0xFFFFFF, Port: 255, MTU: ib.MTU4096})
	}
	line, err := json.Marshal(word{End: &e})
	if err != nil || len(line) >= wordMax {
		t.Fatalf("%d bytes, %v: want less than %d", len(line), err, wordMax)
	}
	if w, err := parseWord(line); err != nil || w.End.QPs[MaxQPs-1] != e.QPs[MaxQPs-1] {
		t.Errorf("it reads back as %+v, %v", w, err)
	}
	for i := range line[:min(len(line), 4096)] {
		if _, err := parseWord(line[:i]); !errors.Is(err, ErrTalk) {
			t.Fatalf("the first %d bytes are taken for a word: %v", i, err)
		}
	}
}

func FuzzWord(f *testing.F) {
	for _, s := range []string{
		`{"config":{"test":"send_lat","sizes":[8]}}`, `{"end":{"device":"h1","qps":[{"LID":1}],"addr":1,"rkey":2}}`,
		`{"step":"ready"}`, `{"error":"x"}`, `{}`, `[`, ``,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		w, err := parseWord(line)
		if err != nil {
			return
		}
		if w.Config != nil && w.Config.Check() != nil {
			return
		}
		text, err := json.Marshal(w)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := parseWord(text); err != nil {
			t.Errorf("%q was read, and written as %q: %v", line, text, err)
		}
	})
}
