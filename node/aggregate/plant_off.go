//go:build !plant

package aggregate

// Bugs that a build with the tag plant can switch on, to show that the checks over a whole fabric find them. Here they
// are constants, and nothing is left of them.
const (
	plantArrival = false // vectors are added in the order in which they come
	plantOwn     = false // a member that goes on in a new tree begins with what it has not done itself
	plantAhead   = false // a member takes any result that comes by multicast for its next
)
