package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"softib/node/inspect"
	"softib/operate/control"
	"softib/operate/manager"
	"softib/proto/ib"
)

func newTop() *cobra.Command {
	var name string
	var asJSON bool
	r := topRequest{By: "traffic", Lines: 0}
	var rounds int
	cmd := &cobra.Command{
		Use:   "top [NODE…]",
		Short: "Show the ports of a running fabric by traffic, errors or waiting, live",
		Long: `Shows ports with what they carry, the busiest first, and goes on until q or Ctrl-C. Where
the output is no terminal it shows them once.

  traffic    bytes a second in the busier direction
  errors     errors a second, then errors since the fabric began
  wait       the part of the time in which a port had something to send and no
             credit for it (PortXmitWait): somebody further on is slow

Keys: t, e and w sort by these, q ends it.`,
		Example: `  softib top
  softib top leaf1 leaf2 --by errors
  softib top -n 1 --json`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if !slices.Contains(topOrders, r.By) {
				return usage(cmd, fmt.Errorf("--by %s: want one of %s", r.By, strings.Join(topOrders, ", ")))
			}
			if rounds < 0 || r.Lines < 0 {
				return usage(cmd, errors.New("-n and --lines want 0 or more"))
			}
			p, err := newPlace(name)
			if err != nil {
				return err
			}
			r.Nodes = args
			t := newTerminal(cmd.OutOrStdout())
			if rounds == 0 && (!t.isTTY || asJSON) {
				rounds = 1
			}
			r.Fresh = rounds > 0
			return top(cmd.Context(), p, r, rounds, t, asJSON)
		},
	}
	nameFlag(cmd, &name)
	f := cmd.Flags()
	f.StringVar(&r.By, "by", r.By, "order: `BY` "+strings.Join(topOrders, ", "))
	f.IntVarP(&rounds, "rounds", "n", 0, "end after showing it `N` times; 0 is until q on a terminal, once elsewhere")
	f.IntVar(&r.Lines, "lines", 0, "show at most `N` ports; 0 is as many as fit")
	f.BoolVar(&asJSON, "json", false, "print JSON, one object a line")
	return cmd
}

var topOrders = []string{"traffic", "errors", "wait"}

// topRequest asks for the foremost ports of every sample.
type topRequest struct {
	By    string   `json:"by"`
	Lines int      `json:"lines"`
	Nodes []string `json:"nodes,omitempty"`
	// Fresh wants the first rates to be those of a second that begins now, for who looks once.
	Fresh bool `json:"fresh,omitempty"`
}

// topSpan is that second. It begins when the command does: a manager's own samples are up to 5 s old in large fabrics.
const topSpan = time.Second

// topShown is one sample, as far as it is shown.
type topShown struct {
	At       time.Time `json:"at"`
	Interval float64   `json:"interval_sec"`
	By       string    `json:"by"`
	Ports    int       `json:"ports"` // of those asked for, whether shown or not
	Active   int       `json:"links_active"`
	Down     int       `json:"links_down"`
	Cables   int       `json:"links"`
	Hosts    float64   `json:"hosts_xmit_bytes_per_sec"`
	Rows     []topRow  `json:"rows"`
}

type topRow struct {
	Port   string  `json:"port"`
	Peer   string  `json:"peer,omitempty"`
	State  string  `json:"state"`
	Rate   string  `json:"rate,omitempty"`
	Xmit   float64 `json:"xmit_bytes_per_sec"`
	Rcv    float64 `json:"rcv_bytes_per_sec"`
	Pkts   float64 `json:"pkts_per_sec"`
	Busy   float64 `json:"utilisation"`
	Wait   float64 `json:"wait"`
	Errors float64 `json:"errors_per_sec"`
	Total  uint64  `json:"errors_total"`
}

const (
	// topLinesMax is how many ports are shown at most.
	topLinesMax = 1000
	// topLinesLive is how many ports a terminal is given: it may grow meanwhile.
	topLinesLive = 200
)

