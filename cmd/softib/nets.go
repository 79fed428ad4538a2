package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"softib/driver/span"
	"softib/internal/patience"
	"softib/node/ipoib"
	"softib/proto/ib"
	"softib/proto/topo"
)

// nets are the networks of a fabric's hosts: a host has one for all of its programs, as long as there are any.
type nets struct {
	f     *span.Fabric
	place place

	mu     sync.Mutex
	byHost map[string]*hostNet
	closed bool
	wg     sync.WaitGroup
}

func newNets(p place, f *span.Fabric) *nets {
	return &nets{f: f, place: p, byHost: map[string]*hostNet{}}
}

// hostNet is the network of a host.
type hostNet struct {
	host  string
	mode  netMode
	users int
	// kept: it stays without programs, until softib net down.
	kept bool

	links *netRequest   // what it was made with
	ready chan struct{} // closed when it is up, or never will be
	err   error         // why it never will be
	space *os.File
	stdin io.WriteCloser // its process ends with it
	// settles counts how often the process was asked to say when nothing is left of programs that have ended.
	settles int
	ended   chan struct{}
}

// netMode is how packets travel: as datagrams, or by connections where neighbours take them (RFC 4755).
type netMode string

const (
	netDatagram  netMode = "datagram"
	netConnected netMode = "connected"
)

// MTUs of interfaces, as Linux has them. In datagram mode it is what the broadcast group's 2,048 bytes leave.
const mtuDatagram = 2048 - ipoib.HeaderSize

func (m netMode) mtu() int {
	if m == netConnected {
		return ipoib.ConnectedMTU
	}
	return mtuDatagram
}

// netWanted is what a network is to be.
type netWanted struct {
	mode netMode // any will do if it is empty
	dev  string  // the interface's name, ib0 if it is empty
	lib  string  // where softib-enter is
	user *os.File
	// space is a namespace that is there already. The network stays there without programs.
	space *os.File
}

// netDev is what interfaces are called, unless somebody calls them something else.
const netDev = "ib0"

// open finds or makes the network of a host for one more program; the caller calls release once.
func (x *nets) open(ctx context.Context, host string, want netWanted) (n *hostNet, release func(), err error) {
	mode, space := want.mode, want.space
	links, unknown := x.links(host, cmp.Or(want.dev, netDev))
	x.mu.Lock()
	n = x.byHost[host]
	if n != nil && n.users == 0 && !n.kept && (unknown != nil || space != nil || mode != "" && n.mode != mode ||
		!n.links.same(links)) {
		n = x.outlast(ctx, n)
	}
	switch {
	case x.closed:
		x.mu.Unlock()
		return nil, nil, errors.New("the fabric ends")
	case n != nil && mode != "" && n.mode != mode:
		was := n.mode
		x.mu.Unlock()
		return nil, nil, next(&usageError{fmt.Errorf("the network of %s is in %s mode, which its programs share", host,
			was)}, "--net=%s, or end its programs first", was)
	case n != nil && space != nil:
		x.mu.Unlock()
		return nil, nil, next(&usageError{fmt.Errorf("%s has a network already", host)}, "softib net down %s", host)
	case n == nil && unknown != nil:
		x.mu.Unlock()
		return nil, nil, unknown
	case n == nil:
		n = &hostNet{host: host, mode: cmp.Or(mode, netDatagram), kept: space != nil, links: links,
			ready: make(chan struct{}), ended: make(chan struct{})}
		x.byHost[host] = n
		x.wg.Go(func() { x.run(n, want) })
	}
	n.users++
	x.mu.Unlock()
	release = sync.OnceFunc(func() {
		x.mu.Lock()
		defer x.mu.Unlock()
		n.users--
		x.settle(n)
	})
	select {
	case <-n.ready:
	case <-ctx.Done():
		release()
		return nil, nil, ctx.Err()
	}
	if n.err != nil {
		release()
		return nil, nil, n.err
	}
	return n, release, nil
}

// outlastPatience is how long programs that cannot use a network wait for what others have left behind in it.
const outlastPatience = time.Second

