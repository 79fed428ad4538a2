//go:build plant

package hca

var plantRewind, plantReplay, plantRKey, plantTwice bool

var plantAlias, plantEager bool

// PlantEarly spoils packets that come before their turn: they are kept without their payload, which is somebody else's
// meanwhile, or are taken in at once.
func PlantEarly(alias, eager bool) { plantAlias, plantEager = alias, eager }

var plantDeaf, plantFarAck bool

// PlantCongestion spoils congestion control: a packet that tells of it is not looked at further, or one that met it
// acknowledges the next as well.
func PlantCongestion(deaf, farAck bool) { plantDeaf, plantFarAck = deaf, farAck }

var plantSack bool

// PlantSack makes a packet that came before its turn acknowledge all that is before it.
func PlantSack(on bool) { plantSack = on }

// PlantTwice makes the last completion of a full batch come again with the next.
func PlantTwice(on bool) { plantTwice = on }

// Plant switches bugs on: a repetition begins one packet late, a repeated atomic is
// executed again, a region's rights are not looked at. It exists in
// builds with the tag plant only.
func Plant(rewind, replay, rkey bool) { plantRewind, plantReplay, plantRKey = rewind, replay, rkey }
