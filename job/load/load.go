package load

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"softib/job"
)

// ErrLoad is what every refusal of a load's text is.
var ErrLoad = errors.New("not a load")

// Kind is a pattern that can be asked for.
type Kind struct {
	Name, Help string
	// Options are the words that it takes, with what each is when it is not said.
	Options []Option
	make    func(*maker) error
}

// Option is a word of a pattern.
type Option struct{ Name, Default, Help string }

// Load is a pattern with its options.
type Load struct {
	Kind *Kind
	text string
	set  map[string]string

	perServer int
	says      []string
}

func (l *Load) String() string { return l.text }

// common options of patterns that send messages of one size again and again.
var (
	size   = Option{"size", "64K", "bytes of a message, as in 4096, 64K or 1M; or a distribution: web, hadoop, storage"}
	count  = Option{"count", "1", "messages of each sender, one after the other"}
	window = Option{"window", "1", "messages of a sender that may be under way at a time"}
	every  = Option{"every", "0", "nanoseconds from the start of one message to the next"}
	burst  = Option{"burst", "0", "messages after which a sender is silent for a while; 0 is never"}
	idle   = Option{"idle", "0", "nanoseconds for which it is"}
)

// Kinds are all patterns.
func Kinds() []Kind { return kinds }

var kinds []Kind

func init() {
	stream := []Option{size, count, window, every, burst, idle}
	kinds = []Kind{
		{"permutation", "every rank sends to another one, chosen by chance, and receives from one",
			stream, func(m *maker) error { return m.fixed(m.permutation()) }},
		{"shift", "rank i sends to rank i + by",
			append([]Option{{"by", "1", "how far"}}, stream...), shift},
		{"uniform", "every message goes to a rank chosen by chance",
			stream, func(m *maker) error { return m.messages(m.uniform) }},
		{"incast", "many send to one", append([]Option{{"to", "0", "the rank that receives"},
			{"senders", "0", "how many send, those behind it; 0 is all"}}, stream...), incast},
		{"outcast", "one sends to many", append([]Option{{"from", "0", "the rank that sends"},
			{"receivers", "0", "how many receive; 0 is all"}}, stream...), outcast},
		{"ping-pong", "pairs of ranks answer each other: latency", []Option{
			{"by", "0", "how far apart; 0 is half of all"}, {"size", "8", "bytes of a message"},
			{"count", "100", "messages each way"}}, pingPong},
		{"neighbours", "ranks in a grid exchange messages with those beside them, step by step",
			[]Option{{"dims", "2", "2 or 3 dimensions"}, size, {"steps", "1", "how often"},
				{"compute", "0", "nanoseconds of work before each step"}}, neighbours},
	}
	kinds = append(kinds, collectives()...)
}

// Parse reads a pattern, such as "incast:to=3,size=1M".
func Parse(text string) (*Load, error) {
	name, rest, _ := strings.Cut(text, ":")
	i := slices.IndexFunc(kinds, func(k Kind) bool { return k.Name == name })
	if i < 0 {
		var names []string
		for _, k := range kinds {
			names = append(names, k.Name)
		}
		return nil, fmt.Errorf("%w: %q: want one of %s", ErrLoad, name, strings.Join(names, ", "))
	}
	l := &Load{Kind: &kinds[i], text: text, set: map[string]string{}}
	for _, o := range l.Kind.Options {
		l.set[o.Name] = o.Default
	}
	if rest == "" {
		return l, nil
	}
	for word := range strings.SplitSeq(rest, ",") {
		key, value, ok := strings.Cut(word, "=")
		if _, known := l.set[key]; !ok || !known {
			var names []string
			for _, o := range l.Kind.Options {
				names = append(names, o.Name+"=")
			}
			return nil, fmt.Errorf("%w: %s: %q: want %s", ErrLoad, name, word, strings.Join(names, ", "))
		}
		l.set[key] = value
	}
	return l, nil
}

