package wiring

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"softib/proto/ib"
)

// PricesFormat describes the file that ParsePrices reads, for a command's help.
const PricesFormat = `A file of prices changes some of the figures, one thing a line; # starts a comment.

  switch NDR usd 22000 45000 watts 747 idle 85 ports 64
  adapter NDR usd 1300 2600 watts 25 idle 80
  cable NDR dac usd 120 300 metre 30 70 watts 0.1 reach 2

usd is a price, or the lowest and the highest, and metre what each metre adds. watts is
what a switch with so many ports, a port of an adapter, or each end of a cable takes, and
idle how many per cent of it without traffic. reach is in metres. Cables are dac, acc,
aoc, multimode and single-mode. What a line does not say stays as it is.
`

// ErrPrices is what every refusal of a file of prices is.
var ErrPrices = errors.New("not a file of prices")

// PricesError says which line is wrong.
type PricesError struct {
	File string
	Line int
	Text string
}

func (e *PricesError) Error() string { return fmt.Sprintf("%s:%d: %s", e.File, e.Line, e.Text) }
func (e *PricesError) Unwrap() error { return ErrPrices }

var mediumWords = [NumMedium]string{"dac", "acc", "aoc", "multimode", "single-mode"}

// ParsePrices reads a file over the default prices.
func ParsePrices(file, text string) (*Prices, error) {
	p := DefaultPrices()
	p.Origin = "prices and power are those of " + file + ", and where it says nothing: " + Estimate
	n := 0
	for line := range strings.SplitSeq(text, "\n") {
		n++
		line, _, _ = strings.Cut(line, "#")
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		if err := p.statement(words); err != nil {
			return nil, &PricesError{file, n, err.Error()}
		}
	}
	return p, nil
}

// figure is something that a line may say: one number or two, with what is allowed.
type figure struct {
	key       string
	low, high *float64 // high is nil where there is one number
	most      float64
}

const priceMax, wattsMax = 1e9, 1e6

func (p *Prices) statement(words []string) error {
	if len(words) < 2 {
		return fmt.Errorf("found %q: want switch, adapter or cable, and a speed", words[0])
	}
	speed, ok := ib.ParseSpeed(words[1])
	if !ok || !speed.IsValid() {
		return fmt.Errorf("speed is %q: want one such as EDR, HDR, NDR or XDR", words[1])
	}
	rest := words[2:]
	switch words[0] {
	case "switch":
		f := p.switches[speed]
		idle, ports := p.switchIdle[speed], float64(f.ports)
		if err := figures(rest, []figure{{"usd", &f.lowUSD, &f.highUSD, priceMax}, {"watts", &f.watts, nil, wattsMax},
			{"idle", &idle, nil, 100}, {"ports", &ports, nil, 1 << 16}}); err != nil {
			return err
		}
		if f.ports = int(ports); f.ports < 1 || float64(f.ports) != ports {
			return fmt.Errorf("ports is %v: want a whole number from 1", ports)
		}
		p.switches[speed], p.switchIdle[speed] = f, idle
	case "adapter":
		a, idle := p.adapters[speed], p.adapterIdle[speed]
		if err := figures(rest, []figure{{"usd", &a.lowUSD, &a.highUSD, priceMax}, {"watts", &a.watts, nil, wattsMax},
			{"idle", &idle, nil, 100}}); err != nil {
			return err
		}
		p.adapters[speed], p.adapterIdle[speed] = a, idle
	case "cable":
		return p.cable(speed, rest)
	default:
		return fmt.Errorf("found %q: want switch, adapter or cable", words[0])
	}
	return nil
}

func (p *Prices) cable(speed ib.Speed, words []string) error {
	var have []string
	for i := range p.media[speed] {
		m := &p.media[speed][i]
		name := mediumWords[m.medium]
		if len(words) == 0 || words[0] != name {
			have = append(have, name)
			continue
		}
		f, reach := *m, float64(m.reachMM)/1000
		if err := figures(words[1:], []figure{{"usd", &f.lowUSD, &f.highUSD, priceMax},
			{"metre", &f.lowUSDMetre, &f.highUSDMetre, priceMax}, {"watts", &f.watts, nil, wattsMax},
			{"reach", &reach, nil, 100_000}}); err != nil {
			return err
		}
		f.reachMM = int32(math.Round(1000 * reach))
		*m = f
		return nil
	}
	return fmt.Errorf("there is no such cable at %v: want one of %s behind the speed", speed, strings.Join(have, ", "))
}

// figures reads what a line says.
func figures(words []string, known []figure) error {
	for len(words) > 0 {
		i := slices.IndexFunc(known, func(f figure) bool { return f.key == words[0] })
		if i < 0 {
			var keys []string
			for _, f := range known {
				keys = append(keys, f.key)
			}
			return fmt.Errorf("found %q: want %s", words[0], strings.Join(keys, ", "))
		}
		f := known[i]
		if len(words) < 2 {
			return fmt.Errorf("%s has no value: want a number", f.key)
		}
		v, err := strconv.ParseFloat(words[1], 64)
		if err != nil || !(v >= 0 && v <= f.most) {
			return fmt.Errorf("%s is %q: want a number from 0 to %v", f.key, words[1], f.most)
		}
		*f.low = v
		words = words[2:]
		if f.high == nil {
			continue
		}
		*f.high = v
		if len(words) == 0 {
			continue
		}
		if w, err := strconv.ParseFloat(words[0], 64); err == nil {
			if !(w >= v && w <= f.most) {
				return fmt.Errorf("%s is %v to %q: want a number from %v to %v", f.key, v, words[0], v, f.most)
			}
			*f.high = w
			words = words[1:]
		}
	}
	return nil
}
