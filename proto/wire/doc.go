// Package wire is the layout of InfiniBand packets: every header as a type
// with Parse, Append and its length, one table of opcodes, both CRCs, link
// packets, and a printer that accepts any bytes.
//
// A Packet is the decoded form that the engines pass along. Its CRCs are
// not carried: bytes exist only where a packet is captured, corrupted or
// leaves for another machine, and there Append computes both and Parse checks
// both. In between a packet is a value whose bits nothing can flip.
//
// The package knows no state, no queue pair and no port.
package wire
