//go:build plant

package check

import (
	"context"
	"testing"

	"softib/driver/endpoint"
	"softib/node/hca"
	"softib/node/link"
	"softib/subnet/sm"
)

// TestPlantedBugs switches bugs on, one by one, and wants torture to find each.
func TestPlantedBugs(t *testing.T) {
	for _, p := range []struct {
		name  string
		plant func(on bool)
		kind  Kind
	}{
		{"retransmission begins one packet late", func(on bool) { hca.Plant(on, false, false) }, DataKind},
		{"a repeated atomic is executed again", func(on bool) { hca.Plant(false, on, false) }, DataKind},
		{"credits of long packets do not all return", func(on bool) { link.Plant(on) }, DataKind},
		{"rights of an R_Key are not checked", func(on bool) { hca.Plant(false, false, on) }, DataKind},
		{"a completion is handed out twice", hca.PlantTwice, DataKind},
		{"a timer is started by an old clock", bug(endpoint.OldClock), DataKind},
		{"a payload is pulled after its request was given up", bug(endpoint.LatePull), DataKind},
		{"a grant is used after its memory was deregistered", bug(endpoint.LateGrant), DataKind},
		{"a wake-up is lost", bug(endpoint.LostWake), DataKind},
		{"rounds of tables are written in the wrong order", func(on bool) { sm.Plant(on, false, false) },
			ManagementKind},
		{"a switch that has started anew is taken to hold its tables", func(on bool) { sm.Plant(false, on, false) },
			ManagementKind},
		{"who has handed over goes on as a master", func(on bool) { sm.Plant(false, false, on) }, ManagementKind},
	} {
		t.Run(p.name, func(t *testing.T) {
			p.plant(true)
			defer p.plant(false)
			r := Torture(context.Background(), Options{First: 1, Seeds: plantedSeeds, StopAfter: 1, NoShrink: true,
				Kind: p.kind}, nil)
			if r.Failed == 0 {
				t.Fatalf("%d seeds have not found it", r.Done)
			}
			t.Logf("found after %d seeds: %v", r.Done, r.Failures[0].Found[0])
		})
	}
}

// bug switches one of the endpoint's on and off.
func bug(b endpoint.Bug) func(on bool) { return func(on bool) { endpoint.Plant(b, on) } }

// plantedSeeds is how many seeds may be needed to find a planted bug.
const plantedSeeds = 1000
