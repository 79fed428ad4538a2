package peering

import (
	"bufio"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"

	"softib/internal/patience"
	"softib/node/tunnel"
)

// hello is what each says first. Refuse is in place of everything else.
type hello struct {
	Version  int    `json:"version"`
	Name     string `json:"name"`
	Instance string `json:"instance"`
	Index    uint32 `json:"index"`
	Port     uint16 `json:"port"`
	MTU      int    `json:"mtu"`
	Refuse   string `json:"refuse,omitempty"`
}

const (
	version  = 1
	label    = "EXPORTER-softib-tunnel"
	protocol = "softib-peering"
)

// leaf is the certificate that the machine shows.
func leaf(c tls.Certificate) (*x509.Certificate, error) {
	if c.Leaf != nil {
		return c.Leaf, nil
	}
	if len(c.Certificate) == 0 {
		return nil, errors.New("an empty certificate")
	}
	return x509.ParseCertificate(c.Certificate[0])
}

// tls is what both sides of a meeting want: TLS 1.3, a certificate of the CA from each, and no shortcuts.
func (m *Machine) tls(server string) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: m.cfg.TLS.Certificates, RootCAs: m.cfg.TLS.RootCAs,
		ClientCAs: m.cfg.TLS.RootCAs, ClientAuth: tls.RequireAndVerifyClientCert, Time: m.cfg.TLS.Time,
		SessionTicketsDisabled: true, ServerName: server, NextProtos: []string{protocol},
	}
}

func (m *Machine) clock() time.Time {
	if m.cfg.TLS.Time != nil {
		return m.cfg.TLS.Time()
	}
	return time.Now()
}

func (m *Machine) hello(index uint32, mtu int) hello {
	return hello{Version: version, Name: m.cfg.Name, Instance: m.instance, Index: index, Port: m.port, MTU: mtu}
}

// dial meets a peer, which is there when it returns without an error.
func (m *Machine) dial(ctx context.Context, name, addr string) (err error) {
	ctx, cancel := context.WithTimeout(ctx, patience.For(helloWait))
	defer cancel()
	raw, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return fmt.Errorf("peering: %s at %s: %w", name, addr, explain(err, m.clock()))
	}
	c := tls.Client(raw, m.tls(name))
	stop := context.AfterFunc(ctx, func() { raw.Close() })
	defer func() {
		stop()
		if err != nil {
			raw.Close()
			if !errors.Is(err, errAlready) {
				err = fmt.Errorf("peering: %s at %s: %w", name, addr, explain(err, m.clock()))
			}
		}
	}()
	if err := c.HandshakeContext(ctx); err != nil {
		return err
	}
	end, _ := ctx.Deadline()
	if err := c.SetDeadline(end); err != nil {
		return err
	}
	index := m.index()
	ctl := newControl(c, bufio.NewReader(c))
	if err := ctl.write(frame{Kind: kindHello, Hello: ptr(m.hello(index, m.cfg.MTU))}); err != nil {
		return err
	}
	theirs, err := ctl.readHello()
	if err != nil {
		return err
	}
	if theirs.Name != name {
		return fmt.Errorf("%w: it calls itself %q", ErrName, theirs.Name)
	}
	p, err := m.newPeer(ctl, theirs, index, true)
	if err != nil {
		return err
	}
	if err := m.install(p, m.cfg.Name < name); err != nil {
		m.drop(p)
		return err
	}
	if err := ctl.write(frame{Kind: kindGo}); err != nil {
		p.end(ErrEnded, false)
		return err
	}
	return p.start()
}

// accept lets others in, so many at a time.
func (m *Machine) accept() {
	for {
		c, err := m.tcp.Accept()
		if m.stopped.Err() != nil {
			if err == nil {
				c.Close()
			}
			return
		}
		if err != nil { // of descriptors, most likely: those that leave give theirs back
			select {
			case <-time.After(20 * time.Millisecond):
			case <-m.stopped.Done():
			}
			continue
		}
		ip := c.RemoteAddr().(*net.TCPAddr).AddrPort().Addr().Unmap().WithZone("")
		m.mu.Lock()
		if m.nguests >= guestsMax || m.guests[ip] >= guestsOfEach {
			m.turned++
			m.mu.Unlock()
			c.Close()
			continue
		}
		m.nguests++
		m.guests[ip]++
		m.mu.Unlock()
		m.running.Go(func() {
			name, err := m.greet(c)
			m.mu.Lock()
			m.nguests--
			if m.guests[ip]--; m.guests[ip] == 0 {
				delete(m.guests, ip)
			}
			tell := err != nil && time.Since(m.troubled) > time.Second // noise is not worth more
			if tell {
				m.troubled = time.Now()
			}
			m.mu.Unlock()
			if tell && !errors.Is(err, errAlready) && m.stopped.Err() == nil {
				m.cfg.Handler.Trouble(name, fmt.Errorf("peering: a connection from %v: %w", c.RemoteAddr(),
					explain(err, m.clock())))
			}
		})
	}
}

