package policy

import (
	"fmt"
	"strings"

	"softib/proto/ib"
)

// Config is an opensm.conf: the options that this manager has too. Names of files are
// as written; times are in the units of the file.
type Config struct {
	GUID                ib.GUID // the port to run on; 0 is any
	MKey                uint64
	MKeyLeasePeriod     uint16 // s
	MKeyProtectionLevel uint8
	MKeyLookup          bool
	SMKey               uint64
	SAKey               uint64
	SubnetPrefix        uint64
	LMC                 uint8
	LMCOnESP0           bool
	SMSL                ib.SL

	PacketLifeTime       uint8 // 4.096 µs · 2^n; 20 is for ever
	VLStallCount         uint8
	LeafVLStallCount     uint8
	HOQLife              uint8
	LeafHOQLife          uint8
	MaxOpVLs             uint8 // as PortInfo encodes it
	SubnetTimeout        uint8
	LocalPhyErrors       uint8
	OverrunErrors        uint8
	PartitionFile        string
	NoPartitionEnforce   bool
	PartitionEnforce     string // both, in, out or off
	AllowBothPKeys       bool
	KeepPKeyIndexes      bool
	SweepInterval        uint32 // s; 0 is never
	ReassignLIDs         bool
	ForceHeavySweep      bool
	SweepOnTrap          bool
	RoutingEngines       []string
	ConnectRoots         bool
	RootGUIDFile         string
	CNGUIDFile           string
	IOGUIDFile           string
	MaxReverseHops       uint16
	IDsGUIDFile          string
	GUIDRoutingOrderFile string
	NueMaxVLs            uint8
	SMPriority           uint8
	IgnoreOtherSM        bool
	SMInfoPollingTimeout uint32 // ms
	PollingRetries       uint32
	HonorGUID2LIDFile    bool
	MaxWireSMPs          uint32
	TransactionTimeout   uint32 // ms
	TransactionRetries   uint32
	SMInactive           bool
	DropSubscriptions    bool
	NodeNameMapFile      string
	LogFile              string
	NoClientsReregister  bool
	DisableMulticast     bool
	ValidateIPoIBGroups  bool
	ValidateJoins        bool
	UseMFTTop            bool
	UseOptimizedSL2VL    bool
	ConsolidateIPv6SNM   bool
	QoS                  bool
	QoSPolicyFile        string
	QoSOptions           [NumPortKind]QoSOptions
	Congestion           CongestionOptions
}

// DefaultConfig is what OpenSM 3.3.23 does without a file.
func DefaultConfig() Config {
	c := Config{
		MKeyLookup: true, SMKey: 1, SAKey: 1, SubnetPrefix: ib.DefaultGIDPrefix,
		PacketLifeTime: 0x12, VLStallCount: 7, LeafVLStallCount: 7, HOQLife: 0x12, LeafHOQLife: 0x10, MaxOpVLs: 5,
		SubnetTimeout: 18, LocalPhyErrors: 8, OverrunErrors: 8,
		PartitionFile: "/etc/opensm/partitions.conf", PartitionEnforce: "both", KeepPKeyIndexes: true,
		SweepInterval: 10, SweepOnTrap: true, NueMaxVLs: 1,
		SMInfoPollingTimeout: 10000, PollingRetries: 4, MaxWireSMPs: 4, TransactionTimeout: 200, TransactionRetries: 3,
		LogFile: "/var/log/opensm.log", ValidateIPoIBGroups: true, ValidateJoins: true, UseMFTTop: true,
		QoSPolicyFile: "/etc/opensm/qos-policy.conf",
	}
	for k := range c.QoSOptions {
		c.QoSOptions[k].HighLimit = -1
	}
	c.Congestion.MaxOutstandingMADs = 500
	return c
}

// option is a word of opensm.conf and the field it is about.
type option struct {
	name string
	// field is a pointer into c, of one of the types that set knows.
	field func(c *Config) any
	// hi is the largest number, 0 for what the type holds.
	hi uint64
	// what a number is, in the words of a message.
	what string
	// words are the values of a string that has a choice of few.
	words []string
	hex   bool
}

