//go:build !plant

package agent

// A bug that a build with the tag plant can switch on, to show that the checks over a whole fabric find it.
const plantOpen = false // who shows no M_Key at all is let in
