package main

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"softib/internal/files"
	"softib/proto/topo"
)

// topologyHelp says what a TOPOLOGY may be; part of every help that names one.
func topologyHelp() string {
	var b strings.Builder
	b.WriteString("TOPOLOGY is a generator or a file; a dump of a real cluster works as it is. Files\n" +
		"are read in these formats, which they are known by whatever their names:\n\n")
	for f := range topo.NumFormat {
		fmt.Fprintf(&b, "  %v\n", f)
	}
	b.WriteString("\nFILE" + byMachine + " makes one host of all adapters of a machine, with their ports.\n" +
		"\nGenerators, with an example each:\n\n")
	for _, g := range topo.Generators() {
		fmt.Fprintf(&b, "  %-34s %s\n", g.Example, g.Help)
		if len(g.Options) > 0 {
			b.WriteString("     ")
			for _, o := range g.Options {
				b.WriteString(" " + o.Key + "=")
			}
			b.WriteByte('\n')
		}
	}
	b.WriteString("\nEvery generator takes ")
	for i, o := range topo.CommonOptions {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(o.Key + "=")
	}
	b.WriteString(": star:4,speed=HDR,length=3m.\n")
	return b.String()
}

// remarksShown is how many lines of a file that were passed over are named.
const remarksShown = 5

// byMachine is the option of a file whose hosts are to be machines and not adapters.
const byMachine = ",by=machine"

// loadTopology reads what a user named: a generator's spec, or a file, of which it says what was passed over.
func loadTopology(out interface{ say(string, ...any) }, arg string) (*topo.Graph, error) {
	if topo.IsSpec(arg) {
		return parseSpec(arg)
	}
	file, machines := strings.CutSuffix(arg, byMachine)
	text, err := files.ReadText(file, files.TextMax)
	if errors.Is(err, fs.ErrNotExist) && !strings.ContainsAny(file, "/.") {
		// It looks like a spec: the generators' own answer lists what there is.
		return parseSpec(file)
	}
	if name, option, ok := strings.Cut(file, ","); ok && errors.Is(err, fs.ErrNotExist) {
		return nil, next(fmt.Errorf("the topology cannot be read: %w, and %q is no option of a file", err, option),
			"try %s%s for one host of all adapters of a machine, or %s as it is", name, byMachine, name)
	}
	if err != nil {
		return nil, next(fmt.Errorf("the topology cannot be read: %w", err),
			"name a dump of a fabric, such as ibnetdiscover's, or a generator such as %s", topo.DefaultSpec)
	}
	r, err := topo.Read(file, text)
	if err != nil {
		return nil, next(err, "mend that line, then: softib topo check %s", file)
	}
	for i, odd := range r.Remarks {
		if i == remarksShown {
			out.say("warning: %s: and %s more like these", file, numbered(len(r.Remarks)-i, "line", "lines"))
			break
		}
		out.say("warning: %s: %v", file, odd)
	}
	if !machines {
		return r.Graph, nil
	}
	g, err := r.ByMachine()
	if err != nil {
		return nil, next(fmt.Errorf("%s: %w", arg, err), "leave %s out", byMachine)
	}
	return g, nil
}

// parseSpec builds a generated topology; what to try instead is said apart
// from what is wrong.
func parseSpec(arg string) (*topo.Graph, error) {
	g, err := topo.ParseSpec(arg)
	if s, ok := errors.AsType[*topo.SpecError](err); ok {
		at := s.Spec
		if s.Option != "" {
			at += ": " + s.Option
		}
		return nil, next(&specError{fmt.Sprintf("topology %s: %s", at, s.Problem), s}, "try %s", s.Try)
	}
	return g, err
}

// specError is a SpecError without the advice in its text.
type specError struct {
	text string
	err  *topo.SpecError
}

func (e *specError) Error() string { return e.text }
func (e *specError) Unwrap() error { return e.err }

// checkTopology refuses a fabric that cannot work and returns what is only odd.
func checkTopology(arg string, g *topo.Graph) ([]topo.Problem, error) {
	var odd []topo.Problem
	for _, p := range topo.Check(g) {
		if p.Severity == topo.Broken {
			return nil, next(fmt.Errorf("%s: %v: %s", arg, p.Kind, p.Text),
				"softib topo check %s lists everything that is wrong", arg)
		}
		odd = append(odd, p)
	}
	return odd, nil
}

// onePlane refuses what one manager cannot rule: each plane is a subnet of its own.
func onePlane(arg string, g *topo.Graph) error {
	if g.Planes <= 1 {
		return nil
	}
	return next(fmt.Errorf("%s: it has %d planes, each a subnet, and a running fabric is one", arg, g.Planes),
		"leave planes= out, or softib sim %s --load shift", arg)
}

// numbered is "1 host", "2 hosts".
func numbered(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
