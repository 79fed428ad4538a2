package ufm

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"softib/internal/race"
	"softib/subnet/policy"
)

func TestMain(m *testing.M) {
	if race.Enabled { // which makes the hash ten times the work, and has nothing to find in it
		passwordRounds = 10_000
	}
	os.Exit(m.Run())
}

// clock is a time that tests set.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// ann is a user with a password that takes little work, so that tests take little time.
func ann(t testing.TB, dir string) *Credentials {
	t.Helper()
	c, err := OpenCredentials(dir)
	if err != nil {
		t.Fatal(err)
	}
	p := password{rounds: 1000, salt: []byte("salt of a test.."), hash: nil}
	if p.hash, err = p.of("a long password"); err != nil {
		t.Fatal(err)
	}
	if err := c.change(func() { c.users["ann"] = p }); err != nil {
		t.Fatal(err)
	}
	return c
}

func basic(user, secret string) []string {
	r, _ := http.NewRequest("GET", "/", nil)
	r.SetBasicAuth(user, secret)
	return []string{"Authorization", r.Header.Get("Authorization")}
}

func TestClosed(t *testing.T) {
	p := newPlace(t, "star:3", policy.Partitions{}, func(c *Config) { c.Credentials = ann(t, t.TempDir()) })
	good := basic("ann", "a long password")
	for _, root := range []string{"/ufmRest", "/ufmRestV2", "/ufmRestV3"} {
		if r := p.want(401, "GET", root+"/app/ufm_version",
			nil); (r.header.Get("WWW-Authenticate") != "") != (root == "/ufmRest") {
			t.Errorf("%s: %v", root, r.header)
		}
		p.want(401, "DELETE", root+"/resources/pkeys/0x1", nil)
		p.want(401, "GET", root+"/no/such/thing", nil)
	}
	p.want(200, "GET", "/openapi.json", nil)
	p.want(200, "GET", "/ufmRest/app/ufm_version", nil, good...)
	p.want(401, "GET", "/ufmRestV2/app/ufm_version", nil, good...)
	p.want(401, "GET", "/ufmRestV3/app/ufm_version", nil, good...)
	p.want(401, "GET", "/ufmRest/app/ufm_version", nil, basic("ann", "another password")...)
	p.want(401, "GET", "/ufmRest/app/ufm_version", nil, basic("bob", "a long password")...)
	p.want(401, "GET", "/ufmRest/app/ufm_version", nil, "Authorization", "Basic !!!")
	p.want(401, "GET", "/ufmRest/app/ufm_version", nil, "Authorization", "")

	// A token of a user's, under V3 and nowhere else, until it is revoked.
	tok := into[tokenShape](t, p.want(200, "POST", "/ufmRest/app/tokens", nil, good...))
	if tok.User != "ann" || tok.ExpiresIn != 315360000 || len(tok.Token) != 43 {
		t.Errorf("token %+v", tok)
	}
	token := []string{"Authorization", "Basic " + tok.Token}
	p.want(200, "GET", "/ufmRestV3/app/ufm_version", nil, token...)
	p.want(200, "GET", "/ufmRestV3/app/ufm_version", nil, "Authorization", "Bearer "+tok.Token)
	p.want(401, "GET", "/ufmRestV3/app/ufm_version", nil, "Authorization", "Digest "+tok.Token)
	p.want(401, "GET", "/ufmRest/app/ufm_version", nil, token...)
	p.want(401, "GET", "/ufmRestV3/app/ufm_version", nil, "Authorization", "Basic "+tok.ID)
	p.want(401, "GET", "/ufmRestV3/app/ufm_version", nil, "Authorization", "Basic "+tok.Token[:42])
	list := into[[]tokenShape](t, p.want(200, "GET", "/ufmRestV3/app/tokens", nil, token...))
	if len(list) != 1 || list[0].ID != tok.ID || strings.Contains(list[0].Token, tok.Token[tokenShown:]) {
		t.Errorf("tokens %+v", list)
	}
	var form bytes.Buffer
	w := multipart.NewWriter(&form)
	w.WriteField("token", tok.Token)
	w.Close()
	p.want(200, "POST", "/ufmRest/app/tokens/revoke", form.String(),
		append(good, "Content-Type", w.FormDataContentType())...)
	p.want(404, "POST", "/ufmRest/app/tokens/revoke", `{"token":"`+tok.Token+`"}`, good...)
	p.want(401, "GET", "/ufmRestV3/app/ufm_version", nil, token...)
	second := into[tokenShape](t, p.want(200, "POST", "/ufmRest/app/tokens", nil, good...))
	p.want(200, "DELETE", "/ufmRest/app/tokens/"+second.ID, nil, good...)
	p.want(404, "DELETE", "/ufmRest/app/tokens/"+second.ID, nil, good...)
}

