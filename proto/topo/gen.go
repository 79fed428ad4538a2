package topo

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"softib/proto/ib"
)

// Option is one key=value of a generator.
type Option struct {
	Key  string
	Help string
}

// Generator is one family of topologies, as a row of the command line's help.
type Generator struct {
	Name    string
	Aliases []string
	// Example is a spec that works.
	Example string
	// Help is one line.
	Help string
	// Value says what may stand alone after the colon; empty for nothing.
	Value   string
	Options []Option

	build func(a *args) *Graph
	rest  string // the option that takes all that follows it
}

// CommonOptions are understood by every generator.
var CommonOptions = []Option{
	{"speed", "link speed, SDR to XDR (NDR)"},
	{"width", "link width: 1x, 2x, 4x, 8x, 12x (4x)"},
	{"length", "length of every cable: 3m, 50cm, 2500mm (2m)"},
	{"planes", "so many of it side by side, a subnet each; every host has a port on each (1)"},
}

// Generators lists the families that ParseSpec knows, in the order of the help.
func Generators() []Generator {
	return []Generator{
		starGenerator, fatTreeGenerator, railGenerator, torusGenerator, meshGenerator, lineGenerator,
		ringGenerator, dragonflyGenerator, pairGenerator, randomGenerator, subnetsGenerator,
	}
}

// DefaultSpec is the fabric of a bare "softib up": 32 hosts.
const DefaultSpec = "fat-tree:radix=8,levels=2"

// SpecError says what is wrong with a topology spec. Its text ends in what to
// type instead.
type SpecError struct {
	Spec string
	// Option is the offending part: "radix", or empty for the spec as a whole.
	Option string
	// Problem says what was found and what was expected.
	Problem string
	// Try is a spec or a command that works.
	Try string
	// Err is the cause when the graph itself refused, such as a LIDError.
	Err error
}

func (e *SpecError) Error() string {
	at := e.Spec
	if e.Option != "" {
		at += ": " + e.Option
	}
	return fmt.Sprintf("topo: %s: %s; try %s", at, e.Problem, e.Try)
}

// Unwrap is the cause, if there is one beneath the spec.
func (e *SpecError) Unwrap() error { return e.Err }

// ParseSpec builds the graph that a spec such as "star:4" or
// "fat-tree:radix=8,levels=2,speed=HDR" names. The error is a *SpecError.
func ParseSpec(spec string) (*Graph, error) {
	name, rest, hasRest := strings.Cut(strings.TrimSpace(spec), ":")
	gens := Generators()
	i := findGenerator(gens, name)
	if i < 0 {
		var names []string
		for _, g := range gens {
			names = append(names, g.Name)
		}
		return nil, &SpecError{Spec: spec, Problem: fmt.Sprintf("no generator is called %q: want one of %s", name,
			strings.Join(names, ", ")),
			Try: fmt.Sprintf("%q, or the path of an ibnetdiscover file", DefaultSpec)}
	}
	a := &args{spec: spec, gen: gens[i], values: map[string]string{}, link: DefaultLink}
	if hasRest {
		a.split(rest)
	}
	a.readLink()
	if a.err != nil {
		return nil, a.err
	}
	planes := a.int("planes", 1, 1, planesMax)
	g := a.gen.build(a)
	if a.err == nil && planes > 1 {
		g = inPlanes(a, g, planes)
	}
	if a.err != nil {
		return nil, a.err
	}
	return g, nil
}

// IsSpec reports whether s names a generator, rightly or wrongly spelled
// behind its colon; what is no spec is a file's path.
func IsSpec(s string) bool {
	name, _, _ := strings.Cut(strings.TrimSpace(s), ":")
	return findGenerator(Generators(), name) >= 0
}

func findGenerator(gens []Generator, name string) int {
	return slices.IndexFunc(gens, func(g Generator) bool { return g.Name == name || slices.Contains(g.Aliases, name) })
}

// args are the options of one spec. The first mistake is kept in err; what is
// read after it is thrown away by ParseSpec.
type args struct {
	spec   string
	gen    Generator
	bare   string
	values map[string]string
	link   LinkSpec
	err    error
}

func (a *args) fail(option, format string, v ...any) {
	a.failWith(nil, option, format, v...)
}

