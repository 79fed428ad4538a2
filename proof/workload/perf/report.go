package perf

import (
	"fmt"
	"io"
	"strings"

	"softib/proto/ib"
)

// mb is perftest's MB.
const mb = 1 << 20

// column is one column of a table.
type column struct {
	head  string
	width int
	prec  int
	value func(Row) float64
}

// Columns are those of a test's table, headed as in perftest.
type Columns []column

var latencyColumns = Columns{
	{"t_min[usec]", 14, 2, func(r Row) float64 { return r.Latency.Min }},
	{"t_max[usec]", 14, 2, func(r Row) float64 { return r.Latency.Max }},
	{"t_typical[usec]", 17, 2, func(r Row) float64 { return r.Latency.Typical }},
	{"t_avg[usec]", 13, 2, func(r Row) float64 { return r.Latency.Average }},
	{"t_stdev[usec]", 15, 2, func(r Row) float64 { return r.Latency.StdDev }},
	{"99% percentile[usec]", 22, 2, func(r Row) float64 { return r.Latency.P99 }},
	{"99.9% percentile[usec]", 24, 2, func(r Row) float64 { return r.Latency.P999 }},
}

var bandwidthColumns = Columns{
	{"BW peak[MB/sec]", 18, 2, func(r Row) float64 { return r.Bandwidth.Peak / mb }},
	{"BW average[MB/sec]", 20, 2, func(r Row) float64 { return r.Bandwidth.Average / mb }},
	{"MsgRate[Mpps]", 15, 6, func(r Row) float64 { return r.Bandwidth.MsgRate / 1e6 }},
}

// Columns are those of the test.
func (t Test) Columns() Columns {
	if t.IsLatency() {
		return latencyColumns
	}
	return bandwidthColumns
}

// Head is the line above the rows.
func (c Columns) Head() string {
	var b strings.Builder
	b.WriteString(" #bytes     #iterations")
	for _, col := range c {
		fmt.Fprintf(&b, "%*s", col.width, col.head)
	}
	return b.String()
}

// Line is a row as text.
func (c Columns) Line(r Row) string {
	var b strings.Builder
	fmt.Fprintf(&b, " %-10d %-11d", r.Bytes, r.Iters)
	for _, col := range c {
		fmt.Fprintf(&b, "%*.*f", col.width, col.prec, col.value(r))
	}
	return b.String()
}

// Setting is what stands above a table: between whom, and how.
type Setting struct {
	Test    Test      `json:"test"`
	Active  string    `json:"active"`
	Passive string    `json:"passive"`
	LIDs    [2]ib.LID `json:"lids"`
	MTU     int       `json:"mtu_bytes"`
	QPs     int       `json:"qps"`
	TxDepth int       `json:"tx_depth"`
	Hops    int       `json:"hops"` // switches between the two
	Where   string    `json:"fabric"`
}

// rule is the line between the parts of a report.
var rule = strings.Repeat("-", 139)

// WriteHead prints what perftest prints above its results, as far as it applies.
func (s Setting) WriteHead(w io.Writer) error {
	_, err := fmt.Fprintf(w, `%[1]s
%[2]*[3]s
 Device          : %-16[4]s Peer            : %[5]s
 Number of qps   : %-16[6]d Transport type  : IB
 Connection type : %-16[7]s Tx depth        : %[8]d
 Mtu             : %-16[9]s Max inline data : %[10]d[B]
 Fabric          : %[11]s
%[1]s
 local address:  LID 0x%02[12]x
 remote address: LID 0x%02[13]x, %[14]s away
%[1]s
%[15]s
`, rule, 20+len(s.Test.Title()), s.Test.Title(), s.Active, s.Passive, s.QPs, "RC", s.TxDepth,
		fmt.Sprintf("%d[B]", s.MTU), inlineMax,
		s.Where, uint16(s.LIDs[0]), uint16(s.LIDs[1]), switches(s.Hops), s.Test.Columns().Head())
	return err
}

func switches(n int) string {
	if n == 1 {
		return "1 switch"
	}
	return fmt.Sprintf("%d switches", n)
}

// WriteFoot prints the line below the rows.
func (s Setting) WriteFoot(w io.Writer) error {
	_, err := fmt.Fprintln(w, rule)
	return err
}
