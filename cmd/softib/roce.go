package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"softib/capi/hostfiles"
	"softib/capi/rdmacm"
	"softib/driver/roce"
	"softib/internal/packetsock"
	"softib/internal/rundir"
	"softib/proto/ib"
)

func newRoCE() *cobra.Command {
	var linger time.Duration
	var asJSON, stop, detach bool
	cmd := &cobra.Command{
		Use:   "roce DEV",
		Short: "Hold RoCEv2's port of an Ethernet interface for programs",
		Long: `Holds UDP port 4791 at all addresses of DEV, an Ethernet interface of this machine, for
the programs that softib exec --roce DEV runs, and answers for their connection
manager (librdmacm), until Ctrl-C. Programs have sockets of their own: what they send
and receive does not pass through here.

There is no need to start it: the first softib exec --roce DEV does, in the
background, and it ends a minute after the last program. With --stop it ends at once,
and programs that run lose their connections.`,
		Example: `  softib roce eth0
  softib roce -d eth0           # in the background
  softib roce eth0 --stop
  softib exec --roce eth0 -- rping -s -a 192.0.2.1     # in another terminal`,
		Args: arguments(1, 1, "an interface"),
		RunE: func(cmd *cobra.Command, args []string) error {
			p, err := newRocePlace(args[0])
			if err != nil {
				return err
			}
			switch {
			case stop:
				return p.stop(cmd.Context())
			case detach:
				return p.detach(cmd.Context(), linger)
			}
			return p.serve(cmd.Context(), linger, func(s *roce.Server) error {
				if asJSON {
					return json.NewEncoder(cmd.OutOrStdout()).Encode(s.Config())
				}
				var list []string
				for _, a := range s.Config().Addrs {
					list = append(list, a.String())
				}
				newTerminal(cmd.OutOrStdout()).say("%s: RoCEv2 at %s, MTU %d: softib exec --roce %[1]s -- ib_write_bw",
					args[0], strings.Join(list, ", "), s.MTU().Bytes())
				return nil
			})
		},
	}
	cmd.Flags().BoolVarP(&detach, "detach", "d", false, "hold it in the background; return once it is held")
	cmd.Flags().DurationVar(&linger, "linger", 0, "end so long after the last program; 0 for never")
	cmd.Flags().BoolVar(&stop, "stop", false, "end what holds it")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print what is held as JSON")
	return cmd
}

// rocePlace is where who holds an interface's port leaves its files. The port is one of a network namespace, and so is
// the folder.
type rocePlace struct{ dev, dir string }

func newRocePlace(dev string) (rocePlace, error) {
	var st syscall.Stat_t
	if err := syscall.Stat("/proc/self/ns/net", &st); err != nil {
		return rocePlace{}, err
	}
	// What is wrong with the interface is said here, and not by a program that finds no device.
	if _, err := roce.FromInterface(dev); err != nil {
		return rocePlace{}, err
	}
	if _, err := newPlace(defaultName); err != nil { // makes the folder, or says why not
		return rocePlace{}, err
	}
	p := rocePlace{dev, filepath.Join(rundir.Dir(), fmt.Sprintf("roce-%s-%d", strings.ReplaceAll(dev, "/", "_"),
		st.Ino))}
	if n := len(p.rdmacm()); n > socketPathMax {
		return p, next(fmt.Errorf("%s is %d bytes long: a socket's path has at most %d", p.rdmacm(), n, socketPathMax),
			"set XDG_RUNTIME_DIR to a folder with a shorter path")
	}
	return p, nil
}

func (p rocePlace) verbs() string  { return filepath.Join(p.dir, "verbs") }
func (p rocePlace) rdmacm() string { return filepath.Join(p.dir, "rdmacm") }
func (p rocePlace) files() string  { return filepath.Join(p.dir, "files") }
func (p rocePlace) log() string    { return filepath.Join(p.dir, "log") }

// stop ends who holds the port. It is gone when the socket is.
func (p rocePlace) stop(ctx context.Context) error {
	pid, err := roce.Holder(p.verbs())
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) {
		return next(fmt.Errorf("nobody holds RoCEv2's port of %s", p.dev), "softib roce %s", p.dev)
	}
	if err == nil {
		err = syscall.Kill(pid, syscall.SIGTERM)
	}
	for ; err == nil; err = ctx.Err() {
		if _, gone := roce.Holder(p.verbs()); gone != nil {
			return nil
		}
		time.Sleep(5 * time.Millisecond)
	}
	return err
}

