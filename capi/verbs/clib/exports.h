/*
 * What libibverbs.so.1 calls in libsoftib.so. One line a function: its name behind softib_, and its arguments. All
 * return 0 or a positive errno, unless said. Objects go by the handles that the function which made them gave; handle 0
 * is no object.
 */
#ifndef SOFTIB_EXPORTS_H
#define SOFTIB_EXPORTS_H

#include <infiniband/verbs.h>

/* Kept by the driver in memory that both sides see: whether there is anything to ask the adapter for. Package endpoint
 * has the other declaration. */
struct softib_hint {
	uint32_t stirs;  /* changes when something needs a look */
	uint32_t nrings; /* entries below; SOFTIB_RINGS_MANY: look yourself, always */
	uint32_t dead;   /* the fabric is gone */
	uint32_t reaped; /* C: polls that found completions */
	struct {
		const volatile uint32_t *seq; /* a packet waits if *seq == want */
		uint32_t want;
		uint32_t pad;
	} ring[64];
	uint64_t staged; /* the first struct softib_stage with receives that the adapter has not taken */
	uint64_t sends;  /* likewise of struct softib_sends */
	uint32_t parked; /* queue pairs wait for room at a peer */
	struct softib_polls {
		uint32_t idle, gap, reap, tight, ticks, linger, doze, shared, crowd, kept, nap, batch;
	} polls; /* who polls how: driver/endpoint/duty.go has the table */
	uint32_t sleepers; /* C: threads that sleep at the bell, */
	uint32_t naps;     /* and those of them that poll */
	uint32_t switched; /* what was sent last goes through the fabric */
	uint32_t *bell;    /* odd while nobody looks; a futex, at which others sleep too */
};

/* How threads of the program sleep at the bell, in the kernel's terms. */
#define SOFTIB_FOR_PROGRAM 2

/*
 * What is posted is left where the adapter finds it, because a call into Go costs ten times as much. C fills entries
 * behind tail, Go empties them behind taken.
 */
struct softib_staged {
	uint32_t tail;   /* C */
	uint32_t taken;  /* Go */
	uint32_t queued; /* it is in the hint's list */
	uint32_t handle; /* of the queue pair */
	uint64_t next;   /* in that list */
	uint32_t lock;
	uint32_t pad;
};

/* Receives: the adapter takes them before it takes in packets. */
#define SOFTIB_STAGED 64

struct softib_stage {
	struct softib_staged is;
	uint32_t limit; /* Go: how far tail may go for the queue to have room */
	uint32_t max_sge;
	uint64_t wr_id[SOFTIB_STAGED];
	uint32_t num_sge[SOFTIB_STAGED];
	struct ibv_sge sge[]; /* max_sge each */
};

/*
 * Requests to a reliable queue pair that has a stream of others under way: whoever takes in what ends those looks here,
 * so these need no call of their own.
 */
#define SOFTIB_SENDS 32
#define SOFTIB_SEND_DATA 48

struct softib_send {
	struct ibv_send_wr wr; /* alone, with sge as its list */
	struct ibv_sge sge;
	uint8_t data[SOFTIB_SEND_DATA]; /* where sge points if the request is inline */
};

struct softib_sends {
	struct softib_staged is;
	uint32_t under; /* Go: how many the adapter has that have not completed */
	uint32_t pad;
	struct softib_send *at; /* SOFTIB_SENDS of them, once there was one */
};

#define SOFTIB_RINGS_MANY 0xffffffffu

/* Tag matching: package hca has the other declaration. */
#define SOFTIB_RNDV_MAX 64
#define SOFTIB_TAGS_MAX 4096

/* The least rate of a queue pair in kb/s, likewise. */
#define SOFTIB_RATE_MIN 1000

struct softib_open_args {
	const char *socket;
	const char *host;
	int32_t async_fd; /* where asynchronous events are written */
	uint32_t handle;  /* out, like the rest */
	struct softib_hint *hint;
	char error[240]; /* a line for the user when it failed */
};

/* An object was made. The serial number is never given out twice, the handle is. */
struct softib_made {
	uint32_t handle;
	uint32_t serial;
};

struct softib_mr_args {
	uint32_t pd;
	uint32_t access; /* ibv_access_flags */
	void *addr;
	uint64_t length;
	uint64_t iova;
	uint32_t flags;  /* ibv_rereg_mr_flags: what to change */
	uint32_t handle; /* out, like the rest */
	uint32_t lkey;
	uint32_t rkey;
};

/*
 * Where the adapter puts completions as they come, whoever's call brought them: a poll finds them without one. Go
 * fills behind tail, C empties behind head, one thread at a time.
 */
#define SOFTIB_READY 64

struct softib_ready {
	uint32_t tail; /* Go */
	uint32_t more; /* Go: there are others that did not fit */
	uint32_t head; /* C */
	uint32_t lock; /* C */
	uint32_t away; /* Go: how often C is not to linger; C counts down */
	struct ibv_wc wc[SOFTIB_READY];
};

/* How advance_cq is called. */
enum softib_how {
	SOFTIB_AGAIN,  /* there is something to do, still or again */
	SOFTIB_SOON,   /* there is, and there was nothing before for a moment */
	SOFTIB_LINGER, /* there is nothing, but the program does nothing but poll: wait a moment for something */
	SOFTIB_SPUN,   /* there is nothing, and has not been for a while */
};

struct softib_cq_args {
	uint32_t context;
	uint32_t cqe; /* in and out */
	int32_t event_fd; /* where completion events are written, or -1 */
	uint32_t *told;   /* how many were, ever */
	uint32_t wraps;   /* an overrun overwrites the oldest; ready is NULL */
	struct softib_ready *ready; /* or NULL: poll_cq is called for each */
	struct softib_made made;
};

struct softib_srq_args {
	uint32_t pd;
	uint32_t xrcd; /* with cq: an XRC shared receive queue */
	uint32_t cq;
	uint32_t tags; /* with cq: how many it matches */
	struct ibv_srq_attr attr; /* in and out */
	struct softib_made made;
	uint32_t srq_num;
};

struct softib_qp_args {
	uint32_t context;
	uint32_t pd;
	uint32_t xrcd;
	uint32_t send_cq;
	uint32_t recv_cq;
	uint32_t srq;
	uint32_t type; /* ibv_qp_type */
	uint32_t sig_all;
	uint32_t create_flags;
	struct ibv_qp_cap cap; /* in and out */
	struct softib_sends *sends; /* or NULL */
	struct softib_made made;
	uint32_t qp_num;
};

/* A record in the pipes behind ibv_context.async_fd and ibv_comp_channel.fd. The C side finds the object by kind and
 * handle, and drops the record if the object has another serial number by now. */
struct softib_event {
	uint32_t type; /* ibv_event_type, or SOFTIB_COMPLETION */
	uint32_t kind; /* enum softib_kind, or SOFTIB_NO_OBJECT */
	uint32_t handle; /* or the port's number */
	uint32_t serial;
};

enum softib_kind { SOFTIB_CQ, SOFTIB_QP, SOFTIB_SRQ, SOFTIB_KINDS, SOFTIB_NO_OBJECT };

#define SOFTIB_COMPLETION 0x100

