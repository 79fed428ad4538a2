//go:build plant

package ibswitch

var plantStays, plantFlat bool

// Plant switches a bug on: a switch goes on choosing when its forwarding table is written. It exists in builds with the
// tag plant only.
func Plant(stays bool) { plantStays = stays }

// PlantFlat switches another on: packets stay on their lane where it should rise.
func PlantFlat(on bool) { plantFlat = on }
