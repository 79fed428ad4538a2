package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"softib/capi/dropin"
	"softib/proto/ib"
)

func newExec() *cobra.Command {
	var o execOptions
	cmd := &cobra.Command{
		Use:   "exec {HOST | --roce DEV[,DEV…]} -- CMD [ARG…]",
		Short: "Run an unmodified program on a host of the fabric, or on a real network",
		Long: `Runs CMD as if this machine were HOST: what CMD does through libibverbs, librdmacm
and libibumad happens at that host's adapter. No kernel module and no root is
needed, and nothing is installed: CMD, and whatever it starts, finds softib's own
libraries in front of the system's.

Where the kernel lets you, CMD also finds the adapter in /sys/class/infiniband and
the hosts' names in /etc/hosts, in namespaces of its own; where not, or with
--plain, it runs without. In a namespace sudo and other programs that change
the user do not work, and root keeps what root may do.

HOST is a host (h1) or a switch (leaf1), whose own port 0 is used then. In a fabric
that spans machines (softib up --join) CMD runs on the machine that has HOST: if
that is another, --on MACHINE runs it there by ssh.

With --net CMD, and whatever runs on HOST with --net at the same time, has a network
of its own: lo, and ib0 with the host's address, whose packets travel the fabric as IP
over InfiniBand. ping, ssh, iperf3, curl and MPI by TCP then go from host to host by
their names. In datagram mode the MTU is 2044; --net=connected has 65520 and is the
fastest. Other partitions of the host are interfaces of their own, such as ib0.8001.

With --roce there is no fabric: CMD gets an adapter whose port is DEV, an Ethernet
interface of this machine, and speaks RoCEv2 (UDP port 4791) to whoever does at the
other end: softib on another machine, Linux's rdma_rxe, an adapter of silicon. With
several (--roce eth0,eth1) it has an adapter for each: softib0, softib1. Any number of
programs can share DEV; softib roce says how.`,
		Example: `  softib exec h1 -- ibv_devinfo
  softib exec h1 -- ib_write_bw          # and: softib exec h2 -- ib_write_bw localhost
  softib exec h1 -- ibnetdiscover
  softib exec --net h1 -- iperf3 -s      # and: softib exec --net h2 -- iperf3 -c h1
  softib exec h3 -- cat /sys/class/infiniband/softib0/ports/1/state
  softib exec --on rack2 h9 -- ib_write_bw   # h9 is on machine rack2, reached by ssh
  softib exec --roce eth0 -- ib_write_bw 192.0.2.7   # where ib_write_bw runs on rxe or on an adapter
  softib up -d --no-sm && softib exec h1 -- opensm -R ftree`,
		Args: func(cmd *cobra.Command, args []string) error {
			if o.roce != "" {
				if len(args) == 0 || args[0] == "--" && len(args) < 2 {
					return usage(cmd, errors.New("exec --roce takes a command: softib exec --roce eth0 -- ibv_devinfo"))
				}
				return nil
			}
			if len(args) < 2 || args[1] == "--" && len(args) < 3 {
				return usage(cmd, errors.New("exec takes a HOST and a command: softib exec h1 -- ibstat"))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.check(); err != nil {
				return err
			}
			if o.roce != "" {
				return o.runRoCE(cmd.Context(), args)
			}
			if args[1] == "--" {
				args = append(args[:1:1], args[2:]...)
			}
			if o.on != "" {
				return o.runOn(args[0], args[1:])
			}
			return o.run(cmd, args[0], args[1:])
		},
	}
	cmd.Flags().SetInterspersed(false)
	nameFlag(cmd, &o.name)
	cmd.Flags().BoolVar(&o.plain, "plain", false, "no namespaces: CMD sees the machine's own /sys and /etc/hosts")
	cmd.Flags().StringVar(&o.roce, "roce", "", "the Ethernet interfaces to speak RoCEv2 at, in place of HOST")
	cmd.Flags().StringVar(&o.on, "on", "", "run it on `MACHINE`, by ssh, where softib and the fabric run too")
	cmd.Flags().StringVar(&o.net, "net", "",
		"a network of the host's own, by IP over InfiniBand, in `MODE` datagram or connected")
	cmd.Flags().Lookup("net").NoOptDefVal = netAny
	cmd.Flags().BoolVarP(&o.verbose, "verbose", "v", false, "say what of the namespaces does not work here")
	return cmd
}

type execOptions struct {
	name, roce, on, net string
	plain, verbose      bool
}

// netAny is --net without a mode: the one that the host's network has, or datagram mode.
const netAny = "any"

// check says what does not go together.
func (o *execOptions) check() error {
	var err error
	switch {
	case o.net == "":
		return nil
	case o.plain:
		err = errors.New("--net takes namespaces, and --plain wants none")
	case o.roce != "":
		err = errors.New("--net is for hosts of a fabric, and --roce has none")
	case o.net != netAny && netMode(o.net) != netDatagram && netMode(o.net) != netConnected:
		err = fmt.Errorf("--net=%s: want datagram or connected", o.net)
	default:
		return nil
	}
	return next(&usageError{err}, "softib exec --net h1 -- ping h2")
}

// run becomes the program argv on a host; it returns only if that fails.
func (o execOptions) run(cmd *cobra.Command, host string, argv []string) error {
	p, err := newPlace(o.name)
	if err != nil {
		return err
	}
	q := enterRequest{Host: host, Plain: o.plain, Net: o.net != ""}
	if o.net != netAny {
		q.Mode = netMode(o.net)
	}
	e, user, network, conn, err := p.enter(cmd.Context(), q)
	if err != nil {
		return err
	}
	if q.Net && !e.Net {
		return next(errors.New("this fabric has no networks of hosts"), "softib exec without --net")
	}
	if e.RoCE != "" {
		conn.Close()
		o.roce = e.RoCE
		return o.runRoCE(cmd.Context(), argv)
	}
	path, set, err := p.program(argv)
	if err != nil {
		return err
	}
	in := dropin.Entry{Tree: e.Tree, User: user, Net: network, Verbose: o.verbose}
	switch {
	case e.Tree != "":
		if in.Report, err = conn.File(); err != nil {
			return fmt.Errorf("fabric %s: %w", p.name, err)
		}
	case o.verbose && e.Why != "":
		fmt.Fprintf(cmd.ErrOrStderr(), "softib: %s runs without /sys/class/infiniband and names of hosts: %s\n",
			argv[0], e.Why)
	}
	env := set.Environment(os.Environ(), dropin.Host{Name: host, IP: e.IP, GUIDs: []ib.GUID{e.GUID}, UMAD: p.umad(),
		Verbs: p.verbs(), RDMACM: p.rdmacm()})
	return set.Exec(in, path, argv, env)
}

// runOn becomes ssh, which runs the program on another machine of the fabric. The shell there takes a line apart that
// it is given, so that each word is quoted.
func (o execOptions) runOn(host string, argv []string) error {
	ssh, err := exec.LookPath("ssh")
	if err != nil {
		return next(err, "apt-get install openssh-client, or run the command on %s", o.on)
	}
	if strings.HasPrefix(o.on, "-") {
		return &usageError{fmt.Errorf("--on %s: want the name of a machine", o.on)}
	}
	words := []string{"softib", "exec", "--name", o.name}
	if o.plain {
		words = append(words, "--plain")
	}
	if o.verbose {
		words = append(words, "--verbose")
	}
	if o.net != "" && o.net != netAny {
		words = append(words, "--net="+o.net)
	} else if o.net != "" {
		words = append(words, "--net")
	}
	words = append(append(words, host, "--"), argv...)
	for i, w := range words {
		words[i] = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
	}
	args := []string{ssh, "--", o.on, strings.Join(words, " ")}
	if _, err := unix.IoctlGetTermios(int(os.Stdin.Fd()), unix.TCGETS); err == nil {
		args = slices.Insert(args, 1, "-t")
	}
	return unix.Exec(ssh, args, os.Environ())
}

// runRoCE becomes the program argv with adapters at Ethernet interfaces.
func (o execOptions) runRoCE(ctx context.Context, argv []string) error {
	if argv[0] == "--" {
		argv = argv[1:]
	}
	at, err := newRocePlace(o.roce)
	if err != nil {
		return err
	}
	p, err := newPlace(o.name)
	if err != nil {
		return err
	}
	path, set, err := p.program(argv)
	if err != nil {
		return err
	}
	kept, view, err := at.keep(ctx)
	if err != nil {
		return err
	}
	// The program, and whatever it starts, keeps the port without knowing.
	if _, err := unix.FcntlInt(kept.Fd(), unix.F_SETFD, 0); err != nil {
		return err
	}
	env := set.Environment(os.Environ(), dropin.Host{Name: o.roce, GUIDs: view.GUIDs, Verbs: "roce:" + at.verbs(),
		RDMACM: at.rdmacm()})
	in := dropin.Entry{Verbose: o.verbose}
	if !o.plain {
		user, err := dropin.NewSpaces(set).User(view.Files)
		if err == nil {
			in.Tree, in.User = view.Files, user
		} else if o.verbose {
			fmt.Fprintf(os.Stderr, "softib: %s runs without /sys/class/infiniband: %v\n", argv[0], err)
		}
	}
	err = set.Exec(in, path, argv, env)
	runtime.KeepAlive(kept)
	return err
}

// program finds a program, and the libraries for it. One that will find no adapter is told why.
func (p place) program(argv []string) (string, dropin.Set, error) {
	name := argv[0]
	path, err := findProgram(name)
	if err != nil {
		return "", dropin.Set{}, err
	}
	if dropin.HasOwnVerbs(path) {
		fmt.Fprintf(os.Stderr, "softib: %s has a libibverbs of its own linked in, which finds no adapter here; "+
			"next: link it without -static\n", name)
	}
	if why, instead := inKernel(argv); why != "" {
		fmt.Fprintf(os.Stderr, "softib: %s; next: %s\n", why, instead)
	}
	set, err := dropin.Ready(p.libraries())
	return path, set, err
}

// findProgram finds a program as a shell does, and where administrators' tools are, which others do not search.
func findProgram(name string) (string, error) {
	path, err := exec.LookPath(name)
	if err == nil {
		return path, nil
	}
	if filepath.Base(name) == name {
		for _, dir := range []string{"/usr/sbin", "/sbin", "/usr/local/sbin"} {
			if path, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
				return path, nil
			}
		}
	}
	return "", next(err, "give its path, or install it: apt-get install infiniband-diags opensm ibverbs-utils "+
		"rdmacm-utils perftest has the usual ones")
}
