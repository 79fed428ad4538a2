package main

import (
	"context"

	"softib/capi/umad"
	"softib/live"
)

// serveUMAD lets management programs use the fabric until ctx ends; the channel then gives one value.
func serveUMAD(ctx context.Context, p place, f *live.Fabric) (<-chan error, error) {
	l, err := umad.Listen(p.umad())
	if err != nil {
		return nil, err
	}
	done := make(chan error, 1)
	go func() { done <- umad.Serve(ctx, l, umad.OnFabric(f, version)) }()
	return done, nil
}
