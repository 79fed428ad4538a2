package ufm

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// route is one line of the table of routes: what is served, and how it is documented.
type route struct {
	method string
	// path is below a root, with parts of it in braces; outside says that it is not.
	path    string
	outside bool
	id      string
	summary string
	// query and body are what callers may say, and answer what they get with status (200 if it is 0).
	query  []param
	body   []param
	answer string // the name of a schema
	status int
	serve  func(*call) error

	parts []string
}

// param is a query parameter, or a member of a body.
type param struct {
	name, kind, about string
	required          bool
}

// match finds the route of a request: of those that fit, the one with the most words in common. The error for a wrong
// method has the right ones as its field.
func (s *Server) match(method, path string, rooted bool) (*route, map[string]string, *Error) {
	if method == http.MethodHead {
		method = http.MethodGet
	}
	parts := strings.Split(path, "/")[1:]
	if path == "" {
		parts = nil
	}
	for i, p := range parts {
		t, err := url.PathUnescape(p)
		if err != nil {
			return nil, nil, bad("path", "%v", err)
		}
		parts[i] = t
	}
	var best *route
	words := -1
	var methods []string
	for i := range s.routes {
		r := &s.routes[i]
		n := r.fit(parts)
		if n < 0 || r.outside == rooted {
			continue
		}
		if r.method != method {
			if !slices.Contains(methods, r.method) {
				methods = append(methods, r.method)
			}
			continue
		}
		if n > words {
			best, words = r, n
		}
	}
	if best == nil {
		if len(methods) > 0 {
			slices.Sort(methods)
			list := strings.Join(methods, ", ")
			return nil, nil, &Error{Status: http.StatusMethodNotAllowed, Reason: "this cannot be done here: want " +
				list, Field: list}
		}
		return nil, nil, refuse(http.StatusNotFound, "there is nothing here: /openapi.json says what there is")
	}
	args := map[string]string{}
	for i, p := range best.parts {
		if p[0] == '{' {
			args[p[1:len(p)-1]] = parts[i]
		}
	}
	return best, args, nil
}

// fit is how many words of a path are the route's own; -1 if it is another path.
func (r *route) fit(parts []string) (words int) {
	if len(parts) != len(r.parts) {
		return -1
	}
	for i, p := range r.parts {
		switch {
		case p[0] == '{':
			if parts[i] == "" {
				return -1
			}
		case p != parts[i]:
			return -1
		default:
			words++
		}
	}
	return words
}
