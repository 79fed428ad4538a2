package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"softib/internal/files"
	"softib/operate/experiment"
	"softib/operate/webui"
)

// printRun says what came of a run.
func printRun(t *terminal, r *experiment.Report) {
	t.say("%s, %s on %s of %d hosts, routed by %s", t.bold(r.Load.Name),
		numbered(r.Load.Messages, "message", "messages"), r.Fabric.Topology, r.Fabric.Hosts, r.Fabric.Routing)
	t.say("  level      %s: %s", r.Level, r.Why)
	if r.Fabric.Congestion {
		t.say("  control    congestion control is on")
	}
	if r.Whole {
		t.say("  took       %s; %s, %sB/s in all", duration(r.End), bytesOf(r.Load.Bytes),
			scaled(float64(r.Load.Bytes)/max(r.End, 1e-12), 1000, []string{"", "k", "M", "G", "T"}))
	} else {
		t.say("  %s", t.red("not whole: "+r.Stopped))
		t.say("  reached    %s of virtual time", duration(append([]float64{0}, r.Times...)[len(r.Times)]))
	}
	for _, line := range r.Load.Says {
		t.say("  made of    %s", line)
	}
	if r.Step != nil {
		t.say("  step       %s without communication, which adds %s (%.1f %%); processors are busy %.1f %% of the time",
			duration(r.Step.Alone), duration(r.Step.Exposed), 100*r.Step.Exposed/max(r.End, 1e-12),
			100*r.Step.Utilisation)
	}
	for _, j := range r.Jobs {
		t.say("  job        %s on %s took %s; messages median %s, 99 %% within %s, the last %s", j.Name,
			numbered(j.Ranks, "host", "hosts"), duration(j.End), duration(j.Took.P50), duration(j.Took.P99),
			duration(j.Took.Max))
		if a := j.Alone; a != nil {
			t.say("             alone %s; messages median %s, 99 %% within %s, the last %s", duration(a.End),
				duration(a.Took.P50), duration(a.Took.P99), duration(a.Took.Max))
		}
	}
	if r.Fabric.Lost > 0 {
		t.say("  lost       %s of the top level", numbered(r.Fabric.Lost, "switch", "switches"))
	}
	if r.Fabric.Servers > 0 {
		how := "by the fabric too: NVLink is off"
		if r.Fabric.NVLink > 0 {
			how = fmt.Sprintf("%s of it within them by NVLink, %sB/s a GPU", bytesOf(r.Load.InServers),
				scaled(r.Fabric.NVLink, 1000, []string{"", "k", "M", "G", "T"}))
		}
		t.say("  servers    %d, %s", r.Fabric.Servers, how)
	}
	printMessages(t, r)
	for _, tier := range r.Tiers {
		t.say("  links      %-22s %5d, used %.1f %% on average, the busiest %.1f %%", tier.Name, tier.Links,
			100*tier.Use.Mean, 100*tier.Use.Max)
	}
	printEthernet(t, r.Ethernet)
	if l := r.Lost; l != nil {
		t.say("  lost       %s; %s, %s sent again", numbered(l.Links, "link", "links"),
			numbered(int(l.Timeouts), "timeout", "timeouts"), numbered(int(l.Again), "packet", "packets"))
	}
	if c, e := r.Cost, r.Energy; c != nil && e != nil {
		t.say("  energy     %s, %s of it without traffic; %s/B", joules(e.Total), joules(e.Idle), joules(e.PerByte))
		t.say("  cost       US$ %s, %s to %s W (estimates: softib topo bom)", priceSpan(c.LowUSD, c.HighUSD),
			watts(c.IdleWatts), watts(c.Watts))
	}
	if a := r.Adapters; a != nil {
		t.say("  adapters   up to %s; fetched: %s of the contexts, %s of the READs, %s of the pages",
			numbered(a.QueuePairs, "queue pair", "queue pairs"), fetched(a.Contexts), fetched(a.Requests),
			fetched(a.Translations))
	}
	t.say("  run        %.1f s, seed %d, hash %s", r.Wall, r.Seed, r.Hash)
}

// printMessages says how long messages took that have arrived.
func printMessages(t *terminal, r *experiment.Report) {
	if !r.Whole && r.Messages[0].Took.Max == 0 {
		t.say("  messages   none has arrived yet")
		return
	}
	for _, c := range r.Messages {
		t.say("  messages   %-16s median %s, 99 %% within %s, the last %s", c.Name, duration(c.Took.P50),
			duration(c.Took.P99), duration(c.Took.Max))
	}
	t.say("  speed      %.1f %% of a host's link on average, the slowest %.1f %%; fairness %.3f", 100*r.Speed.Mean,
		100*r.Speed.Min, r.Fairness)
}

// duration is seconds as people read them.
func duration(s float64) string { return scaled(s*1e9, 1000, []string{"ns", "us", "ms", "s"}) }

// joules is an energy as people read it.
func joules(j float64) string {
	return scaled(j*1e12, 1000, []string{"pJ", "nJ", "uJ", "mJ", "J", "kJ", "MJ"})
}

