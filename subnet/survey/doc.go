// Package survey reads a whole fabric by management datagrams: which nodes there are and how they
// are cabled, what their ports say of themselves, what switches hold in their tables, which
// managers run, and what ports have counted. The result is a Survey, a value that nobody changes any more.
//
// It writes nothing to the fabric, knows only what datagrams have told it, and expects them to
// contradict each other: nodes that do not answer, nodes that answer some questions, two nodes with one GUID, two
// ports with one LID. What is odd is kept as it was answered; whether it is bad is package doctor's matter.
//
// # Driving it
//
//	e := survey.New(survey.Config{Parts: survey.All})
//	var s survey.Send
//	for !e.Done() {
//		for e.PollSend(now, &s) { … }           // onto the wire, as package madrpc's Message
//		e.HandleReply(now, cookie, datagram)    // nil: there was no answer
//	}
//	before := e.Survey()
//
// Repeating a request and giving it up is the transport's: each Send says how long and how often. So the engine has no
// deadline of its own. Again reads some parts of a survey anew, for one that wants the counters twice:
//
//	e = survey.Again(before, survey.Config{Parts: survey.Counters})
//
// # Duplicate GUIDs
//
// A node is known by where it was found, not by its GUID. What answers behind a port of a switch is a node that is
// known already only if both ends say so: its own port leads back to the port that was asked. An adapter's port,
// through which no directed route leads, has one cable: if it answers behind two ports it is two. See resolve.go.
package survey
