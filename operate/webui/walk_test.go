package webui

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// view is an address of the page, with words that it shows.
type view struct {
	name, hash string
	words      []string
}

// views are all there are, on any fabric that has these hosts.
func views(last string) []view {
	return []view{
		{"map", "#/map", []string{"Utilisation", "hosts", "links up"}},
		{"overview", "#/overview", []string{"Overview", "Traffic of all hosts", "Who sends and receives most",
			"Worst cables", "Cables to look at"}},
		{"host", "#/host/h1", []string{"h1", "Links active", "Over time", "ib_write_bw", "PortXmitData"}},
		{"switch", "#/switch/leaf1", []string{"leaf1", "Over time", "worst port", "Ports", "spine1", "Active"}},
		{"doctor", "#/inspect", []string{"Doctor", "What was looked at", "Questions asked"}},
		{"wiring", "#/inspect/wiring", []string{"Wiring", "as it should be", "Oversubscription"}},
		{"inventory", "#/inspect/inventory", []string{"Inventory", "Made of", "h1 HCA-1", "Adapter ports"}},
		{"link", "#/link/h1[1]", []string{"h1[1] –", "Rehearse a fault", "Over time", "Both ends", "SymbolErrorCounter",
			"damaged symbols"}},
		{"route", "#/route/h1/" + last, []string{"There", "Back", "Packets arrive.", "h1[1] → leaf1[1]"}},
		{"sm", "#/sm", []string{"Subnet manager", "Master", "Partitions", "0x7fff", "Sweeps, newest first"}},
		{"events", "#/events", []string{"Events", "SUBNET UP"}},
		{"tenants", "#/tenants", []string{"Tenants", "New tenant"}},
		{"cables", "#/cables", []string{"Cables, worst first"}},
		{"programs", "#/programs", []string{"ib_write_bw", "4 RC", "RETRY_EXC_ERR", "p99.9"}},
		{"faults", "#/faults", []string{"Rehearsal faults", "No fault is set"}},
		{"report", "#/report", []string{"choose DIR/map.json"}},
		{"table", "#/table", []string{"The map as a table", "leaf1"}},
	}
}

// TestAnotherFabric: where another fabric takes the place of one, or the same one with more nodes, an open page shows
// it.
func TestAnotherFabric(t *testing.T) {
	x, y := newGround(t, "star:3", 100*time.Millisecond), newGround(t, "star:4", 100*time.Millisecond)
	var now atomic.Pointer[Server]
	now.Store(x.ui)
	asked := make(chan *Server, 100)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ui := now.Load()
		ui.ServeHTTP(w, r)
		if r.URL.Path == "/api/v1/topology" {
			asked <- ui
		}
	}))
	t.Cleanup(s.Close)
	t.Cleanup(y.ui.Close)
	b := newBrowser(t, 1000, 700, true)
	b.open1(s.URL + "/#/host/h3")
	b.sees("h3", "Links active")
	b.Until("document.getElementById('live').textContent.startsWith('live')")
	now.Store(y.ui)
	x.ui.Close()
	for late := time.After(60 * time.Second); ; {
		select {
		case ui := <-asked:
			if ui != y.ui {
				continue
			}
		case <-late:
			t.Fatal("the page still shows the fabric that is gone")
		}
		break
	}
	b.Until("document.readyState === 'complete'")
	b.open("#/host/h4", "h4", "Links active")
}

// TestWalk goes through each view of a small fabric, in light and dark, large and small, and changes what can be
// changed.
func TestWalk(t *testing.T) {
	x := newGround(t, "fat-tree:radix=8,levels=2", 250*time.Millisecond)
	x.f.setLoad(0.4)
	b := newBrowser(t, 1400, 850, true)
	b.open1(x.http.URL + "/")
	b.Until("softibMap.ready > 0")
	for _, v := range views("h32") {
		b.open(v.hash, v.words...)
		b.noSideways()
		b.shoot("32-dark-" + v.name)
	}
	t.Run("changes", func(t *testing.T) { b.T = t; walkChanges(t, x, b) })
	t.Run("first frame", func(t *testing.T) { b.T = t; firstFrame(t, b) })
	t.Run("past", func(t *testing.T) { b.T = t; walkPast(t, x, b) })
	t.Run("keyboard", func(t *testing.T) { b.T = t; walkKeyboard(t, b) })
	t.Run("live", func(t *testing.T) { b.T = t; walkLive(t, x, b) })
	t.Run("given up", func(t *testing.T) { b.T = t; walkGivenUp(t, b) })
	t.Run("hidden", func(t *testing.T) { b.T = t; walkHidden(b) })
	t.Run("report", func(t *testing.T) { b.T = t; walkReport(t, b) })
	b.T = t
	b.quiet()

	light := newBrowser(t, 1400, 850, false)
	light.open1(x.http.URL + "/")
	for _, v := range views("h32") {
		light.open(v.hash, v.words...)
		light.shoot("32-light-" + v.name)
	}
	if bg := eval[string](light, "getComputedStyle(document.body).backgroundColor"); bg != "rgb(244, 246, 248)" {
		t.Errorf("light is %s", bg)
	}
	eval[bool](light, "document.getElementById('theme').click(), true")
	if bg := eval[string](light, "getComputedStyle(document.body).backgroundColor"); bg != "rgb(13, 17, 23)" {
		t.Errorf("the switch to dark gives %s", bg)
	}
	light.open1(x.http.URL + "/#/map")
	if theme := eval[string](light, "document.documentElement.dataset.theme"); theme != "dark" {
		t.Errorf("the choice is not kept: %q", theme)
	}
	light.quiet()

	phone := newBrowser(t, 360, 740, true)
	phone.open1(x.http.URL + "/")
	for _, v := range views("h32") {
		phone.open(v.hash, v.words...)
		phone.noSideways()
		phone.shoot("32-phone-" + v.name)
	}
	phone.quiet()
}

// TestWhatAlarmsAreAbout: an alarm leads to what it is about, a node's or a link's page, and is muted from its row.
func TestWhatAlarmsAreAbout(t *testing.T) {
	x := troubled(t)
	x.standing(t, "dead switch leaf8", "duplicate name h6", "link down leaf4[6] spine2[4]")
	b := newBrowser(t, 1400, 850, true)
	b.open1(x.http.URL + "/#/cables")
	for _, c := range []struct{ alarm, of, at, hash string }{
		{"dead switch", "leaf8", "leaf8", "#/switch/leaf8"}, {"duplicate name", "h6", "h6", "#/host/h6"},
		{"link down", "leaf4[6] spine2[4]", "leaf4[6]", "#/link/leaf4[6]"},
	} {
		row := fmt.Sprintf("[...document.querySelectorAll('tr')].find(r => r.querySelector('[aria-label=%q]'))",
			"Mute "+c.alarm+" of "+c.of)
		b.open("#/cables", "Alarms that stand", c.of)
		b.Until("!!" + row)
		eval[bool](b, row+".querySelector('a').click(), true")
		b.Until(fmt.Sprintf("decodeURIComponent(location.hash) === %q", c.hash))
		b.sees("Over time")
		if got := eval[string](b, "document.querySelector('h1').innerText"); !strings.HasPrefix(got, c.at) {
			t.Errorf("the alarm of %s leads to the page of %s", c.of, got)
		}
		b.open("#/cables", "Alarms that stand", c.of)
		b.Until("!!" + row)
		eval[bool](b, "(e => { e.selectedIndex = 1; e.dispatchEvent(new Event('change')); return true; })("+row+
			".querySelector('select'))")
		b.sees("Muted: " + c.alarm + " of " + c.of)
		for _, a := range x.m.OpenAlarms() {
			if is := a.Muted != nil; a.Link == c.of && a.Kind.String() == c.alarm && !is {
				t.Errorf("the page says that %v of %s is muted, and it is not: %+v", a.Kind, a.Link, x.m.Mutes())
			}
		}
	}
	b.quiet()
}

