package roce

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"

	"softib/internal/packetsock"
)

// ask says hello to who holds ports.
func ask(path string, h hello) (c *net.UnixConn, t terms, fds []int, err error) {
	fail := func(err error) (*net.UnixConn, terms, []int, error) {
		if c != nil {
			c.Close()
		}
		return nil, t, nil, fmt.Errorf("roce: %w", err)
	}
	const network = "unixpacket"
	if c, err = net.DialUnix(network, nil, &net.UnixAddr{Name: path, Net: network}); err != nil {
		return fail(err)
	}
	if cred, err := packetsock.Peer(c); err != nil || packetsock.Check(cred) != nil {
		return fail(fmt.Errorf("%s is somebody else's: %w: %w", path, ErrRefused, errors.Join(err, packetsock.ErrPeer)))
	}
	h.Version = protocolVersion
	b, err := json.Marshal(h)
	if err != nil {
		return fail(err)
	}
	if _, err := c.Write(b); err != nil {
		return fail(err)
	}
	buf, oob := make([]byte, termsMax), make([]byte, unix.CmsgSpace(4*addrsMax))
	n, oobn, _, _, err := c.ReadMsgUnix(buf, oob)
	if err != nil {
		return fail(err)
	}
	msgs, err := unix.ParseSocketControlMessage(oob[:oobn])
	for i := 0; err == nil && i < len(msgs); i++ {
		var more []int
		more, err = unix.ParseUnixRights(&msgs[i])
		fds = append(fds, more...)
	}
	for _, fd := range fds {
		unix.CloseOnExec(fd)
	}
	if err == nil {
		err = json.Unmarshal(buf[:n], &t)
	}
	if err == nil && t.Error != "" {
		err = fmt.Errorf("%w: %s", ErrRefused, t.Error)
	}
	if err == nil && h.Want == wantUse && (len(fds) != len(t.Config.Addrs) || len(fds) == 0) {
		err = fmt.Errorf("%d sockets for %d addresses", len(fds), len(t.Config.Addrs))
	}
	if err != nil {
		for _, fd := range fds {
			unix.Close(fd)
		}
		return fail(err)
	}
	return c, t, fds, nil
}

// Dial opens a device at an interface, whose port is held by who listens at a path.
func Dial(path, name string) (*Device, error) {
	c, t, fds, err := ask(path, hello{Want: wantUse, Interfaces: []string{name}})
	if err != nil {
		return nil, err
	}
	d, err := newDevice(t, fds, func() { c.Close() })
	if err != nil {
		for _, fd := range fds {
			unix.Close(fd)
		}
		c.Close()
		return nil, err
	}
	d.link.done.Go(func() {
		_, _ = c.Read(make([]byte, 1)) // it has no more to say: it ends, or we do
		select {
		case <-d.link.closing:
		default:
			d.down()
		}
	})
	return d, nil
}

// Holder is the process that holds ports.
func Holder(path string) (pid int, err error) {
	c, _, _, err := ask(path, hello{})
	if err != nil {
		return 0, err
	}
	defer c.Close()
	cred, err := packetsock.Peer(c)
	if err != nil {
		return 0, err
	}
	return int(cred.Pid), nil
}

// Keep makes sure that interfaces' ports are held for as long as the file is open, here or in a program that inherits
// it, and says what that sees.
func Keep(path string, names ...string) (*os.File, View, error) {
	c, t, _, err := ask(path, hello{Want: wantKeep, Interfaces: names})
	if err != nil {
		return nil, t.View, err
	}
	defer c.Close()
	f, err := c.File()
	return f, t.View, err
}

// Stay makes sure that interfaces' ports are held until somebody releases them.
func Stay(path string, names ...string) error { return only(path, wantStay, names) }

// Release has interfaces' ports held no longer. Programs that use them are told that they are down.
func Release(path string, names ...string) error { return only(path, wantRelease, names) }

func only(path string, w want, names []string) error {
	c, _, _, err := ask(path, hello{Want: w, Interfaces: names})
	if err == nil {
		c.Close()
	}
	return err
}
