// Package verbs is libibverbs for programs that nobody here wrote: a drop-in libibverbs.so.1 in two parts.
//
// clib is the library itself, thin and in C: the structures of <infiniband/verbs.h>, the tables of functions in them,
// symbol versions, descriptors that programs poll. Up to ibv_open_device it works alone, so that a program may
// list devices and fork. lib is libsoftib.so, which it loads then: the adapter of the process, a device of package
// attach, whose objects C holds by small numbers. clib/exports.h lists the calls from one to the other.
//
// It must not know how packets travel, what a daemon is, or what the engine checks: it turns layouts, numbers and
// errors of one world into those of the other. This package itself holds the tests, which run programs of testdata and
// of Debian on a fabric of their own.
package verbs