func TestSession(t *testing.T) {
	c := &clock{now: time.Now()}
	p := newPlace(t, "star:3", policy.Partitions{}, func(cfg *Config) { cfg.Credentials, cfg.Now = ann(t, ""), c.Now })
	login := func(want int, user, secret string) string {
		t.Helper()
		form := url.Values{"httpd_username": {user}, "httpd_password": {secret}}.Encode()
		r := p.want(want, "POST", "/dologin", form, "Content-Type", "application/x-www-form-urlencoded")
		k := (&http.Response{Header: r.header}).Cookies()
		if want != 200 {
			if len(k) != 0 {
				t.Errorf("a cookie for a wrong password: %v", k)
			}
			return ""
		}
		if len(k) != 1 || !k[0].HttpOnly || k[0].SameSite != http.SameSiteStrictMode {
			t.Fatalf("cookies %v", k)
		}
		return k[0].Name + "=" + k[0].Value
	}
	login(401, "ann", "wrong password")
	login(400, "", "")
	cookie := login(200, "ann", "a long password")
	p.want(200, "GET", "/ufmRestV2/resources/systems", nil, "Cookie", cookie)
	p.want(401, "GET", "/ufmRest/resources/systems", nil, "Cookie", cookie)
	p.want(401, "GET", "/ufmRestV2/resources/systems", nil, "Cookie", cookie+"x")
	p.want(403, "POST", "/ufmRestV2/app/tokens", nil, "Cookie", cookie, "Sec-Fetch-Site", "cross-site")
	p.want(403, "POST", "/ufmRestV2/app/tokens", nil, "Cookie", cookie, "Origin", "https://evil.example")
	p.want(200, "POST", "/ufmRestV2/app/tokens", nil, "Cookie", cookie)
	c.pass(sessionIdle - time.Second)
	p.want(200, "GET", "/ufmRestV2/app/ufm_version", nil, "Cookie", cookie)
	c.pass(sessionIdle + time.Second)
	p.want(401, "GET", "/ufmRestV2/app/ufm_version", nil, "Cookie", cookie)
	cookie = login(200, "ann", "a long password")
	p.want(200, "POST", "/logout", nil, "Cookie", cookie)
	p.want(401, "GET", "/ufmRestV2/app/ufm_version", nil, "Cookie", cookie)
}

// TestGuessing: who shows wrong tokens is slowed down, and who knows is not, whatever it knows.
func TestGuessing(t *testing.T) {
	c := &clock{now: time.Now()}
	p := newPlace(t, "star:3", policy.Partitions{}, func(cfg *Config) { cfg.Credentials, cfg.Now = ann(t, ""), c.Now })
	good := basic("ann", "a long password")
	p.want(200, "GET", "/ufmRest/app/ufm_version", nil, good...)
	tok := into[tokenShape](t, p.want(200, "POST", "/ufmRest/app/tokens", nil, good...)).Token
	statuses := map[int]int{}
	wrong := func() reply {
		return p.do("GET", "/ufmRestV3/app/ufm_version", nil, "Authorization", "Basic "+newSecret())
	}
	for range 1000 {
		statuses[wrong().status]++
	}
	if statuses[401] != failuresFree+1 || statuses[429] != 1000-failuresFree-1 {
		t.Errorf("a thousand wrong tokens: %v", statuses)
	}
	if r := wrong(); r.status != 429 || r.header.Get("Retry-After") == "" {
		t.Errorf("%d, and no Retry-After: %v", r.status, r.header)
	}
	p.want(200, "GET", "/ufmRestV3/app/ufm_version", nil, "Authorization", "Basic "+tok)
	p.want(200, "GET", "/ufmRest/app/ufm_version", nil, good...)
	p.want(401, "GET", "/ufmRest/app/ufm_version", nil, basic("ann", "guess")...)
	for i, wait := range []time.Duration{failureWait, 2 * failureWait, 4 * failureWait} {
		c.pass(wait - time.Millisecond)
		if r := wrong(); r.status != 429 {
			t.Errorf("before wait %d is over: status %d", i, r.status)
		}
		c.pass(2 * time.Millisecond)
		if r := wrong(); r.status != 401 {
			t.Errorf("after wait %d: status %d", i, r.status)
		}
	}
	c.pass(failureMemory + failureWaitMax)
	for range 2 {
		if r := wrong(); r.status != 401 {
			t.Errorf("a while later: status %d", r.status)
		}
	}
	if d := (failures{count: 60}).pause(); d != failureWaitMax {
		t.Errorf("the longest wait is %v", d)
	}
}

