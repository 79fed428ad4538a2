package main

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"softib/internal/pki"
	"softib/operate/control"
)

// A CA is made, machines get certificates, and what is wrong is told with what to do.
func TestCA(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ca")
	var files caFiles
	decode := func(v any, args ...string) {
		t.Helper()
		out, _, err := softib(t, append(args, "--json")...)
		if err == nil {
			err = json.Unmarshal([]byte(out), v)
		}
		if err != nil {
			t.Fatal(args, err, out)
		}
	}
	decode(&files, "ca", "init", dir)
	if _, err := pki.LoadCA(dir); err != nil || files.Key != filepath.Join(dir, "ca.key") {
		t.Fatal(err, files)
	}
	out, _, err := softib(t, "ca", "issue", dir, "node1", "--days", "90")
	if err != nil {
		t.Fatal(err)
	}
	wants(t, out, "node1.crt", "node1.key", "next: bring both to node1")
	if _, err := pki.Config(filepath.Join(dir, "node1.crt"), filepath.Join(dir, "node1.key"),
		filepath.Join(dir, "ca.crt")); err != nil {
		t.Error(err)
	}
	wants(t, shown(t, "ca", "show", filepath.Join(dir, "node1.crt")), "CN=node1", "is a     machine", "name     node1",
		"of       CN=softib CA", "ECDSA P-256")
	wants(t, shown(t, "ca", "show", filepath.Join(dir, "ca.crt")), "is a     CA")
	decode(&files, "ca", "issue", dir, "node2", "--days", "3", "--out", t.TempDir())
	if st, err := os.Stat(files.Key); err != nil || st.Mode().Perm() != 0o600 || files.Machine != "node2" {
		t.Error(st, err, files)
	}
	wants(t, shown(t, "ca", "show", files.Cert), "soon")

	other := filepath.Join(t.TempDir(), "other")
	decode(&files, "ca", "init", other)
	for ca, trouble := range map[string]bool{dir: false, other: true} {
		var certs []caCert // anew: what JSON leaves out would stay as it was
		decode(&certs, "ca", "show", filepath.Join(dir, "node1.crt"), "--ca", filepath.Join(ca, "ca.crt"))
		if len(certs) != 1 || (certs[0].Trouble != "") != trouble || len(certs[0].Names) != 1 {
			t.Errorf("%+v", certs)
		}
	}

	for _, tc := range []struct {
		usage bool
		args  []string
	}{
		{false, []string{"init", dir}},
		{false, []string{"issue", dir, "node1"}},
		{false, []string{"issue", t.TempDir(), "node1"}},
		{true, []string{"issue", dir, "../node1"}},
		{true, []string{"issue", dir, "Node One"}},
		{true, []string{"issue", dir, "node3", "--days", "0"}},
		{true, []string{"init"}},
		{false, []string{"show", filepath.Join(dir, "ca.key")}},
		{false, []string{"show", filepath.Join(dir, "nothing")}},
		{false, []string{"show", filepath.Join(dir, "ca.crt"), "--ca", filepath.Join(dir, "nothing")}},
	} {
		_, _, err := softib(t, append([]string{"ca"}, tc.args...)...)
		if err == nil || nextOf(err) == "" || errors.Is(err, control.ErrUsage) != tc.usage {
			t.Errorf("%v: %v; next: %s", tc.args, err, nextOf(err))
		}
	}
}
