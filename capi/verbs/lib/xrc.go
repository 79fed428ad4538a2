package main

// #include "../clib/exports.h"
import "C"

import (
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"softib/node/hca"
	"softib/proto/ib"
)

// inode names an XRC domain that is opened by way of a file. The adapter is this process's own, so
// the domain is shared among its contexts, not with other processes.
type inode struct {
	dev, ino uint64
	of       *shared // the domains of each adapter are its own
}

// domain is an XRC domain with those who opened it.
type domain struct {
	xrcd  *hca.XRCD
	opens int
	fd    int // keeps the inode's number from being given out again; -1 without a file
	key   inode
}

// domains are the open ones.
var domains = struct {
	sync.Mutex
	byInode map[inode]*domain
	all     map[*hca.XRCD]*domain
}{byInode: map[inode]*domain{}, all: map[*hca.XRCD]*domain{}}

//export softib_open_xrcd
func softib_open_xrcd(context uint32, fd, oflags int32, xrcd *C.uint32_t) int32 {
	c := table.contexts.get(context)
	if c == nil {
		return einval
	}
	domains.Lock()
	defer domains.Unlock()
	d, err := findDomain(c, int(fd), oflags)
	if err != nil {
		return errnoOf(err)
	}
	if d.xrcd == nil {
		d.xrcd = c.dev.Enter().OpenXRCD()
		c.dev.LeaveQuiet()
		domains.all[d.xrcd] = d
		if d.fd >= 0 {
			domains.byInode[d.key] = d
		}
	}
	d.opens++
	h := table.xrcds.put(&object[hca.XRCD]{tracked{ctx: c}, d.xrcd})
	if h == 0 {
		closeDomain(c, d)
		return enomem
	}
	*xrcd = C.uint32_t(h)
	return 0
}

// findDomain is the domain that a file stands for, a new one without xrcd where there is none and
// the flags of open(2) allow to make one.
func findDomain(c *contextObj, fd int, oflags int32) (*domain, error) {
	if fd == -1 {
		return &domain{fd: -1}, nil
	}
	var st syscall.Stat_t
	if err := syscall.Fstat(fd, &st); err != nil {
		return nil, err
	}
	key := inode{uint64(st.Dev), st.Ino, c.shared}
	if d := domains.byInode[key]; d != nil {
		if oflags&syscall.O_EXCL != 0 {
			return nil, syscall.EINVAL
		}
		return d, nil
	}
	if oflags&syscall.O_CREAT == 0 {
		return nil, syscall.EAGAIN // what the kernel says
	}
	own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return &domain{fd: own, key: key}, nil
}

// closeDomain takes one opening back, and the domain itself if it was the last.
func closeDomain(c *contextObj, d *domain) error {
	if d.opens == 1 {
		h := c.dev.Enter()
		err := h.CloseXRCD(d.xrcd)
		c.dev.LeaveQuiet()
		if err != nil {
			return err
		}
		delete(domains.all, d.xrcd)
		if d.fd >= 0 {
			delete(domains.byInode, d.key)
			syscall.Close(d.fd)
		}
	}
	d.opens--
	return nil
}

//export softib_close_xrcd
func softib_close_xrcd(xrcd uint32) int32 {
	o := table.xrcds.get(xrcd)
	if o == nil {
		return einval
	}
	domains.Lock()
	defer domains.Unlock()
	err := closeDomain(o.ctx, domains.all[o.it])
	if err == nil {
		table.xrcds.drop(xrcd)
	}
	return errnoOf(err)
}

//export softib_open_qp
func softib_open_qp(xrcd, num uint32, made *C.struct_softib_made) int32 {
	x := table.xrcds.get(xrcd)
	if x == nil || num > uint32(ib.QPNMask) {
		return einval
	}
	return create(x.ctx, &table.qps, &qpObj{}, made, func(h *hca.HCA) (*hca.QP, error) {
		q := h.QP(ib.QPN(num))
		if q == nil || q.Type() != hca.XRCRecv || q.XRCD() != x.it {
			return nil, hca.ErrInvalid
		}
		return q, nil
	}, func(*hca.HCA, *hca.QP) error { return nil })
}
