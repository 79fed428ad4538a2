package hca

// Retract takes back the last n requests that PostSend accepted, as long as
// nothing of them has been sent: the caller has not let the engine go since. It
// returns how many it took back; a queue pair in ERR has completed them already.
// A batch of requests is posted as a whole or not at all that way.
func (h *HCA) Retract(q *QP, n int) int {
	if q == nil || q.dead || n < 0 {
		return 0
	}
	waiting := int(q.sqNext - q.sqCursor)
	if waiting > 0 && q.sq[q.sqCursor&q.sqMask].started {
		waiting--
	}
	n = min(n, waiting)
	q.sqNext -= uint32(n)
	q.show()
	return n
}
