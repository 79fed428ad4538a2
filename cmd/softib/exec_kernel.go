package main

import (
	"path/filepath"
	"slices"
	"strings"
)

// kernelTransports are programs that have the kernel speak RDMA, by what of their arguments asks for it. The kernel
// knows no adapter of softib's, and what they say of that (an address that cannot be resolved, a file that is not
// there) names no cause.
var kernelTransports = []struct {
	program string
	asks    func(args []string) bool
	module  string
	instead string
}{
	{"nvme", func(args []string) bool {
		return len(args) > 0 && slices.Contains([]string{"discover", "connect", "connect-all"}, args[0]) &&
			optionIs(args, "-t", "--transport", "rdma")
	}, "nvme-rdma", "a program that speaks NVMe over libibverbs itself, as SPDK's do"},
	{"iscsiadm", func(args []string) bool {
		return optionIs(args, "-I", "--interface", "iser") || slices.ContainsFunc(args, func(a string) bool {
			return strings.Contains(a, "transport_name=iser") || a == "iser"
		})
	}, "ib_iser", "libiscsi's programs speak iSER themselves: iscsi-ls iser://HOST"},
	{"mount", mountsByRDMA, "rpcrdma", "NFS by TCP over ib0 of softib exec --net"},
	{"mount.nfs", mountsByRDMA, "rpcrdma", "NFS by TCP over ib0 of softib exec --net"},
}

func mountsByRDMA(args []string) bool {
	for _, a := range args {
		options := strings.Split(a, ",")
		if slices.Contains(options, "rdma") || slices.Contains(options, "proto=rdma") {
			return true
		}
	}
	return false
}

// optionIs reports whether an option has a value, in any of the forms in which programs take it.
func optionIs(args []string, short, long, value string) bool {
	for i, a := range args {
		if a == short+value || a == short+"="+value || a == long+"="+value ||
			(a == short || a == long) && i+1 < len(args) && args[i+1] == value {
			return true
		}
	}
	return false
}

// inKernel says why a program will find no adapter, and what to do; both are empty for those that may.
func inKernel(argv []string) (why, instead string) {
	for _, k := range kernelTransports {
		if filepath.Base(argv[0]) == k.program && k.asks(argv[1:]) {
			why = argv[0] + " has the kernel connect, by its module " + k.module
			return why + ", which knows no adapter of softib's", k.instead
		}
	}
	return "", ""
}