// serve holds the port until ctx ends, or nobody has used it for so long. Ready is called when programs can come.
func (p rocePlace) serve(ctx context.Context, linger time.Duration, ready func(*roce.Server) error) error {
	if pid, err := roce.Holder(p.verbs()); err == nil {
		return next(fmt.Errorf("process %d holds RoCEv2's port of %s already", pid, p.dev),
			"softib exec --roce %s uses it, softib roce %[1]s --stop ends it", p.dev)
	}
	c, err := roce.FromInterface(p.dev)
	if err != nil {
		return err
	}
	s, err := roce.Hold(c)
	if err != nil {
		return err
	}
	defer s.Close()
	if err := os.MkdirAll(p.dir, 0o700); err != nil {
		return err
	}
	files := adapterFiles
	files.Interface = p.dev
	if err := hostfiles.Ethernet(p.files(), files, s.GUID(), s.GIDs(), s.PortInfo()); err != nil {
		return err
	}
	forCM, err := packetsock.Listen(p.rdmacm())
	if err != nil {
		return err
	}
	defer forCM.Close()
	forVerbs, err := packetsock.Listen(p.verbs()) // the last: who finds it finds all
	if err != nil {
		return err
	}
	defer forVerbs.Close()
	if err := ready(s); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	var served [2]error
	wg.Go(func() { served[0] = s.Serve(ctx, forVerbs); cancel() })
	wg.Go(func() { served[1] = rdmacm.Serve(ctx, forCM, rdmacm.OnEthernet(s)); cancel() })
	if linger > 0 {
		wg.Go(func() { awaitIdle(ctx, s, linger); cancel() })
	}
	wg.Wait()
	return errors.Join(served[:]...)
}

// awaitIdle returns when nobody has used a server for so long.
func awaitIdle(ctx context.Context, s *roce.Server, linger time.Duration) {
	const looks = 10
	tick := time.NewTicker(max(linger/looks, time.Millisecond))
	defer tick.Stop()
	for idle := 0; idle < looks; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if idle++; s.Users() > 0 {
			idle = 0
		}
	}
}

// linger is how long what exec has started stays without programs.
const linger = time.Minute

// keep makes sure that the port is held, and stays so for as long as the file is open in this process or in the program
// that it becomes. Who holds it is no child of that program: some wait for all that they have.
func (p rocePlace) keep(ctx context.Context) (*os.File, ib.GUID, error) {
	f, guid, err := roce.Keep(p.verbs())
	if err == nil || errors.Is(err, roce.ErrRefused) {
		return f, guid, err
	}
	exe, err := os.Executable()
	if err != nil {
		return nil, 0, err
	}
	out, err := exec.CommandContext(ctx, exe, "roce", "-d", "--linger", linger.String(), "--", p.dev).CombinedOutput()
	if err != nil {
		return nil, 0, fmt.Errorf("%s", strings.TrimPrefix(strings.TrimSpace(string(out)), "softib: "))
	}
	return roce.Keep(p.verbs())
}

// detach holds the port by a process in the background, and returns when it is held.
func (p rocePlace) detach(ctx context.Context, linger time.Duration) error {
	if _, err := roce.Holder(p.verbs()); err == nil {
		return nil
	}
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(p.dir, 0o700); err != nil {
		return err
	}
	log, err := os.OpenFile(p.log(), os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	begin, err := log.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	keepDescriptors()
	child := exec.Command(exe, "roce", "--linger", linger.String(), "--", p.dev)
	child.Stdout, child.Stderr, child.Dir = log, log, "/"
	child.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // see detach of fabrics
	if err := child.Start(); err != nil {
		return next(err, "softib roce %s in another terminal", p.dev)
	}
	ended := make(chan error, 1)
	go func() { ended <- child.Wait() }()
	for {
		var over error
		select {
		case over = <-ended:
		case <-ctx.Done():
			_ = child.Process.Kill()
			return ctx.Err()
		case <-time.After(2 * time.Millisecond):
		}
		// Somebody else may have started one at the same time; then ours has ended.
		if _, err := roce.Holder(p.verbs()); err == nil {
			return nil
		}
		if over != nil {
			said, _ := io.ReadAll(io.NewSectionReader(log, begin, 1<<16))
			return fmt.Errorf("%s", strings.TrimPrefix(strings.TrimSpace(string(said)), "softib: "))
		}
	}
}
