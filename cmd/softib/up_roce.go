package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"softib/driver/roce"
	"softib/node/inspect"
	"softib/operate/control"
	"softib/operate/status"
	"softib/proto/ib"
)

// roceFlags are those of softib up that mean something for interfaces; the two of a fabric's page and state are let
// through where they ask for none.
var roceFlags = []string{"roce", "name", "detach", "json", "report-fd"}

// checkRoCE refuses what interfaces do not have.
func checkRoCE(cmd *cobra.Command, o *upOptions, args []string) (err error) {
	if len(args) > 0 {
		return next(&usageError{fmt.Errorf("%s and --roce: the machine's network is the topology", args[0])},
			"softib up --roce %s", o.roce)
	}
	cmd.Flags().Visit(func(f *pflag.Flag) {
		none := f.Name == "state" && f.Value.String() == stateNone || f.Name == "http" && f.Value.String() == "off"
		if !slices.Contains(roceFlags, f.Name) && !none && err == nil {
			err = next(&usageError{fmt.Errorf("--%s with --roce: there are no switches and no manager", f.Name)},
				"softib up --roce %s", o.roce)
		}
	})
	return err
}

// upRoCE keeps a fabric until ctx ends or somebody asks it to whose hosts are Ethernet interfaces of this machine: it
// has names for them, and sees to it that their ports are held.
func upRoCE(ctx context.Context, p place, o upOptions, out *reporter, ready func()) (err error) {
	at, err := newRocePlace(o.roce)
	if err != nil {
		return err
	}
	lock, err := p.claim()
	if errors.Is(err, errHeld) {
		return p.alreadyRunning()
	}
	if err != nil {
		return err
	}
	defer func() { p.leave(lock, err) }()
	kept, _, err := at.keep(ctx)
	if err != nil {
		return err
	}
	defer kept.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ops, err := control.Listen(p.socket(), nil)
	if err != nil {
		return err
	}
	defer os.Remove(p.socket())
	defer ops.Close()
	f := &roceFabric{p, at, time.Now()}
	ops.Others = next(&usageError{fmt.Errorf("the hosts of fabric %s are Ethernet interfaces: there are no switches, "+
		"cables or managers to ask", p.name)}, "softib status%s, softib exec%[1]s %s -- PROGRAM", p.flag(), at.devs[0])
	control.Handle(ops, opStatus, func(_ context.Context, _ control.None, r *control.Reply[status.Status]) error {
		st, err := f.status()
		if err != nil {
			return err
		}
		return r.Say(st)
	})
	control.Handle(ops, opDown, func(_ context.Context, _ control.None, r *control.Reply[control.None]) error {
		r.Finally(cancel)
		return nil
	})
	control.Handle(ops, opEnter, f.enter)
	control.Handle(ops, opNames, func(_ context.Context, q namesRequest, r *control.Reply[[]string]) error {
		return r.Say(slices.DeleteFunc(slices.Clone(at.devs), func(dev string) bool {
			return !strings.HasPrefix(dev, q.Prefix)
		}))
	})
	ops.Serve(ctx)
	if st, err := f.status(); err == nil {
		for _, i := range st.Interfaces {
			out.say("%-9s %s", i.Name, interfaceText(&i))
		}
	}
	ready()
	<-ctx.Done()
	return nil
}

// roceFabric answers for interfaces.
type roceFabric struct {
	place
	at      rocePlace
	started time.Time
}

// enter tells softib exec that a host is an interface; it does the rest itself.
func (f *roceFabric) enter(_ context.Context, q enterRequest, r *control.Reply[entry]) error {
	for dev := range strings.SplitSeq(q.Host, ",") {
		if !slices.Contains(f.at.devs, dev) {
			return next(&usageError{fmt.Errorf("fabric %s has no host %q", f.name, dev)}, "its hosts are %s",
				strings.Join(f.at.devs, ", "))
		}
	}
	return r.Say(entry{RoCE: q.Host})
}

// status is what who holds the ports says of them.
func (f *roceFabric) status() (status.Status, error) {
	st := status.Status{Name: f.name, PID: os.Getpid(), Version: version, Started: f.started,
		UptimeSec: time.Since(f.started).Seconds(), Topology: "RoCEv2", Hosts: len(f.at.devs),
		Description: "Ethernet interfaces of this machine", LinkStates: map[string]int{},
		LinkKinds: []status.LinkKind{}, LinksDown: []status.Link{}, LinksDegraded: []status.Link{},
		Managers: []status.Manager{},
		Programs: []status.Program{}}
	held, err := roce.List(f.at.verbs())
	if err != nil {
		return st, next(fmt.Errorf("fabric %s: nobody holds its interfaces' ports any more: %w", f.name, err),
			"softib down%s, and softib up --roce %s", f.flag(), f.at.names())
	}
	for _, dev := range f.at.devs {
		i := status.Interface{Name: dev, State: "not held"}
		if at := slices.IndexFunc(held, func(h roce.Held) bool { return h.Name == dev }); at >= 0 {
			h := &held[at]
			i = status.Interface{Name: dev, State: inspect.StateName(h.State), MTU: h.MTU.Bytes(), Addresses: h.Addrs,
				Programs: h.Programs, Packets: h.Counted.Sent, Bytes: h.Counted.SentBytes}
		}
		if i.State == inspect.StateName(ib.PortActive) {
			st.HostsActive++
		}
		st.Packets += i.Packets
		st.Bytes += i.Bytes
		st.Interfaces = append(st.Interfaces, i)
	}
	return st, nil
}

// interfaceText is a line about an interface.
func interfaceText(i *status.Interface) string {
	text := i.State
	if len(i.Addresses) > 0 {
		text += fmt.Sprintf(", MTU %d, %s", i.MTU, strings.Join(i.Addresses, ", "))
	}
	return text + ", " + numbered(i.Programs, "program", "programs")
}

// examples are commands for a fabric that is up.
func (o *upOptions) examples(p place) string {
	try := "perf send_lat" + p.flag()
	if o.roce != "" {
		dev, _, _ := strings.Cut(o.roce, ",")
		try = "exec" + p.flag() + " " + dev + " -- ib_write_bw"
	}
	return "softib status" + p.flag() + ", softib " + try
}