// TestSlowAnswers: however late a daemon answers, each question of a view is asked once at a time, and what came of the
// fabric meanwhile is asked for when the answer is there.
func TestSlowAnswers(t *testing.T) {
	x := newGround(t, "fat-tree:radix=4,levels=2", 100*time.Millisecond)
	x.f.setLoad(0.4)
	var slow sync.RWMutex // who has it holds answers back
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/api/") && r.URL.Path != "/api/v1/stream" {
			slow.RLock()
			defer slow.RUnlock()
		}
		x.ui.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	b := newBrowser(t, 1000, 700, true)
	b.open1(s.URL + "/#/map")
	// Counted in the page: of the same questions a browser asks the daemon only one at a time.
	eval[bool](b, `(() => {
		const ask = fetch, news = new EventSource("/api/v1/stream?after=0");
		softibNews = 0;
		news.addEventListener("links", () => softibNews++);
		softibAsked = {};
		fetch = (what, options) => {
			softibAsked[what] = (softibAsked[what] ?? 0) + 1;
			return ask(what, options).finally(() => { if (!--softibAsked[what]) delete softibAsked[what]; });
		};
		return true;
	})()`)
	for _, v := range []view{
		{"overview", "#/overview", []string{"Who sends and receives most"}},
		{"host", "#/host/h1", []string{"Links active"}},
		{"link", "#/link/h1[1]", []string{"Both ends"}}, {"sm", "#/sm", []string{"Sweeps, newest first"}},
		{"cables", "#/cables", []string{"Cables, worst first"}}, {"programs", "#/programs", []string{"ib_write_bw"}},
		{"faults", "#/faults", []string{"No fault is set"}},
	} {
		for _, first := range []bool{true, false} { // at the view's first question and when it was shown
			slow.Lock()
			eval[bool](b, fmt.Sprintf("softibNews = 0, location.hash = %q, true", v.hash))
			b.Until("softibNews > 20")
			asked := eval[map[string]int](b, "softibAsked")
			slow.Unlock()
			b.sees(v.words...)
			if len(asked) == 0 && first {
				t.Errorf("%s asks nothing", v.name)
			}
			for what, times := range asked {
				if times > 1 {
					t.Errorf("%s: %s is asked %d times at once", v.name, what, times)
				}
			}
		}
	}
	b.quiet()
}

// open1 loads the page anew.
func (b *browser) open1(url string) {
	b.T.Helper()
	b.navigate(url)
	b.Until("!!document.querySelector('#content > *')")
}

// walkChanges sets and lifts faults and makes and deletes tenants, as a person would.
func walkChanges(t *testing.T, x *ground, b *browser) {
	b.open("#/link/leaf1[5]", "Rehearse a fault")
	b.fill("[name=ber]", "nonsense")
	b.click("form[aria-label=Fault] button.primary")
	b.sees("want ber=P with a probability")
	if len(x.m.Faults()) != 0 {
		t.Fatal("nonsense set a fault")
	}
	b.shoot("32-dark-fault-refused")
	b.fill("[name=ber]", "1e-6")
	b.fill("[name=rate]", "10G")
	b.click("form[aria-label=Fault] button.primary")
	b.sees("A rehearsal fault is set", "Set: ber=1e-06 rate=10G")
	if f := x.m.Faults(); len(f) != 1 || f[0].BER != 1e-6 || f[0].Rate != 10e9 {
		t.Fatalf("the fault that was set: %+v", f)
	}
	b.shoot("32-dark-fault-set")
	b.open("#/faults", "leaf1[5] spine1[1]", "Lift all")
	b.open("#/map", "A rehearsal fault is set")
	b.shoot("32-dark-map-fault")
	b.open("#/link/leaf1[5]", "Lift the fault")
	b.Until("!!document.querySelector('form[aria-label=Fault] button:not(.primary):not([hidden])')")
	b.click("form[aria-label=Fault] button:not(.primary)")
	b.Until("document.getElementById('banner').hidden")
	if f := x.m.Faults(); len(f) != 0 {
		t.Fatalf("after it was lifted: %+v", f)
	}
	b.open("#/link/leaf2[6]", "leaf2[6] – spine2[2]", "Rehearse a fault")
	eval[bool](b, "document.querySelector('[name=down]').click(), true")
	b.click("form[aria-label=Fault] button.primary")
	b.open("#/cables", "leaf2[6] spine2[2]", "A rehearsal fault is set: down")
	b.shoot("32-dark-cables-down")
	b.open("#/map", "63 / 64")
	b.shoot("32-dark-map-down")
	b.open("#/faults", "Lift all")
	b.click(".actions button.danger")
	b.sees("No fault is set.")
	b.open("#/map", "64 / 64")

	b.open("#/tenants", "New tenant")
	b.fill("[aria-label='Create a tenant'] [name=name]", "red")
	b.fill("[aria-label='Create a tenant'] [name=hosts]", "h1-h4 h99")
	b.click("[aria-label='Create a tenant'] button")
	b.sees(`"h99": want one of the fabric's`)
	if len(x.book.List()) != 0 {
		t.Fatal("a tenant with an unknown host was made")
	}
	b.shoot("32-dark-tenant-refused")
	b.fill("[aria-label='Create a tenant'] [name=hosts]", "h1-h4")
	b.click("[aria-label='Create a tenant'] button")
	b.Until("!!document.querySelector(\"[aria-label='Tenant red']\")")
	b.fill("[aria-label='Hosts of red'] [name=hosts]", "h9, h10")
	b.click("[aria-label='Hosts of red'] button")
	b.sees("6 hosts")
	b.click("[aria-label='Remove h1 from red']")
	b.sees("5 hosts")
	if red, _ := x.book.Get("red"); len(red.Members) != 5 {
		t.Fatalf("red has %d members, want 5", len(red.Members))
	}
	b.shoot("32-dark-tenant")
	b.open("#/map?color=tenant", "no tenant", "red")
	b.shoot("32-dark-map-tenant")
	b.open("#/host/h2", "tenant red")
	b.open("#/map?color=util", "idle")
	b.open("#/tenants", "Delete …")
	b.click(".tenant button.danger")
	b.click("dialog[open] button.danger")
	b.sees("No tenants.")
	if len(x.book.List()) != 0 {
		t.Error("red was deleted and is there")
	}
}

