package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"softib/driver/smrun"
	"softib/operate/control"
	"softib/proto/ib"
	"softib/subnet"
	"softib/subnet/sm"
)

func newPartition() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "partition",
		Short: "Show the partitions of a running fabric, or put others in force",
		Long: `Partitions keep tenants apart: two ports talk only in a partition that both are in,
and at least one of them as a full member. They come from a file in the format of
OpenSM's partitions.conf, which softib up --partitions FILE names.`,
		Example: `  softib up -d --partitions tenants.conf
  softib partition show
  softib partition reload                # the file has changed
  softib partition reload other.conf     # another file`,
	}
	return family(cmd, newPartitionShow(), newPartitionReload())
}

func newPartitionShow() *cobra.Command {
	var name string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "show",
		Short: "List the partitions in force and who is in them",
		Example: `  softib partition show
  softib partition show --json`,
		Args: arguments(0, 0, "no argument"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return askPartitions(cmd, name, partitionRequest{}, asJSON)
		},
	}
	nameFlag(cmd, &name)
	jsonFlag(cmd, &asJSON)
	return cmd
}

func newPartitionReload() *cobra.Command {
	var name string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "reload [FILE]",
		Short: "Read the partitions and the QoS policy again, and put them in force",
		Long: `Makes the manager of a running fabric read its partitions again, from FILE or from the
file that it was started with, and its QoS policy. Ports that leave a partition lose its key, at
their adapter and at the switch in front of it; keys that stay keep their index. If a
file has an error, it is shown with its place, and what is in force stays.

A SIGHUP to a softib up -d or a softib sm does the same.`,
		Example: `  softib partition reload
  softib partition reload tenants.conf --name lab`,
		Args: arguments(0, 1, "at most one FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			r := partitionRequest{Reload: true}
			if len(args) == 1 {
				var err error
				if r.File, err = filepath.Abs(args[0]); err != nil {
					return err
				}
			}
			return askPartitions(cmd, name, r, asJSON)
		},
	}
	nameFlag(cmd, &name)
	jsonFlag(cmd, &asJSON)
	return cmd
}

// partitionRequest asks for the partitions in force, after they were read again if it says so.
type partitionRequest struct {
	Reload bool   `json:"reload,omitempty"`
	File   string `json:"file,omitempty"`
}

// partitionShown is a partition in force, for programs.
type partitionShown struct {
	Key     string            `json:"key"`
	Name    string            `json:"name"`
	IPoIB   bool              `json:"ipoib"`
	SL      *ib.SL            `json:"sl,omitempty"`
	Members map[string]string `json:"members"` // full or limited, by port GUID
}

// partitionSaid is a line for people, and what it is about where that is a partition.
type partitionSaid struct {
	Line      string          `json:"line"`
	Partition *partitionShown `json:"partition,omitempty"`
}

func showPartition(p *subnet.Partition) *partitionShown {
	x := &partitionShown{Key: p.Key.Base().String(), Name: p.Name, IPoIB: p.IPoIB, Members: map[string]string{}}
	if p.HasSL {
		x.SL = new(p.SL)
	}
	for _, m := range p.Members {
		x.Members[m.GUID.String()] = "limited"
		if m.Full {
			x.Members[m.GUID.String()] = "full"
		}
	}
	return x
}

func askPartitions(cmd *cobra.Command, name string, r partitionRequest, asJSON bool) error {
	p, err := newPlace(name)
	if err != nil {
		return err
	}
	list := []partitionShown{}
	err = askFabric(cmd.Context(), p, opPartition, r, func(a partitionSaid) error {
		switch {
		case a.Partition != nil:
			list = append(list, *a.Partition)
			if asJSON {
				return nil
			}
		case asJSON:
			_, err := fmt.Fprintln(cmd.ErrOrStderr(), a.Line)
			return err
		}
		_, err := fmt.Fprintln(cmd.OutOrStdout(), a.Line)
		return err
	})
	if err == nil && asJSON {
		err = printJSON(cmd.OutOrStdout(), list)
	}
	return err
}

// smList are the subnet managers that run in this process, each with what it was told.
type smList struct {
	mu   sync.Mutex
	list []*runningSM
}

// runningSM is a subnet manager and its files.
type runningSM struct {
	run *smrun.Runner
	// tenants are nil where the manager has none to look after.
	tenants *tenancy

	mu   sync.Mutex
	opts smOptions
}

