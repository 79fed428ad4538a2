// Package proto is what a program's process and the fabric's daemon say to each other: messages over a Unix socket of
// whole records, with descriptors of shared memory beside them. It has nothing to do with packets: those go through the
// rings that the messages hand out.
//
// A process says Hello and gets a Welcome. After that it asks for routes, one answer each, and the
// daemon tells it of rings to send into (before the answer that names them), of rings to receive from, of those
// whose other end is gone, and of changes to its ports.
package proto
