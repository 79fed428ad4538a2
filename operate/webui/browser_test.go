package webui

import (
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
	"github.com/chromedp/chromedp"
)

// browser is a headless Chromium without a GPU, as on any machine that runs tests.
type browser struct {
	t   testing.TB
	ctx context.Context

	mu      sync.Mutex
	console []string
}

// newBrowser starts one, of a window's size.
func newBrowser(t testing.TB, width, height int64, dark bool) *browser {
	t.Helper()
	if _, err := exec.LookPath("chromium"); err != nil {
		if os.Getenv("SOFTIB_NO_CHROMIUM") != "" {
			t.Skip("chromium is not installed, and SOFTIB_NO_CHROMIUM says that this is known")
		}
		t.Fatalf("chromium is not installed: apt-get install chromium, or set SOFTIB_NO_CHROMIUM=1 to leave "+
			"the page's tests out (%v)", err)
	}
	opts := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.UserDataDir(t.TempDir()),
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true))
	ctx, stop := chromedp.NewExecAllocator(context.Background(), opts...)
	t.Cleanup(stop)
	ctx, cancel := chromedp.NewContext(ctx)
	t.Cleanup(func() {
		end, stop := context.WithTimeout(ctx, 10*time.Second)
		defer stop()
		_ = chromedp.Cancel(end) // the process is killed with its allocator in any case
		cancel()
	})
	b := &browser{t: t, ctx: ctx}
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
	b.do(chromedp.EmulateViewport(width, height))
	b.scheme(dark)
	return b
}

// scheme is what the system prefers.
func (b *browser) scheme(dark bool) {
	b.t.Helper()
	value := "light"
	if dark {
		value = "dark"
	}
	if _, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia,
		emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme",
			Value: value}}}); err != nil {
		b.t.Fatal(err)
	}
}

func (b *browser) do(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, 60*time.Second)
	defer cancel()
	if b.started() {
		if err := chromedp.Do(ctx, actions...); err != nil {
			b.t.Fatalf("%v; the console says: %q", err, b.said())
		}
		return
	}
	if err := chromedp.Do(b.ctx, actions...); err != nil {
		b.t.Fatal(err)
	}
}

// started: the first call decides how long the browser lives, so it has no deadline.
func (b *browser) started() bool {
	c := chromedp.FromContext(b.ctx)
	return c != nil && c.Browser != nil
}

// said is what the console has.
func (b *browser) said() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]string(nil), b.console...)
}

// quiet wants a console without complaints.
func (b *browser) quiet() {
	b.t.Helper()
	for _, line := range b.said() {
		// Chromium writes a line for each answer that refuses something, which is what was wanted.
		if !strings.HasPrefix(line, "log") && !strings.HasPrefix(line, "info") &&
			!strings.Contains(line, "status of 4") {
			b.t.Errorf("the console says: %s", line)
		}
	}
}

// eval is the value of an expression, promises awaited.
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

// until waits for an expression to become true; the page looks whenever it draws a frame.
func (b *browser) until(expression string) {
	b.t.Helper()
	ok := eval[bool](b, fmt.Sprintf(`new Promise(done => {
		const end = performance.now() + 50000;
		const look = () => { let v = false; try { v = %s; } catch { } if (v) done(true); else if (performance.now() > end) done(false); else setTimeout(look, 15); };
		look();
	})`, expression))
	if !ok {
		b.t.Fatalf("never true: %s; at %s: %.1500s", expression,
			eval[string](b, "location.hash + (document.hasFocus() ? ', the focus on ' : ', no focus; it was on ') + "+
				"document.activeElement?.outerHTML.slice(0, 80)"), eval[string](b, "document.body.innerText"))
	}
}

// open goes to an address of the page and waits for words to be there.
func (b *browser) open(hash string, words ...string) {
	b.t.Helper()
	eval[bool](b, fmt.Sprintf("location.hash = %q, true", hash))
	b.sees(words...)
}

// sees waits for words in the view.
func (b *browser) sees(words ...string) {
	b.t.Helper()
	for _, w := range words {
		b.until(fmt.Sprintf("document.body.innerText.replace(/\\s+/g, ' ').includes(%q)", w))
	}
}

// key presses keys as a person does, into whatever has the focus.
func (b *browser) key(keys string) {
	b.t.Helper()
	b.do(chromedp.KeyEvent(keys))
}

// mouse moves, presses and releases.
func (b *browser) mouse(kind input.DispatchMouseEventType, x, y float64, buttons int64) {
	b.t.Helper()
	p := input.DispatchMouseEventParams{Type: kind, X: x, Y: y}
	if kind != input.DispatchMouseEventTypeMouseMoved || buttons != 0 {
		p.Button, p.ClickCount, p.Buttons = input.MouseButtonLeft, 1, buttons
	}
	if _, err := chromedp.Call(b.ctx, input.DispatchMouseEvent, p); err != nil {
		b.t.Fatal(err)
	}
}

// shoot saves what is seen, if SCREENSHOTS names a folder.
func (b *browser) shoot(name string) {
	b.t.Helper()
	dir := os.Getenv("SCREENSHOTS")
	if dir == "" {
		return
	}
	// The map draws in slices: wait until it has nothing left to draw.
	b.until("!window.softibMap || !document.querySelector('.map-canvas') || (!softibMap.job && " +
		"!softibMap.want.picture)")
	png, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
	if err != nil {
		b.t.Fatal(err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, name+".png"), png, 0o644); err != nil {
		b.t.Fatal(err)
	}
}

// noSideways wants nothing wider than the window.
func (b *browser) noSideways() {
	b.t.Helper()
	if w := eval[[]float64](b, `[document.documentElement.scrollWidth, `+
		`document.getElementById("content").scrollWidth, innerWidth]`); w[0] > w[2] || w[1] > w[2] {
		wide := eval[string](b,
			`[...document.querySelectorAll("#content *")].filter(e => e.getBoundingClientRect().right > innerWidth `+
				`+ 1 && !e.closest(".table-wrap")).slice(0, 5).map(e => e.tagName + "." + e.className).join(" ")`)
		b.t.Errorf("%s is %v wide in a window of %v: %s", eval[string](b, "location.hash"), w[:2], w[2], wide)
	}
}

func (b *browser) navigate(url string) {
	b.t.Helper()
	b.do(chromedp.Navigate(url))
}

// fill writes into a field, in place of what is there.
func (b *browser) fill(selector, text string) {
	b.t.Helper()
	b.until(fmt.Sprintf("!!document.querySelector(%q)", selector))
	eval[bool](b, fmt.Sprintf("(e => { e.focus(); e.value = ''; return true; })(document.querySelector(%q))", selector))
	b.key(text)
}

// click presses what a selector finds first and is shown.
func (b *browser) click(selector string) {
	b.t.Helper()
	b.until(fmt.Sprintf("!!document.querySelector(%q)?.offsetParent", selector))
	eval[bool](b, fmt.Sprintf("document.querySelector(%q).click(), true", selector))
}
