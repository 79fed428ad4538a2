// Package mmsg is many datagrams by one system call of Linux: sendmmsg and recvmmsg, where a message may be several
// datagrams of one length that the kernel cuts apart (UDP_SEGMENT) or has put together (UDP_GRO).
package mmsg
