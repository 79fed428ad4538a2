package netif

import (
	"errors"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
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
