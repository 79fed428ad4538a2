package descriptors

import (
	"errors"
	"strings"
	"testing"
)

// TestBook: a program gets a quarter, a user leaves an eighth to others, and what is given back can be had again.
func TestBook(t *testing.T) {
	b := New(64)
	ask := func(who Holder, n int, ok bool) {
		t.Helper()
		err := b.Take(who, n)
		if ok && err != nil || !ok && (!errors.Is(err, ErrMany) || !strings.Contains(err.Error(), "next: ")) {
			t.Errorf("%+v asks for %d: %v", who, n, err)
		}
	}
	one := Holder{PID: 1, UID: 1000}
	ask(one, 13, true)
	ask(one, 4, false)
	ask(one, 3, true)
	ask(one, 1, false)
	for pid := range 2 {
		ask(Holder{PID: 2 + pid, UID: 1000}, 16, true)
	}
	ask(Holder{PID: 9, UID: 1000}, 9, false)
	ask(Holder{PID: 9, UID: 1000}, 8, true)
	ask(Holder{PID: 10, UID: 1000}, 1, false)
	ask(Holder{PID: 11, UID: 0}, 8, true)
	ask(Holder{PID: 11, UID: 0}, 1, false)
	b.Give(one, 16)
	ask(Holder{PID: 0, UID: 1000}, 16, true) // who cannot be seen counts by its user
	ask(Holder{PID: 0, UID: 1000}, 1, false)
	b.Give(Holder{PID: 0, UID: 1000}, 16)
	for pid := range 2 {
		b.Give(Holder{PID: 2 + pid, UID: 1000}, 16)
	}
	b.Give(Holder{PID: 9, UID: 1000}, 8)
	b.Give(Holder{PID: 11, UID: 0}, 8)
	if b.all != 0 || len(b.users) != 0 || len(b.programs) != 0 {
		t.Errorf("nobody has any: %+v", b)
	}
}
