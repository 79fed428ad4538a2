// Package release says which softib this is: the command, the daemon and the library in a program's process may be of
// different builds. It knows nothing else, and nothing drives it.
package release
