package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"softib/operate/control"
	"softib/proof/workload/perf"
	"softib/verbs/attach"
)

// perfSide is the subcommand that one side of a test is.
const perfSide = "perf-side"

// sideFD is where a side finds its connection to the other one.
const sideFD = 3

func newPerfSide() *cobra.Command {
	return &cobra.Command{
		Use:    perfSide,
		Short:  "One side of softib perf",
		Hidden: true,
		Args:   arguments(0, 0, "no arguments: softib perf starts it"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return beSide(cmd.Context(), cmd.InOrStdin(), cmd.OutOrStdout())
		},
	}
}

// beSide does what the process that started this one asks for, and ends with it.
func beSide(ctx context.Context, in io.Reader, out io.Writer) error {
	signal.Ignore(os.Interrupt) // Ctrl-C is for who started us
	conn, err := sideConn()
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	dec := json.NewDecoder(io.LimitReader(in, control.RequestMax))
	var req sideRequest
	if err := dec.Decode(&req); err != nil {
		return notBySelf(fmt.Errorf("the request cannot be read: %w", err))
	}
	go func() {
		_, _ = io.Copy(io.Discard, in) // nothing more comes but the end
		cancel()
	}()
	enc := json.NewEncoder(out)
	last := sideReport{OK: true}
	if err := req.measure(ctx, conn, func(r sideReport) error { return enc.Encode(r) }); err != nil {
		var peer *perf.PeerError
		var gone *fabricGoneError
		last = sideReport{Error: err.Error(), Peer: errors.As(err, &peer), Gone: errors.As(err, &gone)}
		if last.Peer {
			last.Error = peer.Text
		}
	}
	return enc.Encode(last)
}

// measure attaches to the host and does this side's part.
func (r *sideRequest) measure(ctx context.Context, conn net.Conn, tell func(sideReport) error) error {
	dev, err := attach.Open(attach.Options{Socket: r.Socket, Host: r.Host})
	if err != nil {
		return err
	}
	defer dev.Close()
	defer holdGC()() // garbage is collected between sizes, when nothing is measured
	if r.Config == nil {
		err = perf.Passive(ctx, dev, conn)
	} else {
		err = perf.Active(ctx, dev, conn, *r.Config,
			func(s perf.Setting) error { return tell(sideReport{Setting: &s}) },
			func(row perf.Row) error { return tell(sideReport{Row: &row}) })
	}
	if err != nil && dev.Failed() {
		err = &fabricGoneError{"the fabric is gone: " + err.Error()}
	}
	return err
}

// sideConn is the connection to the other side. What is not a socket is not ours, nor to be closed.
func sideConn() (net.Conn, error) {
	if _, err := syscall.GetsockoptInt(sideFD, syscall.SOL_SOCKET, syscall.SO_TYPE); err != nil {
		return nil, notBySelf(fmt.Errorf("descriptor %d is not the other side: %w", sideFD, err))
	}
	f := os.NewFile(sideFD, "the other side")
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		return nil, notBySelf(err)
	}
	return c, nil
}

// notBySelf is the error of a side that nobody waits for.
func notBySelf(err error) error {
	return next(&usageError{fmt.Errorf("%s is started by softib perf: %w", perfSide, err)}, "softib perf --help")
}
