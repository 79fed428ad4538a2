package ibsim

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"softib/proto/mad"
)

// Port is a port of ibsim's fabric that we are attached to. Its methods may be called from any goroutine;
// none but SetIsSM, Refresh and Close waits for anything.
type Port struct {
	cfg    Config
	client uint32

	ctlMu   sync.Mutex // one control request at a time
	ctlFD   int
	ctlFile *os.File
	facts   Facts // guarded by mu once Dial has returned

	mu       sync.Mutex
	fd       int // of file, for calls that never wait
	file     *os.File
	closed   bool
	raw      [packetSize]byte
	counters Counters
	// onWay counts requests over UDP whose answer is due; lastHeard is when one came.
	onWay     int
	lastHeard time.Time

	bell chan struct{}
	arm  chan struct{} // the socket was found empty: watch it
	done chan struct{} // the watcher has ended
}

// Counters count what a port has seen.
type Counters struct {
	Sent, Received uint64
	Busy           uint64 // sends that found the queue full
	Undeliverable  uint64 // requests that came back
	Bad            uint64 // datagrams of another size
}

// windowForgets is when requests on their way count as lost, so that a window that lost its datagrams opens again.
const windowForgets = time.Second

// Facts are what ibsim said about the port, when it was attached or at the latest Refresh.
func (p *Port) Facts() Facts {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.facts
}

// Counters are the port's counts so far.
func (p *Port) Counters() Counters {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.counters
}

// Refresh asks again for the facts: a LID changes when a manager sets it.
func (p *Port) Refresh(ctx context.Context) (Facts, error) {
	p.ctlMu.Lock()
	defer p.ctlMu.Unlock()
	fresh := Port{cfg: p.cfg, client: p.client, ctlFile: p.ctlFile, facts: Facts{NodeID: p.Facts().NodeID}}
	if err := fresh.learn(ctx); err != nil {
		return Facts{}, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.facts = fresh.facts
	return p.facts, nil
}

// SetIsSM says that a subnet manager runs here, or does not any more. Only a port with one is given requests that
// ibsim does not answer itself.
func (p *Port) SetIsSM(on bool) error {
	p.ctlMu.Lock()
	defer p.ctlMu.Unlock()
	c := ctl{typ: ctlSetIsSM, n: 4}
	if on {
		native.PutUint32(c.data[:], 1)
	}
	return p.control(context.Background(), &c)
}

// Send sends a datagram. It never waits: an error that is ErrBusy means to receive, or to wait for the bell, and
// to try again.
func (p *Port) Send(env *mad.Envelope, m *[mad.Size]byte) error {
	v := mad.View(m[:])
	request := !v.Method().IsResponse()
	if request && v.TID()>>48 != 0 {
		return fmt.Errorf("ibsim: request 0x%016x: %w: ibsim overwrites the upper 16 bits; want 0 there", v.TID(),
			ErrTID)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return fmt.Errorf("ibsim: send: %w", ErrClosed)
	}
	if p.cfg.Server != "" && request && !p.windowOpen() {
		p.counters.Busy++
		return ErrBusy
	}
	putPacket(&p.raw, env, m)
	_, err := unix.Write(p.fd, p.raw[:])
	switch {
	case err == nil:
		p.counters.Sent++
		if request {
			p.onWay++
		}
		return nil
	case errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.ENOBUFS):
		p.counters.Busy++
		return ErrBusy
	}
	return p.unreachable(err)
}

// windowOpen reports whether one more request may go over UDP.
func (p *Port) windowOpen() bool {
	if p.onWay < p.cfg.Window {
		if p.onWay == 0 {
			p.lastHeard = time.Now()
		}
		return true
	}
	if time.Since(p.lastHeard) < windowForgets {
		return false
	}
	p.onWay, p.lastHeard = 0, time.Now()
	return true
}

// Recv takes what has come, up to len(out), without waiting. When it takes less, the bell will ring for what comes
// next.
func (p *Port) Recv(out []Packet) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for n < len(out) {
		if p.closed {
			return n, fmt.Errorf("ibsim: receive: %w", ErrClosed)
		}
		size, err := unix.Read(p.fd, p.raw[:])
		if err != nil {
			if errors.Is(err, unix.EAGAIN) {
				select {
				case p.arm <- struct{}{}:
				default:
				}
				return n, nil
			}
			if errors.Is(err, unix.EINTR) {
				continue
			}
			return n, p.unreachable(err)
		}
		if p.take(size, &out[n]) {
			n++
		}
	}
	return n, nil
}

// take reads the datagram in raw and reports whether it is one for us.
func (p *Port) take(size int, out *Packet) bool {
	if size != packetSize {
		p.counters.Bad++
		return false
	}
	status := getPacket(&p.raw, out)
	v := mad.View(out.Data[:])
	response := v.Method().IsResponse()
	if response || status == statusNoWay {
		p.onWay = max(p.onWay-1, 0)
		if p.cfg.Server != "" {
			p.lastHeard = time.Now()
		}
	}
	if status != 0 {
		p.counters.Undeliverable++
		return false
	}
	p.counters.Received++
	if response && v.TID()>>48 == uint64(p.client) {
		// ibsim put its number for us there.
		binary.BigEndian.PutUint16(out.Data[offTID:], 0)
	}
	return true
}

// offTID is where a datagram's transaction ID begins.
const offTID = 8

// Bell is sent to when something has come after Recv found nothing more. One value may stand for many datagrams.
func (p *Port) Bell() <-chan struct{} { return p.bell }

func (p *Port) ring() {
	select {
	case p.bell <- struct{}{}:
	default:
	}
}

// watch rings the bell when the socket, found empty, has something again.
func (p *Port) watch() {
	defer close(p.done)
	conn, err := p.file.SyscallConn()
	if err != nil {
		return
	}
	var b [1]byte
	for range p.arm {
		err := conn.Read(func(fd uintptr) bool {
			_, _, err := unix.Recvfrom(int(fd), b[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
			return !errors.Is(err, syscall.EAGAIN)
		})
		if err != nil {
			return
		}
		p.ring()
	}
}

// Close detaches from ibsim.
func (p *Port) Close() error {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil
	}
	p.closed = true
	p.mu.Unlock()
	p.ctlMu.Lock()
	defer p.ctlMu.Unlock()
	err := p.control(context.Background(), &ctl{typ: ctlDisconnect})
	p.closeSockets()
	close(p.arm)
	<-p.done
	p.ring()
	if errors.Is(err, ErrNotRunning) {
		return nil // it went first
	}
	return err
}

func (p *Port) closeSockets() {
	for _, f := range []*os.File{p.file, p.ctlFile} {
		if f != nil {
			f.Close()
		}
	}
}
