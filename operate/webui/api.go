package webui

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	"softib/internal/patience"
	"softib/operate/manager"
)

// bodyMax is how large a request may be: the longest is a tenant with all hosts of a large fabric by name.
const bodyMax = 256 << 10

// answerLimit is how long a client may take to read an answer, on an idle machine.
const answerLimit = time.Minute

// apiError is what a request that cannot be done is answered with.
type apiError struct {
	Status int    `json:"-"`
	Text   string `json:"error"`
	Field  string `json:"field,omitempty"`
	Next   string `json:"next,omitempty"`
}

func (e *apiError) Error() string { return e.Text }

func fail(w http.ResponseWriter, e *apiError) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(e.Status)
	b, _ := json.Marshal(e) // strings always marshal
	w.Write(append(b, '\n'))
}

// badField refuses a value of a request.
func badField(field, next, format string, args ...any) *apiError {
	return &apiError{Status: http.StatusBadRequest, Field: field, Next: next, Text: fmt.Sprintf(format, args...)}
}

// unknown refuses a name that fits nothing.
func unknown(field string, err error) *apiError {
	e := &apiError{Status: http.StatusBadRequest, Field: field, Text: err.Error(),
		Next: "search for it: press / in the page, or ask /api/v1/search?q="}
	if errors.Is(err, manager.ErrUnknown) {
		e.Status = http.StatusNotFound
	}
	return e
}

// answer is a handler that returns what to answer with.
type answer func(r *http.Request) (any, error)

func (a answer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	// To find out takes what it takes; the client has its time when there is an answer.
	ctl := http.NewResponseController(w)
	ctl.SetWriteDeadline(time.Time{})
	v, err := a(r)
	ctl.SetWriteDeadline(time.Now().Add(patience.For(answerLimit)))
	if err != nil {
		e, ok := errors.AsType[*apiError](err)
		if !ok {
			e = &apiError{Status: http.StatusInternalServerError, Text: err.Error(),
				Next: "try again; if it stays, see the log of softib up"}
		}
		fail(w, e)
		return
	}
	b, err := json.Marshal(v)
	if err != nil {
		fail(w, &apiError{Status: http.StatusInternalServerError, Text: "the answer cannot be written: " + err.Error(),
			Next: "this is a bug of softib: tell us what you asked for"})
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Write(append(b, '\n'))
}

// routes lists every path once.
func (s *Server) routes() {
	s.mux.HandleFunc("/", s.serveStatic)
	s.mux.Handle("GET /api/v1/topology", s.map_)
	s.mux.HandleFunc("GET /api/v1/stream", s.serveStream)
	s.mux.HandleFunc("GET /api/v1/history.csv", s.historyCSV)
	for path, a := range map[string]answer{
		"GET /api/v1/status":                func(*http.Request) (any, error) { return readStatus(s.m), nil },
		"GET /api/v1/search":                s.search,
		"GET /api/v1/node":                  s.node,
		"GET /api/v1/link":                  s.link,
		"GET /api/v1/route":                 s.route,
		"GET /api/v1/sm":                    s.subnet,
		"GET /api/v1/events":                s.events,
		"GET /api/v1/alarms":                s.alarms,
		"POST /api/v1/alarms/{id}":          s.acknowledge,
		"GET /api/v1/mutes":                 s.mutes,
		"POST /api/v1/mutes":                s.mute,
		"DELETE /api/v1/mutes/{id}":         s.unmute,
		"GET /api/v1/overview":              s.overview,
		"GET /api/v1/checks/doctor":         s.doctor,
		"GET /api/v1/checks/wiring":         s.wiring,
		"GET /api/v1/checks/inventory":      s.inventory,
		"GET /api/v1/cables":                s.cables,
		"GET /api/v1/history":               s.history,
		"GET /api/v1/tenants":               s.tenants,
		"POST /api/v1/tenants":              s.createTenant,
		"POST /api/v1/tenants/{name}/hosts": s.editTenant,
		"DELETE /api/v1/tenants/{name}":     s.deleteTenant,
		"GET /api/v1/programs":              s.programs,
		"GET /api/v1/faults":                s.faults,
		"PUT /api/v1/faults":                s.setFault,
		"DELETE /api/v1/faults":             s.liftFaults,
	} {
		s.mux.Handle(path, a)
	}
	s.mux.HandleFunc("/api/", func(w http.ResponseWriter, r *http.Request) {
		fail(w, &apiError{Status: http.StatusNotFound, Text: fmt.Sprintf("there is no %s %s", r.Method, r.URL.Path),
			Next: "package webui's doc.go lists the API"})
	})
}

// readBody reads a JSON body into v: of the right type, not too large, one value, no fields that nobody knows.
func readBody(r *http.Request, v any) error {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return &apiError{Status: http.StatusUnsupportedMediaType, Field: "Content-Type",
			Text: fmt.Sprintf("the body is of type %q: want application/json", r.Header.Get("Content-Type")),
			Next: "set the header Content-Type: application/json"}
	}
	d := json.NewDecoder(http.MaxBytesReader(nil, r.Body, bodyMax))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return bodyError(err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return badField("body", "send one JSON object", "something follows the JSON object")
	}
	return nil
}

func bodyError(err error) error {
	if e, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return &apiError{Status: http.StatusRequestEntityTooLarge, Field: "body",
			Text: fmt.Sprintf("the body is larger than %d KiB", e.Limit>>10), Next: "send less at a time"}
	}
	if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return badField(e.Field, "package webui's doc.go lists the fields", "%s is a JSON %s: want a %s", e.Field,
			e.Value, e.Type)
	}
	const unknownField = "json: unknown field "
	if name, ok := strings.CutPrefix(err.Error(), unknownField); ok {
		return badField(strings.Trim(name, `"`), "package webui's doc.go lists the fields", "there is no field %s",
			name)
	}
	return badField("body", "send one JSON object", "the body is no JSON: %v", err)
}

// number reads a parameter that may be left out.
func number(r *http.Request, name string, without, low, high int) (int, error) {
	text := r.URL.Query().Get(name)
	if text == "" {
		return without, nil
	}
	v, err := strconv.Atoi(text)
	if err != nil || v < low || v > high {
		return 0, badField(name, "leave it out for "+strconv.Itoa(without), "%s is %q: want a number from %d to %d",
			name, text, low, high)
	}
	return v, nil
}

// who names a client in the journal.
func who(r *http.Request) string { return "the page at " + r.RemoteAddr }

func pow2(x float64) float64 { return math.Exp2(x) }

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
