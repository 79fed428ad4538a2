package policy

import (
	"maps"
	"math"
	"slices"
	"strings"

	"softib/proto/ib"
)

// ParseConfig reads an opensm.conf: a word and its value on each line, over OpenSM's defaults. The warnings name
// options that OpenSM has and this manager has not, where they are not at their default. Unlike OpenSM, which skips
// them silently, it reports words that are no option and values that are none.
func ParseConfig(file string, data []byte) (Config, Problems, error) {
	p := configParser{r: reporter{file: file}, c: DefaultConfig()}
	for _, line := range lines(data) {
		line = line.trim()
		if line.text != "" && line.text[0] != '#' {
			p.line(line)
		}
	}
	return p.c, p.r.warnings, p.r.errs.err()
}

type configParser struct {
	r reporter
	c Config
}

// optionNames are all words of the file, sorted.
var optionNames = func() []string {
	names := slices.Collect(maps.Keys(unsupported)) // tidy: order-free
	for i := range options {
		names = append(names, options[i].name)
	}
	slices.Sort(names)
	return names
}()

// line reads one option. OpenSM separates by blanks; its manual also shows an equals sign.
func (p *configParser) line(line word) {
	key, val, _ := line.cut(blanks + "=")
	if v, ok := strings.CutPrefix(val.text, "="); ok {
		val = val.from(len(val.text) - len(v)).trim()
	}
	val = value(val)
	i := slices.IndexFunc(options, func(o option) bool { return o.name == key.text })
	if i < 0 {
		def, known := unsupported[key.text]
		switch {
		case !known:
			p.r.fail(key, ErrUnknown, "expected an option of opensm.conf%s", hint(key.text, optionNames))
		case !strings.EqualFold(val.text, def):
			p.r.warn(key, ErrNoEffect, "an option of OpenSM that this manager does not have; its value is ignored")
		}
		return
	}
	p.set(&options[i], val)
}

// value is a value without the comment behind it and the quotes around it.
func value(w word) word {
	if w.text == "" {
		return w
	}
	if q := w.text[0]; q == '"' || q == '\'' {
		if i := strings.IndexByte(w.text[1:], q); i >= 0 {
			if rest := w.from(i + 2).trim(); rest.text == "" || rest.text[0] == '#' {
				return w.sub(1, i+1)
			}
		}
	}
	for i := 1; i < len(w.text); i++ {
		if w.text[i] == '#' && strings.IndexByte(blanks, w.text[i-1]) >= 0 {
			w = w.sub(0, i).trim()
			break
		}
	}
	if w.text == null {
		return w.sub(0, 0)
	}
	return w
}

// set gives the option's field the value.
func (p *configParser) set(o *option, val word) {
	r := &p.r
	switch f := o.field(&p.c).(type) {
	case *bool:
		switch {
		case strings.EqualFold(val.text, "TRUE"):
			*f = true
		case strings.EqualFold(val.text, "FALSE"):
			*f = false
		default:
			r.fail(val, ErrValue, "expected TRUE or FALSE")
		}
	case *string:
		if o.words != nil && !slices.Contains(o.words, val.text) {
			r.fail(val, ErrValue, "expected %s", oneOf(o.words))
			return
		}
		if strings.Contains(val.text, `"`) && strings.Contains(val.text, "'") {
			r.fail(val, ErrValue, "expected a name with at most one kind of quotes in it")
			return
		}
		*f = val.text
	case *[]string:
		*f = nil
		for _, item := range val.split(',', false) {
			if strings.ContainsAny(item.text, blanks+"#\"'") {
				r.fail(item, ErrSyntax, "expected names with commas between them")
			} else if item.text != "" {
				*f = append(*f, item.text)
			}
		}
	case *int16: // a limit that may be unset
		if val.text == "-1" {
			*f = -1
		} else if v, ok := r.number(val, "a limit, or -1", 0, 255); ok {
			*f = int16(v)
		}
	case *[]VLWeight:
		if val.text == "" {
			*f = nil
		} else if v, ok := r.vlArb(val); ok {
			*f = v
		}
	case *[]ib.VL:
		if val.text == "" {
			*f = nil
		} else if v, ok := r.sl2vl(val); ok {
			*f = v
			if len(v) < ib.NumSL {
				r.warn(val, ErrValue, "expected 16 lanes; the missing ones are lane 0")
			}
		}
	case *CCTEntry:
		if v, ok := r.cctEntry(val); ok {
			*f = v
		}
	case *[]CCTEntry:
		if val.text == "" {
			*f = nil
		} else if v, ok := r.cct(val); ok {
			*f = v
		}
	case *[32]byte:
		if v, ok := r.mask256(val); ok {
			*f = v
		}
	case perSLField:
		hi := uint64(math.MaxUint8)
		if _, wide := f.of(&f.c.CA[0]).(*uint16); wide {
			hi = math.MaxUint16
		}
		if sl, v, ok := r.perSL(val, o.what, hi); ok {
			setNumber(f.of(&f.c.CA[sl]), v)
		}
	default:
		hi, what := o.hi, o.what
		if hi == 0 {
			hi = numberMax(f)
		}
		if what == "" {
			what = "a key"
		}
		if v, ok := r.number(val, what, 0, hi); ok {
			setNumber(f, v)
		}
	}
}

// numberMax is what the type of a field holds.
func numberMax(field any) uint64 {
	switch field.(type) {
	case *uint8, *ib.SL:
		return math.MaxUint8
	case *uint16:
		return math.MaxUint16
	case *uint32:
		return math.MaxUint32
	}
	return math.MaxUint64
}

func setNumber(field any, v uint64) {
	switch f := field.(type) {
	case *uint8:
		*f = uint8(v)
	case *ib.SL:
		*f = ib.SL(v)
	case *uint16:
		*f = uint16(v)
	case *uint32:
		*f = uint32(v)
	case *uint64:
		*f = v
	case *ib.GUID:
		*f = ib.GUID(v)
	}
}