// top answers a client with one answer for each sample until it hangs up.
func (s *server) top(ctx context.Context, q topRequest, r *control.Reply[topShown]) error {
	if !slices.Contains(topOrders, q.By) {
		return errors.New("the request has no order: want traffic, errors or wait")
	}
	nodes := map[int]bool{}
	for _, name := range q.Nodes {
		n, err := s.mgr.Node(name)
		if err != nil {
			return s.noNode(name)
		}
		nodes[n.Index] = true
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// The client may change the order meanwhile.
	orders := make(chan string)
	go func() {
		defer cancel()
		var b [1]byte
		for {
			if _, err := r.Conn.Read(b[:]); err != nil {
				return
			}
			for _, o := range topOrders {
				if o[0] == b[0] {
					select {
					case orders <- o:
					case <-ctx.Done():
						return
					}
				}
			}
		}
	}()
	bell := s.mgr.Samples(ctx)
	by := q.By
	var sample *manager.Sample
	if q.Fresh {
		var err error
		if sample, err = s.mgr.Measure(ctx, topSpan); err != nil {
			return nil // it hung up
		}
	} else {
		sample = s.mgr.Fresh()
	}
	for ; ; sample = s.mgr.Sample() {
		if err := r.Say(topOf(s.mgr, sample, by, q.Lines, nodes)); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-bell:
		case by = <-orders:
		}
	}
}

// topOf picks the foremost ports of a sample. With nodes it is among theirs.
func topOf(m *manager.Manager, s *manager.Sample, by string, lines int, nodes map[int]bool) topShown {
	g := m.Graph()
	x := topShown{At: s.At, Interval: s.Interval.Seconds(), By: by, Active: s.Active, Down: s.Down,
		Cables: len(m.Cables()), Hosts: s.XmitBytes}
	var order []int
	for i, r := range m.Ports() {
		if len(nodes) == 0 || nodes[r.Node] {
			order = append(order, i)
		}
	}
	x.Ports = len(order)
	key := func(p *manager.PortSample) (float64, float64) {
		switch by {
		case "errors":
			return float64(p.Errors), float64(manager.ErrorTotal(&p.Counters))
		case "wait":
			return float64(p.Wait), float64(p.Counters[ib.PortXmitWait])
		}
		return float64(max(p.XmitBytes, p.RcvBytes)), float64(p.Counters[ib.PortXmitData] + p.Counters[ib.PortRcvData])
	}
	if lines <= 0 || lines > topLinesMax {
		lines = topLinesMax
	}
	order = foremost(order, lines, func(a, b int) int {
		x1, x2 := key(&s.Ports[a])
		y1, y2 := key(&s.Ports[b])
		return cmp.Or(cmp.Compare(y1, x1), cmp.Compare(y2, x2), cmp.Compare(a, b))
	})
	x.Rows = []topRow{}
	for _, i := range order {
		r, p := m.Ports()[i], &s.Ports[i]
		row := topRow{
			Port: g.PortName(r), State: inspect.StateName(p.State),
			Xmit: float64(p.XmitBytes), Rcv: float64(p.RcvBytes),
			Pkts: float64(p.XmitPkts + p.RcvPkts),
			Busy: p.Utilisation(), Wait: float64(p.Wait), Errors: float64(p.Errors),
			Total: manager.ErrorTotal(&p.Counters),
		}
		if q := g.Port(r); q.Connected() {
			row.Peer = fmt.Sprintf("%s[%d]", g.Nodes[q.Peer].Name, q.PeerPort)
		}
		if p.Rate != (ib.LinkRate{}) {
			row.Rate = p.Rate.String()
		}
		x.Rows = append(x.Rows, row)
	}
	return x
}

// foremost are the first n of a list in an order, without putting the others in order too: there may be half a million.
func foremost(list []int, n int, order func(a, b int) int) []int {
	first := make([]int, 0, n+1)
	for _, x := range list {
		if len(first) == n && order(x, first[n-1]) > 0 {
			continue
		}
		at, _ := slices.BinarySearchFunc(first, x, order)
		first = slices.Insert(first, at, x)
		first = first[:min(len(first), n)]
	}
	return first
}

// errEnough ends what is shown live.
var errEnough = errors.New("enough")

