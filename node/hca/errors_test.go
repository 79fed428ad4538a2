package hca

import (
	"errors"
	"strings"
	"testing"
)

// wantAttr expects a verb to be refused because of one attribute.
func wantAttr(t testing.TB, err error, verb, attr string, kind error) {
	t.Helper()
	var ae *AttrError
	if !errors.As(err, &ae) {
		t.Fatalf("%s: got %v, want an AttrError about %s", verb, err, attr)
	}
	if ae.Verb != verb || ae.Attr != attr || !errors.Is(err, kind) {
		t.Fatalf("got %v, want %s refused because of %s (%v)", err, verb, attr, kind)
	}
	for _, part := range []string{"hca: ", verb, attr, ae.Want} {
		if !strings.Contains(err.Error(), part) {
			t.Fatalf("%q does not say %q", err, part)
		}
	}
}
