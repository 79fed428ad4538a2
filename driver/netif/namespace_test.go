package netif

import (
	"errors"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"softib/internal/patience"
)

// inNamespace does something in a network namespace of its own, with a netlink socket of there.
func inNamespace(t *testing.T, do func(s Namespace)) {
	t.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine, and the namespace with it
		defer close(done)
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			done <- err
			return
		}
		fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_ROUTE)
		if err != nil {
			done <- err
			return
		}
		news := os.NewFile(uintptr(fd), "news")
		defer news.Close()
		if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK,
			Groups: 1<<(unix.RTNLGRP_IPV4_IFADDR-1) | 1<<(unix.RTNLGRP_IPV6_IFADDR-1)}); err != nil {
			done <- err
			return
		}
		do(Namespace{News: news})
	}()
	switch err := <-done; {
	case errors.Is(err, unix.EPERM):
		t.Skip("an ordinary user makes no network namespace")
	case err != nil:
		t.Fatal(err)
	}
}

// ip changes the namespace that the thread is in, or tells of it.
func ip(t *testing.T, words string) string {
	t.Helper()
	out, err := exec.Command("/usr/sbin/ip", strings.Fields(words)...).CombinedOutput()
	if err != nil {
		t.Errorf("ip %s: %v: %s", words, err, out)
	}
	return string(out)
}

// No change of addresses is missed that comes while they are listed.
func TestNews(t *testing.T) {
	inNamespace(t, func(s Namespace) {
		for i, words := range []string{"addr add 198.18.0.1/15 dev lo", "addr add 198.18.0.2/15 dev lo"} {
			ip(t, words)
			if _, news, err := s.addrs(); err != nil || !news {
				t.Errorf("news that come with the list are not told of: %v", err)
			}
			if all, news, err := s.addrs(); err != nil || news || len(all["lo"]) != i+1 {
				t.Errorf("then there are %v, news %v, %v", all, news, err)
			}
		}
	})
}

// openTun has an interface carry.
func openTun(name string) (fd int, err error) {
	r, err := unix.NewIfreq(name)
	if err != nil {
		return -1, err
	}
	r.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
	if fd, err = unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC, 0); err != nil {
		return -1, err
	}
	if err = unix.IoctlIfreq(fd, unix.TUNSETIFF, r); err != nil {
		unix.Close(fd)
	}
	return fd, err
}

// An address counts from when packets reach it. A TUN device that has been told to look for duplicates does so when
// somebody has it open; one that has not been told leaves its addresses to a workqueue, which is the same in short.
func TestTentative(t *testing.T) {
	inNamespace(t, func(s Namespace) {
		ip(t, "tuntap add dev ib0 mode tun")
		ip(t, "link set ib0 up arp on")
		if err := os.WriteFile("/proc/sys/net/ipv6/conf/ib0/accept_dad", []byte("1"), 0); err != nil {
			t.Error(err)
		}
		ip(t, "addr add 198.18.0.1/15 dev ib0")
		ip(t, "addr add fd53::1/64 dev ib0")
		all, news, err := s.addrs()
		if len(all["ib0"]) != 1 || all["ib0"][0].String() != "198.18.0.1/15" || err != nil {
			t.Errorf("an address that the kernel does not use: %v, %v: %s", all, err, ip(t, "addr"))
		}
		fd, err := openTun("ib0")
		if err != nil {
			t.Errorf("opening ib0: %v", err)
			return
		}
		defer unix.Close(fd)
		want := netip.MustParsePrefix("fd53::1/64")
		if err := s.News.SetReadDeadline(time.Now().Add(patience.For(10 * time.Second))); err != nil {
			t.Error(err)
		}
		for !slices.Contains(all["ib0"], want) {
			if !news {
				err = s.change()
			}
			if err == nil {
				all, news, err = s.addrs()
			}
			if err != nil {
				t.Errorf("%v does not come: %v: %s", want, err, ip(t, "addr"))
				return
			}
		}
		if route := ip(t, "route get fd53::1"); !strings.HasPrefix(route, "local") {
			t.Errorf("an address to which packets do not come: %s", route)
		}
	})
}
