package main

import (
	"errors"
	"syscall"

	"softib/node/hca"
)

// kinds are the engine's errors and what libibverbs documents for them.
var kinds = [...]struct {
	err   error
	errno syscall.Errno
}{
	{hca.ErrInvalid, syscall.EINVAL},
	{hca.ErrNoMemory, syscall.ENOMEM},
	{hca.ErrFull, syscall.ENOMEM},
	{hca.ErrBusy, syscall.EBUSY},
	{hca.ErrNotSupported, syscall.EOPNOTSUPP},
	{hca.ErrDestroyed, syscall.EINVAL},
	{hca.ErrState, syscall.EINVAL},
}

// errnoOf is what a C caller is told.
func errnoOf(err error) int32 {
	if err == nil {
		return 0
	}
	for i := range kinds {
		if errors.Is(err, kinds[i].err) {
			return int32(kinds[i].errno)
		}
	}
	var e syscall.Errno
	if errors.As(err, &e) && e != 0 {
		return int32(e)
	}
	return int32(syscall.EIO)
}

const (
	einval     = int32(syscall.EINVAL)
	enomem     = int32(syscall.ENOMEM)
	eacces     = int32(syscall.EACCES)
	enodev     = int32(syscall.ENODEV)
	eopnotsupp = int32(syscall.EOPNOTSUPP)
)
