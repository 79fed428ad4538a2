package main

import (
	"errors"
	"net"
	"os/exec"
	"strings"
	"testing"

	"softib/verbs/attach"
)

// TestGreedyProgram: a program that attaches again and again is stopped before others lack descriptors, is told why,
// and may go on when it has given some back; so is one that takes connections of the operator's socket.
func TestGreedyProgram(t *testing.T) {
	s := newShell(t)
	up := exec.Command("sh", "-c", `ulimit -n 512; exec "$0" up -d star:3 --http off --state none`, s.bin)
	up.Env = s.command().Env
	if out, err := up.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Setenv("XDG_RUNTIME_DIR", s.dir)
	var mine []*attach.Device
	defer func() {
		for _, d := range mine {
			d.Close()
		}
	}()
	for len(mine) < 512 {
		d, err := attach.Open(attach.Options{Host: "h1"})
		if err != nil {
			if !errors.Is(err, attach.ErrRefused) || !strings.Contains(err.Error(), "next: ") {
				t.Errorf("after %d: %v", len(mine), err)
			}
			break
		}
		mine = append(mine, d)
	}
	most := len(mine)
	if most < 8 || most >= 512/4 {
		t.Errorf("one program has attached %d times", most)
	}
	// Others, and who operates the fabric, are not kept out.
	wants(t, s.run("perf", "send_lat", "--hosts", "h2,h3", "-n", "100"), "h2")
	var held []net.Conn
	defer func() {
		for _, c := range held {
			c.Close()
		}
	}()
	p, err := newPlace(defaultName)
	if err != nil {
		t.Fatal(err)
	}
	for range 600 {
		c, err := net.Dial("unix", p.socket())
		if err != nil {
			break
		}
		held = append(held, c)
	}
	wants(t, s.run("status"), "3 of 3")
	if err := mine[0].Close(); err != nil {
		t.Fatal(err)
	}
	mine = mine[1:]
	for range 1000 { // the fabric hears of it in a moment
		d, err := attach.Open(attach.Options{Host: "h1"})
		if err == nil {
			mine = append(mine, d)
			break
		}
	}
	if n := len(mine); n != most {
		t.Errorf("what was given back cannot be had again: %d of %d", n, most)
	}
	s.run("down")
}
