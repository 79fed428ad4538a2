// Package pki makes the certificates by which machines of a fabric know each other: a CA of one's own, and a
// certificate for each machine with its name. They are ordinary ones (X.509, RFC 5280), so those of another CA do as
// well: all that is looked at is who signed them, whether they are in time, and the name.
package pki
