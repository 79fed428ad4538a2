package netpair

import (
	"os/exec"
	"strings"
	"testing"
	"time"
)

// The two reach each other and nothing else does, and it is seen from here who listens there.
func TestPair(t *testing.T) {
	p, err := New()
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	const port = 18999
	script := "import socket; s = socket.create_server(('" + Addresses[0] + "', 18999)); c, _ = s.accept(); " +
		"c.sendall(b'hello')"
	server := p.Command(t.Context(), 0, "python3", "-c", script)
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); !p.Listens(0, port); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("nobody listens")
		}
	}
	if p.Listens(1, port) {
		t.Error("the other machine listens as well")
	}
	connect := "import socket; print(socket.create_connection(('" + Addresses[0] + "', 18999), 5).recv(9).decode())"
	if out, err := exec.Command("python3", "-c", connect).CombinedOutput(); err == nil {
		t.Errorf("it is reached from outside: %s", out)
	}
	out, err := p.Command(t.Context(), 1, "python3", "-c", connect).CombinedOutput()
	if err != nil || strings.TrimSpace(string(out)) != "hello" {
		t.Errorf("%v: %s", err, out)
	}
	if err := server.Wait(); err != nil {
		t.Error(err)
	}
}

// Any number reach each other by a bridge, until a cable is pulled.
func TestLAN(t *testing.T) {
	m, err := NewLAN(3)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	// A machine that is there refuses a connection to a port at which nobody listens.
	within := func(seconds string, from, to int) bool {
		try := m.Command(t.Context(), from, "timeout", seconds, "bash", "-c", "</dev/tcp/"+Address(to)+"/9")
		out, _ := try.CombinedOutput()
		return strings.Contains(string(out), "refused")
	}
	reaches := func(from, to int) bool { return within("30", from, to) }
	for from := range 3 {
		for to := range 3 {
			if !reaches(from, to) {
				t.Fatalf("from %d to %d", from, to)
			}
		}
	}
	if err := m.Cut(1, true); err != nil {
		t.Fatal(err)
	}
	if within("1", 0, 1) {
		t.Error("a machine is reached whose cable is cut")
	}
	if !reaches(0, 2) {
		t.Error("the others do not reach each other")
	}
	if err := m.Cut(1, false); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); !reaches(0, 1); {
		if time.Now().After(end) {
			t.Fatal("the cable is in and the machine is not reached")
		}
	}
}
