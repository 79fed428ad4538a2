package ufm

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"softib/operate/manager/tenant"
	"softib/proto/ib"
	"softib/proto/mad"
)

// bodyMax is how long a body may be: the GUIDs of the largest subnet there can be fit in.
const bodyMax = 1 << 20

// body is the object of a request. Members that nobody asks for are passed over, because clients send more than the
// interface has; the first that is asked for and cannot be is the error.
type body struct {
	fields map[string]json.RawMessage
	err    *Error
}

// readBody reads the object of a request. No body at all is an empty object.
func readBody(w http.ResponseWriter, r *http.Request) *body {
	b := &body{}
	if r.ContentLength > bodyMax {
		w.Header().Set("Connection", "close") // what is on its way is not worth reading
		b.err = refuse(http.StatusRequestEntityTooLarge, "the body has %d bytes: want at most %d", r.ContentLength,
			bodyMax)
		return b
	}
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, bodyMax))
	if err != nil {
		var big *http.MaxBytesError
		if errors.As(err, &big) {
			b.err = refuse(http.StatusRequestEntityTooLarge, "the body is too long: want at most %d bytes", bodyMax)
		} else {
			b.err = refuse(http.StatusBadRequest, "the body ends early: %v", err)
		}
		return b
	}
	if form := formOf(r, text); form != nil {
		b.fields = form
		return b
	}
	if text = bytes.TrimSpace(text); len(text) == 0 {
		return b
	}
	d := json.NewDecoder(bytes.NewReader(text))
	if err := d.Decode(&b.fields); err != nil {
		b.err = refuse(http.StatusBadRequest, "the body is no JSON object: %v", err)
	} else if _, err := d.Token(); err != io.EOF {
		b.err = refuse(http.StatusBadRequest, "the body goes on after its JSON object")
	}
	return b
}

// formOf reads the bodies of HTML forms, which UFM takes where people log in and revoke tokens; nil if it is none.
func formOf(r *http.Request, text []byte) map[string]json.RawMessage {
	kind, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil {
		return nil
	}
	var values url.Values
	switch kind {
	case "application/x-www-form-urlencoded":
		if values, err = url.ParseQuery(string(text)); err != nil ||
			bytes.HasPrefix(bytes.TrimSpace(text), []byte("{")) {
			return nil // curl -d sends JSON as a form if nobody tells it otherwise
		}
	case "multipart/form-data":
		if values = readMultipart(text, params["boundary"]); values == nil {
			return nil
		}
	default:
		return nil
	}
	out := make(map[string]json.RawMessage, len(values))
	for k, v := range values {
		if len(v) > 0 {
			out[k], _ = json.Marshal(v[0])
		}
	}
	return out
}

// has reports whether a member is there, and not null.
func (b *body) has(name string) bool {
	v, ok := b.fields[name]
	return ok && !bytes.Equal(bytes.TrimSpace(v), []byte("null"))
}

func (b *body) fail(e *Error) {
	if b.err == nil {
		b.err = e
	}
}

// text is a string; the default if there is none.
func (b *body) text(name, otherwise string) string {
	if b.err != nil || !b.has(name) {
		return otherwise
	}
	var s string
	if err := json.Unmarshal(b.fields[name], &s); err != nil {
		b.fail(bad(name, "%s: want a string", shown(b.fields[name])))
	}
	return s
}

// flag is a boolean. The SLURM plugin sends what stands in its configuration file, so "True" is true.
func (b *body) flag(name string, otherwise bool) bool {
	if b.err != nil || !b.has(name) {
		return otherwise
	}
	var v bool
	if json.Unmarshal(b.fields[name], &v) == nil {
		return v
	}
	var s string
	if json.Unmarshal(b.fields[name], &s) == nil {
		if v, ok := parseFlag(s); ok {
			return v
		}
	}
	b.fail(bad(name, "%s: want true or false", shown(b.fields[name])))
	return otherwise
}

// number is a number within bounds, whole or not.
func (b *body) number(name string, whole bool) float64 {
	if b.err != nil {
		return 0
	}
	var v float64
	if err := json.Unmarshal(b.fields[name], &v); err != nil || whole && v != math.Trunc(v) {
		want := "a number"
		if whole {
			want = "a whole number"
		}
		b.fail(bad(name, "%s: want %s", shown(b.fields[name]), want))
	}
	return v
}

// list is strings; a single one that has commas is as good, because hosts_names is one in some versions and the other
// in others.
func (b *body) list(name string) (list []string) {
	if b.err != nil || !b.has(name) {
		return nil
	}
	if json.Unmarshal(b.fields[name], &list) == nil {
		return list
	}
	b.fail(bad(name, "%s: want an array of strings", shown(b.fields[name])))
	return nil
}

// shown is a value as an error quotes it.
func shown(v json.RawMessage) string {
	const most = 40
	if len(v) > most {
		return strings.ToValidUTF8(string(v[:most]), "") + "…"
	}
	return string(v)
}

// key is the partition key of a body: a string, or a number.
func (b *body) key(name string) ib.PKey {
	if b.err != nil {
		return 0
	}
	if !b.has(name) {
		b.fail(bad(name, "missing: want a partition key such as \"0x12\""))
		return 0
	}
	var s string
	if json.Unmarshal(b.fields[name], &s) != nil {
		s = string(bytes.TrimSpace(b.fields[name]))
	}
	k, err := parseKey(name, s)
	if err != nil {
		b.fail(err)
	}
	return k
}

