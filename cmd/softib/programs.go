package main

import (
	"context"
	"os"
	"sync"

	"softib/capi/rdmacm"
	"softib/capi/umad"
	"softib/driver/live"
	"softib/driver/span"
	"softib/internal/packetsock"
	attached "softib/verbs/attach/server"
)

// services are what programs in processes of their own use a fabric through: a socket each, and another one for each
// door that the fabric has.
var services = []struct {
	path  func(place) string
	serve func(context.Context, []*packetsock.Listener, *live.Fabric, *rdmacm.Server)
}{
	{place.umad, func(ctx context.Context, doors []*packetsock.Listener, f *live.Fabric, _ *rdmacm.Server) {
		atAll(doors, func(l *packetsock.Listener) { _ = umad.Serve(ctx, l, umad.OnFabric(f, version)) })
	}},
	{place.verbs, func(ctx context.Context, doors []*packetsock.Listener, f *live.Fabric, cms *rdmacm.Server) {
		atAll(doors, func(l *packetsock.Listener) { _ = attached.Serve(ctx, l, f, version, cms) })
	}},
	{place.rdmacm, func(ctx context.Context, doors []*packetsock.Listener, _ *live.Fabric, cms *rdmacm.Server) {
		_ = cms.Serve(ctx, doors...)
	}},
}

// atAll serves at all doors until the last has ended.
func atAll(doors []*packetsock.Listener, serve func(*packetsock.Listener)) {
	var wg sync.WaitGroup
	for _, l := range doors {
		wg.Go(func() { serve(l) })
	}
	wg.Wait()
}

// servePrograms lets programs use the fabric until ctx ends, those of others too if there are some. The function that
// it returns waits for the end and removes the sockets.
func servePrograms(ctx context.Context, p place, f *span.Fabric, others *guests) (wait func(), err error) {
	var wg sync.WaitGroup
	doors := make([][]*packetsock.Listener, len(services))
	paths := []string{}
	listen := func(i int, path string, r *packetsock.Rights) error {
		l, err := packetsock.ListenFor(path, r)
		if err == nil {
			doors[i], paths = append(doors[i], l), append(paths, path)
		}
		return err
	}
	for i, s := range services {
		if err = listen(i, s.path(p), nil); err == nil && others != nil {
			err = listen(i, s.path(others.place), others.rights)
		}
		if err != nil {
			for _, list := range doors {
				for _, l := range list {
					l.Close()
				}
			}
			return nil, err
		}
	}
	cms := rdmacm.New(rdmacm.OnFabric(f))
	for i, s := range services {
		wg.Go(func() { s.serve(ctx, doors[i], f.Live(), cms) })
	}
	return func() {
		wg.Wait()
		for _, path := range paths {
			_ = os.Remove(path)
		}
	}, nil
}
