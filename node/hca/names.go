package hca

import "fmt"

// Objects print as what they are and their number, so that an error that names
// one stays one line long. A missing one prints as "none".

const none = "none"

func (p *PD) String() string {
	if p == nil {
		return none
	}
	return fmt.Sprintf("PD %d", p.num)
}

func (m *MR) String() string {
	if m == nil {
		return none
	}
	return fmt.Sprintf("MR 0x%08x", m.reg.key)
}

func (w *MW) String() string {
	if w == nil {
		return none
	}
	return fmt.Sprintf("MW 0x%08x", w.reg.key)
}

func (c *CQ) String() string {
	if c == nil {
		return none
	}
	return fmt.Sprintf("CQ %d", c.num)
}

func (q *QP) String() string {
	if q == nil {
		return none
	}
	return "QP " + q.num.String()
}

func (s *SRQ) String() string {
	if s == nil {
		return none
	}
	return fmt.Sprintf("SRQ %d", s.num)
}

func (a *AH) String() string {
	if a == nil {
		return none
	}
	return fmt.Sprintf("AH to LID %v", a.attr.DLID)
}

func (x *XRCD) String() string {
	if x == nil {
		return none
	}
	return "XRC domain"
}