func (a *args) failWith(cause error, option, format string, v ...any) {
	if a.err == nil {
		a.err = &SpecError{Spec: a.spec, Option: option, Problem: fmt.Sprintf(format, v...),
			Try: strconv.Quote(a.gen.Example), Err: cause}
	}
}

// split sorts the comma-separated words into options and the bare value.
func (a *args) split(rest string) {
	if last := a.gen.rest + "="; last != "=" {
		before, all, ok := strings.Cut(","+rest, ","+last)
		if rest = strings.TrimPrefix(before, ","); ok {
			a.values[a.gen.rest] = all
		}
		if ok && all == "" {
			a.fail(a.gen.rest, "has no value: want %sVALUE", last)
		}
	}
	for word := range strings.SplitSeq(rest, ",") {
		word = strings.TrimSpace(word)
		key, value, isOption := strings.Cut(word, "=")
		switch {
		case word == "":
			a.fail("", "an option is empty: want %s", a.wants())
		case !isOption && a.gen.Value == "":
			a.fail(word, "has no value: want %s", a.wants())
		case !isOption && a.bare != "":
			a.fail(word, "a second value after %q: want %s", a.bare, a.wants())
		case !isOption:
			a.bare = word
		case !a.knows(key):
			a.fail(key, "%s has no such option: want %s", a.gen.Name, a.wants())
		case value == "":
			a.fail(key, "has no value: want %s=VALUE", key)
		default:
			if _, twice := a.values[key]; twice {
				a.fail(key, "given twice: want it once")
			}
			a.values[key] = value
		}
	}
}

func (a *args) knows(key string) bool {
	is := func(o Option) bool { return o.Key == key }
	return slices.ContainsFunc(a.gen.Options, is) || slices.ContainsFunc(CommonOptions, is)
}

// wants lists what this generator accepts.
func (a *args) wants() string {
	var w []string
	if a.gen.Value != "" {
		w = append(w, a.gen.Value)
	}
	for _, set := range [2][]Option{a.gen.Options, CommonOptions} {
		for _, o := range set {
			w = append(w, o.Key+"=")
		}
	}
	return strings.Join(w, ", ")
}

// has reports whether an option was given.
func (a *args) has(key string) bool {
	_, ok := a.values[key]
	return ok
}

// int reads an option within bounds; def stands for one that was not given.
func (a *args) int(key string, def, low, high int) int {
	v, ok := a.values[key]
	if !ok {
		return def
	}
	return a.number(key, v, low, high)
}

// bareInt reads the value that stands alone; it must be there.
func (a *args) bareInt(what string, low, high int) int {
	if a.bare == "" {
		a.fail("", "the number of %s is missing: want a number from %d to %d", what, low, high)
		return low
	}
	return a.number(what, a.bare, low, high)
}

func (a *args) number(key, v string, low, high int) int {
	n, err := strconv.Atoi(v)
	if err != nil || n < low || n > high {
		a.fail(key, "is %q: want a number from %d to %d", v, low, high)
		return low
	}
	return n
}

func (a *args) readLink() {
	if v, ok := a.values["speed"]; ok {
		s, known := ib.ParseSpeed(strings.ToUpper(v))
		if !known {
			a.fail("speed", "is %q: want SDR, DDR, QDR, FDR10, FDR, EDR, HDR, NDR or XDR", v)
		}
		a.link.Speed = s
	}
	if v, ok := a.values["width"]; ok {
		w, known := parseWidth(v)
		if !known {
			a.fail("width", "is %q: want 1x, 2x, 4x, 8x or 12x", v)
		}
		a.link.Width = w
	}
	if v, ok := a.values["length"]; ok {
		mm, known := parseLength(v)
		if !known {
			a.fail("length", "is %q: want metres such as 3m or 0.5m, more than 0 and at most 10000m", v)
		}
		a.link.LengthMM = mm
	}
}

// widths in the order of their lanes.
var widths = [...]ib.Width{ib.Width1x, ib.Width2x, ib.Width4x, ib.Width8x, ib.Width12x}

func parseWidth(s string) (ib.Width, bool) {
	s = strings.TrimSuffix(strings.ToLower(s), "x")
	for _, w := range widths {
		if s == strconv.Itoa(w.Lanes()) {
			return w, true
		}
	}
	return 0, false
}

// maxLengthMM is 10 km, the reach of long-haul InfiniBand optics.
const maxLengthMM = 10_000_000

