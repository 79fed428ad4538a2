package doctest

import (
	"testing"
)

func TestTutorial(t *testing.T) {
	need(t, "gcc", "ibv_devinfo", "ib_write_bw", "perfquery", "ibqueryerrors", "rping", "tshark")
	newShell(t).follow("../../docs/TUTORIAL.md")
}
