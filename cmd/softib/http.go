package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"sync/atomic"
	"syscall"

	"github.com/spf13/pflag"

	"softib/operate/manager"
	"softib/operate/manager/metrics"
	"softib/operate/manager/notify"
	"softib/operate/manager/ufm"
	"softib/operate/webui"
)

// httpOptions are what a command line says about the page, the metrics and the REST interface.
type httpOptions struct {
	addr      string
	open      bool
	cert, key string
	clients   string
	hosts     []string
	alerts    string // who is told of alarms
	closed    bool   // also on a loopback address nobody is let in who is no user
}

// httpDefault is where the page is. If somebody is there already, it is at a free port.
const httpDefault = "127.0.0.1:8470"

// httpOff serves no page.
const httpOff = "off"

func (o *httpOptions) flags(f *pflag.FlagSet) {
	f.StringVar(&o.addr, "http", httpDefault, "serve page, metrics and REST at `ADDRESS`; off for none. Any "+
		"address but a loopback one needs TLS and a credential")
	f.BoolVar(&o.open, "open", false, "open the page in a browser")
	f.StringVar(&o.cert, "tls-cert", "", "the certificate of the page's server: `FILE` in PEM")
	f.StringVar(&o.key, "tls-key", "", "its key: `FILE` in PEM")
	f.StringVar(&o.clients, "client-ca", "", "let in whoever has a certificate that one in `FILE` has signed")
	f.StringVar(&o.alerts, "alerts", "", "send alarms on to `URL`: an Alertmanager's (http://HOST:9093/api/v2/alerts) "+
		"or whatever takes what Alertmanager sends to webhooks")
	f.StringSliceVar(&o.hosts, "http-host", nil,
		"`NAME` under which browsers may ask for the page, besides localhost and addresses")
}

// notify sends a manager's alarms on, if somebody wants them, until end is called.
func (o *httpOptions) notify(m *manager.Manager, page string) (end func(), err error) {
	if o.alerts == "" {
		return func() {}, nil
	}
	n, err := notify.Start(m, notify.Options{URL: o.alerts, Page: page})
	if err != nil {
		return nil, next(&usageError{fmt.Errorf("--alerts: %w", err)}, "--alerts http://HOST:9093/api/v2/alerts")
	}
	return n.Close, nil
}

// web is the server of a fabric's page.
type web struct {
	taken bool // the address that it should have had was
	url   string
	addr  string
	l     net.Listener
	srv   *http.Server
	users *ufm.Credentials
	opts  httpOptions
	now   atomic.Pointer[http.Handler] // what answers; another one may take its place
}

// newWeb claims the page's address and sees to it that it may be served there: nil if there is to be none. Nothing is
// served before there is a fabric.
func newWeb(o httpOptions, fixed bool, users *ufm.Credentials) (*web, error) {
	if o.addr == httpOff {
		if o.open {
			return nil, next(&usageError{errors.New("--open wants a page, and --http off serves none")},
				"softib up --open")
		}
		return nil, nil
	}
	x := &web{users: users, opts: o, srv: &http.Server{ErrorLog: log.New(io.Discard, "", 0)}}
	x.srv.Handler = x
	ufm.Harden(x.srv)
	scheme := "http://"
	if o.cert != "" || o.key != "" || o.clients != "" {
		if o.cert == "" || o.key == "" {
			return nil, next(&usageError{errors.New("TLS wants a certificate and its key")},
				"--tls-cert FILE --tls-key FILE")
		}
		var err error
		if x.srv.TLSConfig, err = ufm.TLSConfig(o.cert, o.key, o.clients); err != nil {
			return nil, next(err, "--tls-cert, --tls-key and --client-ca name files in PEM")
		}
		scheme = "https://"
	}
	var err error
	x.l, err = net.Listen("tcp", o.addr)
	if errors.Is(err, syscall.EADDRINUSE) && !fixed {
		x.taken = true
		x.l, err = net.Listen("tcp", "127.0.0.1:0")
	}
	if err != nil {
		return nil, next(fmt.Errorf("the page cannot be served: %w", err),
			"--http 127.0.0.1:0 takes a free port, --http off serves none")
	}
	x.addr = x.l.Addr().String()
	x.url = scheme + reachable(x.l.Addr()) + "/"
	if err := ufm.CheckListen(x.addr, x.srv.TLSConfig != nil, users.Any() || o.clients != ""); err != nil {
		x.l.Close()
		return nil, next(err, "softib user add NAME makes a credential; --tls-cert FILE and --tls-key FILE turn TLS on")
	}
	return x, nil
}

