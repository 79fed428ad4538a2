package fieldtest

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// pingpongLine is a line of fi_pingpong's results: bytes, sent, acknowledged.
var pingpongLine = regexp.MustCompile(`(?m)^(\d+[km]?) +(\d+k?) +=(\d+k?) `)

// libfabric's verbs provider: connected endpoints, datagrams, and reliable datagrams that libfabric makes of either.
// Its test checks what arrives; its own words go over TCP on the machine's loopback.
func TestLibfabric(t *testing.T) {
	t.Parallel()
	tool(t, "fi_pingpong")
	tool(t, "perfquery")
	p := newPerson(t, os.Getuid())
	p.up("fat-tree:radix=4,levels=2")

	out := p.must("exec", "h1", "--", "fi_info", "-p", "verbs")
	for _, kind := range []struct{ domain, endpoint, protocol string }{
		{"softib0", "FI_EP_MSG", "FI_PROTO_RDMA_CM_IB_RC"}, {"softib0-dgram", "FI_EP_DGRAM", "FI_PROTO_IB_UD"},
	} {
		pattern := `(?m)^provider: verbs\n +fabric: IB-0xfe80000000000000\n +domain: ` + kind.domain +
			`\n +version: .*\n +type: ` + kind.endpoint + `\n +protocol: ` + kind.protocol + `$`
		if !regexp.MustCompile(pattern).MatchString(out) {
			t.Errorf("no %s with %s:\n%s", kind.domain, kind.endpoint, out)
		}
	}
	// A host by its name.
	wants(t, p.must("exec", "h1", "--", "fi_info", "-p", "verbs", "-t", "FI_EP_MSG", "-n", "h3", "-P", "7471"),
		"domain: softib0\n", "type: FI_EP_MSG\n")

	const iters = 50
	short := []string{"64", "256", "1k", "4k"}
	for _, c := range []struct {
		provider, endpoint string
		args, sizes        []string
		bytes              uint64 // of the largest of them
	}{
		{"verbs", "msg", nil, append(short, "64k", "1m"), 1 << 20},
		{"verbs", "dgram", nil, short, 4 << 10},
		{"verbs;ofi_rxd", "rdm", []string{"-S", "65536"}, []string{"64k"}, 64 << 10},
		{"verbs;ofi_rxm", "rdm", nil, append(short, "64k", "1m"), 1 << 20},
	} {
		p.sub(c.provider+" "+c.endpoint, func(p *person) {
			l := p.ledger("h1", "h2", "h3")
			port := freePort(p)
			argv := append([]string{"fi_pingpong", "-p", c.provider, "-e", c.endpoint, "-I", strconv.Itoa(iters), "-c"},
				c.args...)
			argv = argv[:len(argv):len(argv)]
			server, client := p.both("h1", "h3", port, nil, append(argv, "-B", strconv.Itoa(port)),
				append(argv, "-P", strconv.Itoa(port), "127.0.0.1"))
			for _, out := range []string{server, client} {
				var sizes []string
				for _, m := range pingpongLine.FindAllStringSubmatch(out, -1) {
					sizes = append(sizes, m[1])
					same(p, "messages of "+m[1]+" sent and acknowledged", m[2]+", "+m[3],
						fmt.Sprintf("%d, %d", iters, iters))
				}
				same(p, "sizes", strings.Join(sizes, " "), strings.Join(c.sizes, " "))
			}
			l.atLeast("h1", c.bytes*iters, c.bytes*iters)
			l.atLeast("h3", c.bytes*iters, c.bytes*iters)
			l.idle("h2")
		})
	}
}
