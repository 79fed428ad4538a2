// Package rundir says where the sockets of running fabrics are: the command makes them there, and programs that attach
// find them. It knows names and rights of files, and nothing of what is said over them.
package rundir
