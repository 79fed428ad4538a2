package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"softib/internal/listening"
	"softib/internal/patience"
)

// patient bounds a wait; what is awaited is part of the error when it is given up.
func (b *bench) patient(ctx context.Context, what string) (context.Context, context.CancelFunc) {
	most := b.patience
	if b.smoke { // on a machine that does other things besides
		most = patience.For(most)
	}
	return context.WithTimeoutCause(ctx, most, fmt.Errorf(
		"waited %v for %s; next: see by hand what it does, or let it take longer with -patience", most, what))
}

// gaveUp is the error of a wait: the one that it ended with, or what was awaited if it took too long.
func gaveUp(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); err != nil && cause != nil {
		return cause
	}
	return err
}

// command is one with more environment, which is interrupted when ctx ends, and killed if that does not help.
func command(ctx context.Context, env []string, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGINT) }
	cmd.WaitDelay = 10 * time.Second
	return cmd
}

// output runs a command with more environment and returns what it printed.
func (b *bench) output(ctx context.Context, env []string, name string, args ...string) ([]byte, error) {
	line := name + " " + strings.Join(args, " ")
	ctx, cancel := b.patient(ctx, line+" to end")
	defer cancel()
	cmd := command(ctx, env, name, args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := gaveUp(ctx, cmd.Run()); err != nil {
		return nil, fmt.Errorf("%s: %w\n%s%s", line, err, tail(out.Bytes()), tail(errs.Bytes()))
	}
	return out.Bytes(), nil
}

// withServer runs one program twice: a server, and once that listens on its port, a client, whose output it returns.
func (b *bench) withServer(ctx context.Context, env []string, name string, port int, server, client []string) (string,
	error) {
	return b.serve(ctx, env, name, func() bool { return listening.On(port) }, port, server, client)
}

// serve is that where somebody else says whether the server listens.
func (b *bench) serve(ctx context.Context, env []string, name string, listens func() bool, port int, server,
	client []string) (string, error) {
	line := name + " " + strings.Join(server, " ")
	wait, cancel := b.patient(ctx, fmt.Sprintf("%s to listen on port %d", line, port))
	defer cancel()
	serving, stop := context.WithCancel(ctx)
	srv := command(serving, env, name, server...)
	srv.Cancel = func() error { return srv.Process.Kill() } // there is nothing to tidy up
	var said bytes.Buffer
	srv.Stdout, srv.Stderr = &said, &said
	if err := srv.Start(); err != nil {
		stop()
		return "", err
	}
	ended := make(chan error, 1)
	go func() { ended <- srv.Wait(); close(ended) }()
	defer func() { stop(); <-ended }()
	look := time.NewTicker(2 * time.Millisecond)
	defer look.Stop()
	for !listens() {
		select {
		case <-look.C:
		case err := <-ended:
			return "", fmt.Errorf("%s ended before it listened on port %d: %w\n%s", line, port, err, tail(said.Bytes()))
		case <-wait.Done():
			return "", context.Cause(wait)
		}
	}
	out, err := b.output(ctx, env, name, client...)
	return string(out), err
}

// tail is the end of what a command printed.
func tail(text []byte) []byte {
	const most = 1000
	if len(text) > most {
		text = text[len(text)-most:]
	}
	return text
}
