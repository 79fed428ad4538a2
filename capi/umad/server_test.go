package umad

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"softib/capi/dropin"
	"softib/internal/descriptors"
	"softib/proto/ib"
)

// dial connects as the library does.
func dial(t *testing.T, f *fixture) *net.UnixConn {
	t.Helper()
	c, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: f.socket, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(60 * time.Second)); err != nil {
		t.Fatal(err)
	}
	return c
}

// exchange sends bytes and returns the reply's errno and words; -1 if the server hangs up.
func exchange(t *testing.T, c *net.UnixConn, b []byte) (errno int, text string, head []byte) {
	t.Helper()
	if _, err := c.Write(b); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 1<<16)
	n, err := c.Read(buf)
	if err != nil || n < replySize {
		return -1, "", nil
	}
	return int(native.Uint32(buf[8:])), string(buf[replySize:n]), buf[:replySize]
}

func TestRefusals(t *testing.T) {
	f := serve(t)
	for _, tc := range []struct {
		name string
		req  request
		want syscall.Errno
	}{
		{"host", request{op: opCA, host: "h9"}, syscall.ENODEV},
		{"open on no host", request{op: opOpen, host: "h9"}, syscall.ENODEV},
		{"port", request{op: opOpen, host: "h1", port: 3}, syscall.EINVAL},
		{"IsSM of no port", request{op: opIsSM, host: "h1", port: 300}, syscall.EINVAL},
		{"token", request{op: opRegister, host: "h1", token: 5}, syscall.EBADF},
		{"token to unregister", request{op: opUnregister, host: "h1", token: 5}, syscall.EBADF},
		{"op", request{op: 77, host: "h1"}, syscall.EINVAL},
	} {
		errno, text, _ := exchange(t, dial(t, f), appendRequest(nil, &tc.req))
		if errno != int(tc.want) || text == "" {
			t.Errorf("%s: errno %d %q, want %d", tc.name, errno, text, tc.want)
		}
	}

	old := appendRequest(nil, &request{op: opCA, host: "h1"})
	native.PutUint16(old[4:], 7)
	if errno, text, _ := exchange(t, dial(t, f), old); errno != int(syscall.EPROTO) ||
		!strings.Contains(text, "speaks version 7, this fabric 1; next: restart") {
		t.Errorf("version 7: errno %d %q", errno, text)
	}
	if errno, _, _ := exchange(t, dial(t, f), []byte("GET / HTTP/1.1\r\n\r\n")); errno != -1 {
		t.Errorf("what is no request is answered with %d", errno)
	}
}

// Records that no library writes end the connection and nothing else.
func TestBadRecords(t *testing.T) {
	f := serve(t)
	for _, b := range [][]byte{{1}, make([]byte, 63), make([]byte, recordHead+257), make([]byte, 4000)} {
		c := dial(t, f)
		if errno, text, _ := exchange(t, c, appendRequest(nil, &request{op: opOpen, host: "h1", port: 1})); errno != 0 {
			t.Fatal(text)
		}
		if _, err := c.Write(b); err != nil {
			t.Fatal(err)
		}
		if n, err := c.Read(make([]byte, 8)); err == nil && n > 0 {
			t.Errorf("%d bytes are answered", len(b))
		}
	}
	wants(t, f.run(t, "h1", "ibstat", "-l"), "softib0")
}

// A descriptor of something that is not a file, or too short, makes no message.
func TestBadFiles(t *testing.T) {
	f := serve(t)
	c := dial(t, f)
	_, _, head := exchange(t, c, appendRequest(nil, &request{op: opOpen, host: "h1", port: 1}))
	token := native.Uint64(head[16:])
	if errno, text, _ := exchange(t, dial(t, f), appendRequest(nil, &request{
		op: opRegister, host: "h1", token: token, class: 3, classVersion: 2, rmppVersion: 1,
	})); errno != 0 {
		t.Fatal(text)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	null, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	for _, tc := range []struct {
		file   *os.File
		length uint32
	}{{r, 1000}, {null, 1000}, {null, 0}, {null, 0xFFFFFFFF}} {
		rec := record{length: tc.length, data: make([]byte, 256)}
		if _, _, err := c.WriteMsgUnix(appendRecord(nil, &rec), syscall.UnixRights(int(tc.file.Fd())),
			nil); err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, 400)
		n, err := c.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		back, err := parseRecord(buf[:n])
		if err != nil || back.status != uint32(syscall.EINVAL) || len(back.data) != 24 {
			t.Errorf("%s, %d bytes: %+v, %v", tc.file.Name(), tc.length, back, err)
		}
	}
}

