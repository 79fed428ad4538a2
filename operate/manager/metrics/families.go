package metrics

import (
	"strconv"

	"softib/proto/ib"
	"softib/proto/topo"
)

// portCounter is a counter of ports under both of its foreign names.
type portCounter struct {
	counter ib.Counter
	trey    string // after infiniband_switch_ and infiniband_hca_; empty where infiniband_exporter has none
	ufm     string
	unit    uint64 // what one count stands for
	help    string
}

// portCounters is every counter that is exported. infiniband_exporter's name for DLID mapping errors has a letter
// missing; so have the dashboards that use it.
var portCounters = [...]portCounter{
	{ib.PortXmitData, "port_transmit_data_bytes_total", "PortXmitDataExtended", 4,
		"Bytes sent, without link packets (PortXmitData, in bytes)."},
	{ib.PortRcvData, "port_receive_data_bytes_total", "PortRcvDataExtended", 4,
		"Bytes received, without link packets (PortRcvData, in bytes)."},
	{ib.PortXmitPkts, "port_transmit_packets_total", "PortXmitPktsExtended", 1, "Packets sent (PortXmitPkts)."},
	{ib.PortRcvPkts, "port_receive_packets_total", "PortRcvPktsExtended", 1, "Packets received (PortRcvPkts)."},
	{ib.PortUnicastXmitPkts, "port_unicast_transmit_packets_total", "PortUniCastXmitPktsExtended", 1,
		"Unicast packets sent (PortUnicastXmitPkts)."},
	{ib.PortUnicastRcvPkts, "port_unicast_receive_packets_total", "PortUniCastRcvPktsExtended", 1,
		"Unicast packets received (PortUnicastRcvPkts)."},
	{ib.PortMulticastXmitPkts, "port_multicast_transmit_packets_total", "PortMultiCastXmitPktsExtended", 1,
		"Multicast packets sent (PortMulticastXmitPkts)."},
	{ib.PortMulticastRcvPkts, "port_multicast_receive_packets_total", "PortMultiCastRcvPktsExtended", 1,
		"Multicast packets received (PortMulticastRcvPkts)."},
	{ib.SymbolErrorCounter, "port_symbol_error_total", "SymbolErrorCounterExtended", 1,
		"Errors seen on the lanes of the cable (SymbolErrorCounter)."},
	{ib.LinkErrorRecoveryCounter, "port_link_error_recovery_total", "LinkErrorRecoveryCounterExtended", 1,
		"Times that the link trained again and stayed up (LinkErrorRecoveryCounter)."},
	{ib.LinkDownedCounter, "port_link_downed_total", "LinkDownedCounterExtended", 1,
		"Times that the link went down (LinkDownedCounter)."},
	{ib.PortRcvErrors, "port_receive_errors_total", "PortRcvErrorsExtended", 1,
		"Packets that arrived damaged or malformed (PortRcvErrors)."},
	{ib.PortRcvRemotePhysicalErrors, "port_receive_remote_physical_errors_total", "PortRcvRemotePhysicalErrorsExtended",
		1, "Packets that were already marked bad by a switch before (PortRcvRemotePhysicalErrors)."},
	{ib.PortRcvSwitchRelayErrors, "port_receive_switch_relay_errors_total", "PortRcvSwitchRelayErrorsExtended", 1,
		"Packets that the switch could not pass on (PortRcvSwitchRelayErrors)."},
	{ib.PortXmitDiscards, "port_transmit_discards_total", "PortXmitDiscardsExtended", 1,
		"Packets discarded before they were sent (PortXmitDiscards)."},
	{ib.PortXmitConstraintErrors, "port_transmit_constraint_errors_total", "PortXmitConstraintErrorsExtended", 1,
		"Packets not sent because of their partition or version (PortXmitConstraintErrors)."},
	{ib.PortRcvConstraintErrors, "port_receive_constraint_errors_total", "PortRcvConstraintErrorsExtended", 1,
		"Packets refused because of their partition or version (PortRcvConstraintErrors)."},
	{ib.LocalLinkIntegrityErrors, "port_local_link_integrity_errors_total", "LocalLinkIntegrityErrorsExtended", 1,
		"Times that damaged packets came too often (LocalLinkIntegrityErrors)."},
	{ib.ExcessiveBufferOverrunErrors, "port_excessive_buffer_overrun_errors_total",
		"ExcessiveBufferOverrunErrorsExtended", 1,
		"Times that buffers overran too often (ExcessiveBufferOverrunErrors)."},
	{ib.VL15Dropped, "port_vl15_dropped_total", "VL15DroppedExtended", 1,
		"Subnet management packets dropped for want of room (VL15Dropped)."},
	{ib.PortXmitWait, "port_transmit_wait_total", "PortXmitWaitExtended", 1,
		"Ticks, each the time of 4 bytes on the link, with something to send and no credit for it (PortXmitWait)."},
	{ib.QP1Dropped, "port_qp1_dropped_total", "QP1DroppedExtended", 1,
		"General management packets dropped for want of room (QP1Dropped)."},
	{ib.PortLocalPhysicalErrors, "port_local_physical_errors_total", "PortLocalPhysicalErrors", 1,
		"Packets with a wrong CRC or delimiter (PortLocalPhysicalErrors)."},
	{ib.PortMalformedPacketErrors, "port_malformed_packet_errors_total", "PortMalformedPacketErrors", 1,
		"Packets whose headers make no sense (PortMalformedPacketErrors)."},
	{ib.PortBufferOverrunErrors, "port_buffer_overrun_errors_total", "PortBufferOverrunErrors", 1,
		"Packets that came without room for them (PortBufferOverrunErrors)."},
	{ib.PortDLIDMappingErrors, "port_dli_mapping_errors_total", "PortDLIDMappingErrors", 1,
		"Packets to an address that no table knows (PortDLIDMappingErrors)."},
	{ib.PortVLMappingErrors, "port_vl_mapping_errors_total", "PortVLMappingErrors", 1,
		"Packets whose service level has no lane (PortVLMappingErrors)."},
	{ib.PortLoopingErrors, "port_looping_errors_total", "PortLoopingErrors", 1,
		"Packets that would go out where they came in (PortLoopingErrors)."},
	{ib.PortInactiveDiscards, "", "PortInactiveDiscards", 1, "Packets discarded because the port was not active."},
	{ib.PortNeighborMTUDiscards, "", "PortNeighborMTUDiscards", 1,
		"Packets discarded because they were larger than the neighbour takes."},
	{ib.PortSwLifetimeLimitDiscards, "", "PortSwLifetimeLimitDiscards", 1,
		"Packets discarded because they were in the switch for too long."},
	{ib.PortSwHOQLifetimeLimitDiscards, "", "PortSwHOQLifetimeLimitDiscards", 1,
		"Packets discarded because they were first in the queue for too long."},
	{ib.LinkDownedCounter, "", "Link_Down_IB", 1, "Times that the link went down."},
}