// perSLField is an option that is given once for each service level.
type perSLField struct {
	c *CongestionOptions
	// of is the value of one service level, *uint16 or *uint8.
	of func(*CACongestionEntry) any
}

// options are all options with a field, in the order in which they are written.
var options = makeOptions()

func makeOptions() []option {
	o := []option{
		{name: "guid", field: func(c *Config) any { return &c.GUID }},
		{name: "m_key", field: func(c *Config) any { return &c.MKey }, hex: true},
		{name: "m_key_lease_period", field: func(c *Config) any { return &c.MKeyLeasePeriod }, what: "seconds"},
		{name: "m_key_protection_level", field: func(c *Config) any { return &c.MKeyProtectionLevel }, hi: 3,
			what: "a protection level"},
		{name: "m_key_lookup", field: func(c *Config) any { return &c.MKeyLookup }},
		{name: "sm_key", field: func(c *Config) any { return &c.SMKey }, hex: true},
		{name: "sa_key", field: func(c *Config) any { return &c.SAKey }, hex: true},
		{name: "subnet_prefix", field: func(c *Config) any { return &c.SubnetPrefix }, hex: true},
		{name: "lmc", field: func(c *Config) any { return &c.LMC }, hi: 7, what: "a LID mask control"},
		{name: "lmc_esp0", field: func(c *Config) any { return &c.LMCOnESP0 }},
		{name: "sm_sl", field: func(c *Config) any { return &c.SMSL }, hi: ib.NumSL - 1, what: "a service level"},
		{name: "packet_life_time", field: func(c *Config) any { return &c.PacketLifeTime }, hi: 0x1F, hex: true,
			what: "a time code"},
		{name: "vl_stall_count", field: func(c *Config) any { return &c.VLStallCount }, hi: 7, hex: true,
			what: "a count of packets"},
		{name: "leaf_vl_stall_count", field: func(c *Config) any { return &c.LeafVLStallCount }, hi: 7, hex: true,
			what: "a count of packets"},
		{name: "head_of_queue_lifetime", field: func(c *Config) any { return &c.HOQLife }, hi: 0x1F, hex: true,
			what: "a time code"},
		{name: "leaf_head_of_queue_lifetime", field: func(c *Config) any { return &c.LeafHOQLife }, hi: 0x1F, hex: true,
			what: "a time code"},
		{name: "max_op_vls", field: func(c *Config) any { return &c.MaxOpVLs }, hi: 5,
			what: "a code of lanes (5 is 15 lanes)"},
		{name: "subnet_timeout", field: func(c *Config) any { return &c.SubnetTimeout }, hi: 0x1F, what: "a time code"},
		{name: "local_phy_errors_threshold", field: func(c *Config) any { return &c.LocalPhyErrors }, hi: 15, hex: true,
			what: "a threshold"},
		{name: "overrun_errors_threshold", field: func(c *Config) any { return &c.OverrunErrors }, hi: 15, hex: true,
			what: "a threshold"},
		{name: "use_mfttop", field: func(c *Config) any { return &c.UseMFTTop }},
		{name: "partition_config_file", field: func(c *Config) any { return &c.PartitionFile }},
		{name: "no_partition_enforcement", field: func(c *Config) any { return &c.NoPartitionEnforce }},
		{name: "part_enforce", field: func(c *Config) any { return &c.PartitionEnforce },
			words: []string{"both", "out", "in", "off"}},
		{name: "allow_both_pkeys", field: func(c *Config) any { return &c.AllowBothPKeys }},
		{name: "keep_pkey_indexes", field: func(c *Config) any { return &c.KeepPKeyIndexes }},
		{name: "sweep_interval", field: func(c *Config) any { return &c.SweepInterval }, what: "seconds"},
		{name: "reassign_lids", field: func(c *Config) any { return &c.ReassignLIDs }},
		{name: "force_heavy_sweep", field: func(c *Config) any { return &c.ForceHeavySweep }},
		{name: "sweep_on_trap", field: func(c *Config) any { return &c.SweepOnTrap }},
		{name: "routing_engine", field: func(c *Config) any { return &c.RoutingEngines }},
		{name: "connect_roots", field: func(c *Config) any { return &c.ConnectRoots }},
		{name: "root_guid_file", field: func(c *Config) any { return &c.RootGUIDFile }},
		{name: "cn_guid_file", field: func(c *Config) any { return &c.CNGUIDFile }},
		{name: "io_guid_file", field: func(c *Config) any { return &c.IOGUIDFile }},
		{name: "max_reverse_hops", field: func(c *Config) any { return &c.MaxReverseHops }, what: "hops"},
		{name: "ids_guid_file", field: func(c *Config) any { return &c.IDsGUIDFile }},
		{name: "guid_routing_order_file", field: func(c *Config) any { return &c.GUIDRoutingOrderFile }},
		{name: "nue_max_num_vls", field: func(c *Config) any { return &c.NueMaxVLs }, hi: 15, what: "a count of lanes"},
		{name: "sm_priority", field: func(c *Config) any { return &c.SMPriority }, hi: 15, what: "a priority"},
		{name: "ignore_other_sm", field: func(c *Config) any { return &c.IgnoreOtherSM }},
		{name: "sminfo_polling_timeout", field: func(c *Config) any { return &c.SMInfoPollingTimeout },
			what: "milliseconds"},
		{name: "polling_retry_number", field: func(c *Config) any { return &c.PollingRetries },
			what: "a count of polls"},
		{name: "honor_guid2lid_file", field: func(c *Config) any { return &c.HonorGUID2LIDFile }},
		{name: "max_wire_smps", field: func(c *Config) any { return &c.MaxWireSMPs }, what: "a count of datagrams"},
		{name: "transaction_timeout", field: func(c *Config) any { return &c.TransactionTimeout },
			what: "milliseconds"},
		{name: "transaction_retries", field: func(c *Config) any { return &c.TransactionRetries },
			what: "a count of retries"},
		{name: "sm_inactive", field: func(c *Config) any { return &c.SMInactive }},
		{name: "drop_event_subscriptions", field: func(c *Config) any { return &c.DropSubscriptions }},
		{name: "ipoib_mcgroup_creation_validation", field: func(c *Config) any { return &c.ValidateIPoIBGroups }},
		{name: "mcgroup_join_validation", field: func(c *Config) any { return &c.ValidateJoins }},
		{name: "use_optimized_slvl", field: func(c *Config) any { return &c.UseOptimizedSL2VL }},
		{name: "node_name_map_name", field: func(c *Config) any { return &c.NodeNameMapFile }},
		{name: "log_file", field: func(c *Config) any { return &c.LogFile }},
		{name: "no_clients_rereg", field: func(c *Config) any { return &c.NoClientsReregister }},
		{name: "disable_multicast", field: func(c *Config) any { return &c.DisableMulticast }},
		{name: "consolidate_ipv6_snm_req", field: func(c *Config) any { return &c.ConsolidateIPv6SNM }},
		{name: "qos", field: func(c *Config) any { return &c.QoS }},
		{name: "qos_policy_file", field: func(c *Config) any { return &c.QoSPolicyFile }},
	}
	for k := range NumPortKind {
		pre := portKindPrefix[k]
		o = append(o,
			option{name: pre + "max_vls", field: func(c *Config) any { return &c.QoSOptions[k].MaxVLs }, hi: 15,
				what: "a count of lanes"},
			option{name: pre + "high_limit", field: func(c *Config) any { return &c.QoSOptions[k].HighLimit }},
			option{name: pre + "vlarb_high", field: func(c *Config) any { return &c.QoSOptions[k].VLArbHigh }},
			option{name: pre + "vlarb_low", field: func(c *Config) any { return &c.QoSOptions[k].VLArbLow }},
			option{name: pre + "sl2vl", field: func(c *Config) any { return &c.QoSOptions[k].SL2VL }},
		)
	}
	return append(o,
		option{name: "congestion_control", field: func(c *Config) any { return &c.Congestion.Enabled }},
		option{name: "cc_key", field: func(c *Config) any { return &c.Congestion.Key }, hex: true},
		option{name: "cc_max_outstanding_mads", field: func(c *Config) any { return &c.Congestion.MaxOutstandingMADs },
			what: "a count of datagrams"},
		option{name: "cc_sw_cong_setting_control_map",
			field: func(c *Config) any { return &c.Congestion.SwitchControlMap }, hex: true, what: "a mask"},
		option{name: "cc_sw_cong_setting_victim_mask", field: func(c *Config) any { return &c.Congestion.VictimMask }},
		option{name: "cc_sw_cong_setting_credit_mask", field: func(c *Config) any { return &c.Congestion.CreditMask }},
		option{name: "cc_sw_cong_setting_threshold", field: func(c *Config) any { return &c.Congestion.Threshold },
			hi: 15, hex: true, what: "a threshold"},
		option{name: "cc_sw_cong_setting_packet_size", field: func(c *Config) any { return &c.Congestion.PacketSize },
			what: "a size in credits"},
		option{name: "cc_sw_cong_setting_credit_starvation_threshold",
			field: func(c *Config) any { return &c.Congestion.StarvationThreshold }, hi: 15, hex: true,
			what: "a threshold"},
		option{name: "cc_sw_cong_setting_credit_starvation_return_delay",
			field: func(c *Config) any { return &c.Congestion.StarvationDelay }},
		option{name: "cc_sw_cong_setting_marking_rate", field: func(c *Config) any { return &c.Congestion.MarkingRate },
			what: "a count of packets"},
		option{name: "cc_ca_cong_setting_port_control",
			field: func(c *Config) any { return &c.Congestion.CAPortControl }, hex: true, what: "a mask"},
		option{name: "cc_ca_cong_setting_control_map", field: func(c *Config) any { return &c.Congestion.CAControlMap },
			hex: true, what: "a mask of service levels"},
		perSL("cc_ca_cong_setting_ccti_timer", "a timer", func(e *CACongestionEntry) any { return &e.Timer }),
		perSL("cc_ca_cong_setting_ccti_increase", "an increase", func(e *CACongestionEntry) any { return &e.Increase }),
		perSL("cc_ca_cong_setting_trigger_threshold", "a threshold",
			func(e *CACongestionEntry) any { return &e.TriggerThreshold }),
		perSL("cc_ca_cong_setting_ccti_min", "a minimum", func(e *CACongestionEntry) any { return &e.Min }),
		option{name: "cc_cct", field: func(c *Config) any { return &c.Congestion.Table }},
	)
}

