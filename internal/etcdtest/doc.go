// Package etcdtest runs Debian's etcd for tests: on loopback, with a folder of its own, and ends it with the test.
package etcdtest
