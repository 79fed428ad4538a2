package ufm

import (
	"net/http"
	"strings"
)

// Guard lets those through to another handler of the same server, such as a page, who may use this interface: everybody
// while it is open, then whoever has a client certificate, a session, a token or a user's password, in this order. A
// browser is asked for the latter.
func (s *Server) Guard(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		err := s.fromBrowser(r)
		if err == nil {
			_, err = s.admit(w, r, schemeOf(r))
		}
		if err == nil {
			h.ServeHTTP(w, r)
			return
		}
		if err.Status == http.StatusUnauthorized {
			w.Header().Set("WWW-Authenticate", `Basic realm="softib", charset="UTF-8"`)
		}
		writeError(w, err)
	})
}

// schemeOf is how a request says who it is from: with a cookie, with a token or, as a browser does, with a password.
func schemeOf(r *http.Request) scheme {
	if _, err := r.Cookie(cookieName); err == nil && r.Header.Get("Authorization") == "" {
		return sessionAuth
	}
	if _, _, ok := r.BasicAuth(); !ok && tokenOf(r) != "" && !strings.Contains(tokenOf(r), ":") {
		return tokenAuth
	}
	return basicAuth
}
