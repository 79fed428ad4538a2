// Package race says whether the race detector is compiled in. Tests ask: the detector does not see what goes through
// memory that two processes share, and what it adds to a program's instructions is not what users run.
package race