// greet meets whoever has connected.
func (m *Machine) greet(raw net.Conn) (name string, err error) {
	c := tls.Server(raw, m.tls(""))
	ctl := newControl(c, bufio.NewReader(c))
	hasHello := false
	stop := context.AfterFunc(m.stopped, func() { raw.Close() })
	defer func() {
		stop()
		if err != nil {
			if hasHello { // it has proven who it is, so it may hear why
				_ = ctl.write(frame{Kind: kindHello, Hello: &hello{Refuse: err.Error()}})
			}
			raw.Close()
		}
	}()
	if err := raw.SetDeadline(time.Now().Add(patience.For(helloWait))); err != nil {
		return "", err
	}
	if err := c.HandshakeContext(m.stopped); err != nil {
		return "", err
	}
	theirs, err := ctl.readHello()
	if err != nil {
		return "", err
	}
	hasHello = true
	name = theirs.Name
	if err := c.ConnectionState().PeerCertificates[0].VerifyHostname(name); err != nil {
		return "", fmt.Errorf("it calls itself %q: %w", name, err)
	}
	if name == m.cfg.Name {
		return name, fmt.Errorf("%w: %q is the name of this machine; next: give each machine a name of its own",
			ErrName, name)
	}
	if m.cfg.Allow != nil {
		if err := m.cfg.Allow(name); err != nil {
			return name, err
		}
	}
	p, err := m.newPeer(ctl, theirs, m.index(), false)
	if err != nil {
		return name, err
	}
	decides := m.cfg.Name < name
	if decides {
		if err := m.install(p, true); err != nil {
			m.drop(p)
			return name, err
		}
	}
	hasHello = false
	err = ctl.write(frame{Kind: kindHello, Hello: ptr(m.hello(p.index, p.mtu))})
	if err == nil {
		err = ctl.readGo()
	}
	if err == nil && !decides {
		err = m.install(p, false)
	}
	if err == nil {
		err = p.start()
	}
	if err != nil {
		if decides {
			p.end(ErrEnded, false)
		} else {
			m.drop(p)
		}
		if errors.Is(err, errGone) {
			err = errAlready // the other one, who decides, has a connection
		}
	}
	return name, err
}

// index is one that no session has, and that cannot be guessed.
func (m *Machine) index() uint32 {
	for {
		var b [4]byte
		_, _ = rand.Read(b[:])
		i := binary.BigEndian.Uint32(b[:])
		if _, has := (*m.sessions.Load())[i]; !has {
			return i
		}
	}
}

// newPeer makes the session with a peer that has said hello. Its datagrams find it from now on, and it says nothing
// before it is started.
func (m *Machine) newPeer(ctl *control, h hello, index uint32, dialed bool) (*Peer, error) {
	if h.Index == 0 && h.Port == 0 || h.MTU < tunnel.MTUMin || h.MTU > tunnel.MTUMax {
		return nil, fmt.Errorf("%w: a hello with MTU %d and port %d", ErrRefused, h.MTU, h.Port)
	}
	context := make([]byte, 0, 9) // the number of the session: there is one for each TLS connection
	first, second := index, h.Index
	if !dialed {
		first, second = second, first
	}
	context = binary.BigEndian.AppendUint32(append(context, 1), first)
	context = binary.BigEndian.AppendUint32(context, second)
	state := ctl.c.ConnectionState()
	secret, err := state.ExportKeyingMaterial(label, context, 2*tunnel.SecretBytes)
	if err != nil {
		return nil, err
	}
	out, in := [tunnel.SecretBytes]byte(secret), [tunnel.SecretBytes]byte(secret[tunnel.SecretBytes:])
	if !dialed {
		out, in = in, out
	}
	remote := ctl.c.RemoteAddr().(*net.TCPAddr).AddrPort().Addr().Unmap()
	p := &Peer{m: m, name: h.Name, instance: h.Instance, control: ctl, index: index, mtu: min(h.MTU, m.cfg.MTU),
		addr: netip.AddrPortFrom(remote, h.Port), epoch: time.Now()}
	p.s, err = tunnel.New(0, tunnel.Config{SendSecret: out, RecvSecret: in, SendIndex: h.Index, RecvIndex: index,
		MTU: p.mtu, Window: m.cfg.Window, Queue: m.cfg.Window, DeadAfter: m.deadAfter(), KeepAlive: m.deadAfter() / 4})
	if err != nil {
		return nil, err
	}
	if err := p.prepare(); err != nil {
		return nil, err
	}
	m.mu.Lock()
	m.register(p, true)
	m.mu.Unlock()
	return p, nil
}

// drop forgets a peer that was not installed.
func (m *Machine) drop(p *Peer) {
	m.mu.Lock()
	m.register(p, false)
	m.mu.Unlock()
}

func (c *control) readHello() (hello, error) {
	f, err := c.read(helloMax)
	if err != nil {
		return hello{}, err
	}
	switch h := f.Hello; {
	case f.Kind != kindHello || h == nil:
		return hello{}, fmt.Errorf("%w: no hello, but %q", ErrRefused, f.Kind)
	case h.Refuse == errAlready.Error():
		return hello{}, errAlready
	case h.Refuse != "":
		return hello{}, fmt.Errorf("%w: %s", ErrRefused, h.Refuse)
	case h.Version != version:
		return hello{}, fmt.Errorf("%w: it speaks version %d of the protocol, not %d; next: the same softib on both",
			ErrRefused, h.Version, version)
	default:
		h.Name = strings.ToLower(h.Name)
		return *h, nil
	}
}

// errGone is a peer that left without going on.
var errGone = errors.New("it did not go on")

func (c *control) readGo() error {
	f, err := c.read(helloMax)
	if err != nil {
		return fmt.Errorf("%w: %w", errGone, err)
	}
	if f.Kind != kindGo {
		return fmt.Errorf("%w, but said %q", errGone, f.Kind)
	}
	return nil
}

func ptr[T any](v T) *T { return &v }