// maxOps is how many operations a schedule may have: more do not fit into the memory of an ordinary machine.
const maxOps = 64e6

// Schedule makes the pattern for so many ranks.
func (l *Load) Schedule(ranks int, seed uint64) (*job.Schedule, error) {
	if ranks < 2 {
		return nil, fmt.Errorf("%w: %s: want at least two ranks, have %d", ErrLoad, l.Kind.Name, ranks)
	}
	m := &maker{Load: l, n: ranks, r: rand.New(rand.NewPCG(seed, 0x10AD)), b: job.NewBuilder(ranks)}
	if err := l.Kind.make(m); err != nil {
		return nil, err
	}
	if m.err != nil {
		return nil, m.err
	}
	return m.b.Schedule()
}

// maker makes one schedule.
type maker struct {
	*Load
	n   int
	r   *rand.Rand
	b   *job.Builder
	err error
}

// number is an option's value; what is wrong with it is kept.
func (m *maker) number(name string, least, most uint64) uint64 {
	v, err := Bytes(m.set[name])
	if err != nil || v < least || v > most {
		if m.err == nil {
			m.err = fmt.Errorf("%w: %s: %s=%s: want a number from %d to %d", ErrLoad, m.Kind.Name, name, m.set[name],
				least, most)
		}
		return least
	}
	return v
}

// Bytes reads a number with K, M or G behind it, which are powers of 1,024.
func Bytes(text string) (uint64, error) {
	unit := uint64(1)
	number := text
	if i := strings.IndexAny(text, "KMGkmg"); i >= 0 {
		switch strings.ToUpper(text[i:]) {
		case "K", "KIB", "KB":
			unit = 1 << 10
		case "M", "MIB", "MB":
			unit = 1 << 20
		case "G", "GIB", "GB":
			unit = 1 << 30
		default:
			return 0, fmt.Errorf("%q: want a number, with K, M or G behind it or nothing", text)
		}
		number = text[:i]
	}
	v, err := strconv.ParseUint(number, 10, 64)
	if err != nil || v > 1<<50/unit {
		return 0, fmt.Errorf("%q: want a number, with K, M or G behind it or nothing", text)
	}
	return v * unit, nil
}

// permutation is whom each rank sends to: nobody to itself.
func (m *maker) permutation() []int {
	to := m.r.Perm(m.n)
	for i := range to {
		if to[i] == i {
			j := (i + 1) % m.n
			to[i], to[j] = to[j], to[i]
		}
	}
	return to
}

// uniform is anybody but the rank itself.
func (m *maker) uniform(rank, _ int) int { return (rank + 1 + m.r.IntN(m.n-1)) % m.n }

// fixed lets every rank send to one other; to itself means that it does not.
func (m *maker) fixed(to []int) error { return m.messages(func(rank, _ int) int { return to[rank] }) }

// messages lets every rank send its messages, each to whom the function says.
func (m *maker) messages(to func(rank, n int) int) error {
	senders := make([]int, m.n)
	for i := range senders {
		senders[i] = i
	}
	return m.from(senders, to)
}

