package ufm

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"softib/internal/descriptors"
	"softib/internal/files"
	"softib/internal/patience"
	"softib/operate/manager"
	"softib/operate/manager/tenant"
	"softib/proto/ib"
)

// Tenants is what partitions are kept in. *tenant.Book is one.
type Tenants interface {
	List() []tenant.Tenant
	ByKey(ib.PKey) (tenant.Tenant, bool)
	EditKey(ctx context.Context, key ib.PKey, name string, edit func(*tenant.Tenant) error) (tenant.Tenant, error)
	Shrink(ctx context.Context, key ib.PKey, guids []ib.GUID, last func(tenant.Tenant) bool) (tenant.Tenant, error)
	Delete(ctx context.Context, name string) error
}

// Config is what is served, and to whom.
type Config struct {
	Manager *manager.Manager
	// Tenants are the manager's, if nobody has others to show. Where there are none, partitions are shown and cannot be
	// changed.
	Tenants Tenants
	// Credentials are who may call; nil is nobody, which on a loopback address is everybody.
	Credentials *Credentials
	// Loopback says that only this machine reaches the server.
	Loopback bool
	// ClientCerts says that TLS verifies the certificates of clients, and that this is enough (see TLSConfig).
	ClientCerts bool
	// Now is the time; time.Now if it is nil.
	Now func() time.Time
}

// Server serves the interface. It is an http.Handler.
type Server struct {
	cfg         Config
	now         func() time.Time
	routes      []route
	sessions    sessions
	queue       *queue
	crossOrigin http.CrossOriginProtection
	cache       cache
	dismissed   dismissed
	updated     updated
	vanished    vanished
	jobs        jobs
	monitors    monitors
	document    []byte

	ctx  context.Context
	stop context.CancelFunc
	done sync.WaitGroup
}

// New makes a server of the interface. Close ends it.
func New(cfg Config) (*Server, error) {
	if cfg.Manager == nil {
		return nil, errors.New("ufm: no manager")
	}
	if cfg.Credentials == nil {
		cfg.Credentials, _ = OpenCredentials("")
	}
	if b := cfg.Manager.Tenants(); cfg.Tenants == nil && b != nil {
		cfg.Tenants = b
	}
	s := &Server{cfg: cfg, now: cfg.Now}
	if s.now == nil {
		s.now = time.Now
	}
	s.queue = newQueue(s.now)
	s.ctx, s.stop = context.WithCancel(context.Background())
	s.routes = s.table()
	var err error
	if s.document, err = s.openAPI(); err != nil {
		return nil, err
	}
	return s, nil
}

// Close ends the jobs that run.
func (s *Server) Close() {
	s.stop()
	s.done.Wait()
}

// Roots are the patterns under which a mux serves it.
func (s *Server) Roots() []string {
	list := []string{"/openapi.json", "/dologin", "/logout"}
	for _, r := range roots {
		list = append(list, r.path+"/")
	}
	return list
}

// Times that a client has on an idle machine: to send a body, and to read an answer. One that does neither is cut off,
// and nothing waits for it meanwhile.
const (
	readMax  = 30 * time.Second
	writeMax = 60 * time.Second
	// changeWait is how long a change waits for others to be made before it, on an idle machine.
	changeWait = 40 * time.Second
)

// connectionsMax bounds how many connections a server has at once, however many descriptors there are.
const connectionsMax = 8192

// Harden gives a server that has its handler the limits against clients that are slow or worse, and against too many of
// them: a source gets half of the places. Handlers that stream for long set a write deadline of their own before each
// piece.
func Harden(h *http.Server) {
	most := min(connectionsMax, descriptors.Page)
	harden(h, most, most/2)
}

func harden(h *http.Server, most, ofSource int) {
	// Nobody has said who he is before his headers are here, and those of an honest client come in one piece: it is the
	// same however busy the machine is.
	h.ReadHeaderTimeout = 10 * time.Second
	h.WriteTimeout = changeWait + writeMax
	h.IdleTimeout = 2 * time.Minute
	h.MaxHeaderBytes = 64 << 10
	newCrowd(most, ofSource).watch(h)
}

// call is one request on its way.
type call struct {
	w     http.ResponseWriter
	r     *http.Request
	root  string
	user  string
	proof proof
	args  map[string]string
	query *query
	body  *body // nil for what has none
}

func (c *call) arg(name string) string { return c.args[name] }

// json answers with a value.
func (c *call) json(v any) { writeJSON(c.w, http.StatusOK, v) }

// change is the context of a change: who is gone before it begins changes nothing. It
// takes what it takes, and the client has its time to read the answer when there is one.
func (c *call) change() (context.Context, context.CancelFunc) {
	ctl := http.NewResponseController(c.w)
	ctl.SetWriteDeadline(time.Time{})
	ctx, cancel := patience.Context(c.r.Context(), changeWait)
	return ctx, func() {
		cancel()
		ctl.SetWriteDeadline(time.Now().Add(patience.For(writeMax)))
	}
}