// walkPast looks at the plots of a host, at a time of one's own, and at that as a table.
func walkPast(t *testing.T, x *ground, b *browser) {
	const traffic = "document.querySelector('.plot[aria-label^=\"Traffic:\"]')"
	b.open("#/host/h1", "Links active", "Over time")
	// What a host receives has a line of its own, for those who see and for those who do not.
	b.Until("!!" + traffic + "?.querySelector('.u-legend')")
	lines := eval[[]string](b, "[..."+traffic+
		".querySelectorAll('.u-series .u-label')].map(e => e.textContent).slice(1)") // the first is the time's
	said := eval[string](b, traffic+".getAttribute('aria-label')")
	if !slices.Equal(lines, []string{"sent", "received"}) || !strings.Contains(said, "received now ") {
		t.Errorf("the plot of a host's traffic has lines of %q and says %q", lines, said)
	}

	// A second of which there is a sample, which is in the history when the next has come.
	bell := x.m.Samples(t.Context())
	at := x.m.Sample().At
	for at.Equal(x.m.Sample().At) {
		<-bell
	}
	from := at.Truncate(time.Second)
	to := from.Add(time.Second)
	show := func(from, to time.Time) {
		t.Helper()
		eval[bool](b, fmt.Sprintf(`(times => {
			const fields = document.querySelectorAll(".own-span input");
			const local = at => new Date(at - 60000 * new Date(at).getTimezoneOffset()).toISOString().slice(0, 19);
			times.forEach((at, i) => fields[i].value = local(at));
			document.querySelector(".own-span button").click();
			return true;
		})([%d, %d])`, from.UnixMilli(), to.UnixMilli()))
	}
	const pressed = "document.querySelectorAll('[aria-label=\"Span of time\"] [aria-pressed=true]').length"
	show(from, from)
	b.sees("From has to be before to.")
	if n := eval[int](b, pressed); n != 1 {
		t.Errorf("a span without a length took the place of the one that was chosen: %d are pressed", n)
	}
	show(from.AddDate(-1, 0, 0), from.AddDate(-1, 0, 0).Add(time.Minute))
	b.sees("No samples in this span yet.")
	if n := eval[int](b, pressed); n != 0 || eval[bool](b, "document.body.innerText.includes('From has to be')") {
		t.Errorf("while a time of one's own is shown, %d others are pressed, or it is refused", n)
	}
	show(from, to)
	b.Until("!!" + traffic + "?.querySelector('.u-legend')")
	type table struct {
		Name string
		Rows []string
	}
	csv := eval[table](b, `(async a => {
		const r = await fetch(a.href);
		return { name: r.headers.get("content-disposition"), rows: (await r.text()).trim().split("\n") };
	})([...document.querySelectorAll("a[download]")].find(a => a.textContent === "CSV"))`)
	if !strings.Contains(csv.Name, "h1") || len(csv.Rows) < 2 || !strings.Contains(csv.Rows[0], "rcv_bytes") {
		t.Fatalf("as a table: %+v", csv)
	}
	for _, row := range csv.Rows[1:] {
		stamp, _, _ := strings.Cut(row, ",")
		at, err := time.Parse(time.RFC3339, stamp)
		if err != nil || at.Before(from) || at.After(to) {
			t.Fatalf("the table of %v to %v has %q: %v", from, to, row, err)
		}
	}
	b.click("[aria-label='Span of time'] button")
	b.Until(pressed + " === 1")
	b.Until("document.querySelector('a[download]').href.includes('seconds=600')")
}

