package ufm

import (
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"
)

// scheme is how a root wants callers to say who they are.
type scheme uint8

// Schemes. A client certificate is good under each of them.
const (
	basicAuth scheme = iota
	sessionAuth
	tokenAuth
	noAuth // the document of the interface, and the way in
	numScheme
)

// roots are where the resources are served, and what each wants.
var roots = []struct {
	path string
	scheme
}{
	{"/ufmRest", basicAuth}, {"/ufmRestV2", sessionAuth}, {"/ufmRestV3", tokenAuth},
}

// cookieName is the name of a session's cookie.
const cookieName = "session"

// anonymous is who calls an open server without a name.
const anonymous = "admin"

// open reports whether callers need no credential: on a loopback address, as long as there is none. The first user
// closes it.
func (s *Server) open() bool { return s.cfg.Loopback && !s.cfg.ClientCerts && !s.cfg.Credentials.Any() }

// proof is how a caller showed who it is. Tokens remember it, because they are worth no more than it.
type proof uint8

const (
	unproven      proof = iota // the server was open, and took whoever came
	byPassword                 // good for as long as the user is there
	byCertificate              // users know nothing of these
)

// caller is who calls.
type caller struct {
	name string
	proof
}

// authenticate is who calls.
func (s *Server) authenticate(r *http.Request, how scheme) (who caller, err *Error) {
	if how == noAuth {
		return who, nil
	}
	if s.open() {
		if user, _, ok := r.BasicAuth(); ok && user != "" && how == basicAuth {
			return caller{name: clip(user)}, nil
		}
		return caller{name: anonymous}, nil
	}
	if s.cfg.ClientCerts && r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
		if name := r.TLS.VerifiedChains[0][0].Subject.CommonName; name != "" {
			return caller{name, byCertificate}, nil
		}
		return caller{"certificate", byCertificate}, nil
	}
	s.cfg.Credentials.refresh() // users are made and taken away by another process
	now := s.now()
	switch how {
	case basicAuth:
		name, secret, ok := r.BasicAuth()
		if !ok {
			return who, refuse(http.StatusUnauthorized, "who calls is not known: want a user and a password "+
				"by HTTP basic authentication, or a client certificate")
		}
		return caller{name, byPassword}, s.checkPassword(r, name, secret, now)
	case sessionAuth:
		if c, e := r.Cookie(cookieName); e == nil {
			if name, ok := s.sessions.user(c.Value, now, s.cfg.Credentials.mark); ok {
				return caller{name, byPassword}, nil
			}
		}
		return who, refuse(http.StatusUnauthorized,
			"there is no session: want POST /dologin with httpd_username and httpd_password first, and its cookie here")
	case tokenAuth:
		secret := tokenOf(r)
		if secret == "" {
			return who, refuse(http.StatusUnauthorized, "there is no token: want \"Authorization: Basic TOKEN\" "+
				"with one that POST /ufmRest/app/tokens has given out")
		}
		if who, ok := s.cfg.Credentials.tokenUser(secret, now); ok {
			return who, nil
		}
		if d := s.queue.token(sourceOf(r)); d > 0 {
			return who, tooFast(d, "too many wrong tokens came from this address")
		}
		return who, refuse(http.StatusUnauthorized, "the token is not known: it was revoked, or is another server's")
	}
	return who, refuse(http.StatusUnauthorized, "who calls is not known")
}

// tokenOf is the token in a request's Authorization, under UFM's name for the scheme or the usual one.
func tokenOf(r *http.Request) string {
	kind, secret, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(kind, "Basic") && !strings.EqualFold(kind, "Bearer") {
		return ""
	}
	return strings.TrimSpace(secret)
}

