package experiment

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"softib/internal/headless"
)

// browser is a headless Chromium that opens pages as files, as those who are sent one do.
type browser struct {
	*headless.Browser
	shots string
}

// eval is the value of an expression.
func eval[T any](b *browser, expression string) T {
	b.T.Helper()
	return headless.Eval[T](b.Browser, expression)
}

// open writes a page to a file and opens it, in a window of some width.
func (b *browser) open(name string, width int64, dark bool, rs ...*Report) {
	b.T.Helper()
	var text bytes.Buffer
	err := WritePage(&text, rs[0])
	if len(rs) > 1 {
		text.Reset()
		err = WriteComparison(&text, rs)
	}
	if err != nil {
		b.T.Fatal(err)
	}
	file := filepath.Join(b.T.TempDir(), name+".html")
	if err := os.WriteFile(file, text.Bytes(), 0o644); err != nil {
		b.T.Fatal(err)
	}
	b.Scheme(dark)
	b.Do(chromedp.EmulateViewport(width, 900), chromedp.Navigate("file://"+file))
	b.Until("document.querySelector('footer') && " +
		"[...document.querySelectorAll('svg.plot')].every(p => p.childElementCount)")
}

// shoot saves the whole page, if SCREENSHOTS names a folder.
func (b *browser) shoot(name string) {
	b.T.Helper()
	if b.shots != "" {
		b.save(filepath.Join(b.shots, name+".png"))
	}
}

func (b *browser) save(file string) {
	b.T.Helper()
	shot, err := chromedp.Call(b.Ctx, page.CaptureScreenshot, page.CaptureScreenshotParams{
		Format: page.CaptureScreenshotFormatPng, CaptureBeyondViewport: new(true)})
	if err != nil {
		b.T.Fatal(err)
	}
	if err := os.WriteFile(file, shot.Data, 0o644); err != nil {
		b.T.Fatal(err)
	}
}

// fits wants a page that is not wider than its window.
func (b *browser) fits() {
	b.T.Helper()
	if w := eval[[]float64](b, "[document.documentElement.scrollWidth, innerWidth]"); w[0] > w[1] {
		b.T.Errorf("the page is %v wide in a window of %v: %s", w[0], w[1], eval[string](b,
			`[...document.querySelectorAll("main *")].filter(e => e.getBoundingClientRect().right > innerWidth + 1 && `+
				`!e.closest(".scroll")).slice(0, 5).map(e => e.tagName + "." + e.getAttribute("class")).join(" ")`))
	}
}

// quiet wants a console without a word: the page has nothing to say there.
func (b *browser) quiet(name string) {
	b.T.Helper()
	for _, line := range b.Hush() {
		b.T.Errorf("%s: the console says: %s", name, line)
	}
}

// hover moves the pointer to a part of an element's width and height.
func (b *browser) hover(selector string, x, y float64) {
	b.T.Helper()
	// A page that scrolls hides what it tells, so the pointer comes after the frame in which it is told of that.
	at := eval[[]float64](b, fmt.Sprintf(`new Promise(done => {
		const e = document.querySelector(%q);
		e.scrollIntoView({ block: "center" });
		requestAnimationFrame(() => requestAnimationFrame(() => {
			const r = e.getBoundingClientRect();
			done([r.left + %g * r.width, r.top + %g * r.height]);
		}));
	})`, selector, x, y))
	if _, err := chromedp.Call(b.Ctx, input.DispatchMouseEvent,
		input.DispatchMouseEventParams{Type: input.DispatchMouseEventTypeMouseMoved, X: at[0], Y: at[1]}); err != nil {
		b.T.Fatal(err)
	}
}

