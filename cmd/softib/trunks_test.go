package main

import (
	"errors"
	"testing"
	"time"

	"softib/driver/peering"
)

// TestTrunksInOrder: a machine that comes back while the fabric is being told that it has gone is reached in the end.
func TestTrunksInOrder(t *testing.T) {
	tr := newTrunks(t.Logf)
	var told []bool
	going, goOn := make(chan struct{}), make(chan struct{})
	tr.tell = func(_ string, is bool) {
		if !is {
			close(going)
			<-goOn
		}
		told = append(told, is)
	}
	old, now := &peering.Peer{}, &peering.Peer{}
	tr.Up(old)
	done := make(chan struct{}, 2)
	go func() { tr.Down(old, errors.New("it stood still")); done <- struct{}{} }()
	<-going
	go func() { tr.Up(now); done <- struct{}{} }()
	time.Sleep(20 * time.Millisecond) // it would be through by now, if it did not wait
	close(goOn)
	<-done
	<-done
	if len(told) != 3 || !told[0] || told[1] || !told[2] {
		t.Errorf("the fabric was told %v: want that it is reached, is not, and is", told)
	}
	// News of an old connection is none.
	tr.Down(old, errors.New("late"))
	if is, _ := tr.reaches(""); !is || len(told) != 3 {
		t.Errorf("told %v after old news, reached %v", told, is)
	}
}
