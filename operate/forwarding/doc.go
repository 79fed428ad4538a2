// Package forwarding is what the switches of a running fabric hold, whoever programmed them, and whose the addresses
// are: what softib route show prints and softib route check judges.
//
// Show has tables as people read them. Read says a whole network and its tables part by part, and Held puts the parts
// together again, in another process if need be, as what subnet/route judges. The way of one packet is package
// manager's Follow.
//
// It reads a fabric through an interface and changes nothing.
package forwarding
