//go:build !plant

package tunnel

// Bugs that a build with the tag plant can switch on, to show that torture finds them. Here they are constants that
// cost nothing.
const (
	plantReplay = false // numbers of datagrams are not checked
	plantForged = false // seals are not checked
	plantGap    = false // a datagram that did not come is acknowledged
	plantForget = false // what is lost is not sent again
	plantHole   = false // a piece that comes early is taken for the next
)
