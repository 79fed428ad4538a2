//go:build plant

package ibswitch

var plantStays bool

// Plant switches a bug on: a switch goes on choosing when its forwarding table is written. It exists in builds with the
// tag plant only.
func Plant(stays bool) { plantStays = stays }
