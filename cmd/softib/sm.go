package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"softib/driver/ibsim"
	"softib/driver/smrun"
	"softib/driver/span"
	"softib/driver/umad"
	"softib/internal/files"
	"softib/operate/control"
	"softib/operate/forwarding"
	"softib/operate/manager"
	"softib/proto/ib"
	"softib/proto/mad"
	"softib/proto/topo"
	"softib/subnet/policy"
	"softib/subnet/sm"
)

func newSM() *cobra.Command {
	var o smCommand
	cmd := &cobra.Command{
		Use:   "sm",
		Short: "Run a subnet manager: on a fabric, on ibsim, on a real port",
		Long: `Runs softib's subnet manager and administrator: it discovers the subnet, gives
addresses, computes routes, programs all tables, and stays to mend what breaks.
Beside other managers (softib's or OpenSM) the one with the highest priority is
master and the others stand by.

--on says where:
  fabric[:HOST]      a running softib fabric (--name), at a host; the default
  ibsim[:NODE]       ibsim's socket (IBSIM_SOCKNAME, IBSIM_SERVER_NAME as its own clients)
  umad[:CA[:PORT]]   a port of this machine: /dev/infiniband/umadN

Every event is one line on standard error. A SIGHUP makes it read its partitions and its
QoS policy again (on a fabric: softib partition reload); if they have errors, the old ones
stay in force.`,
		Example: `  softib up -d --no-sm && softib sm --once
  softib sm --on fabric:h5 --sm-priority 10
  softib sm --on ibsim --engine ftree,updn --once
  softib sm --on umad:mlx5_0:1 --lids /var/lib/softib/guid2lid
  softib sm --on umad --config /etc/opensm/opensm.conf --partitions /etc/opensm/partitions.conf`,
		Args: arguments(0, 0, "no argument"),
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd) },
	}
	f := cmd.Flags()
	f.StringVar(&o.on, "on", "fabric", "what to manage: `WHERE` is fabric[:HOST], ibsim[:NODE] or umad[:CA[:PORT]]")
	f.BoolVar(&o.Once, "once", false, "end once the subnet is up")
	f.StringVar(&o.lids, "lids", "", "`FILE` that remembers addresses, in OpenSM's guid2lid format")
	f.StringVar(&o.mkeys, "m-keys", "",
		"`FILE` that remembers the M_Keys of ports, in OpenSM's guid2mkey format, so that --m-key can change")
	f.StringVar(&o.neighbors, "neighbors", "", "`FILE` that remembers what is behind which port, in OpenSM's "+
		"neighbors format: with it each port gets an M_Key of its own, made from --m-key")
	o.Options.flags(cmd)
	nameFlag(cmd, &o.name)
	f.BoolVar(&o.json, "json", false, "print the log as JSON, one object a line")
	return cmd
}

// smCommand is softib sm's command line.
type smCommand struct {
	name, on, lids, mkeys, neighbors string
	json                             bool
	smRequest
}

// smRequest asks a running fabric for a manager.
type smRequest struct {
	Host    string    `json:"host,omitempty"`
	Once    bool      `json:"once,omitempty"`
	Options smOptions `json:"options"`
}

