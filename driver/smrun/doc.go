// Package smrun runs a subnet manager in real time: it owns the goroutines, the
// clock and the files that package sm must not know. One goroutine has the manager; another, the
// mover, has the transport, so that datagrams are carried while the manager thinks.
//
// A Runner joins an sm.Manager to a Transport, which is a port of some fabric:
// one that runs in this process (live), ibsim's socket, or a device of the
// kernel. The manager does the same on each.
//
//	r, err := smrun.New(cfg, transport, smrun.Options{Log: …})
//	go r.Run(ctx)
//	<-r.Up()
//	r.Do(func(m *sm.Manager) { … })
package smrun
