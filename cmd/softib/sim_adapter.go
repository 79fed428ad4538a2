package main

import (
	"errors"
	"fmt"
	"strings"

	"softib/node/nic"
	"softib/operate/experiment"
	"softib/proto/ib"
)

// adapterKey names an adapter: the one setting that is a word.
const adapterKey = "adapter"

func adapterHelp() string {
	return "what adapters cost, by packets: " + adapterNames() + "; none is nothing (none)"
}

// adapterSettings are what --set can set of adapters and of how they talk. A figure changes the adapter that was named
// before.
var adapterSettings = []setting{
	{"pcie-gen", "generation of the adapter's PCI Express", ofAdapter(1, uint64(nic.MaxGen),
		func(c *nic.Config, v uint64) { c.PCIe.Gen = int(v) })},
	{"pcie-lanes", "its lanes", ofAdapter(1, 32, func(c *nic.Config, v uint64) { c.PCIe.Lanes = int(v) })},
	{"pcie-latency", "ns that it takes to read the host's memory", ofAdapter(1, 1e6,
		func(c *nic.Config, v uint64) { c.PCIe.RoundTrip = ib.Time(v) * ib.Nanosecond })},
	{"nic-rate", "million packets a second that an adapter makes, and takes in", ofAdapter(1, 1e5,
		func(c *nic.Config, v uint64) { c.Packet = ib.Microsecond / ib.Time(v) })},
	{"nic-fetches", "packets that wait for the host's memory at a time", ofAdapter(1, 1<<16,
		func(c *nic.Config, v uint64) { c.Fetches = int(v) })},
	{"qp-cache", "contexts of queue pairs that an adapter holds; 0 is all", ofAdapter(0, 1<<24,
		func(c *nic.Config, v uint64) { c.Contexts = int(v) })},
	{"read-cache", "READs under way whose requests it holds; 0 is all", ofAdapter(0, 1<<24,
		func(c *nic.Config, v uint64) { c.Requests = int(v) })},
	{"mtt-cache", "pages of registered memory that it holds; 0 is all", ofAdapter(0, 1<<24,
		func(c *nic.Config, v uint64) { c.Translations = int(v) })},
	{"page", "bytes of such a page (4096)", ofAdapter(1, 1<<40, func(c *nic.Config, v uint64) { c.Page = v })},
	{"inline", "bytes up to which a message comes with its doorbell (0)", ofAdapter(0, 1<<12,
		func(c *nic.Config, v uint64) { c.Inline = int(v) })},
	{"dci", "so many initiators of dynamic connections (DC) that all queue pairs share; 0 is none (0)", ofAdapter(0,
		1<<20, func(c *nic.Config, v uint64) { c.Shared = int(v) })},
	{"qps", "queue pairs of two ranks that talk, by packets (1)", upTo(1<<17,
		func(s *experiment.Spec, v uint64) { s.Options.QPs = int(v) })},
	{"qp-batch", "messages that go by one of them before the next has its turn (1)", upTo(1<<20,
		func(s *experiment.Spec, v uint64) { s.Options.Batch = int(v) })},
	{"read", "1: receivers READ messages, 0: senders WRITE them (0)", func(s *experiment.Spec, v uint64) error {
		s.Options.Read = v != 0
		return nil
	}},
}

func adapterNames() string {
	var names []string
	for _, m := range nic.Models {
		names = append(names, fmt.Sprintf("%s (%s)", m.Name, m.Help))
	}
	return strings.Join(names, ", ")
}

func setAdapter(s *experiment.Spec, name string) error {
	m, ok := nic.Find(name)
	if !ok && name != "none" {
		return fmt.Errorf("%s=%s: want %s, or none", adapterKey, name, adapterNames())
	}
	s.Options.Adapter = m.Config
	return nil
}

// ofAdapter is a figure of the adapter.
func ofAdapter(least, most uint64, set func(*nic.Config, uint64)) func(*experiment.Spec, uint64) error {
	return func(s *experiment.Spec, v uint64) error {
		if !s.Options.Adapter.On() {
			return errors.New("it is an adapter's, and there is none: name one before it, as in --set adapter=cx6")
		}
		if v < least || v > most {
			return fmt.Errorf("want %d to %d", least, most)
		}
		set(&s.Options.Adapter, v)
		return nil
	}
}

// fetched says which part of what was looked for was not on the chip.
func fetched(c experiment.Cache) string {
	if c.Hits+c.Misses == 0 {
		return "none"
	}
	return fmt.Sprintf("%.1f %%", 100*float64(c.Misses)/float64(c.Hits+c.Misses))
}
