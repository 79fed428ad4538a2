package etcd

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"softib/operate/control"
)

// TestURL: forms that are taken, and what they mean.
func TestURL(t *testing.T) {
	for s, want := range map[string]URL{
		"etcd://a/lab":          {Endpoints: []string{"a:2379"}, Prefix: "lab"},
		"etcd://a:1,b/x/y/":     {Endpoints: []string{"a:1", "b:2379"}, Prefix: "x/y"},
		"etcd://[::1]:23/lab":   {Endpoints: []string{"[::1]:23"}, Prefix: "lab"},
		"etcd://[::1]/lab":      {Endpoints: []string{"[::1]:2379"}, Prefix: "lab"},
		"etcds://a/lab":         {TLS: true, Endpoints: []string{"a:2379"}, Prefix: "lab"},
		"etcds://a/lab?ca=f%20": {TLS: true, Endpoints: []string{"a:2379"}, Prefix: "lab", CA: "f "},
		"etcds://a/lab?cert=c&key=k": {TLS: true, Endpoints: []string{"a:2379"}, Prefix: "lab", Cert: "c",
			Key: "k"},
	} {
		got, err := ParseURL(s)
		if err != nil || !slices.Equal(got.Endpoints, want.Endpoints) || got.String() != want.String() {
			t.Errorf("%s: %+v, %v: want %+v", s, got, err, want)
		}
	}
	for _, s := range []string{"", "a", "http://a/lab", "etcd://", "etcd:///lab", "etcd://a", "etcd://a/",
		"etcd://a:0/x", "etcd://a:b/x", "etcd://a:70000/x", "etcd://a,/x", "etcd://u@a/x", "etcd://a/x//y",
		"etcd://a/x y", "etcd://a/x?ca=f",
		"etcds://a/x?cert=f", "etcds://a/x?what=f", "etcds://a/x?ca=f&ca=g", "etcds://a/x?ca=", "etcds://a/x?%zz"} {
		if _, err := ParseURL(s); !errors.Is(err, ErrURL) || !strings.Contains(control.NextOf(err), "etcd://") {
			t.Errorf("%q: %v", s, err)
		}
	}
}

// FuzzURL: never panics, and what is read and written is read as the same.
func FuzzURL(f *testing.F) {
	for _, s := range []string{"etcd://a:1,b/x", "etcds://[::1]/lab?ca=f&cert=g&key=h", "etcd://a/x?", "etcds://,/"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		u, err := ParseURL(s)
		if err != nil {
			return
		}
		again, err := ParseURL(u.String())
		if err != nil || again.String() != u.String() {
			t.Fatalf("%q became %q, then %q: %v", s, u, again, err)
		}
	})
}
