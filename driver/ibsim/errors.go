package ibsim

import "errors"

// What can go wrong. They arrive wrapped in sentences that say what to do.
var (
	// ErrNotRunning: nobody listens at the socket.
	ErrNotRunning = errors.New("ibsim is not running")
	// ErrNoAnswer: somebody listens and does not answer.
	ErrNoAnswer = errors.New("ibsim does not answer")
	// ErrRefused: ibsim said no.
	ErrRefused = errors.New("ibsim refused")
	// ErrProtocol: what came is not what ibsim 0.10 sends.
	ErrProtocol = errors.New("not ibsim's protocol")
	// ErrTID: a request uses the part of the transaction ID that ibsim overwrites.
	ErrTID = errors.New("transaction ID out of range")
	// ErrBusy: ibsim's queue is full, or the window is; receive, or wait for the bell, and try again.
	ErrBusy = errors.New("ibsim's queue is full")
	// ErrClosed: the port was closed.
	ErrClosed = errors.New("port is closed")
)
