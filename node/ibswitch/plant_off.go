//go:build !plant

package ibswitch

// Bugs that a build with the tag plant can switch on, to show that the checks over a whole fabric find them: a switch
// goes on choosing when its forwarding table is written, and lanes go by the service level though they should rise with
// the lane that a packet came on. Here they are constants, and nothing is left of them.
const plantStays, plantLevel = false, false
