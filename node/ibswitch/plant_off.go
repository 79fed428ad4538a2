//go:build !plant

package ibswitch

// plantStays is a bug that a build with the tag plant can switch on, to show that the checks over a whole fabric find
// it: a switch goes on choosing when its forwarding table is written. Here it is a constant, and nothing is left of it.
const plantStays = false
