package roce

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"

	"golang.org/x/sys/unix"

	"softib/driver/endpoint"
	"softib/internal/packetsock"
)

// ask says hello to who holds ports, with descriptors.
func ask(path string, h hello, with ...int) (c *net.UnixConn, t terms, fds []int, err error) {
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
	if _, _, err := c.WriteMsgUnix(b, unix.UnixRights(with...), nil); err != nil {
		return fail(err)
	}
	if t, fds, err = listen(c); err != nil {
		return fail(err)
	}
	return c, t, fds, nil
}

// listen takes the next record of who holds ports.
func listen(c *net.UnixConn) (t terms, fds []int, err error) {
	buf := make([]byte, termsMax)
	n, fds, err := receive(c, buf)
	if err == nil {
		err = json.Unmarshal(buf[:n], &t)
	}
	if err == nil && t.Error != "" {
		err = fmt.Errorf("%w: %s", ErrRefused, t.Error)
	}
	if err != nil {
		closeFDs(fds)
		return t, nil, err
	}
	return t, fds, nil
}

// receive takes a record, and the descriptors that come with it.
func receive(c *net.UnixConn, buf []byte) (n int, fds []int, err error) {
	oob := make([]byte, unix.CmsgSpace(4*tableLength))
	n, oobn, _, _, err := c.ReadMsgUnix(buf, oob)
	if err != nil {
		return n, nil, err
	}
	if n == 0 {
		return n, nil, io.EOF
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
	return n, fds, err
}

// Dial opens a device at an interface, whose port is held by who listens at a path. Warn is called, in a goroutine,
// with a line for whoever uses the program when there is something that only a person can mend.
func Dial(path, name string, warn func(line string)) (*Device, error) {
	a, fd, err := newAccount()
	if err != nil {
		return nil, err
	}
	c, t, fds, err := ask(path, hello{Want: wantUse, Interfaces: []string{name}}, fd)
	unix.Close(fd)
	if err != nil {
		endpoint.Unmap(a.mem)
		return nil, err
	}
	d, err := newDevice(t, fds, a)
	if err != nil {
		c.Close()
		return nil, err
	}
	d.release = func() { c.Close() }
	d.Enter()
	d.link.warn = func(line string) {
		go func() {
			warn(line)
			_, _ = c.Write([]byte(line)[:min(len(line), warningBytes)])
		}()
	}
	d.LeaveQuiet()
	d.link.done.Go(func() {
		for {
			t, fds, err := listen(c)
			if err != nil {
				break // it ends, or we do
			}
			d.hear(&t.State, fds)
		}
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

// List is which interfaces' ports are held.
func List(path string) ([]Held, error) {
	c, t, _, err := ask(path, hello{Want: wantHeld})
	if err == nil {
		c.Close()
	}
	return t.Held, err
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