// outlast waits, for a while, until a network that no program uses has ended, and then ends it. It returns that which
// somebody else has made meanwhile. The lock is held, but not while it waits.
func (x *nets) outlast(ctx context.Context, n *hostNet) *hostNet {
	x.mu.Unlock()
	ctx, cancel := patience.Context(ctx, outlastPatience)
	select {
	case <-n.ended:
	case <-ctx.Done():
	}
	cancel()
	x.mu.Lock()
	if n.users == 0 && !n.kept {
		x.end(n)
	}
	return x.byHost[n.host]
}

// settle has a network that nobody uses end as soon as nothing is under way of what programs have left behind. The lock
// is held.
func (x *nets) settle(n *hostNet) {
	if n.users > 0 || n.kept {
		return
	}
	if n.space != nil {
		n.settles++
		if json.NewEncoder(n.stdin).Encode(netSettle{n.settles}) == nil {
			return
		}
	}
	x.end(n)
}

// settled has the process of a network say that nothing is under way.
func (x *nets) settled(n *hostNet, question int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if n.users == 0 && !n.kept && question == n.settles {
		x.end(n)
	}
}

// end ends a network. The lock is held.
func (x *nets) end(n *hostNet) {
	x.forget(n)
	if n.stdin != nil {
		_ = n.stdin.Close()
	}
}

func (x *nets) forget(n *hostNet) {
	if x.byHost[n.host] == n {
		delete(x.byHost, n.host)
	}
}

// down ends a network that is kept, and reports whether there was one.
func (x *nets) down(host string) (bool, error) {
	x.mu.Lock()
	n := x.byHost[host]
	if n == nil || !n.kept {
		x.mu.Unlock()
		return false, nil
	}
	if n.users > 0 {
		defer x.mu.Unlock()
		return true, next(fmt.Errorf("%d programs use the network of %s", n.users, host), "end them first")
	}
	n.kept = false
	x.end(n)
	x.mu.Unlock()
	<-n.ended
	return true, nil
}

// close ends all networks.
func (x *nets) close() {
	x.mu.Lock()
	x.closed = true
	for _, n := range x.byHost {
		if n.stdin != nil {
			_ = n.stdin.Close()
		}
	}
	x.mu.Unlock()
	x.wg.Wait()
}

// run starts the process that drives a network, and waits for its end.
func (x *nets) run(n *hostNet, want netWanted) {
	defer close(n.ended)
	err := x.start(n, want)
	x.mu.Lock()
	defer x.mu.Unlock()
	x.forget(n)
	if n.space != nil {
		_ = n.space.Close()
		return
	}
	n.err = err
	close(n.ready)
}

func (x *nets) start(n *hostNet, want netWanted) error {
	q := *n.links
	q.Connected = n.mode == netConnected
	q.Links = slices.Clone(q.Links)
	for i := range q.Links {
		q.Links[i].MTU = n.mode.mtu()
	}
	q.Libraries, q.User, q.Space = want.lib, want.user != nil, want.space != nil
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	ours, theirs := os.NewFile(uintptr(pair[0]), "net"), os.NewFile(uintptr(pair[1]), "net")
	defer ours.Close()
	cmd := exec.Command(exe, netSide)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.ExtraFiles = []*os.File{theirs}
	for _, f := range []*os.File{want.user, want.space} {
		if f != nil {
			cmd.ExtraFiles = append(cmd.ExtraFiles, f)
		}
	}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	err = cmd.Start()
	theirs.Close()
	if err != nil {
		return err
	}
	defer func() { _ = cmd.Wait() }()
	x.mu.Lock()
	n.stdin = stdin
	unwanted := x.closed || x.byHost[n.host] != n
	x.mu.Unlock()
	defer stdin.Close()
	if unwanted {
		return errors.New("nobody wants it any more")
	}
	if err := json.NewEncoder(stdin).Encode(q); err != nil {
		return err
	}
	for dec := json.NewDecoder(stdout); ; {
		var r netReport
		if err := dec.Decode(&r); err != nil {
			if n.space != nil {
				return nil
			}
			return next(fmt.Errorf("the network of %s has ended at once", n.host), "softib log%s", x.place.flag())
		}
		if r.Error != "" {
			return &hint{fmt.Errorf("the network of %s: %s", n.host, r.Error), r.Next}
		}
		if r.Settled != 0 {
			x.settled(n, r.Settled)
			continue
		}
		files, err := receiveOne(pair[0])
		if err != nil {
			return err
		}
		x.mu.Lock()
		n.space = files
		close(n.ready)
		x.mu.Unlock()
	}
}

