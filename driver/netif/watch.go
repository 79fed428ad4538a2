package netif

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Namespace is what tells of a network namespace, from the outside.
type Namespace struct {
	// News is a netlink socket that gets news of addresses.
	News *os.File
	// Groups4 and Groups6 are its /proc/net/igmp and igmp6.
	Groups4, Groups6 *os.File
	// TCP4 and TCP6 are its /proc/net/tcp and tcp6.
	TCP4, TCP6 *os.File
}

// groupsPause is how long multicast groups stay unknown of which the kernel tells nothing.
const groupsPause = 5 * time.Second

// Watch tells interfaces, by their names in the namespace, which addresses and multicast groups they have there, until
// ctx ends or the namespace cannot be asked any more.
func (s Namespace) Watch(ctx context.Context, all map[string]*Interface) error {
	defer context.AfterFunc(ctx, func() { _ = s.News.SetReadDeadline(time.Now()) })()
	groups := make(chan struct{})
	defer func() { <-groups }()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		defer close(groups)
		s.watchGroups(ctx, all)
	}()
	for {
		addrs, news, err := s.addrs()
		if err == nil {
			for name, n := range all {
				n.SetAddrs(ctx, addrs[name])
			}
			if !news {
				err = s.change()
			}
		}
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("netif: addresses of the namespace: %w", err)
		}
	}
}

// watchGroups looks at the lists of groups whenever a host reports a change, and now and then.
func (s Namespace) watchGroups(ctx context.Context, all map[string]*Interface) {
	rung := make(chan struct{}, 1)
	for _, n := range all {
		go func() {
			for {
				select {
				case <-ctx.Done():
					return
				case <-n.listens:
				}
				select {
				case rung <- struct{}{}:
				default:
				}
			}
		}()
	}
	tick := time.NewTicker(groupsPause)
	defer tick.Stop()
	for {
		found := map[string][]netip.Addr{}
		for _, l := range []struct {
			f     *os.File
			parse func([]byte) map[string][]netip.Addr
		}{{s.Groups4, parseIGMP}, {s.Groups6, parseIGMP6}} {
			if text, err := reread(l.f); err == nil {
				for name, a := range l.parse(text) {
					found[name] = append(found[name], a...)
				}
			}
		}
		for name, n := range all {
			n.SetGroups(ctx, found[name])
		}
		select {
		case <-ctx.Done():
			return
		case <-rung:
		case <-tick.C:
		}
	}
}

// reread reads a file of /proc from its start.
func reread(f *os.File) ([]byte, error) {
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	return io.ReadAll(f)
}

// parseIGMP reads /proc/net/igmp: a line for each interface, and below it one for each group, in hex and in the
// machine's byte order.
func parseIGMP(text []byte) map[string][]netip.Addr {
	all := map[string][]netip.Addr{}
	name := ""
	for in := bufio.NewScanner(bytes.NewReader(text)); in.Scan(); {
		line := in.Bytes()
		words := bytes.Fields(line)
		switch {
		case len(words) == 0:
		case line[0] != '\t' && line[0] != ' ':
			name = ""
			if len(words) > 1 {
				name = string(bytes.TrimSuffix(words[1], []byte{':'}))
			}
		case name != "":
			if v, err := strconv.ParseUint(string(words[0]), 16, 32); err == nil {
				var b [4]byte
				binary.NativeEndian.PutUint32(b[:], uint32(v))
				if a := netip.AddrFrom4(b); a.IsMulticast() {
					all[name] = append(all[name], a)
				}
			}
		}
	}
	return all
}

// parseIGMP6 reads /proc/net/igmp6: a line for each group of each interface.
func parseIGMP6(text []byte) map[string][]netip.Addr {
	all := map[string][]netip.Addr{}
	for in := bufio.NewScanner(bytes.NewReader(text)); in.Scan(); {
		words := bytes.Fields(in.Bytes())
		if len(words) < 3 {
			continue
		}
		var b [16]byte
		if n, err := hex.Decode(b[:], words[2][:min(len(words[2]), 32)]); err != nil || n != len(b) {
			continue
		}
		if a := netip.AddrFrom16(b); a.IsMulticast() {
			all[string(words[1])] = append(all[string(words[1])], a)
		}
	}
	return all
}

