package server_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"softib/verbs"
	"softib/verbs/attach"
)

// TestCloseWhileDozing: closing a device just when its attendant goes to sleep does not wait for the next packet.
func TestCloseWhileDozing(t *testing.T) {
	_, socket := fabric(t, "star:2")
	for i := range 100 {
		d, err := attach.Open(attach.Options{Socket: socket, Host: "h1"})
		if err != nil {
			t.Fatal(err)
		}
		cq, err := verbs.Open(d).CreateCQ(1)
		if err != nil {
			t.Fatal(err)
		}
		if err := cq.ReqNotify(false); err != nil { // there is an attendant from now on
			t.Fatal(err)
		}
		for end := time.Now().Add(900*time.Microsecond + rand.N(400*time.Microsecond)); time.Now().Before(end); {
		}
		done := make(chan struct{})
		go func() {
			d.Close()
			close(done)
		}()
		select {
		case <-done:
		case <-time.After(60 * time.Second):
			t.Fatalf("device %d does not close", i)
		}
	}
}