// reload reads the files again, the partitions from another one if it is named. It returns what there is to say about
// them. With an error everything stays as it is.
func (x *runningSM) reload(partitions string) ([]string, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	o := x.opts
	if partitions != "" {
		o.Partitions = partitions
	}
	if err := o.reload(x.run, x.tenants); err != nil {
		return nil, next(fmt.Errorf("the partitions and the policy in force stay:\n%w", err), "%s, then reload again",
			nextOf(err))
	}
	x.opts = o
	return o.notes, nil
}

// add takes a manager in until the returned function is called.
func (m *smList) add(x *runningSM) (drop func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.list = append(m.list, x)
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		for i, o := range m.list {
			if o == x {
				m.list = append(m.list[:i:i], m.list[i+1:]...)
				return
			}
		}
	}
}

// partitions answers a client.
func (s *server) partitions(_ context.Context, q partitionRequest, r *control.Reply[partitionSaid]) error {
	s.sms.mu.Lock()
	defer s.sms.mu.Unlock()
	if len(s.sms.list) == 0 {
		return next(fmt.Errorf("no manager of softib's runs on fabric %s", s.f.name),
			"softib sm starts one; another manager, such as opensm, reads its own files")
	}
	for _, x := range s.sms.list {
		if !q.Reload {
			break
		}
		notes, err := x.reload(q.File)
		if err != nil {
			return err
		}
		for _, n := range notes {
			if err := r.Say(partitionSaid{Line: n}); err != nil {
				return err
			}
		}
		swept(x.run)
	}
	// The master's are in force.
	for _, x := range s.sms.list {
		var list []subnet.Partition
		_ = x.run.Do(func(m *sm.Manager) {
			if m.Subnet() != nil {
				list = m.Subnet().Partitions
			}
		})
		if list == nil {
			continue
		}
		for i := range list {
			if err := r.Say(partitionSaid{s.describePartition(&list[i]), showPartition(&list[i])}); err != nil {
				return err
			}
		}
		return nil
	}
	return next(fmt.Errorf("the manager of fabric %s has no subnet yet", s.f.name),
		"softib status shows who is master; then try again")
}

// swept waits until a manager has done what it was asked to, or stands by.
func swept(run *smrun.Runner) {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for busy := true; busy; <-tick.C {
		if run.Do(func(m *sm.Manager) { busy = m.Subnet() != nil && m.Sweeping() }) != nil {
			return
		}
	}
}

// membersShown is how many members of a partition are named.
const membersShown = 8

// describePartition is a line about a partition: key, name, what it has, members by name; limited ones say so.
func (s *server) describePartition(p *subnet.Partition) string {
	names := map[ib.GUID]string{}
	for _, n := range s.f.Graph().Nodes {
		for port := range n.Ports {
			name := n.Name
			if !n.IsSwitch() && n.NumPorts() > 1 {
				name = fmt.Sprintf("%s/%d", n.Name, port)
			}
			names[n.PortGUID(ib.PortNum(port))] = name
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%v  %-12s %s", p.Key.Base(), p.Name, numbered(len(p.Members), "port", "ports"))
	if p.IPoIB {
		b.WriteString(", ipoib")
	}
	if p.HasSL {
		fmt.Fprintf(&b, ", sl %d", p.SL)
	}
	limited := 0
	for _, m := range p.Members {
		if !m.Full {
			limited++
		}
	}
	b.WriteString(":")
	for i, m := range p.Members {
		if i == membersShown {
			fmt.Fprintf(&b, " and %d more", len(p.Members)-i)
			break
		}
		name := names[m.GUID]
		if name == "" {
			name = m.GUID.String()
		}
		fmt.Fprintf(&b, " %s", name)
		if !m.Full && limited < len(p.Members) {
			b.WriteString(" (limited)")
		}
	}
	if limited == len(p.Members) {
		b.WriteString("; all limited")
	}
	return b.String()
}

// reloadOnHangup reads a manager's files again whenever the process gets a SIGHUP, as OpenSM does, until ctx ends.
func (x *runningSM) reloadOnHangup(ctx context.Context, log io.Writer) {
	say := func(format string, v ...any) {
		fmt.Fprintf(log, "%s sm policy: %s\n", time.Now().Format(logTime), fmt.Sprintf(format, v...))
	}
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	go func() {
		defer signal.Stop(hup)
		for {
			select {
			case <-ctx.Done():
				return
			case <-hup:
			}
			notes, err := x.reload("")
			if err != nil {
				say("%v; next: %s", err, nextOf(err))
				continue
			}
			for _, n := range notes {
				say("%s", n)
			}
			say("partitions and policy were read again")
		}
	}()
}