// scaled is a number with four digits in the largest of some units, each so many times the one before.
func scaled(v, step float64, units []string) string {
	i := 0
	for ; v >= step && i < len(units)-1; i++ {
		v /= step
	}
	return fmt.Sprintf("%.4g %s", v, units[i])
}

// writeRun writes what there is of a run to a folder.
func writeRun(dir string, s *experiment.Spec, r *experiment.Report) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return next(err, "name a folder that can be made with -o")
	}
	for name, write := range map[string]func(io.Writer) error{
		"report.html": func(w io.Writer) error { return experiment.WritePage(w, r) },
		"report.json": func(w io.Writer) error { return printJSON(w, r) },
		"series.csv":  func(w io.Writer) error { return experiment.WriteSeriesCSV(w, r) },
		"links.csv":   func(w io.Writer) error { return experiment.WriteLinksCSV(w, r) },
		"map.json": func(w io.Writer) error {
			return webui.WriteMap(w, r.Fabric.Topology, s.Graph,
				webui.Report{Command: r.Command, Load: r.Load.Name, End: r.End, Use: r.Use})
		},
	} {
		if err := writeTo(filepath.Join(dir, name), write); err != nil {
			return err
		}
	}
	return nil
}

func writeTo(name string, write func(io.Writer) error) error {
	f, err := os.Create(name)
	if err != nil {
		return next(err, "name a folder that can be written to with -o")
	}
	return errors.Join(write(f), f.Close())
}

func newSimCompare() *cobra.Command {
	var out string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "compare RUN RUN…",
		Short: "Lay runs of softib sim side by side",
		Long: `RUN is a folder that softib sim -o has written, or its report.json. Differences are to
the first. With -o FILE there is a page with their curves in one plot.`,
		Example: `  softib sim compare run another
  softib sim compare runs/*/ -o all.html`,
		Args: arguments(2, 64, "two RUNs or more"),
		RunE: func(cmd *cobra.Command, args []string) error {
			var rs []*experiment.Report
			for _, a := range args {
				r, err := readRun(a)
				if err != nil {
					return err
				}
				rs = append(rs, r)
			}
			if out != "" {
				page := func(w io.Writer) error { return experiment.WriteComparison(w, rs) }
				if err := writeTo(out, page); err != nil {
					return err
				}
			}
			t, list := newTerminal(cmd.OutOrStdout()), compareRuns(args, rs)
			if asJSON {
				return printJSON(t.w, list)
			}
			printCompared(t, list)
			if out != "" {
				t.say("%s", out)
			}
			return nil
		},
	}
	cmd.Flags().StringVarP(&out, "out", "o", "", "write a page to this `FILE`")
	jsonFlag(cmd, &asJSON)
	return cmd
}

// readRun reads a report.
func readRun(name string) (*experiment.Report, error) {
	if at, err := os.Stat(name); err == nil && at.IsDir() {
		name = filepath.Join(name, "report.json")
	}
	text, err := files.ReadText(name, goalMax)
	if err != nil {
		return nil, next(err, "name a folder that softib sim -o has written")
	}
	r := &experiment.Report{}
	if err := json.Unmarshal(text, r); err != nil || r.Hash == "" {
		return nil, next(fmt.Errorf("%s is no report of softib sim: %v", name, err),
			"name a folder that softib sim -o has written")
	}
	return r, nil
}

// compared is a run beside others.
type compared struct {
	Run      string  `json:"run"`
	Level    string  `json:"level"`
	Hash     string  `json:"hash"`
	End      float64 `json:"end_s"`
	Change   float64 `json:"change"` // of end_s, in parts of the first run's
	P50      float64 `json:"p50_s"`
	P99      float64 `json:"p99_s"`
	Fairness float64 `json:"fairness"`
}

// compareRuns takes what is compared.
func compareRuns(names []string, rs []*experiment.Report) (list []compared) {
	for i, r := range rs {
		c := compared{Run: names[i], Level: r.Level, Hash: r.Hash, End: r.End, Fairness: r.Fairness}
		if rs[0].End > 0 {
			c.Change = r.End/rs[0].End - 1
		}
		if len(r.Messages) > 0 {
			c.P50, c.P99 = r.Messages[0].Took.P50, r.Messages[0].Took.P99
		}
		list = append(list, c)
	}
	return list
}

// printCompared prints a line for each.
func printCompared(t *terminal, list []compared) {
	wide := 3
	for _, c := range list {
		wide = max(wide, len(c.Run))
	}
	t.say("%-*s  %12s  %8s  %12s  %12s  %9s  %s", wide, "run", "took", "", "median", "99 %", "fairness", "level")
	for i, c := range list {
		change := ""
		if i > 0 {
			change = fmt.Sprintf("%+.1f %%", 100*c.Change)
		}
		t.say("%-*s  %12s  %8s  %12s  %12s  %9.3f  %s", wide, c.Run, duration(c.End), change, duration(c.P50),
			duration(c.P99), c.Fairness, c.Level)
	}
}