// answer makes a handler the one that answers.
func (x *web) answer(h http.Handler) { x.now.Store(&h) }

// ServeHTTP lets the handler of the moment answer.
func (x *web) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if h := x.now.Load(); h != nil {
		(*h).ServeHTTP(w, r)
		return
	}
	w.Header().Set("Retry-After", "1")
	http.Error(w, "nothing is managed at the moment; next: try again in a second", http.StatusServiceUnavailable)
}

// reachable is an address that a browser can be given: of all addresses of this machine, its name.
func reachable(a net.Addr) string {
	t, ok := a.(*net.TCPAddr)
	if !ok || !t.IP.IsUnspecified() {
		return a.String()
	}
	name, err := os.Hostname()
	if err != nil {
		name = "localhost"
	}
	return net.JoinHostPort(name, strconv.Itoa(t.Port))
}

// hostNames are what browsers may call a page that is not for this machine alone: by the machine's name.
func hostNames(a net.Addr) []string {
	name, err := os.Hostname()
	if err != nil || ufm.IsLoopback(a.String()) {
		return nil
	}
	return []string{name}
}

// handle serves all that a manager offers over HTTP: the page, the metrics and the REST interface.
func (x *web) handle(m *manager.Manager) (end func(), err error) {
	rest, err := ufm.New(ufm.Config{Manager: m, Credentials: x.users,
		Loopback: !x.opts.closed && ufm.IsLoopback(x.addr), ClientCerts: x.opts.clients != ""})
	if err != nil {
		return nil, err
	}
	page := webui.New(m, webui.Options{Hosts: append(slices.Clone(x.opts.hosts), hostNames(x.l.Addr())...)})
	mux := http.NewServeMux()
	for _, root := range rest.Roots() {
		mux.Handle(root, rest)
	}
	mux.Handle("/metrics", rest.Guard(metrics.New(m)))
	mux.Handle("/", rest.Guard(page))
	x.answer(mux)
	return func() {
		page.Close()
		rest.Close()
	}, nil
}

// serve answers until ctx ends.
func (x *web) serve(ctx context.Context) {
	stop := context.AfterFunc(ctx, func() { x.srv.Close() })
	defer stop()
	if x.srv.TLSConfig != nil {
		_ = x.srv.ServeTLS(x.l, "", "")
		return
	}
	_ = x.srv.Serve(x.l)
}

// openPage shows the page in whatever browser there is.
func openPage(url string) error {
	for _, prog := range []string{os.Getenv("BROWSER"), "xdg-open", "sensible-browser", "x-www-browser", "chromium",
		"firefox"} {
		if prog == "" {
			continue
		}
		path, err := exec.LookPath(prog)
		if err != nil {
			continue
		}
		cmd := exec.Command(path, url)
		if err := cmd.Start(); err == nil {
			go func() { _ = cmd.Wait() }()
			return nil
		}
	}
	return next(errors.New("no browser was found"), "open %s in one", url)
}

// servePage serves the page of a fabric until ctx ends; the function that it returns ends it too, and waits.
func (f *fabric) servePage(ctx context.Context, x *web, m *manager.Manager, o upOptions, out *reporter) (end func()) {
	stop, err := x.handle(m)
	if err != nil {
		x.l.Close()
		out.say("page      none: %v", err)
		return func() {}
	}
	f.page = x.url
	out.say("page      %s", x.url)
	if x.taken {
		out.say("note      %s is taken, by another fabric perhaps: this page has a free port", httpDefault)
	}
	if x.opts.closed && !x.users.Any() {
		out.say("note      nobody may use the page of a shared fabric who is no user of it: softib user add NAME")
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		x.serve(ctx)
	}()
	if o.http.open {
		if err := openPage(x.url); err != nil {
			out.say("note      %v: %s", err, nextOf(err))
		}
	}
	return func() {
		cancel()
		<-done
		stop()
	}
}
