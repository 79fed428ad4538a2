package ibsim

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"softib/internal/patience"
	"softib/proto/ib"
	"softib/proto/mad"
)

// Config says which ibsim, and where on its fabric. Zero values are what ibsim's own
// clients assume.
type Config struct {
	// Socket begins the names of ibsim's Unix sockets: IBSIM_SOCKNAME, "sim" by default.
	Socket string
	// Server and Port are the address of an ibsim that was started with -r: IBSIM_SERVER_NAME and
	// IBSIM_SERVER_PORT, 7070 by default. Without Server, Unix sockets are used.
	Server string
	Port   uint16
	// Host is the node to be at: its id in the net file ("Hca1", "H-0002c903…") or its description: SIM_HOST. Without
	// it ibsim chooses the first node of its file.
	Host string
	// IsSM asks for the port as one with a subnet manager from the start. There is one for each node.
	IsSM bool
	// Wait makes Dial wait for an ibsim that does not run yet, as long as its context allows.
	Wait bool
	// Window limits requests on their way over UDP; 64 by default.
	Window int
}

// DefaultPort is where an ibsim with -r listens.
const DefaultPort = 7070

func (c *Config) fill() {
	if c.Socket == "" {
		c.Socket = "sim"
	}
	if c.Port == 0 {
		c.Port = DefaultPort
	}
	if c.Window <= 0 {
		c.Window = 64
	}
}

// start is the command that makes Dial work.
func (c *Config) start() string {
	if c.Server != "" {
		return fmt.Sprintf("ibsim -s -r -l %d NETFILE", c.Port)
	}
	if c.Socket != "sim" {
		return fmt.Sprintf("IBSIM_SOCKNAME=%s ibsim -s NETFILE", c.Socket)
	}
	return "ibsim -s NETFILE"
}

// ctlTimeout is how long ibsim may take over a control request if the context has no deadline. It is
// busy with one datagram at a time, each a matter of microseconds.
const ctlTimeout = 5 * time.Second

// receiveBuffer is asked for, for queues over UDP; the system may give less.
const receiveBuffer = 4 << 20

// clients counts the ports of this process, each of which needs names of its own.
var clients atomic.Uint32

// pidBits is what a process ID fits into on Linux.
const pidBits = 22

// Dial attaches to a node of a running ibsim.
func Dial(ctx context.Context, cfg Config) (*Port, error) {
	cfg.fill()
	if len(cfg.Host) >= nodeIDSize {
		return nil, fmt.Errorf("ibsim: host %q: %w: names have up to %d bytes", cfg.Host, ErrProtocol, nodeIDSize-1)
	}
	var server netip.Addr
	if cfg.Server != "" {
		addrs, err := net.DefaultResolver.LookupNetIP(ctx, "ip4", cfg.Server)
		if err != nil || len(addrs) == 0 {
			return nil, fmt.Errorf("ibsim: server %q: %w; give an IPv4 address, or a name that has one", cfg.Server,
				err)
		}
		server = addrs[0].Unmap()
	}
	tick := time.NewTicker(waitPause)
	defer tick.Stop()
	for {
		p := &Port{cfg: cfg, bell: make(chan struct{}, 1), arm: make(chan struct{}, 1), done: make(chan struct{}),
			ctlFD: -1, fd: -1}
		err := p.dial(ctx, server)
		if err == nil {
			go p.watch()
			return p, nil
		}
		p.closeSockets()
		if !cfg.Wait || !errors.Is(err, ErrNotRunning) {
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-tick.C:
		}
	}
}

// waitPause is how often Dial with Wait looks for an ibsim.
const waitPause = 20 * time.Millisecond

func (p *Port) dial(ctx context.Context, server netip.Addr) error {
	id := uint32(os.Getpid()) | clients.Add(1)<<pidBits&0x7FFF_FFFF
	name := func(format string, args ...any) unix.Sockaddr {
		// ibsim counts the terminating zero as part of the abstract name.
		return &unix.SockaddrUnix{Name: "@" + p.cfg.Socket + fmt.Sprintf(format, args...) + "\x00"}
	}
	family := unix.AF_UNIX
	ours := [2]unix.Sockaddr{name(":ctl%d", id), name(":in%d", id)}
	ctlAddr := name(":ctl")
	dataAddr := func(client uint32) unix.Sockaddr { return name(":out%d", client) }
	if server.IsValid() {
		family = unix.AF_INET
		ours = [2]unix.Sockaddr{&unix.SockaddrInet4{}, &unix.SockaddrInet4{}}
		ctlAddr = &unix.SockaddrInet4{Addr: server.As4(), Port: int(p.cfg.Port)}
		dataAddr = func(client uint32) unix.Sockaddr {
			return &unix.SockaddrInet4{Addr: server.As4(), Port: int(p.cfg.Port) + 1 + int(client)}
		}
	}
	var err error
	if p.ctlFD, p.ctlFile, err = socket(family, ours[0], "ibsim control"); err != nil {
		return err
	}
	if p.fd, p.file, err = socket(family, ours[1], "ibsim data"); err != nil {
		return err
	}
	if server.IsValid() { // ibsim finds us by our port's number
		own, err := unix.Getsockname(p.fd)
		if err != nil {
			return fmt.Errorf("ibsim: address of our socket: %w", err)
		}
		id = uint32(own.(*unix.SockaddrInet4).Port)
	}
	if err := unix.Connect(p.ctlFD, ctlAddr); err != nil {
		return p.unreachable(err)
	}
	info := clientInfo{id: id, node: p.cfg.Host}
	if p.cfg.IsSM {
		info.isSM = 1
	}
	c := ctl{typ: ctlConnect}
	info.put(&c)
	if err := p.control(ctx, &c); err != nil {
		if errors.Is(err, ErrRefused) {
			return fmt.Errorf("%w to attach to %q; is that a node's id or description in its net file, are "+
				"all of its 10 clients taken, or has the node a manager already?", ErrRefused, p.cfg.Host)
		}
		return err
	}
	info.get(&c)
	p.client, p.facts.NodeID = info.id, info.node
	if err := unix.Connect(p.fd, dataAddr(p.client)); err != nil {
		return p.unreachable(err)
	}
	return p.learn(ctx)
}

