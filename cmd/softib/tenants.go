package main

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"softib/proto/ib"
	"softib/proto/topo"
)

// tenants are the hosts of each partition that may all talk to each other: its full members. It is nil where all hosts
// are full members of the default partition.
func (f *fabric) tenants(devs []meshDevice) [][]meshDevice {
	groups := map[ib.PKey][]meshDevice{}
	for _, d := range devs {
		num, _, _ := portOf(d.host)
		for i, k := range f.PKeys(topo.PortRef{Node: d.host.Node().Index, Port: num}) {
			if k.IsValid() && k.IsFull() {
				groups[k] = append(groups[k], meshDevice{d.host, uint16(i)})
			}
		}
	}
	if len(groups[ib.PKeyDefault]) == len(devs) {
		return nil
	}
	list := make([][]meshDevice, 0, len(groups))
	for _, k := range slices.Sorted(maps.Keys(groups)) {
		list = append(list, groups[k])
	}
	return list
}

// pingTenants sends over the mesh of each partition, as far as there is room for channels.
func (f *fabric) pingTenants(ctx context.Context, groups [][]meshDevice, out *reporter) error {
	var sum meshResult
	tried := 0
	for i, g := range groups {
		if n := len(g); n < 2 || sum.Pairs+min(n*(n-1), meshPairsMax) > meshPairsMax && tried > 0 {
			continue
		}
		tried++
		res, err := mesh(ctx, g, nil, func(int, int) { out.progress("mesh", i, len(groups)) })
		if err != nil {
			return next(fmt.Errorf("the fabric does not carry everything: %w", err),
				"look for broken links: softib topo check %s", f.topology)
		}
		sum.Pairs, sum.Possible, sum.Took = sum.Pairs+res.Pairs, sum.Possible+res.Possible, sum.Took+res.Took
	}
	if tried == 0 {
		out.say("mesh      no two hosts are full members of one partition: nobody to send to")
		return nil
	}
	out.say("mesh      within %s: %d of %d pairs carried %d bytes intact in %s",
		numbered(tried, "partition", "partitions"), sum.Pairs, sum.Possible, meshSize, short(sum.Took))
	return nil
}
