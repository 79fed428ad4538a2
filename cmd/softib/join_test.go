package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"softib/internal/etcdtest"
)

// What is wrong with how a machine is to take part is told before anything is started, with what to do.
func TestJoinRefused(t *testing.T) {
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	certs := filepath.Join(t.TempDir(), "certs")
	for _, args := range [][]string{{"init", certs}, {"issue", certs, "a"}, {"issue", certs, "x"}} {
		if _, _, err := softib(t, append([]string{"ca"}, args...)...); err != nil {
			t.Fatal(err)
		}
	}
	bad := filepath.Join(t.TempDir(), "placement")
	if err := os.WriteFile(bad, []byte("h1 a\nh2 a\nh9 a\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	store := etcdtest.Start(t)
	join := func(args ...string) []string {
		return append([]string{"up", "--join", store.URL("t"), "--http", "off", "--state", "none", "--listen",
			"127.0.0.1:0"}, args...)
	}
	with := func(args ...string) []string { return join(append(args, "--certs", certs, "--machine", "a")...) }
	for _, c := range []struct {
		name, want string
		args       []string
	}{
		{"no certificates", "--join needs --certs", join("star:2", "--machines", "a,b", "--machine", "a")},
		{"a name that is none", "not a machine's name", join("star:2", "--machine", "a/b", "--certs", certs)},
		{"no certificate of this name", "softib ca issue", join("star:2", "--machine", "b", "--certs", certs)},
		{"no URL", "etcd://HOST:2379/FABRIC", []string{"up", "--join", "ftp://x", "--certs", certs, "--machine", "a"}},
		{"nobody there", "next: ", []string{"up", "--join", "etcd://127.0.0.1:1/t", "--certs", certs, "--machine", "a",
			"--listen", "127.0.0.1:0"}},
		{"a rule that is none", "--place leaf", with("star:2", "--machines", "a,b", "--place", "nowhere")},
		{"a file with a mistake", "placement:3", with("star:2", "--place", bad)},
		{"a machine that is none", "--machines A,B,C", with("star:2", "--machines", "a,,b")},
		{"routers", "has routers", with("subnets:2,each=star:2", "--machines", "a,b")},
		{"no part", "has no part of the fabric",
			join("star:2", "--machines", "a,b", "--machine", "x", "--certs", certs)},
		{"another topology", "another one than TOPOLOGY", with("star:3", "--machines", "a,b")},
	} {
		_, _, err := softib(t, c.args...)
		if err == nil {
			t.Fatalf("%s: it is up", c.name)
		}
		if text := err.Error() + "\nnext: " + nextOf(err); !strings.Contains(text, c.want) || nextOf(err) == "" {
			t.Errorf("%s: %q is not in\n%s", c.name, c.want, text)
		}
	}
}
