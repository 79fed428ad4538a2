package ufm

import (
	"fmt"
	"slices"
	"strings"

	"softib/proto/ib"
)

// interfaceVersion is the UFM whose interface this is.
const interfaceVersion = "6.19.0"

// version says who serves. Clients read ufm_release_version.
func (s *Server) version(c *call) error {
	v := s.cfg.Manager.Version()
	c.json(map[string]any{"ufm_release_version": interfaceVersion, "softib": v, "opensm": "softib " + v,
		"plugins": map[string]string{}})
	return nil
}

// smConfig is the subnet manager's configuration under OpenSM's names.
func (s *Server) smConfig(c *call) error {
	conf := s.smConf()
	if !c.query.values.Has("param_name") || c.query.text("param_name") == "" {
		c.json(conf)
		return nil
	}
	out := map[string]any{}
	for name := range strings.SplitSeq(c.query.text("param_name"), ",") {
		v, ok := conf[name]
		if !ok {
			names := make([]string, 0, len(conf))
			for k := range conf {
				names = append(names, k)
			}
			slices.Sort(names)
			return bad("param_name", "%q: want %s", clip(name), strings.Join(names, ", "))
		}
		out[name] = v
	}
	c.json(out)
	return nil
}

func (s *Server) smConf() map[string]any {
	hex := func(v uint64) string { return fmt.Sprintf("0x%x", v) }
	sub := s.cfg.Manager.Subnet()
	out := map[string]any{
		"subnet_prefix": hex(defaultPrefix), "m_key": hex(0), "sm_key": hex(1), "sa_key": hex(1),
		"m_key_per_port": false, "m_key_protection_level": 0, "m_key_lease_period": 0,
		"sm_priority": 0, "lmc": 0, "routing_engine_active": sub.Engine, "sm_state": sub.State, "managed": sub.Managed,
	}
	cfg, ok := s.cfg.Manager.SubnetConfig()
	if !ok {
		return out
	}
	if cfg.Prefix != 0 {
		out["subnet_prefix"] = hex(cfg.Prefix)
	}
	out["m_key"], out["m_key_protection_level"], out["m_key_lease_period"] = hex(cfg.MKey), cfg.MKeyProtect,
		cfg.MKeyLease
	out["sm_key"], out["sa_key"] = hex(cfg.SMKey), hex(cfg.SMKey)
	if cfg.MKeyPerPort {
		// Nobody needs what all keys are made from, nor the key that makes a manager of whoever has it.
		out["m_key"], out["m_key_per_port"], out["sm_key"], out["sa_key"] = hex(0), true, hex(0), hex(0)
	}
	out["sm_priority"], out["lmc"] = cfg.Priority, cfg.LMC
	out["routing_engine"], out["max_wire_smps"], out["polling_retry_number"] = cfg.Engines, cfg.Window, cfg.PollRetries
	out["transaction_timeout"], out["transaction_retries"] = int64(cfg.Timeout/ib.Millisecond), cfg.Retries
	out["sminfo_polling_timeout"] = int64(cfg.PollInterval / ib.Millisecond)
	out["sweep_interval"] = max(int64(cfg.SweepInterval/ib.Second), 0)
	out["subnet_timeout"], out["packet_life_time"], out["head_of_queue_lifetime"],
		out["leaf_head_of_queue_lifetime"] = cfg.SubnetTimeout, cfg.PacketLife, cfg.HOQLife, cfg.LeafHOQLife
	return out
}

// defaultPrefix is that of GIDs where nobody has set another (IBA 4.1.1).
const defaultPrefix = 0xfe80 << 48
