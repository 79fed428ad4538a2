package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"softib/capi/dropin"
	"softib/capi/hostfiles"
	"softib/capi/umad"
	"softib/driver/live"
	"softib/driver/span"
	"softib/internal/patience"
	"softib/operate/control"
	"softib/proto/ib"
)

// world is what programs on hosts of a fabric see: the hosts' files, in namespaces of the programs.
type world struct {
	f     *span.Fabric
	place place
	trees *hostfiles.Trees
	nets  *nets

	once   sync.Once
	set    dropin.Set
	spaces *dropin.Spaces // nil without the libraries
	err    error
}

// adapterFiles is what adapters say of themselves in files.
var adapterFiles = hostfiles.Config{Device: umad.DeviceName, Model: umad.Model, Board: "softib", Firmware: version,
	Hardware: umad.Hardware}

func newWorld(p place, f *span.Fabric) (*world, error) {
	cfg := adapterFiles
	err := errors.New("no folder")
	for _, dir := range p.files() {
		var trees *hostfiles.Trees
		if trees, err = hostfiles.New(f.Live(), dir, cfg); err == nil {
			return &world{f: f, place: p, trees: trees, nets: newNets(p, f)}, nil
		}
	}
	return nil, err
}

// files are folders for the files that programs see on their hosts, the best first. In memory they are made ten times
// as fast as on a disk, and they are rewritten every second; the runtime folder is there as a rule.
func (p place) files() []string {
	own, err := filepath.Abs(filepath.Join(p.dir, p.name+".files"))
	if err != nil {
		return nil
	}
	var st unix.Statfs_t
	if unix.Statfs(p.dir, &st) == nil && st.Type == unix.TMPFS_MAGIC || unix.Statfs(memory, &st) != nil ||
		st.Type != unix.TMPFS_MAGIC {
		return []string{own}
	}
	prefix := filepath.Join(memory, fmt.Sprintf("softib-%d-", os.Getuid()))
	_ = hostfiles.Sweep(prefix + "*") // memory that fabrics have left which were killed
	sum := sha256.Sum256([]byte(own))
	return []string{prefix + fmt.Sprintf("%x", sum[:6]), own}
}

// memory is where Linux has a file system in memory for everybody.
const memory = "/dev/shm"

// warm does ahead what the first program would wait for.
func (w *world) warm() {
	for _, h := range w.f.Hosts() {
		if _, err := w.f.Host(h.Name()); err != nil {
			continue // another machine has it
		}
		if _, _, release, err := w.open(h.Name(), false); err == nil {
			release()
		}
		return
	}
}

// close lets go of the namespaces, which end with the last program in them, and removes the files.
func (w *world) close() {
	w.once.Do(func() { w.err = errors.New("the fabric ends") })
	w.nets.close()
	if w.spaces != nil {
		_ = w.spaces.Close()
		if len(w.place.running()) <= 1 { // this one
			// Libraries that a former softib left.
			_ = dropin.Clean(w.place.libraries(), filepath.Base(w.set.Dir))
		}
	}
	_ = w.trees.Close()
}

// entry is what softib exec needs to know of a host. The user namespace comes with it, as a descriptor.
type entry struct {
	GUID ib.GUID `json:"guid"`
	// IP is the host's address; a switch has none.
	IP netip.Addr `json:"ip,omitzero"`
	// Tree has the host's files; empty if they cannot be shown, and Why says why. As it is sent it is relative to the
	// runtime folder if it is in there, which a container may have elsewhere.
	Tree string `json:"tree,omitempty"`
	Why  string `json:"why,omitempty"`
	// RoCE are the Ethernet interfaces that the host is, if it is no adapter of a fabric.
	RoCE string `json:"roce,omitempty"`
	// Net: the last descriptor is the network that the program is to be in.
	Net bool `json:"net,omitempty"`
}

