package main

import (
	"context"
	"net"
	"os"
	"sync"

	"softib/capi/rdmacm"
	"softib/capi/umad"
	"softib/driver/live"
	attached "softib/verbs/attach/server"
)

// services are what programs in processes of their own use a fabric through: a socket each.
var services = []struct {
	path   func(place) string
	listen func(path string) (*net.UnixListener, error)
	serve  func(context.Context, *net.UnixListener, *live.Fabric, *rdmacm.Server) error
}{
	{place.umad, umad.Listen, func(ctx context.Context, l *net.UnixListener, f *live.Fabric, _ *rdmacm.Server) error {
		return umad.Serve(ctx, l, umad.OnFabric(f, version))
	}},
	{place.verbs, attached.Listen, func(ctx context.Context, l *net.UnixListener, f *live.Fabric,
		cms *rdmacm.Server) error {
		return attached.Serve(ctx, l, f, version, cms)
	}},
	{place.rdmacm, rdmacm.Listen, func(ctx context.Context, l *net.UnixListener, _ *live.Fabric,
		cms *rdmacm.Server) error {
		return cms.Serve(ctx, l)
	}},
}

// servePrograms lets programs use the fabric until ctx ends. The function that it returns waits for the end and
// removes the sockets.
func servePrograms(ctx context.Context, p place, f *live.Fabric) (wait func(), err error) {
	var wg sync.WaitGroup
	var listeners []*net.UnixListener
	for _, s := range services {
		l, err := s.listen(s.path(p))
		if err != nil {
			for _, l := range listeners {
				l.Close()
			}
			return nil, err
		}
		listeners = append(listeners, l)
	}
	cms := rdmacm.New(rdmacm.OnFabric(f))
	for i, s := range services {
		wg.Go(func() { _ = s.serve(ctx, listeners[i], f, cms) })
	}
	return func() {
		wg.Wait()
		for _, s := range services {
			_ = os.Remove(s.path(p))
		}
	}, nil
}