// walkKeyboard uses no pointer at all.
func walkKeyboard(t *testing.T, b *browser) {
	b.open("#/events", "Events")
	b.open("#/map", "hosts")
	eval[bool](b, "document.activeElement.blur(), true")
	b.key("?")
	b.Until("document.getElementById('help-dialog').open")
	b.shoot("32-dark-help")
	b.key(kb.Escape)
	b.Until("!document.getElementById('help-dialog').open")
	b.key("/")
	b.Until("document.activeElement.id === 'search'")
	b.key("leaf7")
	b.Until("document.querySelectorAll('#search-list [role=option]').length > 0")
	b.shoot("32-dark-search")
	b.key(kb.Enter)
	b.Until("softibMap.selected?.i === softibMap.m.index.get('leaf7')")
	b.Until("document.activeElement.id === 'map'")
	b.sees("leaf7", "Open page")
	b.shoot("32-dark-map-selected")
	b.key(kb.ArrowUp)
	b.Until("softibMap.m.names[softibMap.selected.i].startsWith('spine')")
	b.key(kb.ArrowDown)
	b.Until("softibMap.m.names[softibMap.selected.i].startsWith('leaf')")
	b.key(kb.ArrowDown)
	b.Until("softibMap.m.names[softibMap.selected.i].startsWith('h')")
	b.key(kb.Enter)
	b.Until("location.hash.startsWith('#/host/h')")
	b.sees("Links active")
	eval[bool](b, "document.activeElement.blur(), true")
	b.goes("c", "location.hash === '#/cables'")
	b.goes("m", "location.hash.startsWith('#/map')")
	b.Until("!!document.querySelector('.map-canvas')")
	if made := eval[int](b, `new Promise(is => { let n = 0; new MutationObserver(() => n++).observe(`+
		`document.getElementById("content"), { childList: true }); location.hash = "#/cables"; `+
		`location.hash = "#/map"; setTimeout(() => requestAnimationFrame(() => is(n)), 300); })`); made != 1 {
		t.Errorf("who goes to the cables and at once to the map has %d views made, want the map's alone", made)
	}
	eval[bool](b, "document.getElementById('map').focus(), true")
	b.key(kb.Escape)
	before := eval[float64](b, "softibMap.cam.x")
	b.key(kb.ArrowRight)
	b.Until(fmt.Sprintf("softibMap.cam.x > %v", before))
	scale := eval[float64](b, "softibMap.cam.k")
	b.key("+")
	b.Until(fmt.Sprintf("softibMap.cam.k > %v", scale))
	now := eval[float64](b, "softibMap.cam.k")
	zoomed := eval[float64](b, "softibMap.flyTo(softibMap.fitCamera()), softibMap.zoom(1.5), "+
		"new Promise(is => setTimeout(() => requestAnimationFrame(() => is(softibMap.cam.k)), 600))")
	if zoomed <= now {
		t.Errorf("who zooms in while the map flies elsewhere sees it at %v, as before at %v", zoomed, now)
	}
	b.key("0")
	b.Until("Math.abs(softibMap.cam.k - softibMap.fitCamera().k) < 1e-6")
	b.key("c")
	b.Until("softibMap.mode === 'errors'")
	b.shoot("32-dark-map-errors")
	eval[bool](b, "softibMap.setMode('util'), true")

	// Everything that can be clicked can be reached with Tab, and is seen to be.
	for _, v := range views("h32") {
		b.open(v.hash, v.words[0])
		if lost := eval[string](b, `[...document.querySelectorAll("#content a, #content button, #content input, `+
			`#content select")].filter(e => e.tabIndex < 0 && !e.closest("[role=radiogroup]") && !e.hidden `+
			`&& e.offsetParent).map(e => e.outerHTML.slice(0, 80)).join("\n")`); lost != "" {
			t.Errorf("%s: not reached with Tab: %s", v.hash, lost)
		}
		if nameless := eval[string](b, `[...document.querySelectorAll("a, button, input, select")].filter(e `+
			`=> e.offsetParent && !e.textContent.trim() && !e.getAttribute("aria-label") && !e.closest("label") `+
			`&& !e.title).map(e => e.outerHTML.slice(0, 80)).join("\n")`); nameless != "" {
			t.Errorf("%s: without a name for those who do not see: %s", v.hash, nameless)
		}
	}
	b.open("#/cables", "Cables, worst first") // all of it: what is drawn later would take the focus away
	eval[bool](b, "document.activeElement.blur(), true")
	seen, wanted := map[string]bool{}, []string{"Map", "Tenants", "Faults", "search", "theme", "help"}
	missing := func(name string) bool { return !seen[name] }
	for n := 0; n < 150 && slices.ContainsFunc(wanted, missing); n++ { // the page has as many as there are alarms
		b.key(kb.Tab)
		seen[eval[string](b,
			"document.activeElement.id || document.activeElement.textContent.trim().slice(0, 20)")] = true
		if !eval[bool](b,
			"document.activeElement === document.body || getComputedStyle(document.activeElement).outlineStyle "+
				"!== 'none' || document.activeElement.id === 'content'") {
			t.Errorf("the focus on %s is not seen", eval[string](b, "document.activeElement.outerHTML.slice(0, 100)"))
		}
	}
	for _, want := range wanted {
		if missing(want) {
			t.Errorf("Tab does not come to %s: %v", want, seen)
		}
	}
}

