package wiring

import "strconv"

// metres writes millimetres as metres, without loss.
func metres(mm int32) string { return strconv.FormatFloat(float64(mm)/1000, 'f', -1, 64) + " m" }
