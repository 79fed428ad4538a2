// Package doctor says what is wrong with a fabric: the run that people know from ibdiagnet. Judge is a pure function
// from surveys (package survey) to a Report: for each check what was looked at, and findings with what was measured,
// what would have been right, and what to do next. Run makes the surveys, on any madrpc.Transport.
//
// It knows a fabric only by its answers to management datagrams, so it says the same of softib's own, of ibsim's and of
// real ones. What no datagram tells is passed in as Options: programs and their traffic, and a plan, where there is
// one, for the names of what is not there. Known takes them from who keeps the fabric, for command and page.
//
// Limits of counters and the judgement of cables are package health's, which the manager and its page use too.
package doctor
