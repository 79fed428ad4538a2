package etcd

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
)

// DefaultPort is etcd's.
const DefaultPort = 2379

// ErrURL is matched by all that is wrong with a URL.
var ErrURL = errors.New("not a URL of etcd")

// URL is where a fabric's control plane is: etcd://HOST[:PORT][,HOST[:PORT]…]/PREFIX, or etcds:// with TLS. The
// prefix keeps fabrics that share an etcd apart.
type URL struct {
	TLS       bool
	Endpoints []string // host:port
	Prefix    string   // without slashes around it
	// CA, Cert and Key are files in PEM; without CA the system's authorities are believed.
	CA, Cert, Key string
}

// Error is something that a person has to do something about.
type Error struct {
	err  error
	next string
}

func (e *Error) Error() string { return e.err.Error() }
func (e *Error) Unwrap() error { return e.err }

// Next is what to do.
func (e *Error) Next() string { return e.next }

func fail(next, format string, args ...any) error { return &Error{fmt.Errorf(format, args...), next} }

const urlNext = "name it as etcd://HOST:2379/FABRIC, or with TLS etcds://HOST:2379/FABRIC?ca=FILE&cert=FILE&key=FILE"

// ParseURL reads a URL.
func ParseURL(s string) (u URL, err error) {
	bad := func(format string, args ...any) (URL, error) {
		return URL{}, fail(urlNext, "etcd: %q: %w: %s", s, ErrURL, fmt.Sprintf(format, args...))
	}
	scheme, rest, ok := strings.Cut(s, "://")
	switch {
	case ok && scheme == "etcds":
		u.TLS = true
	case !ok || scheme != "etcd":
		return bad("want etcd:// or etcds:// in front")
	}
	rest, query, hasQuery := strings.Cut(rest, "?")
	hosts, prefix, _ := strings.Cut(rest, "/")
	for h := range strings.SplitSeq(hosts, ",") {
		end, err := endpoint(h)
		if err != nil {
			return bad("%v", err)
		}
		u.Endpoints = append(u.Endpoints, end)
	}
	if u.Prefix = strings.Trim(prefix, "/"); u.Prefix == "" {
		return bad("it names no fabric: want one behind the hosts, as in etcd://%s/lab", hosts)
	}
	for part := range strings.SplitSeq(u.Prefix, "/") {
		if part == "" || len(part) > 64 || strings.ContainsFunc(part, func(r rune) bool {
			return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') &&
				!strings.ContainsRune("-._", r)
		}) {
			return bad("fabric %q: want letters, digits, dots, underscores and hyphens", part)
		}
	}
	if !hasQuery {
		return u, nil
	}
	values, err := url.ParseQuery(query)
	if err != nil {
		return bad("%v", err)
	}
	for _, o := range []struct {
		name string
		to   *string
	}{{"ca", &u.CA}, {"cert", &u.Cert}, {"key", &u.Key}} {
		if list := values[o.name]; len(list) == 1 && list[0] != "" {
			*o.to = list[0]
			delete(values, o.name)
		}
	}
	switch {
	case len(values) > 0:
		return bad("want ca=, cert= and key= behind the ?, each once")
	case !u.TLS && u.CA+u.Cert+u.Key != "":
		return bad("certificates are for etcds://")
	case (u.Cert == "") != (u.Key == ""):
		return bad("want cert= and key= together")
	}
	return u, nil
}

// endpoint is a host with its port.
func endpoint(s string) (string, error) {
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		host, port = strings.TrimSuffix(strings.TrimPrefix(s, "["), "]"), strconv.Itoa(DefaultPort)
	}
	n, err := strconv.Atoi(port)
	if host == "" || strings.ContainsAny(host, " \t\r\n@/?#[]%\\\"'<>") || err != nil || n < 1 || n > 65535 ||
		strings.Contains(host, ":") && net.ParseIP(host) == nil {
		return "", fmt.Errorf("host %q: want HOST or HOST:PORT", s)
	}
	return net.JoinHostPort(host, strconv.Itoa(n)), nil
}

// String is the URL as ParseURL reads it.
func (u URL) String() string {
	s := "etcd"
	if u.TLS {
		s = "etcds"
	}
	s += "://" + strings.Join(u.Endpoints, ",") + "/" + u.Prefix
	q := url.Values{}
	for k, v := range map[string]string{"ca": u.CA, "cert": u.Cert, "key": u.Key} {
		if v != "" {
			q.Set(k, v)
		}
	}
	if len(q) > 0 {
		s += "?" + q.Encode()
	}
	return s
}
