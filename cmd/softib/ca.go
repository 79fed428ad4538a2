package main

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"softib/internal/pki"
)

func newCA() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "ca",
		Short: "Make certificates by which machines know each other",
		Long: `Makes a CA of your own, and with it a certificate for each machine whose nodes and
cables are to be part of one fabric. Who has a certificate of the CA may take part;
who has the CA's key (ca.key) says who has one, so keep it off the machines.

Certificates of another CA do as well, if all machines' are of one: softib looks at
who signed them, whether they are in time, and the DNS name, which is the machine's.`,
		Example: `  softib ca init ~/ca
  softib ca issue ~/ca node1          # node1.crt and node1.key, for node1, with ca.crt
  softib ca show ~/ca/node1.crt`,
	}
	return family(cmd, newCAInit(), newCAIssue(), newCAShow())
}

const (
	day           = 24 * time.Hour
	caDays        = 3650
	machineDays   = 365
	daysMax       = 36500
	expiresSoonIn = 30 * day
)

// daysFlag gives a command its --days.
func daysFlag(cmd *cobra.Command, days *int, usual int) {
	cmd.Flags().IntVar(days, "days", usual, "it is good for `N` days")
}

func checkDays(cmd *cobra.Command, days int) error {
	if days < 1 || days > daysMax {
		return usage(cmd, fmt.Errorf("--days %d is not one of 1 to %d", days, daysMax))
	}
	return nil
}

func newCAInit() *cobra.Command {
	var days int
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "init DIR",
		Short: "Make a CA",
		Long: `Makes a folder with a CA: ca.crt, which every machine gets, and ca.key, which no
machine needs. Nothing that is there is overwritten.`,
		Example: `  softib ca init ~/ca`,
		Args:    arguments(1, 1, "a folder"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkDays(cmd, days); err != nil {
				return err
			}
			dir := args[0]
			if err := os.MkdirAll(dir, 0o700); err != nil {
				return next(err, "name a folder that can be made or written to")
			}
			ca, err := pki.NewCA(time.Now(), time.Duration(days)*day)
			if err != nil {
				return err
			}
			files := caFiles{Cert: filepath.Join(dir, pki.CACert), Key: filepath.Join(dir, pki.CAKey)}
			if err := ca.Save(files.Cert, files.Key); err != nil {
				return caNext(err, dir)
			}
			files.NotAfter = ca.Cert.NotAfter
			if asJSON {
				return printJSON(cmd.OutOrStdout(), files)
			}
			t := newTerminal(cmd.OutOrStdout())
			t.say("%s  goes to every machine; good until %s", files.Cert, date(files.NotAfter))
			t.say("%s  signs machines' certificates: keep it to yourself", files.Key)
			t.say("next: softib ca issue %s MACHINE", dir)
			return nil
		},
	}
	daysFlag(cmd, &days, caDays)
	jsonFlag(cmd, &asJSON)
	return cmd
}

// caFiles is what was written.
type caFiles struct {
	Machine  string    `json:"machine,omitempty"`
	Cert     string    `json:"cert"`
	Key      string    `json:"key"`
	CA       string    `json:"ca,omitempty"`
	NotAfter time.Time `json:"not_after"`
}

func newCAIssue() *cobra.Command {
	var days int
	var out string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "issue DIR MACHINE",
		Short: "Make a machine's certificate",
		Long: `Makes a private key and a certificate with the machine's name, signed by the CA of
the folder. A machine that had one gets another when the files of the old one are
moved away; the old one stays good until its time is over.`,
		Example: `  softib ca issue ~/ca node1
  softib ca issue ~/ca node2.example --days 90 --out /media/stick`,
		Args: arguments(2, 2, "the CA's folder and the machine's name"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkDays(cmd, days); err != nil {
				return err
			}
			dir, machine := args[0], args[1]
			if out == "" {
				out = dir
			}
			ca, err := pki.LoadCA(dir)
			if err != nil {
				return caNext(err, dir)
			}
			now := time.Now()
			if now.After(ca.Cert.NotAfter) {
				return next(fmt.Errorf("the CA of %s was good until %s", dir, date(ca.Cert.NotAfter)),
					"softib ca init makes another, and all machines need certificates of that")
			}
			p, err := ca.Issue(machine, now, time.Duration(days)*day)
			if err != nil {
				return caNext(err, dir)
			}
			files := caFiles{Machine: machine, Cert: filepath.Join(out, machine+".crt"),
				Key: filepath.Join(out, machine+".key"), CA: filepath.Join(dir, pki.CACert), NotAfter: p.Cert.NotAfter}
			if err := p.Save(files.Cert, files.Key); err != nil {
				return caNext(err, dir)
			}
			if asJSON {
				return printJSON(cmd.OutOrStdout(), files)
			}
			t := newTerminal(cmd.OutOrStdout())
			t.say("%s  of %s, good until %s", files.Cert, machine, date(files.NotAfter))
			t.say("%s  its private key", files.Key)
			t.say("next: bring both to %s, with %s", machine, files.CA)
			return nil
		},
	}
	daysFlag(cmd, &days, machineDays)
	cmd.Flags().StringVar(&out, "out", "", "write to `FOLDER` instead of the CA's own")
	jsonFlag(cmd, &asJSON)
	return cmd
}

