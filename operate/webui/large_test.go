package webui

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
)

const (
	firstViewMax = 2 * time.Second
	frameMax     = 100 * time.Millisecond
)

// TestLarge walks each view on 11,664 hosts, and measures what people wait for: the first view, and frames while they
// move the map.
func TestLarge(t *testing.T) {
	if testing.Short() {
		t.Skip("11,664 hosts take a while")
	}
	x := newGround(t, "fat-tree:radix=36,levels=3", 0)
	x.f.setLoad(0.4)
	x.m.Fresh()
	b := newBrowser(t, 1400, 850, true)

	t.Run("first view", func(t *testing.T) {
		b.t = t
		var took []time.Duration
		before := lookAtMachine(t)
		for range 2 { // a machine that is busy otherwise has a second chance
			took = took[:0]
			for range 5 {
				b.navigate("about:blank")
				b.navigate(x.http.URL + "/")
				b.until("softibMap.ready > 0")
				took = append(took, time.Duration(eval[float64](b, "softibMap.ready")*float64(time.Millisecond)))
			}
			slices.Sort(took)
			t.Logf("first view of %d hosts: %v, median %v", len(x.m.Graph().Hosts()), took, took[2])
			if took[2] < firstViewMax {
				break
			}
		}
		if others := lookAtMachine(t).others(before); took[2] >= firstViewMax && others > othersMax {
			t.Logf("that is not judged: others took %.0f %% of the machine", 100*others)
		} else if took[2] >= firstViewMax {
			t.Errorf("the first view takes %v: want less than %v", took[2], firstViewMax)
		}
		if n := eval[int](b, "softibMap.m.count"); n != len(x.m.Graph().Nodes) {
			t.Errorf("the map has %d nodes, want %d", n, len(x.m.Graph().Nodes))
		}
		b.sees("11,664 hosts", "34,992 / 34,992")
		b.shoot("11664-dark-map")
	})
	t.Run("panning", func(t *testing.T) { b.t = t; measureMoves(t, x, b) })
	t.Run("views", func(t *testing.T) {
		b.t = t
		for _, v := range views("h11664") {
			b.open(v.hash, v.words...)
			b.noSideways()
			b.shoot("11664-dark-" + v.name)
		}
		b.open("#/map?sel=core17", "core17", "Open page")
		b.until("!softibMap.job && !softibMap.want.picture")
		b.shoot("11664-dark-map-core")
		b.open("#/map?sel=h5000", "h5000", "Route from here")
		b.shoot("11664-dark-map-host")
	})
	b.t = t
	b.quiet()
	light := newBrowser(t, 1400, 850, false)
	light.open1(x.http.URL + "/#/map")
	light.until("softibMap.ready > 0")
	light.sees("11,664 hosts")
	light.shoot("11664-light-map")
	light.open("#/map?color=errors", "errors a minute")
	light.shoot("11664-light-map-errors")
	light.quiet()
	phone := newBrowser(t, 360, 740, true)
	phone.open1(x.http.URL + "/#/map")
	phone.until("softibMap.ready > 0")
	phone.noSideways()
	phone.shoot("11664-phone-map")
	phone.quiet()
}

// measureMoves drags, zooms and flies while numbers come in, and wants no frame longer than frameMax.
func measureMoves(t *testing.T, x *ground, b *browser) {
	b.open("#/map", "hosts")
	b.until("!softibMap.job && !softibMap.want.picture && !softibMap.want.base")
	moves := map[string]func(){
		"far away": func() {
			eval[bool](b, "softibMap.setCamera(softibMap.fitCamera()), true")
			b.drag(700, 420, 500, 300, 60)
		},
		"pods": func() {
			eval[bool](b, "softibMap.setCamera({ ...softibMap.fitCamera(), k: softibMap.fitScale * 3 }), true")
			b.drag(700, 420, 900, 500, 60)
		},
		"switches": func() {
			eval[bool](b, "softibMap.flyToNode(softibMap.m.index.get('leaf300'), 0.4), true")
			b.until("Math.abs(softibMap.cam.k - 0.4) < 1e-3")
			b.drag(700, 420, 900, 300, 60)
		},
		"ports": func() {
			eval[bool](b, "softibMap.setCamera({ x: softibMap.m.x[softibMap.m.index.get('leaf300')], "+
				"y: softibMap.m.y[softibMap.m.index.get('leaf300')], k: 3 }), true")
			b.drag(700, 420, 600, 300, 60)
		},
		// Beyond what is drawn around the window: pictures are made anew while the pointer moves on.
		"across the pods":     func() { b.across(t, 0.2) },
		"across the switches": func() { b.across(t, 0.5) },
		"zooming": func() {
			eval[bool](b, "softibMap.setCamera(softibMap.fitCamera()), true")
			for i := range 40 {
				delta := -120.0
				if i >= 20 {
					delta = 120
				}
				b.wheel(500, 500, delta)
			}
		},
		"all of it changes": func() {
			eval[bool](b, "softibMap.setCamera(softibMap.fitCamera()), true")
			x.f.setLoad(0.7)
			eval[bool](b, "softibMap.setMode('wait'), true")
			b.drag(700, 420, 500, 300, 60)
			eval[bool](b, "softibMap.setMode('util'), true")
		},
	}
	names := []string{"far away", "pods", "switches", "ports", "across the pods", "across the switches", "zooming",
		"all of it changes"}
	for _, name := range names {
		// What the page itself takes, whoever else is on the machine.
		if cpu := b.longestTask(moves[name]); cpu > frameMax {
			t.Errorf("%s: a task of the page took %v of processor time: want %v at most", name, cpu, frameMax)
		} else {
			t.Logf("%s: the page's longest task took %v of processor time", name, cpu.Round(100*time.Microsecond))
		}
		// And what people see, where the machine is the page's: best of three.
		worst, busy := math.Inf(1), 0.0
		for try := 0; try < 3 && worst > float64(frameMax/time.Millisecond); try++ {
			before := lookAtMachine(t)
			eval[bool](b, watchFrames)
			moves[name]()
			f := eval[frames](b, "window.stopWatch()")
			others := lookAtMachine(t).others(before)
			t.Logf("%s, try %d: %d frames, the longest %.0f ms, p95 %.0f ms; longest task %.0f ms; others took "+
				"%.0f %% of the machine", name, try+1, f.Count, f.Worst, f.P95, f.Task, 100*others)
			if f.Count < 10 && others <= othersMax {
				t.Errorf("%s: only %d frames were drawn", name, f.Count)
			}
			if f.Worst < worst {
				worst, busy = f.Worst, others
			}
		}
		switch {
		case worst <= float64(frameMax/time.Millisecond):
		case busy > othersMax:
			t.Logf("%s: a frame took %.0f ms, which is not judged: others took %.0f %% of the machine", name, worst,
				100*busy)
		default:
			t.Errorf("%s: a frame took %.0f ms: want %v at most, on %d processors", name, worst, frameMax,
				runtime.NumCPU())
		}
	}
}

