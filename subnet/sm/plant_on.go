//go:build plant

package sm

var plantOrder, plantForget, plantKeep bool

var plantChoosing bool

// PlantChoosing lets switches choose while their tables change.
func PlantChoosing(on bool) { plantChoosing = on }

// Plant switches bugs on: the rounds of a transition are written in the wrong order, a switch that has started anew is
// taken to hold its tables, who has handed over goes on as a master. It exists in builds with the tag plant only.
func Plant(order, forget, keep bool) { plantOrder, plantForget, plantKeep = order, forget, keep }