// open readies the namespaces for a program on a host, unless it is to be plain. release is to be called when it has
// ended.
func (w *world) open(host string, plain bool) (e entry, user *os.File, release func(), err error) {
	n := w.f.Graph().ByName(host)
	if n == nil {
		return e, nil, nil, fmt.Errorf("%w: %q", hostfiles.ErrNoHost, host)
	}
	h, err := w.f.Host(host)
	if errors.Is(err, live.ErrElsewhere) {
		return e, nil, nil, next(&usageError{err}, "run it there, or: softib exec --on %s %s -- CMD",
			w.f.Where(n.Index), host)
	}
	e.GUID, release = n.GUID, func() {}
	if h != nil {
		e.IP = h.IP()
	}
	if plain {
		return e, nil, release, nil
	}
	w.once.Do(func() {
		if w.set, w.err = dropin.Ready(w.place.libraries()); w.err == nil {
			w.spaces = dropin.NewSpaces(w.set)
		}
	})
	if err = w.err; err == nil {
		if e.Tree, release, err = w.trees.Open(host); err == nil {
			if user, err = w.spaces.User(e.Tree); err != nil {
				release()
			}
		}
	}
	if err != nil {
		// The program runs all the same.
		e.Tree, e.Why, release = "", err.Error(), func() {}
	}
	return e, user, release, nil
}

// enterPatience is how long softib-enter may take to tell of the namespace.
const enterPatience = 10 * time.Second

// enterRequest is for the files of a host, with Plain for none.
type enterRequest struct {
	Host  string `json:"host"`
	Plain bool   `json:"plain,omitempty"`
	// Net asks for the host's network, and Mode for how its packets travel, if that matters.
	Net  bool    `json:"net,omitempty"`
	Mode netMode `json:"mode,omitempty"`
}

// enter answers softib exec, and keeps the host's files fresh until the program and all that it started have ended.
func (s *server) enter(ctx context.Context, q enterRequest, r *control.Reply[entry]) error {
	e, user, release, err := s.world.open(q.Host, q.Plain)
	if errors.Is(err, hostfiles.ErrNoHost) {
		return s.noNode(q.Host)
	}
	if err != nil {
		return err
	}
	var files []*os.File
	if user != nil {
		files = append(files, user)
	}
	if q.Net {
		n, leave, err := s.world.network(ctx, q, e, user)
		if err != nil {
			release()
			return err
		}
		e.Net = true
		files = append(files, n.space)
		without := release
		release = func() { leave(); without() }
	}
	r.Hush() // what the client becomes reads no lines
	said := e
	if rel, err := filepath.Rel(s.world.place.dir, e.Tree); err == nil && filepath.IsLocal(rel) {
		said.Tree = rel
	}
	if err := r.SayFiles(said, files...); err != nil || e.Tree == "" {
		release()
		return err
	}
	conn := r.Conn
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	_ = conn.SetReadDeadline(time.Now().Add(patience.For(enterPatience)))
	_, files, err = control.ReadFiles(conn, make([]byte, 1))
	if err != nil || len(files) != 1 {
		for _, f := range files {
			f.Close()
		}
		release() // it did not get that far
		return nil
	}
	// If nobody tells of its end the host's files stay fresh for ever.
	_ = s.world.spaces.Watch(files[0], release)
	return nil
}

// network is the host's, for one more program.
func (w *world) network(ctx context.Context, q enterRequest, e entry, user *os.File) (*hostNet, func(), error) {
	if e.Tree == "" {
		return nil, nil, next(fmt.Errorf("a network takes namespaces: %s", e.Why), "softib exec without --net")
	}
	return w.nets.open(ctx, q.Host, netWanted{mode: q.Mode, lib: w.set.Dir, user: user})
}

// enter asks the fabric how a program gets to see a host. The connection stays open for softib-enter. The descriptors
// are the user namespace and the network, each if there is one.
func (p place) enter(ctx context.Context, q enterRequest) (e entry, user, network *os.File, conn *net.UnixConn,
	err error) {
	c, err := p.dial(ctx)
	if err != nil {
		return e, nil, nil, nil, err
	}
	conn = c.(*net.UnixConn)
	e, files, err := opEnter.First(ctx, conn, q)
	if err != nil {
		conn.Close()
		return entry{}, nil, nil, nil, p.failed(err)
	}
	if e.Net && len(files) > 0 {
		network = files[len(files)-1]
		files = files[:len(files)-1]
	}
	if len(files) > 0 {
		user = files[0]
	}
	if e.Tree != "" && !filepath.IsAbs(e.Tree) {
		e.Tree, _ = filepath.Abs(filepath.Join(p.dir, e.Tree)) // what is empty has no files
	}
	if _, err := os.Stat(e.Tree); e.Tree != "" && err != nil {
		e.Why = fmt.Sprintf("%v; next: in a container, mount that folder too, or start the fabric with "+
			"XDG_RUNTIME_DIR in memory, as /run/user/UID is", err)
		e.Tree = ""
	}
	return e, user, network, conn, nil
}
