package experiment

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// browser is a headless Chromium that opens pages as files, as those who are sent one do.
type browser struct {
	t     testing.TB
	ctx   context.Context
	shots string

	mu      sync.Mutex
	console []string
}

func newBrowser(t testing.TB) *browser {
	t.Helper()
	if _, err := exec.LookPath("chromium"); err != nil {
		if os.Getenv("SOFTIB_NO_CHROMIUM") != "" {
			t.Skip("chromium is not installed, and SOFTIB_NO_CHROMIUM says that this is known")
		}
		t.Fatalf("chromium is not installed: apt-get install chromium, or set SOFTIB_NO_CHROMIUM=1 to leave "+
			"the page's tests out (%v)", err)
	}
	opts := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.UserDataDir(t.TempDir()), chromedp.Flag("disable-component-update", true))
	ctx, stop := chromedp.NewExecAllocator(context.Background(), opts...)
	t.Cleanup(stop)
	ctx, cancel := chromedp.NewContext(ctx)
	t.Cleanup(func() {
		end, stop := context.WithTimeout(ctx, 10*time.Second)
		defer stop()
		_ = chromedp.Cancel(end) // the process is killed with its allocator in any case
		cancel()
	})
	b := &browser{t: t, ctx: ctx, shots: os.Getenv("SCREENSHOTS")}
	messages := chromedp.Console(ctx)
	go func() {
		for m, err := range messages {
			if err != nil {
				return
			}
			b.mu.Lock()
			b.console = append(b.console, fmt.Sprint(m))
			b.mu.Unlock()
		}
	}()
	// The first call decides how long the browser lives, so it has no deadline.
	if err := chromedp.Do(ctx, chromedp.EmulateViewport(1400, 900)); err != nil {
		t.Fatal(err)
	}
	return b
}

func (b *browser) do(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, 60*time.Second)
	defer cancel()
	if err := chromedp.Do(ctx, actions...); err != nil {
		b.t.Fatalf("%v; the console says: %q", err, b.said())
	}
}

func (b *browser) said() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]string(nil), b.console...)
}

// eval is the value of an expression.
func eval[T any](b *browser, expression string) T {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, 60*time.Second)
	defer cancel()
	v, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		b.t.Fatalf("%s: %v; the console says: %q", expression, err, b.said())
	}
	return v
}

// until waits for an expression to become true.
func (b *browser) until(expression string) {
	b.t.Helper()
	if !eval[bool](b, fmt.Sprintf(`new Promise(done => {
		const end = performance.now() + 50000;
		const look = () => {
			const is = !!(%s);
			if (is || performance.now() > end) done(is); else setTimeout(look, 15);
		};
		look();
	})`, expression)) {
		b.t.Fatalf("never true: %s; the console says: %q; the page: %.1500s", expression, b.said(),
			eval[string](b, "document.body.innerText"))
	}
}

// open writes a page to a file and opens it, in a window of some width.
func (b *browser) open(name string, width int64, dark bool, rs ...*Report) {
	b.t.Helper()
	var text bytes.Buffer
	err := WritePage(&text, rs[0])
	if len(rs) > 1 {
		text.Reset()
		err = WriteComparison(&text, rs)
	}
	if err != nil {
		b.t.Fatal(err)
	}
	file := filepath.Join(b.t.TempDir(), name+".html")
	if err := os.WriteFile(file, text.Bytes(), 0o644); err != nil {
		b.t.Fatal(err)
	}
	scheme := map[bool]string{false: "light", true: "dark"}[dark]
	if _, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}}); err != nil {
		b.t.Fatal(err)
	}
	b.do(chromedp.EmulateViewport(width, 900), chromedp.Navigate("file://"+file))
	b.until("document.querySelector('footer') && " +
		"[...document.querySelectorAll('svg.plot')].every(p => p.childElementCount)")
}

// shoot saves the whole page, if SCREENSHOTS names a folder.
func (b *browser) shoot(name string) {
	b.t.Helper()
	if b.shots != "" {
		b.save(filepath.Join(b.shots, name+".png"))
	}
}