// caNext says what to do about an error of certificates.
func caNext(err error, dir string) error {
	switch {
	case errors.Is(err, pki.ErrName):
		return next(&usageError{err}, "a name as DNS has them, of lower-case letters, digits, - and dots; and not ca")
	case errors.Is(err, pki.ErrExists):
		return next(err, "move it away if it is no longer needed")
	case errors.Is(err, fs.ErrNotExist):
		return next(err, "softib ca init %s", dir)
	case errors.Is(err, pki.ErrFile):
		return next(err, "softib ca init DIR makes a CA, in a folder that has none")
	}
	return next(err, "look at the folder and who may write to it")
}

// caCert is a certificate as it is shown.
type caCert struct {
	Names       []string  `json:"names"`
	Subject     string    `json:"subject"`
	Issuer      string    `json:"issuer"`
	IsCA        bool      `json:"is_ca"`
	NotBefore   time.Time `json:"not_before"`
	NotAfter    time.Time `json:"not_after"`
	Key         string    `json:"key"`
	Fingerprint string    `json:"sha256"`
	// Trouble is why no machine would believe it; empty if none is known.
	Trouble string `json:"trouble,omitempty"`
}

func newCAShow() *cobra.Command {
	var ca string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "show FILE",
		Short: "Show certificates, and why others may not believe them",
		Example: `  softib ca show node1.crt
  softib ca show node1.crt --ca ca.crt   # is it of this CA?`,
		Args: arguments(1, 1, "a file"),
		RunE: func(cmd *cobra.Command, args []string) error {
			certs, err := pki.Read(args[0])
			var pool *x509.CertPool
			if err == nil && ca != "" {
				pool = x509.NewCertPool()
				var cas []*x509.Certificate
				cas, err = pki.Read(ca)
				for _, c := range cas {
					pool.AddCert(c)
				}
			}
			if err != nil {
				return next(err, "name a file that softib ca made, such as ca.crt or node1.crt")
			}
			list := make([]caCert, 0, len(certs))
			for _, c := range certs {
				list = append(list, describeCert(c, pool, certs[1:], time.Now()))
			}
			if asJSON {
				return printJSON(cmd.OutOrStdout(), list)
			}
			t := newTerminal(cmd.OutOrStdout())
			for i, c := range list {
				t.page(i == 0)
				showCert(t, c)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&ca, "ca", "", "say whether they are of the CA in `FILE`")
	jsonFlag(cmd, &asJSON)
	return cmd
}

// describeCert says what a certificate is, and what is wrong with it, for a pool of CAs if there is one.
func describeCert(c *x509.Certificate, pool *x509.CertPool, chain []*x509.Certificate, now time.Time) caCert {
	sum := sha256.Sum256(c.Raw)
	d := caCert{Names: append([]string{}, c.DNSNames...), Subject: c.Subject.String(), Issuer: c.Issuer.String(),
		IsCA: c.IsCA, NotBefore: c.NotBefore, NotAfter: c.NotAfter, Key: keyKind(c),
		Fingerprint: hex.EncodeToString(sum[:])}
	switch {
	case now.Before(c.NotBefore):
		d.Trouble = "it is not good yet, or this machine's clock is behind"
	case now.After(c.NotAfter):
		d.Trouble = "its time is over, or this machine's clock is ahead"
	case !c.IsCA && len(c.DNSNames) == 0:
		d.Trouble = "it has no DNS name, so it is of no machine"
	case pool != nil:
		between := x509.NewCertPool()
		for _, b := range chain {
			between.AddCert(b)
		}
		for _, use := range []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth} {
			_, err := c.Verify(x509.VerifyOptions{Roots: pool, Intermediates: between, CurrentTime: now,
				KeyUsages: []x509.ExtKeyUsage{use}})
			if err != nil {
				d.Trouble = err.Error()
			}
		}
	}
	return d
}

func keyKind(c *x509.Certificate) string {
	switch k := c.PublicKey.(type) {
	case *ecdsa.PublicKey:
		return "ECDSA " + k.Curve.Params().Name
	case ed25519.PublicKey:
		return "Ed25519"
	case *rsa.PublicKey:
		return fmt.Sprintf("RSA %d", k.N.BitLen())
	}
	return c.PublicKeyAlgorithm.String()
}

func showCert(t *terminal, c caCert) {
	what := "machine"
	if c.IsCA {
		what = "CA"
	}
	t.say("%s", t.bold(c.Subject))
	t.say("  is a     %s", what)
	for _, n := range c.Names {
		t.say("  name     %s", n)
	}
	t.say("  of       %s", c.Issuer)
	t.say("  good     %s to %s", date(c.NotBefore), date(c.NotAfter))
	t.say("  key      %s", c.Key)
	t.say("  sha256   %s", c.Fingerprint)
	switch left := time.Until(c.NotAfter); {
	case c.Trouble != "":
		t.say("  %s  %s", t.red("trouble"), c.Trouble)
	case left < expiresSoonIn:
		t.say("  %s  it is good for %d more days", t.red("soon"), int(left/day))
	}
}

func date(t time.Time) string { return t.UTC().Format("2006-01-02 15:04 UTC") }
