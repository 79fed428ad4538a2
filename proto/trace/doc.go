// Package trace turns what happens in a fabric into captures: pcapng files that
// Wireshark opens, and JSON lines for programs.
//
// An Event is a plain value that refers to a packet for the length of a call.
// A driver makes one where a packet passes a port, is dropped, or something
// changes state, and hands it to whichever of Pcapng and JSON it holds:
//
//	e := trace.Event{Time: now, Kind: trace.Packet, Node: n, Port: p, Dir: trace.Out, Packet: pkt}
//	if capture != nil {
//		err = capture.Write(&e)
//	}
//
// The writers write to an io.Writer, one call per event, and keep no copy. The
// package opens no file, reads no clock and knows no node but by its number:
// names are given to it.
//
// Pcapng is written by hand: it takes three kinds of block, and this rank uses
// the standard library alone, so gopacket's pcapgo is for outer ranks. ReadPcapng
// reads such files back.
package trace