// goes presses g and a letter, which has to follow within two seconds: both at the same moment, whenever the browser
// comes to them.
func (b *browser) goes(letter, where string) {
	b.T.Helper()
	now := input.TimeSinceEpoch(float64(time.Now().UnixMilli()) / 1000)
	b.Do(chromedp.KeyEvent("g"+letter, func(k *input.DispatchKeyEventParams) { k.Timestamp = now }))
	b.Until(where)
}

// walkLive wants what happens to be shown without a reload.
func walkLive(t *testing.T, x *ground, b *browser) {
	b.open("#/events", "Events")
	eval[bool](b, "window.stayed = true")
	r, err := x.m.Port("leaf3[7]")
	if err != nil {
		t.Fatal(err)
	}
	x.f.setSick(r, 300)
	b.open("#/cables", "leaf3[7]", "symbol errors")
	b.shoot("32-dark-cables-sick")
	walkAlarm(t, x, b)
	b.open("#/map", "hosts")
	idleStaysIdle(t, b)
	discardsAreNoErrors(t, b)
	cable, _ := x.m.CableOf(r)
	eval[bool](b, "softibMap.setMode('errors'), true")
	b.Until(fmt.Sprintf("softibMap.linkBin[%d] > 3", cable))
	b.shoot("32-dark-map-sick")
	b.open("#/link/leaf3[7]", "Why it is judged so")
	b.Until("document.querySelectorAll('.plot canvas').length === 5")
	b.shoot("32-dark-link-sick")
	x.f.setSick(r, 0)
	if !eval[bool](b, "window.stayed") {
		t.Error("the page was loaded anew")
	}
	eval[bool](b, "softibMap.setMode('util'), true")
}

// walkAlarm acknowledges an alarm and mutes another.
func walkAlarm(t *testing.T, x *ground, b *browser) {
	b.click("[data-k^=a]")
	b.fill("dialog input[name=by]", "ann")
	b.fill("dialog input[name=note]", "spare ordered")
	b.click("dialog button[value=yes]")
	b.sees("acknowledged by ann", "spare ordered")
	// A cable leads to its own view; a node, or a cable that is missing, has none.
	for link, view := range map[string]string{"leaf3[7] spine3[3]": "#/link/leaf3%5B7%5D", "h6": "#/host/h6",
		"leaf3[9] spine3[9]": "#/switch/leaf3", "leaf3 spine3": "#/switch/leaf3"} {
		is := eval[string](b, fmt.Sprintf(`import("./js/words.js").then(w => `+
			`w.alarmTo(softibMap.m, %q).getAttribute("href"))`, link))
		if is != view {
			t.Errorf("an alarm of %s leads to %q, want %q", link, is, view)
		}
	}
	b.shoot("32-dark-alarm-acknowledged")
	b.Until("!!document.querySelector('[data-k^=m]')")
	eval[bool](b, "(e => { e.selectedIndex = 1; e.dispatchEvent(new Event('change')); return true; })"+
		"(document.querySelector('[data-k^=m]'))")
	b.sees("Muted", "Unmute")
	if len(x.m.Mutes()) != 1 {
		t.Errorf("rules: %+v", x.m.Mutes())
	}
	eval[bool](b, "[...document.querySelectorAll('button')].find(b => b.textContent === 'Unmute').click(), true")
	b.Until("![...document.querySelectorAll('button')].some(b => b.textContent === 'Unmute')")
}

