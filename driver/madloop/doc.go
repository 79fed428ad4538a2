// Package madloop is the loop of who asks and is asked by management datagrams in real time: it sends what is to be
// sent, hands over what comes, waits while there is neither, and ends with the port. Managers (smrun), surveys
// (surveyrun) and whoever watches a fabric that is not ours (remote) are driven by it.
//
//	l := madloop.Loop{Port: transport, Send: send, Take: take}
//	err := l.Run(ctx)
//
// It must not know what the datagrams say.
package madloop
