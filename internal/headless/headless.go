package headless

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

// Browser is one of its own process and profile.
type Browser struct {
	T   testing.TB
	Ctx context.Context

	mu      sync.Mutex
	console []string
}

// New starts one without a GPU, as on any machine that runs tests, with a window of some size. It ends with the test.
func New(t testing.TB, width, height int64, dark bool) *Browser {
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
	b := &Browser{T: t, Ctx: ctx}
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
	if err := chromedp.Do(ctx, chromedp.EmulateViewport(width, height)); err != nil {
		t.Fatal(err)
	}
	b.Scheme(dark)
	return b
}

// Scheme is what the system prefers.
func (b *Browser) Scheme(dark bool) {
	b.T.Helper()
	value := "light"
	if dark {
		value = "dark"
	}
	if _, err := chromedp.Call(b.Ctx, emulation.SetEmulatedMedia,
		emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme",
			Value: value}}}); err != nil {
		b.T.Fatal(err)
	}
}

// Do does things, within a minute.
func (b *Browser) Do(actions ...chromedp.Action[chromedp.Void]) {
	b.T.Helper()
	ctx, cancel := context.WithTimeout(b.Ctx, 60*time.Second)
	defer cancel()
	if err := chromedp.Do(ctx, actions...); err != nil {
		b.T.Fatalf("%v; the console says: %q", err, b.Said())
	}
}

// Said is what the console has.
func (b *Browser) Said() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]string(nil), b.console...)
}

// Hush empties the console, and returns what it had.
func (b *Browser) Hush() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	said := b.console
	b.console = nil
	return said
}

// Eval is the value of an expression, promises awaited.
func Eval[T any](b *Browser, expression string) T {
	b.T.Helper()
	ctx, cancel := context.WithTimeout(b.Ctx, 60*time.Second)
	defer cancel()
	v, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		b.T.Fatalf("%s: %v; the console says: %q", expression, err, b.Said())
	}
	return v
}

// Until waits for an expression to become true; one that throws is not yet.
func (b *Browser) Until(expression string) {
	b.T.Helper()
	if !Eval[bool](b, fmt.Sprintf(`new Promise(done => {
		const end = performance.now() + 50000;
		const look = () => {
			let is = false;
			try { is = !!(%s); } catch { }
			if (is || performance.now() > end) done(is); else setTimeout(look, 15);
		};
		look();
	})`, expression)) {
		b.T.Fatalf("never true: %s; at %s; the console says: %q; the page: %.1500s", expression,
			Eval[string](b, "location.hash + (document.hasFocus() ? ', the focus on ' : ', no focus; it was on ') + "+
				"document.activeElement?.outerHTML.slice(0, 80)"), b.Said(), Eval[string](b, "document.body.innerText"))
	}
}
