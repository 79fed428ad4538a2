package jobs

import (
	"testing"

	"softib/job"
	"softib/job/play"
	"softib/proto/ib"
	"softib/proto/topo"
)

// TestCongestionControl: seven hosts of three leaves send to one, and another message shares the way up with three of
// them, to a host of another leaf. Without congestion control buffers fill back to the senders, and it waits behind
// packets that wait for the hot spot. With it, those three leave 4/7 of the link, of which it has most.
func TestCongestionControl(t *testing.T) {
	long(t)
	speed := func(c Congestion) (victim, all float64, told [2]uint64) {
		g, err := topo.ParseSpec("fat-tree:radix=8,levels=2,oversub=3")
		if err != nil {
			t.Fatal(err)
		}
		f, err := NewFabric(g, Options{Congestion: c})
		if err != nil {
			t.Fatal(err)
		}
		n, err := f.Packets()
		if err != nil {
			t.Fatal(err)
		}
		// Leaves have six hosts each, and two links up, one for even destinations.
		const hot, victimTo, victimFrom, size, victimSize = 0, 14, 6, 8 << 20, 2 << 20
		b := job.NewBuilder(len(g.Hosts()))
		tag := uint32(1)
		for _, from := range []int{7, 8, 9, 12, 13, 18, 19} {
			b.Send(from, hot, size, tag)
			b.Recv(hot, from, size, tag)
			tag++
		}
		wait := b.Calc(victimFrom, 200_000) // until the hot spot is hot
		b.After(victimFrom, b.Send(victimFrom, victimTo, victimSize, tag), wait)
		b.Recv(victimTo, victimFrom, victimSize, tag)
		s, err := b.Schedule()
		if err != nil {
			t.Fatal(err)
		}
		res, err := Run(t.Context(), s, play.Model{}, n, Watch{})
		if err != nil {
			t.Fatal(err)
		}
		for i := range n.hosts {
			told[0] += n.hosts[i].Stats.FECNs
			told[1] += n.hosts[i].Stats.BECNs
		}
		last := ib.Time(0)
		for _, m := range res.Messages {
			if m.From == victimFrom {
				victim = float64(m.Size) / (float64(m.Arrived-m.Start) / float64(ib.Second)) / 50e9
			} else {
				last = max(last, m.Arrived)
			}
		}
		return victim, 7 * size / (float64(last) / float64(ib.Second)) / 50e9, told
	}
	victim, all, told := speed(Congestion{})
	t.Logf("without: the victim has %.1f %% of its link, the hot spot %.1f %%", 100*victim, 100*all)
	if victim > 0.15 || told != [2]uint64{} {
		t.Error("without congestion control nobody suffers, or somebody is told: not much of a test")
	}
	victim, all, told = speed(Congestion{On: true})
	t.Logf("with:    the victim has %.1f %% of its link, the hot spot %.1f %%; %d FECN, %d BECN", 100*victim, 100*all,
		told[0], told[1])
	if victim < 0.4 || all < 0.95 || told[0] == 0 || told[0] != told[1] {
		t.Error("with it the victim should have 40 % at least, the hot spot 95, and all who are marked hear of it")
	}
}
