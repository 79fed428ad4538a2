package check

import (
	"softib/driver/machine"
	"softib/fabric"
	"softib/node/hca"
	"softib/node/link"
	"softib/proof/workload"
	"softib/proto/ib"
)

// Tally counts what a run, or many, went through: a torture that never loses
// an acknowledgement proves little.
type Tally struct {
	Services [hca.NumQPType]uint64                    // conns
	Done     [hca.NumWROpcode][hca.NumWCStatus]uint64 // send completions
	Received [hca.NumWCStatus]uint64                  // receive completions
	Misuse   [workload.NumMisuse]uint64               // posted
	Events   [hca.NumEventType]uint64                 // asynchronous events
	Faults   [fabric.NumFaultKind]uint64              // injected
	Drops    [link.NumReason]uint64                   // by the links and switches
	HostDrop [hca.NumDrop]uint64                      // by the adapters
	// What adapters did about it.
	Retransmits, Timeouts, SeqNAKs, RNRNAKs, Duplicates, Reordered, BECNs, CNPs uint64
	Mgmt                                                                        MgmtTally
	// TreesLost counts trees of reductions that had to be replaced.
	TreesLost uint64
	Cluster   ClusterTally
	// Detours counts the hops of packets behind the second global link of a dragonfly, or on it.
	Detours uint64
	// Machine is what happened to processes and their rings.
	Machine machine.Count
}

// Add adds another's counts.
func (t *Tally) Add(o *Tally) {
	add := func(a, b []uint64) {
		for i := range a {
			a[i] += b[i]
		}
	}
	add(t.Services[:], o.Services[:])
	for i := range t.Done {
		add(t.Done[i][:], o.Done[i][:])
	}
	add(t.Received[:], o.Received[:])
	add(t.Misuse[:], o.Misuse[:])
	add(t.Events[:], o.Events[:])
	add(t.Faults[:], o.Faults[:])
	add(t.Drops[:], o.Drops[:])
	add(t.HostDrop[:], o.HostDrop[:])
	t.Retransmits += o.Retransmits
	t.Timeouts += o.Timeouts
	t.SeqNAKs += o.SeqNAKs
	t.RNRNAKs += o.RNRNAKs
	t.Duplicates += o.Duplicates
	t.Reordered += o.Reordered
	t.BECNs += o.BECNs
	t.CNPs += o.CNPs
	t.Mgmt.add(&o.Mgmt)
	t.TreesLost += o.TreesLost
	t.Cluster.add(&o.Cluster)
	t.Detours += o.Detours
	add(t.Machine[:], o.Machine[:])
}

// counter is a checker that only counts.
type counter struct {
	ignore
	*scene
	tally Tally
}

func (c *counter) OpPosted(now ib.Time, o *workload.OpState) { c.tally.Misuse[o.Misuse]++ }

func (c *counter) SendDone(now ib.Time, host int, wc *hca.WC) {
	if o := c.run.Op(wc.WRID); o != nil {
		c.tally.Done[o.Code][wc.Status]++
	}
}

func (c *counter) RecvDone(now ib.Time, host int, wc *hca.WC) { c.tally.Received[wc.Status]++ }

func (c *counter) Event(now ib.Time, host int, e hca.Event) { c.tally.Events[e.Type]++ }

// finish adds what the engines have counted themselves.
func (c *counter) finish() Tally {
	t := &c.tally
	t.Faults, t.Drops, t.Machine = c.sim.FaultCounts(), c.sim.Drops(), c.machine.Counted()
	for i := range c.run.Spec.Conns {
		t.Services[c.run.Spec.Conns[i].Type]++
	}
	for i := range c.run.Spec.Hosts {
		s := &c.run.Adapter(i).Stats
		for k, n := range s.Drops {
			t.HostDrop[k] += n
		}
		t.Retransmits += s.Retransmits
		t.Timeouts += s.Timeouts
		t.SeqNAKs += s.SeqNAKsSent
		t.Reordered += s.Reordered
		t.BECNs += s.BECNs
		t.CNPs += s.CNPsSent
		t.RNRNAKs += s.RNRNAKs
		t.Duplicates += s.Duplicates
	}
	return *t
}
