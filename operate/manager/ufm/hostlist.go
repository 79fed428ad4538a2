package ufm

import (
	"fmt"
	"strconv"
	"strings"
)

// Bounds of a list of hosts: how many names it may stand for, a subnet having no more, and how long one of them may be,
// DNS having none that is longer. Without the latter a short body could stand for gigabytes.
const (
	hostsMax    = 49151
	hostNameMax = 255
)

// parseHosts reads names of hosts with commas between them, and with ranges in brackets as SLURM writes them:
// h[1-4,7],gpu[01-03]a. A range that begins with zeros keeps its width.
func parseHosts(field, s string) ([]string, *Error) {
	var out []string
	for _, item := range splitOutside(s) {
		item = strings.TrimSpace(item)
		if item == "" {
			continue
		}
		if strings.Count(item, "[") > hostNameMax { // each stands for a digit at least
			return nil, tooLongName(field, item)
		}
		list, err := expand(field, item, hostsMax-len(out))
		if err != nil {
			return nil, err
		}
		out = append(out, list...)
	}
	if len(out) == 0 {
		return nil, bad(field, "no host: want names such as h1,h2 or h[1-4]")
	}
	return out, nil
}

// splitOutside cuts at commas that are in no brackets.
func splitOutside(s string) (items []string) {
	depth, from := 0, 0
	for i, c := range s {
		switch {
		case c == '[':
			depth++
		case c == ']':
			depth--
		case c == ',' && depth <= 0:
			items = append(items, s[from:i])
			from = i + 1
		}
	}
	return append(items, s[from:])
}

// expand writes out the first pair of brackets, and what is behind it.
func expand(field, item string, most int) ([]string, *Error) {
	head, rest, ok := strings.Cut(item, "[")
	if !ok {
		if strings.Contains(item, "]") {
			return nil, bad(field, "%q: a bracket is closed that was not opened", clip(item))
		}
		if most < 1 {
			return nil, bad(field, "more than %d hosts", hostsMax)
		}
		if len(item) > hostNameMax {
			return nil, tooLongName(field, item)
		}
		return []string{item}, nil
	}
	inside, tail, ok := strings.Cut(rest, "]")
	if !ok {
		return nil, bad(field, "%q: want a closing bracket", clip(item))
	}
	tails, err := expand(field, tail, most)
	if err != nil {
		return nil, err
	}
	var out []string
	for part := range strings.SplitSeq(inside, ",") {
		low, high, ranged := strings.Cut(part, "-")
		if !ranged {
			high = low
		}
		from, e1 := strconv.ParseUint(low, 10, 32)
		to, e2 := strconv.ParseUint(high, 10, 32)
		if e1 != nil || e2 != nil || to < from {
			return nil, bad(field, "%q: want a number or a range such as 1-4 in brackets", clip(part))
		}
		if (to-from+1)*uint64(len(tails)) > uint64(max(most-len(out), 0)) {
			return nil, bad(field, "more than %d hosts", hostsMax)
		}
		if len(head)+max(len(low), len(high)) > hostNameMax {
			return nil, tooLongName(field, head+low)
		}
		for i := from; i <= to; i++ {
			for _, t := range tails {
				name := fmt.Sprintf("%s%0*d%s", head, len(low), i, t)
				if len(name) > hostNameMax {
					return nil, tooLongName(field, name)
				}
				out = append(out, name)
			}
		}
	}
	return out, nil
}

func tooLongName(field, name string) *Error {
	return bad(field, "%q: want names of at most %d bytes", clip(name), hostNameMax)
}
