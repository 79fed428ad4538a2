package topo

import (
	"strconv"
	"strings"

	"softib/proto/ib"
)

// portOption reads ibsim's w=2 or s=4.
func (c *cursor) portOption(link *LinkSpec) {
	start := c.pos
	key := c.run(isLetter)
	if key != "w" && key != "s" || !c.accept('=') {
		c.pos = start
		c.want("w= or s=, a comment (#) or the end of the line")
		return
	}
	if key == "w" {
		link.Width = c.widthMask()
	} else {
		link.Speed = c.speedMask()
	}
}

// widthMask reads PortInfo's mask of widths and keeps the widest, as training
// would. 4 means 4x, as ibsim's examples say, though as a mask it were 8x.
func (c *cursor) widthMask() ib.Width {
	start := c.pos
	const what = "a mask of widths from 1 to 31: 1 is 1x, 2 is 4x, 8 is 12x, 16 is 2x"
	mask := c.number(what)
	if c.err != nil {
		return 0
	}
	if mask == 4 {
		return ib.Width4x
	}
	for _, w := range [...]ib.Width{ib.Width12x, ib.Width8x, ib.Width4x, ib.Width2x, ib.Width1x} {
		if mask <= 31 && ib.Width(mask)&w != 0 {
			return w
		}
	}
	c.failAt(start, c.text[start:c.pos], ErrSyntax, "found %d: want %s", mask, what)
	return 0
}

// speedMask reads PortInfo's mask of speeds, which ends at QDR.
func (c *cursor) speedMask() ib.Speed {
	start := c.pos
	const what = "a mask of speeds from 1 to 7: 1 is SDR, 2 is DDR, 4 is QDR"
	mask := c.number(what)
	if c.err != nil {
		return 0
	}
	switch {
	case mask >= 1 && mask <= 7 && mask&4 != 0:
		return ib.QDR
	case mask >= 1 && mask <= 7 && mask&2 != 0:
		return ib.DDR
	case mask == 1:
		return ib.SDR
	}
	c.failAt(start, c.text[start:c.pos], ErrSyntax, "found %d: want %s", mask, what)
	return 0
}

// readNodeComment reads what a node's comment says: the description in
// quotes (or bare, in old files), then the LID and LMC of a switch.
func (r *reader) readNodeComment(c *cursor, n *fileNode, text string, at int) {
	first, last := strings.IndexByte(text, '"'), strings.LastIndexByte(text, '"')
	after := len(text)
	switch {
	case first >= 0 && first < last:
		n.Desc, after = text[first+1:last], last+1
	default:
		for _, end := range [...]string{" enhanced port ", " base port ", " lid ", " lmc "} {
			if i := strings.Index(text, end); i >= 0 && i < after {
				after = i
			}
		}
		n.Desc = strings.TrimSpace(text[:after])
	}
	n.Desc = cleanDesc(n.Desc)
	if _, isGUID := guidOfID(n.id); n.Desc == "" && !isGUID {
		n.Desc = cleanDesc(n.id)
	}
	var f commentFacts
	f.read(c, text[after:], at+after)
	n.lid, n.lmc = f.lid, f.lmc
	if f.odd != "" {
		c.warn("%s", f.odd)
	}
	n.Name = r.names.derive(n.Type, n.Desc)
	if f.name != "" && f.name != n.Name {
		if r.names.taken[f.name] || !isHostName(f.name) {
			c.failAt(f.nameAt, f.name, ErrDuplicateName, "%q is taken or no host name: want a name of its own, or none",
				f.name)
			return
		}
		n.Name = f.name
	}
	if c.err == nil {
		r.names.take(n.Type, n.Name)
	}
}

// readPortComment reads what a port's comment says. Before the far node's
// description stand the LID and LMC of this port, behind it the far LID, the
// width and the speed.
func (r *reader) readPortComment(c *cursor, p *filePort, text string, at int) {
	first, last := strings.IndexByte(text, '"'), strings.LastIndexByte(text, '"')
	if first < 0 || first == last {
		first, last = len(text), -1
	}
	var own, far commentFacts
	if first > 0 {
		own.read(c, text[:first], at)
	}
	far.read(c, text[last+1:], at+last+1)
	if !r.cur.IsSwitch() {
		p.lid, p.lmc = own.lid, own.lmc
		if own.odd != "" {
			c.warn("%s", own.odd)
		}
	}
	if far.link.Width != 0 {
		p.link.Width = far.link.Width
	}
	if far.link.Speed != 0 {
		p.link.Speed = far.link.Speed
	}
	p.link.LengthMM, p.could = far.link.LengthMM, far.could
}

// commentFacts are the words of a comment that mean something. All others are a
// person's and are passed over.
type commentFacts struct {
	lid    ib.LID
	lmc    uint8
	link   LinkSpec
	could  ib.LinkRate
	name   string
	nameAt int
	odd    string // what the LID is, if it is no address
}

func (f *commentFacts) read(c *cursor, text string, at int) {
	pos, before, afterLID := 0, "", false
	for c.err == nil {
		for pos < len(text) && (text[pos] == ' ' || text[pos] == '\t') {
			pos++
		}
		if pos == len(text) {
			return
		}
		end := strings.IndexAny(text[pos:], " \t")
		if end < 0 {
			end = len(text) - pos
		}
		word := text[pos : pos+end]
		wasLID := before == "lid" && word[0] >= '0' && word[0] <= '9'
		f.word(c, before, word, at+pos, afterLID)
		before, afterLID = word, wasLID
		pos += end
	}
}

// word takes one word, knowing the one before it. A rate is checked only where
// ibnetdiscover puts it, right behind the LID.
func (f *commentFacts) word(c *cursor, before, word string, at int, afterLID bool) {
	number, isNumber := -1, isDigit(word[0])
	if isNumber {
		if n, err := strconv.Atoi(word); err == nil {
			number = n
		} else {
			isNumber = false
		}
	}
	switch {
	case before == "lid" && isNumber:
		f.lid, f.odd = unicastLID(uint64(number))
	case before == "lmc" && isNumber:
		if number > 7 {
			c.failAt(at, word, ErrSyntax, "found LMC %d: want 0 to 7", number)
		}
		f.lmc = uint8(number)
	case before == "name":
		f.name, f.nameAt = word, at
	case before == "could":
		if w, s, ok := parseRate(word); ok {
			f.could = ib.LinkRate{Width: w, Speed: s}
		}
	case before == "len":
		if mm, ok := parseLength(word); ok {
			f.link.LengthMM = mm
		}
	default:
		w, s, ok := parseRate(word)
		if ok {
			f.link.Width, f.link.Speed = w, s
		} else if afterLID && isDigit(word[0]) {
			c.failAt(at, word, ErrSyntax, "found %q: want a width and a speed such as 4xEDR: 1x, 2x, 4x, 8x "+
				"or 12x, then SDR, DDR, QDR, FDR10, FDR, EDR, HDR, NDR or XDR", word)
		}
	}
}

// parseRate reads 4xEDR. A part that ibnetdiscover could not name, as in
// 4x???, is 0.
func parseRate(word string) (ib.Width, ib.Speed, bool) {
	lanes, speed, ok := strings.Cut(word, "x")
	var w ib.Width
	if rest, unknown := strings.CutPrefix(word, "??"); unknown {
		speed, ok = rest, true
	} else if ok {
		w, ok = parseWidth(lanes)
	}
	if !ok {
		return 0, 0, false
	}
	s, known := ib.ParseSpeed(speed)
	return w, s, known || speed == "???"
}
