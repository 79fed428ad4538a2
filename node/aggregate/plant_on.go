//go:build plant

package aggregate

var plantArrival, plantOwn, plantAhead bool

// Plant switches bugs on: vectors are added in the order in which they come; a member that goes on in a new tree begins
// with the first operation that it has not done itself, whatever the others do; or a member takes any result that comes
// by multicast for its next. It exists in builds with the tag plant only.
func Plant(arrival, own, ahead bool) { plantArrival, plantOwn, plantAhead = arrival, own, ahead }
