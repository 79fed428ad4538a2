package hca

import (
	"encoding/binary"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"softib/proto/ib"
)

var update = flag.Bool("update", false, "write what the scripts print into testdata")

// TestScripts runs the scenarios under testdata: blocks of commands, a line
// of dashes, and what they print. Lines of a run are: the time in
// microseconds, then a packet ("a>b", A: asks for an ACK), a completion ("wc") or an event.
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, f := range files {
		t.Run(strings.TrimSuffix(filepath.Base(f), ".txt"), func(t *testing.T) { runScript(t, f, f, 0) })
	}
}

// TestBundledScripts runs the same scenarios where packets travel in bundles. What
// the commands bring about stands in files of its own.
func TestBundledScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, f := range files {
		name := filepath.Base(f)
		t.Run(strings.TrimSuffix(name, ".txt"), func(t *testing.T) {
			runScript(t, f,
				filepath.Join("testdata", "bundled", name), 16)
		})
	}
}

// runScript runs the commands in file and compares with what golden says, which
// has the same commands.
func runScript(t *testing.T, file, golden string, bundle int) {
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if golden != file && !*update {
		other, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if commands(raw) != commands(other) {
			t.Fatalf("%s has other commands than %s: run with -update", golden, file)
		}
		raw = other
	}
	s := &script{t: t, ends: map[string]*end{}, bundle: bundle}
	var out strings.Builder
	for _, block := range strings.Split(strings.TrimRight(string(raw), "\n"), "\n\n") {
		cmds, want, _ := strings.Cut(block, "\n----\n")
		cmds = strings.TrimSuffix(cmds, "\n----")
		onlyComment := true
		for _, line := range strings.Split(cmds, "\n") {
			if !strings.HasPrefix(line, "#") {
				onlyComment = false
				s.do(line)
			}
		}
		out.WriteString(cmds)
		if onlyComment {
			out.WriteString("\n\n")
			continue
		}
		got := strings.TrimRight(strings.Join(s.out, "\n"), "\n")
		if got == "" {
			got = "(nothing)"
		}
		s.out = nil
		out.WriteString("\n----\n" + got + "\n\n")
		if !*update && got != strings.TrimRight(want, "\n") {
			t.Fatalf("%s: after\n%s\ngot:\n%s\nwant:\n%s", file, cmds, got, want)
		}
	}
	for _, e := range s.ends {
		e.intact()
	}
	if *update {
		if err := os.WriteFile(golden, []byte(strings.TrimRight(out.String(), "\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// commands is what a script asks for, without what came of it.
func commands(raw []byte) string {
	out := ""
	for _, block := range strings.Split(strings.TrimRight(string(raw), "\n"), "\n\n") {
		cmds, _, _ := strings.Cut(block, "\n----")
		out += cmds + "\n"
	}
	return out
}

// script interprets the commands.
type script struct {
	t     *testing.T
	w     *world
	ends  map[string]*end
	rules []*rule
	out   []string
	// bundle is how many packets may travel as one.
	bundle int
}

// rule loses packets that match.
type rule struct {
	from  string
	op    string
	psn   int
	dlid  int
	left  int
	twice bool
}

type args struct {
	s    *script
	kv   map[string]string
	word []string
}

func (a args) num(key string, d int) int {
	v, has := a.kv[key]
	if !has {
		return d
	}
	n, err := strconv.ParseInt(v, 0, 64)
	if err != nil {
		a.s.t.Fatalf("%s=%s: %v", key, v, err)
	}
	return int(n)
}

func (a args) has(word string) bool {
	for _, w := range a.word {
		if w == word {
			return true
		}
	}
	return false
}

func (s *script) world(ports int) *world {
	if s.w == nil {
		s.w = newWorld(s.t, 3, ports)
		s.w.viaWire, s.w.tracing = s.bundle <= 1, true
		s.w.bundles(s.bundle)
		s.w.fate = s.fate
	}
	return s.w
}

func (s *script) fate(f *flying) fate {
	for _, r := range s.rules {
		if r.left == 0 || r.from != f.from.name || !strings.Contains(f.p.BTH.Opcode.String(), r.op) ||
			r.psn >= 0 && (ib.PSN(r.psn).Before(f.p.BTH.PSN) || ib.PSN(r.psn).After(lastPSN(&f.p))) || r.dlid > 0 &&
			int(f.p.LRH.DLID) != r.dlid {
			continue
		}
		r.left--
		if r.twice {
			return fate{dup: 1}
		}
		return fate{drop: true}
	}
	return fate{}
}

func (s *script) print(format string, v ...any) { s.out = append(s.out, fmt.Sprintf(format, v...)) }

func (s *script) end(a args, i int) *end {
	s.t.Helper()
	e := s.ends[a.word[i]]
	if e == nil {
		s.t.Fatalf("no end %q", a.word[i])
	}
	return e
}

// flush moves what was observed into the output.
func (s *script) flush() {
	s.w.observe()
	s.out = append(s.out, s.w.trace...)
	s.w.trace = nil
}

// runQuiet runs until nothing is under way, and on to the next millisecond:
// traces do not depend on timers that came up in vain.
func (s *script) runQuiet() {
	s.t.Helper()
	quiet := func() bool {
		for _, h := range s.w.hosts {
			for _, q := range h.qps {
				if q != nil && (q.ackDue != ib.Never || q.rnrUntil != 0) {
					return false
				}
			}
		}
		return len(s.w.flight) == 0
	}
	s.w.pump()
	for n := 0; !quiet() && s.w.step(ib.Never); n++ {
		if n > 10000 {
			s.t.Fatal("never quiet")
		}
	}
	s.w.now = (s.w.now/ib.Millisecond + 1) * ib.Millisecond
}

var scriptOps = map[string]WROpcode{
	"send": WRSend, "send_imm": WRSendImm, "send_inv": WRSendInv, "write": WRRDMAWrite, "write_imm": WRRDMAWriteImm,
	"read": WRRDMARead, "cas": WRAtomicCmpSwap, "faa": WRAtomicFetchAdd, "local_inv": WRLocalInv,
}

func (s *script) do(line string) {
	s.t.Helper()
	a := args{s: s, kv: map[string]string{}}
	for _, f := range strings.Fields(line) {
		if k, v, isKV := strings.Cut(f, "="); isKV {
			a.kv[k] = v
		} else {
			a.word = append(a.word, f)
		}
	}
	if len(a.word) == 0 {
		return
	}
	cmd := a.word[0]
	switch cmd {
	case "pair", "xrc", "ud":
		s.makePair(cmd, a)
	case "recv":
		e := s.end(a, 1)
		e.recv(uint64(a.num("id", 0)), e.sge(a.num("off", 0), a.num("len", 1024)))
	case "post":
		s.post(a)
	case "lose", "twice":
		s.rules = append(s.rules, &rule{from: a.word[1], op: strings.ReplaceAll(a.kv["op"], "_", " "),
			psn: a.num("psn", -1), dlid: a.num("dlid", 0), left: a.num("times", 1), twice: cmd == "twice"})
	case "heal":
		s.rules = nil
	case "run":
		if us := a.num("for", 0); us > 0 {
			s.w.runFor(ib.Time(us) * ib.Microsecond)
		} else {
			s.runQuiet()
		}
		s.flush()
	case "room": // of the buffers that copies are made in
		n := a.num("to", 4096)
		s.w.room = func() int { return n }
	case "modify":
		s.modify(a)
	case "mem":
		e := s.end(a, 1)
		off := a.num("off", 0)
		s.print("% x", e.mem[off:off+a.num("len", 8)])
	case "get64":
		s.print("%d", binary.LittleEndian.Uint64(s.end(a, 1).mem[a.num("off", 0):]))
	case "set64":
		binary.LittleEndian.PutUint64(s.end(a, 1).mem[a.num("off", 0):], uint64(a.num("to", 0)))
	case "state":
		e := s.end(a, 1)
		s.print("%v %v", e.qp.state, e.qp.attr.PathMigState)
	case "dereg":
		e := s.end(a, 1)
		ok(s.t, e.h.DeregMR(e.mr))
	case "stats":
		s.stats(a)
	default:
		s.t.Fatalf("unknown command %q", line)
	}
}

func (s *script) makePair(cmd string, a args) {
	w := s.world(a.num("ports", 1))
	c := conf{
		mtu: ib.MTU(a.num("mtu", int(ib.MTU256))), psn: ib.PSN(a.num("psn", 0)), timeout: uint8(a.num("timeout", 8)),
		retry: uint8(a.num("retry", 7)), rnr: uint8(a.num("rnr", 7)), rnrTimer: uint8(a.num("rnr_timer", 1)),
		rd: uint8(a.num("rd", 4)), destRD: uint8(a.num("dest_rd", 4)), srq: a.num("srq", 0),
		srqLimit: a.num("srq_limit", 0), cqe: a.num("cqe", 0),
		noRetry: a.kv["retry"] == "0", noRNR: a.kv["rnr"] == "0", noRD: a.kv["rd"] == "0",
		noTimeout: a.kv["timeout"] == "0", noDestRD: a.kv["dest_rd"] == "0",
		noAccess: a.has("no_qp_access"), blockSMC: a.has("block_self_mc"),
	}
	if a.has("read_only") {
		c.mrAccess = AccessRemoteRead
	}
	var x, y *end
	switch {
	case cmd == "xrc":
		x, y = w.xrcPair(c)
	case cmd == "ud":
		c.typ = UD
		x, y = w.pair(c)
	case a.has("uc"):
		c.typ = UC
		x, y = w.pair(c)
	default:
		x, y = w.pair(c)
	}
	x.name, y.name = "a"+a.kv["as"], "b"+a.kv["as"]
	s.ends[x.name], s.ends[y.name] = x, y
}

func (s *script) post(a args) {
	e := s.end(a, 1)
	peer := s.ends[strings.Map(func(r rune) rune {
		switch r {
		case 'a':
			return 'b'
		case 'b':
			return 'a'
		}
		return r
	}, a.word[1])]
	op, known := scriptOps[a.word[2]]
	if !known {
		s.t.Fatalf("unknown operation %q", a.word[2])
	}
	n := a.num("len", 8)
	wr := SendWR{
		WRID: uint64(a.num("id", 0)), Opcode: op, Flags: SendSignaled, Imm: uint32(a.num("imm", 0)),
		RemoteAddr: uint64(memVA + a.num("at", 0)), RKey: peer.mr.RKey(),
		CompareAdd: uint64(a.num("cmp", a.num("add", 0))), Swap: uint64(a.num("swap", 0)),
	}
	if n > 0 {
		wr.SGList = []SGE{e.sge(a.num("off", 0), n)}
	}
	for _, w := range a.word[3:] {
		switch w {
		case "nosig":
			wr.Flags &^= SendSignaled
		case "fence":
			wr.Flags |= SendFence
		case "soli":
			wr.Flags |= SendSolicited
		case "bad_rkey":
			wr.RKey ^= 1
		case "bad_lkey":
			wr.SGList[0].LKey ^= 1
		default:
			s.t.Fatalf("unknown word %q", w)
		}
	}
	if peer.srq != nil {
		wr.RemoteSRQN = peer.srq.Num() + uint32(a.num("srq_off", 0))
	}
	e.post(wr)
}

func (s *script) modify(a args) {
	e := s.end(a, 1)
	at, mask := QPAttr{}, MaskState
	switch a.word[2] {
	case "err":
		at.State = StateErr
	case "reset":
		at.State = StateReset
	case "rts":
		at.State = StateRTS
	case "sqd":
		at.State = StateSQD
		if a.has("notify") {
			at.EnSQDNotify = true
			mask |= MaskEnSQDNotify
		}
	case "rearm": // both have two ports: the alternate path joins the second ones
		at = QPAttr{AltPort: 2, AltTimeout: 8, PathMigState: Rearm, AltAH: AHAttr{DLID: lidOf(1-e.h.idx, 2), Port: 2}}
		mask = MaskAltPath | MaskPathMigState
	case "migrate":
		at.PathMigState = Migrated
		mask = MaskPathMigState
	default:
		s.t.Fatalf("modify to %q?", a.word[2])
	}
	if err := e.h.ModifyQP(e.qp, at, mask); err != nil {
		s.print("%v", err)
	}
	s.flush()
}

func (s *script) stats(a args) {
	for _, h := range s.w.hosts {
		if h.name != a.word[1] {
			continue
		}
		st := h.Stats
		for _, f := range []struct {
			name string
			n    uint64
		}{
			{"retransmits", st.Retransmits}, {"timeouts", st.Timeouts}, {"seq NAKs received", st.SeqNAKsRcvd},
			{"RNR NAKs received", st.RNRNAKs},
			{"seq NAKs sent", st.SeqNAKsSent}, {"RNR NAKs sent", st.RNRsSent}, {"duplicates", st.Duplicates},
			{"migrations", st.PathMigrations},
		} {
			if f.n > 0 {
				s.print("%s: %d", f.name, f.n)
			}
		}
		for d, n := range st.Drops {
			if n > 0 {
				s.print("dropped, %v: %d", Drop(d), n)
			}
		}
	}
}
