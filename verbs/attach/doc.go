// Package attach makes a program's process part of a running fabric: the engine of the program's queue pairs
// runs in the program, the daemon is its control plane, and packets go through memory that it shares with its peers.
//
//	dev, err := attach.Open(attach.Options{Host: "h1"}) // a host of what softib up runs
//	defer dev.Close()
//	ctx := verbs.Open(dev)                              // from here on: package verbs
//
// The fabric is found by its name, as the softib command finds it, and needs no softib exec. A program that softib exec
// has started is on its host with Options{}.
//
// Open gives a verbs.Device. A process may have several, of one host or of many; each takes part under its own block of
// the adapter's queue pair numbers. When the daemon goes, the device fails as an adapter would whose
// slot lost power: a fatal event, and every queue pair in the error state.
package attach
