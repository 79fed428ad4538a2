//go:build plant

package aggregate

var plantArrival, plantOwn bool

// Plant switches bugs on: vectors are added in the order in which they come, or a member that goes on in a new tree
// begins with the first operation that it has not done itself, whatever the others do. It exists in builds with the tag
// plant only.
func Plant(arrival, own bool) { plantArrival, plantOwn = arrival, own }