// laneRawMbps is what a lane signals, coding included, as infiniband_exporter has it: from HDR on that is what it
// carries, although error correction takes 6 % on top. ib.LinkRate.Mbps is what is left without coding.
var laneRawMbps = [ib.NumSpeed]float64{
	ib.SDR: 2500, ib.DDR: 5000, ib.QDR: 10000, ib.FDR10: 10312.5, ib.FDR: 14062.5, ib.EDR: 25781.25, ib.HDR: 50000,
	ib.NDR: 100000, ib.XDR: 200000,
}

func bytesPerSecond(r ib.LinkRate) float64 { return float64(r.Mbps()) * 1e6 / 8 }

func rawBytesPerSecond(r ib.LinkRate) float64 {
	if !r.Speed.IsValid() {
		return 0
	}
	return laneRawMbps[r.Speed] * float64(r.Width.Lanes()) * 1e6 / 8
}

// family is one metric: a head, and lines for items from 0 to count.
type family struct {
	name, help string
	kind       kind
	count      int
	// line is about what an item's text takes at most, in bytes.
	line  int
	lines func(b []byte, s *snapshot, from, to int) []byte
}

// families are those of one side.
func (s *side) families(g *topo.Graph) (list []family) {
	name := func(what string) string { return "infiniband_" + s.word + "_" + what }
	what := map[string]string{"switch": "switch", "hca": "host"}[s.word]
	for i := range portCounters {
		if c := &portCounters[i]; c.trey != "" {
			list = append(list, counterFamily(name(c.trey), c, s.ports, &s.labels))
		}
	}
	if s.word == "switch" {
		list = append(list,
			s.portRates(name("port_rate_bytes_per_second"), "What the link carries, in bytes a second.",
				bytesPerSecond),
			s.portRates(name("port_raw_rate_bytes_per_second"),
				"What the link signals, coding included, in bytes a second.", rawBytesPerSecond))
	} else {
		list = append(list,
			s.devRates(name("rate_bytes_per_second"), "What the host's link carries, in bytes a second.",
				bytesPerSecond),
			s.devRates(name("raw_rate_bytes_per_second"),
				"What the host's link signals, coding included, in bytes a second.", rawBytesPerSecond))
	}
	return append(list,
		family{name("uplink_info"), "What is at the other end of a link that is up.", gauge, len(s.ports), 320,
			s.uplinkInfo(name("uplink_info"), g)},
		family{name("info"), "Name and address of a " + what + ".", gauge, len(s.devs), 160, s.info(name("info"), g)},
		s.perDevice(name("collect_duration_seconds"),
			"Time in which the counters were read: those of the whole fabric are read at once.",
			func(x *snapshot) float64 { return x.took.Seconds() }),
		s.perDevice(name("collect_error"), "Whether reading the counters failed.", zero),
		s.perDevice(name("collect_timeout"), "Whether reading the counters took too long.", zero))
}

