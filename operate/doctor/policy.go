package doctor

import (
	"fmt"
	"slices"
	"strings"

	"softib/proto/ib"
	"softib/proto/mad"
	"softib/proto/topo"
	"softib/subnet/survey"
)

// partitions reports tables that contradict each other, and partitions in which nobody can talk.
func (j *judgement) partitions(s *Section) {
	if j.s.Parts&survey.Partitions == 0 {
		s.skip("no partition table was read")
		return
	}
	type members struct{ full, limited []topo.PortRef }
	parts := map[ib.PKey]*members{}
	read := 0
	var without []topo.PortRef
	j.s.EndPorts(func(r topo.PortRef, p *survey.Port) {
		if !p.HasPKeys || p.Info.PortState < ib.PortArmed && r.Port != 0 {
			return
		}
		read++
		byDefault := false
		for _, k := range p.PKeys {
			if !k.IsValid() {
				continue
			}
			m := parts[k.Base()]
			if m == nil {
				m = &members{}
				parts[k.Base()] = m
			}
			if k.IsFull() {
				m.full = append(m.full, r)
			} else {
				m.limited = append(m.limited, r)
			}
			byDefault = byDefault || k.Base() == ib.PKeyDefault.Base()
		}
		if !byDefault {
			without = append(without, r)
		}
	})
	s.Looked = fmt.Sprintf("%s, %s", count(len(parts), "partition", "partitions"), count(read, "table", "tables"))
	if len(without) > 0 {
		f := Finding{Severity: Fail, Kind: "no-default-key", Threshold: "0x7fff or 0xffff in every table",
			Next: "add them to the default partition, as limited members at least: without it they reach neither " +
				"the administrator nor its answers"}
		f.Objects, f.Measured = j.some(without, "lack the default partition's key")
		s.add(f)
	}
	bases := make([]ib.PKey, 0, len(parts))
	for k := range parts {
		bases = append(bases, k)
	}
	slices.Sort(bases)
	for _, k := range bases {
		m := parts[k]
		all := append(slices.Clone(m.full), m.limited...)
		name := fmt.Sprintf("partition %v", k)
		switch {
		case len(all) == 1 && k != ib.PKeyDefault.Base():
			s.add(Finding{
				Severity: Warn, Kind: "lonely-partition", Objects: []string{name, j.s.PortName(all[0])},
				Measured:  fmt.Sprintf("%s has one member, %s", name, j.s.PortName(all[0])),
				Threshold: "at least two members", Next: "add the members that are missing, or delete the partition",
			})
		case len(m.full) == 0 && len(all) > 1:
			objects, text := j.some(all, "are all limited members of %s: none of them can talk to another", name)
			s.add(Finding{Severity: Warn, Kind: "limited-only", Objects: append([]string{name}, objects...),
				Measured: text, Threshold: "at least one full member",
				Next: "make those full members that the others should reach"})
		}
	}
	j.enforcement(s)
	j.tenants(s)
}

// tenants holds what ports have against the tenants that were acknowledged.
func (j *judgement) tenants(s *Section) {
	if len(j.o.Tenants) == 0 {
		return
	}
	of := map[ib.GUID]bool{} // members of any
	for i := range j.o.Tenants {
		for _, m := range j.o.Tenants[i].Members {
			of[m.GUID] = true
		}
	}
	j.s.EndPorts(func(r topo.PortRef, p *survey.Port) {
		if !p.HasPKeys || p.Info.PortState < ib.PortArmed && r.Port != 0 {
			return
		}
		var wrong []string
		for i := range j.o.Tenants {
			t := &j.o.Tenants[i]
			m, in := t.Member(p.GUID)
			key := t.Key
			if m.Full {
				key |= ib.PKeyFull
			}
			switch have := slices.ContainsFunc(p.PKeys, func(k ib.PKey) bool { return k.Base() == t.Key }); {
			case in && !slices.Contains(p.PKeys, key):
				wrong = append(wrong, fmt.Sprintf("has not %v of tenant %s", key, t.Name))
			case !in && have:
				wrong = append(wrong, fmt.Sprintf("has %v of tenant %s, which it is not in", t.Key, t.Name))
			}
		}
		// A manager reaches everybody.
		if of[p.GUID] && p.Info.CapabilityMask&mad.CapIsSM == 0 && slices.Contains(p.PKeys, ib.PKeyDefault) {
			wrong = append(wrong, fmt.Sprintf("has %v, with which it reaches all tenants", ib.PKeyDefault))
		}
		if len(wrong) > 0 {
			s.add(Finding{
				Severity: Fail, Kind: "tenant-not-in-force", Objects: []string{j.s.PortName(r)},
				Measured:  j.s.PortName(r) + " " + strings.Join(wrong, ", and "),
				Threshold: "the tenants that were acknowledged",
				Next: "see who may have written there (softib log), and let the manager write its partitions anew " +
					"(softib partition reload)",
			})
		}
	})
}

