//go:build !plant

package hca

// Bugs that a build with the tag plant can switch on, to show that the checks
// over a whole fabric find them. Here they are constants, and nothing is left
// of them.
const (
	plantRewind = false // a repetition begins one packet late
	plantReplay = false // a repeated atomic is executed again
	plantRKey   = false // a region's rights are not looked at
	plantTwice  = false // a completion is handed out twice
	plantAlias  = false // a packet that came before its turn is kept without its payload
	plantDeaf   = false // a packet that tells of congestion is not looked at further
	plantFarAck = false // a packet that met congestion acknowledges the next as well
	plantEager  = false // a packet that came before its turn is taken in at once
	plantSack   = false // a packet that came before its turn acknowledges what is before it
)