func (o *smCommand) run(cmd *cobra.Command) error {
	cfg, err := o.Options.config()
	if err != nil {
		return err
	}
	kind, at, _ := strings.Cut(o.on, ":")
	switch {
	case o.neighbors == "":
	case kind != "umad":
		return usage(cmd, errors.New("--neighbors is for --on umad: softib's fabrics know who is where, and ibsim's "+
			"nodes check no keys"))
	case cfg.MKey == 0:
		return usage(cmd, errors.New("--neighbors gives each port an M_Key of its own, made from one: want --m-key"))
	}
	log := cmd.ErrOrStderr()
	line := logLines(log, false)
	if o.json {
		line = logLines(cmd.OutOrStdout(), true)
		log = lineWriter(func(s string) { _ = line(s) })
	}
	switch kind {
	case "fabric":
		o.Host = at
		p, err := newPlace(o.name)
		if err != nil {
			return err
		}
		return askFabric(cmd.Context(), p, opSM, o.smRequest, line)
	case "ibsim":
		port, err := ibsim.Dial(cmd.Context(), ibsim.Config{Host: at, Socket: os.Getenv("IBSIM_SOCKNAME"),
			Server: os.Getenv("IBSIM_SERVER_NAME")})
		if err != nil {
			return err
		}
		cfg.Window = ibsim.InFlight
		return o.manage(cmd.Context(), smrun.OnIBSim(ibsim.NewSession(port)), cfg, log)
	case "umad":
		ca, num, _ := strings.Cut(at, ":")
		n := 0
		if num != "" {
			if n, err = strconv.Atoi(num); err != nil || n < 1 {
				return usage(cmd, fmt.Errorf("--on %s: %q is no port: want a number from 1 on", o.on, num))
			}
		}
		port, err := umad.Open(cmd.Context(), ca, n)
		if err != nil {
			return next(err, "softib sm needs a port of InfiniBand hardware here; softib up has one in software")
		}
		cfg.Window, cfg.Self = umadWindow, port.GUID()
		return o.manage(cmd.Context(), smrun.OnDevice(port), cfg, log)
	}
	return usage(cmd, fmt.Errorf("--on %s: want fabric, ibsim or umad", o.on))
}

// umadWindow is how many datagrams go into a real fabric at once: switches' agents are slow, and VL15 has no credits.
const umadWindow = 32

// manage runs a manager on a transport until it is interrupted, or the subnet is up.
func (o *smCommand) manage(ctx context.Context, t smrun.Transport, cfg sm.Config, log io.Writer) error {
	opts := smrun.Options{Log: eventLog(log, "sm")}
	if o.lids != "" {
		var err error
		if cfg.Memory.LIDs, err = readLIDs(o.lids); err != nil {
			return err
		}
	}
	if o.mkeys != "" {
		var err error
		if cfg.Memory.MKeys, err = readMKeys(o.mkeys); err != nil {
			return err
		}
	}
	if o.neighbors != "" {
		var err error
		if cfg.Memory.Neighbors, err = readNeighbors(o.neighbors); err != nil {
			return err
		}
		cfg.MKeyPerPort = true
	}
	if o.lids != "" || o.mkeys != "" || o.neighbors != "" {
		opts.Save = func(m sm.Memory) {
			if o.neighbors != "" && len(m.Neighbors) > 0 {
				if err := replaceFile(o.neighbors, m.Neighbors.Append(nil)); err != nil {
					fmt.Fprintf(log, "%s sm problem: who is where is not saved: %v\n", time.Now().Format(logTime), err)
				}
			}
			if o.lids != "" {
				if err := writeLIDs(o.lids, m.LIDs, cfg.LMC); err != nil {
					fmt.Fprintf(log, "%s sm problem: addresses are not saved: %v\n", time.Now().Format(logTime), err)
				}
			}
			if o.mkeys != "" {
				if err := writeMKeys(o.mkeys, m.MKeys); err != nil {
					fmt.Fprintf(log, "%s sm problem: M_Keys are not saved: %v\n", time.Now().Format(logTime), err)
				}
			}
		}
	}
	r, err := smrun.New(cfg, t, opts)
	if err != nil {
		return err
	}
	for _, n := range o.Options.notes {
		fmt.Fprintf(log, "%s sm policy: %s\n", time.Now().Format(logTime), n)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	(&runningSM{run: r, opts: o.Options}).reloadOnHangup(ctx, log)
	return runOnce(ctx, r, o.Once)
}

// runOnce runs a manager until ctx ends or, with once, its subnet is up or another's is.
func runOnce(ctx context.Context, r *smrun.Runner, once bool) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	failed := make(chan error, 1)
	go func() { failed <- r.Run(ctx) }()
	if once {
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for settled := false; !settled; {
			select {
			case <-r.Up():
				settled = true
			case <-tick.C:
				_ = r.Do(func(m *sm.Manager) { settled = m.State() == mad.SMStandby })
			case <-ctx.Done():
				settled = true
			}
		}
		cancel()
	}
	err := <-failed
	if errors.Is(err, context.Canceled) {
		err = nil
	}
	return err
}