#define SOFTIB_CALLS(X)                                                                             \
	X(open, (struct softib_open_args *))                                                        \
	X(close, (uint32_t context))                                                                \
	X(query_device, (uint32_t context, struct ibv_device_attr *))                               \
	X(query_port, (uint32_t context, uint32_t port, struct ibv_port_attr *))                    \
	X(query_gid, (uint32_t context, uint32_t port, int32_t index, uint8_t *gid))                \
	X(query_pkey, (uint32_t context, uint32_t port, int32_t index, uint16_t *pkey))             \
	X(alloc_pd, (uint32_t context, uint32_t *pd))                                               \
	X(dealloc_pd, (uint32_t pd))                                                                \
	X(reg_mr, (struct softib_mr_args *))                                                        \
	/* addr and length: zeros to read. */                                                       \
	X(alloc_null_mr, (struct softib_mr_args *))                                                 \
	X(rereg_mr, (struct softib_mr_args *))                                                      \
	X(dereg_mr, (uint32_t mr))                                                                  \
	X(advise_mr, (uint32_t pd, uint32_t advice, struct ibv_sge *, uint32_t n))                  \
	/* Whether there is one that a program has the handle of; keys and length of a region. */   \
	X(find_pd, (uint32_t context, uint32_t pd))                                                 \
	X(find_mr, (uint32_t pd, struct softib_mr_args *))                                          \
	X(create_cq, (struct softib_cq_args *))                                                     \
	X(resize_cq, (uint32_t cq, uint32_t *cqe))                                                  \
	X(destroy_cq, (uint32_t cq))                                                                \
	X(req_notify, (uint32_t cq, int32_t solicited_only))                                        \
	/* Does what there is to do, for a thread that may sleep then while the bell is this. It    \
	   waits for an event, or it polls. */                                                      \
	X(await, (uint32_t context, int32_t polls, uint32_t *bell))                                 \
	/* Does what there is to do, so that completions come. */                                   \
	X(advance_cq, (uint32_t cq, int32_t how))                                                   \
	/* Returns how many, with the times at which they were made unless ns is NULL. It is for a  \
	   queue without a list of those that are ready. */                                         \
	X(poll_cq, (uint32_t cq, int32_t room, struct ibv_wc *, uint64_t *ns, int64_t *wall))       \
	X(create_srq, (struct softib_srq_args *))                                                   \
	X(modify_srq, (uint32_t srq, struct ibv_srq_attr *, int32_t mask))                          \
	X(query_srq, (uint32_t srq, struct ibv_srq_attr *))                                         \
	X(destroy_srq, (uint32_t srq))                                                              \
	X(create_qp, (struct softib_qp_args *))                                                     \
	X(modify_qp, (uint32_t qp, struct ibv_qp_attr *, int32_t mask))                             \
	/* Queues that are to be longer; those of a queue pair never become shorter. In and out. */ \
	X(resize_qp, (uint32_t qp, struct ibv_qp_cap *))                                            \
	X(limit_qp, (uint32_t qp, uint32_t kbps, uint32_t burst))                                   \
	X(query_qp, (uint32_t qp, struct ibv_qp_attr *))                                            \
	X(destroy_qp, (uint32_t qp))                                                                \
	X(create_ah, (uint32_t pd, struct ibv_ah_attr *, uint32_t *ah))                             \
	X(destroy_ah, (uint32_t ah))                                                                \
	X(attach_mcast, (uint32_t qp, const uint8_t *gid, uint32_t lid))                            \
	X(detach_mcast, (uint32_t qp, const uint8_t *gid, uint32_t lid))                            \
	/* The data path: whole lists; *bad is the request that was refused. With no bad post_send  \
	   sends the whole list or nothing of it. No list: what is staged is taken. */              \
	X(post_send, (uint32_t qp, struct ibv_send_wr *, struct ibv_send_wr **bad))                 \
	X(post_recv, (uint32_t qp, struct ibv_recv_wr *, struct ibv_recv_wr **bad))                 \
	X(post_srq_recv, (uint32_t srq, struct ibv_recv_wr *, struct ibv_recv_wr **bad))            \
	X(post_srq_ops, (uint32_t srq, struct ibv_ops_wr *, struct ibv_ops_wr **bad))               \
	/* The program ends: what the adapter still owes to others goes out. */                     \
	X(settle, (void))                                                                           \
	/* Writes what did not fit into a pipe before. */                                           \
	X(flush_events, (int32_t fd))                                                               \
	/* The extended verbs. */                                                                   \
	/* The device's clock in nanoseconds, and what to add for the time of day. */               \
	X(clock, (uint32_t context, uint64_t *ns, int64_t *wall))                                   \
	X(modify_cq, (uint32_t cq, uint32_t count, uint32_t period_us))                             \
	X(alloc_mw, (uint32_t pd, uint32_t type, uint32_t *mw, uint32_t *rkey))                     \
	X(dealloc_mw, (uint32_t mw))                                                                \
	/* fd -1: a domain of its own. */                                                           \
	X(open_xrcd, (uint32_t context, int32_t fd, int32_t oflags, uint32_t *xrcd))                \
	X(close_xrcd, (uint32_t xrcd))                                                              \
	/* One more handle for an XRC target; destroy_qp gives it back. */                          \
	X(open_qp, (uint32_t xrcd, uint32_t qp_num, struct softib_made *))

#endif
