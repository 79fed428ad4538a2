package webui

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/chromedp/cdproto/cdp"
	cdpio "github.com/chromedp/cdproto/io"
	"github.com/chromedp/cdproto/tracing"
	"github.com/chromedp/chromedp"
)

// tasks is the processor time of the longest task of the page's main thread while f runs, which is what a frame would
// take if nobody else wanted the processor, and of all of them.
func (b *browser) tasks(f func()) (longest, all time.Duration) {
	b.T.Helper()
	completed := chromedp.BrowserEvents(b.Ctx, tracing.TracingComplete)
	_, err := chromedp.CallBrowser(b.Ctx, tracing.Start,
		tracing.StartParams{TransferMode: "ReturnAsStream",
			TraceConfig: &tracing.TraceConfig{IncludedCategories: []string{"toplevel"}}})
	if err != nil {
		b.T.Fatal(err)
	}
	f()
	if _, err := chromedp.CallBrowser(b.Ctx, tracing.End, cdp.Empty{}); err != nil {
		b.T.Fatal(err)
	}
	var data []byte
	for done, err := range completed {
		if err != nil {
			b.T.Fatal(err)
		}
		for end := false; !end; {
			part, err := chromedp.CallBrowser(b.Ctx, cdpio.Read, cdpio.ReadParams{Handle: done.Stream})
			if err != nil {
				b.T.Fatal(err)
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
		b.T.Fatalf("the trace: %v", err)
	}
	main := map[string]bool{}
	for _, e := range trace.TraceEvents {
		if e.Name == "thread_name" && e.Args.Name == "CrRendererMain" {
			main[fmt.Sprint(e.Pid, e.Tid)] = true
		}
	}
	tasks := 0
	for _, e := range trace.TraceEvents {
		if e.Ph == "X" && main[fmt.Sprint(e.Pid, e.Tid)] {
			took := time.Duration(e.Tdur * float64(time.Microsecond))
			longest, all = max(longest, took), all+took
			tasks++
		}
	}
	if tasks < 20 || longest == 0 {
		b.T.Fatalf("the trace has %d tasks of the page, the longest of %v: nothing was measured", tasks, longest)
	}
	return longest, all
}