func zero(*snapshot) float64 { return 0 }

// counterFamily is a counter of each of some ports.
func counterFamily(name string, c *portCounter, ports []int32, labels *texts) family {
	k, unit := c.counter, c.unit
	return family{name, c.help, counter, len(ports), len(name) + 90, func(b []byte, s *snapshot, from, to int) []byte {
		all := s.sample.Ports
		for i := from; i < to; i++ {
			b = append(b, name...)
			b = append(b, labels.at(i)...)
			b = appendCount(b, all[ports[i]].Counters[k]*unit)
		}
		return b
	}}
}

func (s *side) portRates(name, help string, rate func(ib.LinkRate) float64) family {
	return family{name, help, gauge, len(s.ports), len(name) + 80, func(b []byte, x *snapshot, from, to int) []byte {
		for i := from; i < to; i++ {
			if p := &x.sample.Ports[s.ports[i]]; p.State > ib.PortDown {
				b = append(b, name...)
				b = append(b, s.labels.at(i)...)
				b = appendValue(b, rate(p.Rate))
			}
		}
		return b
	}}
}

// devRates is for hosts: infiniband_exporter gives each of their ports a rate.
func (s *side) devRates(name, help string, rate func(ib.LinkRate) float64) family {
	return family{name, help, gauge, len(s.devs), len(name) + 60, func(b []byte, x *snapshot, from, to int) []byte {
		for i := from; i < to; i++ {
			end := len(s.ports)
			if i+1 < len(s.first) {
				end = int(s.first[i+1])
			}
			best := 0.0
			for k := int(s.first[i]); k < end; k++ {
				if p := &x.sample.Ports[s.ports[k]]; p.State > ib.PortDown {
					best = max(best, rate(p.Rate))
				}
			}
			if best > 0 {
				b = append(b, name...)
				b = append(b, s.guid.at(i)...)
				b = appendValue(b, best)
			}
		}
		return b
	}}
}

func (s *side) uplinkInfo(name string, g *topo.Graph) func([]byte, *snapshot, int, int) []byte {
	return func(b []byte, x *snapshot, from, to int) []byte {
		for i := from; i < to; i++ {
			if x.sample.Ports[s.ports[i]].State <= ib.PortDown {
				continue
			}
			b = append(b, name...)
			b = append(b, s.uplink.at(i)...)
			b = append(b, `,uplink_lid="`...)
			b = strconv.AppendUint(b, uint64(x.lids.of(g, s.peer[i])), 10)
			b = append(b, "\"} 1\n"...)
		}
		return b
	}
}

func (s *side) info(name string, g *topo.Graph) func([]byte, *snapshot, int, int) []byte {
	return func(b []byte, x *snapshot, from, to int) []byte {
		for i := from; i < to; i++ {
			b = append(b, name...)
			b = append(b, s.dev.at(i)...)
			b = append(b, `,lid="`...)
			b = strconv.AppendUint(b, uint64(x.lids.of(g, s.devs[i])), 10)
			b = append(b, "\"} 1\n"...)
		}
		return b
	}
}

// perDevice is a value of each device's reading: of its plain counters, and of those that tell errors apart, which
// infiniband_exporter reads by a collector of their own (--collector.switch.rcv-err-details).
func (s *side) perDevice(name, help string, value func(*snapshot) float64) family {
	line := 2 * (len(name) + 90)
	return family{name, help, gauge, len(s.devs), line, func(b []byte, x *snapshot, from, to int) []byte {
		v := appendValue(nil, value(x))
		for i := from; i < to; i++ {
			for _, tail := range [...]string{`"} `, `-rcv-err"} `} {
				b = append(b, name...)
				b = append(b, s.devices.at(i)...)
				b = append(b, tail...)
				b = append(b, v...)
			}
		}
		return b
	}}
}

// ufmFamilies are all counters of all ports.
func (x *index) ufmFamilies() (list []family) {
	for i := range portCounters {
		c := &portCounters[i]
		list = append(list, counterFamily(c.ufm, c, x.ports, &x.ufm))
	}
	return list
}
