package history

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"
)

// The child writes as fast as it can until it is killed. It says when it began and what is flushed.
const childEnv = "SOFTIB_HISTORY_CHILD"

const (
	crashPorts = 130
	crashStep  = 5 * time.Second
)

func TestMain(m *testing.M) {
	if path := os.Getenv(childEnv); path != "" {
		if err := crashChild(path); err != nil {
			fmt.Println("error", err)
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}

// crashValue is what every port has counted between sample k and the next: exact as a code, and different from its
// neighbours.
func crashValue(port, k int) uint64 { return uint64(1 + (port+k)%500) }

func crashChild(path string) error {
	s, err := Open(path, Options{Flush: 30 * time.Second, Raw: 1000 * time.Hour, Minute: 1000 * time.Hour})
	if err != nil {
		return err
	}
	ids, err := s.PortIDs(portKeys(crashPorts))
	if err != nil {
		return err
	}
	// Go on where the last one was killed: after the last sample that is there.
	first := 0
	if c := s.chunks[tierRaw]; len(c) > 0 {
		first = int((c[len(c)-1].to-start.UnixMilli())/crashStep.Milliseconds()) + 1
	}
	fmt.Println("begin", first)
	totals := make([]Values, crashPorts)
	for k := first; ; k++ {
		if err := s.Append(start.Add(time.Duration(k)*crashStep), ids, totals); err != nil {
			return err
		}
		for p := range totals {
			totals[p][XmitBytes] += crashValue(p, k)
		}
		if k%3 == 0 {
			if err := s.Flush(); err != nil {
				return err
			}
			fmt.Println("flushed", k)
		}
	}
}

// TestKilled kills a process that writes, again and again, and wants everything that it said was flushed.
func TestKilled(t *testing.T) {
	path := filepath.Join(t.TempDir(), "h.db")
	rng := rand.New(rand.NewPCG(5, 5))
	rounds := 25
	if testing.Short() {
		rounds = 5
	}
	has := map[int]bool{} // samples that are flushed: what happened from k to k+1
	for round := range rounds {
		cmd := exec.Command(os.Args[0], "-test.run=^$")
		cmd.Env = append(os.Environ(), childEnv+"="+path)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		begin, last, kill := -1, -1, rng.IntN(12)
		for n := 0; lines.Scan(); n++ {
			f := strings.Fields(lines.Text())
			var k int
			if len(f) != 2 {
				t.Fatalf("the child says %q", lines.Text())
			}
			if _, err := fmt.Sscan(f[1], &k); err != nil {
				t.Fatalf("the child says %q", lines.Text())
			}
			if f[0] == "begin" {
				begin = k
			} else {
				last = k
			}
			if n == kill {
				// Somewhere in what follows, which takes the child a few milliseconds.
				delay := time.Duration(rng.IntN(8000)) * time.Microsecond
				time.AfterFunc(delay, func() { cmd.Process.Kill() })
			}
		}
		cmd.Wait()
		for k := begin; begin >= 0 && k < last; k++ {
			has[k] = true
		}
		checkCrashed(t, round, path, has)
	}
	if len(has) < rounds {
		t.Errorf("only %d samples in %d rounds", len(has), rounds)
	}
}

// checkCrashed opens the store and compares what is there with what should be.
func checkCrashed(t *testing.T, round int, path string, has map[int]bool) {
	t.Helper()
	s, err := Open(path, Options{Raw: 1000 * time.Hour, Minute: 1000 * time.Hour})
	if err != nil {
		t.Fatalf("round %d: %v", round, err)
	}
	defer s.Close()
	most := 0
	for k := range has {
		most = max(most, k)
	}
	if len(has) == 0 {
		return
	}
	ids := numbers(t, s, crashPorts)
	for _, p := range []int{0, 63, 64, crashPorts - 1} {
		x := query(t, s, ids[p], XmitBytes, start, start.Add(time.Duration(most+1)*crashStep), most+1)
		if x.Step != crashStep {
			t.Fatalf("round %d: step %v", round, x.Step)
		}
		got := map[int]float64{}
		for _, pt := range x.Points {
			got[int(pt.At.Sub(start)/crashStep)] = pt.Avg
		}
		for k := range has {
			if want := float64(crashValue(p, k)) / crashStep.Seconds(); got[k] != want {
				t.Fatalf("round %d: port %d, sample %d: %g, want %g", round, p, k, got[k], want)
			}
		}
	}
	if err := s.db.View(func(tx *bolt.Tx) error {
		for err := range tx.Check() {
			return err
		}
		return nil
	}); err != nil {
		t.Fatalf("round %d: bbolt says %v", round, err)
	}
}

// filled is a store's file with something of everything in it, and the series of one port.
func filled(t testing.TB) (path string, want Series) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "h.db")
	s := open(t, path, Options{})
	ids := numbers(t, s, 200)
	totals := make([]Values, len(ids))
	for k := range 2 * 720 {
		for p := range totals {
			totals[p][XmitBytes] += uint64(p * (1 + k%100))
		}
		appendTo(t, s, start.Add(time.Duration(k)*crashStep), ids, totals)
		if err := s.AppendScalar("sweep", start.Add(time.Duration(k)*crashStep), float64(k)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, path, Options{})
	want = query(t, s, 77, XmitBytes, start, start.Add(2*time.Hour), 120)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return path, want
}

// useDamaged opens and uses a file that may be damaged. Whatever happens is an error that says so.
func useDamaged(t *testing.T, what, path string) error {
	t.Helper()
	s, err := Open(path, Options{})
	if err != nil {
		var fe *FileError
		if !errors.As(err, &fe) || fe.Path != path {
			t.Fatalf("%s: %v does not name the file", what, err)
		}
		return err
	}
	_, e1 := s.Query(77, XmitBytes, start, start.Add(2*time.Hour), 120)
	_, e2 := s.Top(XmitBytes, start, start.Add(2*time.Hour), 5)
	_, e3 := s.QueryScalar("sweep", start, start.Add(2*time.Hour), 12)
	_, e4 := s.ScalarNames()
	e5 := s.Append(start.Add(3*time.Hour), []uint32{1}, make([]Values, 1))
	e6 := s.AppendScalar("sweep", start.Add(3*time.Hour), 1)
	return errors.Join(e1, e2, e3, e4, e5, e6, s.Close())
}

func TestDamagedFiles(t *testing.T) {
	path, _ := filled(t)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	try := func(what string, file []byte) error {
		p := filepath.Join(t.TempDir(), "damaged.db")
		if err := os.WriteFile(p, file, 0o600); err != nil {
			t.Fatal(err)
		}
		return useDamaged(t, what, p)
	}
	if err := try("whole", whole); err != nil {
		t.Fatalf("the whole file: %v", err)
	}
	if err := try("empty", nil); !errors.Is(err, ErrUnknownPort) || errors.Is(err, ErrCorrupt) {
		t.Errorf("an empty file is a new one without ports, but: %v", err)
	}
	for what, file := range map[string][]byte{
		"text":       []byte(strings.Repeat("this is no database\n", 3000)),
		"zeros":      make([]byte, 1<<16),
		"half":       whole[:len(whole)/2],
		"two pages":  whole[:8192],
		"some bytes": whole[:100],
		"a quarter":  whole[:len(whole)/4],
	} {
		err := try(what, file)
		if !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), "move the file away") {
			t.Errorf("%s: %v", what, err)
		}
	}
	// Pages of noise in the middle: nothing may crash, and nothing but ErrCorrupt may come of it.
	rng := rand.New(rand.NewPCG(6, 6))
	found := 0
	for round := range 60 {
		file := bytes.Clone(whole)
		for range 1 + rng.IntN(20) {
			at := 8192 + rng.IntN(len(file)-8192-64)
			for i := range 1 + rng.IntN(64) {
				file[at+i] = byte(rng.Uint32())
			}
		}
		err := try(fmt.Sprint("noise ", round), file)
		if err == nil {
			continue
		}
		found++
		if !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrNewer) && !errors.Is(err, ErrNotSaved) &&
			!errors.Is(err, ErrUnknownPort) {
			t.Errorf("round %d: %v", round, err)
		}
	}
	if found == 0 {
		t.Error("noise was never found")
	}
}

