package peering

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"
)

// Why a peer is down.
var (
	// ErrSilent: neither TCP nor datagrams have been heard of it.
	ErrSilent = errors.New("nothing is heard of it")
	// ErrNoDatagrams: TCP works, and datagrams do not pass.
	ErrNoDatagrams = errors.New("it answers over TCP, but datagrams do not pass")
	// ErrNoControl: datagrams pass, and TCP does not work.
	ErrNoControl = errors.New("its datagrams arrive, but TCP is silent")
	// ErrEnded: its end of the connection was closed without a word, as a kernel does for a process that has ended.
	ErrEnded = errors.New("it has ended, or somebody cut its connection")
	// ErrClosed: it has said that it leaves, or this machine has.
	ErrClosed = errors.New("the connection was closed")
	// ErrRenewed: the session is as old as one may get, and another one follows.
	ErrRenewed = errors.New("the session is old and made anew")
	// ErrReplaced: it has connected anew.
	ErrReplaced = errors.New("it has connected anew")
)

// Why two do not meet, or a question is not answered.
var (
	ErrConfig  = errors.New("setting refused")
	ErrRefused = errors.New("the peer refused")
	ErrName    = errors.New("a certificate of another name")
	ErrUnknown = errors.New("no such peer is up")
	ErrTooLong = errors.New("longer than a question or an answer may be")
	ErrMethod  = errors.New("no such method")
	errAlready = errors.New("connected already")
)

// Remote is an error of the peer that a question went to.
type Remote struct{ Peer, Method, Text string }

func (e *Remote) Error() string { return fmt.Sprintf("%s: %s: %s", e.Peer, e.Method, e.Text) }

// explain says what to do about a connection that did not come about.
func explain(err error, now time.Time) error {
	var invalid x509.CertificateInvalidError
	var unknown x509.UnknownAuthorityError
	var host x509.HostnameError
	var op *net.OpError
	switch {
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		c := invalid.Cert
		return fmt.Errorf("%w: its certificate is good from %s to %s, and the clock here says %s: it is over, or "+
			"clocks differ; next: compare date -u on both machines, or issue it a new one", err, stamp(c.NotBefore),
			stamp(c.NotAfter), stamp(now))
	case errors.As(err, &unknown):
		return fmt.Errorf("%w: its certificate is of another CA; next: issue all machines' certificates from one CA",
			err)
	case errors.As(err, &host):
		return fmt.Errorf("%w: %w: it is of %q; next: connect to it by that name, or issue it one of the name %q",
			ErrName, err, host.Certificate.DNSNames, host.Host)
	case errors.As(err, &op) && op.Op == "remote error":
		return fmt.Errorf("%w: %w; next: look at this machine's certificate (softib ca show FILE) and compare date -u "+
			"on both machines, since clocks may differ", ErrRefused, err)
	case errors.Is(err, syscall.ENETUNREACH), errors.Is(err, syscall.EHOSTUNREACH):
		return fmt.Errorf("%w; next: see ip route for the way there, and whether the cable is in", err)
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("%w; next: start softib there, or look whether it listens at another port", err)
	}
	return err
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }
