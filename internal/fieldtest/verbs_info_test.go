package fieldtest

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"softib/node/hca"
	"softib/proto/ib"
	"softib/proto/mad"
	"softib/proto/topo"
	"softib/subnet/sm"
)

// motley is a switch with hosts of every speed, and a host with two ports, the second without a cable.
func motley(t testing.TB) *topo.Graph {
	t.Helper()
	g := &topo.Graph{}
	speeds := []ib.LinkRate{
		{Width: ib.Width1x, Speed: ib.SDR}, {Width: ib.Width4x, Speed: ib.DDR}, {Width: ib.Width12x, Speed: ib.QDR},
		{Width: ib.Width4x, Speed: ib.FDR10},
		{Width: ib.Width4x, Speed: ib.FDR}, {Width: ib.Width2x, Speed: ib.EDR}, {Width: ib.Width8x, Speed: ib.HDR},
		{Width: ib.Width4x, Speed: ib.NDR},
	}
	sw, err := g.Add(topo.Node{Type: ib.NodeSwitch, GUID: 0x0250f11b00000100, Name: "sw1"}, len(speeds))
	if err != nil {
		t.Fatal(err)
	}
	for i, rate := range speeds {
		numPorts := 1
		if i == len(speeds)-1 {
			numPorts = 2
		}
		guid := ib.GUID(0x0250f11b00000200 + 16*i)
		n, err := g.Add(topo.Node{
			Type: ib.NodeCA, GUID: guid, SystemGUID: guid + 8, Name: fmt.Sprintf("h%d", i+1),
			Desc: fmt.Sprintf("h%d HCA-1", i+1), VendorID: 0x250f1, DeviceID: uint16(100 + i),
		}, numPorts)
		if err != nil {
			t.Fatal(err)
		}
		for p := 1; p <= numPorts; p++ {
			err = errors.Join(err, g.SetPortGUID(n.Index, ib.PortNum(p), guid+ib.GUID(p)))
		}
		if err = errors.Join(err, g.Connect(n.Index, 1, sw.Index, ib.PortNum(i+1),
			topo.LinkSpec{Width: rate.Width, Speed: rate.Speed, LengthMM: topo.DefaultLengthMM})); err != nil {
			t.Fatal(err)
		}
	}
	return g
}

func TestIbvDevices(t *testing.T) {
	t.Parallel()
	w := up(t, "star:3")
	for _, host := range []string{"h1", "h3"} {
		want := fmt.Sprintf("    device          \t   node GUID\n    ------          \t----------------\n"+
			"    softib0         \t%016x\n", uint64(w.node(host).GUID))
		same(t, host, w.run(host, "ibv_devices"), want)
	}
	// Without a fabric there is no device.
	cmd := w.command("h1", "ibv_devices")
	var env []string
	for _, kv := range cmd.Env {
		if !strings.HasPrefix(kv, "SOFTIB_") || strings.HasPrefix(kv, "SOFTIB_LIB=") {
			env = append(env, kv)
		}
	}
	cmd.Env = env
	out, err := cmd.CombinedOutput()
	same(t, "without a fabric", string(out),
		"    device          \t   node GUID\n    ------          \t----------------\n")
	w.check(err)
}

// devinfo is what ibv_devinfo -v prints: of the device, and of each port. Lines without a name belong to the field
// before them.
func devinfo(text string) (device sheet, ports []sheet) {
	at, last := sheet{}, ""
	device = at
	for line := range strings.Lines(text) {
		name, value, ok := strings.Cut(strings.TrimSpace(line), ":")
		switch {
		case name == "":
		case !ok:
			at[last] = strings.TrimSpace(at[last] + " " + name)
		default:
			last = name
			if name == "port" {
				at = sheet{}
				ports = append(ports, at)
			}
			at[name] = strings.TrimSpace(value)
		}
	}
	return device, ports
}

func guidWords(g ib.GUID) string {
	s := fmt.Sprintf("%016x", uint64(g))
	return s[:4] + ":" + s[4:8] + ":" + s[8:12] + ":" + s[12:]
}

func gidWords(g ib.GID) string {
	var words []string
	for i := 0; i < len(g); i += 2 {
		words = append(words, fmt.Sprintf("%02x%02x", g[i], g[i+1]))
	}
	return strings.Join(words, ":")
}

// deviceSheet is what ibv_devinfo -v should say of a host's adapter. The name of the board comes from sysfs.
func deviceSheet(n *topo.Node) sheet {
	l := hca.DefaultLimits()
	maxQP := 16384 // a program's share of the adapter's numbers
	flags := "0x01123cb7 RESIZE_MAX_WR BAD_PKEY_CNTR BAD_QKEY_CNTR AUTO_PATH_MIG CHANGE_PHY_PORT " +
		"CURR_QP_STATE_MOD PORT_ACTIVE_EVENT SYS_IMAGE_GUID RC_RNR_NAK_GEN SRQ_RESIZE MEM_WINDOW XRC MEM_WINDOW_TYPE_2B"
	none := sheet{}
	for _, name := range []string{"max_ee_rd_atom", "max_ee_init_rd_atom", "max_ee", "max_rdd", "max_raw_ipv6_qp",
		"max_raw_ethy_qp", "max_fmr", "max_tso", "max_rwq_indirection_tables", "max_rwq_indirection_table_size",
		"max_wq_type_rq"} {
		none[name] = "0"
	}
	for _, name := range []string{"tso_caps", "rss_caps", "packet_pacing_caps",
		"cq moderation caps"} {
		none[name] = "" // a heading
	}
	want := sheet{
		"hca_id": "softib0", "transport": "InfiniBand (0)", "fw_ver": firmware, "node_guid": guidWords(n.GUID),
		"sys_image_guid": guidWords(n.SystemGUID),
		"vendor_id":      fmt.Sprintf("0x%04x", n.VendorID), "vendor_part_id": dec(n.DeviceID), "hw_ver": "0x0",
		"phys_port_cnt": dec(n.NumPorts()),
		"max_mr_size":   fmt.Sprintf("%#x", l.MaxMRSize),
		"page_size_cap": fmt.Sprintf("%#x", ^uint64(os.Getpagesize()-1)), "max_qp": dec(maxQP),
		"max_qp_wr":        dec(l.MaxQPWR),
		"device_cap_flags": flags, "device_cap_flags_ex": "0x14001123CB7", "max_sge": dec(l.MaxSGE),
		"max_sge_rd": dec(l.MaxSGE), "max_cq": dec(l.MaxCQ), "max_cqe": dec(l.MaxCQE),
		"max_mr": dec(l.MaxMR), "max_pd": dec(l.MaxPD), "max_qp_rd_atom": dec(l.MaxRDAtomic),
		"max_qp_init_rd_atom": dec(l.MaxInitRDAtomic), "max_res_rd_atom": dec(maxQP * int(l.MaxRDAtomic)),
		"atomic_cap": "ATOMIC_HCA (1)", "max_mw": dec(l.MaxMW), "max_mcast_grp": dec(l.MaxMcastGrp),
		"max_mcast_qp_attach":       dec(l.MaxMcastQPAttach),
		"max_total_mcast_qp_attach": dec(int(l.MaxMcastGrp) * int(l.MaxMcastQPAttach)), "max_ah": dec(l.MaxAH),
		"max_srq": dec(l.MaxSRQ), "max_srq_wr": dec(l.MaxSRQWR), "max_srq_sge": dec(l.MaxSGE),
		"max_pkeys": dec(hca.PartitionCap), "local_ca_ack_delay": dec(hca.AckDelay),
		"completion timestamp_mask": "0xffffffffffffffff", "hca_core_clock": "1000000kHZ",
		"rx_hash_function": "0x0", "rx_hash_fields_mask": "0x0", "qp_rate_limit_min": "1000kbps",
		"qp_rate_limit_max": "4294967295kbps", "supported_qp": "SUPPORT_UD",
		"max_rndv_hdr_size": "64", "max_num_tags": "4096", "max_ops": "4096",
		"flags": "IBV_TM_CAP_RC", "maximum available device memory": "1048576Bytes",
		"Unknown flags":    "0x20C", // the last: rates of RC, UC and XRC, which this ibv_devinfo has no names for
		"general_odp_caps": "ODP_SUPPORT ODP_SUPPORT_IMPLICIT",
		"rc_odp_caps":      "SUPPORT_SEND SUPPORT_RECV SUPPORT_WRITE SUPPORT_READ SUPPORT_ATOMIC SUPPORT_SRQ",
		"uc_odp_caps":      "SUPPORT_SEND SUPPORT_RECV SUPPORT_WRITE SUPPORT_SRQ",
		"ud_odp_caps":      "SUPPORT_SEND SUPPORT_RECV SUPPORT_SRQ",
		"xrc_odp_caps":     "SUPPORT_SEND SUPPORT_WRITE SUPPORT_READ SUPPORT_ATOMIC SUPPORT_SRQ",
		"max_cq_count":     "65535", "max_cq_period": "65535 us", "num_comp_vectors": "1",
	}
	for name, v := range none {
		want[name] = v
	}
	return want
}

// portSheet is what it should say of a port.
func (w *world) portSheet(n *topo.Node, p int) sheet {
	pi := w.portInfo(n, p)
	states := map[ib.PortState]string{ib.PortDown: "PORT_DOWN (1)", ib.PortInit: "PORT_INIT (2)",
		ib.PortArmed: "PORT_ARMED (3)", ib.PortActive: "PORT_ACTIVE (4)"}
	phys := map[ib.PhysState]string{ib.PhysSleep: "SLEEP (1)", ib.PhysPolling: "POLLING (2)",
		ib.PhysDisabled: "DISABLED (3)", ib.PhysLinkUp: "LINK_UP (5)"}
	mtus := map[ib.MTU]string{ib.MTU256: "256 (1)", ib.MTU512: "512 (2)", ib.MTU1024: "1024 (3)",
		ib.MTU2048: "2048 (4)", ib.MTU4096: "4096 (5)"}
	widths := map[ib.Width]string{ib.Width1x: "1X (1)", ib.Width4x: "4X (2)", ib.Width8x: "8X (4)",
		ib.Width12x: "12X (8)", ib.Width2x: "2X (16)"}
	speeds := map[ib.Speed]string{
		ib.SDR: "2.5 Gbps (1)", ib.DDR: "5.0 Gbps (2)", ib.QDR: "10.0 Gbps (4)", ib.FDR10: "10.0 Gbps (8)",
		ib.FDR: "14.0 Gbps (16)", ib.EDR: "25.0 Gbps (32)", ib.HDR: "50.0 Gbps (64)", ib.NDR: "100.0 Gbps (128)",
	}
	vls := map[mad.VLCount]string{1: "1 (1)", 2: "2 (2)", 3: "4 (3)", 4: "8 (4)", 5: "15 (5)"}
	rate := w.rate(n, p)
	speed := speeds[rate.Speed]
	if pi.PortState == ib.PortDown {
		speed = "invalid speed (0)"
	}
	return sheet{
		"port": dec(p), "state": states[pi.PortState], "max_mtu": mtus[pi.MTUCap], "active_mtu": mtus[pi.NeighborMTU],
		"sm_lid": dec(pi.MasterSMLID), "port_lid": dec(pi.LID),
		"port_lmc": fmt.Sprintf("0x%02x", pi.LMC), "link_layer": "InfiniBand",
		"max_msg_sz":      fmt.Sprintf("%#x", hca.DefaultLimits().MaxMsgSize),
		"port_cap_flags":  fmt.Sprintf("0x%08x", uint32(pi.CapabilityMask)),
		"port_cap_flags2": fmt.Sprintf("0x%04x", pi.CapabilityMask2), "max_vl_num": vls[pi.VLCap],
		"bad_pkey_cntr": fmt.Sprintf("%#x", pi.PKeyViolations), "qkey_viol_cntr": fmt.Sprintf("%#x", pi.QKeyViolations),
		"sm_sl":        dec(pi.MasterSMSL),
		"pkey_tbl_len": dec(hca.PartitionCap), "gid_tbl_len": dec(pi.GUIDCap), "subnet_timeout": dec(pi.SubnetTimeOut),
		"init_type_reply": dec(pi.InitTypeReply),
		"active_width":    widths[rate.Width], "active_speed": speed, "phys_state": phys[pi.PortPhysicalState],
		"GID[  0]": gidWords(gid(n, p)),
	}
}

// Every field, on links of every speed, with several addresses and with a port that is down.
func TestIbvDevinfo(t *testing.T) {
	t.Parallel()
	w := upGraph(t, motley(t), func(c *sm.Config) { c.LMC = 2 })
	for _, n := range w.g.Hosts() {
		device, ports := devinfo(w.run(n.Name, "ibv_devinfo", "-v"))
		device.expect(t, n.Name, deviceSheet(n))
		same(t, n.Name+": ports", len(ports), n.NumPorts())
		for i, p := range ports {
			p.expect(t, fmt.Sprintf("%s[%d]", n.Name, i+1), w.portSheet(n, i+1))
		}
	}
	// One port, one device by its name, one that is not there.
	_, ports := devinfo(w.run("h8", "ibv_devinfo", "-i", "2"))
	if len(ports) != 1 || ports[0]["port"] != "2" || ports[0]["state"] != "PORT_DOWN (1)" {
		t.Errorf("port 2 of h8: %v", ports)
	}
	device, _ := devinfo(w.run("h2", "ibv_devinfo", "-d", "softib0"))
	same(t, "by name", device["node_guid"], guidWords(w.node("h2").GUID))
	wants(t, w.fails("h2", "ibv_devinfo", "-d", "mlx5_0"), "IB device 'mlx5_0' wasn't found")
	same(t, "list", w.run("h2", "ibv_devinfo", "-l"), "1 HCA found:\n\tsoftib0\n\n")
}

// A program that waits for events sees the cable pulled and plugged in, and a manager that wants clients to register
// again.
func TestIbvAsyncwatch(t *testing.T) {
	t.Parallel()
	w := up(t, "star:3", brisk)
	// What it prints stays in its buffer until it ends, which it does not.
	p := w.start("h2", "stdbuf", "-oL", tool(t, "ibv_asyncwatch"))
	p.await("softib0: async event FD")
	other := w.start("h3", "stdbuf", "-oL", tool(t, "ibv_asyncwatch"))
	other.await("softib0: async event FD")
	h2 := w.node("h2")
	w.check(w.SetLink(ref(h2, 1), false))
	p.await("event_type IBV_EVENT_PORT_ERR (10), port 1\n")
	w.check(w.SetLink(ref(h2, 1), true))
	p.await("event_type IBV_EVENT_PORT_ACTIVE (9), port 1\n")
	w.eventually("the link's return", w.active)
	same(t, "ports that came back", strings.Count(p.printed(), "IBV_EVENT_PORT_ACTIVE"), 1)
	same(t, "at other hosts", strings.Count(other.printed(), "event_type"), 0)
}
