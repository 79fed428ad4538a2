/* The part of exports.h that belongs to the extended verbs. */
#ifndef SOFTIB_EXPORTS_EXT_H
#define SOFTIB_EXPORTS_EXT_H

#define SOFTIB_EXT(X)                                                                                          \
	/* The device's clock in nanoseconds, and what to add for the time of day. */                          \
	X(clock, (uint32_t context, uint64_t *ns, int64_t *wall))                                              \
	/* Like poll_cq, with the times at which the completions were made; returns how many. */               \
	X(poll_stamped, (uint32_t cq, int32_t room, struct ibv_wc *, uint64_t *ns, int64_t *wall))             \
	X(modify_cq, (uint32_t cq, uint32_t count, uint32_t period_us))                                        \
	/* Like post_send, but the whole list or nothing of it. */                                             \
	X(post_batch, (uint32_t qp, struct ibv_send_wr *))                                                     \
	X(alloc_mw, (uint32_t pd, uint32_t type, uint32_t *mw, uint32_t *rkey))                                \
	X(dealloc_mw, (uint32_t mw))                                                                           \
	/* fd -1: a domain of its own. */                                                                      \
	X(open_xrcd, (uint32_t context, int32_t fd, int32_t oflags, uint32_t *xrcd))                           \
	X(close_xrcd, (uint32_t xrcd))                                                                         \
	/* One more handle for an XRC target; destroy_qp gives it back. */                                     \
	X(open_qp, (uint32_t xrcd, uint32_t qp_num, struct softib_made *))

#endif
