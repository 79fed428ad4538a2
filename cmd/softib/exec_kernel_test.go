package main

import (
	"strings"
	"testing"
)

// TestInKernel: programs that leave RDMA to the kernel are told so, when that is what they are asked for.
func TestInKernel(t *testing.T) {
	for line, module := range map[string]string{
		"nvme discover -t rdma -a 198.18.0.2 -s 4420":       "nvme-rdma",
		"/usr/sbin/nvme connect --transport=rdma -n x":      "nvme-rdma",
		"nvme connect-all -trdma -a 198.18.0.2":             "nvme-rdma",
		"nvme discover -t tcp -a 198.18.0.2":                "",
		"nvme list":                                         "",
		"iscsiadm -m discovery -t st -p 1.2.3.4 -I iser":    "ib_iser",
		"iscsiadm -m discovery -t st -p 1.2.3.4":            "",
		"mount -t nfs -o rdma,port=20049 h2:/x /mnt":        "rpcrdma",
		"mount.nfs h2:/x /mnt -o vers=4.2,proto=rdma":       "rpcrdma",
		"mount -t nfs -o proto=tcp h2:/rdma /mnt":           "",
		"ib_write_bw -F rdma":                               "",
		"iscsiadm -m node -o update -v transport_name=iser": "ib_iser",
	} {
		why, instead := inKernel(strings.Fields(line))
		good := why == "" && instead == ""
		if module != "" {
			good = strings.Contains(why, "module "+module+",") && instead != ""
		}
		if !good {
			t.Errorf("%s: %q, next: %q", line, why, instead)
		}
	}
}