// from lets some ranks send. A message waits for the one window before it, and for its time.
func (m *maker) from(senders []int, to func(rank, n int) int) error {
	count, window := int(m.number("count", 1, 1<<24)), int(m.number("window", 1, 1<<16))
	gap, sizes := m.number("every", 0, 1<<40), m.sizes()
	burst, idle := int(m.number("burst", 0, 1<<24)), m.number("idle", 0, 1<<40)
	if m.err != nil {
		return m.err
	}
	if float64(len(senders))*float64(count)*2 > maxOps {
		return fmt.Errorf("%w: %s: %d messages of %d ranks are more than fit into memory: take a smaller count",
			ErrLoad, m.Kind.Name, count, len(senders))
	}
	for _, rank := range senders {
		ops := make([]uint32, count)
		clock, silence := uint32(0), uint32(0)
		for n := range count {
			peer, bytes := to(rank, n), sizes()
			if peer == rank {
				continue
			}
			tag := uint32(n)
			ops[n] = m.b.Send(rank, peer, bytes, tag)
			m.b.Recv(peer, rank, bytes, tag)
			if n >= window {
				m.b.After(rank, ops[n], ops[n-window])
			}
			if gap > 0 && n > 0 {
				// Time passes on a processor that does nothing else.
				next := m.b.Add(rank, job.Op{Kind: job.Calc, Size: gap, CPU: 1})
				if n > 1 {
					m.b.After(rank, next, clock)
				}
				m.b.After(rank, ops[n], next)
				clock = next
			}
			m.pause(rank, n, burst, idle, ops, &silence)
		}
	}
	return nil
}

func shift(m *maker) error {
	by := int(m.number("by", 1, uint64(m.n-1)))
	return m.messages(func(rank, _ int) int { return (rank + by) % m.n })
}

func incast(m *maker) error {
	to := int(m.number("to", 0, uint64(m.n-1)))
	return m.from(m.others(to, "senders"), func(int, int) int { return to })
}

func outcast(m *maker) error {
	from := int(m.number("from", 0, uint64(m.n-1)))
	list := m.others(from, "receivers")
	// Each of them is sent to in turn, as often as count says.
	rounds := m.number("count", 1, 1<<24)
	m.set["count"] = strconv.FormatUint(rounds*uint64(len(list)), 10)
	return m.from([]int{from}, func(_, n int) int { return list[n%len(list)] })
}

// others are the ranks behind one, as many as an option says.
func (m *maker) others(rank int, option string) []int {
	count := int(m.number(option, 0, uint64(m.n-1)))
	if count == 0 {
		count = m.n - 1
	}
	list := make([]int, count)
	for i := range list {
		list[i] = (rank + 1 + i) % m.n
	}
	return list
}

func neighbours(m *maker) error {
	dims, steps := int(m.number("dims", 2, 3)), int(m.number("steps", 1, 1<<20))
	work, sizes := m.number("compute", 0, 1<<40), m.sizes()
	if m.err != nil {
		return m.err
	}
	shape := Grid(m.n, dims)
	if float64(m.n)*float64(steps)*float64(4*dims+1) > maxOps {
		return fmt.Errorf("%w: %d steps of %d ranks are more than fit into memory", ErrLoad, steps, m.n)
	}
	for rank := range m.n {
		var last []uint32
		for s := range steps {
			calc := m.b.Calc(rank, work)
			m.b.After(rank, calc, last...)
			last = last[:0]
			stride := 1
			for d, width := range shape {
				at := rank / stride % width
				for side, by := range [2]int{1, width - 1} {
					if width == 1 {
						continue
					}
					peer := rank + ((at+by)%width-at)*stride
					bytes := sizes()
					// What goes one way comes from the other side.
					send := m.b.Send(rank, peer, bytes, uint32((s*3+d)*2+side))
					recv := m.b.Recv(rank, rank+((at+width-by)%width-at)*stride, bytes, uint32((s*3+d)*2+side))
					m.b.After(rank, send, calc)
					m.b.After(rank, recv, calc)
					last = append(last, send, recv)
				}
				stride *= width
			}
		}
	}
	return nil
}

// Grid is the most even grid of so many dimensions that has n places.
func Grid(n, dims int) []int {
	shape := make([]int, dims)
	for d := range shape {
		left := dims - d
		// The largest divisor that is no larger than the root of what is left.
		best := 1
		for w := 1; pow(w, left) <= n; w++ {
			if n%w == 0 {
				best = w
			}
		}
		if left == 1 {
			best = n
		}
		shape[d] = best
		n /= best
	}
	return shape
}

func pow(w, e int) int {
	p := 1
	for range e {
		p *= w
	}
	return p
}
