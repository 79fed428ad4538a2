//go:build plant

package check

import (
	"context"
	"testing"

	"softib/driver/endpoint"
	"softib/node/agent"
	"softib/node/aggregate"
	"softib/node/hca"
	"softib/node/ibswitch"
	"softib/node/link"
	"softib/operate/cluster"
	"softib/subnet/sm"
)

// TestPlantedBugs switches bugs on, one by one, and wants torture to find each.
func TestPlantedBugs(t *testing.T) {
	for _, p := range []struct {
		name  string
		plant func(on bool)
		kind  Kind
		hosts int // 0 leaves it to the seed; few make many histories in little time
	}{
		{"retransmission begins one packet late", func(on bool) { hca.Plant(on, false, false) }, DataKind, 6},
		{"a repeated atomic is executed again", func(on bool) { hca.Plant(false, on, false) }, DataKind, 0},
		{"credits of long packets do not all return", func(on bool) { link.Plant(on) }, DataKind, 0},
		{"rights of an R_Key are not checked", func(on bool) { hca.Plant(false, false, on) }, DataKind, 0},
		{"a completion is handed out twice", hca.PlantTwice, DataKind, 0},
		{"a payload is pulled after its request was given up", bug(endpoint.LatePull), DataKind, 4},
		{"a grant is used after its memory was deregistered", bug(endpoint.LateGrant), DataKind, 6},
		{"a wake-up is lost", bug(endpoint.LostWake), DataKind, 3},
		{"a timer is started by an old clock", bug(endpoint.OldClock), DataKind, 4},
		{"requests that were staged are left to the program", bug(endpoint.LostSends), DataKind, 6},
		{"a thread that sleeps in the library is not woken", bug(endpoint.LostSleeper), DataKind, 3},
		{"a packet before its turn is kept without its payload", func(on bool) { hca.PlantEarly(on, false) }, DataKind,
			4},
		{"a packet before its turn is taken in at once", func(on bool) { hca.PlantEarly(false, on) }, DataKind, 0},
		{"a packet that tells of congestion is not looked at", func(on bool) { hca.PlantCongestion(on, false) },
			DataKind, 6},
		{"a packet that met congestion acknowledges the next", func(on bool) { hca.PlantCongestion(false, on) },
			DataKind, 8},
		{"a pause leaves no headroom", link.PlantHeadroom, DataKind, 0},
		{"a packet before its turn acknowledges what is missing", hca.PlantSack, DataKind, 0},
		{"lanes do not rise along the ways of a dragonfly", ibswitch.PlantFlat, DataKind, 16},
		{"switches go on choosing while their tables change", func(on bool) {
			sm.PlantChoosing(on)
			ibswitch.Plant(on)
		}, ManagementKind, 0},
		{"rounds of tables are written in the wrong order", func(on bool) { sm.Plant(on, false, false) },
			ManagementKind, 0},
		{"a switch that has started anew is taken to hold its tables", func(on bool) { sm.Plant(false, on, false) },
			ManagementKind, 0},
		{"who has handed over goes on as a master", func(on bool) { sm.Plant(false, false, on) }, ManagementKind, 0},
		{"a port is open to who shows no M_Key", agentBug(agent.Open), ManagementKind, 0},
		{"what a manager has sent before its turn was over is carried out", agentBug(agent.OldTerms), ManagementKind,
			0},
		{"a switch adds vectors in the order in which they come", func(on bool) { aggregate.Plant(on, false, false) },
			ReductionKind, 6},
		{"a host goes on in a new tree with what it has not done itself", func(on bool) {
			aggregate.Plant(false, on, false)
		}, ReductionKind, 8},
		{"a host takes any result that comes by multicast for its next", func(on bool) {
			aggregate.Plant(false, false, on)
		}, ReductionKind, 6},
		{"a lease is believed too long", clusterBug(cluster.LongBelief), ClusterKind, 0},
		{"a revision is applied twice", clusterBug(cluster.AppliedTwice), ClusterKind, 0},
		{"a decision of an old master is accepted", clusterBug(cluster.NoFence), ClusterKind, 0},
		{"a renewal by a deposed leader of the store is believed", clusterBug(cluster.AnyTerm), ClusterKind, 0},
		{"a late renewal makes a master of one who has lapsed", clusterBug(cluster.Revival), ClusterKind, 0},
	} {
		t.Run(p.name, func(t *testing.T) {
			p.plant(true)
			defer p.plant(false)
			r := Torture(context.Background(), Options{First: 1, Seeds: plantedSeeds, StopAfter: 1, NoShrink: true,
				Kind: p.kind, Hosts: p.hosts, Again: -1}, nil)
			if r.Failed == 0 {
				t.Fatalf("%d seeds have not found it", r.Done)
			}
			t.Logf("found after %d seeds: %v", r.Done, r.Failures[0].Found[0])
		})
	}
}

// clusterBug switches one of the cluster's on and off.
func clusterBug(b cluster.Bug) func(on bool) { return func(on bool) { cluster.Plant(b, on) } }

// agentBug switches one of the agent's on and off.
func agentBug(b agent.Bug) func(on bool) { return func(on bool) { agent.Plant(b, on) } }

// bug switches one of the endpoint's on and off.
func bug(b endpoint.Bug) func(on bool) { return func(on bool) { endpoint.Plant(b, on) } }

// plantedSeeds is how many seeds may be needed to find a planted bug.
const plantedSeeds = 1000
