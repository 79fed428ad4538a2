package umad

import (
	"io"
	"os"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Device is an open umad or issm device. Reads block until there is something, the deadline
// is over or the device is closed. Errors are those of the system calls, for errors.Is with
// unix.Errno.
type Device interface {
	io.ReadWriteCloser
	// Ioctl passes arg, a structure of the kernel's, or none if arg is empty. The kernel may change it.
	Ioctl(cmd uint32, arg []byte) error
	SetReadDeadline(time.Time) error
}

// openDevice opens a device of this machine. It is opened without blocking, so that the runtime waits
// on it as on a socket.
func openDevice(path string) (Device, error) {
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	return linuxDevice{f}, nil
}

type linuxDevice struct{ *os.File }

func (d linuxDevice) Ioctl(cmd uint32, arg []byte) error {
	c, err := d.SyscallConn()
	if err != nil {
		return err
	}
	var errno unix.Errno
	err = c.Control(func(fd uintptr) {
		var p unsafe.Pointer
		if len(arg) > 0 {
			p = unsafe.Pointer(&arg[0])
		}
		_, _, errno = unix.Syscall(unix.SYS_IOCTL, fd, uintptr(cmd), uintptr(p))
	})
	if err != nil {
		return err
	}
	if errno != 0 {
		return errno
	}
	return nil
}
