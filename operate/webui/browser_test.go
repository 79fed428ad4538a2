package webui

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"

	"softib/internal/headless"
)

// browser is a headless Chromium at the page.
type browser struct{ *headless.Browser }

// newBrowser starts one, of a window's size.
func newBrowser(t testing.TB, width, height int64, dark bool) *browser {
	t.Helper()
	return &browser{headless.New(t, width, height, dark)}
}

// eval is the value of an expression, promises awaited.
func eval[T any](b *browser, expression string) T {
	b.T.Helper()
	return headless.Eval[T](b.Browser, expression)
}

// quiet wants a console without complaints.
func (b *browser) quiet() {
	b.T.Helper()
	for _, line := range b.Said() {
		// Chromium writes a line for each answer that refuses something, which is what was wanted.
		if !strings.HasPrefix(line, "log") && !strings.HasPrefix(line, "info") &&
			!strings.Contains(line, "status of 4") {
			b.T.Errorf("the console says: %s", line)
		}
	}
}

// open goes to an address of the page and waits for words to be there.
func (b *browser) open(hash string, words ...string) {
	b.T.Helper()
	eval[bool](b, fmt.Sprintf("location.hash = %q, true", hash))
	b.sees(words...)
}

// sees waits for words in the view.
func (b *browser) sees(words ...string) {
	b.T.Helper()
	for _, w := range words {
		b.Until(fmt.Sprintf("document.body.innerText.replace(/\\s+/g, ' ').includes(%q)", w))
	}
}

// key presses keys as a person does, into whatever has the focus.
func (b *browser) key(keys string) {
	b.T.Helper()
	b.Do(chromedp.KeyEvent(keys))
}

// mouse moves, presses and releases.
func (b *browser) mouse(kind input.DispatchMouseEventType, x, y float64, buttons int64) {
	b.T.Helper()
	p := input.DispatchMouseEventParams{Type: kind, X: x, Y: y}
	if kind != input.DispatchMouseEventTypeMouseMoved || buttons != 0 {
		p.Button, p.ClickCount, p.Buttons = input.MouseButtonLeft, 1, buttons
	}
	if _, err := chromedp.Call(b.Ctx, input.DispatchMouseEvent, p); err != nil {
		b.T.Fatal(err)
	}
}

// shoot saves what is seen, if SCREENSHOTS names a folder.
func (b *browser) shoot(name string) {
	b.T.Helper()
	dir := os.Getenv("SCREENSHOTS")
	if dir == "" {
		return
	}
	// The map draws in slices: wait until it has nothing left to draw.
	b.Until("!window.softibMap || !document.querySelector('.map-canvas') || (!softibMap.job && " +
		"!softibMap.want.picture)")
	png, err := chromedp.Run(b.Ctx, chromedp.CaptureScreenshot())
	if err != nil {
		b.T.Fatal(err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		b.T.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, name+".png"), png, 0o644); err != nil {
		b.T.Fatal(err)
	}
}

// noSideways wants nothing wider than the window.
func (b *browser) noSideways() {
	b.T.Helper()
	if w := eval[[]float64](b, `[document.documentElement.scrollWidth, `+
		`document.getElementById("content").scrollWidth, innerWidth]`); w[0] > w[2] || w[1] > w[2] {
		wide := eval[string](b,
			`[...document.querySelectorAll("#content *")].filter(e => e.getBoundingClientRect().right > innerWidth `+
				`+ 1 && !e.closest(".table-wrap")).slice(0, 5).map(e => e.tagName + "." + e.className).join(" ")`)
		b.T.Errorf("%s is %v wide in a window of %v: %s", eval[string](b, "location.hash"), w[:2], w[2], wide)
	}
}

func (b *browser) navigate(url string) {
	b.T.Helper()
	b.Do(chromedp.Navigate(url))
}

// fill writes into a field, in place of what is there.
func (b *browser) fill(selector, text string) {
	b.T.Helper()
	b.Until(fmt.Sprintf("!!document.querySelector(%q)", selector))
	eval[bool](b, fmt.Sprintf("(e => { e.focus(); e.value = ''; return true; })(document.querySelector(%q))", selector))
	b.key(text)
}

// click presses what a selector finds first and is shown.
func (b *browser) click(selector string) {
	b.T.Helper()
	b.Until(fmt.Sprintf("!!document.querySelector(%q)?.offsetParent", selector))
	eval[bool](b, fmt.Sprintf("document.querySelector(%q).click(), true", selector))
}
