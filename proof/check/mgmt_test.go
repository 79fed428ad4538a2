package check

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"softib/driver/machine"
	"softib/fabric"
	"softib/node/link"
	"softib/proto/ib"
)

// TestManagement runs seeds of management, and makes sure that they go through everything that they are meant to go
// through.
func TestManagement(t *testing.T) {
	r := Torture(context.Background(), Options{First: 1, Seeds: 60, Kind: ManagementKind}, nil)
	for i := range r.Failures {
		r.Failures[i].Write(t.Output())
		t.Fail()
	}
	m := &r.Tally.Mgmt
	t.Logf("%d seeds in %v: %+v", r.Done, r.Elapsed, *m)
	for _, k := range []fabric.FaultKind{
		fabric.FaultDrop, fabric.FaultCorrupt, fabric.FaultDuplicate, fabric.FaultDelay, fabric.FaultLinkDown,
		fabric.FaultLinkUp,
		fabric.FaultLostInFlight, fabric.FaultReboot, fabric.FaultMute, fabric.FaultManagerStart,
		fabric.FaultManagerStop,
	} {
		if r.Tally.Faults[k] == 0 {
			t.Errorf("fault %v: never happened in %d seeds", k, r.Done)
		}
	}
	for what, n := range map[string]uint64{
		"sweeps": m.Sweeps, "masters": m.Masters, "handovers": m.Handovers, "table blocks": m.TableWrites,
		"checks for loops":        m.LoopChecks,
		"checks for credit loops": m.CreditChecks, "messages": m.Messages, "problems": m.Problems,
		"turns": m.Turns, "managers that met their successor": m.Deposed,
		"attacks": m.Attacks, "looks whether tenants are apart": m.ApartChecks,
		"datagrams that a guarded port refused": r.Tally.Drops[link.Guarded],
		machine.Switched.String():               r.Tally.Machine[machine.Switched],
		machine.Stills.String():                 r.Tally.Machine[machine.Stills],
		machine.Generations.String():            r.Tally.Machine[machine.Generations],
	} {
		if n == 0 {
			t.Errorf("%s: none in %d seeds", what, r.Done)
		}
	}
}

// TestManagementOnceFailed runs the small scenarios, under testdata, in which torture has found bugs that are fixed
// since.
func TestManagementOnceFailed(t *testing.T) {
	files, err := filepath.Glob("testdata/management/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	for _, name := range files {
		t.Run(filepath.Base(name), func(t *testing.T) {
			b, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			var sc Management
			if err := json.Unmarshal(b, &sc); err != nil {
				t.Fatal(err)
			}
			res := RunManagement(&sc)
			for _, v := range res.Violations {
				t.Error(v)
			}
			if res.Tally.Mgmt.Sweeps == 0 {
				t.Error("the scenario does nothing")
			}
		})
	}
}

// TestManagementIsPure draws the same scenario from the same seed, and one history from it.
func TestManagementIsPure(t *testing.T) {
	for seed := range uint64(60) {
		a, b := DrawManagement(seed, 0), DrawManagement(seed, 0)
		if !reflect.DeepEqual(a, b) {
			t.Fatalf("seed %d draws two scenarios", seed)
		}
		if seed%10 == 0 {
			if x, y := RunManagement(&a), RunManagement(&b); x.Hash != y.Hash || x.Hash == 0 {
				t.Errorf("seed %d: hashes %016x and %016x", seed, x.Hash, y.Hash)
			}
		}
	}
	for _, hosts := range []int{3, 12, 40} {
		for seed := range uint64(20) {
			sc := DrawManagement(seed, hosts)
			if n := len(sc.graph().Hosts()); n < 2 || n > 3*hosts+6 {
				t.Errorf("seed %d: %s has %d hosts: asked for about %d", seed, sc.Topo, n, hosts)
			}
		}
	}
}

// TestManagementShrinks makes a failing scenario small: one in which no answer comes in time needs no fault.
func TestManagementShrinks(t *testing.T) {
	sc := DrawManagement(11, 0)
	sc.Timeout, sc.AgentTime = 10*ib.Nanosecond, ib.Microsecond
	f := Failure{Seed: 11, Kind: ManagementKind, Mgmt: &sc, Found: RunManagement(&sc).Violations}
	if len(f.Found) == 0 || f.Found[0].Checker != convergeName {
		t.Fatalf("found %v, want that the fabric does not converge", f.Found)
	}
	f.shrink()
	if len(f.Mgmt.Faults) > 0 || len(f.Mgmt.Conns) > 0 || len(f.Mgmt.Managers) != 1 || len(f.Result.Violations) == 0 {
		t.Errorf("%d faults, %d connections and %d managers are left, and %d violations", len(f.Mgmt.Faults),
			len(f.Mgmt.Conns), len(f.Mgmt.Managers), len(f.Result.Violations))
	}
	var b strings.Builder
	if err := f.Write(&b); err != nil || !strings.Contains(b.String(), "softib torture --seed 11 --kind management") ||
		!strings.Contains(b.String(), "manager 0: h") {
		t.Errorf("%v: printed as\n%s", err, b.String())
	}
}
