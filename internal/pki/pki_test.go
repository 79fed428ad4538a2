package pki

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// save makes a CA and a machine's certificate in a folder.
func save(t *testing.T) (dir string, ca *Pair) {
	t.Helper()
	dir = t.TempDir()
	ca, err := NewCA(time.Now(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if err := ca.Save(filepath.Join(dir, CACert), filepath.Join(dir, CAKey)); err != nil {
		t.Fatal(err)
	}
	p, err := ca.Issue("node1", time.Now(), 1000*time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Save(filepath.Join(dir, "node1.crt"), filepath.Join(dir, "node1.key")); err != nil {
		t.Fatal(err)
	}
	return dir, ca
}

// What is written is read again, keys are their owner's, and nothing is overwritten. OpenSSL takes it.
func TestFiles(t *testing.T) {
	dir, ca := save(t)
	again, err := LoadCA(dir)
	if err != nil || !again.Cert.Equal(ca.Cert) {
		t.Fatal(err)
	}
	for _, key := range []string{CAKey, "node1.key"} {
		if st, err := os.Stat(filepath.Join(dir, key)); err != nil || st.Mode().Perm() != 0o600 {
			t.Error(key, st.Mode(), err)
		}
	}
	if err := ca.Save(filepath.Join(dir, CACert), filepath.Join(dir, CAKey)); !errors.Is(err, ErrExists) {
		t.Error(err)
	}
	p, err := Load(filepath.Join(dir, "node1.crt"), filepath.Join(dir, "node1.key"))
	if err != nil || Names(p.Cert) != "node1" || !p.Cert.NotAfter.Equal(ca.Cert.NotAfter) {
		t.Error(err, p.Cert.NotAfter, "of a CA until", ca.Cert.NotAfter)
	}
	out, err := exec.Command("openssl", "verify", "-x509_strict", "-purpose", "sslserver", "-CAfile",
		filepath.Join(dir, CACert), filepath.Join(dir, "node1.crt")).CombinedOutput()
	if errors.Is(err, exec.ErrNotFound) {
		t.Log("no openssl here")
	} else if err != nil {
		t.Errorf("%v: %s", err, out)
	}
	if _, err := LoadCA(t.TempDir()); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	if _, err := Load(filepath.Join(dir, "node1.crt"), filepath.Join(dir, CAKey)); !errors.Is(err, ErrFile) {
		t.Error("a key of another:", err)
	}
	if _, err := Read(filepath.Join(dir, CAKey)); !errors.Is(err, ErrFile) {
		t.Error("a key for a certificate:", err)
	}
}

// Two machines of one CA prove themselves to each other by TLS.
func TestConfig(t *testing.T) {
	dir, _ := save(t)
	conf, err := Config(filepath.Join(dir, "node1.crt"), filepath.Join(dir, "node1.key"), filepath.Join(dir, CACert))
	if err != nil {
		t.Fatal(err)
	}
	conf.ClientCAs, conf.ClientAuth, conf.ServerName = conf.RootCAs, tls.RequireAndVerifyClientCert, "node1"
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	server := make(chan error, 1)
	go func() { server <- tls.Server(a, conf).HandshakeContext(t.Context()) }()
	if err := tls.Client(b, conf).HandshakeContext(t.Context()); err != nil {
		t.Error(err)
	}
	if err := <-server; err != nil {
		t.Error(err)
	}
}

func TestNames(t *testing.T) {
	for _, good := range []string{"a", "node1", "node-1.rack_2.example", "1"} {
		if err := CheckName(good); err != nil {
			t.Error(err)
		}
	}
	long := make([]byte, 300)
	for i := range long {
		long[i] = 'a'
	}
	for _, bad := range []string{"", "ca", "A", "a b", "../a", ".", "a.", "-a", "a-", "a..b", "*.a", "a/b",
		string(long)} {
		if err := CheckName(bad); !errors.Is(err, ErrName) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// FuzzParse: whatever a file has, it is certificates or an error.
func FuzzParse(f *testing.F) {
	ca, err := NewCA(time.Now(), time.Hour)
	if err != nil {
		f.Fatal(err)
	}
	cert, key, err := ca.PEM()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(cert)
	f.Add(append(key, cert...))
	f.Add([]byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		all, err := Parse(text)
		if (err == nil) != (len(all) > 0) || err != nil && !errors.Is(err, ErrFile) {
			t.Error(len(all), err)
		}
		for _, c := range all {
			if _, err := x509.ParseCertificate(c.Raw); err != nil {
				t.Error(err)
			}
		}
	})
}
