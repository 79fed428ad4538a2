//go:build plant

package ibswitch

var plantStays, plantLevel bool

// Plant switches a bug on: a switch goes on choosing when its forwarding table is written. It exists in builds with the
// tag plant only.
func Plant(stays bool) { plantStays = stays }

// PlantLevel switches another on: lanes go by the service level where they should rise with the lane that a packet came
// on.
func PlantLevel(on bool) { plantLevel = on }