// socket makes a bound datagram socket that never blocks. The file is for waiting.
func socket(family int, addr unix.Sockaddr, name string) (int, *os.File, error) {
	fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, nil, fmt.Errorf("ibsim: socket: %w", err)
	}
	// Best effort: a smaller buffer only costs speed.
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, receiveBuffer)
	if err := unix.Bind(fd, addr); err != nil {
		unix.Close(fd)
		return -1, nil, fmt.Errorf("ibsim: bind: %w", err)
	}
	return fd, os.NewFile(uintptr(fd), name), nil
}

func (p *Port) unreachable(err error) error {
	if errors.Is(err, unix.ECONNREFUSED) || errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("ibsim: %w: nobody listens at %s; start it with: %s", ErrNotRunning, p.cfg.where(),
			p.cfg.start())
	}
	return fmt.Errorf("ibsim: connect to %s: %w", p.cfg.where(), err)
}

func (c *Config) where() string {
	if c.Server != "" {
		return fmt.Sprintf("UDP %s:%d", c.Server, c.Port)
	}
	return fmt.Sprintf("Unix socket @%s:ctl", c.Socket)
}

// control asks ibsim itself and waits for the answer, which replaces c.
func (p *Port) control(ctx context.Context, c *ctl) error {
	asked := c.typ
	c.client = p.client
	deadline, ok := ctx.Deadline()
	if limit := time.Now().Add(patience.For(ctlTimeout)); !ok || limit.Before(deadline) {
		deadline = limit
	}
	if err := p.ctlFile.SetDeadline(deadline); err != nil {
		return fmt.Errorf("ibsim: %s: %w", asked, err)
	}
	stop := context.AfterFunc(ctx, func() { _ = p.ctlFile.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if _, err := p.ctlFile.Write(c.append(nil)); err != nil {
		return p.controlFailed(ctx, asked, err)
	}
	var buf [ctlSize + 1]byte
	n, err := p.ctlFile.Read(buf[:])
	if err != nil {
		return p.controlFailed(ctx, asked, err)
	}
	if err := c.parse(buf[:n]); err != nil {
		return err
	}
	switch c.typ {
	case asked:
		return nil
	case ctlError:
		return fmt.Errorf("ibsim: %s: %w", asked, ErrRefused)
	}
	return fmt.Errorf("ibsim: %s: answered as %s: %w", asked, c.typ, ErrProtocol)
}

func (p *Port) controlFailed(ctx context.Context, asked ctlType, err error) error {
	switch {
	case ctx.Err() != nil && !errors.Is(ctx.Err(), context.DeadlineExceeded):
		return fmt.Errorf("ibsim: %s: %w", asked, ctx.Err())
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("ibsim: %s: %w at %s; was it started with -s, or \"start\" typed at its console?", asked,
			ErrNoAnswer, p.cfg.where())
	case errors.Is(err, os.ErrClosed):
		return fmt.Errorf("ibsim: %s: %w", asked, ErrClosed)
	}
	return p.unreachable(err)
}

// Facts are what ibsim says about the port that it attached us to.
type Facts struct {
	// NodeID is the node's id in the net file.
	NodeID   string
	NodeGUID ib.GUID
	PortGUID ib.GUID
	PortNum  ib.PortNum
	NodeType ib.NodeType
	LID      ib.LID
	LMC      uint8
	SMLID    ib.LID
	State    ib.PortState
	PKeys    []ib.PKey
}

// learn asks for the facts.
func (p *Port) learn(ctx context.Context) error {
	c := ctl{typ: ctlGetNodeInfo}
	if err := p.control(ctx, &c); err != nil {
		return err
	}
	var node mad.NodeInfo
	if _, err := node.Parse(c.data[:]); err != nil {
		return fmt.Errorf("ibsim: NodeInfo: %w", err)
	}
	c = ctl{typ: ctlGetPortInfo, n: 1}
	if err := p.control(ctx, &c); err != nil {
		return err
	}
	var port mad.PortInfo
	if _, err := port.Parse(c.data[:]); err != nil {
		return fmt.Errorf("ibsim: PortInfo: %w", err)
	}
	c = ctl{typ: ctlGetPKeys, n: ctlDataSize}
	if err := p.control(ctx, &c); err != nil {
		return err
	}
	f := Facts{
		NodeID: p.facts.NodeID, NodeGUID: node.NodeGUID, PortGUID: node.NodeGUID, PortNum: port.LocalPortNum,
		NodeType: node.NodeType,
		LID:      port.LID, LMC: port.LMC, SMLID: port.MasterSMLID, State: port.PortState,
	}
	if f.NodeType != ib.NodeSwitch { // ibsim numbers the ports of a channel adapter so, whatever its file says
		f.PortGUID += ib.GUID(f.PortNum)
	}
	for i := 0; i < ctlDataSize; i += 2 {
		if k := ib.PKey(uint16(c.data[i])<<8 | uint16(c.data[i+1])); k.IsValid() {
			f.PKeys = append(f.PKeys, k)
		}
	}
	p.facts = f
	return nil
}
