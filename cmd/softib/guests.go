package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"slices"
	"strconv"
	"strings"

	"softib/capi/hostfiles"
	"softib/internal/packetsock"
	"softib/internal/rundir"
	"softib/operate/control"
	"softib/operate/manager"
	"softib/operate/manager/tenant"
	"softib/proto/ib"
	"softib/proto/topo"
)

// guests are users other than the fabric's owner, who may run programs on the hosts of their tenants and do nothing
// else. They have doors of their own, in a folder that they can reach; what is behind the owner's they never see. Nil
// is a fabric that is not shared.
type guests struct {
	place  place
	group  string
	rights *packetsock.Rights

	f     *fabric
	book  *tenant.Book
	hosts *manager.Enforcer
	ops   *control.Server
}

// newGuests readies what a shared fabric needs, if it is to be one.
func newGuests(p place, o *upOptions) (*guests, error) {
	if o.shared == "" {
		return nil, nil
	}
	if o.noSM {
		return nil, next(&usageError{errors.New("--shared wants a manager that keeps tenants apart, and --no-sm " +
			"starts none")}, "softib up --shared %s", o.shared)
	}
	gid, err := groupID(o.shared)
	if err != nil {
		return nil, next(&usageError{fmt.Errorf("--shared: %w", err)}, "getent group lists the machine's groups")
	}
	mine, err := os.Getgroups()
	if err == nil && os.Geteuid() != 0 && gid != os.Getegid() && !slices.Contains(mine, gid) {
		return nil, next(&usageError{fmt.Errorf("--shared %s: you are not in that group, and cannot give it a socket",
			o.shared)}, "id lists your groups")
	}
	x := &guests{group: o.shared}
	if x.place, err = p.forOthers(); err != nil {
		return nil, err
	}
	if longest := x.place.rdmacm(); len(longest) > socketPathMax {
		return nil, next(fmt.Errorf("%s is %d bytes long: a socket's path has at most %d", longest, len(longest),
			socketPathMax), "use a shorter --name, or set SOFTIB_SHARED_DIR to a folder with a shorter path")
	}
	x.rights = &packetsock.Rights{Group: gid, May: x.may}
	o.http.closed = true
	return x, nil
}

// groupID finds a group of this machine by name or number.
func groupID(name string) (int, error) {
	id := name
	if g, err := user.LookupGroup(name); err == nil {
		id = g.Gid
	}
	n, err := strconv.ParseUint(id, 10, 31)
	if err != nil {
		return 0, fmt.Errorf("this machine has no group %q", name)
	}
	return int(n), nil
}

// admit lets them use a fabric that is up, as its tenants are now and will be.
func (x *guests) admit(f *fabric, m *manager.Manager) {
	if x != nil {
		x.f, x.book, x.hosts = f, m.Tenants(), m.Enforcer()
		f.others = x
	}
}

// serve answers softib exec of others.
func (x *guests) serve(ctx context.Context, s *server) (err error) {
	if x == nil {
		return nil
	}
	if err := os.Remove(x.place.socket()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if x.ops, err = control.Listen(x.place.socket(), x.rights); err != nil {
		return err
	}
	x.ops.Others = next(fmt.Errorf("fabric %s is shared with you to run programs on it: this is for its owner, %s",
		x.f.name, x.place.owner), "softib exec%s HOST -- CMD", x.place.flag())
	control.Handle(x.ops, opEnter, func(_ context.Context, q enterRequest, r *control.Reply[entry]) error {
		if err := x.rights.Check(r.Cred, q.Host); err != nil {
			return err
		}
		if q.Net {
			return next(errors.New("networks of hosts are for the fabric's owner"), "softib exec without --net")
		}
		e, _, _, err := s.world.open(q.Host, true)
		if errors.Is(err, hostfiles.ErrNoHost) {
			return s.noNode(q.Host)
		}
		if err != nil {
			return err
		}
		// The owner's namespaces are not for others to enter, nor are the files in them.
		e.Why = "the fabric is another user's"
		return r.Say(e)
	})
	x.ops.Serve(ctx)
	return nil
}

func (x *guests) close() {
	if x != nil && x.ops != nil {
		x.ops.Close()
		_ = os.Remove(x.place.socket())
	}
}

// may says why a user may not use a host, or with no name any.
func (x *guests) may(uid uint32, host string) error {
	mine, who := hostsOf(uid, x.book.State(), x.hosts.HostOf), rundir.UserName(uid)
	switch {
	case len(mine) == 0:
		return fmt.Errorf("user %s %w: no host of %s is in tenants of theirs alone; next: ask %s for softib tenant "+
			"users TENANT %s", who, packetsock.ErrPeer, x.f.name, x.place.owner, who)
	case host == "" || slices.Contains(mine, host):
		return nil
	}
	shown := mine
	more := ""
	if len(mine) > namedMost {
		shown, more = mine[:namedMost], fmt.Sprintf(" and %d more", len(mine)-namedMost)
	}
	return fmt.Errorf("user %s %w as host %s; next: use one of %s%s", who, packetsock.ErrPeer, host,
		strings.Join(shown, ", "), more)
}

// hostsOf are the hosts that a user may use: every port is in a tenant of the user's, and in none of somebody else's. A
// program can use all ports of its host, and all keys of a port.
func hostsOf(uid uint32, s tenant.State, hostOf func(ib.GUID) (*topo.Node, ib.PortNum, bool)) (names []string) {
	type is struct{ mine, others bool }
	ports := map[*topo.Node][]is{}
	for i := range s.Tenants {
		t := &s.Tenants[i]
		has := t.Has(uid)
		for _, m := range t.Members {
			n, port, ok := hostOf(m.GUID)
			if !ok {
				continue
			}
			if ports[n] == nil {
				ports[n] = make([]is, n.NumPorts())
			}
			if p := &ports[n][port-1]; has {
				p.mine = true
			} else {
				p.others = true
			}
		}
	}
	for n, list := range ports {
		if !slices.ContainsFunc(list, func(p is) bool { return !p.mine || p.others }) {
			names = append(names, n.Name)
		}
	}
	slices.SortFunc(names, byNumber)
	return names
}
