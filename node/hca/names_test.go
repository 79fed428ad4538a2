package hca

import (
	"strings"
	"testing"
)

// An error that names an object names it, and does not print its insides.
func TestErrorsNameObjects(t *testing.T) {
	h := New(Config{})
	pd, err := h.AllocPD()
	if err != nil {
		t.Fatal(err)
	}
	cq, err := h.CreateCQ(4)
	if err != nil {
		t.Fatal(err)
	}
	q, err := h.CreateQP(QPInit{Type: RC, PD: pd, SendCQ: cq, RecvCQ: cq})
	if err != nil {
		t.Fatal(err)
	}
	if err := h.DestroyQP(q); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		err  error
		want string
	}{
		{h.DestroyQP(q), q.String()},
		{h.DestroyQP(nil), none},
		{h.DestroyCQ(nil), none},
		{h.DeregMR(nil), none},
		{h.DeallocMW(nil), none},
		{h.DestroySRQ(nil), none},
		{h.DestroyAH(nil), none},
		{h.CloseXRCD(nil), none},
		{h.DeallocPD(nil), none},
	} {
		if c.err == nil || !strings.Contains(c.err.Error(), c.want) || len(c.err.Error()) > 120 {
			t.Errorf("error %q: want one line that has %q", c.err, c.want)
		}
	}
}
