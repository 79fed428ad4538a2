package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"softib/internal/patience"
	"softib/internal/race"
	"softib/operate/manager/ufm"
	"softib/operate/status"
	"softib/subnet/sm"
)

// certificate writes a certificate for loopback addresses, and its key.
func certificate(t *testing.T) (cert, key string, pool *x509.CertPool) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "softib test"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, c, c, k.Public(), k)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	pemCert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	if err := errors.Join(os.WriteFile(cert, pemCert, 0o600),
		os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}), 0o600)); err != nil {
		t.Fatal(err)
	}
	pool = x509.NewCertPool()
	pool.AppendCertsFromPEM(pemCert)
	return cert, key, pool
}

// get asks for a path, with a password if there is one, and returns the status and the body.
func get(t *testing.T, c *http.Client, url, user, secret string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if user != "" {
		r.SetBasicAuth(user, secret)
	}
	resp, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

// credentials are those in a folder, as another process sees them.
func credentials(t *testing.T, dir string) *ufm.Credentials {
	t.Helper()
	c, err := ufm.OpenCredentials(dir)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// setUser makes the first user of a folder. Under the race detector, which makes the hash ten times the work, it is of
// fewer rounds.
func setUser(t *testing.T, dir, name, secret string) {
	t.Helper()
	if !race.Enabled {
		if err := credentials(t, dir).SetUser(name, secret); err != nil {
			t.Fatal(err)
		}
		return
	}
	salt, rounds, text := []byte("salt of a test.."), 1000, base64.RawStdEncoding.EncodeToString
	hash, err := pbkdf2.Key(sha256.New, secret, salt, rounds, sha256.Size)
	if err != nil {
		t.Fatal(err)
	}
	line := fmt.Sprintf("%s:pbkdf2-sha256:%d:%s:%s\n", name, rounds, text(salt), text(hash))
	if err := os.WriteFile(filepath.Join(dir, "rest-users"), []byte(line), 0o600); err != nil {
		t.Fatal(err)
	}
}

// What is served, to whom, and where not.
func TestPage(t *testing.T) {
	l := newLab(t, "star:3", &sm.Config{SweepInterval: -1})
	dir := t.TempDir()
	mgr, err := l.manage(place{}, upOptions{state: stateNone})
	if err != nil {
		t.Fatal(err)
	}
	defer mgr.Close()
	serve := func(o httpOptions) string {
		x, err := newWeb(o, true, credentials(t, dir))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(l.servePage(t.Context(), x, mgr, upOptions{}, toTerminal(newTerminal(io.Discard))))
		return x.url
	}
	paths := map[string]string{"": "<!doctype html>", "metrics": "infiniband_switch_port_", "api/v1/topology": "star:3",
		"ufmRest/app/ufm_version": "ufm_release_version", "openapi.json": "openapi"}
	open := serve(httpOptions{addr: "127.0.0.1:0"})
	for path, want := range paths {
		if code, body := get(t, http.DefaultClient, open+path, "", ""); code != 200 || !strings.Contains(body, want) {
			t.Errorf("/%s: %d\n%.200s", path, code, body)
		}
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, open, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Host = "attacker.example"
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode < 400 {
		t.Errorf("a page under another's name was answered with %d", resp.StatusCode)
	}

	// The first user closes the door, also of a server that runs.
	cert, key, pool := certificate(t)
	for _, o := range []httpOptions{{addr: "0.0.0.0:0"}, {addr: "0.0.0.0:0", cert: cert, key: key}, {addr: "[::]:0"}} {
		if x, err := newWeb(o, true, credentials(t, dir)); !errors.Is(err, ufm.ErrListen) {
			t.Errorf("%+v: %v", o, err)
			if err == nil {
				x.l.Close()
			}
		}
	}
	setUser(t, dir, "operator", "correct horse")
	if x, err := newWeb(httpOptions{addr: "0.0.0.0:0"}, true, credentials(t, dir)); !errors.Is(err, ufm.ErrListen) {
		t.Errorf("without TLS: %v", err)
		if err == nil {
			x.l.Close()
		}
	}
	secure := serve(httpOptions{addr: "127.0.0.1:0", cert: cert, key: key})
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}}
	for path, want := range paths {
		for _, url := range []string{open, secure} {
			if path != "openapi.json" {
				if code, _ := get(t, client, url+path, "", ""); code != http.StatusUnauthorized {
					t.Errorf("%s%s without a password: %d", url, path, code)
				}
			}
			if code, body := get(t, client, url+path, "operator", "correct horse"); code != 200 ||
				!strings.Contains(body, want) {
				t.Errorf("%s%s: %d\n%.200s", url, path, code, body)
			}
		}
	}
	if code, _ := get(t, client, secure, "operator", "wrong password"); code != http.StatusUnauthorized {
		t.Errorf("a wrong password: %d", code)
	}
}

// told is what a receiver of alarms was sent: the parts of a webhook's message that say which alarm it is, and where.
type told struct {
	ExternalURL string
	Alerts      []struct {
		Status, GeneratorURL string
		Labels               map[string]string
	}
}

// alertReceiver is who takes alarms, at an address of this machine.
func alertReceiver(t *testing.T) (url string, got <-chan told) {
	t.Helper()
	c := make(chan told, 1000)
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var m told
		if err := json.NewDecoder(r.Body).Decode(&m); err != nil {
			t.Error(err)
		}
		c <- m
	}))
	t.Cleanup(s.Close)
	return s.URL + "/hook", c
}

