//go:build plant

package check

import (
	"context"
	"os"
	"slices"
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

// plantedBugs are the bugs that can be switched on. Each is found from seed on, in histories as torture draws them, and
// one of the checkers in says is the first to speak: another would have found something else.
var plantedBugs = []struct {
	name  string
	plant func(on bool)
	seed  uint64
	says  []string
}{
	{"retransmission begins one packet late", func(on bool) { hca.Plant(on, false, false) }, 23,
		[]string{statusName, trafficName}},
	{"a repeated atomic is executed again", func(on bool) { hca.Plant(false, on, false) }, 9, []string{memoryName}},
	{"credits of long packets do not all return", func(on bool) { link.Plant(on) }, 1,
		[]string{creditName, trafficName}},
	{"rights of an R_Key are not checked", func(on bool) { hca.Plant(false, false, on) }, 14,
		[]string{statusName, deliveryName, memoryName}},
	{"a completion is handed out twice", hca.PlantTwice, 14, []string{completionName, deliveryName}},
	{"a payload is pulled after its request was given up", bug(endpoint.LatePull), 234,
		[]string{deliveryName, memoryName}},
	{"a grant is used after its memory was deregistered", bug(endpoint.LateGrant), 140, []string{memoryName}},
	{"a wake-up is lost", bug(endpoint.LostWake), 14, []string{progressName, trafficName, dropsName, statusName}},
	{"a timer is started by an old clock", bug(endpoint.OldClock), 108, []string{progressName}},
	{"requests that were staged are left to the program", bug(endpoint.LostSends), 80, []string{progressName}},
	{"a thread that sleeps in the library is not woken", bug(endpoint.LostSleeper), 53, []string{progressName}},
	{"a packet before its turn is kept without its payload", func(on bool) { hca.PlantEarly(on, false) }, 20,
		[]string{deliveryName, memoryName}},
	{"a packet before its turn is taken in at once", func(on bool) { hca.PlantEarly(false, on) }, 6,
		[]string{statusName, memoryName, deliveryName}},
	{"a packet that tells of congestion is not looked at", func(on bool) { hca.PlantCongestion(on, false) }, 24,
		[]string{dropsName, statusName, deliveryName}},
	{"a packet that met congestion acknowledges the next", func(on bool) { hca.PlantCongestion(false, on) }, 376,
		[]string{memoryName, deliveryName, dropsName, statusName}},
	{"a pause leaves no headroom", link.PlantHeadroom, 720, []string{dropsName, memoryName, deliveryName}},
	{"a packet before its turn acknowledges what is missing", hca.PlantSack, 120, []string{memoryName, deliveryName}},
	{"lanes do not rise along the ways of a dragonfly", ibswitch.PlantFlat, 5, []string{waitsName, creditName}},
	{"switches go on choosing while their tables change", func(on bool) {
		sm.PlantChoosing(on)
		ibswitch.Plant(on)
	}, 175, []string{loopName}},
	{"rounds of tables are written in the wrong order", func(on bool) { sm.Plant(on, false, false) }, 3,
		[]string{loopName}},
	{"a switch that has started anew is taken to hold its tables", func(on bool) { sm.Plant(false, on, false) }, 19,
		[]string{convergeName, trafficName}},
	{"who has handed over goes on as a master", func(on bool) { sm.Plant(false, false, on) }, 11,
		[]string{convergeName}},
	{"a port is open to who shows no M_Key", agentBug(agent.Open), 11, []string{apartName}},
	{"what a manager has sent before its turn was over is carried out", agentBug(agent.OldTerms), 151,
		[]string{turnName}},
	{"a switch adds vectors in the order in which they come", func(on bool) { aggregate.Plant(on, false, false) }, 12,
		[]string{reduceName}},
	{"a host goes on in a new tree with what it has not done itself", func(on bool) {
		aggregate.Plant(false, on, false)
	}, 37, []string{progressName, reduceName}},
	{"a host takes any result that comes by multicast for its next", func(on bool) {
		aggregate.Plant(false, false, on)
	}, 54, []string{reduceName, progressName}},
}

// plantedClusterBugs are those of machines that agree by a store, of whom torture has histories if it is told to.
var plantedClusterBugs = []struct {
	name string
	bug  cluster.Bug
	seed uint64
}{
	{"a lease is believed too long", cluster.LongBelief, 2},
	{"a revision is applied twice", cluster.AppliedTwice, 35},
	{"a decision of an old master is accepted", cluster.NoFence, 39},
	{"a renewal by a deposed leader of the store is believed", cluster.AnyTerm, 25},
	{"a late renewal makes a master of one who has lapsed", cluster.Revival, 34},
}

// plantedSeeds is how many seeds may be needed to find a planted bug.
const plantedSeeds = 1000

// TestPlantedBugs switches bugs on, one by one, and wants torture to find each. It begins with a seed that is known to,
// so that it takes no longer than it must while histories stay what they are; with SOFTIB_PLANTED=1 it begins with
// the first, as torture does, and says how many seeds each bug needs.
func TestPlantedBugs(t *testing.T) {
	for _, p := range plantedBugs {
		t.Run(p.name, func(t *testing.T) { findPlanted(t, p.plant, Both, p.seed, p.says) })
	}
	for _, p := range plantedClusterBugs {
		t.Run(p.name, func(t *testing.T) {
			findPlanted(t, func(on bool) { cluster.Plant(p.bug, on) }, ClusterKind, p.seed, []string{clusterName})
		})
	}
}

// findPlanted wants a bug to be found by one of the checkers, in a history in which nothing is found without it.
func findPlanted(t *testing.T, plant func(on bool), kind Kind, seed uint64, says []string) {
	if os.Getenv("SOFTIB_PLANTED") != "" {
		seed = 1
	}
	opt := Options{First: seed, Seeds: plantedSeeds, StopAfter: 1, NoShrink: true, Parallel: 1, Kind: kind, Again: -1}
	plant(true)
	r := Torture(context.Background(), opt, nil)
	plant(false)
	if r.Failed == 0 {
		t.Fatalf("%d seeds have not found it", r.Done)
	}
	f := r.Failures[0]
	t.Logf("found by seed %d, after %d, in %v: %v", f.Seed, r.Done, r.Elapsed, f.Found[0])
	if !slices.Contains(says, f.Found[0].Checker) {
		t.Errorf("%q has found it: want one of %q", f.Found[0].Checker, says)
	}
	opt.First, opt.Seeds = f.Seed, 1
	if r := Torture(context.Background(), opt, nil); r.Failed > 0 {
		t.Errorf("without the bug seed %d finds %v", f.Seed, r.Failures[0].Found[0])
	}
}

// agentBug switches one of the agent's on and off.
func agentBug(b agent.Bug) func(on bool) { return func(on bool) { agent.Plant(b, on) } }

// bug switches one of the endpoint's on and off.
func bug(b endpoint.Bug) func(on bool) { return func(on bool) { endpoint.Plant(b, on) } }
