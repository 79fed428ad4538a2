package roce

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"softib/proto/ib"
)

// Watch keeps ports what their interfaces are, until ctx ends: addresses come and go, interfaces are set up and down,
// cables are pulled. The kernel says that something has changed (rtnetlink), and what it is now is looked at. Each
// change is said, and what could not be done; then changed is called.
func (x *Interfaces) Watch(ctx context.Context, changed func()) error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("roce: watching interfaces: %w", err)
	}
	f := os.NewFile(uintptr(fd), "rtnetlink")
	defer f.Close()
	defer context.AfterFunc(ctx, func() { _ = f.Close() })()
	const groups = 1<<(unix.RTNLGRP_LINK-1) | 1<<(unix.RTNLGRP_IPV4_IFADDR-1) | 1<<(unix.RTNLGRP_IPV6_IFADDR-1)
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: groups}); err != nil {
		return fmt.Errorf("roce: watching interfaces: %w", err)
	}
	buf := make([]byte, 1<<16)
	for {
		x.look(changed) // at first too: something may have changed since it was held
		// More than it keeps may have happened, which is as good as one thing.
		if _, err := f.Read(buf); err != nil && !errors.Is(err, unix.ENOBUFS) {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("roce: watching interfaces: %w", err)
		}
		// What happens together comes together.
		for {
			if _, _, err := unix.Recvfrom(fd, buf, unix.MSG_DONTWAIT); err != nil && !errors.Is(err, unix.ENOBUFS) {
				break
			}
		}
	}
}

// look makes all ports what their interfaces are.
func (x *Interfaces) look(changed func()) {
	any := false
	x.All(func(_ ib.PortNum, s *Server) {
		c, err := FromInterface(s.name)
		if err != nil { // it is gone, or has no address
			was := s.Config()
			if c.Index == 0 {
				c = was
				c.Addrs, c.Down = nil, true
			}
		}
		before := s.GIDs()
		did, err := s.refresh(c)
		if err != nil {
			x.say(err.Error())
		}
		if did {
			any = true
			x.say(s.describe(before))
		}
	})
	if any {
		changed()
	}
}

// describe is a line about what a port has become.
func (s *Server) describe(before []ib.GID) string {
	c := s.Config()
	info := c.portInfo()
	list := []string{fmt.Sprintf("%s is %v, MTU %d", s.name, info.PortState, info.NeighborMTU.Bytes())}
	now := s.GIDs()
	for i := range now {
		was := ib.GID{}
		if i < len(before) {
			was = before[i]
		}
		switch {
		case was == now[i]:
		case now[i].IsZero():
			list = append(list, fmt.Sprintf("it has lost %v, GID %d", netip.AddrFrom16(was).Unmap(), i))
		default:
			list = append(list, fmt.Sprintf("it has %v, GID %d", netip.AddrFrom16(now[i]).Unmap(), i))
		}
	}
	return strings.Join(slices.Compact(list), "; ")
}
