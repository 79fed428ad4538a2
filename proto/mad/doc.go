// Package mad lays out management datagrams: the common header, subnet
// management packets (LID-routed and directed-route), the headers of RMPP and of
// subnet administration, the attributes of these classes and of
// performance management, and the messages of communication management.
//
// Each attribute is one table of fields, a Layout: name, bit offset, width and
// kind. The table alone is enough to read, write and print any field by name:
//
//	mad.PortInfoLayout.Get(buf, "LID")
//	mad.PortInfoLayout.Set(buf, "LMC", 3)
//	fmt.Print(mad.PortInfoLayout.Dump(buf))
//
// Attributes that are used on every sweep also have a Go struct with Parse
// (which returns the bytes consumed) and Append; tests hold each struct against
// its table, byte by byte, so the two cannot drift apart.
//
// A record of subnet administration is a Layout that also knows its component
// mask, an SARecord: which bits of a request select which of its fields.
//
// View reads and writes the header fields of a datagram in place; Dump prints
// any bytes at all as a datagram. Classes, methods, attributes and status codes
// are one table each.
//
// The package knows layouts and names and no behaviour: what a node answers is
// package agent's matter, how requests are matched with responses is madrpc's,
// and how a datagram becomes a packet is wire's.
package mad
