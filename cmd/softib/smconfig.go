package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"softib/driver/smrun"
	"softib/internal/files"
	"softib/proto/ib"
	"softib/proto/mad"
	"softib/subnet/policy"
	"softib/subnet/route"
	"softib/subnet/sm"
)

// smFiles are the files that a manager's configuration comes from, in OpenSM's formats.
type smFiles struct {
	Config     string `json:"config,omitempty"`
	Partitions string `json:"partitions,omitempty"`
	QoSPolicy  string `json:"qos_policy,omitempty"`
	Roots      string `json:"roots,omitempty"`
}

func (f *smFiles) flags(cmd *cobra.Command) {
	s := cmd.Flags()
	s.StringVar(&f.Config, "config", "", "`FILE` with options, an opensm.conf as it is; flags go before it")
	s.StringVar(&f.Partitions, "partitions", "", "`FILE` with partitions, a partitions.conf as it is")
	s.StringVar(&f.QoSPolicy, "qos-policy", "",
		"`FILE` with levels and rules of service, a qos-policy.conf as it is; turns QoS on")
	s.StringVar(&f.Roots, "roots", "", "`FILE` with the GUIDs of the top switches, a root_guid_file as it is")
}

// absolute makes the names good for a process that works elsewhere.
func (f *smFiles) absolute() error {
	for _, name := range []*string{&f.Config, &f.Partitions, &f.QoSPolicy, &f.Roots} {
		if *name == "" {
			continue
		}
		abs, err := filepath.Abs(*name)
		if err != nil {
			return err
		}
		*name = abs
	}
	return nil
}

// given reports whether a flag was on the command line.
func (o *smOptions) given(flag string) bool { return slices.Contains(o.Given, flag) }

// resolve notes what the command line says, so that it can be told to another process. It does nothing there.
func (o *smOptions) resolve() error {
	if o.cmd == nil {
		return nil
	}
	o.Given = nil
	o.cmd.Flags().Visit(func(f *pflag.Flag) { o.Given = append(o.Given, f.Name) })
	return o.absolute()
}

// readFiles makes a configuration of the files. What is in them and has no effect becomes a note.
func (o *smOptions) readFiles(c *sm.Config) error {
	conf := policy.DefaultConfig()
	if o.Config != "" {
		text, err := files.ReadText(o.Config, files.TextMax)
		if err != nil {
			return next(err, "--config FILE names an opensm.conf; opensm -c FILE writes one with every option")
		}
		var notes policy.Problems
		if conf, notes, err = policy.ParseConfig(o.Config, text); err != nil {
			return next(err, "mend these lines of %s, or put a # before them", o.Config)
		}
		for _, n := range notes {
			o.notes = append(o.notes, n.Error())
		}
		if err := o.apply(c, &conf); err != nil {
			return err
		}
	}
	if o.Partitions == "" && o.Config != "" {
		o.Partitions = there(conf.PartitionFile, policy.DefaultConfig().PartitionFile)
	}
	if o.QoSPolicy == "" && o.Config != "" && conf.QoS {
		o.QoSPolicy = there(conf.QoSPolicyFile, policy.DefaultConfig().QoSPolicyFile)
	}
	if o.Roots == "" && o.Config != "" {
		o.Roots = conf.RootGUIDFile
	}
	var err error
	if c.Partitions, err = o.readPartitions(); err != nil {
		return err
	}
	pol, err := o.readQoSPolicy()
	if err != nil {
		return err
	}
	conf.QoS = conf.QoS || o.given("qos-policy")
	c.QoS = sm.QoSOf(&conf, pol)
	if o.Roots == "" {
		return nil
	}
	text, err := files.ReadText(o.Roots, files.TextMax)
	if err != nil {
		return next(err, "--roots FILE has the GUID of a top switch on each line")
	}
	roots, err := policy.ParseGUIDs(o.Roots, text)
	if err != nil {
		return next(err, "mend these lines of %s", o.Roots)
	}
	c.Roots = roots
	return nil
}

