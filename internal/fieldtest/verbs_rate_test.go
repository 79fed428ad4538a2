package fieldtest

import (
	"fmt"
	"strconv"
	"testing"

	"softib/proto/ib"
	"softib/proto/mad"
	"softib/subnet/policy"
	"softib/subnet/sm"
)

// A partition whose paths have a rate: programs that find their way by path records send no faster, those of others are
// as fast as before.
func TestPartitionRate(t *testing.T) {
	t.Parallel()
	w := up(t, "star:5", brisk)
	const red, blue = ib.PKey(0x1), ib.PKey(0x2)
	w.setTenants(map[ib.PKey][]string{red: {"h2", "h3"}, blue: {"h4", "h5"}})
	slow, _ := mad.RateFromGbps(2.5)
	p := w.tenants(map[ib.PKey][]string{red: {"h2", "h3"}, blue: {"h4", "h5"}})
	for i := range p.Defs {
		d := &p.Defs[i]
		if d.PKey.Base() == red {
			d.Paths.Rate = uint8(slow)
		}
		d.Index0 = d.PKey.Base() == red || d.PKey.Base() == blue // programs take the first of their keys
	}
	w.check(w.sm.Do(func(m *sm.Manager) { m.SetPartitions(0, policy.Partitions{Defs: p.Defs}) }))
	w.eventually("the keys came first", func() bool {
		for host, key := range map[string]ib.PKey{"h2": red, "h3": red, "h4": blue, "h5": blue} {
			if k := w.PKeys(ref(w.node(host), 1)); len(k) == 0 || k[0].Base() != key {
				return false
			}
		}
		return true
	})
	// MiB a second. A loaded machine may be slower than any rate; it is never faster.
	bandwidth := func(a, b, name string) float64 {
		_, c := w.perftest(a, b, name, "-R", "-D", "1")
		row := perftestRow.FindStringSubmatch(c)
		if row == nil {
			t.Fatalf("no result:\n%s", c)
		}
		v, err := strconv.ParseFloat(row[4], 64)
		w.check(err)
		return v
	}
	const limit = 2.5e9 / 8 / (1 << 20)
	for _, name := range []string{"ib_write_bw", "ib_read_bw", "ib_send_bw"} {
		if got := bandwidth("h2", "h3", name); got > limit*1.05 {
			t.Errorf("%s in a partition of %.0f MiB/s: %.0f", name, limit, got)
		}
	}
	// How fast the others are on a busy machine says nothing; what the administrator tells their programs does.
	rate := func(a, b string) string {
		list := records(w.run("h1", "saquery", "--sgid", shortGID(gid(w.node(a), 1)), "--dgid",
			shortGID(gid(w.node(b), 1)), "PR"))
		if len(list) == 0 {
			t.Fatalf("no path from %s to %s", a, b)
		}
		return list[0].sheet["rate"]
	}
	link := w.node("h4").Ports[1].Rate()
	same(t, "the rate of a path with one", rate("h2", "h3"), fmt.Sprintf("%#x", 2<<6|uint8(slow)))
	same(t, "the rate of a path without", rate("h4", "h5"), fmt.Sprintf("%#x", 2<<6|uint8(mad.RateOf(link))))
	bandwidth("h4", "h5", "ib_write_bw")
}