// receiveOne takes a descriptor that was sent with a byte.
func receiveOne(socket int) (*os.File, error) {
	oob := make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := unix.Recvmsg(socket, make([]byte, 1), oob, unix.MSG_CMSG_CLOEXEC)
	if err != nil {
		return nil, err
	}
	msgs, err := unix.ParseSocketControlMessage(oob[:n])
	if err != nil || len(msgs) != 1 {
		return nil, errors.New("no namespace came")
	}
	fds, err := unix.ParseUnixRights(&msgs[0])
	if err != nil || len(fds) != 1 {
		return nil, errors.New("no namespace came")
	}
	return os.NewFile(uintptr(fds[0]), "namespace"), nil
}

// Prefixes of the hosts' addresses, as live.HostIP and HostIP6 give them, and of those in other partitions.
const (
	hostBits  = 15
	hostBits6 = 64
	childBits = 23
)

// childAddrs are a host's addresses in a partition below the first. Each partition is a subnet: the number of its 15
// bits stands behind 10 in IPv4, and with the membership's bit in the IPv6 prefix of the fabric, and the host's number
// behind that. A subnet of IPv4 has room for hosts up to number 510; those behind have IPv6.
func childAddrs(ip6 netip.Addr, k ib.PKey) []netip.Prefix {
	a := ip6.As16()
	full := k | ib.PKeyFull
	a[6], a[7] = byte(full>>8), byte(full)
	addrs := []netip.Prefix{netip.PrefixFrom(netip.AddrFrom16(a), hostBits6)}
	host := 0
	for _, b := range a[8:] {
		host = host<<8 | int(b)
	}
	if host >= 1<<(32-childBits)-1 { // the last one is for broadcasts
		return addrs
	}
	n := int(k.Base())<<(32-childBits) | host
	ip4 := netip.AddrFrom4([4]byte{10, byte(n >> 16), byte(n >> 8), byte(n)})
	return append([]netip.Prefix{netip.PrefixFrom(ip4, childBits)}, addrs...)
}

// links are the interfaces of a host's network, of any mode. The interface dev is in the partition of what a port does
// without a partner, its first with full membership, and has the host's addresses. Each other partition has an
// interface below it, named as Linux names those, with addresses whose subnet is the partition.
func (x *nets) links(host, dev string) (*netRequest, error) {
	h, err := x.f.Host(host)
	if err != nil {
		return nil, err
	}
	q := &netRequest{Socket: x.place.verbs(), Host: host, Port: 1}
	for p := range h.Node().NumPorts() {
		ref := topo.PortRef{Node: h.Node().Index, Port: ib.PortNum(p + 1)}
		if x.f.PortState(ref) == ib.PortActive {
			q.Port = ref.Port
			break
		}
	}
	keys := x.f.PKeys(topo.PortRef{Node: h.Node().Index, Port: q.Port})
	home := slices.IndexFunc(keys, func(k ib.PKey) bool { return k.IsValid() && k.IsFull() })
	if home < 0 {
		home = slices.IndexFunc(keys, ib.PKey.IsValid)
	}
	if home < 0 {
		return nil, next(fmt.Errorf("port %d of %s is in no partition", q.Port, host), "softib partition show")
	}
	q.Links = []netLink{{Name: dev, PKey: keys[home], Addrs: []netip.Prefix{
		netip.PrefixFrom(h.IP(), hostBits), netip.PrefixFrom(h.IP6(), hostBits6)}}}
	for i, k := range keys {
		if i == home || !k.IsValid() || k.Base() == keys[home].Base() {
			continue
		}
		q.Links = append(q.Links, netLink{Name: fmt.Sprintf("%s.%04x", dev, uint16(k|ib.PKeyFull)), PKey: k,
			Addrs: childAddrs(h.IP6(), k)})
		if len(q.Links) == linksMax {
			break
		}
	}
	return q, nil
}

// same reports whether the interfaces of a network are these.
func (q *netRequest) same(other *netRequest) bool {
	return q.Port == other.Port && slices.EqualFunc(q.Links, other.Links, func(a, b netLink) bool {
		return a.Name == b.Name && a.PKey == b.PKey && slices.Equal(a.Addrs, b.Addrs)
	})
}

// linksMax is how many interfaces softib-enter makes for a network.
const linksMax = 16