func perSL(name, what string, of func(*CACongestionEntry) any) option {
	return option{name: name, what: what, field: func(c *Config) any { return perSLField{&c.Congestion, of} }}
}

// unsupported are the options that OpenSM 3.3.23 has and this manager has no use for, with OpenSM's
// defaults: a file that says otherwise gets a warning.
var unsupported = map[string]string{
	"accum_log_file": "TRUE", "avoid_throttled_links": "FALSE", "babbling_port_policy": "FALSE", "console": "off",
	"console_port": "10000",
	"daemon":       "FALSE", "dimn_ports_file": "", "do_mesh_analysis": "FALSE", "dump_files_dir": "/var/log/",
	"enable_quirks":      "FALSE",
	"event_db_dump_file": "", "event_plugin_name": "", "event_plugin_options": "", "exit_on_fatal": "TRUE",
	"fdr10":            "1",
	"force_link_speed": "15", "force_link_speed_ext": "31", "force_link_width": "255", "force_log_flush": "FALSE",
	"fsync_high_avail_files": "TRUE", "guid_routing_order_no_scatter": "FALSE", "hop_weights_file": "",
	"lash_start_vl": "0",
	"lfts_file":     "", "lid_matrix_dump_file": "", "log_flags": "0x03", "log_max_size": "0", "log_prefix": "",
	"long_transaction_timeout": "500", "max_msg_fifo_timeout": "10000", "max_smps_timeout": "600000",
	"max_wire_smps2":       "4",
	"nue_include_switches": "FALSE", "per_module_logging_file": "/etc/opensm/per-module-logging.conf",
	"perfmgr":            "FALSE",
	"perfmgr_ignore_cas": "FALSE", "perfmgr_log_errors": "TRUE", "perfmgr_max_outstanding_queries": "500",
	"perfmgr_query_cpi": "TRUE",
	"perfmgr_redir":     "TRUE", "perfmgr_rm_nodes": "TRUE", "perfmgr_sweep_time_s": "180",
	"perfmgr_xmit_wait_log":       "FALSE",
	"perfmgr_xmit_wait_threshold": "65535", "port_prof_ignore_file": "", "port_profile_switch_nodes": "FALSE",
	"port_search_ordering_file": "", "port_shifting": "FALSE", "prefix_routes_file": "/etc/opensm/prefix-routes.conf",
	"quasi_ftree_indexing": "FALSE", "sa_db_dump": "FALSE", "sa_db_file": "", "scatter_ports": "0",
	"single_thread":    "FALSE",
	"sm_assigned_guid": "0x00", "suppress_sl2vl_mad_status_errors": "FALSE",
	"torus_config":                        "/etc/opensm/torus-2QoS.conf",
	"use_original_extended_sa_rates_only": "FALSE", "use_ucast_cache": "FALSE",
}

