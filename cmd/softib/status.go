package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"softib/ib"
)

func newStatus() *cobra.Command {
	var name string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show a running fabric",
		Long:  `Shows what a running fabric is, how its links are, and what its hosts have sent.`,
		Example: `  softib status
  softib status --name lab --json | jq .packets`,
		Args: arguments(0, 0, "no argument"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			p, err := newPlace(name)
			if err != nil {
				return err
			}
			var st *status
			err = p.call(cmd.Context(), request{Op: opStatus}, func(a answer) error {
				if a.Status != nil {
					st = a.Status
				}
				return nil
			})
			if err == nil && st == nil {
				err = fmt.Errorf("fabric %s answered without a status", name)
			}
			if err != nil {
				return err
			}
			if asJSON {
				enc := json.NewEncoder(cmd.OutOrStdout())
				enc.SetIndent("", "  ")
				return enc.Encode(st)
			}
			st.print(newTerminal(cmd.OutOrStdout()))
			for _, other := range p.running() {
				if other != name {
					newTerminal(cmd.OutOrStdout()).say("also running: %s (softib status --name %s)", other, other)
				}
			}
			return nil
		},
	}
	nameFlag(cmd, &name)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func (s *status) print(t *terminal) {
	t.say("fabric    %s, process %d, up %s", t.bold(s.Name), s.PID, uptime(s.UptimeSec))
	t.say("topology  %s: %s", s.Topology, s.Description)
	t.say("nodes     %s, %s", numbered(s.Hosts, "host", "hosts"), numbered(s.Switches, "switch", "switches"))
	t.say("links     %s", s.links(t))
	t.say("hosts     %d of %d ACTIVE", s.HostsActive, s.Hosts)
	t.say("carried   %d packets, %s", s.Packets, bytesOf(s.Bytes))
}

// links lists the states from ACTIVE down.
func (s *status) links(t *terminal) string {
	var parts []string
	for st := ib.PortActive; st >= ib.PortDown; st-- {
		n := s.LinkStates[stateName(st)]
		if n == 0 {
			continue
		}
		text := fmt.Sprintf("%d %s", n, stateName(st))
		if st == ib.PortActive {
			text = t.green(text)
		}
		parts = append(parts, text)
	}
	if len(parts) == 0 {
		return "none"
	}
	return strings.Join(parts, ", ")
}

func uptime(sec float64) string {
	d := time.Duration(sec * float64(time.Second))
	if d > time.Minute {
		return d.Round(time.Second).String()
	}
	return d.Round(100 * time.Millisecond).String()
}

// bytesOf prints a size in the largest fitting unit.
func bytesOf(n uint64) string {
	units := []string{"bytes", "KiB", "MiB", "GiB", "TiB", "PiB"}
	v, i := float64(n), 0
	for ; v >= 1024 && i < len(units)-1; i++ {
		v /= 1024
	}
	if i == 0 {
		return fmt.Sprintf("%d bytes", n)
	}
	return fmt.Sprintf("%.1f %s", v, units[i])
}
