//go:build plant

package hca

var plantRewind, plantReplay, plantRKey bool

// Plant switches bugs on: a repetition begins one packet late, a repeated atomic is
// executed again, a region's rights are not looked at. It exists in
// builds with the tag plant only.
func Plant(rewind, replay, rkey bool) { plantRewind, plantReplay, plantRKey = rewind, replay, rkey }