// there is a file's name, or nothing where it is OpenSM's default and there is none: a configuration that OpenSM has
// written names them all.
func there(name, byDefault string) string {
	if name == byDefault {
		if _, err := os.Stat(name); errors.Is(err, fs.ErrNotExist) {
			return ""
		}
	}
	return name
}

// readPartitions reads the file of partitions; without one everybody is in the default partition.
func (o *smOptions) readPartitions() (policy.Partitions, error) {
	if o.Partitions == "" {
		return policy.Partitions{}, nil
	}
	text, err := files.ReadText(o.Partitions, files.TextMax)
	if err != nil {
		return policy.Partitions{}, next(err, "--partitions FILE names a partitions.conf, such as one with "+
			"the line: tenant=0x1001,ipoib : ALL=limited, SELF=full ;")
	}
	p, notes, err := policy.ParsePartitions(o.Partitions, text)
	for _, n := range notes {
		o.notes = append(o.notes, n.Error())
	}
	if err != nil {
		return policy.Partitions{}, next(err, "mend these lines of %s", o.Partitions)
	}
	return p, nil
}

// readQoSPolicy reads the policy for paths; nil if there is none.
func (o *smOptions) readQoSPolicy() (*policy.QoSPolicy, error) {
	if o.QoSPolicy == "" {
		return nil, nil
	}
	text, err := files.ReadText(o.QoSPolicy, files.TextMax)
	if err != nil {
		return nil, next(err, "--qos-policy FILE names a qos-policy.conf")
	}
	p, notes, err := policy.ParseQoSPolicy(o.QoSPolicy, text)
	for _, n := range notes {
		o.notes = append(o.notes, n.Error())
	}
	if err != nil {
		return nil, next(err, "mend these lines of %s", o.QoSPolicy)
	}
	return &p, nil
}

// reload reads partitions and policy again and puts them in force, with the tenants if there may be any; with an error
// those that are in force stay.
func (o *smOptions) reload(run *smrun.Runner, tenants *tenancy) error {
	o.notes = nil
	parts, err := o.readPartitions()
	if err != nil {
		return err
	}
	pol, err := o.readQoSPolicy()
	if err != nil {
		return err
	}
	if tenants != nil {
		return tenants.reload(context.Background(), run, parts, pol)
	}
	var refused error
	err = run.Do(func(m *sm.Manager) {
		if refused = m.SetQoSPolicy(0, pol); refused == nil {
			m.SetPartitions(0, parts)
		}
	})
	return errors.Join(err, refused)
}

// apply takes the options of an opensm.conf that a manager has. Those at OpenSM's default leave this manager's.
func (o *smOptions) apply(c *sm.Config, conf *policy.Config) error {
	def := policy.DefaultConfig()
	c.MKey, c.MKeyProtect, c.MKeyLease = conf.MKey, conf.MKeyProtectionLevel, conf.MKeyLeasePeriod
	c.SMKey, c.Prefix, c.LMC, c.Priority = conf.SMKey, conf.SubnetPrefix, conf.LMC, conf.SMPriority
	c.PacketLife, c.HOQLife, c.LeafHOQLife, c.SubnetTimeout = conf.PacketLifeTime, conf.HOQLife, conf.LeafHOQLife,
		conf.SubnetTimeout
	c.AllowBothKeys, c.Congestion = conf.AllowBothPKeys, conf.Congestion
	c.Enforce, _ = sm.ParseEnforcement(conf.PartitionEnforce)
	if conf.NoPartitionEnforce {
		c.Enforce = sm.EnforceOff
	}
	if conf.MaxOpVLs != def.MaxOpVLs {
		c.MaxVLs = mad.VLCount(conf.MaxOpVLs).VLs()
	}
	c.SweepInterval = ib.Time(conf.SweepInterval) * ib.Second
	if conf.SweepInterval == 0 {
		c.SweepInterval = -1
	}
	c.PollInterval, c.PollRetries = ib.Time(conf.SMInfoPollingTimeout)*ib.Millisecond, int(conf.PollingRetries)
	c.Timeout, c.Retries = ib.Time(conf.TransactionTimeout)*ib.Millisecond, int(conf.TransactionRetries)
	if conf.MaxWireSMPs != def.MaxWireSMPs {
		c.Window = int(conf.MaxWireSMPs)
	}
	var engines []string
	for _, e := range conf.RoutingEngines {
		if _, err := route.ParseChain(e); err != nil {
			o.notes = append(o.notes, fmt.Sprintf("%s: routing_engine %s is left out: softib has %s", o.Config, e,
				strings.Join(route.Names(), ", ")))
			continue
		}
		engines = append(engines, e)
	}
	c.Engines = strings.Join(engines, ",")
	if _, err := route.ParseChain(c.Engines); err != nil && c.Engines != "" {
		return next(fmt.Errorf("%s: routing_engine: %w", o.Config, err), "give the chain with --engine instead")
	}
	if unused := unusedOptions(conf, &def); len(unused) > 0 {
		o.notes = append(o.notes, fmt.Sprintf("%s: these options have no effect here: %s", o.Config,
			strings.Join(unused, ", ")))
	}
	return nil
}

