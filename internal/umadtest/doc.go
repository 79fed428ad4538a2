// Package umadtest is a double of Linux's umad devices for tests: one port whose devices take
// and give the same bytes as the kernel's, with the kernel's errors, and a sysfs tree that goes with them.
// Behind it is a madrpc.Port in place of ib_mad, driven by the test:
//
//	k := umadtest.New(facts)
//	k.Wire = func(env mad.Envelope, dgram *[mad.Size]byte) { … k.Inject(env, answer) }
//	err := k.WriteSysfs(dir)
//	port, err := umad.System{Root: dir, OpenDevice: func(path string) (umad.Device, error) { return k.Open(path) }}.Open(ctx, "", 0)
//	k.Advance(200 * ib.Millisecond) // time passes only here
//
// It is written from rdma/ib_user_mad.h and shares no layout with package umad, which
// it does not import.
package umadtest
