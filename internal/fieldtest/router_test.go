package fieldtest

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestRoutedSubnets: the field's own programs on two subnets that two routers join. Those that look see one subnet,
// with the routers at its edge; those that send reach the other one by a GID and the router's LID. Programs of
// librdmacm, which ask for both, are tested in capi/rdmacm.
func TestRoutedSubnets(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"ibnetdiscover", "ibrouters", "saquery", "ib_write_bw"} {
		tool(t, name)
	}
	u := newUser(t)
	u.up("routed", "--state", "none", "--http", "off", "subnets:2,routers=2,each=star:4")
	on := func(host string, args ...string) string {
		t.Helper()
		return u.must(append([]string{"exec", "--name", "routed", host, "--"}, args...)...)
	}
	for host, own := range map[string][2]string{"h2": {"h1", "h4"}, "h7": {"h5", "h8"}} {
		text := on(host, "ibnetdiscover")
		if n := strings.Count(text, "\nRt\t2 \"R-"); n != 2 || strings.Count(text, "\nCa\t") != 4 ||
			!strings.Contains(text, own[0]+" HCA-1") || !strings.Contains(text, own[1]+" HCA-1") {
			t.Errorf("ibnetdiscover on %s sees %d routers:\n%s", host, n, text)
		}
		if text = on(host, "ibrouters"); strings.Count(text, "Rt\t: ") != 2 {
			t.Errorf("ibrouters on %s:\n%s", host, text)
		}
	}
	// The path to the other subnet ends at a router.
	gid := func(subnet, host int) string { return fmt.Sprintf("fec0::%d:250:f11b:100:%d1", subnet, host) }
	list := records(on("h1", "saquery", "--sgid-to-dgid", gid(1, 1)+"-"+gid(2, 6)))
	if len(list) != 1 || list[0].sheet["dgid"] != gid(2, 6) || list[0].sheet["hop_flow_raw"] != "0xFF" ||
		list[0].sheet["slid"] != "1" {
		t.Fatalf("saquery: %v", list)
	}
	here, there := routerLIDs(t, on("h1", "ibnetdiscover")), routerLIDs(t, on("h6", "ibnetdiscover"))
	if lid := list[0].sheet["dlid"]; lid != here["rt1"] && lid != here["rt2"] {
		t.Errorf("a path to the other subnet ends at LID %s: the routers have %v", lid, here)
	}
	port := freePort(t)
	args := []string{"ib_write_bw", "-x", "0", "-s", "65536", "-n", "100", "-F", "-p", strconv.Itoa(port)}
	start := func(host string, more ...string) *program {
		argv := append([]string{"exec", "--name", "routed", host, "--"}, args...)
		return (&world{TB: t}).starts("ib_write_bw on "+host, u.command(t.Context(), append(argv, more...)...))
	}
	server := start("h6", "--dlid="+there["rt2"])
	server.until("listened", func() bool { return listens(port) })
	start("h1", "--dlid="+here["rt2"], "127.0.0.1").finish()
	server.finish()
	// And softib's own.
	if text := u.must("route", "trace", "h1", "h6", "--name", "routed"); !strings.Contains(text, "1 router") {
		t.Errorf("route trace:\n%s", text)
	}
	if text := u.must("doctor", "--interval", "0", "--name", "routed"); strings.Count(text, "the fabric is well") != 2 {
		t.Errorf("doctor:\n%s", text)
	}
	if text := u.must("route", "check", "--name", "routed"); !strings.Contains(text, "good") {
		t.Errorf("route check:\n%s", text)
	}
}

// TestRoutedTenants: programs on hosts of a tenant talk to each other from one subnet to another, and not to others'.
func TestRoutedTenants(t *testing.T) {
	t.Parallel()
	tool(t, "rping")
	u := newUser(t)
	u.up("apart", "--state", "none", "--http", "off", "subnets:2,routers=1,each=star:4")
	u.must("tenant", "create", "red", "--hosts", "h1,h6", "--name", "apart")
	u.must("tenant", "create", "blue", "--hosts", "h2,h7", "--name", "apart")
	rping := func(host string, args ...string) []string {
		return append([]string{"exec", "--name", "apart", host, "--", "rping", "-C", "5"}, args...)
	}
	server := (&world{TB: t}).starts("rping on h6", u.command(t.Context(), rping("h6", "-s", "-V")...))
	// Who is not in the tenant has no answer, from the next subnet as from the same one; rping waits for seconds.
	for _, host := range []string{"h2", "h3", "h7"} {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		out, err := u.command(ctx, rping(host, "-c", "-V", "-a", "198.18.0.6")...).CombinedOutput()
		if cancel(); err == nil {
			t.Errorf("%s talks to h6, which is another tenant's:\n%s", host, out)
		}
	}
	// Nothing tells from outside that a server of rdma_cm listens: who comes too early is refused.
	for end := time.Now().Add(inTime()); ; {
		out, err := u.command(t.Context(), rping("h1", "-c", "-V", "-a", "198.18.0.6")...).CombinedOutput()
		if err == nil {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("rping from h1: %v\n%s", err, out)
		}
	}
	server.finish()
	if text := u.must("tenant", "list", "--name", "apart"); !strings.Contains(text, "h1 h6") {
		t.Errorf("tenant list:\n%s", text)
	}
}

var routerPort = regexp.MustCompile(`(?m)^Rt\t\d+ "R-[0-9a-f]+"\t+# "(\w+)"\n\[\d+\]\([0-9a-f]+\) .*# lid (\d+) lmc`)

// routerLIDs are the addresses that routers have in a subnet, by name, as ibnetdiscover saw them.
func routerLIDs(t *testing.T, text string) map[string]string {
	t.Helper()
	lids := map[string]string{}
	for _, m := range routerPort.FindAllStringSubmatch(text, -1) {
		lids[m[1]] = m[2]
	}
	if len(lids) != 2 {
		t.Fatalf("no two routers in:\n%s", text)
	}
	return lids
}