// String is the file's text.
func (c *Config) String() string { return string(c.Append(nil)) }

// Append writes the file, every option of it. What it writes parses to c.
func (c *Config) Append(dst []byte) []byte {
	for i := range options {
		dst = options[i].append(dst, c)
	}
	return dst
}

// null is how OpenSM writes what is not set.
const null = "(null)"

func (o *option) append(dst []byte, c *Config) []byte {
	field := o.field(c)
	if f, ok := field.(perSLField); ok {
		for sl := range f.c.CA {
			dst = fmt.Appendf(dst, "%s %d ", o.name, sl)
			dst = append(appendNumber(dst, f.of(&f.c.CA[sl]), false), '\n')
		}
		return dst
	}
	dst = append(dst, o.name...)
	dst = append(dst, ' ')
	at := len(dst)
	switch f := field.(type) {
	case *bool:
		dst = append(dst, strings.ToUpper(fmt.Sprint(*f))...)
	case *string:
		dst = append(dst, quote(*f)...)
	case *[]string:
		dst = append(dst, strings.Join(*f, ",")...)
	case *int16:
		dst = fmt.Append(dst, *f)
	case *[]VLWeight:
		dst = appendVLArb(dst, *f)
	case *[]ib.VL:
		dst = appendSL2VL(dst, *f)
	case *CCTEntry:
		dst = append(dst, f.String()...)
	case *[]CCTEntry:
		for i, e := range *f {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = append(dst, e.String()...)
		}
	case *[32]byte:
		dst = fmt.Appendf(dst, "0x%x", *f)
	default:
		dst = appendNumber(dst, field, o.hex)
	}
	if len(dst) == at {
		dst = append(dst, null...)
	}
	return append(dst, '\n')
}

func appendNumber(dst []byte, field any, hex bool) []byte {
	var v uint64
	switch f := field.(type) {
	case *uint8:
		v = uint64(*f)
	case *ib.SL:
		v = uint64(*f)
	case *uint16:
		v = uint64(*f)
	case *uint32:
		v = uint64(*f)
	case *uint64:
		v = *f
	case *ib.GUID:
		v, hex = uint64(*f), true
	default:
		panic(fmt.Sprintf("policy: an option of type %T", field))
	}
	if hex {
		return fmt.Appendf(dst, "0x%x", v)
	}
	return fmt.Append(dst, v)
}

// quote puts quotes around a string that would lose a part without them. A string with both kinds of quotes does not
// parse.
func quote(s string) string {
	if strings.Contains(s, `"`) {
		return "'" + s + "'"
	}
	if s == null || strings.ContainsAny(s, "#'") || strings.Trim(s, blanks) != s {
		return `"` + s + `"`
	}
	return s
}