// top shows samples until there were enough of them.
func top(ctx context.Context, p place, r topRequest, rounds int, t *terminal, asJSON bool) error {
	conn, err := p.dial(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	live := t.isTTY && !asJSON && rounds != 1
	if r.Lines == 0 {
		r.Lines = 40
		if live {
			r.Lines = topLinesLive // and as many of them are shown as fit
		}
	}
	if live {
		restore := rawKeys(conn)
		defer restore()
		fmt.Fprint(t.w, "\x1b[?25l")
		defer fmt.Fprint(t.w, "\x1b[?25h\n")
	}
	shown := 0
	err = p.failed(opTop.Call(ctx, conn, r, func(x topShown) error {
		// The first sample of a young fabric has no rates yet.
		if rounds > 0 && x.Interval == 0 && shown == 0 && !live {
			return nil
		}
		shown++
		if asJSON {
			if err := json.NewEncoder(t.w).Encode(x); err != nil {
				return err
			}
		} else {
			var size screen
			if t.isTTY {
				size = screenSize()
			}
			x.print(t, live, size)
		}
		if rounds > 0 && shown >= rounds {
			return errEnough
		}
		return nil
	}))
	if errors.Is(err, errEnough) || live && ctx.Err() != nil {
		return nil
	}
	return err
}

// topColumn is a column of the table.
type topColumn struct {
	head string
	left bool // where it is aligned
	cell func(r *topRow) string
	// spare columns make room for the others where a terminal is narrow, those with the highest number first.
	spare int
}

var topColumns = []topColumn{
	{head: "port", left: true, cell: func(r *topRow) string { return r.Port }},
	{head: "peer", left: true, cell: func(r *topRow) string { return r.Peer }, spare: 4},
	{head: "state", left: true, cell: func(r *topRow) string { return r.State }, spare: 2},
	{head: "rate", left: true, cell: func(r *topRow) string { return r.Rate }, spare: 6},
	{head: "sent B/s", cell: func(r *topRow) string { return siShort(r.Xmit) }},
	{head: "rcvd B/s", cell: func(r *topRow) string { return siShort(r.Rcv) }},
	{head: "pkts/s", cell: func(r *topRow) string { return siShort(r.Pkts) }, spare: 5},
	{head: "      ", left: true, cell: func(r *topRow) string { return strings.Repeat("#", int(math.Round(r.Busy*6))) },
		spare: 7},
	{head: "busy", cell: func(r *topRow) string { return percent(r.Busy) }, spare: 1},
	{head: "wait", cell: func(r *topRow) string { return percent(r.Wait) }},
	{head: "err/s", cell: func(r *topRow) string { return siShort(r.Errors) }, spare: 3},
	{head: "errors", cell: func(r *topRow) string { return fmt.Sprint(r.Total) }},
}

// topGap is the space between two columns, and topAround how many lines are around the rows: three above them, and one
// for the cursor below.
const (
	topGap    = 2
	topAround = 5
)

// print draws a table in a terminal of that size. Live it fills the terminal, and begins in its corner each time.
func (x *topShown) print(t *terminal, live bool, size screen) {
	rows := x.Rows
	if live && size.lines > 0 {
		// One line more than fits would make the terminal scroll.
		rows = rows[:min(len(rows), max(size.lines-topAround, 1))]
	}
	var b strings.Builder
	end := "\n"
	if live {
		b.WriteString("\x1b[H")
		end = "\x1b[K\n"
	}
	say := func(paint func(string) string, line string) {
		// A line that is too long would take two.
		if text := []rune(line); size.columns > 0 && len(text) > size.columns {
			line = string(text[:size.columns])
		}
		b.WriteString(paint(line) + end)
	}
	plain := func(s string) string { return s }
	say(plain, fmt.Sprintf("%s  %s of %d active, %d down; hosts send %sB/s", x.At.Local().Format(time.TimeOnly),
		numbered(x.Active, "link", "links"), x.Cables, x.Down, siShort(x.Hosts)))
	keys := ""
	if live {
		keys = "   t traffic, e errors, w wait, q quit"
	}
	say(plain, fmt.Sprintf("%d of %s by %s%s", len(rows), numbered(x.Ports, "port", "ports"), x.By, keys))
	say(plain, "")
	columns, wide := topFit(rows, size.columns)
	line := func(cell func(*topColumn) string) string {
		var l strings.Builder
		for i, c := range columns {
			if i > 0 {
				l.WriteString(strings.Repeat(" ", topGap))
			}
			if c.left {
				fmt.Fprintf(&l, "%-*.*s", wide[i], wide[i], cell(c))
			} else {
				fmt.Fprintf(&l, "%*s", wide[i], cell(c))
			}
		}
		return strings.TrimRight(l.String(), " ")
	}
	say(t.bold, line(func(c *topColumn) string { return c.head }))
	for i := range rows {
		r := &rows[i]
		paint := plain
		switch {
		case r.Errors > 0 || r.State == "DOWN" && r.Peer != "":
			paint = t.red
		case r.Busy > 0.5:
			paint = t.green
		}
		say(paint, line(func(c *topColumn) string { return c.cell(r) }))
	}
	if live {
		b.WriteString("\x1b[J")
	}
	_, _ = t.w.Write([]byte(b.String()))
}

// topFit chooses the columns that have room in so many places (0: all), and how wide each is.
func topFit(rows []topRow, places int) (columns []*topColumn, wide []int) {
	total := -topGap
	for i := range topColumns {
		c := &topColumns[i]
		w := utf8.RuneCountInString(c.head)
		if !c.left {
			w = max(w, 5) // so that columns stay where they are as numbers grow
		}
		for k := range rows {
			w = max(w, utf8.RuneCountInString(c.cell(&rows[k])))
		}
		columns, wide = append(columns, c), append(wide, w)
		total += w + topGap
	}
	for places > 0 && total > places {
		worst := 0
		for i, c := range columns {
			if c.spare > columns[worst].spare {
				worst = i
			}
		}
		if columns[worst].spare == 0 {
			break
		}
		total -= wide[worst] + topGap
		columns, wide = slices.Delete(columns, worst, worst+1), slices.Delete(wide, worst, worst+1)
	}
	// Half a name can be guessed, half a number is another number.
	if places > 0 && total > places {
		wide[0] = max(wide[0]-(total-places), 4)
	}
	return columns, wide
}

func percent(v float64) string { return fmt.Sprintf("%.0f%%", 100*v) }

// siShort prints a number in five places.
func siShort(v float64) string {
	const units = " kMGTPE"
	i := 0
	// What rounds to four digits is one of the next unit.
	for ; v >= 999.5 && i < len(units)-1; i++ {
		v /= 1000
	}
	if i == 0 {
		return fmt.Sprintf("%.3g", v)
	}
	return fmt.Sprintf("%.3g %c", v, units[i])
}

// screen is the size of a terminal; 0 where there is none.
type screen struct{ lines, columns int }

// screenSize is the terminal's size as it is now.
func screenSize() screen {
	if ws, err := unix.IoctlGetWinsize(int(os.Stdout.Fd()), unix.TIOCGWINSZ); err == nil && ws.Row > 0 {
		return screen{int(ws.Row), int(ws.Col)}
	}
	return screen{24, 80}
}

// rawKeys sends keys to the fabric as they are pressed, without Enter, until the returned function is called; q hangs
// up.
func rawKeys(conn net.Conn) (restore func()) {
	fd := int(os.Stdin.Fd())
	old, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil {
		return func() {}
	}
	raw := *old
	raw.Lflag &^= unix.ICANON | unix.ECHO
	raw.Cc[unix.VMIN], raw.Cc[unix.VTIME] = 1, 0
	if unix.IoctlSetTermios(fd, unix.TCSETS, &raw) != nil {
		return func() {}
	}
	go func() {
		var b [1]byte
		for {
			if _, err := os.Stdin.Read(b[:]); err != nil {
				return
			}
			if b[0] == 'q' {
				if c, ok := conn.(*net.UnixConn); ok {
					_ = c.CloseWrite()
				}
				return
			}
			_, _ = conn.Write(b[:])
		}
	}()
	return func() { _ = unix.IoctlSetTermios(fd, unix.TCSETS, old) }
}
