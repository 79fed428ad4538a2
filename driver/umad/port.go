package umad

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"softib/node/madrpc"
	"softib/proto/ib"
	"softib/proto/mad"
)

const (
	offTID      = 8
	timedOutLen = mad.HeaderSize // bytes of a timed-out request that come back
)

// call names a request that has a cookie: the kernel changes the upper half of its transaction ID.
type call struct {
	agent madrpc.AgentID
	tid   uint32
	class mad.Class
}

// Port is an open port.
type Port struct {
	sys  System
	info LocalPort
	dev  Device
	hdr  int // size of the header in this device's reads and writes

	mu      sync.Mutex
	cookies map[call]uint64
	agents  map[madrpc.AgentID]madrpc.Registration
	out     []byte

	in []byte // Recv's
}

// Open opens a port of this machine; see System.Find for what an empty name and port 0 mean.
func Open(ctx context.Context, ca string, port int) (*Port, error) {
	return System{}.Open(ctx, ca, port)
}

// GUID is the port's.
func (p *Port) GUID() ib.GUID { return p.info.PortGUID }

// Open opens a port.
func (s System) Open(ctx context.Context, ca string, port int) (*Port, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	info, err := s.Find(ca, port)
	if err != nil {
		return nil, err
	}
	path := s.devPath(info.Device)
	dev, err := s.open(path)
	if err != nil {
		return nil, openError(path, err)
	}
	p := &Port{
		sys: s, info: info, dev: dev, hdr: hdrSize, in: make([]byte, hdrSize+mad.Size),
		cookies: make(map[call]uint64), agents: make(map[madrpc.AgentID]madrpc.Registration),
	}
	switch err := dev.Ioctl(ioctlEnablePKey, nil); {
	case err == nil:
	case errors.Is(err, unix.ENOTTY): // before 2.6.24
		p.hdr = hdrSizeOld
	default:
		return nil, errors.Join(fmt.Errorf("umad: %s: enable P_Key index: %w", path, err), dev.Close())
	}
	return p, nil
}

func openError(path string, err error) error {
	switch {
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("umad: %w; run as root, or let your group have %s", err, path)
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("umad: %w; the device is not there though the kernel has it: in a container, pass %s in", err,
			path)
	}
	return fmt.Errorf("umad: %w", err)
}

// LocalPort is what the machine says about the port now.
func (p *Port) LocalPort() (LocalPort, error) {
	return p.sys.port(p.info.CA, p.info.Port, p.info.Device)
}

// Register makes an agent. The kernel does not say who has a class already; that somebody has is madrpc.ErrInUse.
func (p *Port) Register(r madrpc.Registration) (madrpc.AgentID, error) {
	if err := r.Check(); err != nil {
		return 0, err
	}
	arg := register2(&r)
	err := p.dev.Ioctl(ioctlRegister2, arg)
	if errors.Is(err, unix.ENOTTY) {
		arg = register1(&r)
		err = p.dev.Ioctl(ioctlRegister, arg)
	}
	what := fmt.Sprintf("umad: %s: register class 0x%02x (%s) version %d", p.info.Device, uint8(r.Class), r.Class,
		r.ClassVersion)
	switch {
	case err == nil:
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.EBUSY):
		return 0, fmt.Errorf("%s: %w: %w by another program; is a subnet manager or an agent running? end it, "+
			"or register without methods to send only",
			what, err, madrpc.ErrInUse)
	case errors.Is(err, unix.ENOMEM):
		return 0, fmt.Errorf("%s: %w: the kernel allows 32 agents; unregister one or open the port again", what, err)
	default:
		return 0, fmt.Errorf("%s: %w", what, err)
	}
	id := madrpc.AgentID(native.Uint32(arg[regID:]))
	p.mu.Lock()
	p.agents[id] = r
	p.mu.Unlock()
	return id, nil
}

// Unregister ends an agent. What it still awaits does not come back.
func (p *Port) Unregister(id madrpc.AgentID) error {
	var arg [4]byte
	native.PutUint32(arg[:], uint32(id))
	if err := p.dev.Ioctl(ioctlUnregister, arg[:]); err != nil {
		return fmt.Errorf("umad: %s: unregister agent %d: %w", p.info.Device, id, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.agents, id)
	for c := range p.cookies {
		if c.agent == id {
			delete(p.cookies, c)
		}
	}
	return nil
}

// Send gives a message to the kernel.
func (p *Port) Send(id madrpc.AgentID, m madrpc.Message) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	r, ok := p.agents[id]
	if !ok {
		return fmt.Errorf("umad: %s: send by agent %d: %w; register first", p.info.Device, id, madrpc.ErrAgent)
	}
	if len(m.Data) < mad.HeaderSize || !r.RMPP && len(m.Data) > mad.Size {
		return fmt.Errorf("umad: %s: message of %d bytes by agent %d: %w: want %d to %d, or more with RMPP",
			p.info.Device, len(m.Data), id, madrpc.ErrLength, mad.HeaderSize, mad.Size)
	}
	resp := madrpc.IsResponse(m.Data)
	if resp {
		m.Timeout = 0
	}
	p.out = appendHeader(p.out[:0], p.hdr, uint32(id), &m)
	p.out = append(p.out, m.Data...)
	if n := mad.RMPPClassOff - len(m.Data); n > 0 {
		p.out = append(p.out, make([]byte, n)...) // the kernel takes no less, and pads the rest
	}
	if len(m.Data) > mad.Size {
		p.out[p.hdr+mad.RMPPOff+2] |= mad.RMPPActive
	}
	c := call{id, binary.BigEndian.Uint32(m.Data[offTID+4:]), mad.Class(m.Data[1])}
	awaits := m.Timeout > 0
	if awaits {
		if _, ok := p.cookies[c]; ok {
			return fmt.Errorf("umad: %s: transaction 0x%08x of class 0x%02x (%s): %w; wait for its end or use another",
				p.info.Device, c.tid, uint8(c.class), c.class, madrpc.ErrDuplicate)
		}
		p.cookies[c] = m.Cookie // before the response can be there
	}
	if _, err := p.dev.Write(p.out); err != nil {
		if awaits {
			delete(p.cookies, c)
		}
		return fmt.Errorf("umad: %s: send by agent %d: %w", p.info.Device, id, err)
	}
	return nil
}