// parseLength reads a length in metres unless it says cm or mm.
func parseLength(s string) (int32, bool) {
	unit := 1000.0
	for _, u := range [...]struct {
		suffix string
		mm     float64
	}{{"mm", 1}, {"cm", 10}, {"m", 1000}} {
		if t, ok := strings.CutSuffix(s, u.suffix); ok {
			s, unit = t, u.mm
			break
		}
	}
	v, err := strconv.ParseFloat(s, 64)
	mm := v * unit
	if err != nil || !(mm >= 0.5 && mm <= maxLengthMM) {
		return 0, false
	}
	return int32(mm + 0.5), true
}

// formatLength writes whole millimetres as metres, without loss.
func formatLength(mm int32) string {
	return strconv.FormatFloat(float64(mm)/1000, 'f', -1, 64) + "m"
}

// What softib's own adapters say of themselves, like the nodes of a generator: a number that no vendor has.
const (
	VendorID  = 0x0250f1
	DeviceHCA = 1
)

// The parts of a generated GUID; doc.go draws them.
const (
	guidBase    = 0x0250f11b_00000000
	guidHost    = guidBase | 1<<24
	guidSwitch  = guidBase | 2<<24
	guidServer  = guidBase | 3<<24
	guidRouter  = guidBase | 4<<24
	genDeviceSw = 2
	genDeviceRt = 3
)

// builder adds the numbered nodes and the cables of a generator. A generator
// never makes a mistake that Graph would refuse, so a refusal is a bug and
// panics; what the user asked for is checked before.
type builder struct {
	g    *Graph
	link LinkSpec
}

// newBuilder checks the LID limit before anything is built, makes room and adds the
// hosts: they come first in every generated graph, so that h1 is node 0. It
// answers nil when the spec asks for too much.
func newBuilder(a *args, kind string, hosts, switches int) *builder {
	b := newEmptyBuilder(a, kind, hosts, switches)
	if b != nil {
		for range hosts {
			b.host()
		}
	}
	return b
}

// newEmptyBuilder is newBuilder for who adds the hosts itself.
func newEmptyBuilder(a *args, kind string, hosts, switches int) *builder {
	if a.err != nil {
		return nil
	}
	if err := checkLIDs(hosts + switches); err != nil {
		a.failWith(err, "", "%d hosts and %d switches need %d LIDs: a subnet has %d", hosts, switches, hosts+switches,
			int(ib.LIDUnicastMax))
		return nil
	}
	b := &builder{g: &Graph{Kind: kind}, link: a.link}
	b.g.grow(hosts + switches)
	return b
}

func (b *builder) add(n Node, ports int) *Node {
	node, err := b.g.Add(n, ports)
	if err != nil {
		panic(err)
	}
	return node
}

// host adds the next host, h1 first, with one port.
func (b *builder) host() { b.adapter("h"+strconv.Itoa(len(b.g.hosts)+1), 0) }

// adapter adds a channel adapter with one port; those of one server share a GUID, 0 for one that is alone.
func (b *builder) adapter(name string, server ib.GUID) {
	guid := ib.GUID(guidHost | (len(b.g.hosts)+1)<<4)
	n := b.add(Node{Name: name, Type: ib.NodeCA, GUID: guid, SystemGUID: server, VendorID: VendorID,
		DeviceID: DeviceHCA, Desc: name + " HCA-1"}, 1)
	if err := b.g.SetPortGUID(n.Index, 1, guid+1); err != nil {
		panic(err)
	}
}

// sw adds a switch; number is its own within its level.
func (b *builder) sw(level string, number, ports int) *Node {
	return b.named(level+strconv.Itoa(number), ports)
}

// named adds a switch of any name.
func (b *builder) named(name string, ports int) *Node {
	ordinal := len(b.g.switches) + 1
	return b.add(Node{Name: name, Type: ib.NodeSwitch, GUID: ib.GUID(guidSwitch | ordinal<<4),
		VendorID: VendorID, DeviceID: genDeviceSw, Desc: name}, ports)
}

func (b *builder) cable(x *Node, px int, y *Node, py int) {
	if err := b.g.Connect(x.Index, ib.PortNum(px), y.Index, ib.PortNum(py), b.link); err != nil {
		panic(err)
	}
}

// attach cables host i, counted from 0, to a port.
func (b *builder) attach(i int, to *Node, port int) { b.cable(b.g.hosts[i], 1, to, port) }
