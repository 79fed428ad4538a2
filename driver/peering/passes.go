package peering

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"
)

// Whether datagrams of somebody else's sockets pass between two machines is not said by those that pass between the
// machines' own: a firewall may know that one port. So it is tried, with sockets like those.

const (
	methodEcho = "echo"
	// echoWait is how long a datagram that is to come back is waited for, and echoEvery when the next one goes.
	echoWait  = 400 * time.Millisecond
	echoEvery = 80 * time.Millisecond
	// echoLasts is how long a machine sends back what comes.
	echoLasts = time.Second
	// passAgain is after how long it is tried again where nothing passed.
	passAgain = time.Minute
	echoBytes = 16
)

// passage is what is known of that for one peer.
type passage struct {
	mu    sync.Mutex
	is    bool
	tried time.Time
}

// echoAsked asks for a socket that sends datagrams back that begin with a nonce, and echoTold is its port.
type echoAsked struct{ Nonce []byte }

type echoTold struct{ Port uint16 }

// Passes reports whether datagrams pass between sockets of this machine and of a peer that are not the machines' own.
// The first call waits until that is known.
func (m *Machine) Passes(ctx context.Context, peer string) bool {
	p := m.Peer(peer)
	if p == nil {
		return false
	}
	p.passage.mu.Lock()
	defer p.passage.mu.Unlock()
	if !p.passage.is && time.Since(p.passage.tried) > passAgain {
		p.passage.is = p.tryEcho(ctx) == nil
		p.passage.tried = time.Now()
	}
	return p.passage.is
}

// echoSocket makes one like those of others.
func (m *Machine) echoSocket() (net.PacketConn, uint16, int, error) {
	fd, port, mtu, err := m.Socket()
	if err != nil {
		return nil, 0, 0, err
	}
	f := os.NewFile(uintptr(fd), "echo")
	defer f.Close()
	c, err := net.FilePacketConn(f)
	return c, port, mtu, err
}

// tryEcho sends datagrams as long as any until one comes back.
func (p *Peer) tryEcho(ctx context.Context) error {
	c, _, _, err := p.m.echoSocket()
	if err != nil {
		return err
	}
	defer c.Close()
	out := make([]byte, p.mtu)
	_, _ = rand.Read(out[:echoBytes])
	var told echoTold
	if err := p.control.call(ctx, p.name, methodEcho, echoAsked{out[:echoBytes]}, &told); err != nil {
		return err
	}
	to := net.UDPAddrFromAddrPort(netip.AddrPortFrom(p.addr.Addr(), told.Port))
	in := make([]byte, p.mtu)
	for end := time.Now().Add(echoWait); time.Now().Before(end); {
		if _, err := c.WriteTo(out, to); err != nil {
			return err
		}
		_ = c.SetReadDeadline(time.Now().Add(echoEvery))
		for {
			n, _, err := c.ReadFrom(in)
			if err != nil {
				break
			}
			if bytes.Equal(in[:n], out) {
				return nil
			}
		}
	}
	return fmt.Errorf("peering: %s: %w", p.name, ErrNoDatagrams)
}

// echo sends back what comes with the peer's nonce, for a moment.
func (m *Machine) echo(_ context.Context, _ string, in json.RawMessage) (any, error) {
	var q echoAsked
	if err := json.Unmarshal(in, &q); err != nil || len(q.Nonce) != echoBytes {
		return nil, fmt.Errorf("peering: a nonce of %d bytes: want %d: %w", len(q.Nonce), echoBytes, ErrRefused)
	}
	c, port, mtu, err := m.echoSocket()
	if err != nil {
		return nil, err
	}
	m.running.Go(func() {
		defer c.Close()
		defer context.AfterFunc(m.stopped, func() { c.Close() })()
		_ = c.SetReadDeadline(time.Now().Add(echoLasts))
		buf := make([]byte, mtu)
		for {
			n, from, err := c.ReadFrom(buf)
			if err != nil {
				return
			}
			if bytes.HasPrefix(buf[:n], q.Nonce) {
				_, _ = c.WriteTo(buf[:n], from)
			}
		}
	})
	return echoTold{port}, nil
}