// addrs asks for the addresses of all interfaces that packets may come to, by name. It says whether there are news that
// may have come after the list, so that another is needed.
func (s Namespace) addrs() (all map[string][]netip.Prefix, news bool, err error) {
	byIndex := map[uint32][]netip.Prefix{}
	news, err = s.dump(syscall.RTM_GETADDR, func(m *syscall.NetlinkMessage) {
		if p, index, ok := parseAddr(m); ok {
			byIndex[index] = append(byIndex[index], p)
		}
	})
	if err != nil {
		return nil, false, err
	}
	// Names come second: the kernel says that an address is its own before it has made the route by which packets reach
	// it, but holds a lock until that is there, and tells of interfaces only with the same lock.
	names := map[uint32]string{}
	more, err := s.dump(syscall.RTM_GETLINK, func(m *syscall.NetlinkMessage) {
		if m.Header.Type != syscall.RTM_NEWLINK || len(m.Data) < syscall.SizeofIfInfomsg {
			return
		}
		if list, err := syscall.ParseNetlinkRouteAttr(m); err == nil {
			for _, a := range list {
				if a.Attr.Type == syscall.IFLA_IFNAME {
					names[binary.NativeEndian.Uint32(m.Data[4:])] = string(bytes.TrimRight(a.Value, "\x00"))
				}
			}
		}
	})
	if err != nil {
		return nil, false, err
	}
	all = map[string][]netip.Prefix{}
	for index, list := range byIndex { // tidy: order-free
		all[names[index]] = list
	}
	return all, news || more, nil
}

// parseAddr reads an address of an interface out of a message, unless the kernel has yet to make it its own. It does
// that with every IPv6 address, some time after it was set, by the thread of a workqueue, also where it asks nobody for
// duplicates, as on a TUN device. Until then it drops what is sent there, and sends from another address, ::1 even: who
// answered for it here would have others lose packets. IFA_LOCAL is the address where there are two.
func parseAddr(m *syscall.NetlinkMessage) (p netip.Prefix, index uint32, ok bool) {
	if m.Header.Type != syscall.RTM_NEWADDR || len(m.Data) < syscall.SizeofIfAddrmsg {
		return p, 0, false
	}
	// An optimistic one (RFC 4429) is in use from the start.
	if m.Data[2]&(unix.IFA_F_TENTATIVE|unix.IFA_F_OPTIMISTIC) == unix.IFA_F_TENTATIVE {
		return p, 0, false
	}
	list, err := syscall.ParseNetlinkRouteAttr(m)
	if err != nil {
		return p, 0, false
	}
	for _, a := range list {
		if a.Attr.Type != syscall.IFA_LOCAL && (a.Attr.Type != syscall.IFA_ADDRESS || ok) {
			continue
		}
		addr, is := netip.AddrFromSlice(a.Value)
		if is && int(m.Data[1]) <= addr.BitLen() {
			p, ok = netip.PrefixFrom(addr, int(m.Data[1])), true
		}
	}
	return p, binary.NativeEndian.Uint32(m.Data[4:]), ok
}

// dumpSeq is the number of questions; news have none.
const dumpSeq = 1

// dump asks for a list, and says whether news have come in between: what they tell of may be in this list or not.
func (s Namespace) dump(what int, each func(*syscall.NetlinkMessage)) (news bool, err error) {
	q := make([]byte, 20) // a header and struct rtgenmsg, which is any family's
	ne := binary.NativeEndian
	ne.PutUint32(q, uint32(len(q)))
	ne.PutUint16(q[4:], uint16(what))
	ne.PutUint16(q[6:], syscall.NLM_F_REQUEST|syscall.NLM_F_DUMP)
	ne.PutUint32(q[8:], dumpSeq)
	if _, err := s.News.Write(q); err != nil {
		return false, err
	}
	b := make([]byte, 64<<10)
	for {
		n, err := s.News.Read(b)
		if err != nil {
			if errors.Is(err, unix.ENOBUFS) { // there were more than there is room for
				news = true
				continue
			}
			return false, err
		}
		all, err := syscall.ParseNetlinkMessage(b[:n])
		if err != nil {
			return false, err
		}
		for i := range all {
			m := &all[i]
			switch {
			case m.Header.Seq != dumpSeq:
				news = true
			case m.Header.Type == syscall.NLMSG_DONE:
				return news, nil
			case m.Header.Type == syscall.NLMSG_ERROR:
				return false, errors.New("the kernel refuses to list them")
			default:
				each(m)
			}
		}
	}
}

// change waits for news.
func (s Namespace) change() error {
	_, err := s.News.Read(make([]byte, 64<<10))
	if errors.Is(err, unix.ENOBUFS) {
		return nil
	}
	return err
}