// checkPassword says whether a password is right. One that was right a moment ago from the same source is known without
// work; others wait for their turn.
func (s *Server) checkPassword(r *http.Request, name, secret string, now time.Time) *Error {
	c, from := s.cfg.Credentials, sourceOf(r)
	if s.queue.glance(r.Context(), from, func() bool { return c.known(from, name, secret, now) }) {
		return nil
	}
	t := s.queue.join(from, name)
	select {
	case ours := <-t.ours:
		if !ours {
			return tooFast(failureWaitMax, "too many passwords from this address wait to be looked at")
		}
	case <-r.Context().Done():
		s.queue.quit(t)
		return tooFast(time.Second, "the client left before its password was looked at")
	}
	right := false
	defer func() { s.queue.done(t, right) }()
	if right = c.verify(from, name, secret, s.now()); right {
		return nil
	}
	return refuse(http.StatusUnauthorized, "the user or the password is wrong")
}

func tooFast(d time.Duration, why string) *Error {
	e := refuse(http.StatusTooManyRequests, "%s: wait before the next try", why)
	e.after = d
	return e
}

// fromBrowser refuses what pages of other sites make a browser send here: an open server trusts whoever reaches it, and
// a browser on the same machine does.
func (s *Server) fromBrowser(r *http.Request) *Error {
	if err := s.crossOrigin.Check(r); err != nil {
		return refuse(http.StatusForbidden, "a page of another site sent this")
	}
	if s.open() && !isLoopbackHost(r.Host) {
		return &Error{Status: http.StatusForbidden, Field: "Host",
			Reason: "this server is for its own machine: want localhost or a loopback address as the host's name"}
	}
	return nil
}

// isLoopbackHost reports whether a Host header names this machine to itself. A name that somebody's DNS resolves to a
// loopback address does not.
func isLoopbackHost(host string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	host = strings.ToLower(strings.Trim(host, "[]"))
	if host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return true
	}
	a, err := netip.ParseAddr(host)
	return err == nil && a.Unmap().IsLoopback()
}

// login opens a session. It is what UFM's own page does, and what curl does in UFM's manual.
func (s *Server) login(c *call) error {
	name, secret := c.body.text("httpd_username", ""), c.body.text("httpd_password", "")
	if c.body.err != nil {
		return c.body.err
	}
	if !s.open() {
		s.cfg.Credentials.refresh()
		if name == "" {
			return bad("httpd_username", "missing: want a user's name")
		}
		err := s.checkPassword(c.r, name, secret, s.now())
		timed(c.w, c.r)
		if err != nil {
			return err
		}
	} else if name == "" {
		name = anonymous
	}
	secret = s.sessions.open(clip(name), s.cfg.Credentials.mark(name), s.now())
	http.SetCookie(c.w, &http.Cookie{Name: cookieName, Value: secret, Path: "/", HttpOnly: true, Secure: c.r.TLS != nil,
		SameSite: http.SameSiteStrictMode})
	c.json(map[string]string{"username": clip(name)})
	return nil
}

// logout ends a session.
func (s *Server) logout(c *call) error {
	if k, err := c.r.Cookie(cookieName); err == nil {
		s.sessions.end(k.Value)
	}
	http.SetCookie(c.w, &http.Cookie{Name: cookieName, Path: "/", MaxAge: -1})
	c.json(struct{}{})
	return nil
}

// tokenList, tokenIssue, tokenRevoke and tokenDelete are the access tokens of whoever calls.
func (s *Server) tokenList(c *call) error {
	c.json(s.cfg.Credentials.tokensOf(c.user))
	return nil
}

func (s *Server) tokenIssue(c *call) error {
	t, err := s.cfg.Credentials.issue(caller{c.user, c.proof}, s.now())
	if err != nil {
		return err
	}
	c.json(t)
	return nil
}

func (s *Server) tokenRevoke(c *call) error {
	secret := c.body.text("token", "")
	if c.body.err != nil {
		return c.body.err
	}
	if secret == "" {
		return bad("token", "missing: want the token to revoke")
	}
	return s.revoke(c, secret)
}

func (s *Server) tokenDelete(c *call) error { return s.revoke(c, c.arg("token")) }

func (s *Server) revoke(c *call, secret string) error {
	if err := s.cfg.Credentials.revoke(c.user, secret); err != nil {
		return err
	}
	c.json(struct{}{})
	return nil
}