// Forget drops the cookie of a request that nobody waits for any more, by the lower half of its transaction ID. A
// response that comes nevertheless has cookie 0.
func (p *Port) Forget(id madrpc.AgentID, c mad.Class, tid uint32) {
	p.mu.Lock()
	delete(p.cookies, call{id, tid, c})
	p.mu.Unlock()
}

// messageMax is the longest message that a device is believed to have.
const messageMax = 1 << 30

// Recv waits for what the kernel delivers.
func (p *Port) Recv(ctx context.Context) (madrpc.Delivery, error) {
	if err := ctx.Err(); err != nil {
		return madrpc.Delivery{}, err
	}
	if ctx.Done() != nil {
		if err := p.dev.SetReadDeadline(time.Time{}); err != nil {
			return madrpc.Delivery{}, fmt.Errorf("umad: %s: %w", p.info.Device, err)
		}
		done := make(chan struct{})
		stop := context.AfterFunc(ctx, func() {
			defer close(done)
			_ = p.dev.SetReadDeadline(time.Unix(1, 0)) // wakes the read
		})
		defer func() {
			if !stop() {
				<-done // or it would end the next read
			}
		}()
	}
	n, err := p.dev.Read(p.in)
	for tries := 0; errors.Is(err, unix.ENOSPC) && tries < 3; tries++ {
		// The header came nevertheless, and says how long the message is. It is still there to be read.
		need := int(native.Uint32(p.in[offLength:]))
		if need <= len(p.in) || need > messageMax {
			return madrpc.Delivery{}, fmt.Errorf("umad: %s: message of %d bytes for a buffer of %d, want more "+
				"and at most %d: %w",
				p.info.Device, need, len(p.in), messageMax, err)
		}
		p.in = make([]byte, need)
		n, err = p.dev.Read(p.in)
	}
	if err != nil {
		if ctx.Err() != nil && errors.Is(err, os.ErrDeadlineExceeded) {
			return madrpc.Delivery{}, ctx.Err()
		}
		return madrpc.Delivery{}, fmt.Errorf("umad: %s: %w", p.info.Device, err)
	}
	return p.delivery(p.in[:n])
}

func (p *Port) delivery(b []byte) (madrpc.Delivery, error) {
	k, err := parse(b, p.hdr)
	if err != nil {
		return madrpc.Delivery{}, err
	}
	d := madrpc.Delivery{Agent: madrpc.AgentID(k.id), Env: k.env, Data: k.data}
	switch {
	case unix.Errno(k.status) == unix.ETIMEDOUT:
		d.Kind = madrpc.TimedOut
		d.Data = d.Data[:timedOutLen]
	case k.status != 0:
		return d, fmt.Errorf("umad: %s: agent %d: the kernel reports %w", p.info.Device, k.id, unix.Errno(k.status))
	case madrpc.IsResponse(k.data):
		d.Kind = madrpc.Response
	default:
		d.Kind = madrpc.Unsolicited
		return d, nil
	}
	c := call{d.Agent, binary.BigEndian.Uint32(k.data[offTID+4:]), mad.Class(k.data[1])}
	p.mu.Lock()
	d.Cookie = p.cookies[c]
	delete(p.cookies, c)
	p.mu.Unlock()
	return d, nil
}

// ClaimSM marks the port as a subnet manager's, as long as what it returns is open. One program can have it.
func (p *Port) ClaimSM() (io.Closer, error) {
	path := p.sys.devPath("issm" + p.info.Device[len("umad"):])
	d, err := p.sys.open(path)
	if errors.Is(err, unix.EAGAIN) {
		return nil, fmt.Errorf("umad: %w: another subnet manager has this port; end it first", err)
	}
	if err != nil {
		return nil, openError(path, err)
	}
	return d, nil
}

// Close closes the device; the kernel then ends its agents, and a Recv that waits fails.
func (p *Port) Close() error { return p.dev.Close() }
