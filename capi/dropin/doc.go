// Package dropin is what `softib exec` gives to an unmodified program: the drop-in libraries, the environment in which
// it finds them, and namespaces in which it sees a host of the fabric.
//
// The package does not know what the libraries do, nor what a host shows: folder capi/umad and its neighbours have
// the libraries, package hostfiles writes the files. It knows how a program gets at them.
//
// # Libraries
//
// They are inside the softib binary (built with the tag dropin) and are written once into a folder that is named after
// what they contain, so that looking whether they are there costs a few stat calls, and a newer softib leaves those of
// running programs alone. LD_LIBRARY_PATH makes programs find them, also those that use dlopen; LD_PRELOAD wins where a
// program was linked with a path of its own (DT_RPATH). Only libraries in plain C are preloaded: they have no
// constructor that does anything, and a shell that never asks for them pays for the mapping (0.4 ms of 1.5 that a
// process takes to start and end), and for a step through libibverbs when it sets a signal handler, which needs a stack
// of its own once there is an adapter. libsoftib.so, which is Go, is loaded by the others when a device is opened.
//
// # Namespaces
//
// softib-enter (folder enter) makes a mount namespace for the program, a copy of its caller's, in which the files of a
// host lie over /sys/class, /sys/devices, /dev and /etc/hosts, and becomes the program. An ordinary user may do
// that inside a user namespace. There is one for all programs of a fabric (Spaces), because the kernel lets no process
// read the memory of one in another user namespace, and large messages are read that way. Inside, a program has the
// user and group that it had, and no capabilities. Root needs no user namespace, and keeps what root has.
//
// The daemon has only a descriptor of the user namespace: no process waits to keep it, and whatever ends the daemon
// lets go of it. A mount namespace ends with its last process. The daemon hears of that by inotify: the file system
// that covers /sys/class is in no other namespace, and inotify says when it is unmounted (Spaces.Watch).
//
// Where the kernel refuses any of it, the program runs without: everything that goes through the libraries works.
package dropin
