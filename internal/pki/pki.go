package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// Names of the files of a CA's folder. A machine's are MACHINE.crt and MACHINE.key.
const (
	CACert = "ca.crt"
	CAKey  = "ca.key"
)

// Errors that callers match. They say what is wrong; what to do next is for a command to say.
var (
	ErrExists = errors.New("there is one already")
	ErrName   = errors.New("not the name of a machine")
	ErrFile   = errors.New("not a certificate")
)

// Pair is a certificate and its private key.
type Pair struct {
	Cert *x509.Certificate
	Key  crypto.Signer
}

// early is how long before its time a certificate is made good, for clocks that differ a little.
const early = 5 * time.Minute

// NewCA makes a CA that is good for a time from now. P-256 rather than Ed25519, which not all programs of others take.
func NewCA(now time.Time, valid time.Duration) (*Pair, error) {
	return sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: "softib CA"}, NotBefore: now.Add(-early), NotAfter: now.Add(valid),
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}, nil)
}

// Issue makes the certificate of a machine, which proves both ends of a connection.
func (ca *Pair) Issue(machine string, now time.Time, valid time.Duration) (*Pair, error) {
	if err := CheckName(machine); err != nil {
		return nil, err
	}
	end := now.Add(valid)
	if end.After(ca.Cert.NotAfter) {
		end = ca.Cert.NotAfter // nobody believes it for longer
	}
	return sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: machine}, DNSNames: []string{machine}, NotBefore: now.Add(-early), NotAfter: end,
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, ca)
}

var name = regexp.MustCompile(`^[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?)*$`)

// CheckName refuses what is not the name of a machine: labels of lower-case letters, digits, - and _,
// with dots between.
func CheckName(machine string) error {
	if !name.MatchString(machine) || len(machine) > 253 || machine == "ca" {
		return fmt.Errorf("%w: %q", ErrName, machine)
	}
	return nil
}

// sign makes a key and has its certificate signed by a CA, or by itself.
func sign(c *x509.Certificate, ca *Pair) (*Pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	if c.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120)); err != nil {
		return nil, err
	}
	p := &Pair{c, key}
	if ca == nil {
		ca = p
	}
	der, err := x509.CreateCertificate(rand.Reader, c, ca.Cert, key.Public(), ca.Key)
	if err != nil {
		return nil, err
	}
	p.Cert, err = x509.ParseCertificate(der)
	return p, err
}

// PEM is the pair as files have it.
func (p *Pair) PEM() (cert, key []byte, err error) {
	der, err := x509.MarshalPKCS8PrivateKey(p.Key)
	if err != nil {
		return nil, nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.Cert.Raw}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}

// TLS is the pair as package tls has it.
func (p *Pair) TLS() tls.Certificate {
	return tls.Certificate{Certificate: [][]byte{p.Cert.Raw}, PrivateKey: p.Key, Leaf: p.Cert}
}

// Save writes the pair to two files that are not there yet, the key for its owner alone.
func (p *Pair) Save(certFile, keyFile string) error {
	cert, key, err := p.PEM()
	if err != nil {
		return err
	}
	if err := create(keyFile, key, 0o600); err != nil {
		return err
	}
	if err := create(certFile, cert, 0o644); err != nil {
		return errors.Join(err, os.Remove(keyFile))
	}
	return nil
}

func create(file string, data []byte, mode os.FileMode) error {
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s: %w", file, ErrExists)
	}
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Sync(), f.Close())
}

// Load reads a pair of files.
func Load(certFile, keyFile string) (*Pair, error) {
	c, err := tls.LoadX509KeyPair(certFile, keyFile)
	var system *fs.PathError
	if errors.As(err, &system) {
		return nil, err
	}
	if err != nil {
		return nil, fmt.Errorf("%s, %s: %w and its key: %w", certFile, keyFile, ErrFile, err)
	}
	key, ok := c.PrivateKey.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("%s: %w: a key that cannot sign", keyFile, ErrFile)
	}
	return &Pair{c.Leaf, key}, nil
}

// LoadCA reads the CA of a folder.
func LoadCA(dir string) (*Pair, error) {
	p, err := Load(filepath.Join(dir, CACert), filepath.Join(dir, CAKey))
	if err == nil && !p.Cert.IsCA {
		return nil, fmt.Errorf("%s: %w that is a CA's", filepath.Join(dir, CACert), ErrFile)
	}
	return p, err
}

// Read reads the certificates of a file.
func Read(file string) ([]*x509.Certificate, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	all, err := Parse(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return all, nil
}

// Parse reads certificates in PEM. Whatever else the text has (a key, words) is passed over.
func Parse(text []byte) (all []*x509.Certificate, err error) {
	hint := ""
	for rest := text; ; {
		var b *pem.Block
		if b, rest = pem.Decode(rest); b == nil {
			break
		}
		if b.Type != "CERTIFICATE" {
			hint = ", but a " + strings.ToLower(b.Type)
			continue
		}
		c, err := x509.ParseCertificate(b.Bytes)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrFile, err)
		}
		all = append(all, c)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%w in PEM%s", ErrFile, hint)
	}
	return all, nil
}

// Config is what a machine connects to others with: its certificate, whatever chain the file has, and the CA.
func Config(certFile, keyFile, caFile string) (*tls.Config, error) {
	if _, err := Load(certFile, keyFile); err != nil {
		return nil, err
	}
	c, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		return nil, err
	}
	cas, err := Read(caFile)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	for _, ca := range cas {
		pool.AddCert(ca)
	}
	return &tls.Config{Certificates: []tls.Certificate{c}, RootCAs: pool}, nil
}

// Names are the names of machines that a certificate has.
func Names(c *x509.Certificate) string { return strings.Join(c.DNSNames, ", ") }
