package mad

import (
	"fmt"
	"strings"
)

// Dump prints any bytes as a management datagram: the header, what the
// class adds to it, and the attribute by field names. Bytes that are too
// few or that no table describes are printed in hex.
func Dump(b []byte) string {
	var s strings.Builder
	v, err := AsView(b)
	if err != nil {
		if len(b) >= HeaderSize {
			HeaderLayout.dump(&s, b)
			b = b[HeaderSize:]
		}
		hexDump(&s, b)
		return s.String()
	}
	var h Header
	if _, err := h.Parse(v); err != nil {
		return err.Error() // a view is always long enough
	}
	fmt.Fprintf(&s, "%s\n", h)
	HeaderLayout.dump(&s, v)
	switch v.Class() {
	case ClassSMDirect:
		for _, name := range [...]string{"D", "HopPointer", "HopCount", "M_Key", "DrSLID", "DrDLID"} {
			label(&s, name)
			fmt.Fprintf(&s, "%s\n", DRSMPLayout.Field(name).Format(v, 0))
		}
		n := min(int(v.HopCount()), MaxHops) + 1
		label(&s, "InitialPath")
		fmt.Fprintf(&s, "%d\n", v[offInitialPath:offInitialPath+n])
		label(&s, "ReturnPath")
		fmt.Fprintf(&s, "%d\n", v[offReturnPath:offReturnPath+n])
	case ClassSA:
		RMPPLayout.dump(&s, v[RMPPOff:])
		SAHeaderLayout.dump(&s, v[SAHeaderOff:])
	case ClassSMLID:
		label(&s, "M_Key")
		fmt.Fprintf(&s, "%s\n", SMPLayout.Field("M_Key").Format(v, 0))
	}
	if a := Attr(h.MgmtClass, h.AttributeID); a != nil && a.Layout != nil {
		a.Layout.dump(&s, v.Data())
	} else {
		hexDump(&s, v.Data())
	}
	return s.String()
}

func hexDump(s *strings.Builder, b []byte) {
	for i := 0; i < len(b); i += 16 {
		fmt.Fprintf(s, "%04x: % x\n", i, b[i:min(i+16, len(b))])
	}
}
