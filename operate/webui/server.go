package webui

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io/fs"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"path"
	"strings"
	"sync"

	"softib/operate/doctor"
	"softib/operate/manager"
	"softib/operate/wiring"
)

//go:embed static
var static embed.FS

// Options tune the page.
type Options struct {
	// Hosts are names that the page may be asked for by, besides localhost and addresses. A name that is not known is
	// refused: another site could have given it to this machine's address to get at the fabric from a browser (DNS
	// rebinding).
	Hosts []string
	// StreamsMax is how many streams there may be at a time; 0 is 1,024.
	StreamsMax int
}

// Server serves the page and its API.
type Server struct {
	m     *manager.Manager
	opts  Options
	mux   *http.ServeMux
	cross *http.CrossOriginProtection
	files map[string]*file
	map_  *file // the topology
	hub   *hub

	reports struct {
		doctor recent[*doctor.Report]
		wiring recent[*wiring.Report]
	}
	stop context.CancelFunc
	done sync.WaitGroup
}

// New makes the page of a fabric. Close ends its streams; the manager goes on.
func New(m *manager.Manager, o Options) *Server {
	if o.StreamsMax == 0 {
		o.StreamsMax = 1024
	}
	ctx, stop := context.WithCancel(context.Background())
	s := &Server{m: m, opts: o, mux: http.NewServeMux(), cross: http.NewCrossOriginProtection(), files: staticFiles(),
		stop: stop}
	s.map_ = newFile("topology.json", appendTopology(nil, shapeOf(m)))
	s.hub = newHub(m)
	s.routes()
	s.done.Go(func() { s.hub.run(ctx) })
	return s
}

// Close ends every stream.
func (s *Server) Close() {
	s.stop()
	s.done.Wait()
}

// contentPolicy lets the page load what is embedded and talk to its own origin, and nothing else.
const contentPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src " +
	"'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// ServeHTTP answers a request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", contentPolicy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	if !s.knownHost(r.Host) {
		fail(w, &apiError{Status: http.StatusMisdirectedRequest, Text: "this page is not known as " + r.Host,
			Field: "Host", Next: "ask for it by its address, or by localhost"})
		return
	}
	if strings.HasPrefix(r.URL.Path, "/api/") {
		if err := s.cross.Check(r); err != nil || r.Header.Get("Sec-Fetch-Site") == "cross-site" {
			fail(w, &apiError{Status: http.StatusForbidden, Text: "the request comes from another site's page",
				Field: "Origin", Next: "open this page itself"})
			return
		}
		h.Set("Cache-Control", "no-store")
	}
	s.mux.ServeHTTP(w, r)
}

// knownHost reports whether a Host header is an address, localhost or a name that was given.
func (s *Server) knownHost(hostport string) bool {
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		host = hostport
	}
	host = strings.TrimSuffix(strings.ToLower(host), ".")
	if host == "localhost" {
		return true
	}
	if _, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil {
		return true
	}
	for _, known := range s.opts.Hosts {
		if strings.EqualFold(known, host) {
			return true
		}
	}
	return false
}

// A file is what is served as it is: plain and compressed, with the tag of its contents.
type file struct {
	kind, etag  string
	plain, gzip []byte
}

func newFile(name string, data []byte) *file {
	sum := sha256.Sum256(data)
	f := &file{kind: mime.TypeByExtension(path.Ext(name)), etag: `"` + hex.EncodeToString(sum[:12]) + `"`, plain: data}
	switch path.Ext(name) { // the machine's own table may have other ideas
	case ".js":
		f.kind = "text/javascript; charset=utf-8"
	case ".css":
		f.kind = "text/css; charset=utf-8"
	case ".json":
		f.kind = "application/json"
	case ".html":
		f.kind = "text/html; charset=utf-8"
	case ".svg":
		f.kind = "image/svg+xml"
	case ".LICENSE":
		f.kind = "text/plain; charset=utf-8"
	}
	var b bytes.Buffer
	z, _ := gzip.NewWriterLevel(&b, gzip.DefaultCompression) // the level is a valid one
	z.Write(data)
	z.Close()
	f.gzip = b.Bytes()
	return f
}

func (f *file) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("ETag", f.etag)
	// ask whether it is still the same: a new version of softib may be behind the same address
	h.Set("Cache-Control", "no-cache")
	h.Set("Vary", "Accept-Encoding")
	for _, tag := range strings.Split(r.Header.Get("If-None-Match"), ",") {
		if strings.TrimPrefix(strings.TrimSpace(tag), "W/") == f.etag {
			w.WriteHeader(http.StatusNotModified)
			return
		}
	}
	h.Set("Content-Type", f.kind)
	data := f.plain
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		h.Set("Content-Encoding", "gzip")
		data = f.gzip
	}
	if r.Method != http.MethodHead {
		w.Write(data)
	}
}

// staticFiles are those of the page, by their paths.
func staticFiles() map[string]*file {
	files := map[string]*file{}
	err := fs.WalkDir(static, "static", func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := static.ReadFile(p)
		if err != nil {
			return err
		}
		files[strings.TrimPrefix(p, "static")] = newFile(p, data)
		return nil
	})
	if err != nil {
		panic("webui: the embedded files cannot be read: " + err.Error()) // they are part of the program
	}
	files["/"] = files["/index.html"]
	return files
}

// serveStatic answers with a part of the page.
func (s *Server) serveStatic(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		fail(w, &apiError{Status: http.StatusMethodNotAllowed, Text: "the page is only read",
			Next: "what can be changed is under /api/v1/"})
		return
	}
	f, ok := s.files[r.URL.Path]
	if !ok {
		fail(w, &apiError{Status: http.StatusNotFound, Text: "there is no " + r.URL.Path,
			Next: "the page is at /, its API at /api/v1/"})
		return
	}
	f.ServeHTTP(w, r)
}