// unusedOptions are the options that this manager reads and does not use, where they are not at their default.
func unusedOptions(c, def *policy.Config) (names []string) {
	for _, o := range []struct {
		name    string
		differs bool
	}{
		{"guid (use --on)", c.GUID != def.GUID}, {"m_key_lookup", c.MKeyLookup != def.MKeyLookup},
		{"sa_key (sm_key is for both)", c.SAKey != def.SAKey && c.SAKey != c.SMKey},
		{"lmc_esp0", c.LMCOnESP0 != def.LMCOnESP0}, {"sm_sl", c.SMSL != def.SMSL},
		{"vl_stall_count", c.VLStallCount != def.VLStallCount},
		{"leaf_vl_stall_count", c.LeafVLStallCount != def.LeafVLStallCount},
		{"local_phy_errors_threshold", c.LocalPhyErrors != def.LocalPhyErrors},
		{"overrun_errors_threshold", c.OverrunErrors != def.OverrunErrors},
		{"keep_pkey_indexes (they are always kept)", c.KeepPKeyIndexes != def.KeepPKeyIndexes},
		{"reassign_lids", c.ReassignLIDs != def.ReassignLIDs},
		{"force_heavy_sweep", c.ForceHeavySweep != def.ForceHeavySweep},
		{"sweep_on_trap", c.SweepOnTrap != def.SweepOnTrap},
		{"connect_roots", c.ConnectRoots != def.ConnectRoots}, {"cn_guid_file", c.CNGUIDFile != def.CNGUIDFile},
		{"io_guid_file", c.IOGUIDFile != def.IOGUIDFile},
		{"max_reverse_hops", c.MaxReverseHops != def.MaxReverseHops},
		{"ids_guid_file", c.IDsGUIDFile != def.IDsGUIDFile},
		{"guid_routing_order_file", c.GUIDRoutingOrderFile != def.GUIDRoutingOrderFile},
		{"nue_max_num_vls (use --max-vls)", c.NueMaxVLs != def.NueMaxVLs},
		{"ignore_other_sm", c.IgnoreOtherSM != def.IgnoreOtherSM},
		{"honor_guid2lid_file (use --lids)", c.HonorGUID2LIDFile != def.HonorGUID2LIDFile},
		{"sm_inactive", c.SMInactive != def.SMInactive},
		{"drop_event_subscriptions", c.DropSubscriptions != def.DropSubscriptions},
		{"ipoib_mcgroup_creation_validation", c.ValidateIPoIBGroups != def.ValidateIPoIBGroups},
		{"mcgroup_join_validation", c.ValidateJoins != def.ValidateJoins},
		{"use_mfttop", c.UseMFTTop != def.UseMFTTop}, {"node_name_map_name", c.NodeNameMapFile != def.NodeNameMapFile},
		{"log_file", c.LogFile != def.LogFile},
		{"no_clients_rereg", c.NoClientsReregister != def.NoClientsReregister},
		{"disable_multicast", c.DisableMulticast != def.DisableMulticast},
		{"consolidate_ipv6_snm_req", c.ConsolidateIPv6SNM != def.ConsolidateIPv6SNM},
	} {
		if o.differs {
			names = append(names, o.name)
		}
	}
	return names
}
