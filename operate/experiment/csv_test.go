package experiment

import (
	"bytes"
	"encoding/csv"
	"io"
	"slices"
	"strings"
	"testing"
)

func csvOf(t *testing.T, write func(io.Writer, *Report) error, r *Report) string {
	t.Helper()
	var b bytes.Buffer
	if err := write(&b, r); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestSeriesCSV(t *testing.T) {
	r := &Report{Times: []float64{1e-6, 2e-6}, Sent: []float64{5e10, 0.25}, Tiers: []Tier{
		{Name: `up, "wide"`, Mean: []float64{0.1, 0.2}, Max: []float64{0.3, 1}}, {Name: "down", Mean: []float64{1}}}}
	want := "time_s,sent_Bps,\"up, \"\"wide\"\" mean\",\"up, \"\"wide\"\" max\",down mean,down max\r\n" +
		"1e-06,5e+10,0.1,0.3,1,\r\n2e-06,0.25,0.2,1,,\r\n"
	if got := csvOf(t, WriteSeriesCSV, r); got != want {
		t.Errorf("got %q\nwant %q", got, want)
	}
	if got := csvOf(t, WriteSeriesCSV, &Report{}); got != "time_s,sent_Bps\r\n" {
		t.Errorf("of nothing: %q", got)
	}
}

func TestLinksCSV(t *testing.T) {
	r := &Report{Links: []Link{{"h1[1] → leaf1[1]", "host to leaf", 0.5, 1, 4096}, {hostile + "\n,", "x", 0, 0, 0}}}
	got := csvOf(t, WriteLinksCSV, r)
	if !strings.HasPrefix(got, "link,tier,use,peak,bytes\r\nh1[1] → leaf1[1],host to leaf,0.5,1,4096\r\n") {
		t.Errorf("got %q", got)
	}
	lines, err := csv.NewReader(strings.NewReader(got)).ReadAll()
	if err != nil || len(lines) != 3 || !slices.Equal(lines[2], []string{hostile + "\n,", "x", "0", "0", "0"}) {
		t.Errorf("read back: %q, %v", lines, err)
	}
}
