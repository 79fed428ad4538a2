//go:build plant

package agent

var plantOpen, plantTerms bool

// Bug is one that torture has to find. It exists in builds with the tag plant only.
type Bug uint8

// Bugs.
const (
	Open     Bug = iota // who shows no M_Key at all is let in
	OldTerms            // requests of a term that is over are carried out
)

// Plant switches a bug on or off.
func Plant(b Bug, on bool) {
	switch b {
	case Open:
		plantOpen = on
	case OldTerms:
		plantTerms = on
	}
}
