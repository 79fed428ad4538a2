// Package hca is a host channel adapter as an engine: protection domains,
// memory regions and windows, completion queues, shared receive queues, address
// handles, and queue pairs of the services RC, UC, UD and XRC, each with its
// requester, responder and completer.
//
// It is a plain value that somebody else drives. It starts nothing, reads no
// clock, takes no lock and calls nobody back, except to ask a driver that moves completions
// how many its program has not taken (CQ.Watch); one goroutine at a time may use it.
//
// Verbs go in as method calls (CreateQP, PostSend, PollCQ, …). A driver then does
//
//	for {
//		for each packet that arrived:  h.HandlePacket(now, port, p)
//		if now >= h.NextDeadline():    h.HandleTimeout(now)
//		for {
//			s, ok := h.NextSend()
//			if !ok { break }
//			if no room towards s.Port, s.SL, s.DLID { h.Park(s); continue }
//			if h.Emit(now, s, &pkt, buf) { send pkt; if s.Loopback { h.HandlePacket(now, s.Port, &pkt) } }
//		}
//		for each e in h.PollEvent(): wake whoever waits
//	}
//
// and calls Unpark when room comes back. Every call does bounded work. The
// engine does not know how packets travel: credits, lanes and links belong to
// package link, wires to the drivers.
//
// A driver over shared memory may have packets of one message in bundles
// (Config.MaxBundle), payloads that refer to the sender's memory (Config.ByRefMin),
// and hand over packets whose payload the engine fetches from another
// process when it knows where it belongs (wire.Source). None of it changes what
// peers see of the protocol but how many packets are lost, refused or
// repeated at a time.
//
// Where the rules of the standard live: postable attributes and transitions in
// qptable.go, segmentation and windows in requester.go and bundle.go, the order of
// a responder's checks in respcheck.go, retry in completer.go and timer.go, static rates in
// pace.go.
package hca
