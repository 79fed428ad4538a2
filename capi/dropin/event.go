package dropin

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// parseEvent reads the head of an event of inotify(7), whose bytes are all there.
func parseEvent(b []byte) unix.InotifyEvent {
	return unix.InotifyEvent{
		Wd: int32(binary.NativeEndian.Uint32(b)), Mask: binary.NativeEndian.Uint32(b[4:]),
		Cookie: binary.NativeEndian.Uint32(b[8:]), Len: binary.NativeEndian.Uint32(b[12:]),
	}
}
