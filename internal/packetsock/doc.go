// Package packetsock is what every server of a fabric's programs begins with: a Unix socket of whole records, for its
// owner only, whose connections end with the server, and whose peers the kernel names.
package packetsock
