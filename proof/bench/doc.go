// Command bench measures softib against peers in one run and prints the ratios: TCP over loopback, UCX over shared
// memory, one core's memcpy; RoCEv2 against TCP over a cable between two network namespaces; a fabric of two machines
// against wireguard-go over that cable, and its tunnel against TLS; the subnet manager against OpenSM on ibsim;
// simulations by flows against SimGrid.
//
//	go run ./proof/bench -softib bin/softib                    # what "make bench" does
//	go run ./proof/bench -softib bin/softib -only management   # subnet management alone
//	go run ./proof/bench -softib bin/softib -only management/quality -long
//
// Ours is measured as a user does it, with softib perf (two processes on two hosts of a fabric, as UCX and qperf are
// two), softib up and softib sm, and with the packages' own benchmarks. Everything is measured several times in turn,
// ours and peers alternating, and the median counts, so that a machine that is busy for a while troubles both. A peer
// that is not installed is left out and said to be. Every wait has a deadline, and its error says what was awaited.
//
// What many queue pairs and regions cost is asked of a program on libibverbs (testdata/many.c): the memory of a
// connected queue pair of depth 16 with all of its receives posted, the time to make and connect 10,000 of them in one
// process, to register 100,000 regions of a page, and one region of 16 GiB.
//
// Where there are more processes than cores, Open MPI is measured over its own shared memory and TCP too
// (testdata/collective.c), and its starts beside three programs that only compute: the longest counts, and none may
// fail.
//
// Machines that share a fabric are 300 in one process, on one etcd: how long it takes until all know all, until
// all have a change, miss a dead one, and have a new master.
//
// -smoke runs all of it once with tiny sizes, to see that it still runs. A test does so, with every make test.
//
// OpenSM takes more than a minute for the fabric that managers are compared on, so it runs
// once with each of its two usual engines, in the middle of our rounds. What takes it many minutes (its
// dfsssp and nue routing, and tables of the large fabric) is measured with -long; else
// the figure on record is printed, and said to be that.
package main