// remembered reads a file that a manager has left; none is as good as an empty one. Flag says what it is, mend what to
// do with one that is damaged.
func remembered[T any](path string, parse func(string, []byte) (T, error), flag, mend string) (t T, err error) {
	text, err := files.ReadText(path, files.TextMax)
	if errors.Is(err, os.ErrNotExist) {
		return t, nil
	}
	if err != nil {
		return t, next(err, "%s", flag)
	}
	if t, err = parse(path, text); err != nil {
		return t, next(err, "%s", mend)
	}
	return t, nil
}

// readLIDs reads a file of addresses.
func readLIDs(path string) (lids map[ib.GUID]ib.LID, err error) {
	table, err := remembered(path, policy.ParseGUID2LID,
		"--lids FILE names a file with addresses, in OpenSM's guid2lid format",
		"mend the file, or move it away: ports then keep the addresses that they have")
	if err != nil || table == nil {
		return nil, err
	}
	lids = map[ib.GUID]ib.LID{}
	for _, e := range table {
		lids[e.GUID] = e.Min
	}
	return lids, nil
}

// writeLIDs replaces a file of addresses.
func writeLIDs(path string, lids map[ib.GUID]ib.LID, lmc uint8) error {
	var table policy.GUID2LID
	for g, l := range lids {
		table = append(table, policy.LIDRange{GUID: g, Min: l, Max: l + 1<<lmc - 1})
	}
	slices.SortFunc(table, func(a, b policy.LIDRange) int { return cmp.Compare(a.GUID, b.GUID) })
	return replaceFile(path, table.Append(nil))
}

// readMKeys reads a file of keys.
func readMKeys(path string) (keys map[ib.GUID]uint64, err error) {
	table, err := remembered(path, policy.ParseGUID2MKey,
		"--m-keys FILE names a file with M_Keys, in OpenSM's guid2mkey format",
		"mend the file: a port whose key is not known cannot be managed")
	if err != nil || table == nil {
		return nil, err
	}
	keys = map[ib.GUID]uint64{}
	for _, e := range table {
		keys[e.GUID] = e.MKey
	}
	return keys, nil
}

// readNeighbors reads a file of who is where.
func readNeighbors(path string) (policy.Neighbors, error) {
	return remembered(path, policy.ParseNeighbors,
		"--neighbors FILE names a file of cables, in OpenSM's neighbors format",
		"mend the file: a guarded node behind a port that is not in it cannot be managed")
}

// writeMKeys replaces a file of keys.
func writeMKeys(path string, keys map[ib.GUID]uint64) error {
	var table policy.GUID2MKey
	for g, k := range keys {
		table = append(table, policy.GUIDKey{GUID: g, MKey: k})
	}
	slices.SortFunc(table, func(a, b policy.GUIDKey) int { return cmp.Compare(a.GUID, b.GUID) })
	return replaceFile(path, table.Append(nil))
}

// replaceFile writes a file anew, for its owner alone: whoever reads it sees the old one or the new one.
func replaceFile(path string, text []byte) error {
	tmp, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	_, err = tmp.Write(text)
	if err = errors.Join(err, tmp.Close()); err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		_ = os.Remove(tmp.Name())
	}
	return err
}

