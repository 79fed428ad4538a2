package webui

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	cdpio "github.com/chromedp/cdproto/io"
	"github.com/chromedp/cdproto/tracing"
	"github.com/chromedp/chromedp"
)

// othersMax is the share of the machine that processes other than this test and its browser may take for its wall-clock
// times to be judged. A task of the page that takes 20 ms takes 300 ms where a dozen compilers want the same two
// processors.
const othersMax = 0.10

// machine is how much processor time was used so far, in ticks.
type machine struct{ all, busy, own float64 }

// lookAtMachine reads the processors' and our own times. Ours are those of this process and of whatever descends from
// it.
func lookAtMachine(t testing.TB) (m machine) {
	t.Helper()
	stat, err := os.ReadFile("/proc/stat")
	if err != nil {
		t.Fatal(err)
	}
	line, _, _ := strings.Cut(string(stat), "\n")
	for i, word := range strings.Fields(line)[1:9] { // user nice system idle iowait irq softirq steal
		v, err := strconv.ParseFloat(word, 64)
		if err != nil {
			t.Fatalf("/proc/stat: %v", err)
		}
		m.all += v
		if i != 3 && i != 4 {
			m.busy += v
		}
	}
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	parent, used := map[int]int{}, map[int]float64{}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			continue // it has ended
		}
		_, rest, _ := strings.Cut(string(text), ") ")
		w := strings.Fields(rest)
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(f)))
		parent[pid], _ = strconv.Atoi(w[1])
		for _, word := range w[11:15] { // utime stime cutime cstime
			v, _ := strconv.ParseFloat(word, 64)
			used[pid] += v
		}
	}
	for pid, v := range used {
		for p, deep := pid, 0; p > 1 && deep < 64; p, deep = parent[p], deep+1 {
			if p == os.Getpid() {
				m.own += v
				break
			}
		}
	}
	return m
}

// others is the share of the machine that others took since an earlier look.
func (m machine) others(before machine) float64 {
	if m.all <= before.all {
		return 0
	}
	return max(0, (m.busy-before.busy)-(m.own-before.own)) / (m.all - before.all)
}

// longestTask is the processor time of the longest task of the page's main thread while f runs: what a frame would take
// if nobody else wanted the processor.
func (b *browser) longestTask(f func()) time.Duration {
	b.t.Helper()
	completed := chromedp.BrowserEvents(b.ctx, tracing.TracingComplete)
	_, err := chromedp.CallBrowser(b.ctx, tracing.Start,
		tracing.StartParams{TransferMode: "ReturnAsStream",
			TraceConfig: &tracing.TraceConfig{IncludedCategories: []string{"toplevel"}}})
	if err != nil {
		b.t.Fatal(err)
	}
	f()
	if _, err := chromedp.CallBrowser(b.ctx, tracing.End, cdp.Empty{}); err != nil {
		b.t.Fatal(err)
	}
	var data []byte
	for done, err := range completed {
		if err != nil {
			b.t.Fatal(err)
		}
		for end := false; !end; {
			part, err := chromedp.CallBrowser(b.ctx, cdpio.Read, cdpio.ReadParams{Handle: done.Stream})
			if err != nil {
				b.t.Fatal(err)
			}
			data, end = append(data, part.Data...), part.EOF
		}
		break
	}
	var trace struct {
		TraceEvents []struct {
			Name, Ph string
			Pid, Tid int
			Tdur     float64 // processor time, in microseconds
			Args     struct{ Name string }
		}
	}
	if err := json.Unmarshal(data, &trace); err != nil {
		b.t.Fatalf("the trace: %v", err)
	}
	main := map[string]bool{}
	for _, e := range trace.TraceEvents {
		if e.Name == "thread_name" && e.Args.Name == "CrRendererMain" {
			main[fmt.Sprint(e.Pid, e.Tid)] = true
		}
	}
	longest, tasks := 0.0, 0
	for _, e := range trace.TraceEvents {
		if e.Ph == "X" && main[fmt.Sprint(e.Pid, e.Tid)] {
			longest = max(longest, e.Tdur)
			tasks++
		}
	}
	if tasks < 20 || longest == 0 {
		b.t.Fatalf("the trace has %d tasks of the page, the longest of %v µs: nothing was measured", tasks, longest)
	}
	return time.Duration(longest * float64(time.Microsecond))
}