// enforcement compares what switch ports let through with what the adapters behind them have.
func (j *judgement) enforcement(s *Section) {
	var guarded, open []topo.PortRef
	for i, n := range j.s.Nodes {
		if !n.IsSwitch() {
			continue
		}
		for p := 1; p < len(n.Ports); p++ {
			x := &n.Ports[p]
			if !x.Cabled() || !x.Linked() || j.s.Nodes[x.Peer].IsSwitch() {
				continue
			}
			r := topo.PortRef{Node: i, Port: ib.PortNum(p)}
			in, out := x.Info.PartitionEnforcementInbound, x.Info.PartitionEnforcementOutbound
			if !in && !out {
				open = append(open, r)
				continue
			}
			guarded = append(guarded, r)
			if in != out {
				way, not := "in", "out"
				if out {
					way, not = not, way
				}
				s.add(Finding{
					Severity: Warn, Kind: "half-enforced", Objects: []string{j.s.PortName(r)},
					Measured: fmt.Sprintf("%s enforces partitions on packets that go %s and not on those that go %s",
						j.s.PortName(r), way, not),
					Threshold: "both", Next: "set both in the manager's configuration (part_enforce both)",
				})
			}
			j.compareKeys(s, r, topo.PortRef{Node: x.Peer, Port: x.PeerPort})
		}
	}
	if len(guarded) > 0 && len(open) > 0 {
		f := Finding{Severity: Warn, Kind: "not-enforced",
			Threshold: fmt.Sprintf("enforced, as at %s", count(len(guarded), "other port", "other ports")),
			Next: "let the manager sweep anew: behind these ports only the adapters themselves keep partitions " +
				"apart"}
		f.Objects, f.Measured = j.some(open, "lead to adapters and enforce no partitions")
		s.add(f)
	}
}

// compareKeys holds a switch port's table against that of the adapter behind it.
func (j *judgement) compareKeys(s *Section, sw, end topo.PortRef) {
	a, b := j.s.Port(sw), j.s.Port(end)
	if !a.HasPKeys || !b.HasPKeys {
		return
	}
	have := func(list []ib.PKey, k ib.PKey) bool {
		return slices.ContainsFunc(list, func(x ib.PKey) bool { return x.Base() == k.Base() })
	}
	var cut, extra []string
	for _, k := range b.PKeys {
		if k.IsValid() && !have(a.PKeys, k) {
			cut = append(cut, k.String())
		}
	}
	for _, k := range a.PKeys {
		if k.IsValid() && !have(b.PKeys, k) {
			extra = append(extra, k.String())
		}
	}
	x, y := j.s.PortName(sw), j.s.PortName(end)
	if len(cut) > 0 {
		s.add(Finding{
			Severity: Fail, Kind: "partition-cut", Objects: []string{x, y},
			Measured:  fmt.Sprintf("%s has %s, and %s in front of it drops them", y, strings.Join(cut, ", "), x),
			Threshold: "the same keys at both ends",
			Next:      "let the manager write its partitions anew (softib partition reload, or a full sweep)",
		})
	}
	if len(extra) > 0 {
		s.add(Finding{
			Severity: Warn, Kind: "partition-leak", Objects: []string{x, y},
			Measured: fmt.Sprintf("%s lets %s through, which %s behind it is no member of", x,
				strings.Join(extra, ", "), y),
			Threshold: "the same keys at both ends",
			Next:      "let the manager write its partitions anew (softib partition reload, or a full sweep)",
		})
	}
}

