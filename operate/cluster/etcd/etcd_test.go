package etcd_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"

	"softib/internal/etcdtest"
	"softib/operate/cluster"
	"softib/operate/cluster/etcd"
	"softib/operate/control"
)

func connect(t *testing.T, url string) *etcd.Store {
	t.Helper()
	u, err := etcd.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	s, err := etcd.Connect(etcdtest.Context(t), u)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// member is one of a cluster, and what it was told.
type member struct {
	*etcd.Member
	name string
	mu   sync.Mutex
	said []cluster.Event
}

func join(t *testing.T, s *etcd.Store, name string) *member {
	t.Helper()
	m := &member{name: name}
	m.Member = etcd.Start(s, cluster.Info{Name: name, Control: name + ":7000"}, func(ev cluster.Event) {
		m.mu.Lock()
		m.said = append(m.said, ev)
		m.mu.Unlock()
	})
	t.Cleanup(m.Abandon)
	return m
}

func (m *member) heard(k cluster.EventKind) (n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, ev := range m.said {
		if ev.Kind == k {
			n++
		}
	}
	return n
}

// until looks until something is so.
func until(t *testing.T, what string, is func() bool) time.Duration {
	t.Helper()
	begin := time.Now()
	for !is() {
		if time.Since(begin) > time.Minute {
			t.Fatalf("%s: not after a minute", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
	return time.Since(begin)
}

// master waits for one that acts.
func master(t *testing.T, all ...*member) (m *member) {
	t.Helper()
	until(t, "a master", func() bool {
		for _, s := range all {
			if s.IsMaster() {
				m = s
				return true
			}
		}
		return false
	})
	return m
}

// change makes one. On a machine that is busy a master may lapse just then: whoever is master makes it, until it is
// made; each attempt is another change.
func change(t *testing.T, value string, all ...*member) int64 {
	t.Helper()
	for range 20 {
		m := master(t, all...)
		rev, err := m.Change(etcdtest.Context(t), cluster.Change{Base: m.Revision(), What: "set x to " + value,
			Put: []cluster.Section{{Name: "x", Value: []byte(value)}}})
		if err == nil {
			return rev
		}
		if !errors.Is(err, cluster.ErrNotMaster) && !errors.Is(err, cluster.ErrStale) {
			t.Fatal(err)
		}
	}
	t.Fatal("no master that stays")
	return 0
}

func (m *member) has(value string) func() bool {
	return func() bool { v, _ := m.Section("x"); return string(v) == value }
}

// TestMembers: three machines make one cluster; the master is killed, and another goes on.
func TestMembers(t *testing.T) {
	srv := etcdtest.Start(t)
	ctx := etcdtest.Context(t)
	var all []*member
	for _, name := range []string{"a", "b", "c"} {
		s := join(t, connect(t, srv.URL("lab")), name)
		if err := s.Joined(ctx); err != nil {
			t.Fatal(err)
		}
		all = append(all, s)
	}
	other := join(t, connect(t, srv.URL("other")), "a")
	if err := other.Joined(ctx); err != nil || len(other.Members()) != 1 {
		t.Errorf("another fabric in the same etcd: %v, %v", err, other.Members())
	}
	rev := change(t, "1", all...)
	for _, s := range all {
		until(t, s.name+" sees the change", s.has("1"))
		until(t, s.name+" sees all", func() bool { return len(s.Members()) == 3 })
	}
	m := master(t, all...)
	for _, s := range all {
		if s != m {
			if _, err := s.Change(ctx, cluster.Change{Base: rev}); !errors.Is(err, cluster.ErrNotMaster) ||
				!strings.Contains(control.NextOf(err), "ask the master") {
				t.Errorf("%v, %s", err, control.NextOf(err))
			}
		}
	}
	if _, err := m.Change(ctx, cluster.Change{Base: rev - 1}); !errors.Is(err, cluster.ErrStale) &&
		!errors.Is(err, cluster.ErrNotMaster) {
		t.Errorf("%v", err)
	}

	twin := join(t, connect(t, srv.URL("lab")), "b")
	if err := twin.Joined(ctx); !errors.Is(err, etcd.ErrNameTaken) ||
		!strings.Contains(err.Error(), "b:7000, since 2") ||
		!strings.Contains(control.NextOf(err), "another --machine") {
		t.Errorf("%v, %s", err, control.NextOf(err))
	}

	var left []*member
	for _, s := range all {
		if s != m {
			left = append(left, s)
		}
	}
	m.Abandon()
	begin := time.Now()
	next := master(t, left...)
	t.Logf("%s is the master %.2f s after %s was killed", next.name, time.Since(begin).Seconds(), m.name)
	change(t, "2", left...)
	until(t, "the dead one is gone", func() bool { return len(next.Members()) == 2 })
	if err := next.Leave(ctx); err != nil {
		t.Error(err)
	}
	begin = time.Now()
	last := master(t, left...)
	t.Logf("%s is the master %.2f s after %s has left", last.name, time.Since(begin).Seconds(), next.name)
	list, err := connect(t, srv.URL("lab")).History(ctx)
	if err != nil || len(list) < 2 || list[0].What != "set x to 1" || list[0].When == "" {
		t.Errorf("%+v, %v", list, err)
	}
}

// TestKilledEtcd: etcd is killed again and again; nothing that was acknowledged is lost, and everybody goes on.
func TestKilledEtcd(t *testing.T) {
	srv := etcdtest.Start(t)
	all := []*member{join(t, connect(t, srv.URL("lab")), "a"), join(t, connect(t, srv.URL("lab")), "b")}
	for i := range 4 {
		value := fmt.Sprint(i)
		rev := change(t, value, all...)
		srv.Kill()
		for _, s := range all {
			if s.Revision() > rev || len(s.Members()) == 0 {
				t.Errorf("%s has revision %d of %d and %d members", s.name, s.Revision(), rev, len(s.Members()))
			}
		}
		if i%2 == 1 { // long enough to be cut off for
			until(t, "the masters lapse", func() bool { return !all[0].IsMaster() && !all[1].IsMaster() })
			until(t, "they notice", func() bool {
				return all[0].heard(cluster.EventTrouble) > 0 && all[1].heard(cluster.EventTrouble) > 0
			})
		}
		srv.Run()
		for _, s := range all {
			until(t, s.name+" has what was acknowledged", func() bool { return s.Revision() >= rev })
			until(t, s.name+" has its value", s.has(value))
		}
	}
	master(t, all...)
	for _, s := range all {
		until(t, "calm", func() bool { return s.heard(cluster.EventCalm) > 0 })
	}
}

// TestStoppedEtcd: while etcd stands still nobody acts as a master; a change made meanwhile is made once.
func TestStoppedEtcd(t *testing.T) {
	srv := etcdtest.Start(t)
	all := []*member{join(t, connect(t, srv.URL("lab")), "a"), join(t, connect(t, srv.URL("lab")), "b")}
	rev := change(t, "before", all...)
	m := master(t, all...)
	until(t, "it has it", func() bool { return m.Revision() == rev })
	srv.Stop()
	done := make(chan error, 1)
	go func() {
		_, err := m.Change(etcdtest.Context(t), cluster.Change{Base: rev,
			Put: []cluster.Section{{Name: "x", Value: []byte("during")}}})
		done <- err
	}()
	until(t, "the masters lapse", func() bool { return !all[0].IsMaster() && !all[1].IsMaster() })
	select {
	case err := <-done:
		if err == nil {
			t.Error("acknowledged by an etcd that stands still")
		}
		done <- err
	default:
	}
	srv.Continue()
	err := <-done
	change(t, "after", all...)
	list, herr := connect(t, srv.URL("lab")).History(etcdtest.Context(t))
	if herr != nil {
		t.Fatal(herr)
	}
	made := 0
	for _, c := range list {
		if c.Base == rev && c.What == "" {
			made++
		}
	}
	if want := map[bool]int{true: 1, false: 0}[err == nil]; made != want {
		t.Errorf("%v, and it was made %d times: %+v", err, made, list)
	}
}

// TestFullEtcd: a full etcd refuses a change, and the words say what to do about it.
func TestFullEtcd(t *testing.T) {
	srv := etcdtest.Start(t, "--quota-backend-bytes", fmt.Sprint(2<<20))
	store := connect(t, srv.URL("lab"))
	a := join(t, store, "a")
	m := master(t, a)
	big := []byte(strings.Repeat("x", 512<<10))
	for range 40 {
		_, err := m.Change(etcdtest.Context(t), cluster.Change{Base: m.Revision(),
			Put: []cluster.Section{{Name: "big", Value: big}}})
		if errors.Is(err, cluster.ErrFull) {
			if !strings.Contains(control.NextOf(err), "etcdctl") {
				t.Errorf("next: %s", control.NextOf(err))
			}
			until(t, "it goes on as the master", m.IsMaster)
			return
		}
		if err != nil && !errors.Is(err, cluster.ErrStale) && !errors.Is(err, cluster.ErrNotMaster) {
			t.Fatal(err)
		}
		master(t, a)
	}
	t.Error("it takes everything")
}

// fakeStatus is a server that says which version it is.
type fakeStatus struct {
	pb.UnimplementedMaintenanceServer
	version string
}

func (f *fakeStatus) Status(context.Context, *pb.StatusRequest) (*pb.StatusResponse, error) {
	return &pb.StatusResponse{Header: &pb.ResponseHeader{}, Version: f.version}, nil
}

// TestNotEtcd: what does not answer, is something else or of an unknown version is named as that.
func TestNotEtcd(t *testing.T) {
	refuse := func(url string, want error, next string) {
		t.Helper()
		u, err := etcd.ParseURL(url)
		if err != nil {
			t.Fatal(err)
		}
		s, err := etcd.Connect(etcdtest.Context(t), u)
		if err == nil {
			_ = s.Close()
		}
		if !errors.Is(err, want) || !strings.Contains(control.NextOf(err), next) {
			t.Errorf("%s: %v, next %q: want %v and %q", url, err, control.NextOf(err), want, next)
		}
	}
	refuse("etcd://127.0.0.1:1/lab", etcd.ErrSilent, "is it running")
	web := httptest.NewServer(http.NotFoundHandler())
	defer web.Close()
	refuse("etcd://"+strings.TrimPrefix(web.URL, "http://")+"/lab", etcd.ErrSilent, "not etcd at all")
	for _, version := range []string{"3.3.27", "2.3.8", "4.0.0", "", "3", "x.y"} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		srv := grpc.NewServer()
		pb.RegisterMaintenanceServer(srv, &fakeStatus{version: version})
		go func() { _ = srv.Serve(l) }()
		refuse("etcd://"+l.Addr().String()+"/lab", etcd.ErrVersion, "3.4")
		srv.Stop()
	}
}

// TestTLS: a client with a certificate is served; one without, with a stranger's, or without TLS is told what is wrong.
func TestTLS(t *testing.T) {
	dir := t.TempDir()
	ca := newAuthority(t, dir, "ca")
	ca.issue(t, dir, "server")
	ca.issue(t, dir, "client")
	newAuthority(t, dir, "stranger").issue(t, dir, "intruder")
	srv := etcdtest.StartTLS(t, dir)
	file := func(name string) string { return filepath.Join(dir, name) }
	good := srv.URL("lab") + "?ca=" + file("ca.pem") + "&cert=" + file("client.pem") + "&key=" + file("client.key")
	a := join(t, connect(t, good), "a")
	change(t, "1", a)
	for _, url := range []string{
		srv.URL("lab"),
		srv.URL("lab") + "?ca=" + file("ca.pem"),
		srv.URL("lab") + "?ca=" + file("stranger.pem") + "&cert=" + file("client.pem") + "&key=" + file("client.key"),
		srv.URL("lab") + "?ca=" + file("ca.pem") + "&cert=" + file("intruder.pem") + "&key=" + file("intruder.key"),
		srv.URL("lab") + "?ca=" + file("none.pem"),
		srv.URL("lab") + "?ca=" + file("client.key"),
		srv.URL("lab") + "?ca=" + file("ca.pem") + "&cert=" + file("client.pem") + "&key=" + file("intruder.key"),
		strings.Replace(srv.URL("lab"), "etcds", "etcd", 1),
	} {
		u, err := etcd.ParseURL(url)
		if err != nil {
			t.Fatal(err)
		}
		_, err = etcd.Connect(etcdtest.Context(t), u)
		if !errors.Is(err, etcd.ErrTLS) && (u.TLS || !errors.Is(err, etcd.ErrSilent)) || control.NextOf(err) == "" {
			t.Errorf("%s: %v, next %q", url, err, control.NextOf(err))
		}
	}
}

// authority signs certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T, dir, name string) *authority {
	t.Helper()
	a := &authority{}
	a.cert, a.key = a.make(t, dir, name, true)
	return a
}

func (a *authority) issue(t *testing.T, dir, name string) {
	t.Helper()
	a.make(t, dir, name, false)
}

func (a *authority) make(t *testing.T, dir, name string, isCA bool) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(err)
	x := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: isCA,
		BasicConstraintsValid: true,
		IPAddresses:           []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	parent, signer := x, key
	if !isCA {
		parent, signer = a.cert, a.key
	}
	der, err := x509.CreateCertificate(rand.Reader, x, parent, &key.PublicKey, signer)
	must(err)
	secret, err := x509.MarshalECPrivateKey(key)
	must(err)
	write := func(ext, kind string, bytes []byte) {
		text := pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: bytes})
		must(os.WriteFile(filepath.Join(dir, name+ext), text, 0o600))
	}
	write(".pem", "CERTIFICATE", der)
	write(".key", "EC PRIVATE KEY", secret)
	cert, err := x509.ParseCertificate(der)
	must(err)
	return cert, key
}