// frames is what was seen of the frames of a while, in milliseconds.
type frames struct {
	Count            int
	Worst, P95, Task float64
}

// watchFrames counts the time between animation frames, and long tasks.
const watchFrames = `(() => {
	const gaps = []; let last = 0, on = true, task = 0;
	const o = new PerformanceObserver(l => { for (const e of l.getEntries()) task = Math.max(task, e.duration); });
	o.observe({ type: "longtask" });
	const f = t => { if (last) gaps.push(t - last); last = t; if (on) requestAnimationFrame(f); };
	requestAnimationFrame(f);
	window.stopWatch = () => {
		on = false; o.disconnect();
		const s = [...gaps].sort((a, b) => a - b);
		return { Count: s.length, Worst: s.at(-1) ?? 0, P95: s[Math.floor(s.length * .95)] ?? 0, Task: task };
	};
	return true;
})()`

// drag moves the map by the pointer, to and fro, as fast as events can be sent.
func (b *browser) drag(x0, y0, x1, y1 float64, steps int) {
	b.t.Helper()
	b.mouse(input.DispatchMouseEventTypeMousePressed, x0, y0, 1)
	for i := range steps {
		p := 0.5 - 0.5*math.Cos(float64(i)/float64(steps)*4*math.Pi)
		b.mouse(input.DispatchMouseEventTypeMouseMoved, x0+(x1-x0)*p, y0+(y1-y0)*p, 1)
	}
	b.mouse(input.DispatchMouseEventTypeMouseReleased, x0, y0, 0)
}

// across drags the map several windows far in one direction, at a scale, and wants it to have been drawn on the way.
func (b *browser) across(t *testing.T, scale float64) {
	t.Helper()
	eval[bool](b, fmt.Sprintf("softibMap.setCamera({ x: 2000, y: softibMap.m.y[softibMap.m.index.get('leaf300')], "+
		"k: %v }), true", scale))
	b.until("!softibMap.job && !softibMap.want.picture")
	before := lookAtMachine(t)
	from, drawn := eval[float64](b, "softibMap.cam.x"), eval[int](b, "softibMap.pictures")
	for range 5 {
		b.mouse(input.DispatchMouseEventTypeMousePressed, 1000, 420, 1)
		for i := range 25 {
			b.mouse(input.DispatchMouseEventTypeMouseMoved, 1000-float64(i)*30, 420, 1)
		}
		b.mouse(input.DispatchMouseEventTypeMouseReleased, 280, 420, 0)
	}
	if far := (eval[float64](b, "softibMap.cam.x") - from) * scale; far < 1400 {
		t.Errorf("the map moved by %.0f pixels: want more than a window", far)
	}
	if n := eval[int](b, "softibMap.pictures") - drawn; n < 2 && lookAtMachine(t).others(before) <= othersMax {
		t.Errorf("%d pictures were drawn on the way: want several", n)
	}
}

// wheel turns the wheel. Chromium wants both directions to be named, and none is sent that is 0.
func (b *browser) wheel(x, y, delta float64) {
	b.t.Helper()
	if _, err := chromedp.Call(b.ctx, input.DispatchMouseEvent,
		input.DispatchMouseEventParams{Type: input.DispatchMouseEventTypeMouseWheel, X: x, Y: y, DeltaX: 1e-9,
			DeltaY: delta}); err != nil {
		b.t.Fatal(err)
	}
}