// discardsAreNoErrors wants the counters of a port that only discards, waits and refuses not painted as errors: they
// say what happened to packets, and nothing of the link.
func discardsAreNoErrors(t *testing.T, b *browser) {
	painted := func(counters ...string) []string {
		list := []map[string]any{{"name": "SymbolErrorCounter", "value": 0}}
		for _, c := range counters {
			list = append(list, map[string]any{"name": c, "value": 7})
		}
		text, err := json.Marshal(list)
		if err != nil {
			t.Fatal(err)
		}
		return eval[[]string](b, fmt.Sprintf(`import("./js/views/node.js").then(n => [...n.counterTable(%s)`+
			`.querySelectorAll("tbody tr")].filter(r => r.querySelector(".bad")).map(r => r.cells[0].textContent))`,
			text))
	}
	if bad := painted("PortXmitDiscards", "PortXmitWait", "VL15Dropped", "PortRcvConstraintErrors",
		"PortRcvSwitchRelayErrors", "PortRcvRemotePhysicalErrors"); len(bad) != 0 {
		t.Errorf("painted as errors of the link: %v", bad)
	}
	if bad := painted("PortXmitDiscards", "PortRcvErrors"); !slices.Equal(bad, []string{"PortRcvErrors"}) {
		t.Errorf("painted as errors are %v, want PortRcvErrors alone", bad)
	}
}

// idleStaysIdle wants a switch that is selected to leave its idle cables in the colour of idle ones.
func idleStaysIdle(t *testing.T, b *browser) {
	colours := eval[[]string](b, `(() => {
		const seen = [], i = softibMap.m.index.get("leaf1"), was = softibMap.linkBin;
		const set = (_, k, v) => { if (k === "strokeStyle") seen.push(v); return true; };
		const ctx = new Proxy({}, { get: () => () => {}, set });
		softibMap.linkBin = new Uint8Array(was.length);
		softibMap.selected = { kind: "node", i };
		softibMap.mark(ctx, softibMap.selected, "accent", 2);
		softibMap.linkBin = was;
		softibMap.selected = null;
		return [softibMap.pal.ramp(softibMap.mode)[0], ...seen];
	})()`)
	if len(colours) != 3 || colours[1] != "accent" || colours[2] != colours[0] {
		t.Errorf("idle is %s; the ring and the cables of an idle switch are %s", colours[0], colours[1:])
	}
}

// walkGivenUp wants a picture that was begun and given up to leave nothing behind in the next.
func walkGivenUp(t *testing.T, b *browser) {
	b.open("#/map", "hosts")
	b.Until("!softibMap.job && !softibMap.want.picture && !softibMap.want.base")
	same := eval[bool](b, `(async () => {
		const r = softibMap, change = r.dataChanged;
		r.dataChanged = () => {}; // numbers that come in meanwhile are another matter
		const idle = async () => { do await new Promise(requestAnimationFrame); while (r.job || r.want.picture || r.want.base); };
		r.invalidate(); await idle();
		const before = r.front.canvas.toDataURL();
		for (let n = 1; n < 12; n++) {
			r.begin({ ...r.cam, x: r.cam.x + 300 }, r.w * 1.5, r.h * 1.5, r.dpr, false);
			for (let i = 0; i < n; i++) r.job.steps.next();
			r.spare = [r.job.canvas]; r.job = null;
			r.invalidate(); await idle();
			if (r.front.canvas.toDataURL() !== before) return false;
		}
		r.dataChanged = change;
		return true;
	})()`)
	if !same {
		t.Error("a picture that was given up shows through the next")
	}
}

// walkHidden wants a page that nobody sees to ask for nothing, and to come back.
func walkHidden(b *browser) {
	b.open("#/map", "hosts")
	hide := func(hidden bool) {
		eval[bool](b, fmt.Sprintf(`(Object.defineProperty(document, "hidden", { configurable: true, get: () `+
			`=> %v }), document.dispatchEvent(new Event("visibilitychange")), true)`, hidden))
	}
	hide(true)
	b.Until("document.getElementById('live').textContent !== 'live'")
	hide(false)
	b.Until("document.getElementById('live').textContent === 'live'")
}
