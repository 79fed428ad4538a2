package experiment

import (
	"encoding/csv"
	"fmt"
	"io"
	"strconv"
)

// WriteSeriesCSV writes what a report has over time as CSV (RFC 4180): a line for each interval with its end, what all
// hosts sent, and each tier's mean and largest use. It is for those who draw their own plots.
func WriteSeriesCSV(w io.Writer, r *Report) error {
	head := []string{"time_s", "sent_Bps"}
	for _, t := range r.Tiers {
		head = append(head, t.Name+" mean", t.Name+" max")
	}
	lines := [][]string{head}
	for i, end := range r.Times {
		line := []string{number(end), numberAt(r.Sent, i)}
		for _, t := range r.Tiers {
			line = append(line, numberAt(t.Mean, i), numberAt(t.Max, i))
		}
		lines = append(lines, line)
	}
	return writeCSV(w, lines)
}

// WriteLinksCSV writes the busiest links of a report as CSV (RFC 4180), in the order that the report has them in.
func WriteLinksCSV(w io.Writer, r *Report) error {
	lines := [][]string{{"link", "tier", "use", "peak", "bytes"}}
	for _, l := range r.Links {
		lines = append(lines, []string{l.Name, l.Tier, number(l.Use), number(l.Peak), number(l.Bytes)})
	}
	return writeCSV(w, lines)
}

func writeCSV(w io.Writer, lines [][]string) error {
	c := csv.NewWriter(w)
	c.UseCRLF = true
	if err := c.WriteAll(lines); err != nil {
		return fmt.Errorf("experiment: CSV: %w", err)
	}
	return nil
}

// number is a value in as few digits as give it back exactly.
func number(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }

// numberAt is empty where there is no value.
func numberAt(vs []float64, i int) string {
	if i >= len(vs) {
		return ""
	}
	return number(vs[i])
}
