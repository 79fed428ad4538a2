//go:build !race

package metrics

// raceEnabled says that the race detector runs.
const raceEnabled = false
