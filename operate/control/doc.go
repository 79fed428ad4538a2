// Package control is how commands talk to a running fabric: one operation a connection, on a Unix socket that only the
// fabric's owner and root are answered on (the kernel says who the client is, SO_PEERCRED).
//
// Both directions are JSON. A client asks once, and nothing follows its brace that could be taken for more of it:
//
//	{"v":2,"op":"fault","ask":{…},"beat":true}
//
// A fabric answers in lines. Each says one thing, or how many bytes follow it as they are, and the last ends the
// exchange:
//
//	{"say":{…}}
//	{"bytes":4096} and so many bytes
//	{"ok":true}    or {"error":"…","next":"…","kind":"…"}
//
// Who asks for beats hears {} each second as well, however long the answer takes, and so knows a fabric that is busy
// from one that is stopped: a Call ends with a *SilentError when there is nothing to hear for a while.
//
// An Op has the types of what is asked and of what is said. Who serves gives a function to Handle for each; who asks
// has its Call. Both are declared where the operations are, in cmd/softib: this package knows what is said of none of
// them, but for Port, which makes a port of a fabric a transport in another process.
//
//	var opNames = control.Op[namesRequest, []string]{Name: "names"}
//
//	control.Handle(s, opNames, func(ctx context.Context, q namesRequest, r *control.Reply[[]string]) error {
//		return r.Say(names(q))
//	})
//	err := opNames.Call(ctx, conn, namesRequest{Prefix: "h"}, func(names []string) error { … })
package control
