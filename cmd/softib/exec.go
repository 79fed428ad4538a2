package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"

	"softib/capi/dropin"
)

func newExec() *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use:   "exec HOST -- CMD [ARG…]",
		Short: "Run an unmodified management program on a host of the fabric",
		Long: `Runs CMD as if this machine were HOST: whatever CMD does through libibumad
happens at that host's ports. OpenSM, infiniband-diags and everything else that
is built on libibumad run as they are; no kernel module and no root is needed.

HOST is a host (h1) or a switch (leaf1), whose own port 0 is used then.`,
		Example: `  softib exec h1 -- ibstat
  softib exec h1 -- ibnetdiscover
  softib exec h3 -- saquery
  softib up -d --no-sm && softib exec h1 -- opensm -R ftree`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) < 2 || args[1] == "--" && len(args) < 3 {
				return usage(cmd, errors.New("exec takes a HOST and a command: softib exec h1 -- ibstat"))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if args[1] == "--" {
				args = append(args[:1:1], args[2:]...)
			}
			p, err := newPlace(name)
			if err != nil {
				return err
			}
			if err := p.call(cmd.Context(), request{Op: opHost, Host: args[0]}, func(answer) error { return nil }); err != nil {
				return err
			}
			path, err := exec.LookPath(args[1])
			if err != nil {
				// Administrators' tools are in folders that others do not search.
				for _, dir := range []string{"/usr/sbin", "/sbin", "/usr/local/sbin"} {
					if p, lookErr := exec.LookPath(filepath.Join(dir, args[1])); lookErr == nil {
						path, err = p, nil
						break
					}
				}
			}
			if err != nil {
				return next(err, "give its path, or install it: apt-get install infiniband-diags opensm has the usual ones")
			}
			set, err := dropin.Ready(p.libraries())
			if err != nil {
				return err
			}
			env := set.Environment(os.Environ(), dropin.Host{Name: args[0], UMAD: p.umad()})
			return fmt.Errorf("%s: %w", path, syscall.Exec(path, args[1:], env))
		},
	}
	cmd.Flags().SetInterspersed(false)
	nameFlag(cmd, &name)
	return cmd
}
