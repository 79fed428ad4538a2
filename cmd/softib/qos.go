package main

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"softib/operate/control"
	"softib/operate/manager/tenant"
	"softib/subnet/policy"
)

func newQoS() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "qos",
		Short: "Share the lanes of a running fabric out by a template",
		Long: `A QoS template gives kinds of traffic lanes of their own and says how the lanes take
turns: the subnet manager writes the mapping of service levels to lanes and the
arbitration into every port. Tenants choose a class: softib tenant create --class.`,
		Example: `  softib qos list
  softib qos apply classic
  softib tenant create disks --hosts h9-h12 --class storage
  softib qos off`,
	}
	return family(cmd, newQoSList(), newQoSShow(), newQoSApply(), newQoSOff())
}

// qosRequest puts a template in force, or none, or asks which is.
type qosRequest struct {
	Apply string `json:"apply,omitempty"`
	Off   bool   `json:"off,omitempty"`
}

// qosShown is a template as commands print it.
type qosShown struct {
	Name      string       `json:"name"`
	About     string       `json:"about"`
	InForce   bool         `json:"in_force"`
	HighLimit int          `json:"high_limit_bytes"`
	Classes   []classShown `json:"classes"`
}

type classShown struct {
	Name  string `json:"name"`
	About string `json:"about,omitempty"`
	SL    uint8  `json:"sl"`
	VL    uint8  `json:"vl"`
	// Weights are in bytes of a turn; 0 is no turn in that table.
	High int `json:"high_weight_bytes"`
	Low  int `json:"low_weight_bytes"`
}

// weightUnit is what a weight of the arbitration tables counts (IBA 7.6.9), limitUnit what the limit of the high one
// does.
const (
	weightUnit = 64
	limitUnit  = 4096
)

func showTemplate(t *policy.Template, inForce string) qosShown {
	out := qosShown{Name: t.Name, About: t.About, InForce: t.Name == inForce, HighLimit: limitUnit * int(t.HighLimit)}
	for _, c := range t.Classes {
		out.Classes = append(out.Classes, classShown{c.Name, c.About, uint8(c.SL), uint8(c.VL),
			weightUnit * int(c.High), weightUnit * int(c.Low)})
	}
	return out
}

// askQoS asks a running fabric which template is in force, after it was changed if the request says so.
func askQoS(cmd *cobra.Command, name string, r qosRequest) (inForce string, err error) {
	p, err := newPlace(name)
	if err != nil {
		return "", err
	}
	err = askFabric(cmd.Context(), p, opQoS, r, func(name string) error {
		inForce = name
		return nil
	})
	return inForce, err
}

// qosFlags are those that all have.
func qosFlags(cmd *cobra.Command, name *string, asJSON *bool) *cobra.Command {
	nameFlag(cmd, name)
	jsonFlag(cmd, asJSON)
	return cmd
}

func newQoSList() *cobra.Command {
	var name string
	var asJSON bool
	return qosFlags(&cobra.Command{
		Use:     "list",
		Short:   "List the templates, and which is in force",
		Example: `  softib qos list --json`,
		Args:    arguments(0, 0, "no argument"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			inForce, err := askQoS(cmd, name, qosRequest{})
			if err != nil {
				return err
			}
			var list []qosShown
			for _, t := range policy.Templates() {
				list = append(list, showTemplate(&t, inForce))
			}
			if asJSON {
				return printJSON(cmd.OutOrStdout(), list)
			}
			w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 8, 2, ' ', 0)
			for _, t := range list {
				mark := ""
				if t.InForce {
					mark = "in force"
				}
				fmt.Fprintf(w, "%s\t%s\t%s\n", t.Name, mark, t.About)
			}
			return w.Flush()
		},
	}, &name, &asJSON)
}