// TestOpen: on a loopback address everything works at once, but not for pages of other sites, and only until there is a
// user.
func TestOpen(t *testing.T) {
	dir := t.TempDir()
	creds, err := OpenCredentials(dir)
	if err != nil {
		t.Fatal(err)
	}
	p := newPlace(t, "star:3", policy.Partitions{}, func(c *Config) { c.Credentials = creds })
	for _, head := range [][]string{nil, basic("admin", "123456"), {"Authorization", "Basic whatever"},
		{"Authorization", ""}} {
		for _, root := range []string{"/ufmRest", "/ufmRestV2", "/ufmRestV3"} {
			p.want(200, "GET", root+"/app/ufm_version", nil, head...)
		}
	}
	p.want(200, "POST", "/dologin", "httpd_username=x&httpd_password=y", "Content-Type",
		"application/x-www-form-urlencoded")
	r := httptest.NewRequest("GET", "http://rebound.example/ufmRest/app/ufm_version", nil)
	w := httptest.NewRecorder()
	p.s.ServeHTTP(w, r)
	if w.Code != 403 {
		t.Errorf("a name that somebody's DNS gave this address: %d", w.Code)
	}
	for _, host := range []string{"localhost", "localhost:8080", "127.0.0.1", "127.0.0.2:1", "[::1]:8080",
		"fabric.localhost"} {
		if !isLoopbackHost(host) {
			t.Errorf("%s is not this machine", host)
		}
	}
	p.want(403, "POST", "/ufmRest/resources/pkeys/add", `{"pkey":"0x5"}`, "Origin", "http://evil.example")
	if _, ok := p.book.ByKey(5); ok {
		t.Error("a page of another site has made a partition")
	}
	// Another process makes the first user.
	ann(t, dir)
	p.want(401, "GET", "/ufmRest/app/ufm_version", nil)
	p.want(200, "GET", "/ufmRest/app/ufm_version", nil, basic("ann", "a long password")...)
	p.serve(func(c *Config) { c.Loopback = false })
	p.want(401, "GET", "/ufmRest/app/ufm_version", nil)
}