// runSM runs a subnet manager for a client, at a host of this fabric, until the client hangs up.
func (s *server) runSM(ctx context.Context, r smRequest, out *control.Reply[string]) error {
	own, err := r.Options.config()
	if err != nil {
		return err
	}
	cfg := own
	if t := s.f.tenancy; t != nil {
		if cfg, err = manager.StartWith(own, t.book.State(), t.guard); err != nil {
			return next(err, "give that partition another key in the file")
		}
	}
	ref, err := smPort(s.f.Fabric, r.Host)
	if err != nil {
		return err
	}
	if t := s.f.tenancy; t != nil {
		defer t.trust(ref)()
	}
	session, err := s.f.OpenMgmt(ref)
	if err != nil {
		return err
	}
	g := s.f.Graph()
	cfg.Memory.LIDs, cfg.LMCs = sm.HintedLIDs(g)
	cfg.Self, cfg.Plan = g.Nodes[ref.Node].PortGUID(ref.Port), g
	cfg.Groups = s.f.Groups()
	toClient := eventLog(lineWriter(func(line string) { _ = out.Say(line) }), "sm")
	toLog := eventLog(s.f.log, "sm@"+g.Nodes[ref.Node].Name)
	run, err := smrun.New(cfg, session, smrun.Options{Log: func(e sm.Event) { toClient(e); toLog(e) }})
	if err != nil {
		session.Close()
		return next(err, "a port has one manager: choose another host, softib sm --on fabric:%s",
			g.Hosts()[len(g.Hosts())-1].Name)
	}
	for _, n := range r.Options.notes {
		_ = out.Say(time.Now().Format(logTime) + " sm policy: " + n)
	}
	defer s.sms.add(&runningSM{run: run, opts: r.Options, tenants: s.f.tenancy})()
	if t := s.f.tenancy; t != nil {
		defer t.join(run, own)()
	}
	ctx, cancel := out.Heard(ctx)
	defer cancel()
	return runOnce(ctx, run, r.Once)
}

// lineWriter hands on what is written, line by line.
type lineWriter func(string)

func (w lineWriter) Write(b []byte) (int, error) {
	w(strings.TrimSuffix(string(b), "\n"))
	return len(b), nil
}

// smPort is where a manager runs: at a node that was named, or in the first switch, as in switches that are sold
// with one. The manager's port is a full member of the default partition, whatever the tenants: at a host that would be
// a way around them.
func smPort(f *span.Fabric, name string) (topo.PortRef, error) {
	if name == "" {
		for _, n := range f.Graph().Switches() {
			if !f.IsHere(n.Index) {
				continue
			}
			for p := 1; p < len(n.Ports); p++ {
				if n.Ports[p].Connected() {
					return topo.PortRef{Node: n.Index}, nil
				}
			}
		}
	}
	return endPort(f, name)
}

// endPort is a port to ask from: of a node that was named, or of the first host that has a cable.
func endPort(f *span.Fabric, name string) (topo.PortRef, error) {
	g := f.Graph()
	if name != "" {
		n := g.ByName(name)
		if n == nil {
			return topo.PortRef{}, next(&usageError{fmt.Errorf("no node %q", name)}, "the hosts are %s to %s",
				g.Hosts()[0].Name, g.Hosts()[len(g.Hosts())-1].Name)
		}
		switch {
		case !f.IsHere(n.Index):
			return topo.PortRef{}, elsewhere(name, f.Where(n.Index))
		case n.IsSwitch():
			return topo.PortRef{Node: n.Index}, nil
		}
		return topo.PortRef{Node: n.Index, Port: forwarding.CabledPort(n)}, nil
	}
	for _, h := range g.Hosts() {
		if !f.IsHere(h.Index) {
			continue
		}
		for p := 1; p < len(h.Ports); p++ {
			if h.Ports[p].Connected() {
				return topo.PortRef{Node: h.Index, Port: ib.PortNum(p)}, nil
			}
		}
	}
	return topo.PortRef{}, errors.New("no host has a cable")
}

// elsewhere is the error of a node that another machine of the fabric has.
func elsewhere(node, machine string) error {
	return next(&usageError{fmt.Errorf("%s is on machine %s", node, machine)}, "run the command on %s", machine)
}

// subnets are the managers that run in this process.
func (s *server) subnets() (list []manager.Subnet) {
	s.sms.mu.Lock()
	defer s.sms.mu.Unlock()
	for _, x := range s.sms.list {
		list = append(list, x.run)
	}
	for _, run := range s.f.managers() {
		if !slices.ContainsFunc(s.sms.list, func(x *runningSM) bool { return x.run == run }) {
			list = append(list, run)
		}
	}
	return list
}
