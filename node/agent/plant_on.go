//go:build plant

package agent

var plantOpen bool

// Plant switches a bug on: who shows no M_Key at all is let in. It exists in builds with the tag plant only.
func Plant(open bool) { plantOpen = open }