// TestTakenAway: a user that another process takes away, or gives another password, is out at once, with sessions and
// tokens, also where the server is for all the world.
func TestTakenAway(t *testing.T) {
	for _, loopback := range []bool{true, false} {
		dir := t.TempDir()
		p := newPlace(t, "star:3", policy.Partitions{},
			func(c *Config) { c.Credentials, c.Loopback = ann(t, dir), loopback })
		other, err := OpenCredentials(dir) // of another process
		if err != nil {
			t.Fatal(err)
		}
		quick := func(name, secret string) { // SetUser with little work
			t.Helper()
			x := password{rounds: 1000, salt: []byte("another salt....")}
			if x.hash, err = x.of(secret); err == nil {
				err = other.change(func() { other.users[name] = x })
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		quick("bob", "bobs password")
		good := basic("bob", "bobs password")
		enter := func() (token, cookie []string) {
			t.Helper()
			tok := into[tokenShape](t, p.want(200, "POST", "/ufmRest/app/tokens", nil, good...)).Token
			r := p.want(200, "POST", "/dologin", "httpd_username=bob&httpd_password="+url.QueryEscape("bobs password"),
				"Content-Type", "application/x-www-form-urlencoded")
			k := (&http.Response{Header: r.header}).Cookies()
			return []string{"Authorization", "Basic " + tok}, []string{"Cookie", k[0].Name + "=" + k[0].Value}
		}
		token, cookie := enter()
		p.want(200, "GET", "/ufmRestV3/app/ufm_version", nil, token...)
		p.want(200, "GET", "/ufmRestV2/app/ufm_version", nil, cookie...)

		quick("bob", "quite another one")
		p.want(401, "GET", "/ufmRest/app/ufm_version", nil, good...)
		p.want(401, "GET", "/ufmRestV2/app/ufm_version", nil, cookie...)
		p.want(200, "GET", "/ufmRestV3/app/ufm_version", nil, token...) // is revoked by itself

		quick("bob", "bobs password")
		_, cookie = enter()
		if err := other.RemoveUser("bob"); err != nil {
			t.Fatal(err)
		}
		p.want(401, "GET", "/ufmRest/app/ufm_version", nil, good...)
		p.want(401, "GET", "/ufmRestV2/app/ufm_version", nil, cookie...)
		p.want(401, "GET", "/ufmRestV3/app/ufm_version", nil, token...)
		// Nor does the server write them down again, or take them for those of the next bob.
		p.want(200, "POST", "/ufmRest/app/tokens", nil, basic("ann", "a long password")...)
		quick("bob", "of the next bob")
		p.want(401, "GET", "/ufmRestV3/app/ufm_version", nil, token...)
	}
}

// TestFirstUser: what was given out while everybody could have it is worth nothing once there is a user, also under
// that user's name.
func TestFirstUser(t *testing.T) {
	dir := t.TempDir()
	creds, err := OpenCredentials(dir)
	if err != nil {
		t.Fatal(err)
	}
	p := newPlace(t, "star:3", policy.Partitions{}, func(c *Config) { c.Credentials = creds })
	tok := into[tokenShape](t, p.want(200, "POST", "/ufmRest/app/tokens", nil, basic("ann", "whatever")...)).Token
	r := p.want(200, "POST", "/dologin", "httpd_username=ann&httpd_password=x", "Content-Type",
		"application/x-www-form-urlencoded")
	k := (&http.Response{Header: r.header}).Cookies()
	cookie := k[0].Name + "=" + k[0].Value
	p.want(200, "GET", "/ufmRestV3/app/ufm_version", nil, "Authorization", "Basic "+tok)
	p.want(200, "GET", "/ufmRestV2/app/ufm_version", nil, "Cookie", cookie)
	ann(t, dir)
	p.want(401, "GET", "/ufmRestV3/app/ufm_version", nil, "Authorization", "Basic "+tok)
	p.want(401, "GET", "/ufmRestV2/app/ufm_version", nil, "Cookie", cookie)
}

// TestSessionPlaces: who logs in again and again ends sessions of its own, those that are idle for longest, and none of
// others.
func TestSessionPlaces(t *testing.T) {
	if testing.Short() {
		t.Skip("hashes many passwords, one after the other")
	}
	var s sessions
	now := time.Now()
	mark := func(string) string { return "m" }
	bob := s.open("bob", "m", now)
	var ann []string
	for range sessionsMax {
		now = now.Add(time.Millisecond)
		ann = append(ann, s.open("ann", "m", now))
	}
	if _, ok := s.user(bob, now, mark); !ok {
		t.Error("ann has ended bob's session")
	}
	for i, want := range map[int]bool{0: false, len(ann) - sessionsOfUser - 1: false, len(ann) - sessionsOfUser: true,
		len(ann) - 1: true} {
		if _, ok := s.user(ann[i], now, mark); ok != want {
			t.Errorf("session %d of %d is there: %t", i, len(ann), ok)
		}
	}
	for i := range 2 * sessionsMax {
		s.open(fmt.Sprint("user", i), "m", now)
	}
	if n := len(s.list); n > sessionsMax {
		t.Errorf("%d sessions", n)
	}
}

// TestTokenPlaces: what was given out while everybody could have it takes no places once there is a user, and nobody
// takes those of others.
func TestTokenPlaces(t *testing.T) {
	for _, dir := range []string{"", t.TempDir()} {
		creds, err := OpenCredentials(dir)
		if err != nil {
			t.Fatal(err)
		}
		p := newPlace(t, "star:3", policy.Partitions{}, func(c *Config) { c.Credentials = creds })
		most := tokensMax
		if dir != "" {
			most = 2 * tokensUnproven // each is written
		}
		for i := range most {
			if _, err := creds.issue(caller{fmt.Sprint("user", i), unproven}, time.Now()); err != nil {
				t.Fatal(err)
			}
		}
		p.want(200, "POST", "/ufmRest/app/tokens", nil, basic("ann", "whatever")...)
		if n := len(creds.tokens); n != tokensUnproven || creds.tokens[n-1].User != "ann" {
			t.Errorf("%d tokens of an open server are kept, and not the newest", n)
		}
		user := func(name string) []string {
			t.Helper()
			x := password{rounds: 1000, salt: []byte("another salt....")}
			if x.hash, err = x.of("a long password"); err == nil {
				err = creds.change(func() { creds.users[name] = x })
			}
			if err != nil {
				t.Fatal(err)
			}
			return basic(name, "a long password")
		}
		ann, bob := user("ann"), user("bob")
		if n := len(creds.tokens); n != 0 {
			t.Errorf("%d tokens outlast the first user", n)
		}
		if again, err := OpenCredentials(dir); err != nil || len(again.tokens) != 0 {
			t.Errorf("%d tokens outlast the first user in the file, %v", len(again.tokens), err)
		}
		if _, err := creds.issue(caller{"eve", unproven}, time.Now()); err == nil {
			t.Error("one who came while it was open has a token of the closed server")
		}
		for range tokensOfUser {
			p.want(200, "POST", "/ufmRest/app/tokens", nil, ann...)
		}
		wants := p.want(409, "POST", "/ufmRest/app/tokens", nil, ann...).body
		if !strings.Contains(wants, "revoke") {
			t.Errorf("what to do next is not said: %s", wants)
		}
		p.want(200, "POST", "/ufmRest/app/tokens", nil, bob...)
		p.want(200, "DELETE", "/ufmRest/app/tokens/"+creds.tokens[0].ID, nil, ann...)
		p.want(200, "POST", "/ufmRest/app/tokens", nil, ann...)
	}
}

func TestCredentials(t *testing.T) {
	dir := t.TempDir()
	c, err := OpenCredentials(dir)
	if err != nil {
		t.Fatal(err)
	}
	if c.Any() {
		t.Error("a user without any")
	}
	for _, bad := range [][2]string{{"", "a long password"}, {"a:b", "a long password"}, {"a b", "a long password"},
		{"#a", "a long password"}, {"ann", "short"}, {"ann", strings.Repeat("x", 2000)}} {
		if err := c.SetUser(bad[0], bad[1]); !errors.Is(err, ErrCredentials) {
			t.Errorf("SetUser(%.20q, %.20q): %v", bad[0], bad[1], err)
		}
	}
	if err := c.SetUser("ann", "a long password"); err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	tok, err := c.issue(caller{"ann", byPassword}, now)
	if err != nil {
		t.Fatal(err)
	}
	// What is on disk says nothing that would let anybody in.
	for _, name := range []string{usersFile, tokensFile} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || bytes.Contains(text, []byte("a long password")) || bytes.Contains(text, []byte(tok.Token)) {
			t.Errorf("%s: %v, %s", name, err, text)
		}
		if i, _ := os.Stat(filepath.Join(dir, name)); i.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v", name, i.Mode())
		}
	}
	again, err := OpenCredentials(dir)
	if err != nil {
		t.Fatal(err)
	}
	here := sourceAt("127.0.0.1:1")
	if !again.verify(here, "ann", "a long password", now) || again.verify(here, "ann", "a long passwore", now) ||
		again.verify(here, "bob", "a long password", now) {
		t.Error("passwords after they were read again")
	}
	if !again.known(here, "ann", "a long password", now) ||
		again.known(here, "ann", "a long password", now.Add(provenFor)) || again.known(here, "ann", "x", now) {
		t.Error("passwords that were right a moment ago")
	}
	if u, ok := again.tokenUser(tok.Token, now); !ok || u != (caller{"ann", byPassword}) {
		t.Errorf("the token is %v's, %t", u, ok)
	}
	if _, ok := again.tokenUser(tok.Token, now.Add(tokenLife+time.Hour)); ok {
		t.Error("a token does not expire")
	}
	if err := again.revoke("bob", tok.Token); err == nil {
		t.Error("bob has revoked ann's token")
	}
	if err := again.RemoveUser("ann"); err != nil {
		t.Fatal(err)
	}
	if _, ok := again.tokenUser(tok.Token, now); ok || again.known(here, "ann", "a long password", now) ||
		len(again.Users()) != 0 {
		t.Error("ann is gone, and what she had is not")
	}
	if err := again.RemoveUser("ann"); !errors.Is(err, ErrCredentials) {
		t.Errorf("removed twice: %v", err)
	}
	// Damaged files are errors that say what to do.
	for _, name := range []string{usersFile, tokensFile} {
		d := t.TempDir()
		os.WriteFile(filepath.Join(d, name), []byte("ann:what"), 0o600)
		if _, err := OpenCredentials(d); !errors.Is(err, ErrCredentials) || !strings.Contains(err.Error(), name) {
			t.Errorf("a damaged %s: %v", name, err)
		}
	}
}

