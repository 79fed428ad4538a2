// Package rdmacore has rdma-core's own tests of libibverbs and librdmacm, which are programs in Python, as Debian ships
// them, and reads what they say. They skip what an adapter says it does not have, and what the machine has not got.
package rdmacore
