//go:build plant

package link

var plantCredit bool

// Plant switches a bug on: a long packet gives back one block less than it took.
// It exists in builds with the tag plant only.
func Plant(credit bool) { plantCredit = credit }

var plantHeadroom bool

// PlantHeadroom makes the threshold of priority flow control leave no room for what is still on its way.
func PlantHeadroom(on bool) { plantHeadroom = on }
