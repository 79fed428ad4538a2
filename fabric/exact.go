package fabric

import (
	"softib/node/link"
	"softib/proto/wire"
)

// rewrite turns a packet into bytes and back, so that what flies is what the wire format can say.
func (e *Engine) rewrite(f *link.Frame) {
	e.scratch = f.Sync().Append(e.scratch[:0])
	if err := f.Packet.Parse(e.scratch); err != nil {
		// Engines only send what parses; a packet that does not is one that the receiver will refuse, by the flag.
		f.Flags |= link.BadVCRC
		return
	}
	f.Own(f.Packet.Payload)
	f.LRH = f.Packet.LRH
}

// rewriteFC does the same to a flow-control packet.
func (e *Engine) rewriteFC(fc wire.LinkPacket) wire.LinkPacket {
	e.scratch = fc.Append(e.scratch[:0])
	got, _, err := wire.ParseLinkPacket(e.scratch)
	if err != nil {
		panic(err) // a port has made a packet that the wire format cannot say
	}
	return got
}
