package tidy

import "time"

// ModulePath is the module whose packages have ranks.
const ModulePath = "softib"

// ranks gives every package its layer: imports go strictly downward, so two
// packages of one rank never import each other. A folder below a listed one
// needs a line of its own.
var ranks = map[string]int{
	"proto/ib": 0,

	"proto/wire": 1, "proto/mad": 1, "proto/topo": 1,

	"node/link": 2, "node/agent": 2, "node/madrpc": 2, "node/nic": 2, "subnet/route": 2, "proto/trace": 2, "subnet": 2,
	"subnet/policy": 2, "job": 2, "node/aggregate": 2, "node/tunnel": 2, "operate/cluster/place": 2,

	"node/hca": 3, "node/ibswitch": 3, "subnet/sa": 3, "node/cm": 3, "operate/wiring": 3, "subnet/survey": 3,
	"operate/cluster": 3, "job/goal": 3, "job/collective": 3, "job/play": 3, "fabric/flow": 3, "subnet/am": 3,
	"node/ibrouter": 3, "node/ipoib": 3,

	"verbs": 4, "subnet/sm": 4, "fabric": 4, "job/load": 4, "job/train": 4, "job/chakra": 4,
	"operate/cluster/model": 4,

	"driver/endpoint": 5, "verbs/attach/proto": 5, "node/inspect": 5, "driver/line": 5,

	"driver/sim": 6, "driver/live": 6, "verbs/attach": 6, "driver/roce": 6, "driver/ibsim": 6, "driver/umad": 6,
	"driver/peering": 6, "driver/madloop": 6,

	"proof/workload": 7, "proof/workload/perf": 7, "driver/machine": 7, "driver/smrun": 7, "driver/surveyrun": 7,
	"driver/span": 7, "driver/netif": 7,
	"verbs/attach/server": 7, "driver/jobs": 7,
	"operate/control": 7, "operate/manager/tenant": 7, "operate/manager/history": 7, "operate/manager/health": 7,
	"operate/cluster/etcd": 7,

	"proof/check": 8, "operate/manager": 8, "operate/doctor": 8, "operate/experiment": 8,

	"operate/manager/metrics": 9, "operate/manager/notify": 9, "operate/manager/ufm": 9, "operate/manager/remote": 9,
	"operate/webui":  9,
	"operate/status": 9, "operate/forwarding": 9, "capi/umad": 9, "capi/verbs": 9, "capi/verbs/lib": 9,
	"capi/rdmacm": 9, "capi/dropin": 9, "capi/hostfiles": 9,

	"cmd/softib": 10,
}

// engineRankMax is the last rank that is free of I/O and time: the engines
// and the API over them.
const engineRankMax = 4

// floors are the rooms, the first elements of packages' paths, from the ground
// up. Two rooms share a floor and import each other: verbs declares what
// drivers implement, and verbs/attach is itself a driver.
var floors = [][]string{
	{"proto"}, {"node"}, {"subnet"}, {"fabric"}, {"job"}, {"verbs", "driver"}, {"capi"}, {"operate"}, {"proof"},
	{"cmd"},
}

// freeTrees stand outside the ranks: they may import anything, and no engine
// may import them.
var freeTrees = []string{"internal", "examples", "proof/bench"}

// bannedImports is what an engine must not import, with the reason that the
// complaint gives. A pattern that ends in /... covers the folders below too.
var bannedImports = []struct{ pattern, why string }{
	{"time", "engines are handed the time as ib.Time"},
	{"net/netip", ""}, // values only: allowed, and listed before net/... to say so
	{"net/...", "only drivers open sockets"},
	{"os/...", "only drivers and commands touch the system"},
	{"syscall", "only drivers and commands touch the system"},
	{"sync/...", "engines are driven by one caller and take no lock"},
	{"log/...", "engines return errors and events and print nothing"},
	{"crypto/rand", "randomness is passed in as a *rand.Rand"},
	{"hash/maphash", "its seed differs in every process"},
}

// randAllowed are the names of math/rand and math/rand/v2 that an engine may
// use: types, and constructors that take a source. Every other name draws
// from the process-wide source.
var randAllowed = map[string]bool{
	"Rand": true, "Source": true, "Source64": true, "Zipf": true, "PCG": true, "ChaCha8": true,
	"New": true, "NewSource": true, "NewZipf": true, "NewPCG": true, "NewChaCha8": true,
}

// mapIterators are the functions of package maps that yield in map order, and
// sorters the functions of package slices that make that harmless.
var (
	mapIterators = map[string]bool{"All": true, "Keys": true, "Values": true}
	sorters      = map[string]bool{"Sorted": true, "SortedFunc": true, "SortedStableFunc": true}
)

// orderFree is the comment that vouches for a loop over a map whose result
// does not depend on the order. It stands on the loop's line or the one above.
const orderFree = "// tidy: order-free"

// callsOut is the comment that vouches, with a reason, for a function that an
// engine keeps or an interface that a driver implements: it does not come back
// into the engine. It stands on the declaration's line or the one above.
const callsOut = "// tidy: calls out, "

// notPatience is the comment that vouches, with a reason, for a wait that is the same however busy the machine is. It
// stands on the line of the wait or of its constant, or the one above.
const notPatience = "// tidy: not patience, "

// wallClock is the comment that vouches, with a reason, for a test that judges by the clock on the wall.
const wallClock = "// tidy: wall clock, "

// waitMin is how long a wait is that has to be about something else than this machine. waitRooms are rooms whose
// programs measure, and say themselves how long they wait.
const waitMin = 5 * time.Second

var waitRooms = map[string]bool{"proof": true, "examples": true}

// driverRooms are the rooms of those who hold engines and give them time.
var driverRooms = map[string]bool{"driver": true, "verbs": true}

// apiPackages are ranked with the engines but nobody drives them: programs
// call them, and they call the driver.
var apiPackages = map[string]bool{"verbs": true}

// vagueNames say nothing about what a package is for.
var vagueNames = map[string]bool{
	"util": true, "utils": true, "common": true, "types": true, "helper": true, "helpers": true, "misc": true,
}

// columnsMax is how wide a line of code or prose may be.
const (
	columnsMax = 120
	tabWidth   = 4
)

// fileLinesMax is how long a file that is not a test may get before it has to
// be split by role.
const fileLinesMax = 900
