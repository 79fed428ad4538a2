// Command lib is libsoftib.so: the adapter of a program that uses the drop-in libibverbs.so.1, which loads it when the
// program opens a device. It is built with -buildmode=c-shared (scripts/dropin.sh) and has nothing but the functions
// that ../clib/exports.h lists.
//
// It is thin, too: it knows the layouts of libibverbs, turns handles into objects of package hca and errors into errno,
// and writes events into pipes. What a verb does is hca's matter, how packets travel the device's.
//
// All functions may be called from any thread. The device's lock orders them; objects are looked up without one.
package main

func main() {}
