package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"softib/internal/files"
	"softib/operate/wiring"
	"softib/proto/topo"
)

func newTopoBOM() *cobra.Command {
	var o struct {
		layout, name, prices string
		asJSON, show         bool
	}
	cmd := &cobra.Command{
		Use:   "bom [TOPOLOGY|live]",
		Short: "Say what a topology is made of: switches and cables by kind and length",
		Long: `Prints a bill of materials: switches by ports, cables by kind and length, what they
may cost and what power they take, adapters too. Copper is chosen as far as it reaches at the
speed, active copper and optics beyond. Prices are orders of magnitude, taken from
no price list, and power is an estimate too: --prices FILE has others, and
--show-prices prints those that hold, as such a file.

Lengths come from a rack layout: the cable goes up into the tray, along the row and
across rows, and down, and is rounded up to what is sold. Without --layout they are
the topology's own if it has any; else a layout is made up: leaves at the top of
racks with their hosts, switches above them in the middle of rows.

` + wiring.LayoutFormat + `
` + wiring.PricesFormat + `
` + topologyHelp() + liveHelp,
		Example: `  softib topo bom
  softib topo bom fat-tree:radix=64,levels=2,speed=NDR
  softib topo bom cluster.topo --layout racks.txt --json`,
		Args: arguments(0, 1, "at most one TOPOLOGY"),
		RunE: func(cmd *cobra.Command, args []string) error {
			prices, err := loadPrices(o.prices)
			if err != nil {
				return err
			}
			if o.show {
				_, err := io.WriteString(cmd.OutOrStdout(), prices.String())
				return err
			}
			arg := topo.DefaultSpec
			if len(args) == 1 {
				arg = args[0]
			}
			g, err := loadOrLive(cmd.Context(), toTerminal(newTerminal(cmd.ErrOrStderr())), arg, o.name)
			if err != nil {
				return err
			}
			b, err := makeBill(g.Graph, o.layout, prices)
			if err != nil {
				return err
			}
			t := newTerminal(cmd.OutOrStdout())
			if o.asJSON {
				return printJSON(t.w, b)
			}
			printBill(t, g.title, b)
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.layout, "layout", "", "where things stand, from `FILE`")
	pricesFlag(cmd, &o.prices)
	f.BoolVar(&o.show, "show-prices", false, "print prices and power as a file for --prices")
	f.BoolVar(&o.asJSON, "json", false, "print JSON")
	nameFlag(cmd, &o.name)
	return cmd
}

// pricesFlag is --prices.
func pricesFlag(cmd *cobra.Command, name *string) {
	cmd.Flags().StringVar(name, "prices", "", "what things cost and what power they take, from `FILE`")
}

// loadPrices reads a file of prices; without one they are the default ones.
func loadPrices(file string) (*wiring.Prices, error) {
	if file == "" {
		return wiring.DefaultPrices(), nil
	}
	text, err := files.ReadText(file, files.TextMax)
	if err != nil {
		return nil, next(err, "name a file of prices: softib topo bom --show-prices prints one")
	}
	p, err := wiring.ParsePrices(file, string(text))
	if err != nil {
		return nil, next(err, "mend that line: softib topo bom --help describes the format")
	}
	return p, nil
}

func makeBill(g *topo.Graph, file string, prices *wiring.Prices) (*wiring.Bill, error) {
	if file == "" {
		return wiring.EstimateBill(g, prices)
	}
	text, err := files.ReadText(file, files.TextMax)
	if err != nil {
		return nil, next(err, "name a layout file: softib topo bom --help describes it")
	}
	l, err := wiring.ParseLayout(file, string(text))
	if err != nil {
		return nil, next(err, "mend that line: softib topo bom --help describes the format")
	}
	b, err := wiring.NewBillAt(g, l, prices)
	if errors.Is(err, wiring.ErrNotPlaced) {
		return nil, next(fmt.Errorf("%s: %w", file, err), "add place lines to %s, such as: place h1..h18 A1 1", file)
	}
	return b, err
}

func printBill(t *terminal, title string, b *wiring.Bill) {
	rows(t.under("topology"), fmt.Sprintf("%s: %s", title, b.Describe))
	where := b.Lengths
	if b.Racks > 0 {
		where += fmt.Sprintf(": %s in %s", numbered(b.Racks, "rack", "racks"), numbered(b.Rows, "row", "rows"))
	}
	rows(t.under("lengths"), where)
	t.say("")
	const line = "%6s  %-37s %19s %9s"
	head := func(what string) { t.say("%s", t.bold(fmt.Sprintf(line, "count", what, "estimated US$", "watts"))) }
	head("switches")
	for _, s := range b.Switches {
		t.say(line, fmt.Sprint(s.Count), fmt.Sprintf("%d ports %s, %d used, %d free", s.Ports, s.Rate, s.Used, s.Free),
			priceSpan(s.LowUSD, s.HighUSD), watts(s.Watts))
	}
	t.say("")
	head("adapters")
	for _, a := range b.AdapterLines {
		t.say(line, fmt.Sprint(a.Count), "ports "+a.Rate, priceSpan(a.LowUSD, a.HighUSD), watts(a.Watts))
	}
	t.say("")
	head("cables")
	for _, c := range b.Cables {
		t.say(line, fmt.Sprint(c.Count), fmt.Sprintf("%6s %s, %v", c.Length(), c.Rate, c.Medium),
			priceSpan(c.LowUSD, c.HighUSD), watts(c.Watts))
	}
	t.say("")
	t.say(line, "", fmt.Sprintf("%s, %s", numbered(b.SwitchCount, "switch", "switches"),
		numbered(b.CableCount, "cable", "cables")), priceSpan(b.LowUSD, b.HighUSD), watts(b.Watts))
	t.say("")
	rows(t.under("ports"), fmt.Sprintf("%d of %d switch ports used; %s", b.PortsUsed, b.PortsUsed+b.PortsFree,
		numbered(b.Adapters, "adapter port", "adapter ports")))
	rows(t.under("idle"), fmt.Sprintf("%s W of it without traffic", watts(b.IdleWatts)))
	rows(t.under("length"), fmt.Sprintf("%.0f m of cable", float64(b.TotalMM)/1000))
	if b.Internal > 0 {
		rows(t.under("within"), fmt.Sprintf("%s inside chassis, not counted", numbered(b.Internal, "link", "links")))
	}
	if n := len(b.TooLong); n > 0 {
		rows(t.under("too long"), fmt.Sprintf("%s longer than anything sold reaches, such as %s",
			numbered(n, "cable is", "cables are"), b.TooLong[0]))
	}
	rows(t.under("note"), b.Estimate)
}

// priceSpan writes a range of prices with two or three digits that mean something.
func priceSpan(low, high float64) string { return money(low) + " to " + money(high) }

func money(v float64) string {
	switch {
	case v >= 999_500:
		return fmt.Sprintf("%.2fM", v/1e6)
	case v >= 9_995:
		return fmt.Sprintf("%.0fk", v/1e3)
	}
	return fmt.Sprintf("%.0f", v)
}

func watts(v float64) string {
	return strings.TrimSpace(fmt.Sprintf("%.0f", v))
}