// isTold waits until a receiver has heard that the link at a port is down, from the fabric with some page.
func isTold(t *testing.T, got <-chan told, port, page string) {
	t.Helper()
	ctx, cancel := patience.Context(t.Context(), time.Minute)
	defer cancel()
	var others []told
	for {
		select {
		case m := <-got:
			others = append(others, m)
			for _, a := range m.Alerts {
				link := a.Labels["link"]
				if a.Labels["alertname"] != "FabricLinkDown" || !slices.Contains(strings.Fields(link), port) {
					continue
				}
				if a.Status != "firing" || m.ExternalURL != page || !strings.HasPrefix(a.GeneratorURL, page) {
					t.Errorf("%s is %s at %q, %q; want it firing at %q", link, a.Status, m.ExternalURL, a.GeneratorURL,
						page)
				}
				return
			}
		case <-ctx.Done():
			t.Fatalf("nobody tells that %s is down, but %+v: %v", port, others, context.Cause(ctx))
		}
	}
}

// TestAlerts: whoever --alerts names hears of a cable that is down, from a fabric and from who watches one.
func TestAlerts(t *testing.T) {
	s := newShell(t)
	url, got := alertReceiver(t)
	s.run("up", "-d", "star:3", "--state", "none", "--http", "127.0.0.1:0", "--alerts", url)
	defer s.run("down")
	s.run("fault", "link", "h2", "down")
	isTold(t, got, "h2[1]", asJSON[status.Status](t, s.run("status", "--json")).Page)

	l := newLab(t, "star:3", &sm.Config{SweepInterval: -1})
	url, got = alertReceiver(t)
	w := watch(t, "--on", "fabric:h3", "--interval", "50ms", "--alerts", url)
	if err := l.SetLink(l.ref("h2", 1), false); err != nil {
		t.Fatal(err)
	}
	isTold(t, got, "h2[1]", w.Page)
	w.cancel()
	if err := <-w.ended; err != nil {
		t.Error(err)
	}
}

func TestUsers(t *testing.T) {
	t.Setenv("XDG_RUNTIME_DIR", privateDir(t))
	dir := t.TempDir()
	wants(t, shown(t, "user", "list", "--state", dir), "no users")
	broken(t, exitFailed, []string{"no user"}, "user", "remove", "nobody", "--state", dir)
	setUser(t, dir, "ci", "correct horse")
	if got := asJSON[[]string](t, shown(t, "user", "list", "--state", dir, "--json")); len(got) != 1 || got[0] != "ci" {
		t.Errorf("users: %q", got)
	}
	wants(t, shown(t, "user", "remove", "ci", "--state", dir), "no users")
	broken(t, exitUsage, []string{"keeps nothing"}, "user", "list", "--state", "none")
}

// privateDir is a folder that only its owner may use.
// TestUsersOfRunning: a user of a fabric that runs is in force when the command has returned, wherever the fabric keeps
// its state and if it keeps none.
func TestUsersOfRunning(t *testing.T) {
	s := newShell(t)
	dir := t.TempDir()
	for _, c := range []struct {
		name string
		args []string
	}{{"none", []string{"--state", stateNone}}, {"there", []string{"--state", dir}}, {"here", nil}} {
		t.Run(c.name, func(t *testing.T) {
			s.run(append([]string{"up", "-d", "star:2", "--http", "127.0.0.1:0", "--name", c.name}, c.args...)...)
			defer s.run("down", "--name", c.name)
			page := asJSON[status.Status](t, s.run("status", "--json", "--name", c.name)).Page
			if code, _ := get(t, http.DefaultClient, page, "", ""); code != 200 {
				t.Fatalf("without users: %d", code)
			}
			add := s.command("user", "add", "operator", "--password-stdin", "--name", c.name)
			add.Stdin = strings.NewReader("correct horse\n")
			out, err := add.CombinedOutput()
			if err != nil || !strings.Contains(string(out), "operator") ||
				strings.Contains(string(out), "until the fabric ends") != (c.name == "none") {
				t.Fatalf("%v\n%s", err, out)
			}
			if code, _ := get(t, http.DefaultClient, page, "", ""); code != http.StatusUnauthorized {
				t.Errorf("with a user, without a password: %d", code)
			}
			if code, _ := get(t, http.DefaultClient, page, "operator", "correct horse"); code != 200 {
				t.Errorf("with the password: %d", code)
			}
			if list := asJSON[[]string](t, s.run("user", "list", "--json", "--name", c.name)); len(list) != 1 ||
				list[0] != "operator" {
				t.Errorf("users: %q", list)
			}
			s.run(append([]string{"user", "list", "--name", c.name}, c.args...)...)
			s.fails(exitUsage, []string{"elsewhere"}, "user", "list", "--name", c.name, "--state", t.TempDir())
			s.fails(exitFailed, []string{"no user"}, "user", "remove", "nobody", "--name", c.name)
			wants(t, s.run("user", "remove", "operator", "--name", c.name), "no users")
			if code, _ := get(t, http.DefaultClient, page, "", ""); code != 200 {
				t.Errorf("without users again: %d", code)
			}
		})
	}
	// One that does not run finds what was written for it.
	add := s.command("user", "add", "early", "--password-stdin", "--name", "there", "--state", dir)
	add.Stdin = strings.NewReader("correct horse\n")
	if out, err := add.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if got := credentials(t, dir).Users(); len(got) != 1 || got[0] != "early" {
		t.Errorf("users: %q", got)
	}
	add = s.command("user", "add", "short", "--password-stdin", "--name", "there", "--state", dir)
	add.Stdin = strings.NewReader("horse\n")
	if out, err := add.CombinedOutput(); err == nil || !strings.Contains(string(out), "next: ") {
		t.Errorf("a password of five characters: %v\n%s", err, out)
	}
}

func privateDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return dir
}
