package umad

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"softib/node/madrpc"
	"softib/proto/ib"
	"softib/proto/mad"
)

// openPort is a port that a program has open: its connection, its session, and its
// agents under the numbers that the program knows.
type openPort struct {
	conn    *net.UnixConn
	session Session
	token   uint64
	name    string

	mu     sync.Mutex
	agents [agentMax]struct {
		id   madrpc.AgentID
		used bool
	}
	numbers map[madrpc.AgentID]uint32

	// What could not be sent goes back by a goroutine of its own: the one that reads
	// must never wait for a program that does not read.
	failed chan record

	ended chan struct{} // closed after the session

	taking atomic.Bool // from before a record leaves the socket until the session has it
}

// failedMax is how many records that could not be sent may wait for a program to read; more are lost.
const failedMax = 1024

func newOpenPort(c *net.UnixConn, session Session, token uint64) *openPort {
	return &openPort{
		conn: c, session: session, token: token,
		numbers: make(map[madrpc.AgentID]uint32), failed: make(chan record, failedMax),
		ended: make(chan struct{}),
	}
}

// run carries datagrams until the program hangs up or the session ends.
func (p *openPort) run() {
	ctx, cancel := context.WithCancel(context.Background())
	var wait sync.WaitGroup
	wait.Go(func() {
		p.deliverAll(ctx)
		p.conn.Close() // wakes the reader
	})
	wait.Go(func() {
		for r := range p.failed {
			if p.write(&r, nil) != nil {
				break
			}
		}
		for range p.failed {
		}
	})
	p.sendAll()
	cancel()
	close(p.failed)
	p.conn.Close() // wakes whoever writes
	wait.Wait()
}

const settleMax = time.Second

// settle waits until what the program has sent so far is taken. It reports whether the program has hung up. What comes
// by another connection is not to overtake that; but it waits no longer than settleMax for a program that goes on
// sending.
func (p *openPort) settle() (hungUp bool) {
	raw, err := p.conn.SyscallConn()
	if err != nil {
		return true
	}
	for end := time.Now().Add(settleMax); time.Now().Before(end); {
		var n int
		var peek [1]byte
		cerr := raw.Control(func(fd uintptr) {
			n, _, err = syscall.Recvfrom(int(fd), peek[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		})
		switch {
		case cerr != nil, err == nil && n == 0, err != nil && err != syscall.EAGAIN && err != syscall.EINTR:
			return true
		case err == syscall.EAGAIN && !p.taking.Load():
			return false
		}
		select {
		case <-p.ended:
			return true
		case <-time.After(50 * time.Microsecond):
		}
	}
	return false
}

func (p *openPort) register(req *request) (uint32, error) {
	reg, err := registration(req)
	if err != nil {
		return 0, err
	}
	reg.Name = p.name
	// Held over both steps: a datagram for the agent may arrive before its number is known.
	p.mu.Lock()
	defer p.mu.Unlock()
	for n := range p.agents {
		if p.agents[n].used {
			continue
		}
		id, err := p.session.Register(reg)
		if err != nil {
			return 0, err
		}
		p.agents[n].id, p.agents[n].used = id, true
		p.numbers[id] = uint32(n)
		return uint32(n), nil
	}
	return 0, fmt.Errorf("umad: %w: the port has %d; close it or unregister one", errAgents, agentMax)
}

func (p *openPort) unregister(n uint32) error {
	p.settle()
	p.mu.Lock()
	defer p.mu.Unlock()
	if n >= agentMax || !p.agents[n].used {
		return fmt.Errorf("umad: %d: %w", n, errAgent)
	}
	p.agents[n].used = false
	delete(p.numbers, p.agents[n].id)
	return p.session.Unregister(p.agents[n].id)
}

func (p *openPort) agent(n uint32) (madrpc.AgentID, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n >= agentMax || !p.agents[n].used {
		return 0, fmt.Errorf("umad: %d: %w", n, errAgent)
	}
	return p.agents[n].id, nil
}

// sendAll takes the program's datagrams until it hangs up.
func (p *openPort) sendAll() {
	raw, err := p.conn.SyscallConn()
	if err != nil {
		return
	}
	buf := make([]byte, recordHead+mad.Size+1)
	oob := make([]byte, syscall.CmsgSpace(4))
	for {
		var n, oobn int
		rerr := raw.Read(func(fd uintptr) bool {
			p.taking.Store(true)
			for {
				n, oobn, _, _, err = syscall.Recvmsg(int(fd), buf, oob, syscall.MSG_CMSG_CLOEXEC)
				if err != syscall.EINTR {
					break
				}
			}
			if err == syscall.EAGAIN {
				p.taking.Store(false)
				return false
			}
			return true
		})
		if rerr != nil || err != nil || n == 0 || !p.take(buf[:n], oob[:oobn]) {
			p.taking.Store(false)
			return
		}
		p.taking.Store(false)
	}
}

// take sends what a record holds; false if no library that speaks this protocol has written it.
func (p *openPort) take(b, oob []byte) bool {
	file, err := fileOf(oob)
	if err != nil {
		return false
	}
	r, err := parseRecord(b)
	if err != nil {
		if file != nil {
			file.Close()
		}
		return false
	}
	if err := p.send(&r, file); err != nil {
		r.status = uint32(errnoOf(err))
		r.data = append([]byte(nil), r.data[:min(len(r.data), mad.HeaderSize)]...)
		r.length = uint32(recordHead + len(r.data))
		select {
		case p.failed <- r:
		default:
		}
	}
	return true
}

func (p *openPort) send(r *record, file *os.File) error {
	data, err := wholeOf(r, file)
	if err != nil {
		return err
	}
	id, err := p.agent(r.agent)
	if err != nil {
		return err
	}
	return p.session.Send(id, madrpc.Message{
		Env: r.env, Data: data, Timeout: ib.Time(r.timeoutMS) * ib.Millisecond, Retries: int(r.retries),
	})
}

// fileOf is the file that came with a record, or nil.
func fileOf(oob []byte) (*os.File, error) {
	if len(oob) == 0 {
		return nil, nil
	}
	msgs, err := syscall.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, err
	}
	for i := range msgs {
		fds, err := syscall.ParseUnixRights(&msgs[i])
		if err == nil && len(fds) == 1 {
			return os.NewFile(uintptr(fds[0]), "datagram"), nil
		}
		for _, fd := range fds {
			syscall.Close(fd)
		}
	}
	return nil, fmt.Errorf("umad: %w: it comes with something else than a file", errNotRecord)
}

// wholeOf is a record's datagram with what lies in the file, which it closes.
func wholeOf(r *record, file *os.File) ([]byte, error) {
	if file == nil {
		return r.data, nil
	}
	defer file.Close()
	n := int64(r.length) - recordHead
	if n <= int64(len(r.data)) || n > longMax {
		return nil, fmt.Errorf("umad: %w: %d bytes are announced and %d in the record; want at most %d",
			madrpc.ErrLength, n, len(r.data), longMax)
	}
	whole := make([]byte, n)
	at := copy(whole, r.data)
	// At offsets: a descriptor of a pipe or a socket fails here and does not make the server wait.
	if _, err := file.ReadAt(whole[at:], 0); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("umad: %w: %w", madrpc.ErrLength, err)
	} else if err != nil {
		return nil, fmt.Errorf("umad: %w: the file has less than the %d bytes that are announced", madrpc.ErrLength, n)
	}
	return whole, nil
}