// managers reports too many masters or none, and ports that know another one.
func (j *judgement) managers(s *Section) {
	if j.s.Parts&survey.Managers == 0 {
		s.skip("managers were not asked")
		return
	}
	type manager struct {
		ref  topo.PortRef
		lid  ib.LID
		info mad.SMInfo
	}
	var masters, standby, others []manager
	var silent []topo.PortRef
	lids := map[ib.LID][]topo.PortRef{}
	ports := 0
	j.s.EndPorts(func(r topo.PortRef, p *survey.Port) {
		if !p.Known {
			return
		}
		if r.Port == 0 || p.Info.PortState == ib.PortActive {
			ports++
			lids[p.Info.MasterSMLID] = append(lids[p.Info.MasterSMLID], r)
		}
		if p.Info.CapabilityMask&mad.CapIsSM == 0 {
			return
		}
		if p.Manager == nil {
			silent = append(silent, r)
			return
		}
		m := manager{r, p.Info.LID, *p.Manager}
		switch m.info.SMState {
		case mad.SMMaster:
			masters = append(masters, m)
		case mad.SMStandby:
			standby = append(standby, m)
		default:
			others = append(others, m)
		}
	})
	s.Looked = fmt.Sprintf("%s, %s", count(len(masters)+len(standby)+len(others)+len(silent), "manager", "managers"),
		count(ports, "port", "ports"))
	for _, r := range silent {
		s.add(Finding{
			Severity: Warn, Kind: "silent-manager", Objects: []string{j.s.PortName(r)}, Measured: j.s.PortName(r) +
				" says that a manager runs there, and none answers SMInfo", Threshold: "an answer",
			Next: "see whether the manager on that host hangs, and restart it",
		})
	}
	for _, m := range others {
		s.add(Finding{
			Severity: Note, Kind: "undecided-manager", Objects: []string{j.s.PortName(m.ref)},
			Measured:  fmt.Sprintf("the manager at %s is %v", j.s.PortName(m.ref), m.info.SMState),
			Threshold: "Master or Standby",
			Next:      "run this again in a few seconds; if it stays so see that manager's log",
		})
	}
	name := func(m manager) string {
		return fmt.Sprintf("%s (LID %d, GUID %v, priority %d)", j.s.PortName(m.ref), m.lid, m.info.GUID,
			m.info.Priority)
	}
	switch len(masters) {
	case 0:
		s.add(Finding{
			Severity: Fail, Kind: "no-master", Measured: fmt.Sprintf("none of %s is master",
				count(len(standby)+len(others)+len(silent), "manager", "managers")), Threshold: "one master",
			Next: "start a subnet manager: softib sm, or opensm",
		})
		return
	case 1:
	default:
		f := Finding{Severity: Fail, Kind: "two-masters", Threshold: "one master"}
		var words []string
		for _, m := range masters {
			f.Objects = append(f.Objects, j.s.PortName(m.ref))
			words = append(words, name(m))
		}
		f.Measured = fmt.Sprintf("%d managers are master: %s", len(masters), strings.Join(words, ", "))
		f.Next = "see that they have the same SM_Key, and what their logs say of each other; stop all but one"
		s.add(f)
	}
	master := masters[0]
	for _, m := range masters[1:] {
		if m.info.Priority > master.info.Priority {
			master = m
		}
	}
	if own, ok := j.own(); ok && master.info.GUID != j.o.Manager {
		s.add(Finding{
			Severity: Warn, Kind: "taken-over", Objects: []string{j.s.PortName(master.ref), own},
			Measured:  fmt.Sprintf("the fabric is managed from %s, not by its own manager at %s", name(master), own),
			Threshold: "the fabric's own manager is master",
			Next: "stop the manager at " + j.s.PortName(master.ref) + " if nobody wants it there, or give the own " +
				"one a higher priority (softib up --sm-priority); with tenants none is let in",
		})
	}
	if len(standby) == 0 && len(masters) == 1 {
		s.add(Finding{
			Severity: Note, Kind: "no-standby", Objects: []string{j.s.PortName(master.ref)},
			Measured: "the master at " + name(master) + " has no standby", Threshold: "one standby",
			Next: "start a second manager, so that the fabric is managed when the first ends: softib sm --on " +
				"fabric:HOST",
		})
	}
	for _, m := range standby {
		if m.info.Priority > master.info.Priority || m.info.Priority == master.info.Priority &&
			m.info.GUID < master.info.GUID {
			s.add(Finding{
				Severity: Warn, Kind: "wrong-master", Objects: []string{j.s.PortName(m.ref), j.s.PortName(master.ref)},
				Measured:  fmt.Sprintf("the standby at %s should be master before %s", name(m), name(master)),
				Threshold: "the highest priority is master, the lower GUID among equals (IBA 14.4.1)",
				Next:      "if it stays so, the two do not hear each other or have different SM_Keys: see both logs",
			})
		}
	}
	j.smlids(s, lids, master.lid, j.s.PortName(master.ref))
}