// TestInBrowser opens pages as files in one browser.
func TestInBrowser(t *testing.T) {
	b := &browser{headless.New(t, 1400, 900, false), os.Getenv("SCREENSHOTS")}
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
	b.T.Helper()
	sizes := eval[[]float64](b, `[...document.querySelectorAll("svg.plot")].map(p => Math.min(`+
		`...[...p.querySelectorAll("path")].map(d => d.getBBox().width * d.getBBox().height)))`)
	if len(sizes) != 8 {
		b.T.Errorf("%d plots, want messages, ranks, speed, sent, three tiers and heat", len(sizes))
	}
	for i, size := range sizes {
		if !(size > 1000) {
			b.T.Errorf("plot %d has a line that covers %v pixels", i, size)
		}
	}
	if cells := eval[int](b, `document.querySelectorAll("svg.heat path").length`); cells < 8 {
		b.T.Errorf("the heat map has %d colours", cells)
	}
}

// checkReadOuts: the pointer and the keys tell values, and a place chosen in one plot over time is marked in others.
func checkReadOuts(b *browser) {
	b.T.Helper()
	for selector, words := range map[string]string{"svg[aria-label^='Message completion']": "to 64 KiB",
		"svg.heat": "host to leaf", "svg[aria-label^='Sent by all']": "Tb/s",
		"svg[aria-label^='Use of links, leaf']": "max",
		"svg[aria-label^='When ranks']":         "of 129", "svg[aria-label^='Speed']": "of 16,256"} {
		b.hover(selector, 0.5, 0.2)
		b.Until(fmt.Sprintf("document.querySelector('.tip:not([hidden])')?.innerText.includes(%q)", words))
	}
	b.hover("[aria-label^='Sent by all']", 0.5, 0.5)
	b.Until("document.querySelectorAll('svg.plot .cursor line').length === 5")
	b.hover("h1", 0.5, 0.5)
	b.Until("document.querySelector('.tip').hidden && !document.querySelector('svg.plot .cursor line')")
	eval[bool](b, "document.querySelector('svg.heat').focus({ preventScroll: true }), true")
	b.Do(chromedp.KeyEvent(kb.ArrowRight + kb.ArrowRight + kb.ArrowDown))
	b.Until("document.querySelector('.tip[aria-live=polite]')?.innerText.includes('host2[1]')")
	b.Do(chromedp.KeyEvent(kb.Escape))
}

// checkSorting: heads sort, by the pointer and by keys, and all links are there when asked for.
func checkSorting(b *browser) {
	b.T.Helper()
	const names = `[...document.querySelectorAll("table:has(.sort) tbody tr")].map(r => r.cells[0].innerText)`
	if n := eval[int](b, names+".length"); n != 20 {
		b.T.Errorf("the table of links has %d rows at first, want 20", n)
	}
	before := eval[[]string](b, names)
	eval[bool](b, `document.querySelector(".sort").focus(), true`)
	b.Do(chromedp.KeyEvent(kb.Enter))
	b.Until(`document.querySelector("[aria-sort=ascending] .sort")?.innerText === "link"`)
	if after := eval[[]string](b, names); after[0] == before[0] || after[0] > after[len(after)-1] {
		b.T.Errorf("sorted by name the table begins with %q and ends with %q", after[0], after[len(after)-1])
	}
	eval[bool](b, `[...document.querySelectorAll(".sort")].at(-1).click(), true`)
	eval[bool](b, `document.querySelector(".more").click(), true`)
	if n := eval[int](b, names+".length"); n != 32 {
		b.T.Errorf("the table of links has %d rows in all, want 32", n)
	}
	if head := eval[string](b, `document.querySelector("[aria-sort=descending]").innerText`); head != "bytes" {
		b.T.Errorf("sorted by %q, want bytes", head)
	}
}

// checkLegend: a line goes when its name is pressed, and tables come when they are unfolded.
func checkLegend(b *browser) {
	b.T.Helper()
	const lines = `document.querySelectorAll("[aria-label^='Message completion'] path.line").length`
	before := eval[int](b, lines)
	eval[bool](b, `document.querySelector(".legend button").click(), true`)
	if after := eval[int](b, lines); after != before-1 {
		b.T.Errorf("%d lines of %d are left", after, before)
	}
	eval[bool](b, `document.querySelectorAll("details").forEach(d => d.open = true), true`)
	b.Until(`[...document.querySelectorAll("details")].every(d => d.querySelector("tbody tr"))`)
}
