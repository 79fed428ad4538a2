// Package fieldtest holds softib against programs of the field that nobody here wrote: infiniband-diags, OpenSM,
// rdma-core's and perftest's programs, and the example files of ibsim. It has only tests.
//
// Each test runs a fabric in this process, with its subnet manager, and serves it to programs through the drop-in
// libraries, as the daemon does. What a program prints is taken apart and compared with the fabric's own truth: the
// graph that it was built from, the ports and tables of its nodes, the counters of its links, the subnet as its manager
// sees it. Where a program or its library is known to print something else than what it was told, a comment says so.
//
// Programs that are not installed are skipped by name; make test installs all of them.
package fieldtest
