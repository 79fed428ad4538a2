package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

func newMan() *cobra.Command {
	return &cobra.Command{
		Use:   "man DIR",
		Short: "Write the manual pages, one for each command",
		Long: `Writes a manual page for softib and for each of its commands to DIR, which is made if it
is not there. make install puts them, with the completions of the shells, where
man and the shells look.`,
		Example: `  softib man /tmp/man && man -l /tmp/man/softib-up.1
  make install PREFIX=$HOME/.local`,
		Args: arguments(1, 1, "a folder"),
		RunE: func(cmd *cobra.Command, args []string) error {
			n, err := writeMan(cmd.Root(), args[0])
			if err != nil {
				return err
			}
			newTerminal(cmd.OutOrStdout()).say("%s in %s", numbered(n, "page", "pages"), args[0])
			return nil
		},
	}
}

// asMarkdown is a command whose text keeps its tables: cobra takes it for Markdown, where lines that are to stay as
// they are begin with four spaces and stand apart.
func asMarkdown(c *cobra.Command) *cobra.Command {
	var b strings.Builder
	kept := false
	for line := range strings.Lines(c.Long) {
		if keep := strings.HasPrefix(line, "  "); keep {
			if !kept {
				b.WriteString("\n")
			}
			b.WriteString("    ")
			kept = true
		} else {
			kept = false
		}
		b.WriteString(line)
	}
	d := *c
	d.Long = b.String()
	return &d
}

// writeMan writes the pages of a command and of all below it.
func writeMan(root *cobra.Command, dir string) (int, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return 0, err
	}
	root.DisableAutoGenTag = true // the same pages for the same program
	n := 0
	var visit func(*cobra.Command) error
	visit = func(c *cobra.Command) error {
		if c.Hidden || c.Name() == "help" {
			return nil
		}
		name := strings.ReplaceAll(c.CommandPath(), " ", "-")
		f, err := os.Create(filepath.Join(dir, name+".1"))
		if err != nil {
			return err
		}
		defer f.Close()
		head := &doc.GenManHeader{Title: strings.ToUpper(name), Section: "1", Source: "softib " + version,
			Manual: "softib"}
		if err := doc.GenMan(asMarkdown(c), head, f); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		n++
		for _, sub := range c.Commands() {
			if err := visit(sub); err != nil {
				return err
			}
		}
		return nil
	}
	return n, visit(root)
}