func TestCheckListen(t *testing.T) {
	for _, c := range []struct {
		addr      string
		tls, cred bool
		ok        bool
	}{
		{"127.0.0.1:8080", false, false, true}, {"localhost:0", false, false, true}, {"[::1]:1", false, false, true},
		{"127.9.9.9:1", false, false, true}, {"[::ffff:127.0.0.1]:1", false, false, true},
		{":8080", false, false, false}, {"0.0.0.0:80", true, false, false}, {"0.0.0.0:80", false, true, false},
		{"0.0.0.0:80", true, true, true}, {"[::]:80", false, false, false}, {"10.0.0.1:80", false, false, false},
		{"host.example:80", false, false, false}, {"host.example:80", true, true, true},
		{"localhost.evil.example:80", false, false, false}, {"", false, false, false},
	} {
		err := CheckListen(c.addr, c.tls, c.cred)
		if (err == nil) != c.ok || err != nil && !errors.Is(err, ErrListen) {
			t.Errorf("%+v: %v", c, err)
		}
	}
	if err := CheckListen("0.0.0.0:80", true, false); strings.Contains(err.Error(), "TLS") ||
		!strings.Contains(err.Error(), "credential") {
		t.Errorf("what is missing is a credential: %v", err)
	}
}

// authority makes certificates.
type authority struct {
	t    testing.TB
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func (a *authority) make(name string, ca bool) (certPEM, keyPEM []byte) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), DNSNames: []string{"localhost"},
		IsCA: ca, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}}
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = c, key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, signer)
	if err != nil {
		a.t.Fatal(err)
	}
	if a.cert == nil {
		a.cert, _ = x509.ParseCertificate(der)
		a.key = key
	}
	k, _ := x509.MarshalPKCS8PrivateKey(key)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: k})
}

