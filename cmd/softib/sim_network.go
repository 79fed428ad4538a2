package main

import (
	"errors"
	"strings"

	"softib/operate/experiment"
	"softib/proto/ib"
)

// ethernetSettings are what --set takes where --network is one of RoCE.
var ethernetSettings = []setting{
	{"dcqcn", "0: senders on Ethernet do not slow down (1)", onOff(func(s *experiment.Spec) *bool {
		return &s.Options.Ethernet.NoDCQCN
	})},
	{"ecmp", "1: a connection's way is by hash, 0: by the tables (1 on Ethernet, 0 on InfiniBand)",
		func(s *experiment.Spec, v uint64) error {
			s.Options.Hash = v == 1
			return onOff(func(s *experiment.Spec) *bool { return &s.Options.Ethernet.NoECMP })(s, v)
		}},
	{"kmin", "bytes of a queue from which on Ethernet packets are marked (5000)", upTo(1<<30,
		func(s *experiment.Spec, v uint64) { s.Options.Ethernet.RED.Kmin = int(v) })},
	{"kmax", "bytes of a queue beyond which all are (200000)", upTo(1<<30,
		func(s *experiment.Spec, v uint64) { s.Options.Ethernet.RED.Kmax = int(v) })},
	{"pmax", "millionths of the packets that are marked at kmax (10000)", upTo(1_000_000,
		func(s *experiment.Spec, v uint64) { s.Options.Ethernet.RED.Pmax = uint32(v) })},
	{"cnp-interval", "ns between two notifications of a flow (50000)", nanoseconds(func(s *experiment.Spec) *ib.Time {
		return &s.Options.Ethernet.DCQCN.CNPInterval
	})},
	{"alpha-timer", "ns after which DCQCN's alpha falls (55000)", nanoseconds(func(s *experiment.Spec) *ib.Time {
		return &s.Options.Ethernet.DCQCN.AlphaTimer
	})},
	{"rate-timer", "ns after which DCQCN raises a rate (55000)", nanoseconds(func(s *experiment.Spec) *ib.Time {
		return &s.Options.Ethernet.DCQCN.RateTimer
	})},
	{"byte-counter", "bytes after which it does, too (10000000)", upTo(1<<40, func(s *experiment.Spec, v uint64) {
		s.Options.Ethernet.DCQCN.ByteCounter = int64(v)
	})},
	{"rate-ai", "Mbit/s of DCQCN's additive increase (40)", upTo(1<<20, func(s *experiment.Spec, v uint64) {
		s.Options.Ethernet.DCQCN.AdditiveMbps = int64(v)
	})},
	{"rate-hai", "Mbit/s of its hyper increase (400)", upTo(1<<20, func(s *experiment.Spec, v uint64) {
		s.Options.Ethernet.DCQCN.HyperMbps = int64(v)
	})},
	{"watchdog", "ns for which a port is paused before its switch gives its peer up (never)",
		nanoseconds(func(s *experiment.Spec) *ib.Time { return &s.Options.Ethernet.Watchdog })},
	{"restore", "ns without a pause after which it does not any more (as watchdog)",
		nanoseconds(func(s *experiment.Spec) *ib.Time { return &s.Options.Ethernet.Restore })},
	{"storm", "rank whose adapter pauses its switch for ever, from 1 on (none)", upTo(1<<30,
		func(s *experiment.Spec, v uint64) { s.Options.Ethernet.Storm = int(v) })},
	{"window", "packets that a sender of roce-irn has under way (what the longest way holds)", upTo(2048,
		func(s *experiment.Spec, v uint64) { s.Options.Ethernet.Selective.Window = int(v) })},
	{"rto-low", "ns that roce-irn waits while few packets are under way (100000)",
		nanoseconds(func(s *experiment.Spec) *ib.Time { return &s.Options.Ethernet.Selective.RTOLow })},
	{"rto-high", "ns that it waits otherwise (320000)", nanoseconds(func(s *experiment.Spec) *ib.Time {
		return &s.Options.Ethernet.Selective.RTOHigh
	})},
}

// onOff is 1 or 0, where the field says that it is off.
func onOff(off func(*experiment.Spec) *bool) func(*experiment.Spec, uint64) error {
	return func(s *experiment.Spec, v uint64) error {
		if v > 1 {
			return errors.New("want 0 or 1")
		}
		*off(s) = v == 0
		return nil
	}
}

// printEthernet says what there was of pauses, marks and losses.
func printEthernet(t *terminal, e *experiment.Ethernet) {
	if e == nil {
		return
	}
	t.say("  ethernet   %s: %s, ports paused for %s in all", e.Network,
		numbered(int(e.PausesSent), "pause frame", "pause frames"), duration(e.Paused))
	t.say("             %s, %s, %s, %s",
		numbered(int(e.Marked), "packet marked", "packets marked"),
		numbered(int(e.Notified), "notification", "notifications"),
		numbered(int(e.Dropped), "packet dropped", "packets dropped"),
		numbered(int(e.Resent), "packet sent again", "packets sent again"))
	if e.Storms > 0 {
		t.say("  %s", t.red("pause storm at "+strings.Join(e.StormPorts, ", ")+": the watchdog has dropped "+
			numbered(int(e.GivenUp), "packet", "packets")+" for who pauses there"))
	}
}
