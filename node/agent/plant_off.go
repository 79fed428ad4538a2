//go:build !plant

package agent

// Bugs that a build with the tag plant can switch on, to show that the checks over a whole fabric find them.
const (
	plantOpen  = false // who shows no M_Key at all is let in
	plantTerms = false // requests of a term that is over are carried out
)