// TestCertificates: a client certificate of the CA's is as good as a password, and another's is not.
func TestCertificates(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, text []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	ca := &authority{t: t}
	caPEM, _ := ca.make("the CA", true)
	other := &authority{t: t}
	other.make("another CA", true)
	serverCert, serverKey := ca.make("localhost", false)
	conf, err := TLSConfig(write("cert", serverCert), write("key", serverKey), write("ca", caPEM))
	if err != nil {
		t.Fatal(err)
	}
	p := newPlace(t, "star:3", policy.Partitions{}, func(c *Config) { c.ClientCerts = true })
	p.http = httptest.NewUnstartedServer(p.s)
	p.http.TLS = conf
	p.http.StartTLS()
	t.Cleanup(p.http.Close)
	call := func(a *authority, name string) (int, error) {
		c := &tls.Config{RootCAs: x509.NewCertPool(), ServerName: "localhost"}
		c.RootCAs.AppendCertsFromPEM(caPEM)
		if a != nil {
			pair, err := tls.X509KeyPair(a.make(name, false))
			if err != nil {
				t.Fatal(err)
			}
			// whatever CAs the server names
			c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
		}
		tr := &http.Transport{TLSClientConfig: c}
		defer tr.CloseIdleConnections()
		req, _ := http.NewRequestWithContext(t.Context(), "POST", p.http.URL+"/ufmRest/app/tokens", nil)
		req.Header.Set("Authorization", "") // infra-controller sends an empty one along
		resp, err := (&http.Client{Transport: tr}).Do(req)
		if err != nil {
			return 0, err
		}
		defer resp.Body.Close()
		return resp.StatusCode, nil
	}
	if status, err := call(ca, "carol"); err != nil || status != 200 {
		t.Errorf("a certificate of the CA's: %d, %v", status, err)
	}
	if got := p.s.cfg.Credentials.tokensOf("carol"); len(got) != 1 {
		t.Errorf("carol's tokens: %v", got)
	}
	if status, err := call(nil, ""); err != nil || status != 401 {
		t.Errorf("no certificate: %d, %v", status, err)
	}
	if status, err := call(other, "carol"); err == nil {
		t.Errorf("a certificate of another CA: %d", status)
	}
	for _, bad := range [][3]string{{"no", "no", ""}, {write("c", serverCert), write("k", serverKey), "no"},
		{write("c", serverCert), write("k", serverKey), write("empty", nil)}} {
		if _, err := TLSConfig(bad[0], bad[1], bad[2]); err == nil {
			t.Errorf("TLSConfig(%v) finds nothing wrong", bad)
		}
	}
}
