package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"softib/internal/release"
)

const version = release.Version

func newVersion() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Print softib's version and what it was built with",
		Example: "  softib version",
		Args:    arguments(0, 0, "no argument"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			revision := ""
			if info, ok := debug.ReadBuildInfo(); ok {
				for _, s := range info.Settings {
					if s.Key == "vcs.revision" {
						revision = s.Value
					}
				}
			}
			if asJSON {
				return printJSON(cmd.OutOrStdout(), map[string]string{"version": version, "revision": revision,
					"go": runtime.Version(), "os": runtime.GOOS, "arch": runtime.GOARCH})
			}
			if revision != "" {
				revision = " " + revision
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "softib %s%s %s %s/%s\n", version, revision, runtime.Version(),
				runtime.GOOS, runtime.GOARCH)
			return err
		},
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}
