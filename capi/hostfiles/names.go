package hostfiles

import (
	"bytes"
	"fmt"
	"os"
	"regexp"
	"time"

	"softib/driver/live"
)

// systemHosts is the machine's own file of names.
const systemHosts = "/etc/hosts"

// nameShape is what can stand in a file of names (RFC 1123); nodes from a dump may be called anything.
var nameShape = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?$`)

// names is the file of names that all hosts of a fabric have: theirs, then the machine's own.
type names struct {
	path    string
	ours    []byte
	written []byte
	changed time.Time // when the machine's own did, at the last look
}

func newNames(path string, hosts []*live.Host) *names {
	var b bytes.Buffer
	b.WriteString("# hosts of the fabric, for rdma_cm and softib exec --net; no interface of the machine has them\n")
	for _, h := range hosts {
		if nameShape.MatchString(h.Name()) {
			// A name of its own for IPv6, as Debian's ip6-localhost: getaddrinfo likes to give that address first, and
			// a server that listens for IPv4, as most do, does not hear who comes by it.
			fmt.Fprintf(&b, "%s\t%s\n%s\tip6-%s\n", h.IP(), h.Name(), h.IP6(), h.Name())
		}
	}
	b.WriteByte('\n')
	return &names{path: path, ours: b.Bytes()}
}

// refresh writes the file if it is not there or the machine's own has changed. It is written in place, since it is
// mounted over another by itself.
func (n *names) refresh() error {
	var when time.Time
	if st, err := os.Stat(systemHosts); err == nil {
		when = st.ModTime()
	}
	if n.written != nil && when.Equal(n.changed) {
		return nil
	}
	system, err := os.ReadFile(systemHosts)
	if err != nil {
		system = nil // a machine without one
	}
	text := append(bytes.Clone(n.ours), system...)
	if bytes.Equal(text, n.written) {
		n.changed = when
		return nil
	}
	f, err := os.OpenFile(n.path, os.O_WRONLY|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.WriteAt(text, 0); err != nil {
		return err
	}
	if err := f.Truncate(int64(len(text))); err != nil {
		return err
	}
	n.written, n.changed = text, when
	return nil
}
