//go:build plant

package tunnel

var plantReplay, plantForged, plantGap, plantForget, plantHole bool
