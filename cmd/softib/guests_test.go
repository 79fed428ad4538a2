package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"softib/operate/manager/tenant"
	"softib/operate/status"
	"softib/proto/ib"
	"softib/proto/topo"
)

// TestShared: a fabric is shared with a group that is there, from a folder that is its owner's, and what others may not
// use is not open to them by the page either.
func TestShared(t *testing.T) {
	s := newShell(t)
	shared := t.TempDir()
	t.Setenv("SOFTIB_SHARED_DIR", shared)
	gid := strconv.Itoa(os.Getegid())
	s.fails(exitUsage, []string{"no group"}, "up", "star:2", "--shared", "no-such-group")
	s.fails(exitUsage, []string{"--no-sm"}, "up", "star:2", "--shared", gid, "--no-sm")
	// Others can write to the place, and have been there first.
	own := filepath.Join(shared, "softib-shared-"+strconv.Itoa(os.Geteuid()))
	if err := os.Mkdir(own, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(own, 0o777); err != nil {
		t.Fatal(err)
	}
	s.fails(exitFailed, []string{"nobody else can write to"}, "up", "-d", "star:2", "--shared", gid)
	if err := os.Remove(own); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(s.dir, own); err != nil {
		t.Fatal(err)
	}
	s.fails(exitFailed, []string{"nobody else can write to"}, "up", "-d", "star:2", "--shared", gid)
	if err := os.Remove(own); err != nil {
		t.Fatal(err)
	}
	wants(t, s.run("up", "-d", "star:6", "--shared", gid, "--state", "none", "--http", "127.0.0.1:0"),
		"shared    with group "+gid, "softib user add NAME")
	s.fails(exitUsage, []string{"that somebody shares"}, "up", "--name", strconv.Itoa(os.Geteuid())+"/x", "star:2")
	wants(t, s.run("status"), "shared    with group "+gid+": softib exec --name ")
	var st status.Status
	if err := json.Unmarshal([]byte(s.run("status", "--json")), &st); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"", "metrics", "ufmRest/app/ufm_version"} {
		r, err := http.Get(st.Page + path)
		if err != nil {
			t.Fatal(err)
		}
		if r.Body.Close(); r.StatusCode != http.StatusUnauthorized {
			t.Errorf("/%s answers who is nobody: %s", path, r.Status)
		}
	}
	wants(t, s.run("tenant", "create", "red", "--hosts", "h1-h3", "--users", "60001"), "for 60001")
	s.run("tenant", "create", "blue", "--hosts", "h3-h4", "--users", "60002")
	wants(t, s.run("tenant", "users", "red", "60001", "60003", "60001"), "for 60001, 60003")
	wants(t, s.run("tenant", "show", "red"), "for 60001, 60003")
	wants(t, s.run("tenant", "users", "blue"), "tenant blue: pkey 0x1002, 2 ports\n")
	s.fails(exitUsage, []string{"no user"}, "tenant", "users", "red", "no-such-user")
	s.run("down")
	if left, err := filepath.Glob(filepath.Join(own, "*")); err != nil || len(left) > 0 {
		t.Errorf("%v is left, %v", left, err)
	}
}

// TestHostsOf: a host is a user's if all that a program can use there is.
func TestHostsOf(t *testing.T) {
	nodes := map[ib.GUID]*topo.Node{}
	for i := range 5 { // hosts of two ports
		nodes[ib.GUID(i)] = &topo.Node{Name: fmt.Sprintf("h%d", i), Ports: make([]topo.Port, 3)}
	}
	hostOf := func(g ib.GUID) (*topo.Node, ib.PortNum, bool) {
		n, ok := nodes[g>>4]
		return n, ib.PortNum(g & 15), ok
	}
	members := func(guids ...ib.GUID) (list []tenant.Member) {
		for _, g := range guids {
			list = append(list, tenant.Member{GUID: g})
		}
		return list
	}
	s := tenant.State{Tenants: []tenant.Tenant{
		{Name: "blue", Users: []uint32{2}, Members: members(0x32, 0x41, 0x42)},
		{Name: "green", Users: []uint32{2, 3}, Members: members(0x41)},
		{Name: "red", Users: []uint32{1}, Members: members(0x11, 0x12, 0x21, 0x31, 0x32, 0x99)},
	}}
	for uid, want := range map[uint32][]string{
		1: {"h1"}, // of h2 one port is nobody's, and of h3 one is also blue's
		2: {"h4"},
		3: nil, // of h4 one port is also blue's, the other only that
		4: nil,
	} {
		if got := hostsOf(uid, s, hostOf); !slices.Equal(got, want) {
			t.Errorf("hosts of user %d: %v, want %v", uid, got, want)
		}
	}
}