// TestEveryDamage cuts a file off at every length that a disk knows, and damages every page of it. Whatever that does,
// the file is refused as damaged, or it is used and at worst a question or a write says that it is; nothing hangs, and
// a file that is refused is as it was, for whoever wants to save what is in it.
func TestEveryDamage(t *testing.T) {
	if testing.Short() {
		t.Skip("opens a thousand files, one after the other")
	}
	path, _ := filled(t)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(9, 9))
	page := os.Getpagesize()
	p := filepath.Join(t.TempDir(), "damaged.db")
	refused, used := 0, 0
	try := func(what string, file []byte) {
		t.Helper()
		if err := os.WriteFile(p, file, 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := Open(p, Options{})
		if err != nil {
			if refused++; !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrNewer) {
				t.Errorf("%s: %v: want ErrCorrupt", what, err)
			}
			if now, _ := os.ReadFile(p); !bytes.Equal(now, file) {
				t.Errorf("%s: the file was changed", what)
			}
			return
		}
		used++
		// What a fabric does next: it gives ports that are new a number, and goes on.
		ids, err := s.PortIDs(portKeys(230))
		if err == nil {
			err = s.Append(start.Add(3*time.Hour), ids, make([]Values, len(ids)))
		}
		_, e := s.Query(77, XmitBytes, start, start.Add(2*time.Hour), 120)
		if err = errors.Join(err, e, s.Close()); err != nil && !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v: want ErrCorrupt", what, err)
		}
	}
	for n := 0; n < len(whole); n += 512 {
		if n > 16*page {
			n += page - 512 // nothing new within later pages
		}
		try(fmt.Sprintf("cut off after %d bytes", n), whole[:n])
	}
	for _, n := range []int{1, 79, 80, 100, 4095, 4097, 8191, 8193, len(whole) - 1} {
		try(fmt.Sprintf("cut off after %d bytes", n), whole[:n])
	}
	for at := 0; at < len(whole); at += page {
		noise := make([]byte, page)
		for i := range noise {
			noise[i] = byte(rng.Uint32())
		}
		for what, b := range map[string][]byte{"zeroed": make([]byte, page),
			"filled": bytes.Repeat([]byte{0xff}, page), "of noise": noise, "begun by noise": noise[:64]} {
			file := bytes.Clone(whole)
			copy(file[at:], b)
			try(fmt.Sprintf("page %d %s", at/page, what), file)
		}
	}
	t.Logf("%d refused, %d used", refused, used)
	if refused == 0 || used == 0 {
		t.Errorf("%d refused, %d used", refused, used)
	}
}

func TestOthersFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "other.db")
	db, err := bolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Update(func(tx *bolt.Tx) error {
		_,
			err := tx.CreateBucket([]byte("tenants"))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(path, Options{}); !errors.Is(err, ErrCorrupt) {
		t.Errorf("another program's database: %v", err)
	}
	if _, err := Open(filepath.Join(path, "below"), Options{}); err == nil || errors.Is(err, ErrCorrupt) {
		t.Errorf("a folder that is none: %v", err)
	}
	path = filepath.Join(t.TempDir(), "h.db")
	s := open(t, path, Options{})
	defer s.Close()
	if _, err := Open(path, Options{}); !errors.Is(err, ErrInUse) {
		t.Errorf("opened twice: %v", err)
	}
}

// TestDiskFull has a database that takes no more. Samples stay, Append says so, and they are written once there is
// room.
func TestDiskFull(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "h.db"), Options{Flush: time.Minute})
	defer s.Close()
	ids := numbers(t, s, 10)
	if err := s.Flush(); err != nil {
		t.Fatal(err)
	}
	limit := func(bytes int) {
		tx, err := s.db.Begin(true) // nobody writes meanwhile
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Rollback()
		s.db.MaxSize, s.db.AllocSize = bytes, 4096
	}
	limit(1)
	total := make([]Values, len(ids))
	var failed error
	k := 0
	for ; k < 600 && failed == nil; k++ {
		for p := range total {
			total[p][XmitBytes] += 100
		}
		failed = s.Append(sec(float64(5*k)), ids, total)
		if k%12 == 0 && failed == nil {
			failed = s.Flush()
		}
	}
	if !errors.Is(failed, ErrNotSaved) {
		t.Fatalf("after %d samples: %v", k, failed)
	}
	x := query(t, s, ids[3], XmitBytes, start, sec(float64(5*k)), k)
	if len(x.Points) != k-1 {
		t.Errorf("%d points of %d are there", len(x.Points), k-1)
	}
	limit(0)
	_ = s.Flush() // may still hear of the attempt that was under way
	if err := s.Flush(); err != nil {
		t.Fatalf("with room again: %v", err)
	}
	if y := query(t, s, ids[3], XmitBytes, start, sec(float64(5*k)), k); len(y.Points) != k-1 {
		t.Errorf("%d points of %d are there after", len(y.Points), k-1)
	}
	if st := s.Stats(); st.HeadBytes != 0 || st.Failed != nil || st.Dropped != 0 {
		t.Errorf("%+v", st)
	}
}
