package route

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Options are what an operator may say about routing.
type Options struct {
	// VLs is how many data lanes all links have; 0 means 8.
	VLs int
	// Roots are the top switches, by number, where an operator names them (OpenSM's root_guid_file); empty: find them.
	Roots []int32
	// Dims are the sizes of a torus or mesh, where an operator names them; empty: find them.
	Dims []int
	// Adaptive: switches are to choose among ports, so the ways have to be such that they can (see Adaptive).
	Adaptive bool
}

// Engine computes tables. It is a pure function of its arguments.
type Engine interface {
	// Name is what an operator types.
	Name() string
	// Compute gives tables for all of the network's destinations, or an error that
	// says what about the network the engine cannot do (matched by ErrUnfit).
	Compute(n *Network, o Options) (*Tables, error)
}

// Errors of the package.
var (
	// ErrUnfit is matched by the errors of an engine that cannot route a network of this shape.
	ErrUnfit = errors.New("the engine does not fit the network")
	// ErrUnknownEngine is matched when no engine has the name.
	ErrUnknownEngine = errors.New("unknown routing engine")
)

// UnfitError says why an engine cannot route a network.
type UnfitError struct {
	Engine, Why string

	format string
	args   []any
}

// unfit makes one. Switches among the arguments are of type aSwitch.
func unfit(engine, format string, args ...any) error {
	return &UnfitError{Engine: engine, Why: fmt.Sprintf(format, args...), format: format, args: args}
}

// aSwitch is a switch in the words of an error.
type aSwitch int32

func (s aSwitch) String() string { return fmt.Sprintf("switch %d", int32(s)) }

// Named is Why with the names that somebody has for the switches instead of their numbers.
func (e *UnfitError) Named(name func(sw int32) string) string {
	if e.format == "" {
		return e.Why
	}
	args := slices.Clone(e.args)
	for i, a := range args {
		if s, ok := a.(aSwitch); ok {
			args[i] = name(int32(s))
		}
	}
	return fmt.Sprintf(e.format, args...)
}

func (e *UnfitError) Error() string { return fmt.Sprintf("route: %s: %s", e.Engine, e.Why) }

// Unwrap makes errors.Is(err, ErrUnfit) true.
func (e *UnfitError) Unwrap() error { return ErrUnfit }

// Result is what a chain of engines gave.
type Result struct {
	Tables *Tables
	// Refused are the engines before the one that gave the tables, with their reasons.
	Refused []error
}

// Compute tries the engines of a chain such as "ftree,updn" in order; the first that fits gives the tables.
func Compute(n *Network, chain string, o Options) (Result, error) {
	engines, err := ParseChain(chain)
	if err != nil {
		return Result{}, err
	}
	var res Result
	for _, e := range engines {
		t, err := e.Compute(n, o)
		if err == nil && o.Adaptive && !t.MayChoose() {
			err = notUpDown(t)
		}
		if err == nil {
			res.Tables = t
			return res, nil
		}
		res.Refused = append(res.Refused, err)
	}
	return res, fmt.Errorf("route: no engine of %q fits: %w", chain, errors.Join(res.Refused...))
}

// ParseChain turns a list of names, separated by commas, into engines.
func ParseChain(chain string) ([]Engine, error) {
	var list []Engine
	for name := range strings.SplitSeq(chain, ",") {
		e := ByName(strings.TrimSpace(name))
		if e == nil {
			return nil, fmt.Errorf("%w %q: want some of %s", ErrUnknownEngine, name, strings.Join(Names(), ", "))
		}
		list = append(list, e)
	}
	return list, nil
}

// ByName is the engine of a name, nil if there is none.
func ByName(name string) Engine {
	for _, e := range engines {
		if e.Name() == name {
			return e
		}
	}
	return nil
}

// Names are the names of all engines, in the order of the registry.
func Names() []string {
	var list []string
	for _, e := range engines {
		list = append(list, e.Name())
	}
	return list
}