// A program of another user is refused with words. Only root can try.
func TestOtherUser(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can be somebody else")
	}
	f := serve(t)
	for _, dir := range []string{buildDir, filepath.Dir(f.socket)} {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(f.socket, 0o666); err != nil { // the credentials alone decide
		t.Fatal(err)
	}
	cmd := f.command(t, "h1", "ibstat")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.CombinedOutput()
	if err == nil {
		t.Errorf("ibstat of user 65534 succeeds:\n%s", out)
	}
	wants(t, string(out), "user 65534 may not use a fabric of user 0; next:")
}

// A program whose fabric ends hears of it, on every port, and does not spin.
func TestFabricEnds(t *testing.T) {
	f := serve(t)
	cmd := f.command(t, "h1", compile(t, "ends.c"))
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 16)); err != nil {
		t.Fatal(err)
	}
	f.end()
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

func TestListen(t *testing.T) {
	f := serve(t)
	if l, err := Listen(f.socket); err == nil || !strings.Contains(err.Error(), "another fabric listens there; next:") {
		t.Errorf("%v, %v", l, err)
	}
	stale := filepath.Join(t.TempDir(), "s")
	for range 2 {
		l, err := Listen(stale)
		if err != nil {
			t.Fatal(err)
		}
		l.SetUnlinkOnClose(false)
		if st, err := os.Stat(stale); err != nil || st.Mode().Perm() != 0o600 {
			t.Errorf("%v, %v", st.Mode(), err)
		}
		l.Close()
	}
}

// A path that LD_PRELOAD cannot hold works too.
func TestPathWithBlank(t *testing.T) {
	f := serve(t)
	dir := filepath.Join(t.TempDir(), "a b")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(f.lib)
	if err != nil {
		t.Fatal(err)
	}
	f.lib = filepath.Join(dir, dropin.UMAD)
	if err := os.WriteFile(f.lib, b, 0o755); err != nil {
		t.Fatal(err)
	}
	wants(t, f.run(t, "h1", "ibstat", "-l"), "softib0")
}

func TestWithoutFabric(t *testing.T) {
	lib := library(t)
	for _, tc := range []struct{ socket, host, want string }{
		{"", "h1", "softib: SOFTIB_UMAD does not name a fabric's socket; next: softib exec HOST -- PROGRAM"},
		{"/nowhere", "h1", "softib: no fabric answers at /nowhere (No such file or directory); next: softib status"},
		{"/nowhere", "", "softib: SOFTIB_HOST does not name a host; next: softib exec HOST -- PROGRAM"},
		{"/" + strings.Repeat("x", 200), "h1", "softib: SOFTIB_UMAD is longer than a socket's path may be"},
		{"/nowhere", strings.Repeat("x", 200), "softib: SOFTIB_HOST is longer than 127 bytes"},
	} {
		cmd := exec.Command(tool(t, "ibstat"))
		cmd.Env = dropin.Set{Dir: filepath.Dir(lib)}.Environment(nil, dropin.Host{Name: tc.host, UMAD: tc.socket})
		out, err := cmd.CombinedOutput()
		if err == nil || strings.Count(string(out), "softib: ") != 1 {
			t.Errorf("%v\n%s", err, out)
		}
		wants(t, string(out), tc.want)
	}
}

// TestIsSMFilesBounded: one who asks for the files of all ports takes no descriptors that others need, and those that
// were made before are there as they were.
func TestIsSMFilesBounded(t *testing.T) {
	s := newIsSMFiles(filepath.Join(t.TempDir(), "issm"), func(string, ib.PortNum, bool) {})
	s.book = descriptors.New(16)
	var err error
	n := 0
	for ; n < 100 && err == nil; n++ {
		_, err = s.path(fmt.Sprint("h", n), 1)
	}
	if errnoOf(err) != syscall.EMFILE || n != 15 { // all but an eighth, and one too many
		t.Errorf("file %d: %v", n, err)
	}
	if _, err := s.path("h0", 1); err != nil {
		t.Errorf("a file that is there: %v", err)
	}
	s.close()
	if err := s.book.Take(owner, 14); err != nil {
		t.Errorf("what they had is not given back: %v", err)
	}
}