func newQoSShow() *cobra.Command {
	var name string
	var asJSON bool
	return qosFlags(&cobra.Command{
		Use:     "show TEMPLATE",
		Short:   "Show the classes of a template and how their lanes take turns",
		Example: `  softib qos show classic`,
		Args:    arguments(1, 1, "a TEMPLATE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			t, err := templateNamed(args[0])
			if err != nil {
				return err
			}
			shown := showTemplate(&t, "")
			if p, err := newPlace(name); err == nil && p.isRunning() {
				inForce, err := askQoS(cmd, name, qosRequest{})
				if err != nil {
					return err
				}
				shown.InForce = inForce == t.Name
			}
			if asJSON {
				return printJSON(cmd.OutOrStdout(), shown)
			}
			return printTemplate(cmd.OutOrStdout(), &shown)
		},
	}, &name, &asJSON)
}

func printTemplate(w io.Writer, t *qosShown) error {
	mark := ""
	if t.InForce {
		mark = " (in force)"
	}
	fmt.Fprintf(w, "%s%s: %s\n", t.Name, mark, t.About)
	tab := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(tab, "  CLASS\tSL\tLANE\tHIGH PRIORITY\tLOW PRIORITY\tFOR")
	turn := func(n int) string {
		if n == 0 {
			return "-"
		}
		return fmt.Sprintf("%d bytes a turn", n)
	}
	for _, c := range t.Classes {
		fmt.Fprintf(tab, "  %s\t%d\t%d\t%s\t%s\t%s\n", c.Name, c.SL, c.VL, turn(c.High), turn(c.Low), c.About)
	}
	if err := tab.Flush(); err != nil {
		return err
	}
	if t.HighLimit > 0 {
		_, err := fmt.Fprintf(w, "  a packet of low priority goes after at most %d bytes of high priority\n",
			t.HighLimit)
		return err
	}
	return nil
}

func templateNamed(name string) (policy.Template, error) {
	t, ok := policy.TemplateByName(name)
	if !ok {
		return t, next(&usageError{fmt.Errorf("no QoS template %q: want one of %s", name, policy.TemplateNames())},
			"softib qos show classic")
	}
	return t, nil
}

func newQoSApply() *cobra.Command {
	var name string
	var asJSON bool
	return qosFlags(&cobra.Command{
		Use:   "apply TEMPLATE",
		Short: "Put a template in force",
		Long: `Makes the subnet manager write the template's mapping of service levels to lanes and its
arbitration to every port, in place of what an opensm.conf says. It stays in force when the fabric is started again.`,
		Example: `  softib qos apply classic`,
		Args:    arguments(1, 1, "a TEMPLATE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			t, err := templateNamed(args[0])
			if err != nil {
				return err
			}
			inForce, err := askQoS(cmd, name, qosRequest{Apply: t.Name})
			if err != nil {
				return err
			}
			shown := showTemplate(&t, inForce)
			if asJSON {
				return printJSON(cmd.OutOrStdout(), shown)
			}
			return printTemplate(cmd.OutOrStdout(), &shown)
		},
	}, &name, &asJSON)
}

func newQoSOff() *cobra.Command {
	var name string
	var asJSON bool
	return qosFlags(&cobra.Command{
		Use:   "off",
		Short: "Take the template away",
		Long: `Lanes become what an opensm.conf says of them, or without one what ports have that nobody ` +
			`told anything. Tenants keep their service levels.`,
		Example: `  softib qos off`,
		Args:    arguments(0, 0, "no argument"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if _, err := askQoS(cmd, name, qosRequest{Off: true}); err != nil {
				return err
			}
			if asJSON {
				return printJSON(cmd.OutOrStdout(), struct{}{})
			}
			_, err := fmt.Fprintln(cmd.OutOrStdout(), "no QoS template is in force")
			return err
		},
	}, &name, &asJSON)
}

// qos answers a client.
func (s *server) qos(ctx context.Context, q qosRequest, r *control.Reply[string]) error {
	if s.mgr.Tenants() == nil {
		return s.noTenants()
	}
	ctx, far := tenant.WithProgress(ctx)
	r.Doing(far.String)
	if q.Apply != "" || q.Off {
		if err := s.mgr.UseTemplate(ctx, q.Apply); err != nil {
			return s.tenantTrouble(err)
		}
	}
	return r.Say(s.mgr.Tenants().Template())
}