// deliverAll hands over what comes for the program's agents.
func (p *openPort) deliverAll(ctx context.Context) {
	buf := make([]byte, 0, recordHead+mad.Size)
	for {
		d, err := p.session.Recv(ctx)
		if err != nil {
			return
		}
		p.mu.Lock()
		n, known := p.numbers[d.Agent]
		p.mu.Unlock()
		if !known {
			continue
		}
		r := record{agent: n, env: d.Env, data: d.Data}
		switch d.Kind {
		case madrpc.Canceled:
			continue
		case madrpc.TimedOut:
			r.status = uint32(syscall.ETIMEDOUT)
		case madrpc.Aborted:
			r.status = uint32(syscall.EIO)
		}
		if r.status != 0 {
			// Linux gives back the header and nothing more.
			r.data = r.data[:min(len(r.data), mad.HeaderSize)]
		}
		r.length = uint32(recordHead + len(r.data))
		if p.write(&r, buf) != nil {
			return
		}
	}
}

// write hands one record to the program; buf is used for it if it is large enough.
func (p *openPort) write(r *record, buf []byte) error {
	b := appendRecord(buf[:0], r)
	if len(r.data) <= mad.Size {
		_, err := p.conn.Write(b)
		return err
	}
	file, err := os.CreateTemp("", "softib-mad-*")
	if err != nil {
		return err
	}
	defer file.Close()
	if err := os.Remove(file.Name()); err != nil {
		return err
	}
	if _, err := file.Write(r.data[mad.Size:]); err != nil {
		return err
	}
	cerr := onFD(file, func(fd int) {
		_, _, err = p.conn.WriteMsgUnix(b, syscall.UnixRights(fd), nil)
	})
	return errors.Join(cerr, err)
}