// parseKey reads a partition key in hexadecimal with 0x, or in decimal, and takes the membership bit off.
func parseKey(field, s string) (ib.PKey, *Error) {
	t := strings.ToLower(strings.TrimSpace(s))
	base := 10
	if rest, ok := strings.CutPrefix(t, "0x"); ok {
		t, base = rest, 16
	}
	v, err := strconv.ParseUint(t, base, 16)
	k := ib.PKey(v).Base()
	if err != nil || k == 0 {
		return 0, bad(field, "%q: want a partition key from 0x1 to 0x7fff, in hexadecimal or decimal", clip(s))
	}
	return k, nil
}

// keyText is a key as UFM writes it.
func keyText(k ib.PKey) string { return fmt.Sprintf("0x%x", uint16(k.Base())) }

// parseGUID reads 16 hexadecimal digits, with or without 0x.
func parseGUID(field, s string) (ib.GUID, *Error) {
	t := strings.TrimPrefix(strings.ToLower(strings.TrimSpace(s)), "0x")
	v, err := strconv.ParseUint(t, 16, 64)
	if err != nil || len(t) != 16 {
		return 0, bad(field, "%q: want a GUID of 16 hexadecimal digits", clip(s))
	}
	if g := ib.GUID(v); g == 0 || g == ^ib.GUID(0) {
		return 0, bad(field, "%q: no port has this GUID", clip(s))
	}
	return ib.GUID(v), nil
}

// guidText is a GUID as UFM writes it.
func guidText(g ib.GUID) string { return fmt.Sprintf("%016x", uint64(g)) }

// guids reads all GUIDs of a list, each once.
func guids(field string, list []string) ([]ib.GUID, *Error) {
	if len(list) > tenant.MembersMax {
		return nil, bad(field, "%d GUIDs: want at most %d", len(list), tenant.MembersMax)
	}
	out := make([]ib.GUID, 0, len(list))
	seen := make(map[ib.GUID]bool, len(list))
	for _, s := range list {
		g, err := parseGUID(field, s)
		if err != nil {
			return nil, err
		}
		if !seen[g] {
			seen[g] = true
			out = append(out, g)
		}
	}
	return out, nil
}

// clip shortens what a caller sent to what an error quotes.
func clip(s string) string {
	const most = 64
	if len(s) > most {
		return strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}

func parseFlag(s string) (value, ok bool) {
	switch strings.ToLower(strings.TrimSpace(s)) {
	case "true", "1", "yes":
		return true, true
	case "false", "0", "no":
		return false, true
	}
	return false, false
}

// parseMembership reads "full" or "limited".
func parseMembership(field, s string) (full bool, err *Error) {
	switch strings.ToLower(s) {
	case "full":
		return true, nil
	case "limited":
		return false, nil
	}
	return false, bad(field, "%q: want \"full\" or \"limited\"", clip(s))
}

// qos reads mtu_limit (KiB, or bytes), rate_limit (Gb/s) and service_level where they are given, over what is so
// already. all wants each of them.
func (b *body) qos(q *tenant.QoS, all bool) (given bool) {
	for _, f := range []struct {
		name string
		read func()
	}{
		{"mtu_limit", func() {
			v := b.number("mtu_limit", true)
			n := int(v)
			if n <= 4 {
				n *= 1024
			}
			mtu, ok := ib.MTUFromBytes(n)
			if !ok {
				b.fail(bad("mtu_limit", "%v: want 2 or 4 (KiB), or 256, 512, 1024, 2048 or 4096 bytes", v))
			}
			q.MTU = mtu
		}},
		{"rate_limit", func() {
			v := b.number("rate_limit", false)
			if v == 2 { // of callers that have no fractions
				v = 2.5
			}
			rate, ok := mad.RateFromGbps(v)
			if !ok {
				b.fail(bad("rate_limit", "%v: want a rate of the standard in Gb/s: %s", v, tenant.Rates))
			}
			q.Rate = rate
		}},
		{"service_level", func() {
			v := b.number("service_level", true)
			if v < 0 || v >= float64(ib.NumSL) {
				b.fail(bad("service_level", "%v: want 0 to 15", v))
				return
			}
			q.SL, q.HasSL = ib.SL(v), true
		}},
	} {
		switch {
		case b.err != nil:
			return given
		case b.has(f.name):
			given = true
			f.read()
		case all:
			b.fail(bad(f.name, "missing: want mtu_limit, rate_limit and service_level"))
		}
	}
	return given
}

// query is the query part of a URL. As with bodies, what nobody asks for is passed over, and the first value that
// cannot be is the error.
type query struct {
	values url.Values
	err    *Error
}

func queryOf(r *http.Request) *query {
	q := &query{}
	var err error
	if q.values, err = url.ParseQuery(r.URL.RawQuery); err != nil {
		q.err = bad("query", "%v", err)
	}
	return q
}

func (q *query) text(name string) string { return q.values.Get(name) }

func (q *query) flag(name string, otherwise bool) bool {
	s := q.values.Get(name)
	if s == "" || strings.EqualFold(s, "none") { // Python's, where nobody has set it
		return otherwise
	}
	v, ok := parseFlag(s)
	if !ok && q.err == nil {
		q.err = bad(name, "%q: want true or false", clip(s))
	}
	return v
}

func (q *query) number(name string, otherwise, most int) int {
	s := q.values.Get(name)
	if s == "" {
		return otherwise
	}
	v, err := strconv.ParseInt(s, 10, 64)
	if (err != nil || v < 0 || v > int64(most)) && q.err == nil {
		q.err = bad(name, "%q: want a whole number from 0 to %d", clip(s), most)
		return otherwise
	}
	return int(v)
}

// oneOf is a value of a few, in any case; empty if it is not given.
func (q *query) oneOf(name string, values ...string) string {
	s := strings.ToLower(q.values.Get(name))
	if s != "" && !slices.Contains(values, s) && q.err == nil {
		q.err = bad(name, "%q: want %s", clip(s), strings.Join(values, ", "))
	}
	return s
}
