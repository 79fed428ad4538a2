//go:build !plant

package ibswitch

// Bugs that a build with the tag plant can switch on, to show that the checks over a whole fabric find them: a switch
// goes on choosing when its forwarding table is written, and packets stay on their lane where it should rise. Here they
// are constants, and nothing is left of them.
const plantStays, plantFlat = false, false
