package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"softib/internal/patience"
	"softib/operate/control"
)

// downPatience is how long a fabric may take to end.
const downPatience = 30 * time.Second

func newDown() *cobra.Command {
	var name string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "down",
		Short: "End a running fabric",
		Long: `Ends the fabric of the given name, in the background or in another terminal, and
returns once it is gone.`,
		Example: `  softib down
  softib down --name lab`,
		Args: arguments(0, 0, "no argument"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			p, err := newPlace(name)
			if err != nil {
				return err
			}
			if err := p.end(cmd.Context()); err != nil {
				return err
			}
			if asJSON {
				return printJSON(cmd.OutOrStdout(), map[string]any{"name": name, "down": true})
			}
			newTerminal(cmd.OutOrStdout()).say("fabric %s is down", name)
			return nil
		},
	}
	nameFlag(cmd, &name)
	jsonFlag(cmd, &asJSON)
	return cmd
}

// end asks a fabric to end and waits until its name is free.
func (p place) end(ctx context.Context) error {
	if err := askFabric(ctx, p, opDown, control.None{}, nil); err != nil {
		return err
	}
	ctx, cancel := patience.Context(ctx, downPatience)
	defer cancel()
	for p.isRunning() {
		select {
		case <-ctx.Done():
			return next(fmt.Errorf("fabric %s has agreed to end but is still there", p.name),
				"softib status%s names its process; see %s", p.flag(), p.log())
		case <-time.After(5 * time.Millisecond):
		}
	}
	return nil
}