// own is where the fabric's own manager is, if it has one and it was found.
func (j *judgement) own() (name string, ok bool) {
	j.s.EndPorts(func(r topo.PortRef, p *survey.Port) {
		if p.GUID == j.o.Manager && p.GUID != 0 {
			name, ok = j.s.PortName(r), true
		}
	})
	return name, ok
}

// smlids reports ports that send what is for the manager elsewhere.
func (j *judgement) smlids(s *Section, lids map[ib.LID][]topo.PortRef, master ib.LID, name string) {
	wrong := make([]ib.LID, 0, len(lids))
	for l := range lids {
		if l != master {
			wrong = append(wrong, l)
		}
	}
	slices.Sort(wrong)
	for _, l := range wrong {
		f := Finding{Severity: Fail, Kind: "wrong-sm-lid", Threshold: fmt.Sprintf("LID %d, %s", master, name),
			Next: "let the master sweep anew; if it stays so another manager writes these ports: see that it " +
				"is stopped"}
		f.Objects, f.Measured = j.some(lids[l], "take LID %d for their manager's", l)
		s.add(f)
	}
}

// Limits of what may go by IP.
const (
	// ipBytesMin is how much has to go by IP before anybody cares, in bytes.
	ipBytesMin = 1 << 20
	// ipShareMax is the share of a host's bytes that may.
	ipShareMax = 0.5
)

// traffic reports hosts that send by IP over InfiniBand what could go by queue pairs.
func (j *judgement) traffic(s *Section) {
	if j.o.Hosts == nil {
		s.skip("no adapter tells how its traffic goes here; a running softib fabric does")
		return
	}
	s.Looked = count(len(j.o.Hosts), "host with programs", "hosts with programs")
	for _, h := range j.o.Hosts {
		share := float64(h.IPBytes) / float64(max(h.IPBytes+h.NativeBytes, 1))
		if h.IPBytes < ipBytesMin || share <= ipShareMax {
			continue
		}
		s.add(Finding{
			Severity: Warn, Kind: "by-ip", Objects: []string{h.Host},
			Measured: fmt.Sprintf("%s sent %s by IP over InfiniBand and %s native: %.0f %% by IP", h.Host,
				bytes(h.IPBytes), bytes(h.NativeBytes), 100*share),
			Threshold: fmt.Sprintf("at most %.0f %% by IP", 100*ipShareMax),
			Next: "let its programs use verbs, rdma_cm or a library above them (UCX, libfabric, MPI over " +
				"verbs, NFS over RDMA): the same cable carries more with less work",
		})
	}
}

// bytes writes a number of bytes.
func bytes(n uint64) string {
	v, unit := float64(n), "B"
	for _, u := range []string{"kB", "MB", "GB", "TB"} {
		if v < 1000 {
			break
		}
		v, unit = v/1000, u
	}
	return fmt.Sprintf("%.3g %s", v, unit)
}
