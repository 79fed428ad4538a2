package dropin

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Link is an interface of a network that is to be made.
type Link struct {
	Name  string
	MTU   int
	Addrs []netip.Prefix
}

// Network is the network of a host: a namespace, and what its interfaces send and receive. The files are the caller's
// to close.
type Network struct {
	Space *os.File
	// News is a netlink socket, which tells of the addresses of the namespace and their changes.
	News *os.File
	// Groups4 and Groups6 are the kernel's lists of multicast groups, as /proc/net has them.
	Groups4, Groups6 *os.File
	// TCP4 and TCP6 are its lists of connections, as /proc/net has them.
	TCP4, TCP6 *os.File
	// Links are TUN devices, in the order in which they were asked for, with a struct virtio_net_hdr in front of each
	// packet.
	Links []*os.File
}

// networkFiles is how many come before the links.
const networkFiles = 6

// NewNetwork makes a network with interfaces: in a namespace of its own, inside the user namespace of a fabric if that
// is not nil, or in one that is there already.
func (s Set) NewNetwork(user, space *os.File, links []Link) (n Network, err error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return n, fmt.Errorf("dropin: socketpair: %w", err)
	}
	ours, theirs := os.NewFile(uintptr(pair[0]), "network"), os.NewFile(uintptr(pair[1]), "network")
	defer ours.Close()
	args := []string{"-m", "3"}
	files := []*os.File{theirs}
	for _, f := range []struct {
		flag string
		file *os.File
	}{{"-u", user}, {"-w", space}} {
		if f.file != nil {
			args = append(args, f.flag, strconv.Itoa(3+len(files)))
			files = append(files, f.file)
		}
	}
	for _, l := range links {
		words := []string{l.Name, strconv.Itoa(l.MTU)}
		for _, a := range l.Addrs {
			words = append(words, a.String())
		}
		args = append(args, "-i", strings.Join(words, ","))
	}
	cmd := exec.Command(s.Path(enterer), args...)
	var why bytes.Buffer
	cmd.Stderr, cmd.ExtraFiles = &why, files
	err = cmd.Run()
	theirs.Close()
	if err != nil {
		return n, fmt.Errorf("dropin: %w: %s", ErrNoSpace,
			strings.TrimSpace(strings.ReplaceAll(why.String()+" "+err.Error(), "\n", " ")))
	}
	got, err := receiveFiles(pair[0], networkFiles+len(links))
	if err != nil {
		return n, err
	}
	return Network{Space: got[0], News: got[1], Groups4: got[2], Groups6: got[3], TCP4: got[4], TCP6: got[5],
		Links: got[networkFiles:]}, nil
}

// receiveFiles takes want descriptors that were sent with one byte.
func receiveFiles(socket, want int) ([]*os.File, error) {
	oob := make([]byte, unix.CmsgSpace(4*want))
	_, n, _, _, err := unix.Recvmsg(socket, make([]byte, 1), oob, unix.MSG_CMSG_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("dropin: recvmsg: %w", err)
	}
	msgs, err := unix.ParseSocketControlMessage(oob[:n])
	if err != nil {
		return nil, fmt.Errorf("dropin: %w", err)
	}
	var files []*os.File
	for i := range msgs {
		fds, err := unix.ParseUnixRights(&msgs[i])
		if err != nil {
			continue
		}
		for _, fd := range fds {
			files = append(files, os.NewFile(uintptr(fd), "network"))
		}
	}
	if len(files) != want {
		for _, f := range files {
			f.Close()
		}
		return nil, errors.New("dropin: softib-enter has not sent all of the network")
	}
	return files, nil
}