// ServeHTTP answers a request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	if err := s.serve(w, r); err != nil {
		e := refused(err)
		if e.Status == http.StatusUnauthorized && strings.HasPrefix(r.URL.Path, roots[0].path+"/") {
			h.Set("WWW-Authenticate", `Basic realm="softib", charset="UTF-8"`)
		}
		writeError(w, e)
	}
}

// admit says who calls, and gives the client its time from then on: who had to wait for a turn has lost none of it.
func (s *Server) admit(w http.ResponseWriter, r *http.Request, how scheme) (caller, *Error) {
	who, err := s.authenticate(r, how)
	timed(w, r)
	return who, err
}

// timed gives the client its time, from now on. Where there is no connection there is no deadline.
func timed(w http.ResponseWriter, r *http.Request) {
	ctl := http.NewResponseController(w)
	now := time.Now()
	ctl.SetWriteDeadline(now.Add(patience.For(changeWait + writeMax)))
	if r.ContentLength != 0 { // one without a body may be listening for days
		ctl.SetReadDeadline(now.Add(patience.For(readMax)))
	}
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) error {
	if err := s.fromBrowser(r); err != nil {
		return err
	}
	path := strings.TrimRight(r.URL.EscapedPath(), "/")
	root, how := "", noAuth
	for _, x := range roots {
		if rest, ok := strings.CutPrefix(path, x.path+"/"); ok {
			root, how, path = x.path, x.scheme, "/"+rest
			break
		}
	}
	who, e := s.admit(w, r, how)
	if e != nil {
		return e
	}
	rt, args, err := s.match(r.Method, path, root != "")
	if err != nil {
		if err.Status == http.StatusMethodNotAllowed {
			w.Header().Set("Allow", err.Field)
			err.Field = ""
		}
		return err
	}
	c := &call{w: w, r: r, root: root, user: who.name, proof: who.proof, args: args, query: queryOf(r)}
	if rt.query != nil || rt.method == http.MethodGet {
		if c.query.err != nil {
			return c.query.err
		}
	}
	if rt.method != http.MethodGet {
		if c.body = readBody(w, r); c.body.err != nil {
			return c.body.err
		}
		http.NewResponseController(w).SetReadDeadline(time.Time{}) // a password in it may have to wait for its turn
	}
	failed := rt.serve(c)
	if rt.method != http.MethodGet {
		s.changed()
	}
	return failed
}

// ErrListen is matched where an address must not be listened on.
var ErrListen = errors.New("ufm: not safe to listen")

// IsLoopback reports whether only this machine reaches an address to listen on.
func IsLoopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		host = addr
	}
	host = strings.ToLower(strings.Trim(host, "[]"))
	if host == "localhost" {
		return true
	}
	a, err := netip.ParseAddr(host)
	return err == nil && a.Unmap().IsLoopback()
}

// CheckListen says why an address must not be listened on: others than this machine reach it, and nothing keeps them
// out or others from listening in.
func CheckListen(addr string, hasTLS, hasCredential bool) error {
	if IsLoopback(addr) || hasTLS && hasCredential {
		return nil
	}
	var missing []string
	if !hasTLS {
		missing = append(missing, "TLS (a certificate and its key)")
	}
	if !hasCredential {
		missing = append(missing, "credential (a user with a password, or a CA for client certificates)")
	}
	return fmt.Errorf("%w on %s: others than this machine reach it, and there is no %s; give it that, or listen "+
		"on 127.0.0.1", ErrListen, addr, strings.Join(missing, " and no "))
}

// TLSConfig reads a server's certificate and key, and the CA whose certificates clients may show in place of a
// password; caFile is empty where there is none.
func TLSConfig(certFile, keyFile, caFile string) (*tls.Config, error) {
	pair, err := keyPair(certFile, keyFile)
	if err != nil {
		return nil, fmt.Errorf("ufm: the server's certificate: %w", err)
	}
	c := &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	if caFile != "" {
		text, err := files.ReadText(caFile, files.TextMax)
		if err != nil {
			return nil, fmt.Errorf("ufm: the CA of client certificates: %w", err)
		}
		c.ClientCAs, c.ClientAuth = x509.NewCertPool(), tls.VerifyClientCertIfGiven
		if !c.ClientCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("ufm: the CA of client certificates: %s has no certificate in PEM", caFile)
		}
	}
	return c, nil
}

// keyPair reads a certificate and its key.
func keyPair(certFile, keyFile string) (pair tls.Certificate, err error) {
	cert, err := files.ReadText(certFile, files.TextMax)
	if err != nil {
		return pair, err
	}
	key, err := files.ReadText(keyFile, files.TextMax)
	if err != nil {
		return pair, err
	}
	return tls.X509KeyPair(cert, key)
}