func (b *browser) save(file string) {
	b.t.Helper()
	shot, err := chromedp.Call(b.ctx, page.CaptureScreenshot, page.CaptureScreenshotParams{
		Format: page.CaptureScreenshotFormatPng, CaptureBeyondViewport: new(true)})
	if err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(file, shot.Data, 0o644); err != nil {
		b.t.Fatal(err)
	}
}

// fits wants a page that is not wider than its window.
func (b *browser) fits() {
	b.t.Helper()
	if w := eval[[]float64](b, "[document.documentElement.scrollWidth, innerWidth]"); w[0] > w[1] {
		b.t.Errorf("the page is %v wide in a window of %v: %s", w[0], w[1], eval[string](b,
			`[...document.querySelectorAll("main *")].filter(e => e.getBoundingClientRect().right > innerWidth + 1 && `+
				`!e.closest(".scroll")).slice(0, 5).map(e => e.tagName + "." + e.getAttribute("class")).join(" ")`))
	}
}

// quiet wants a console without a word: the page has nothing to say there.
func (b *browser) quiet(name string) {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, line := range b.console {
		b.t.Errorf("%s: the console says: %s", name, line)
	}
	b.console = nil
}

// hover moves the pointer to a part of an element's width and height.
func (b *browser) hover(selector string, x, y float64) {
	b.t.Helper()
	// A page that scrolls hides what it tells, so the pointer comes after the frame in which it is told of that.
	at := eval[[]float64](b, fmt.Sprintf(`new Promise(done => {
		const e = document.querySelector(%q);
		e.scrollIntoView({ block: "center" });
		requestAnimationFrame(() => requestAnimationFrame(() => {
			const r = e.getBoundingClientRect();
			done([r.left + %g * r.width, r.top + %g * r.height]);
		}));
	})`, selector, x, y))
	if _, err := chromedp.Call(b.ctx, input.DispatchMouseEvent,
		input.DispatchMouseEventParams{Type: input.DispatchMouseEventTypeMouseMoved, X: at[0], Y: at[1]}); err != nil {
		b.t.Fatal(err)
	}
}

// TestInBrowser opens pages as files in one browser.
func TestInBrowser(t *testing.T) {
	b := newBrowser(t)
	b.open("sample", 1400, false, sample(1))
	b.save(filepath.Join(cmp.Or(b.shots, t.TempDir()), "light.png"))
	b.fits()
	checkDrawn(b)
	checkReadOuts(b)
	checkSorting(b)
	checkLegend(b)
	b.quiet("sample")
	for name, c := range map[string]struct {
		width int64
		dark  bool
		rs    []*Report
	}{
		"phone": {360, true, []*Report{sample(1)}}, "wide": {1920, true, []*Report{sample(1)}},
		"compare":       {1400, false, []*Report{sample(1), sample(1.18), degenerate()["one message"]}},
		"compare phone": {360, false, []*Report{sample(1), sample(1.18)}},
		"compare alike": {800, true, []*Report{{}, {}}},
		"hostile":       {360, false, []*Report{hostileSample()}},
		"hostile twice": {360, false, []*Report{hostileSample(), sample(1)}},
	} {
		b.open(name, c.width, c.dark, c.rs...)
		b.shoot(name)
		b.fits()
		if eval[bool](b, "window.owned !== undefined || document.querySelectorAll('script, img').length !== 2") {
			t.Errorf("%s: a name became markup", name)
		}
		b.quiet(name)
	}
	for name, r := range degenerate() {
		b.open(name, 360, false, r)
		b.shoot("degenerate " + name)
		b.fits()
		text := eval[string](b, "document.querySelector('main').outerHTML")
		for _, word := range []string{"NaN", "undefined", "null", "Infinity"} {
			if strings.Contains(text, word) {
				t.Errorf("%s: the page has %s in it", name, word)
			}
		}
		if banner := eval[string](b, "document.querySelector('.banner')?.innerText ?? ''"); (banner == "") != r.Whole ||
			!strings.Contains(banner, r.Stopped) {
			t.Errorf("%s: the banner says %q", name, banner)
		}
		b.quiet(name)
	}
}

// checkDrawn: each plot has lines or cells that cover a part of it.
func checkDrawn(b *browser) {
	b.t.Helper()
	sizes := eval[[]float64](b, `[...document.querySelectorAll("svg.plot")].map(p => Math.min(`+
		`...[...p.querySelectorAll("path")].map(d => d.getBBox().width * d.getBBox().height)))`)
	if len(sizes) != 8 {
		b.t.Errorf("%d plots, want messages, ranks, speed, sent, three tiers and heat", len(sizes))
	}
	for i, size := range sizes {
		if !(size > 1000) {
			b.t.Errorf("plot %d has a line that covers %v pixels", i, size)
		}
	}
	if cells := eval[int](b, `document.querySelectorAll("svg.heat path").length`); cells < 8 {
		b.t.Errorf("the heat map has %d colours", cells)
	}
}

// checkReadOuts: the pointer and the keys tell values, and a place chosen in one plot over time is marked in others.
func checkReadOuts(b *browser) {
	b.t.Helper()
	for selector, words := range map[string]string{"svg[aria-label^='Message completion']": "to 64 KiB",
		"svg.heat": "host to leaf", "svg[aria-label^='Sent by all']": "Tb/s",
		"svg[aria-label^='Use of links, leaf']": "max",
		"svg[aria-label^='When ranks']":         "of 129", "svg[aria-label^='Speed']": "of 16,256"} {
		b.hover(selector, 0.5, 0.2)
		b.until(fmt.Sprintf("document.querySelector('.tip:not([hidden])')?.innerText.includes(%q)", words))
	}
	b.hover("[aria-label^='Sent by all']", 0.5, 0.5)
	b.until("document.querySelectorAll('svg.plot .cursor line').length === 5")
	b.hover("h1", 0.5, 0.5)
	b.until("document.querySelector('.tip').hidden && !document.querySelector('svg.plot .cursor line')")
	eval[bool](b, "document.querySelector('svg.heat').focus({ preventScroll: true }), true")
	b.do(chromedp.KeyEvent(kb.ArrowRight + kb.ArrowRight + kb.ArrowDown))
	b.until("document.querySelector('.tip[aria-live=polite]')?.innerText.includes('host2[1]')")
	b.do(chromedp.KeyEvent(kb.Escape))
}

// checkSorting: heads sort, by the pointer and by keys, and all links are there when asked for.
func checkSorting(b *browser) {
	b.t.Helper()
	const names = `[...document.querySelectorAll("table:has(.sort) tbody tr")].map(r => r.cells[0].innerText)`
	if n := eval[int](b, names+".length"); n != 20 {
		b.t.Errorf("the table of links has %d rows at first, want 20", n)
	}
	before := eval[[]string](b, names)
	eval[bool](b, `document.querySelector(".sort").focus(), true`)
	b.do(chromedp.KeyEvent(kb.Enter))
	b.until(`document.querySelector("[aria-sort=ascending] .sort")?.innerText === "link"`)
	if after := eval[[]string](b, names); after[0] == before[0] || after[0] > after[len(after)-1] {
		b.t.Errorf("sorted by name the table begins with %q and ends with %q", after[0], after[len(after)-1])
	}
	eval[bool](b, `[...document.querySelectorAll(".sort")].at(-1).click(), true`)
	eval[bool](b, `document.querySelector(".more").click(), true`)
	if n := eval[int](b, names+".length"); n != 32 {
		b.t.Errorf("the table of links has %d rows in all, want 32", n)
	}
	if head := eval[string](b, `document.querySelector("[aria-sort=descending]").innerText`); head != "bytes" {
		b.t.Errorf("sorted by %q, want bytes", head)
	}
}

// checkLegend: a line goes when its name is pressed, and tables come when they are unfolded.
func checkLegend(b *browser) {
	b.t.Helper()
	const lines = `document.querySelectorAll("[aria-label^='Message completion'] path.line").length`
	before := eval[int](b, lines)
	eval[bool](b, `document.querySelector(".legend button").click(), true`)
	if after := eval[int](b, lines); after != before-1 {
		b.t.Errorf("%d lines of %d are left", after, before)
	}
	eval[bool](b, `document.querySelectorAll("details").forEach(d => d.open = true), true`)
	b.until(`[...document.querySelectorAll("details")].every(d => d.querySelector("tbody tr"))`)
}
